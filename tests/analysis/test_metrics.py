"""The statistics of a comparison, which the core computes, are those of the summaries of each analysis."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis import compare, latency, response, runqueue, slices

ROOT = Path(__file__).parents[2]
SPREAD = {"mean": "mean_ns", "p50": "p50_ns", "p95": "p95_ns", "p99": "p99_ns", "max": "max_ns"}
LENGTHS = {"mean": "mean", "p50": "p50", "p95": "p95", "p99": "p99", "max": "max"}
KEYS = ["scope", "group", "metric", "statistic", "unit"]


def rows(
    table: pl.DataFrame, scope: str, metric: str, unit: str, statistics: dict[str, str]
) -> list[pl.DataFrame]:
    """Columns of a summary as rows."""
    found = table.with_columns(
        pl.lit(scope).alias("scope"),
        (pl.col("group") if scope == "group" else pl.lit(None, dtype=pl.String)).alias("group"),
        (pl.col("n") if "n" in table.columns else pl.lit(None)).cast(pl.UInt32).alias("n"),
        (pl.col("n_censored") if "n_censored" in table.columns else pl.lit(0))
        .cast(pl.UInt32)
        .alias("n_censored"),
    )
    return [
        found.select(
            "scope",
            "group",
            pl.lit(metric).alias("metric"),
            pl.lit(statistic).alias("statistic"),
            pl.lit(unit).alias("unit"),
            pl.col(column).cast(pl.Float64).alias("value"),
            "n",
            "n_censored",
        )
        for statistic, column in statistics.items()
    ]


def expected(trace: tk.Trace, by: str) -> pl.DataFrame:
    """What the summaries say."""
    found = []
    for scope, key in (("group", by), ("all", "all")):
        cut = slices.summary(trace.slices, key)
        found += rows(cut, scope, "slice", "ns", SPREAD)
        found += rows(cut, scope, "cpu_time", "ns", {"total": "run_ns"})
        per = cut.with_columns(pl.col("nr_involuntary").alias("n"))
        found += rows(per, scope, "slice_per_involuntary", "ns", {"mean": "mean_per_involuntary_ns"})
        outs = cut.with_columns((pl.col("nr_involuntary") + pl.col("nr_voluntary")).alias("n"))
        found += rows(outs, scope, "switches", "1", {"total": "n"})
        found += rows(outs, scope, "involuntary_switches", "1", {"total": "nr_involuntary"})
        waits = latency.summary(trace.slices, trace.states, key)
        woken = latency.summary(trace.slices, trace.states, key, "wakeup")
        answers = response.summary(trace.slices, trace.states, trace.end_ns, key)
        for metric, table in (("run_delay", waits), ("wakeup_latency", woken), ("response", answers)):
            found += rows(table, scope, metric, "ns", SPREAD)
    queue = runqueue.summary(trace.runqueue, trace.end_ns).filter(scope="system")
    found += rows(queue.with_columns(group=None), "system", "runqueue", "1", LENGTHS)
    return pl.concat(found, how="vertical_relaxed")


CAPTURES = sorted((ROOT / "fixtures").glob("*/*/input*"))


def same(trace: tk.Trace, by: str) -> None:
    """Hold the two against each other: the same rows, values to the last digits."""
    ours = compare.metrics(trace.slices, trace.runqueue, trace.states, trace.end_ns, by)
    theirs = expected(trace, by)
    assert ours.select(*KEYS, "n", "n_censored").rows() == theirs.select(*KEYS, "n", "n_censored").rows()
    off = (ours["value"] - theirs["value"]).abs() > 1e-9 * theirs["value"].abs()
    assert not off.fill_null(False).any()
    assert ours["value"].is_null().to_list() == theirs["value"].is_null().to_list()


@pytest.mark.parametrize("by", ["group", "comm", "tid", "all"])
def test_of_the_shipped_capture(trace: tk.Trace, by: str) -> None:
    same(trace, by)


@pytest.mark.parametrize("policy", ["cfs", "rr:quantum=10ms", "fifo"])
def test_of_a_run_without_its_tables(trace: tk.Trace, policy: str) -> None:
    programs = tk.Programs(trace.filter(start="1s", end="1.5s"))
    prepared = programs.prepared(policy)
    alone, nothing = prepared.measure("group")
    whole, run = prepared.measure("group", tables=None)
    assert nothing is None
    assert run is not None
    assert alone == whole
    assert compare.as_metrics(alone).equals(compare.metrics(run.slices, run.runqueue, run.states, run.end_ns))
    same(run, "group")


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.parent.name}-{p.parent.name}")
def test_of_every_fixture(path: Path) -> None:
    try:
        trace = tk.read(path)
    except tk.ParseError:
        return  # one that cannot be read at all
    same(trace, "group")


def test_of_several_cpus() -> None:
    for name in ("6.12-4cpu/mixed-default.dat", "6.1-2cpu/server-default.dat"):
        path = ROOT / "testdata" / "lab2" / name
        if path.exists():
            same(tk.read(path), "tid")
