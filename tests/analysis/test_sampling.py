"""Every row of `compare.metrics` has a sampling interval, or the reason why there is none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis import compare, sampling

KEYS = list(sampling.KEYS)


@pytest.fixture(scope="module")
def rows(trace: tk.Trace) -> pl.DataFrame:
    return sampling.sampling(trace.slices, trace.runqueue, trace.states, trace.end_ns)


def test_every_row_has_an_interval_or_a_reason(trace: tk.Trace, rows: pl.DataFrame) -> None:
    known = compare.metrics(trace.slices, trace.runqueue, trace.states, trace.end_ns)
    both = known.join(rows, on=KEYS, how="full", coalesce=True, nulls_equal=True, suffix="_s")
    assert both.height == known.height == rows.height
    assert both["value"].is_null().equals(both["value_s"].is_null())
    assert both["value_s"].drop_nulls().to_list() == pytest.approx(both["value"].drop_nulls().to_list())
    assert (rows["low"].is_null() == rows["reason"].is_not_null()).all()
    given = rows.filter(pl.col("low").is_not_null())
    assert given.filter((pl.col("low") > pl.col("value")) | (pl.col("high") < pl.col("value"))).is_empty()
    # Means, quantiles, totals and time-weighted rows alike.
    assert {"wakeup_latency", "runqueue", "switches", "cpu_time", "slice"} <= set(given["metric"])
    assert set(rows.filter(statistic="max")["low"]) == {None}


def test_few_samples_have_no_interval(rows: pl.DataFrame) -> None:
    few = rows.filter(pl.col("n") < 20)
    assert few.height > 50
    assert few["low"].null_count() == few.height
    assert few.filter(pl.col("statistic") != "max")["reason"].str.contains("below 20").all()


def test_totals_and_time_weighted_rows_are_those_of_the_queue() -> None:
    """M/M/1 over 400 s: L = rho / (1 - rho), and a rate of services of 1 a ms; both truths lie in
    most intervals."""
    hits = {"runqueue": 0, "switches": 0}
    given = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = 3000
        arrive, service = np.cumsum(rng.exponential(2e6, n)), rng.exponential(1e6, n)
        leave = np.empty(n)
        free = 0.0
        for i in range(n):
            free = leave[i] = max(free, arrive[i]) + service[i]
        times = np.concatenate([arrive, leave])
        order = np.argsort(times, kind="stable")
        length = np.cumsum(np.concatenate([np.ones(n), -np.ones(n)])[order])
        queue = pl.DataFrame(
            {"ts_ns": times[order].astype(np.int64), "nr_running": 0, "nr_waiting": length.astype(np.int64)}
        ).with_columns(pl.lit(0, dtype=pl.Int32).alias("cpu"), pl.lit(0, dtype=pl.UInt32).alias("flags"))
        got = sampling._of_queue(queue, None, 0.9)[0]
        given += got["low"] is not None
        hits["runqueue"] += got["low"] is not None and got["low"] <= 1.0 <= got["high"]
        edges = np.linspace(0, leave[-1], 513)
        series = np.histogram(leave, edges)[0].astype(float)
        total = sampling._total(n, float(n), series, 0.9)
        hits["switches"] += total["lo"] <= leave[-1] / 2e6 <= total["hi"]
    assert given >= 29
    assert all(24 <= h <= 30 for h in hits.values()), hits


def test_time_on_cpus_by_interval_is_exact() -> None:
    begin, end = np.array([0, 30, 90]), np.array([10, 70, 100])
    assert sampling._busy(begin, end, np.array([0, 20, 40, 60, 80, 100])).tolist() == [10, 10, 20, 10, 10]
