"""Hard bounds of every metric of a trace that lost records.

They are [lower, upper] over any completion of what is missing.

`tracekit.analysis.completion` says where records may be missing (*windows*) and how many (K). Each
bound is the worst completion that agrees with every record that was kept:

* **Slices**. A slice between two kept switches of a CPU with no window of that CPU between them is
  exact. Of a slice that a window cuts a piece is seen: it lasted the piece at least, and the piece
  with all unknown time around it at most, or it is not counted. Every other slice lies in unknown
  time and its switch out is lost: at most K, and one more a window, no longer than the longest
  unknown interval, in all no longer than the unknown time.
* **Run delays**. A wait that no window of *any* CPU touches, from the time its task left a CPU
  before it, is exact. A wait that one touches lasted anything from 0 to the time since its task
  left a CPU, or is not counted. Of the others the switch in is lost, or they were going on at the
  end: at most K and the tasks of which nobody knows at the end whether they wait, of any length.
* **Responses**. A response is exact when no window touches it, from the slice before its wakeup to
  its end. Every other one ends with a switch that was kept after a touched response, with a lost
  one (at most K), or not before the trace does.
* **Time on CPUs**: what the pieces show, and all unknown time on top. **Switches**: what was kept,
  and K on top.
* **Run queue**: tasks that are surely runnable or running, and on top tasks that were so when a
  window began until they are seen again, and one task for each record lost so far (a record makes
  at most one task runnable, which may wait to the end).

From exact values, intervals and unobserved values `tracekit.analysis.extremes` gives the extremes of
means, quantiles and maxima. Quantiles of censored samples lie between those with the censored ones
at their length and at infinity (Efron's redistribution to the right), restricted means between
those with censored ones at their length and at the largest possible one.

Groups are those of the names seen: a task that was renamed in a window and not seen again counts in
its old group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.analysis import _common as c
from tracekit.analysis import extremes, latency, response
from tracekit.analysis.completion import Ints, Missing, overlaps, union
from tracekit.analysis.extremes import Bounds, Floats, Partial

__all__ = ["table"]

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_WAITS = ("run_delay", "wakeup_latency", "response")
_ACTIVE = ("running", "runnable", "preempted", "yielding")
_SCHEMA: dict[str, Any] = {
    "scope": pl.String,
    "group": pl.String,
    "metric": pl.String,
    "statistic": pl.String,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "reason": pl.String,
}
Bools = NDArray[np.bool_]
Row = dict[str, Any]


def table(
    missing: Missing,
    slice_table: pl.DataFrame,
    states: pl.DataFrame,
    runqueue_table: pl.DataFrame,
    by: str = "group",
) -> pl.DataFrame:
    """Give the bounds of every metric of `compare.metrics` under any completion of the losses.

    Definition: lower (upper) = the infimum (supremum), or a number below (above) it, of the metric
    over all traces of which this one is left when the missing records are taken out. Source: the
    derivation at the head of this module.

    Parameters
    ----------
    missing
        What the trace does not hold, see `tracekit.analysis.completion.missing`.
    slice_table, states, runqueue_table
        The `slices`, `states` and `runqueue` tables.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    pl.DataFrame
        One row per metric and statistic, empty when nothing is missing: `scope`, `group`, `metric`,
        `statistic` (String) as in `metrics`; `lower` and `upper` (Float64, in the metric's unit;
        `upper` is null where there is none, both are null where nothing can be said), `reason`
        (String; why a bound is null, else null).

    Notes
    -----
    How it can mislead: a bound is not an estimate. The completion that reaches it is possible, and
    mostly far from likely: one lost wakeup allows a task that waits until the end. Quantiles are
    bounded well, means of waits are not.
    """
    if missing.whole:
        return pl.DataFrame(schema=_SCHEMA)
    rows: list[Row] = []
    for scope, key in (("group", by), ("all", "all")):
        read = _Reading.of(missing, slice_table, states, key)
        for group, chosen in read.groups():
            for metric, statistic, found in _of_group(missing, read, chosen):
                rows.append(_row(scope, group, metric, statistic, found, missing))
    for statistic, found in _queue(missing, states, runqueue_table):
        rows.append(_row("system", None, "runqueue", statistic, found, missing))
    return pl.DataFrame(rows, schema=_SCHEMA)


def _row(scope: str, group: str | None, metric: str, statistic: str, found: Bounds, missing: Missing) -> Row:
    lower, upper = found
    # A wait as long as the trace is what is possible without any record.
    if metric in _WAITS and upper >= missing.end - missing.start:
        upper = math.inf
    open_above = not math.isfinite(upper)
    reason = missing.refused
    if reason is None and open_above:
        if not missing.wakeups and not missing.windows:
            reason = "wakeups were not recorded"
        elif math.isinf(missing.records):
            reason = "nobody knows how many records were lost"
        else:
            reason = "a lost record may hide a wait of any length"
    refused = missing.refused is not None or (open_above and lower <= 0)
    return {
        **{"scope": scope, "group": None if scope != "group" else group, "metric": metric},
        "statistic": statistic,
        "lower": None if refused else lower,
        "upper": None if refused or open_above else upper,
        "reason": reason,
    }


@dataclass(frozen=True)
class _Reading:
    """Slices, waits and responses with what is certain of each."""

    slices: pl.DataFrame
    waits: pl.DataFrame
    open: pl.DataFrame
    responses: pl.DataFrame
    #: Lengths of the intervals in which nobody knows who ran.
    unknown: Floats
    #: Windows of all CPUs.
    windows: int
    unsettled: pl.DataFrame

    @staticmethod
    def of(missing: Missing, slices: pl.DataFrame, states: pl.DataFrame, by: str) -> _Reading:
        rows, unknown = _pieces(missing, slices.with_columns(c.group_of(by)))
        rows = _since(missing, rows)
        return _Reading(
            rows,
            _delays(rows, latency.samples(slices, states)),
            _open(missing, rows, states, by),
            _responses(missing, rows, response.samples(slices, states, missing.end), by),
            unknown,
            sum(len(w) for w in missing.windows.values()),
            _unsettled(missing, rows, states, by),
        )

    def groups(self) -> Iterator[tuple[str | None, _Reading]]:
        """Each group with its part of everything."""
        for group in self.slices["group"].unique(maintain_order=True).to_list():
            own = pl.col("group").eq_missing(pl.lit(group, dtype=pl.String))
            parts = {
                k: getattr(self, k).filter(own) for k in ("slices", "waits", "open", "responses", "unsettled")
            }
            yield group, replace(self, **parts)


def _of_group(missing: Missing, read: _Reading, own: _Reading) -> Iterator[tuple[str, str, Bounds]]:
    unsettled = float(own.unsettled["late"].sum())
    span = float(missing.end - missing.start)
    lost = missing.records
    sample = _slice_sample(missing, own)
    yield from _spread("slice", sample, sample, sample)
    yield from _totals(missing, own)
    for metric in ("run_delay", "wakeup_latency"):
        yield from _censored(metric, *_wait_sample(missing, own, metric, lost + unsettled, span), span)
    if not missing.wakeups:
        yield from (("response", s, (0.0, math.inf)) for s in ("mean", *_QUANTILES, "max"))
        return
    exact = own.responses.filter(pl.col("sure") & (pl.col("status") == "complete"))
    cut = own.responses.filter(pl.col("sure") & (pl.col("status") == "censored"))["response_ns"].drop_nulls()
    touched = own.responses.filter(~pl.col("sure")).height
    known = Partial(
        exact["response_ns"].to_numpy().astype(np.float64),
        unobserved=(lost + unsettled + touched) if missing.windows else 0.0,
        each=span,
    )
    yield from _censored("response", known, cut.to_numpy().astype(np.float64), span)


def _spread(
    metric: str, for_mean: Partial, for_quantiles: Partial, for_largest: Partial
) -> Iterator[tuple[str, str, Bounds]]:
    yield metric, "mean", extremes.mean(for_mean)
    for name, q in _QUANTILES.items():
        yield metric, name, extremes.quantile(for_quantiles, q)
    yield metric, "max", extremes.largest(for_largest)


def _censored(metric: str, known: Partial, cut: Floats, span: float) -> Iterator[tuple[str, str, Bounds]]:
    """Extremes of a sample with censored values.

    These are taken at their length, at infinity (quantiles), or at the trace's length (mean).
    """

    def ending(at: float) -> Partial:
        return replace(
            known,
            must_low=np.concatenate([known.must_low, cut]),
            must_high=np.concatenate([known.must_high, np.full(len(cut), at)]),
        )

    yield from _spread(metric, ending(span), ending(math.inf), known)


def _unsettled(missing: Missing, rows: pl.DataFrame, states: pl.DataFrame, by: str) -> pl.DataFrame:
    """Tasks, and whether a window touches the time since they last began to run (`late`)."""
    names = (
        c.with_group(states.select("utid", "tid", "comm"), by, rows)
        .group_by("utid")
        .agg(pl.col("group").last())
    )
    last = rows.group_by("utid").agg(pl.col("ts_ns").max().alias("last"))
    found = names.join(last, on="utid", how="left").with_columns(pl.col("last").fill_null(missing.start))
    since = found["last"].to_numpy()
    late = overlaps(since, np.full(len(since), missing.end), missing.of())
    return found.with_columns(pl.Series("late", late))


def _pieces(missing: Missing, slices: pl.DataFrame) -> tuple[pl.DataFrame, Floats]:
    """Say which slices are exact, how long the others can have been, and what time is unknown."""
    rows = slices.sort("utid", "ts_ns", maintain_order=True).with_columns(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns"),
        c.has(c.OPEN_START | c.OPEN_END | c.CROSSES_LOSS | c.INFERRED_END).alias("flagged"),
    )
    # From the start of the trace: a float holds no time since 1970 to the ns.
    ts, end = rows["ts_ns"].to_numpy() - missing.start, rows["end_ns"].to_numpy() - missing.start
    cpu, utid = rows["cpu"].fill_null(-1).to_numpy(), rows["utid"].to_numpy()
    flagged = rows["flagged"].to_numpy()
    piece, longest = np.zeros(rows.height, dtype=bool), np.zeros(rows.height)
    outside = (end - ts).astype(np.float64)
    unknown: list[Ints] = []
    for number in sorted(missing.windows):
        lo, hi = missing.of(number)
        windows = lo - missing.start, hi - missing.start
        own = np.flatnonzero(cpu == number)
        cut = overlaps(ts[own], end[own], windows) & (flagged[own] | _inside(ts[own], end[own], windows))
        outside[own] -= _within(ts[own], end[own], windows)
        parts = own[cut]
        piece[parts] = True
        spans = [*zip(*(w.tolist() for w in windows), strict=True)]
        spans += _between(ts[own], end[own], windows, (0, missing.end - missing.start))
        lo, hi = union(spans)
        unknown.append(hi - lo)
        # A piece and the unknown time that touches it may be one slice.
        hull = union(
            [
                *zip(lo.tolist(), hi.tolist(), strict=True),
                *zip(ts[parts].tolist(), end[parts].tolist(), strict=True),
            ]
        )
        at = np.searchsorted(hull[0], ts[parts], side="right") - 1
        longest[parts] = (hull[1] - hull[0])[at]
        longest[parts] -= _of_others(at, utid[parts], outside[parts])
    lengths = np.concatenate(unknown).astype(np.float64) if unknown else np.empty(0)
    return (
        rows.with_columns(
            pl.Series("piece", piece), pl.Series("longest", longest), pl.Series("outside", outside)
        ).with_columns((~pl.col("piece") & ~pl.col("flagged")).alias("exact")),
        lengths[lengths > 0],
    )


def _inside(ts: Ints, end: Ints, windows: tuple[Ints, Ints]) -> Bools:
    return _within(ts, end, windows) > 0


def _within(ts: Ints, end: Ints, windows: tuple[Ints, Ints]) -> Floats:
    """Time of each interval that lies in a window."""
    lo, hi = windows
    points = np.stack([lo, hi], axis=1).ravel()
    area = np.concatenate([[0], np.cumsum(np.stack([np.zeros_like(lo), hi - lo], axis=1).ravel())])[1:]
    return np.asarray(np.interp(end, points, area) - np.interp(ts, points, area), dtype=np.float64)


def _between(
    ts: Ints, end: Ints, windows: tuple[Ints, Ints], edges: tuple[int, int]
) -> list[tuple[int, int]]:
    """Time beside windows in which no slice is seen, to the next window or edge.

    Nobody knows whether the CPU idled then.
    """
    lo, hi = windows
    gaps_lo, gaps_hi = np.append(edges[0], hi), np.append(lo, edges[1])
    order = np.argsort(ts)
    starts, ends = ts[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.searchsorted(ends, gaps_lo, side="left")
    seen = first < len(starts)
    seen[seen] &= starts[first[seen]] <= gaps_hi[seen]
    return [(int(a), int(b)) for a, b, s in zip(gaps_lo, gaps_hi, seen, strict=True) if not s]


def _of_others(at: Ints, utid: Ints, length: Floats) -> Floats:
    """Time that other tasks are seen to run in the cluster of each piece."""
    frame = pl.DataFrame({"at": at, "utid": utid, "ns": length})
    both = pl.col("ns").sum()
    return frame.select(both.over("at") - both.over("at", "utid")).to_series().to_numpy()


def _slice_sample(missing: Missing, own: _Reading) -> Partial:
    rows = own.slices
    pieces = rows.filter("piece")
    return Partial(
        rows.filter("exact")["dur_ns"].to_numpy().astype(np.float64),
        may_low=pieces["outside"].to_numpy(),
        may_high=pieces["longest"].to_numpy(),
        unobserved=missing.records + own.windows if len(own.unknown) else 0.0,
        each=float(own.unknown.max()) if len(own.unknown) else 0.0,
        total=float(own.unknown.sum()),
    )


def _totals(missing: Missing, own: _Reading) -> Iterator[tuple[str, str, Bounds]]:
    rows = own.slices
    ran = float(rows["outside"].sum())
    most = ran + float(own.unknown.sum())
    more = missing.records + own.windows if missing.windows else 0.0
    left = float(rows["involuntary"].count())
    sure = rows.filter(~pl.col("piece"))
    made = float(sure["involuntary"].sum() or 0)
    made_most = made + rows.height - sure.height + more
    yield "cpu_time", "total", (ran, most)
    yield "switches", "total", (left, left + more)
    yield "involuntary_switches", "total", (made, made_most)
    low = ran / made_most if made_most else 0.0
    yield "slice_per_involuntary", "mean", (low, most / made if made else math.inf)


def _since(missing: Missing, rows: pl.DataFrame) -> pl.DataFrame:
    """Add since when each slice's task can have waited, and whether a window touches its wait."""
    own = rows.with_columns(
        pl.col("end_ns").shift(1).over("utid").fill_null(missing.start).alias("since"),
        # A wakeup may overtake the switch out before it; so the slice before counts, unless its
        # task was preempted.
        pl.when(pl.col("involuntary").shift(1).over("utid"))
        .then(pl.col("end_ns").shift(1).over("utid"))
        .otherwise(pl.col("ts_ns").shift(1).over("utid"))
        .fill_null(missing.start)
        .alias("before"),
    )
    touched = overlaps(own["before"].to_numpy(), own["ts_ns"].to_numpy(), missing.of())
    return own.with_columns(pl.Series("touched", touched))


def _delays(rows: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Each slice with its delay as `latency.samples` has it, and its cause."""
    seen = samples.filter(~pl.col("censored")).select(
        "utid", "ts_ns", "cause", pl.col("run_delay_ns").alias("delay")
    )
    seen = seen.unique(["utid", "ts_ns"], maintain_order=True)
    return rows.select("utid", "ts_ns", "group", "since", "touched", "piece", "flags").join(
        seen, on=["utid", "ts_ns"], how="left", maintain_order="left"
    )


def _open(missing: Missing, rows: pl.DataFrame, states: pl.DataFrame, by: str) -> pl.DataFrame:
    """Waits at the end of the trace that are certain."""
    found = c.open_waits(states)
    last = rows.group_by("utid").agg(pl.col("ts_ns").max().alias("last"), pl.col("group").last())
    found = found.join(last, on="utid", how="left", maintain_order="left")
    begun = found["last"].fill_null(missing.start).to_numpy()
    touched = overlaps(begun, np.full(len(begun), missing.end), missing.of())
    name = (
        c.with_group(states.select("utid", "tid", "comm"), by, rows)
        .group_by("utid")
        .agg(pl.col("group").last())
    )
    return (
        found.drop("group")
        .join(name, on="utid", how="left", maintain_order="left")
        .with_columns(pl.Series("touched", touched), (pl.col("until_ns") - pl.col("since_ns")).alias("delay"))
        .filter(~pl.col("touched"))
    )


def _wait_sample(
    missing: Missing, own: _Reading, metric: str, unobserved: float, span: float
) -> tuple[Partial, Floats]:
    rows = own.waits
    known = rows.filter(~pl.col("touched") & pl.col("delay").is_not_null())
    cut = own.open
    if metric == "wakeup_latency":
        known = known.filter(pl.col("cause") == "wakeup")
        cut = cut.filter(~pl.col("before").is_in(["running", "unknown"]).fill_null(True))
    # Without a delay and without a window nearby: its wakeup may still be among the lost ones.
    lost = rows.filter(pl.col("touched") | (pl.col("delay").is_null() & pl.lit(bool(missing.windows))))
    asleep = (
        rows.filter(~pl.col("touched") & pl.col("delay").is_null()) if not missing.wakeups else rows.clear()
    )
    if not missing.wakeups:
        lost = rows.filter("touched")
    far = (lost["ts_ns"] - lost["since"]).to_numpy().astype(np.float64)
    slept = (asleep["ts_ns"] - asleep["since"]).to_numpy().astype(np.float64)
    sample = Partial(
        known["delay"].to_numpy().astype(np.float64),
        must_low=np.zeros(len(slept)),
        must_high=slept,
        may_low=np.zeros(len(far)),
        may_high=np.maximum(far, 0.0),
        unobserved=unobserved if missing.windows else 0.0,
        each=span,
    )
    return sample, cut["delay"].to_numpy().astype(np.float64)


def _responses(missing: Missing, rows: pl.DataFrame, found: pl.DataFrame, by: str) -> pl.DataFrame:
    """Each response, and whether no window touches it or the slice before its wakeup."""
    found = c.with_group(found, by, rows).with_row_index("_row")
    at = pl.coalesce("wake_ts_ns", "end_ts_ns").fill_null(missing.start)
    asked = found.select("_row", "utid", at.alias("_at")).sort("_at")
    before = rows.select("utid", pl.col("ts_ns").alias("_at"), pl.col("ts_ns").alias("before")).sort("_at")
    begun = asked.join_asof(
        before, on="_at", by="utid", strategy="backward", allow_exact_matches=False, check_sortedness=False
    ).sort("_row")["before"]
    last = found["end_ts_ns"].fill_null(missing.end).to_numpy()
    touched = overlaps(begun.fill_null(missing.start).to_numpy(), last, missing.of())
    return found.with_columns(pl.Series("sure", ~touched))


def _queue(missing: Missing, states: pl.DataFrame, runqueue: pl.DataFrame) -> Iterator[tuple[str, Bounds]]:
    """Bounds of the system's run queue, weighted by time."""
    if not runqueue.height or not states.height:
        return
    first = runqueue["ts_ns"].min()
    start = first if isinstance(first, int) else missing.start
    # With records lost before the first row, the whole trace may have had rows from an earlier time on.
    heads = [lo for lo, _ in zip(*missing.of(), strict=True) if lo <= start]
    start, end = start - missing.start, missing.end - missing.start
    begin = 0 if heads else start
    sure, maybe = _runnable(missing, states)
    certain, more = _changes(sure), _changes(maybe)
    lost = np.array([(at - missing.start, n) for at, n in missing.losses if math.isfinite(n)]).reshape(-1, 2)
    both = np.concatenate([certain, more, lost])
    low = _steps(certain, begin, end)
    high = [_steps(both, start, end)]
    if begin < start:
        height, dur = _steps(both, begin, start)
        top = float(height.max()) if len(height) else 0.0
        high.append((np.append(high[0][0], top), np.append(high[0][1], float(dur.sum()))))
    endless = math.isinf(missing.records)
    for name, q in (("mean", None), *_QUANTILES.items(), ("max", 1.0)):
        upper = math.inf if endless else max(_weighted(*steps, q) for steps in high)
        yield name, (_weighted(*low, q), upper)


def _changes(spans: Floats) -> Floats:
    """What intervals of one task each add to a length, and when."""
    one = np.ones(len(spans))
    return np.concatenate([np.stack([spans[:, 0], one], axis=1), np.stack([spans[:, 1], -one], axis=1)])


def _steps(changes: Floats, start: int, end: int) -> tuple[Floats, Floats]:
    """Height and length of each step of a sum of changes, within the trace."""
    at = np.clip(changes[:, 0] - start, 0, end - start)
    order = np.argsort(at, kind="stable")
    edges = np.concatenate([[0.0], at[order], [float(end - start)]])
    height = np.concatenate([[0.0], np.cumsum(changes[order, 1])])
    dur = np.diff(edges)
    return height[dur > 0], dur[dur > 0]


def _weighted(height: Floats, dur: Floats, q: float | None) -> float:
    if not len(dur):
        return 0.0
    if q is None:
        return float(height @ dur / dur.sum())
    order = np.argsort(height, kind="stable")
    share = np.cumsum(dur[order]) / dur.sum()
    return float(height[order][min(int(np.searchsorted(share, q - 1e-12)), len(order) - 1)])


def _runnable(missing: Missing, states: pl.DataFrame) -> tuple[Floats, Floats]:
    """When tasks are surely runnable or running, and when they may be so; ns from the start.

    They may be so because they were when a window began.
    """
    rows = states.select(
        *("utid", "ts_ns", "cpu"),
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end"),
        pl.col("state").cast(pl.String),
    ).sort("utid", "ts_ns", maintain_order=True)
    # A wait that ends with a switch in was one until then, after the last window that touches it.
    resumed = (pl.col("state").shift(-1) == "running") & (pl.col("ts_ns").shift(-1) == pl.col("end"))
    rows = rows.with_columns(resumed.over("utid").fill_null(False).alias("resumed"))
    active, running = pl.col("state").is_in(_ACTIVE), pl.col("state") == "running"
    doubted = pl.col("state") == "unknown" if missing.wakeups else ~active
    sure: list[Floats] = []
    maybe = [rows.filter(doubted).select("ts_ns", "end").to_numpy()]
    for number in (None, *missing.windows):
        own = active & ~running if number is None else running & (pl.col("cpu") == number)
        _split(rows.filter(own), missing.of(number), sure, maybe)
    elsewhere = running & ~pl.col("cpu").is_in([*missing.windows]).fill_null(False)
    sure.append(rows.filter(elsewhere).select("ts_ns", "end").to_numpy())
    since = missing.start
    return (np.concatenate(sure) - since).astype(np.float64), (np.concatenate(maybe) - since).astype(
        np.float64
    )


def _split(rows: pl.DataFrame, windows: tuple[Ints, Ints], sure: list[Floats], maybe: list[Floats]) -> None:
    """Split intervals at the first window that touches each, and after the last one."""
    lo, hi = rows["ts_ns"].to_numpy(), rows["end"].to_numpy()
    starts, ends = windows
    first = np.searchsorted(ends, lo, side="right")
    last = np.searchsorted(starts, hi, side="left") - 1
    cut = (first <= last) & (first < len(starts))
    sure.append(np.stack([lo[~cut], hi[~cut]], axis=1))
    if cut.any():
        known = np.maximum(starts[first[cut]], lo[cut])
        again = np.where(rows["resumed"].to_numpy()[cut], np.minimum(ends[last[cut]], hi[cut]), hi[cut])
        sure += [np.stack([lo[cut], known], axis=1), np.stack([again, hi[cut]], axis=1)]
        maybe.append(np.stack([known, again], axis=1))
