"""What changed between two captures, or two sets of captures: `diff`, and what it found."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from tracekit.analysis import difference, windows
from tracekit.analysis.blame import named
from tracekit.errors import FilterError
from tracekit.trace import Trace
from tracekit.units import format_ns
from tracekit.whatif.recorded import wakes_late
from tracekit.words import percent

__all__ = ["Difference", "diff", "figures"]

#: Differences beyond which two captures are not alike.
DURATION = 0.2
LOAD = 0.10
#: What both sides should have in common.
_SAME = {"host": "machines", "kernel": "kernels", "arch": "architectures", "clock.name": "trace clocks"}
#: Columns of the page.
HEADS = ("group", "metric", "A", "B", "change", "90 % interval", "n", "q", "ks", "verdict")


@dataclass(frozen=True)
class Difference:
    """What differs between captures A and B.

    Attributes
    ----------
    a, b
        The captures.
    by
        Grouping of tasks.
    table
        Every row, see `tracekit.analysis.difference.compare`.
    warnings
        In what the captures are not alike, a sentence each.
    """

    a: Sequence[Trace]
    b: Sequence[Trace]
    by: str
    table: pl.DataFrame
    warnings: list[str] = field(default_factory=list)

    @property
    def changed(self) -> pl.DataFrame:
        """The rows that changed, largest change first."""
        return self.table.filter(pl.col("verdict") == "changed")

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        n = self.table.filter(pl.col("q").is_not_null()).height
        rows = self.changed
        if not n:
            return "Nothing can be compared: no group has enough samples on both sides."
        if not rows.height:
            return f"No change found in {n} metrics (false discoveries held to 5 %)."
        row = rows.row(0, named=True)
        return (
            f"{rows.height} of {n} metrics changed; the largest: {row['group']}'s {row['metric']} {row['statistic']} "
            f"went from {_shown(row['a'], row['unit'])} to {_shown(row['b'], row['unit'])} ({_percent(row['change'])}, "
            f"90 % interval {_span(row['lo'], row['hi'])})."
        )

    @cached_property
    def samples(
        self,
    ) -> tuple[list[dict[str, dict[str, windows.Sample]]], list[dict[str, dict[str, windows.Sample]]]]:
        """Samples of every capture of A and of B: metric to group to sample."""
        return _sides(self.a, self.b, self.by)

    def shift(self, group: str, metric: str) -> pl.DataFrame:
        """The change of every quantile of a metric of the first captures, with a band.

        Parameters
        ----------
        group, metric
            As in the table.

        Returns
        -------
        polars.DataFrame
            See `tracekit.analysis.difference.shift`.

        Raises
        ------
        FilterError
            When one of the captures has no such samples.
        """
        found = [side[0].get(metric, {}).get(group) for side in self.samples]
        if found[0] is None or found[1] is None:
            raise FilterError(
                f"expected samples of {metric} of {group!r} on both sides, found none on one of them"
            )
        return difference.shift(found[0], found[1])

    @property
    def findings(self) -> list[dict[str, object]]:
        """The changed rows as a bounded list for scripts: at most 20, largest first."""
        return [
            {"rank": i, "kind": "change", **row}
            for i, row in enumerate(self.changed.head(20).iter_rows(named=True), 1)
        ]

    def to_markdown(self, top: int = 20) -> str:
        """A section for a pull request.

        Parameters
        ----------
        top
            Rows at most.
        """
        head = [f"**{_md(self.sentence)}**", ""]
        head += [f"> {_md(w)}" for w in self.warnings] + ([""] if self.warnings else [])
        rows = self.changed if self.changed.height else self.table.filter(pl.col("q").is_not_null())
        lines = ["| group | metric | A | B | change | 90 % interval | n | verdict |"]
        lines.append("|---|---|---:|---:|---:|---:|---:|---|")
        for r in rows.head(top).iter_rows(named=True):
            lines.append("| " + " | ".join([_md(r["group"]), *figures(r), r["verdict"]]) + " |")
        rest = rows.height - top
        return "\n".join([*head, *lines, *([f"\n{rest} more rows."] if rest > 0 else [])]) + "\n"

    def to_html(self) -> str:
        """One page that needs nothing else."""
        body = []
        for r in self.table.iter_rows(named=True):
            metric, *cells = figures(r)
            cells += ["-" if r[k] is None else f"{r[k]:.3g}" for k in ("q", "ks")]
            text = "".join(f"<td>{html.escape(c)}</td>" for c in (r["group"] or "", metric))
            numbers = "".join(f"<td class=n>{html.escape(c)}</td>" for c in cells)
            why = f"<br><small>{html.escape(r['reason'])}</small>" if r["reason"] else ""
            verdict = f"<td>{r['verdict']}{why}</td>"
            body.append(f"<tr class='{r['verdict'].replace(' ', '-')}'>{text}{numbers}{verdict}</tr>")
        style = (
            "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}"
            "h1{font-size:1.4rem}table{border-collapse:collapse;display:block;overflow-x:auto}"
            "td,th{padding:.2rem .6rem;text-align:left;vertical-align:top}"
            "td.n,th.n{text-align:right;white-space:nowrap}"
            "tr.changed{font-weight:600}tr.cannot-tell{color:#6b7280}tr:nth-child(even){background:#8881}"
        )
        heads = "".join(
            f"<th{' class=n' if head not in ('group', 'metric', 'verdict') else ''}>{head}</th>"
            for head in HEADS
        )
        warnings = "".join(f"<li>{html.escape(w)}</li>" for w in self.warnings)
        names = [" ".join(t.name for t in side) for side in (self.a, self.b)]
        return (
            "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
            f"<title>{html.escape(names[0])} and {html.escape(names[1])}</title><style>{style}</style>"
            f"<h1>{html.escape(self.sentence)}</h1><p>A: {html.escape(names[0])}<br>B: {html.escape(names[1])}</p>"
            + (f"<h2>Not alike</h2><ul>{warnings}</ul>" if warnings else "")
            + f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
            "<p><small>n: samples of A and of B. q: p-value of the change, corrected for the number of rows. "
            "ks: distance of the two distributions, 0 (equal) to 1.</small></p></html>\n"
        )

    def _repr_html_(self) -> str:
        rows = self.changed if self.changed.height else self.table
        return f"<p><b>{html.escape(self.sentence)}</b></p>{rows.head(12)._repr_html_()}"

    def __repr__(self) -> str:
        """The sentence, then what is not alike."""
        return "\n".join([f"<Difference: {self.sentence}>", *(f"  ! {w}" for w in self.warnings)])


def figures(row: Mapping[str, Any]) -> list[str]:
    """Metric, both values, the change, its interval and the numbers of samples of a row, as text.

    Parameters
    ----------
    row
        A row of `Difference.table`.

    Returns
    -------
    list of str
        A cell each.
    """
    return [
        f"{row['metric']} {row['statistic']}",
        *(_shown(row[k], row["unit"]) for k in ("a", "b")),
        _percent(row["change"]),
        _span(row["lo"], row["hi"]),
        f"{row['n_a']}, {row['n_b']}",
    ]


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ns":
        return format_ns(value)
    return f"{100 * value:.2f} %" if unit == "share" else f"{value:.4g}/s"


def _percent(value: float | None) -> str:
    return percent(None if value is None else 100 * value)


def _span(low: float | None, high: float | None) -> str:
    """An interval of a change; its unit once where both ends have it."""
    if low is None:
        return "-"
    ends = _percent(low), _percent(high)
    return f"{ends[0].removesuffix(' %') if ends[1].endswith(' %') else ends[0]} to {ends[1]}"


def _md(text: str) -> str:
    return "".join(f"\\{ch}" if ch in "|`*_<>[]\\" else ch for ch in text.replace("\n", " "))


def _sides(
    a: Sequence[Trace], b: Sequence[Trace], by: str
) -> tuple[list[dict[str, dict[str, windows.Sample]]], list[dict[str, dict[str, windows.Sample]]]]:
    def of(trace: Trace) -> dict[str, dict[str, windows.Sample]]:
        names = named(trace.tasks.filter(~pl.col("is_idle")), by)
        first, last = trace.start_ns or 0, trace.end_ns or 0
        return {
            m: windows.samples(m, trace.slices, trace.states, names, first, last, cpus=trace.cpus.height)
            for m in windows.METRICS
        }

    return [of(t) for t in a], [of(t) for t in b]


def diff(
    a: Trace | Sequence[Trace],
    b: Trace | Sequence[Trace],
    *,
    by: str = "group",
    min_effect: float = difference.MIN_EFFECT,
    repeat_spread: float = difference.REPEAT_SPREAD,
) -> Difference:
    """Say what changed between two captures, or two sets of captures.

    Parameters
    ----------
    a, b
        Before and after: a trace, or several captures of the same thing.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    min_effect
        Smallest relative change that counts.
    repeat_spread
        How much captures of the same thing differ, as a relative standard deviation, where a side
        has one capture only.

    Returns
    -------
    Difference
        Table, sentence, what is not alike; as Markdown, HTML and findings for scripts.

    Raises
    ------
    FilterError
        When a side has no capture, or one without records.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.explain.diff(trace, trace).changed.height
    0
    """
    before, after = ([x] if isinstance(x, Trace) else list(x) for x in (a, b))
    for name, side in (("A", before), ("B", after)):
        if not side:
            raise FilterError(f"{name} has no capture")
        for trace in side:
            if trace.start_ns is None:
                raise FilterError(f"{trace.name}: expected records with a time, found none")
    left, right = _sides(before, after, by)
    table = difference.compare(left, right, min_effect, repeat_spread=repeat_spread)
    found = Difference(before, after, by, table, _unlike(before, after))
    found.__dict__["samples"] = (left, right)
    return found


def _unlike(a: Sequence[Trace], b: Sequence[Trace]) -> list[str]:
    """In what the captures are not alike, a sentence each."""
    found = []
    for key, what in _SAME.items():
        sides = [sorted({t.metadata[key] for t in side if key in t.metadata}) for side in (a, b)]
        if sides[0] and sides[1] and sides[0] != sides[1]:
            found.append(f"{what} differ: {', '.join(sides[0])} and {', '.join(sides[1])}")
    for what, facts in (
        ("numbers of CPUs", [{t.cpus.height for t in side} for side in (a, b)]),
        ("policies", [{t.metadata.get("replay.policy", "as recorded") for t in side} for side in (a, b)]),
    ):
        if facts[0] != facts[1]:
            texts = [", ".join(map(str, sorted(f, key=str))) for f in facts]
            found.append(f"{what} differ: {texts[0]} and {texts[1]}")
    spans = [[(t.end_ns or 0) - (t.start_ns or 0) for t in side] for side in (a, b)]
    shortest, longest = min(map(min, spans)), max(map(max, spans))
    if shortest < (1 - DURATION) * longest:
        found.append(f"durations differ: from {format_ns(shortest)} to {format_ns(longest)}")
    loads = [sum(map(_load, side)) / len(side) for side in (a, b)]
    if abs(loads[0] - loads[1]) > LOAD:
        found.append(
            f"loads differ: CPUs were busy for {100 * loads[0]:.0f} % and {100 * loads[1]:.0f} % of the time"
        )
    for name, side in (("A", a), ("B", b)):
        lost = [t.name for t in side if t.losses.height]
        if lost:
            found.append(f"{name} lost records ({', '.join(lost)}): its metrics are of what was kept")
    woken = [any(t.slices["wake_ts_ns"].null_count() < t.slices.height for t in side) for side in (a, b)]
    if woken[0] != woken[1]:
        found.append(f"{'B' if woken[0] else 'A'} has no wakeups: latencies and responses cannot be compared")
    late = [{wakes_late(t) is not None for t in side} for side in (a, b)]
    if all(woken) and len(late[0] | late[1]) > 1:
        name = "A and B" if late[0] == late[1] else "A" if True in late[0] - late[1] else "B"
        some = "captures of " if len(late[0]) + len(late[1]) > 2 else ""
        found.append(
            f"{some}{name} without sched_waking: waits after a sleep and responses begin there with sched_wakeup, "
            "later than in the others"
        )
    return found


def _load(trace: Trace) -> float:
    busy, idle = (int(trace.cpus[n].sum()) for n in ("busy_ns", "idle_ns"))
    return busy / max(busy + idle, 1)
