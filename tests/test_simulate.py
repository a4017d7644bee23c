"""Workloads written as text, run from Python."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit as tk
from tracekit._frames import TABLES, table_schema

POLICIES = [p["name"] for p in tk.policies()]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_does_all_the_work(policy: str) -> None:
    run = tk.simulate("cpus: 2\nA: R5 S3 R5\nB: (R2 S1)*4\nC: R7", policy=policy)
    assert isinstance(run, tk.Replay)
    assert run.policy.startswith(policy)
    ran = dict(run.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum()).iter_rows())
    assert ran == {"A": 10_000_000, "B": 8_000_000, "C": 7_000_000}


def test_its_tables_are_those_of_a_trace() -> None:
    run = tk.simulate("policy: rr:quantum=2ms\nA: R5\nB: R3")
    for name in TABLES:
        assert run.table(name).schema == table_schema(name)
    assert run.filter(comm="A").slices["dur_ns"].sum() == 5_000_000
    assert "replayed under rr:quantum=2ms" in repr(run)


@settings(deadline=None)
@given(
    bursts=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=4), min_size=1, max_size=5),
    policy=st.sampled_from(POLICIES),
)
def test_the_same_workload_gives_the_same_bytes(bursts: list[list[int]], policy: str) -> None:
    text = "\n".join(f"T{i}: " + " S1 ".join(f"R{b}" for b in each) for i, each in enumerate(bursts))
    one, two = tk.simulate(text, policy), tk.simulate(text, policy)
    assert one.events.equals(two.events)
    assert one.slices["dur_ns"].sum() == sum(map(sum, bursts)) * 1_000_000
    on_cpu = one.slices.sort("cpu", "ts_ns").with_columns(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end"), pl.col("ts_ns").shift(-1).over("cpu").alias("next")
    )
    assert on_cpu.filter(pl.col("next") < pl.col("end")).height == 0


def test_a_run_ends_when_it_is_told_to() -> None:
    run = tk.simulate("cpus: 3\nuntil: 1000\nA: R∞\nB: R∞", "cfs")
    assert run.slices["dur_ns"].to_list() == [1_000_000_000] * 2
    assert sorted(run.cpus["busy_ns"]) == [0, 1_000_000_000, 1_000_000_000]
    assert sorted(run.cpus["idle_ns"]) == [0, 0, 1_000_000_000]


def dispadmin(quantum: int) -> str:
    """A dispatch table as ``dispadmin -c TS -g`` prints it."""
    head = "# Time Sharing Dispatcher Configuration\nRES=1000\n\n# ts_quantum  ts_tqexp  ts_slpret  ts_maxwait ts_lwait  PRIORITY LEVEL\n"
    row = "{:10} {:9} {:10} {:11} {:9}        #  {:5}\n".format
    return head + "".join(
        row(quantum, max(0, i - 10), min(59, i + 50), 0, min(59, i + 50), i) for i in range(60)
    )


def test_a_dispatch_table_is_taken_as_dispadmin_prints_it() -> None:
    def slices(policy: str) -> set[int]:
        run = tk.simulate("hz: 100\nA: R200\nB: R200", policy=policy)
        return set(run.slices["dur_ns"].to_list())

    assert slices(f"solaris-ts:table={dispadmin(50)}") == {50_000_000}
    assert slices(f"solaris-ts:res=4000,table={dispadmin(80)}") == {20_000_000}
    with pytest.raises(tk.ReplayError, match="expected ts_quantum > 0"):
        tk.simulate("A: R1", policy=f"solaris-ts:table={dispadmin(0)}")
    with pytest.raises(tk.ReplayError, match="expected 60 rows, found 59"):
        tk.simulate("A: R1", policy=f"solaris-ts:table={dispadmin(50).rpartition(chr(10) + ' ')[0]}")


@pytest.mark.parametrize(
    ("text", "policy", "message"),
    [
        ("A: R5", None, "policy"),
        ("A: R5", "nope", "no policy nope"),
        ("A: R5", "rr:quantum=1", "time with its unit"),
        ("A: Q!", "fifo", "."),
    ],
)
def test_what_is_not_understood_raises(text: str, policy: str | None, message: str) -> None:
    with pytest.raises(tk.ReplayError, match=message):
        tk.simulate(text, policy)


def test_times_are_drawn_anew_and_the_same_for_the_same_seed() -> None:
    text = "policy: fifo\nuntil: 4000\n{seed}A: (R~uniform(1,3) S~exp(5))*\nB start=~uniform(0,9): R1"
    runs = [tk.simulate(text.format(seed=seed)) for seed in ("", "seed: 1\n", "seed: 2\n")]
    first, again, other = (run.slices.filter(comm="A")["dur_ns"].to_list()[:-1] for run in runs)
    assert first == again != other
    assert all(1_000_000 <= ns <= 3_000_000 for ns in first)
    assert len(set(first)) > 300
    starts = {run.slices.filter(comm="B")["ts_ns"].item() for run in runs}
    assert len(starts) == 2
    assert max(starts) < 12_000_000


def test_each_round_of_a_counted_loop_makes_a_task_of_its_own() -> None:
    run = tk.simulate("policy: fifo\nP: (R1 F(C) W(d))*3\nC start=fork: R~uniform(1,2) P(d)")
    children = run.slices.filter(pl.col("comm").cast(pl.String).str.starts_with("C"))
    assert children["comm"].to_list() == ["C", "C.1", "C.2"]
    assert children["dur_ns"].n_unique() == 3
    assert (run.events["kind"] == "fork").sum() == 3
    with pytest.raises(tk.ReplayError, match="made only once"):
        tk.simulate("policy: fifo\nP: (F(C) R1)*2\nC start=fork: F(D) R1\nD start=fork: R1")
    with pytest.raises(tk.ReplayError, match="cannot make tasks"):
        tk.simulate("policy: fifo\nP: (F(C) R1)*\nC start=fork: R1\nuntil: 5")


def test_a_false_expectation_fails_under_the_texts_own_policy() -> None:
    text = "policy: goodness:version=2.0\nhz: 100\nA: R500\nB: R500\nuntil: 2000\ncount: recalcs={}"
    with pytest.raises(tk.ReplayError, match=r"Count recalcs: expected 77 ± 0, got (\d+)") as found:
        tk.simulate(text.format(77))
    got = str(found.value).rpartition(" ")[2]
    run = tk.simulate(text.format(got))
    assert json.loads(run.metadata["replay.counts"])["recalcs"] == int(got)
    # What holds under its own policy need not hold under another.
    assert "replay.counts" not in tk.simulate(text.format(77), policy="fifo").metadata


@pytest.mark.parametrize(
    "bad", ["R~exp(5", "R~exp()", "R~exp(1,2)", "R~uniform(3,1)", "R~weibull(1)", "R~lognormal(0,1)"]
)
def test_what_is_no_distribution_is_refused(bad: str) -> None:
    with pytest.raises(tk.ReplayError, match=r"expected|not closed"):
        tk.simulate(f"policy: fifo\nA: {bad}")
