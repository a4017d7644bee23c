"""Delays with a known cause: captures in which one was injected (fixtures/demo/causes)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.explain import counterfactuals

CAUSES = Path(__file__).parents[2] / "fixtures" / "demo" / "causes"


@pytest.mark.parametrize(("name", "culprit"), [("hog", "hog"), ("fifo", "rtjob"), ("khz", "khz")])
def test_the_injected_cause_comes_first(name: str, culprit: str) -> None:
    found = tk.read(CAUSES / f"{name}.txt.xz").why(comm="db")
    assert found.causes["culprit"][0] == culprit
    assert culprit in found.sentence


def test_an_interrupt_load_comes_first() -> None:
    """Packets from another CPU, received in softirqs over `db`."""
    trace = tk.read(CAUSES / "softirq.txt.xz")
    found = trace.why(comm="db")
    assert found.causes.row(0, named=True)["culprit"] == "softirq NET_RX"
    assert "is softirq (softirq NET_RX)" in found.sentence
    # The same from the records alone: entry to exit, as far as that lies in a response.
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    rows = trace.events.filter(kind.is_in(["softirq_entry", "softirq_exit"]) & (name == "NET_RX"))
    times = rows.select("ts_ns", kind.alias("kind")).rows()
    handled = [(a, b) for (a, x), (b, y) in pairwise(times) if (x, y) == ("softirq_entry", "softirq_exit")]
    spans = found.spans.select("start_ns", "end_ns").rows()
    inside = sum(max(0, min(b, end) - max(a, start)) for a, b in handled for start, end in spans)
    own = found.pieces.filter(pl.col("culprit") == "softirq NET_RX")["dur_ns"].sum()
    assert own == pytest.approx(inside, rel=0.02)
    assert own > 0.3 * found.pieces["dur_ns"].sum()


def test_the_holder_of_the_lock_comes_first_among_those_waited_for() -> None:
    found = tk.read(CAUSES / "lock.txt.xz").why(comm="db", what="window")
    first = found.table.filter(~pl.col("cause").is_in(["running", "asleep"])).row(0, named=True)
    assert (first["cause"], first["culprit"], first["via"]) == ("awaited", "holder", "futex")


@pytest.mark.parametrize(("name", "culprit"), [("fifo", "rtjob"), ("khz", "khz")])
def test_the_gain_without_the_injected_cause_is_the_attributed_time(name: str, culprit: str) -> None:
    trace = tk.read(CAUSES / f"{name}.txt.xz")
    (row,) = counterfactuals(trace, trace.why(comm="db"), 1, 3, ("absent",)).rows(named=True)
    assert (row["culprit"], row["verdict"]) == (culprit, "agrees")
    assert row["gain_ns"] == pytest.approx(row["attributed_ns"], rel=0.05)


def test_half_of_the_time_that_a_lock_was_held_is_gained() -> None:
    trace = tk.read(CAUSES / "lock.txt.xz")
    found = trace.why(comm="db", what="window")
    rows = counterfactuals(trace, found, 2, 3, ("lock half as long",))
    held = rows.filter(pl.col("culprit") == "holder").row(0, named=True)
    assert held["verdict"] == "agrees"
    assert held["gain_ns"] == pytest.approx(held["attributed_ns"], rel=0.05)
    # The timer that ends the other sleeps holds no lock.
    other = rows.filter(pl.col("culprit") != "holder")
    assert other["verdict"].to_list() == ["not tested"]


def test_a_task_that_shares_no_cpu_and_no_wakeup_chain_delays_nobody() -> None:
    found = tk.read(CAUSES / "lock.txt.xz").why(comm="holder")
    assert "db" not in found.causes.filter(pl.col("tail_share") > 0.001)["culprit"].to_list()
