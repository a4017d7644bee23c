"""Traces with records taken out, and the truth that their bounds are held against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import tracekit as tk
from tracekit import _core
from tracekit.analysis import compare

__all__ = ["KINDS", "clean", "lose", "missed", "part", "taken_out", "truth"]

#: Ways to lose records.
KINDS = ("uniform", "bursty", "one CPU", "head")
KEYS = ["scope", "group", "metric", "statistic"]
Mask = NDArray[np.bool_]

#: Two CPUs, tasks that wake each other, sleep, compete and end.
WORKLOAD = """
cpus: 2
until: 250
Hog: R∞
Batch: R∞
Ticker: (R0.2 S1.3)*90
Timer: (R0.7 S2.9)*50
Pair: (R1.1 S0.4)*60
Burst: R30 S20 R30
Late: S60 R5 S40 R5
"""


def clean(root: Path) -> Iterator[tuple[str, tk.Trace]]:
    """Small traces from which nothing is missing."""
    demo = tk.read(root / "fixtures" / "demo" / "slice-default.dat")
    yield "one CPU", part(demo, 12_000, 700)
    run = tk.simulate(WORKLOAD, "cfs")
    yield "two CPUs", part(run, 100, 800)


def part(trace: tk.Trace, first: int, number: int) -> tk.Trace:
    """Some records of a trace, as if only they had been captured."""
    return made(trace, trace.events.slice(first, number))


def made(trace: tk.Trace, events: pl.DataFrame, losses: pl.DataFrame | None = None) -> tk.Trace:
    tables = {"events": events, **_core.derive(events, trace.metadata)}
    return tk.Trace(tables if losses is None else {**tables, "losses": losses}, trace.metadata, "part")


def taken_out(rng: np.random.Generator, events: pl.DataFrame, kind: str) -> Mask:
    """Which records are lost; the first and the last stay, so that the trace is as long as it was."""
    cpu = events["cpu"].to_numpy()
    gone = np.zeros(events.height, dtype=bool)
    own = np.flatnonzero(cpu == rng.choice(np.unique(cpu)))
    if kind == "uniform":
        gone = rng.random(events.height) < rng.choice([0.002, 0.01, 0.05, 0.2])
    elif kind == "head":
        gone[own[: rng.integers(1, max(2, len(own) // 3))]] = True
    else:
        rows = own if kind == "one CPU" else np.arange(events.height)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(0, len(rows))
            gone[rows[at : at + rng.integers(3, max(4, len(rows) // 8))]] = True
    gone[[0, -1]] = False
    return gone


def lose(trace: tk.Trace, gone: Mask, told: float = 1.0, rng: np.random.Generator | None = None) -> tk.Trace:
    """Take records out and mark each run of lost records of a CPU, as a ring buffer does; or only a
    share `told` of them."""
    events = trace.events
    cpu, ts = events["cpu"].to_numpy(), events["ts_ns"].to_numpy()
    losses, marks = [], []
    for number in np.unique(cpu):
        own = np.flatnonzero(cpu == number)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], gone[own].astype(int), [0]]))).reshape(-1, 2)
        for first, after in edges:
            if rng is not None and rng.random() >= told:
                continue
            lo = int(ts[own[first - 1]]) if first else None
            hi = int(ts[own[after]]) if after < len(own) else None
            losses.append((int(number), lo, hi, int(after - first), "overwrite"))
            if lo is not None and hi is not None:
                marks.append((float(own[after]) - 0.5, int(number), hi, int(after - first)))
    schema = events.schema
    kept = events.with_row_index("_at").cast({"_at": pl.Float64}).filter(~pl.Series(gone))
    lost = pl.DataFrame(
        marks, {"_at": pl.Float64, "cpu": pl.Int32, "ts_ns": pl.Int64, "value": pl.Int64}, orient="row"
    )
    lost = lost.with_columns(pl.lit("lost").cast(schema["kind"]).alias("kind"), pl.lit(0).alias("quality"))
    together = pl.concat([kept, lost], how="diagonal_relaxed").sort("_at").drop("_at")
    together = together.with_columns(pl.int_range(pl.len()).alias("seq")).select(events.columns)
    names = ("cpu", "ts_from_ns", "ts_to_ns", "count", "cause")
    types = dict(zip(names, (pl.Int32, pl.Int64, pl.Int64, pl.Int64, pl.String), strict=True))
    return made(trace, together.cast(dict(schema)), pl.DataFrame(losses, types, orient="row"))


def _names(trace: tk.Trace) -> dict[int, str]:
    rows = trace.slices.select("tid", pl.col("comm").cast(pl.String)).drop_nulls()
    return dict(rows.group_by("tid", maintain_order=True).agg(pl.col("comm").last()).iter_rows())


def truth(trace: tk.Trace, lossy: tk.Trace) -> pl.DataFrame:
    """Metrics of the whole trace, of the groups that the lossy one has: a task has the name that
    was last seen there."""
    names = {**_names(trace), **_names(lossy)}

    def named(frame: pl.DataFrame) -> pl.DataFrame:
        comm = pl.col("tid").replace_strict(names, default=None, return_dtype=pl.String)
        return frame.with_columns(comm.alias("comm"))

    return compare.metrics(named(trace.slices), trace.runqueue, named(trace.states), trace.end_ns)


def missed(real: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """Rows of the truth that lie outside of their bounds; rounding of a mean aside."""
    both = real.join(bounds, on=KEYS, how="inner", nulls_equal=True)
    value, slack = pl.col("value"), 1e-9 * pl.col("value").abs() + 1e-6
    return both.filter((value < pl.col("lower") - slack) | (value > pl.col("upper") + slack))
