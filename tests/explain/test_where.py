"""Where tasks ran: migrations, idle CPUs beside waiting tasks, interrupts, inversions, periods, lives."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.analysis import placement
from tracekit.cli import main
from tracekit.explain import WHERE, where

from .text import Line, switch, trace_of, waking

ROOT = Path(__file__).parents[2]
IDLE0, IDLE1 = "swapper/0:0", "swapper/1:0"


@pytest.fixture
def two(tmp_path: Path) -> tk.Trace:
    """Two CPUs: `a` moves by a wakeup, `b` by the balancer, while CPU 1 is idle beside a waiting task."""
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "S", "b:2")),
        (0, 1, "<idle>-0", "d..2.", switch("h:3", "S", IDLE1)),
        (100, 0, "b-2", "d.h2.", waking("a:1", 1)),
        (101, 0, "b-2", "d.h2.", "sched_wakeup: a:1 [120] CPU:001"),
        (120, 1, "<idle>-0", "d..2.", switch(IDLE1, "R", "a:1")),
        (300, 1, "a-1", "d..2.", switch("a:1", "S", IDLE1)),
        (400, 0, "b-2", "d.h2.", waking("h:3", 0)),
        (401, 0, "b-2", "d.h2.", "sched_wakeup: h:3 [120] CPU:000"),
        (500, 0, "b-2", "d..2.", switch("b:2", "R", "h:3")),
        (900, 1, "<idle>-0", "d..2.", switch(IDLE1, "R", "b:2")),
        (1000, 1, "b-2", "d..2.", switch("b:2", "S", IDLE1)),
        (1000, 0, "h-3", "d..2.", switch("h:3", "S", IDLE0)),
    ]
    return trace_of(lines, tmp_path)


def test_migrations_have_a_reason_and_a_distance(two: tk.Trace) -> None:
    apart = pl.DataFrame({"cpu": [0, 1], "core": [0, 1], "cache": [0, 0]})
    moves = placement.migrations(two.slices, two.events, apart)
    names = dict(two.tasks.select("utid", pl.col("comm").cast(pl.String)).iter_rows())
    found = {
        (names[u], reason): distance
        for u, reason, distance in moves.select("utid", "reason", "distance").rows()
    }
    assert found[("a", "wakeup")] == "core"
    assert found[("b", "balance")] == "core"
    assert placement.migrations(two.slices, two.events)["distance"].null_count() == moves.height


@pytest.mark.parametrize(
    ("levels", "distance"),
    [
        ({"core": [0, 0]}, "thread"),
        ({"core": [0, 1], "cache": [3, 3], "node": [0, 0]}, "core"),
        ({"core": [0, 1], "cache": [3, 4], "node": [0, 0]}, "cache"),
        ({"core": [0, 1], "cache": [3, 4], "node": [0, 1], "package": [0, 0]}, "node"),
        ({"core": [0, 1], "cache": [3, 4], "node": [0, 1], "package": [0, 1]}, "far"),
    ],
)
def test_the_distance_is_the_nearest_thing_shared(
    two: tk.Trace, levels: dict[str, list[int]], distance: str
) -> None:
    topology = pl.DataFrame({"cpu": [0, 1], **levels})
    assert set(placement.migrations(two.slices, two.events, topology)["distance"].to_list()) == {distance}


def test_idle_beside_a_waiting_task_is_listed(two: tk.Trace) -> None:
    rows = where(two, "idle")
    waited = {(r["comm"], r["idle_cpu"], r["cpu"], r["dur_ns"]) for r in rows.iter_rows(named=True)}
    assert ("b", 1, 0, 400_000) in waited
    assert ("h", 1, 0, 100_000) in waited
    assert rows.filter(pl.col("own"))["comm"].to_list() == ["a"]


def test_shares_of_a_cpu_sum_to_one(two: tk.Trace, trace: tk.Trace) -> None:
    for one in (two, trace):
        table = where(one, "cpus")
        shares = [c for c in table.columns if c.endswith("_share")]
        assert table.select(pl.sum_horizontal(shares)).to_series().to_list() == pytest.approx(
            [1.0] * table.height
        )


def test_an_inversion_names_all_three(tmp_path: Path) -> None:
    lines = inverted("high-1", 9)
    row = where(trace_of(lines, tmp_path), "inversions").row(0, named=True)
    assert (row["high"], row["low"], row["middle"], row["dur_ns"]) == ("high", "low", "mid", 1_000_000)


@pytest.mark.parametrize(("prio", "found"), [(0, 0), (9, 1)])
def test_a_thread_that_stops_a_cpu_waits_for_no_lock(prio: int, found: int, tmp_path: Path) -> None:
    """Whoever asks it to move a task ends its sleep; at another priority it is another thread."""
    assert where(trace_of(inverted("migration/0-1", prio), tmp_path), "inversions").height == found


def inverted(thread: str, prio: int) -> list[Line]:
    """A better thread, 1, sleeps until a task wakes it that waited behind a middling one."""
    high = ":".join(thread.rsplit("-", 1))
    return [
        (0, 0, thread, "d..2.", switch(high, "S", "low:2", prio=prio, to_prio=130)),
        (100, 0, "low-2", "d..2.", waking("mid:3", prio=110)),
        (110, 0, "low-2", "d..2.", switch("low:2", "R", "mid:3", prio=130, to_prio=110)),
        (1110, 0, "mid-3", "d..2.", switch("mid:3", "S", "low:2", prio=110, to_prio=130)),
        (1200, 0, "low-2", "d..2.", waking(high, prio=prio)),
        (1210, 0, "low-2", "d..2.", switch("low:2", "R", high, prio=130, to_prio=prio)),
        (1300, 0, thread, "d..2.", switch(high, "S", "low:2", prio=prio, to_prio=130)),
        (1400, 0, "low-2", "d..2.", switch("low:2", "S", high, prio=130, to_prio=prio)),
        (1500, 0, thread, "d..2.", switch(high, "S", IDLE0, prio=prio)),
    ]


def test_periods_of_the_shipped_capture(trace: tk.Trace) -> None:
    rows = where(trace, "periods").filter(group="waker")
    # usleep(1000) with 50 us of timer slack, and its own work.
    assert rows.height == 2
    assert rows["period_ns"].is_between(1_050_000, 1_150_000).all()


def test_a_gap_counts_as_a_miss(tmp_path: Path) -> None:
    lines: list[Line] = []
    at = 0
    for n in range(30):
        at += 3500 if n == 20 else 1000
        lines += [
            (at, 0, "<idle>-0", "d.h2.", waking("t:1")),
            (at + 10, 0, "<idle>-0", "d..2.", switch(IDLE0, "R", "t:1")),
            (at + 100, 0, "t-1", "d..2.", switch("t:1", "S", IDLE0)),
        ]
    row = where(trace_of(lines, tmp_path), "periods").row(0, named=True)
    assert (row["n"], row["period_ns"], row["n_missed"], row["longest_gap_ns"]) == (
        30,
        1_000_000,
        1,
        3_500_000,
    )
    assert row["jitter_max_ns"] == 10_000


def test_lives_of_forked_processes(testdata: Path) -> None:
    path = testdata / "lab/6.1/forkwait-0.dat"
    if not path.exists():
        pytest.skip("lab/6.1 is not unpacked")
    trace = tk.read(path)
    lives = where(trace, "lives")
    assert lives.height >= 200
    seen = lives.drop_nulls(["first_run_ns", "exit_ns"])
    assert (seen["first_run_ns"] < seen["exit_ns"]).all()
    cost = where(trace, "cost")
    assert cost["n"].sum() == lives["first_run_ns"].count()
    bars = cost.filter(pl.col("n") >= 5)
    assert ((bars["lo_ns"] <= bars["mean_ns"]) & (bars["mean_ns"] <= bars["hi_ns"])).all()


@pytest.mark.parametrize("show", WHERE)
def test_every_table_is_shown(show: str) -> None:
    done = CliRunner().invoke(
        main, ["where", str(ROOT / "fixtures/demo/slice-default.dat"), "--show", show, "--json", "--top", "3"]
    )
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["rows"]) <= 3


BESIDE = """schema = 1
written = 2026-01-31T12:00:00Z
[machine]
cpus = [{cpu = 0}, {cpu = 1}]
tasks = [
  {tid = 1, pid = 1, comm = "a", policy = "other", cgroup = "/web"},
  {tid = 2, pid = 2, comm = "b", policy = "batch", cgroup = "/jobs"},
  {tid = 3, pid = 3, comm = "h", policy = "other", cgroup = "/web"},
]
"""


def test_time_is_told_by_cgroup_class_and_priority(two: tk.Trace, tmp_path: Path) -> None:
    (tmp_path / "trace.machine.toml").write_text(BESIDE)
    trace = tk.read(tmp_path / "trace.txt")
    rows = {r["group"]: r for r in where(trace, "time", "cgroup").iter_rows(named=True)}
    # a: 120 to 300; h: 500 to 1000. b: 0 to 500, 900 to 1000. us
    assert {g: r["run_ns"] for g, r in rows.items()} == {"/web": 680_000, "/jobs": 600_000}
    assert rows["/jobs"]["wait_ns"] == 400_000
    # a: 100 to 120; h: 400 to 500.
    assert rows["/web"]["wait_ns"] == 120_000
    assert rows["/web"]["tasks"] == 2
    assert rows["/web"]["share"] == pytest.approx(0.34)
    assert set(where(trace, "time", "policy")["group"]) == {"other", "batch"}
    assert where(trace, "time", "prio")["group"].to_list() == ["prio 120"]
    assert set(where(trace, "migrations", "cgroup")["group"]) == {"/web", "/jobs"}
    assert where(trace, "waits", "cgroup").height > 0


def test_a_grouping_that_nothing_states_is_refused_by_name(two: tk.Trace) -> None:
    with pytest.raises(ValueError, match="cannot group by cgroup: no trace records it"):
        where(two, "time", "cgroup")
    with pytest.raises(ValueError, match="unknown grouping 'colour': expected one of group, comm"):
        where(two, "time", "colour")


def test_the_command_groups_by_class(tmp_path: Path) -> None:
    demo = str(ROOT / "fixtures/demo/slice-default.dat")
    done = CliRunner().invoke(main, ["where", demo, "--show", "time", "--by", "policy"])
    assert done.exit_code == 0, done.output
    assert "fair (other, batch or idle)" in done.stdout
    refused = CliRunner().invoke(main, ["where", demo, "--show", "time", "--by", "cgroup"])
    assert refused.exit_code == 2
    assert "cannot group by cgroup" in refused.output
