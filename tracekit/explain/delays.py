"""Why a task was slow: `why`, and what it found."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from tracekit.analysis import antagonists, blame, response
from tracekit.analysis.critical_path import MAX_DEPTH, chains
from tracekit.errors import FilterError
from tracekit.explain.promises import quotas_of
from tracekit.filters import CommPattern, Selection, Time, nearest
from tracekit.units import format_moment, format_names, format_ns
from tracekit.whatif.source import AnyTrace, as_trace

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["SPANS", "Why", "why"]

#: What can be decomposed.
SPANS = ("responses", "waits", "window")
#: Quantiles of which the slow spans are shown apart, the highest with enough spans beyond it.
TAILS = (0.99, 0.95, 0.9)
#: Fewest spans beyond that quantile.
LEAST = 5

_BEHIND = ("waiting", "preempted", "yielded")


@dataclass(frozen=True)
class Why:
    """Where the time of some tasks went, and who had it.

    Attributes
    ----------
    what
        ``responses``, ``waits`` or ``window``.
    victims
        What the tasks are called together.
    quantile
        Of the slow spans; None when all count.
    spans
        The spans: `span`, `utid`, `start_ns`, `end_ns`, `censored`.
    pieces
        Their parts, see `tracekit.analysis.blame.decompose` and `labelled`; they sum to the spans exactly.
    table
        The parts summed, see `tracekit.analysis.blame.table`.
    worst
        The ten longest spans, see `tracekit.analysis.blame.worst`.
    start_ns, end_ns
        The window, trace clock.
    quotas
        Which quotas hold the tasks back at times that no record shows: such a wait counts as one
        behind those who ran meanwhile. Empty where the machine beside the trace names none.
    """

    what: str
    victims: str
    quantile: float | None
    spans: pl.DataFrame
    pieces: pl.DataFrame
    table: pl.DataFrame
    worst: pl.DataFrame
    start_ns: int
    end_ns: int
    scene: blame.Scene
    names: pl.DataFrame
    quotas: str = ""

    @property
    def sentence(self) -> str:
        """The largest cause in one sentence."""
        return _sentence(self)

    @cached_property
    def chains(self) -> pl.DataFrame:
        """Through which tasks the work came.

        Returns
        -------
        polars.DataFrame
            By descending number: `chain` (String, latest first), `n` (UInt32, spans), `share`
            (Float64), `mean_ns` (Float64, their mean length).
        """
        found = chains(self.spans, self.scene.lines, self.names)
        length = (pl.col("end_ns") - pl.col("start_ns")).mean().alias("mean_ns")
        return (
            self.spans.join(found, on="span", how="inner")
            .group_by("chain")
            .agg(pl.len().cast(pl.UInt32).alias("n"), length)
            .with_columns((pl.col("n") / max(self.spans.height, 1)).alias("share"))
            .sort(["n", "chain"], descending=[True, False])
            .select("chain", "n", "share", "mean_ns")
        )

    @property
    def causes(self) -> pl.DataFrame:
        """The table by culprit alone, the task's own running left out: who to look at first.

        Returns
        -------
        polars.DataFrame
            By descending share of the slow spans: `culprit` (String), `how` (String, causes
            joined), `total_ns` (Int64), `share`, `tail_share` (Float64).
        """
        rows = self.table.filter((pl.col("cause") != "running") & pl.col("culprit").is_not_null())
        return (
            rows.group_by("culprit")
            .agg(
                pl.col("cause").unique(maintain_order=True).str.join(", ").alias("how"),
                *(pl.col(n).sum() for n in ("total_ns", "share", "tail_share")),
            )
            .sort(["tail_share", "total_ns", "culprit"], descending=[True, True, False])
        )

    @property
    def findings(self) -> list[dict[str, object]]:
        """The causes as a bounded list for scripts: at most 20, largest first."""
        rows = self.causes.head(20).iter_rows(named=True)
        return [{"rank": i, "kind": "cause", **row} for i, row in enumerate(rows, 1)]

    def __repr__(self) -> str:
        """The sentence, then the table."""
        said = " ".join(filter(None, (self.sentence, self.quotas)))
        return f"<Why {self.victims}: {said}>\n{self.table.head(10)}"

    def _repr_html_(self) -> str:
        quotas = f"<p>{html.escape(self.quotas)}</p>" if self.quotas else ""
        return f"<p><b>{html.escape(self.sentence)}</b></p>{quotas}{self.table.head(12)._repr_html_()}"


def _either(asked: object) -> str:
    """What a filter was given, in words."""
    return " or ".join(map(str, asked)) if isinstance(asked, list | tuple) else str(asked)


def why(
    trace: AnyTrace,
    *,
    comm: CommPattern | Iterable[CommPattern] | None = None,
    pid: int | Iterable[int] | None = None,
    tid: int | Iterable[int] | None = None,
    start: Time | None = None,
    end: Time | None = None,
    what: str = "responses",
    quantile: float | None = None,
    by: str = "group",
    depth: int = MAX_DEPTH,
) -> Why:
    """Say where the time of some tasks went: who ran while they waited, and what they slept for.

    Parameters
    ----------
    trace
        The whole trace, its path, or a workload text (`tracekit.whatif.source.as_trace`): culprits
        are found among all its tasks.
    comm, pid, tid
        Whose time, as in `Trace.filter`; every task by default.
    start, end
        Only spans that begin in this window; for `what="window"`, the window itself. As in `Trace.filter`.
    what
        ``responses``: from each wakeup until the task next blocks or exits. ``waits``: from
        runnable until running. ``window``: all of each task's time, sleeps included, followed back
        through their wakers.
    quantile
        Which spans are the slow ones that the sentence speaks of; by default the highest of 0.99,
        0.95 and 0.9 that at least five spans exceed, else all spans.
    by
        How to group culprits, see `tracekit.analysis.GROUPINGS`.
    depth
        Wakers followed backwards; 0 for none.

    Returns
    -------
    Why
        Its parts sum to the time of the spans exactly.

    Raises
    ------
    FilterError
        When no task fits, nothing of the kind lies in the window, or too little for the quantile;
        or the source says nothing of what tasks do between their slices (`perf sched timehist`,
        `perf sched map`).
    ValueError
        When `what` or `by` is no word for it, or `quantile` does not lie between 0 and 1.

    Examples
    --------
    >>> import tracekit as tk
    >>> found = tk.read("fixtures/demo/slice-default.dat").why(comm="waker*")
    >>> found.causes["culprit"][0]
    'spin'
    """
    if what not in SPANS:
        raise ValueError(f"unknown kind of span {what!r}: expected one of {', '.join(SPANS)}")
    trace = as_trace(trace)
    chosen = Selection.make(trace, comm=comm, pid=pid, tid=tid, cpu=None, start=start, end=end)
    first, last = trace.start_ns, trace.end_ns
    if first is None or last is None:
        raise FilterError("the trace has no records with a time")
    if not trace.states.height and trace.slices.height:
        raise FilterError(
            f"{trace.metadata.get('source.format', 'the source')} says when tasks ran, and not who waited behind "
            "whom; record with `perf sched record` and read its perf.data"
        )
    begin, stop = chosen.span(first, last).values()
    if begin >= stop and (beside := chosen.unmet(trace)):
        raise FilterError("; ".join(beside))
    utids = None if chosen.utids is None else pl.Series(sorted(chosen.utids), dtype=pl.UInt32)
    if utids is not None and not len(utids):
        asked = " and ".join(f"{what} {_either(of)}" for what, of in chosen.described().items())
        known = trace.tasks.filter(~pl.col("is_idle"))["comm"].drop_nulls().cast(pl.String).unique().sort()
        near = nearest(map(str, chosen.described().get("comm", ())), known.to_list())
        raise FilterError(f"no task fits {asked}; the trace has {near or 'none'}")
    scene = blame.scene(trace.slices, trace.states, trace.runqueue, trace.events, first, last)
    names = blame.named(trace.tasks, by)
    spans = _spans(trace, scene, what, utids, begin, stop)
    if not spans.height:
        has = "no wakeups are recorded of it" if what == "responses" else "nothing of it is recorded"
        raise FilterError(
            f"expected {what} that begin between {format_moment(begin)} and {format_moment(stop)}, found none: {has}; "
            "what='window' needs no wakeups"
        )
    pieces = blame.labelled(blame.decompose(spans, scene, depth), names)
    q = _tail(spans, quantile) if what != "window" else None
    groups = names.filter(pl.col("utid").is_in(spans["utid"].implode()))["group"].unique().sort().to_list()
    return Why(
        what,
        format_names(groups),
        q,
        spans,
        pieces,
        blame.table(spans, pieces, blame.tail_of(spans, q)),
        blame.worst(spans, pieces, names),
        begin,
        stop,
        scene,
        names,
        _held_back(trace, spans["utid"], pieces),
    )


def _held_back(trace: Trace, utids: pl.Series, pieces: pl.DataFrame) -> str:
    """Say which quotas the tasks are under; nothing where the source records what they hold back."""
    quotas = quotas_of(trace)
    if quotas is None or "throttled" in pieces["cause"]:
        return ""
    tids = trace.tasks.filter(pl.col("utid").is_in(utids.implode()))["tid"]
    groups = quotas.filter(pl.col("tid").is_in(tids.implode())).drop("tid").unique().sort("group")
    limits = [
        f"{group} {format_ns(quota)} in each {format_ns(period)}"
        for group, quota, period in groups.select("group", "quota_ns", "period_ns").iter_rows()
    ]
    if not limits:
        return ""
    return (
        f"Some of these tasks are under a quota ({format_names(limits)}), and no record shows when it held them "
        "back: that time counts as waiting behind whoever ran, and would pass without them, too."
    )


def _spans(
    trace: Trace, scene: blame.Scene, what: str, utids: pl.Series | None, begin: int, stop: int
) -> pl.DataFrame:
    if what == "window":
        idle = trace.tasks.filter(~pl.col("is_idle"))["utid"]
        return blame.spans_of_window(scene.lines, begin, stop, idle if utids is None else utids)
    if what == "waits":
        spans = blame.spans_of_waits(scene.lines, utids)
    else:
        found = response.samples(trace.slices, trace.states, trace.end_ns)
        if utids is not None:
            found = found.filter(pl.col("utid").is_in(utids.implode()))
        spans = blame.spans_of_responses(found)
    inside = spans.filter((pl.col("start_ns") >= begin) & (pl.col("start_ns") < stop))
    return inside.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("span"))


def _tail(spans: pl.DataFrame, asked: float | None) -> float | None:
    """Quantile of the slow spans."""
    complete = int((~spans["censored"]).sum())
    if asked is not None:
        if not isinstance(asked, int | float) or not 0 < asked < 1:
            raise ValueError(f"expected a quantile between 0 and 1, such as 0.99, found {asked!r}")
        if complete * (1 - asked) < 1:
            raise FilterError(
                f"expected more than {1 / (1 - asked):.0f} complete spans for quantile {asked:g}, found {complete}"
            )
        return asked
    return next((q for q in TAILS if complete * (1 - q) >= LEAST), None)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def _phrase(found: Why, row: dict[str, object], cpus: str) -> str:
    """How one culprit delays."""
    culprit = str(row["culprit"])
    how = set(str(row["how"]).split(", "))
    other = f"other {culprit} tasks" if culprit in found.victims.split(", ") else culprit
    on = f" on CPU {cpus}" if cpus else ""
    if how & set(_BEHIND):
        return f"waiting behind {other}{on}"
    if "awaited" in how:
        return f"asleep until {other} had run"
    if how == {"asleep"}:
        ended = {"not recorded": "a wakeup that is not recorded", "not ended": "the end of the trace"}
        return f"asleep until {ended.get(culprit, culprit)}"
    return f"{' and '.join(sorted(how))} ({other}){on}"


def _sentence(found: Why) -> str:
    spans, table = found.spans, found.table
    lengths = spans["end_ns"] - spans["start_ns"]
    kind = {"responses": "response time", "waits": "run delay", "window": "time"}[found.what]
    if found.quantile is None:
        shown = format_ns(float(str(lengths.mean())))
        whose = f"the {kind} of {found.victims} (mean {shown}, n = {spans.height:,})"
        if found.what == "window":
            whose = f"the {format_ns(found.end_ns - found.start_ns)} of {found.victims}"
    else:
        slow = blame.tail_of(spans, found.quantile)
        least = spans.filter(pl.col("span").is_in(slow.implode())).select(
            (pl.col("end_ns") - pl.col("start_ns")).min()
        )
        whose = (
            f"the p{100 * found.quantile:g} {kind} of {found.victims} "
            f"({format_ns(least.item())} or more, {len(slow):,} of {spans.height:,})"
        )
    causes = found.causes
    own = float(table.filter(pl.col("cause") == "running")["tail_share"].sum())
    if not causes.height:
        return f"{_percent(own)} of {whose} is its own running."
    top = causes.row(0, named=True)
    at = table.filter((pl.col("culprit") == top["culprit"]) & pl.col("cause").is_in(list(_BEHIND)))
    numbers = sorted({n for text in at["cpu"].drop_nulls() for n in text.split(",")})
    cpus = ", ".join(numbers) if len(numbers) <= 4 else ""
    text = f"{_percent(top['tail_share'])} of {whose} is {_phrase(found, top, cpus)}"
    return text + (f"; {_percent(own)} is its own running." if own >= 0.005 else ".")


def matrix(trace: Trace, by: str = "group") -> pl.DataFrame:
    """Who delays whom, over all tasks; see `tracekit.analysis.antagonists.matrix`.

    Parameters
    ----------
    trace
        The whole trace.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.
    """
    first, last = trace.start_ns, trace.end_ns
    if first is None or last is None:
        raise FilterError("the trace has no records with a time")
    scene = blame.scene(trace.slices, trace.states, trace.runqueue, trace.events, first, last)
    return antagonists.matrix(trace.slices, scene, blame.named(trace.tasks, by), last - first)
