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
        slices = pl.DataFrame(
            {
                "ts_ns": (leave - service).astype(np.int64),
                "dur_ns": service.astype(np.int64),
                "involuntary": False,
            }
        ).with_columns(
            *(pl.lit(1, dtype=t).alias(k) for k, t in (("utid", pl.UInt32), ("tid", pl.Int64))),
            *(pl.lit(None, dtype=pl.Int64).alias(k) for k in ("wake_ts_ns", "run_delay_ns")),
            *(pl.lit(v).alias(k) for k, v in (("comm", "server"), ("end_state", "sleeping"))),
            pl.lit(0, dtype=pl.UInt16).alias("flags"),
        )
        found = sampling.sampling(slices, queue, by="all").filter(pl.col("scope") != "group")
        rows = {(r["metric"], r["statistic"]): r for r in found.iter_rows(named=True)}
        got, total = rows["runqueue", "mean"], rows["switches", "total"]
        given += got["low"] is not None
        hits["runqueue"] += got["low"] is not None and got["low"] <= 1.0 <= got["high"]
        assert total["value"] == n
        hits["switches"] += total["low"] <= leave[-1] / 2e6 <= total["high"]
    assert given >= 29
    assert all(24 <= h <= 30 for h in hits.values()), hits
