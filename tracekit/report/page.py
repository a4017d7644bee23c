"""The comparison as one page of HTML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from tracekit import __version__, analysis, plot
from tracekit.analysis.compare import IDENTITY, METRICS, RECORDED
from tracekit.report.figures import inline_svg
from tracekit.units import format_bound, format_count, format_ns
from tracekit.whatif.calibration import METRICS as CALIBRATION
from tracekit.whatif.comparison import MIN_SAMPLES, Comparison, inferred
from tracekit.whatif.predictions import with_calibration

__all__ = ["render"]

#: Rows of the tables of one group, in this order.
_ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("slice_per_involuntary", ("mean",)),
    ("slice", ("mean", "p50", "p95", "p99", "max")),
    ("run_delay", ("mean", "p50", "p95", "p99", "max")),
    ("wakeup_latency", ("mean", "p50", "p95", "p99", "max")),
    ("response", ("mean", "p50", "p95", "p99", "max")),
    ("cpu_time", ("total",)),
    ("switches", ("total",)),
    ("involuntary_switches", ("total",)),
)
_NAMES = {
    "slice_per_involuntary": "run time per involuntary switch",
    "slice": "slice",
    "run_delay": "run delay",
    "wakeup_latency": "wakeup latency",
    "response": "response time",
    "cpu_time": "time on CPUs",
    "switches": "switches",
    "involuntary_switches": "involuntary switches",
    "runqueue": "run-queue length",
}
#: Groups with a table that is open from the start; further ones are folded, and beyond the second number left out.
_OPEN_GROUPS, _ALL_GROUPS = 3, 40
_UNSAFE_IN_SCRIPT = re.compile("[<>&\u2028\u2029]")


@dataclass(frozen=True)
class Picture:
    """A figure of the page."""

    title: str
    svg: Markup
    read: str


@dataclass(frozen=True)
class Cell:
    """What one policy does to one figure."""

    value: str
    change: str
    verdict: str
    span: str = ""
    bistable: str = ""


@dataclass(frozen=True)
class Line:
    """One figure of one group under every policy."""

    label: str
    recorded: str
    interval: str
    n: str
    identity: str
    error: str
    calibration: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Group:
    """All figures of one group of tasks."""

    name: str
    lines: tuple[Line, ...]
    folded: bool


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return format_count(int(value)) if unit != "ns" and value == int(value) else format_bound(value, unit)


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 900:
        times = 1 + value / 100
        return f"x {format_count(round(times))}" if times >= 100 else f"x {times:.3g}"
    if abs(value) < 0.05:
        return "0.0 %"
    return f"{value:+.0f} %" if abs(value) >= 100 else f"{value:+.1f} %"


def _cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return Cell("-", "not measured", "not measured")
    told = {"resolved": "", "not resolved": "not resolved", "not measured": "not measured"}[row["verdict"]]
    change = "" if row["change_pct"] is None else _percent(row["change_pct"])
    span = (
        ""
        if row["low"] is None
        else f"{format_bound(row['low'], row['unit'])} to {format_bound(row['high'], row['unit'])}"
    )
    two = ""
    if row["bistable_low"] is not None:
        low, high = (format_bound(row[k], row["unit"]) for k in ("bistable_low", "bistable_high"))
        two = f"bistable: {low} or {high}"
    return Cell(
        _value(row["predicted"], row["unit"]),
        ", ".join(x for x in (change, told) if x),
        row["verdict"],
        span,
        two,
    )


def _lines(
    comparison: Comparison, scope: str, group: str | None, picks: list[tuple[str, str]]
) -> tuple[Line, ...]:
    """Return a line for each metric and statistic of `picks` that was measured at all."""
    where = (pl.col("scope") == scope) & pl.col("group").eq_missing(pl.lit(group, dtype=pl.String))
    rows = {
        (r["metric"], r["statistic"]): r
        for r in with_calibration(comparison.calibration.filter(where), comparison.fidelity).iter_rows(
            named=True
        )
    }
    predicted = {
        (r["policy"], r["metric"], r["statistic"]): r
        for r in comparison.table.filter(where).iter_rows(named=True)
    }
    bounds = _bounds(comparison, group) if scope == "group" else {}
    out = []
    for key in picks:
        row = rows.get(key)
        found = [predicted.get((label, *key)) for label in comparison.replays]
        if row is None or (row["recorded"] is None and row["identity"] is None):
            continue
        # With repetitions the identity is their median, as the predictions are.
        told = next((r for r in found if r is not None), None)
        identity = row["identity"] if told is None else told["identity"]
        error = row["error_pct"] if told is None else told["identity_error_pct"]
        out.append(
            Line(
                _label(*key),
                _value(row["recorded"], row["unit"]),
                bounds.get(key, ""),
                "" if row["n_recorded"] is None else format_count(row["n_recorded"]),
                _value(identity, row["unit"]),
                _percent(error),
                row["calibration"],
                tuple(map(_cell, found)),
            )
        )
    return tuple(out)


def _label(metric: str, statistic: str) -> str:
    plain = statistic == "total" or metric == "slice_per_involuntary"
    return _NAMES[metric] if plain else f"{_NAMES[metric]}, {statistic}"


def _bounds(comparison: Comparison, group: str | None) -> dict[tuple[str, str], str]:
    rows = comparison.intervals.filter(pl.col("group").eq_missing(pl.lit(group, dtype=pl.String)))
    return {
        (r["metric"], r["statistic"]): f"{format_ns(r['lo'])} to {format_ns(r['hi'])}"
        for r in rows.iter_rows(named=True)
        if r["lo"] is not None
    }


def _groups(comparison: Comparison) -> list[Group]:
    picks = [(metric, statistic) for metric, statistics in _ROWS for statistic in statistics]
    cut = analysis.slices.summary(comparison.trace.slices, comparison.by)
    names = comparison.main_groups + [g for g in cut["group"].to_list() if g not in comparison.main_groups]
    queue = [("runqueue", s) for s in ("mean", "p50", "p95", "p99", "max")]
    out = [
        Group("The whole system", _lines(comparison, "system", None, queue), folded=False),
        Group("All tasks", _lines(comparison, "all", None, picks), folded=False),
    ]
    for i, name in enumerate(names[:_ALL_GROUPS]):
        shown = "(no name)" if name is None else name
        out.append(Group(shown, _lines(comparison, "group", name, picks), folded=i >= _OPEN_GROUPS))
    return [g for g in out if g.lines]


def _enough(curves: Mapping[str, pl.DataFrame], groups: list[str | None]) -> list[str | None]:
    """Return the groups of which some curve has enough samples."""
    out = []
    for group in groups:
        sizes = []
        for curve in curves.values():
            rows = curve.filter(pl.col("group").eq_missing(pl.lit(group, dtype=pl.String)))
            sizes.append(rows.select((pl.col("n_events") + pl.col("n_censored")).sum()).item())
        if max(map(int, sizes)) >= MIN_SAMPLES:
            out.append(group)
    return out


def _window(trace_slices: pl.DataFrame, span_ns: int, cpus: int) -> int:
    """Return the length of a window that holds about 60 slices a CPU, rounded to 1, 2 or 5 times a power of ten."""
    wanted = span_ns * 60 * max(cpus, 1) / max(trace_slices.height, 1)
    sizes = (int(step * 10**power) for power in range(3, 12) for step in (1, 2, 5))
    return next((size for size in sizes if size >= min(wanted, span_ns)), span_ns)


def _timeline(comparison: Comparison) -> Figure:
    """Return who ran when in the middle of the trace; every trace counted from its own first record."""
    trace = comparison.trace
    span = (trace.end_ns or 0) - (trace.start_ns or 0)
    window = _window(trace.slices, span, trace.cpus.height)
    rows = {
        label: t.slices.with_columns(pl.col("ts_ns") - (t.start_ns or 0))
        for label, t in comparison.traces.items()
    }
    return plot.timeline(rows, start_ns=max(0, span // 2 - window // 2), dur_ns=window, name=trace.name)


def _pictures(comparison: Comparison) -> list[Picture]:
    traces, name, by = comparison.traces, comparison.trace.name, comparison.by
    bins = {label: analysis.slices.histogram(t.slices, bins_per_decade=10) for label, t in traces.items()}
    delays = {label: analysis.latency.cdf(t.slices, t.states, by) for label, t in traces.items()}
    responses = {
        label: analysis.response.cdf(t.slices, t.states, t.end_ns, by) for label, t in traces.items()
    }
    lengths = {label: analysis.runqueue.distribution(t.runqueue, t.end_ns) for label, t in traces.items()}
    course = {label: analysis.runqueue.over_time(t.runqueue, t.end_ns, 240) for label, t in traces.items()}
    main = comparison.main_groups
    wanted: list[tuple[str, Callable[..., Figure], Callable[[], Figure]]] = [
        ("Who ran when", plot.timeline, lambda: _timeline(comparison)),
        ("Slices", plot.histogram, lambda: plot.histogram(bins, name=name)),
        ("Slices by time", plot.histogram, lambda: plot.histogram(bins, name=name, weight="time")),
        (
            "Run-queue length",
            plot.queue_distribution,
            lambda: plot.queue_distribution(lengths, name=name),
        ),
        ("Run-queue length over time", plot.queue_over_time, lambda: plot.queue_over_time(course, name=name)),
        (
            "Run delay",
            plot.cdf,
            lambda: plot.cdf(delays, _enough(delays, main), "run delay", name),
        ),
        (
            "Response time",
            plot.cdf,
            lambda: plot.cdf(responses, _enough(responses, main), "response time", name),
        ),
    ]
    out = []
    for i, (title, function, make) in enumerate(wanted):
        svg = inline_svg(make(), f"f{i}", f"{title}: {name}")
        out.append(Picture(title, svg, plot.how_to_read(function)))
    return out


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what the trace is, as lines of a list; what the source does not say is left out."""
    d = comparison.describe()
    system = " ".join(x for x in (d["os"], d["kernel"], d["arch"]) if x)
    clock = d["clock"] or ""
    if d["clock_resolution_ns"]:
        clock += f" (steps of {format_ns(d['clock_resolution_ns'])})"
    facts = [
        ("Format", " ".join(x for x in (d["format"], d["variant"]) if x)),
        ("System", system),
        ("Duration", "" if d["duration_ns"] is None else format_ns(d["duration_ns"], 5)),
        ("CPUs", "" if d["cpus"] is None else str(d["cpus"])),
        ("Tasks", format_count(d["tasks"])),
        ("Records", f"{format_count(d['events'])}, of which {format_count(d['switches'])} switches"),
        ("Clock", clock.strip()),
    ]
    facts += [("Source", _source(s)) for s in d["sources"]]
    return [(k, v) for k, v in facts if v]


def _holes(comparison: Comparison) -> list[str]:
    """Return sentences on how much is missing, for a trace with losses."""
    trace = comparison.trace
    if not trace.losses.height or trace.start_ns is None or trace.end_ns is None:
        return []
    out = []
    for row in analysis.losses.coverage(trace.losses, trace.start_ns, trace.end_ns).iter_rows(named=True):
        where = "on an unknown CPU" if row["cpu"] is None else f"on CPU {row['cpu']}"
        number = (
            "an unknown number of records"
            if row["records"] is None
            else f"{format_count(row['records'])} records"
        )
        share = "" if row["share"] is None else f", in {100 * row['share']:.2g} % of the time"
        out.append(f"{number} lost {where}{share}")
    cut = analysis.slices.summary(trace.slices, "all")
    doubtful = int(cut["n_doubtful"].sum())
    responses = analysis.response.samples(trace.slices, trace.states, trace.end_ns)
    touched = responses.filter(pl.col("status") == "doubtful").height
    out.append(
        f"left out because they touch a loss: {format_count(doubtful)} slices and {format_count(touched)} responses; "
        "numbers of switches and times on CPUs are lower bounds"
    )
    return out


def _source(source: Mapping[str, Any]) -> str:
    size, digest = source.get("size"), source.get("sha256")
    parts = [str(source.get("name", "")), f"{format_count(size)} bytes" if isinstance(size, int) else ""]
    return ", ".join(part for part in [*parts, f"sha256 {digest}" if digest else ""] if part)


def _findings(comparison: Comparison) -> list[dict[str, Any]]:
    """Return for each policy how many main figures it changes, and its largest changes, one a group of tasks."""
    out = []
    for label in comparison.replays:
        rows = comparison.summary.filter(pl.col("policy") == label).to_dicts()
        resolved = [r for r in rows if r["verdict"] == "resolved" and r["identity"] and r["predicted"]]
        resolved.sort(key=lambda r: -abs(math.log(abs(r["predicted"] / r["identity"]))))
        largest: dict[str, dict[str, str]] = {}
        for row in resolved:
            figures = {
                "figure": _label(row["metric"], row["statistic"]),
                "before": _value(row["identity"], row["unit"]),
                "after": _value(row["predicted"], row["unit"]),
                "change": _percent(row["change_pct"]),
                "error": _percent(row["identity_error_pct"]),
            }
            largest.setdefault(_group_name(row), figures)
        changed = sum(r["verdict"] == "resolved" for r in rows)
        out.append(
            {"label": label, "changed": changed, "of": len(rows), "largest": list(largest.items())[:3]}
        )
    return out


def _fidelity(comparison: Comparison) -> list[dict[str, str]]:
    """Return the lines of the calibration; what was not measured is left out."""
    rows = comparison.fidelity.filter(pl.col("result") != "not measured").to_dicts()
    out = []
    for row in rows:
        plain = row["unit"] if row["unit"] == "ns" else "1"
        points = row["unit"] == "points"
        recorded, replayed = (_value(row[k], plain) for k in ("recorded", "replayed"))
        if points and row["recorded"] is not None:
            recorded, replayed = f"{recorded} %", f"{replayed} %"
        error = "-" if row["error"] is None else f"{row['error']:.3g}" + (" points" if points else "")
        if row["error_pct"] is not None and not points:
            error = _percent(row["error_pct"])
        out.append(
            {
                "what": CALIBRATION[row["metric"]],
                "recorded": recorded,
                "replayed": replayed,
                "error": error,
                "allowed": row["allowed"],
                "result": row["result"],
            }
        )
    return out


def _inferred(comparison: Comparison) -> list[dict[str, str]]:
    """Return what was inferred about the recorded run."""
    return [
        {
            "name": row["name"],
            "value": _value(row["value"], row["unit"]),
            "n": "" if row["n"] is None else format_count(row["n"]),
            "how": row["how"],
        }
        for row in inferred(comparison.identity)
    ]


def _group_name(row: Mapping[str, Any]) -> str:
    if row["scope"] == "system":
        return "whole system"
    return "(no name)" if row["group"] is None else str(row["group"])


def _embedded(data: Mapping[str, Any]) -> Markup:
    """Return the data as JSON that no HTML parser can take for anything else."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = _UNSAFE_IN_SCRIPT.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
    return Markup(safe)


def _short(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the lines of the short table, with the group that each belongs to."""
    out = []
    keys = ["scope", "group", "metric", "statistic"]
    for row in comparison.summary.unique(keys, maintain_order=True).iter_rows(named=True):
        lines = _lines(comparison, row["scope"], row["group"], [(row["metric"], row["statistic"])])
        out += [{"group": _group_name(row), "line": line} for line in lines]
    return out


def render(comparison: Comparison) -> str:
    """Render the page.

    Parameters
    ----------
    comparison
        What to show.

    Returns
    -------
    str
        HTML. Every text that comes from the trace is escaped; nothing is loaded from anywhere.
    """
    environment = Environment(
        loader=PackageLoader("tracekit.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = comparison.to_dict()
    diagnostics = comparison.trace.diagnostics
    order = {"error": 0, "loss": 1, "info": 2}
    worst = sorted(diagnostics.iter_rows(named=True), key=lambda r: order.get(r["severity"], 3))
    return environment.get_template("comparison.html").render(
        title=f"{comparison.trace.name} under {len(comparison.replays)} other polic{'y' if len(comparison.replays) == 1 else 'ies'}",
        name=comparison.trace.name,
        lost=[r for r in worst if r["severity"] != "info"],
        noted=[r for r in worst if r["severity"] == "info"],
        holes=_holes(comparison),
        facts=_facts(comparison),
        labels=list(comparison.replays),
        policies=data["policies"],
        identity=comparison.identity_policy.partition(",")[0],
        identity_in_full=comparison.identity_policy,
        loop=comparison.identity.metadata.get("replay.loop"),
        why=comparison.why,
        short=_short(comparison),
        findings=_findings(comparison),
        groups=_groups(comparison),
        pictures=_pictures(comparison),
        wakeups=data["wakeups"],
        repetitions=data["repetitions"],
        fidelity=_fidelity(comparison),
        inferred=_inferred(comparison),
        distances=comparison.distances.filter(pl.col("ks").is_not_null()).to_dicts(),
        definitions=[(_NAMES[k], v) for k, v in METRICS.items()],
        recorded=RECORDED,
        identity_label=IDENTITY,
        version=__version__,
        data=_embedded(data),
    )
