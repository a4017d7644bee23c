"""The comparison as one page of HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from tracekit import __version__, analysis, plot
from tracekit.analysis.compare import IDENTITY, METRICS, RECORDED
from tracekit.explain import bound, what_holds
from tracekit.report.figures import inline_svg
from tracekit.report.hover import axes_of, rows_of
from tracekit.report.sentences import worded
from tracekit.report.timeline import timeline_data, window
from tracekit.units import format_bound, format_count, format_ns
from tracekit.whatif.basis import MIN_SAMPLES, inferred, unknown_machine
from tracekit.whatif.calibration import METRICS as CALIBRATION
from tracekit.whatif.headline import Effect, Finding, effect_of, findings, to_record
from tracekit.whatif.kernels import names_kernel
from tracekit.words import NAMES, group_name, metric_name, percent, value

if TYPE_CHECKING:
    from tracekit.whatif.comparison import Comparison

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
#: Groups with a table that is open from the start; further ones are folded, and beyond the second
#: number left out.
_OPEN_GROUPS, _ALL_GROUPS = 3, 40
_UNSAFE_IN_SCRIPT = re.compile("[<>&\u2028\u2029]")


@dataclass(frozen=True)
class Picture:
    """A picture of the page, and what its values are."""

    title: str
    svg: Markup
    read: str
    axes: str = "[]"


@dataclass(frozen=True)
class Cell:
    """What one policy does to one figure."""

    value: str
    change: str
    verdict: str
    span: str = ""
    real: str = ""
    bimodal: str = ""
    trust: str = ""
    number: float | None = None


@dataclass(frozen=True)
class Line:
    """One figure of one group under every policy."""

    label: str
    recorded: str
    interval: str
    lost: str
    n: str
    identity: str
    error: str
    calibration: str
    cells: tuple[Cell, ...]
    numbers: tuple[float | None, float | None]


@dataclass(frozen=True)
class Group:
    """All figures of one group of tasks."""

    name: str
    lines: tuple[Line, ...]
    folded: bool


def _cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return Cell("-", "not measured", "not measured")
    effect = effect_of(row)
    two = ""
    if row["bimodal_low"] is not None:
        low, high = (format_bound(row[k], row["unit"]) for k in ("bimodal_low", "bimodal_high"))
        two = f"bimodal: {low} or {high}"
    trust = row.get("trust")
    return Cell(
        effect.predicted,
        effect.change,
        row["verdict"],
        effect.span or effect.no_span.replace("none", "no interval"),
        effect.real,
        two,
        "" if trust in (None, "trusted") else str(trust),
        row["predicted"],
    )


def _lines(
    comparison: Comparison, scope: str, group: str | None, picks: list[tuple[str, str]]
) -> tuple[Line, ...]:
    """Return a line for each metric and statistic of `picks` that was measured at all."""
    where = (pl.col("scope") == scope) & pl.col("group").eq_missing(pl.lit(group, dtype=pl.String))
    rows = {
        (r["metric"], r["statistic"]): r for r in comparison.calibration.filter(where).iter_rows(named=True)
    }
    predicted = {
        (r["policy"], r["metric"], r["statistic"]): r
        for r in comparison.table.filter(where).iter_rows(named=True)
    }
    bounds = _bounds(comparison, group) if scope == "group" else {}
    # Where nothing can be bounded, the top of the page says so once.
    refused = comparison.trace.missing().refused is not None
    lost = {
        (r["metric"], r["statistic"]): r
        for r in comparison.bounds.filter(where, not refused).iter_rows(named=True)
    }
    out = []
    for key in picks:
        row = rows.get(key)
        found = [predicted.get((label, *key)) for label in comparison.replays]
        if row is None or (row["recorded"] is None and row["identity"] is None):
            continue
        known = next((r for r in found if r is not None), None)
        identity = row["identity"] if known is None else known["identity"]
        error = row["error_pct"] if known is None else known["identity_error_pct"]
        out.append(
            Line(
                metric_name(*key),
                value(row["recorded"], row["unit"]) if known is None else effect_of(known).recorded,
                " to ".join(value(end, row["unit"]) for end in bounds.get(key, ())),
                f"whatever was lost: {bound(lost[key])}" if key in lost else "",
                "" if row["n_recorded"] is None else format_count(row["n_recorded"]),
                value(identity, row["unit"]),
                percent(error),
                row["calibration"],
                tuple(map(_cell, found)),
                (row["recorded"], identity),
            )
        )
    return tuple(out)


def _bounds(comparison: Comparison, group: str | None) -> dict[tuple[str, str], tuple[float, float]]:
    rows = comparison.intervals.filter(pl.col("group").eq_missing(pl.lit(group, dtype=pl.String)))
    return {
        (r["metric"], r["statistic"]): (r["lo"], r["hi"])
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


def _timeline(comparison: Comparison) -> Picture:
    """Return who ran when in the middle of the trace; every trace counted from its own first record."""
    trace = comparison.trace
    span = (trace.end_ns or 0) - (trace.start_ns or 0)
    size = window(trace.slices, span, trace.cpus.height)
    rows = {
        label: t.slices.with_columns(pl.col("ts_ns") - (t.start_ns or 0))
        for label, t in comparison.traces.items()
    }
    figure = plot.timeline(rows, start_ns=max(0, span // 2 - size // 2), dur_ns=size, name=trace.name)
    return _picture("Who ran when", "timeline", figure, plot.timeline, comparison)


def _overview(comparison: Comparison, narrow: bool = False) -> Picture:
    """Return recorded, identity and predicted values in one picture; a phone has a narrow one."""
    figure = plot.predictions(comparison.summary, comparison.trace.name, narrow)
    prefix = "predictions-phone" if narrow else "predictions"
    svg = inline_svg(figure, prefix, f"Predicted against recorded: {comparison.trace.name}")
    texts: dict[tuple[Any, ...], list[str]] = {}
    for row in comparison.summary.iter_rows(named=True):
        if row["recorded"] and row["predicted"]:
            effect = effect_of(row)
            key = (row["scope"], row["group"], row["metric"], row["statistic"])
            first = f"{effect.group}: {effect.metric}\nrecorded {effect.recorded}, identity replay {effect.identity}"
            interval = f" ({effect.span})" if effect.span else ""
            one = f"{row['policy']}: {effect.predicted}{interval}, {effect.change}"
            texts.setdefault(key, [first]).append(one)
    rows = ["\n".join(lines) for lines in texts.values()][: plot.MAX_PREDICTIONS]
    return Picture("Predictions", svg, plot.how_to_read(plot.predictions), rows_of(figure, rows))


def _picture(
    title: str,
    key: str,
    figure: Figure,
    function: Callable[..., Figure],
    comparison: Comparison,
    time: bool = True,
    percent: bool = True,
) -> Picture:
    svg = inline_svg(figure, key, f"{title}: {comparison.trace.name}")
    axes = axes_of(figure, list(comparison.traces), time=time, percent=percent)
    return Picture(title, svg, plot.how_to_read(function), axes)


def _pictures(comparison: Comparison) -> list[Picture]:
    traces, name, by = comparison.traces, comparison.trace.name, comparison.by
    bins = {label: analysis.slices.histogram(t.slices, by, bins_per_decade=10) for label, t in traces.items()}
    delays = {label: analysis.latency.cdf(t.slices, t.states, by) for label, t in traces.items()}
    responses = {
        label: analysis.response.cdf(t.slices, t.states, t.end_ns, by) for label, t in traces.items()
    }
    lengths = {label: analysis.runqueue.distribution(t.runqueue, t.end_ns) for label, t in traces.items()}
    course = {label: analysis.runqueue.over_time(t.runqueue, t.end_ns, 240) for label, t in traces.items()}
    main = comparison.main_groups

    def add(
        title: str,
        figure: Figure,
        function: Callable[..., Figure],
        time: bool = True,
        percent: bool = True,
    ) -> None:
        out.append(_picture(title, f"f{len(out)}", figure, function, comparison, time, percent))

    out: list[Picture] = []
    add("Slices", plot.histogram(bins, name=name, groups=main), plot.histogram)
    add("Run delay", plot.cdf(delays, _enough(delays, main), "run delay", name), plot.cdf)
    add("Response time", plot.cdf(responses, _enough(responses, main), "response time", name), plot.cdf)
    figure = plot.queue_distribution(lengths, name=name)
    add("Run-queue length", figure, plot.queue_distribution, time=False)
    figure = plot.queue_over_time(course, name=name)
    add("Run-queue length over time", figure, plot.queue_over_time, percent=False)
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
    unreliable = int(cut["n_unreliable"].sum())
    responses = analysis.response.samples(trace.slices, trace.states, trace.end_ns)
    touched = responses.filter(pl.col("status") == "unreliable").height
    out.append(
        f"left out because they touch a loss: {format_count(unreliable)} slices and {format_count(touched)} responses"
    )
    return out


def _source(source: Mapping[str, Any]) -> str:
    size = source.get("size")
    digest = next((f"{name} {source[name]}" for name in ("blake3", "sha256") if name in source), "")
    parts = [str(source.get("name", "")), f"{format_count(size)} bytes" if isinstance(size, int) else ""]
    return ", ".join(part for part in [*parts, digest] if part)


def _cards(found: list[Finding]) -> list[tuple[str, Effect]]:
    """Return the three changes that the page begins with: the largest of each policy in turn."""
    ranked = [(place, number, one) for number, f in enumerate(found) for place, one in enumerate(f.largest)]
    ranked.sort(key=lambda r: r[:2])
    return [(found[number].policy, one) for _, number, one in ranked[:3]]


def _by_code(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the first diagnostic of each code and the others of it, in the given order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["code"], []).append(row)
    return [(first, more) for first, *more in found.values()]


def _fidelity(comparison: Comparison) -> list[dict[str, str]]:
    """Return the lines of the calibration; what was not measured is left out."""
    rows = comparison.fidelity.filter(pl.col("result") != "not measured").to_dicts()
    out = []
    for row in rows:
        plain = row["unit"] if row["unit"] == "ns" else "1"
        points = row["unit"] == "points"
        recorded, replayed = (value(row[k], plain) for k in ("recorded", "replayed"))
        if points and row["recorded"] is not None:
            recorded, replayed = f"{recorded} %", f"{replayed} %"
        error = (
            "-" if row["error"] is None else f"{row['error']:.3g}" + (" percentage points" if points else "")
        )
        if row["error_pct"] is not None and not points:
            error = percent(row["error_pct"])
        out.append(
            {
                "what": CALIBRATION[row["metric"]],
                "recorded": recorded,
                "replayed": replayed,
                "error": error,
                "allowed": row["allowed"],
                "result": row["result"],
                "only_by": row["only_by"],
            }
        )
    return out


def _inferred(comparison: Comparison) -> list[dict[str, str]]:
    """Return what was inferred about the recorded run."""
    return [
        {
            "name": row["name"],
            "value": value(row["value"], row["unit"]),
            "n": "" if row["n"] is None else format_count(row["n"]),
            "how": row["how"],
        }
        for row in inferred(comparison.identity)
    ]


def _embedded(data: Mapping[str, Any]) -> Markup:
    """Return the data as JSON that no HTML parser can take for anything else."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = _UNSAFE_IN_SCRIPT.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
    return Markup(safe)


def _script() -> tuple[Markup, str]:
    """Return the page's script, and the name under which its policy of contents lets it run."""
    text = resources.files("tracekit.report").joinpath("templates/page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), f"sha256-{digest}"


def _recorded_as(comparison: Comparison) -> str:
    """Return in a line what was recorded."""
    d = comparison.describe()
    system = " ".join(x for x in (d["os"], d["kernel"]) if x)
    cpus = "" if d["cpus"] is None else f"{d['cpus']} CPU{'s' * (d['cpus'] != 1)}"
    length = "" if d["duration_ns"] is None else format_ns(d["duration_ns"])
    tasks = f"{format_count(d['tasks'])} tasks"
    return ", ".join(x for x in (system, cpus, length, tasks) if x)


def _short(comparison: Comparison) -> list[Group]:
    """Return the lines of the short table by group."""
    out: list[Group] = []
    keys = ["scope", "group", "metric", "statistic"]
    for row in comparison.summary.unique(keys, maintain_order=True).iter_rows(named=True):
        lines = _lines(comparison, row["scope"], row["group"], [(row["metric"], row["statistic"])])
        name = group_name(row)
        if not out or out[-1].name != name:
            out.append(Group(name, (), folded=False))
        out[-1] = replace(out[-1], lines=out[-1].lines + lines)
    return [group for group in out if group.lines]


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
    environment.filters["worded"] = worded
    data = comparison.to_dict()
    found = findings(comparison)
    script, script_name = _script()
    diagnostics = comparison.trace.diagnostics
    order = {"error": 0, "loss": 1, "info": 2}
    worst = sorted(diagnostics.iter_rows(named=True), key=lambda r: order.get(r["severity"], 3))
    return environment.get_template("comparison.html").render(
        title=f"{comparison.trace.name} under {len(comparison.replays)} other polic{'y' if len(comparison.replays) == 1 else 'ies'}",
        name=comparison.trace.name,
        lost=_by_code([r for r in worst if r["severity"] != "info"]),
        noted=[r for r in worst if r["severity"] == "info"],
        holes=_holes(comparison),
        holds=what_holds(comparison.trace.missing(), comparison.bounds),
        facts=_facts(comparison),
        labels=list(comparison.replays),
        policies=data["policies"],
        identity=comparison.identity_policy.partition(",")[0],
        identity_in_full=comparison.identity_policy,
        loop=comparison.identity.metadata.get("replay.loop"),
        why=comparison.why,
        unnamed=comparison.why != "stated" and not names_kernel(comparison.trace),
        short=_short(comparison),
        findings=[sentence for finding in found for sentence in finding.sentences],
        to_record=to_record(comparison),
        pace=[
            *((label, one.sentence) for label, found in comparison.sooner.items() for one in found),
            *((label, one.sentence) for label, one in comparison.longer.items()),
            *((label, one.sentence) for label, one in comparison.idler.items()),
            *((label, one.sentence) for label, one in comparison.stuck.items()),
        ],
        chosen=comparison.focus.sentence,
        held=comparison.held.sentences if comparison.held else [],
        cards=_cards(found),
        recorded_as=_recorded_as(comparison),
        overview=_overview(comparison),
        overview_phone=_overview(comparison, narrow=True),
        timeline=_timeline(comparison),
        slices=_embedded(timeline_data(comparison)),
        script=script,
        script_name=script_name,
        groups=_groups(comparison),
        pictures=_pictures(comparison),
        wakeups=data["wakeups"],
        repetitions=data["repetitions"],
        plain=comparison.repeated is not None and comparison.repeated.plain,
        fidelity=_fidelity(comparison),
        poor=comparison.poor,
        unknown=unknown_machine(comparison.trace),
        unrecorded=[
            *comparison.left_to_default,
            *(m for m in comparison.not_recorded if m != comparison.poor),
        ],
        inferred=_inferred(comparison),
        distances=comparison.distances.filter(pl.col("ks").is_not_null()).to_dicts(),
        definitions=[(NAMES[k], v) for k, v in METRICS.items()],
        recorded=RECORDED,
        identity_label=IDENTITY,
        version=__version__,
        data=_embedded(data),
    )
