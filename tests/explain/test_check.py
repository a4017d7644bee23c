"""Rules that schedules keep: broken where a record was injected, kept by captures and by every replay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit as tk
from tracekit.analysis.automata import MODELS, ONE_CPU, SLEEP_WAKEUP, Automaton
from tracekit.analysis.conformance import RULES, unchecked
from tracekit.cli import main
from tracekit.explain import check

from .text import Line, switch, trace_of, waking

ROOT = Path(__file__).parents[2]


def slowly(model: Automaton, events: list[int], keys: list[int]) -> list[bool]:
    """The automaton one event after the other."""
    state: dict[int, str] = {}
    broken = []
    for number, key in zip(events, keys, strict=True):
        event = model.events[number]
        target = model.moves.get(state.get(key, model.initial), {}).get(event)
        broken.append(target is None)
        state[key] = model.resumes[event] if target is None else target
    return broken


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_whole_columns_give_what_single_steps_give(model: Automaton, data: st.DataObject) -> None:
    keys = sorted(data.draw(st.lists(st.integers(0, 3), max_size=60)))
    size = len(keys)
    events = data.draw(st.lists(st.integers(0, len(model.events) - 1), min_size=size, max_size=size))
    found = model.violations(np.array(events, dtype=np.int64), np.array(keys, dtype=np.int64))
    assert found.tolist() == slowly(model, events, keys)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_a_model_with_a_move_taken_away_fires(model: Automaton, trace: tk.Trace) -> None:
    """The control: rules that cannot fire would be kept by anything."""
    state, event = ("on", "out") if model is ONE_CPU else ("asleep", "wake")
    moves = {s: {e: t for e, t in m.items() if (s, e) != (state, event)} for s, m in model.moves.items()}
    lame = Automaton(model.name, model.says, model.initial, moves, model.resumes)
    one = np.array(
        [model.events.index(e) for e in (("in", "out") if model is ONE_CPU else ("sleep", "wake"))]
    )
    key = np.zeros(2, dtype=np.int64)
    assert not model.violations(one, key).any()
    assert lame.violations(one, key).tolist() == [False, True]


def changed(trace: tk.Trace, events: pl.DataFrame, folder: Path) -> tk.Trace:
    """The trace that these records make, everything derived anew."""
    file = folder / "changed.parquet"
    numbered = events.with_columns(pl.int_range(pl.len(), dtype=pl.UInt64).alias("seq"))
    tk.Trace({"events": numbered}, trace.metadata).write(file)
    return tk.read(file)


def broken(trace: tk.Trace) -> set[str]:
    return set(check(trace).open["rule"].to_list())


def nth(trace: tk.Trace, kind: str, n: int) -> int:
    """Row of the nth record of a kind."""
    rows = trace.events.with_row_index("_i").filter(pl.col("kind").cast(pl.String) == kind)
    return int(rows["_i"][n])


@pytest.mark.parametrize("n", [500, 1501, 4002])
def test_a_deleted_switch_is_found(trace: tk.Trace, tmp_path: Path, n: int) -> None:
    at = nth(trace, "switch", n)
    events = pl.concat([trace.events[:at], trace.events[at + 1 :]])
    assert "switch-chain" in broken(changed(trace, events, tmp_path))


def test_deleted_wakeups_are_found(trace: tk.Trace, tmp_path: Path) -> None:
    at = nth(trace, "waking", 1000)
    tid, ts = trace.events["tid"][at], trace.events["ts_ns"][at]
    near = (pl.col("tid") == tid) & pl.col("ts_ns").is_between(ts, ts + 20_000)
    kind = pl.col("kind").cast(pl.String)
    events = trace.events.filter(~(near & kind.is_in(["waking", "wakeup"])))
    found = check(changed(trace, events, tmp_path)).open
    assert found["rule"].to_list() == ["sleep-wakeup"]
    assert found["tid"].item() == tid
    assert ts <= found["ts_ns"].item() <= ts + 10_000_000


def test_a_duplicated_record_is_found(trace: tk.Trace, tmp_path: Path) -> None:
    at = nth(trace, "switch", 700)
    events = pl.concat([trace.events[: at + 1], trace.events[at:]])
    assert {"no-copies", "switch-chain"} <= broken(changed(trace, events, tmp_path))


def test_swapped_records_are_found(trace: tk.Trace, tmp_path: Path) -> None:
    one, other = nth(trace, "switch", 700), nth(trace, "switch", 701)
    rows = trace.events.with_row_index("_i").with_columns(
        pl.when(pl.col("_i") == one)
        .then(other)
        .when(pl.col("_i") == other)
        .then(one)
        .otherwise(pl.col("_i"))
        .alias("_i")
    )
    times = trace.events["ts_ns"]
    events = rows.sort("_i").drop("_i").with_columns(times)
    assert "switch-chain" in broken(changed(trace, events, tmp_path))


def test_an_idle_cpu_beside_a_waiting_task_is_found(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "S", "swapper/0:0")),
        (100, 0, "<idle>-0", "d.h2.", waking("a:1")),
        (5100, 0, "<idle>-0", "d..2.", switch("swapper/0:0", "R", "a:1")),
        (5200, 0, "a-1", "d..2.", switch("a:1", "S", "swapper/0:0")),
    ]
    found = check(trace_of(lines, tmp_path)).open.row(0, named=True)
    assert (found["rule"], found["ts_ns"], found["end_ns"], found["tid"]) == (
        "work-conservation",
        100_000,
        5_100_000,
        1,
    )


def test_a_real_time_task_behind_a_lesser_one_is_found(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "rt-1", "d..2.", switch("rt:1", "S", "hog:2", prio=9)),
        (100, 0, "hog-2", "d.h2.", waking("rt:1", prio=9)),
        (3100, 0, "hog-2", "d..2.", switch("hog:2", "R", "rt:1", to_prio=9)),
        (3200, 0, "rt-1", "d..2.", switch("rt:1", "S", "hog:2", prio=9)),
        (3300, 0, "hog-2", "d..2.", switch("hog:2", "R", "swapper/0:0")),
    ]
    found = check(trace_of(lines, tmp_path)).open
    assert found["rule"].to_list() == ["priority-order"]
    assert "priority 9) waits 3000 us" in found["text"].item()


IDLE = "swapper/0:0"


def wakeup(task: str, cpu: int = 0, prio: int = 120) -> str:
    return waking(task, cpu, prio).replace("sched_waking", "sched_wakeup")


def test_a_wakeup_that_is_on_its_way_is_in_no_queue(tmp_path: Path) -> None:
    """CPU 1 sends the wakeup; CPU 0 takes it 5 ms later, and runs the task at once."""
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "S", IDLE)),
        (50, 1, "b-2", "d..2.", switch("swapper/1:0", "R", "b:2")),
        (100, 1, "b-2", "d..2.", waking("a:1")),
        (5100, 0, "<idle>-0", "d.h2.", wakeup("a:1")),
        (5200, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "a:1")),
        (5300, 0, "a-1", "d..2.", switch("a:1", "S", IDLE)),
    ]
    assert not check(trace_of(lines, tmp_path)).violations.height
    # It is in the queue from the wakeup on.
    lines[4] = (7200, *lines[4][1:])
    lines[5] = (7300, *lines[5][1:])
    row = check(trace_of(lines, tmp_path)).open.row(0, named=True)
    assert (row["rule"], row["ts_ns"], row["end_ns"]) == ("work-conservation", 5_100_000, 7_200_000)
    assert row["text"].endswith("it recorded nothing for 2100 us")


def test_who_runs_elsewhere_without_a_migration_may_have_been_gone_already(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "R", "b:2")),
        (10, 1, "c-3", "d..2.", switch("c:3", "S", "d:4")),
        (100, 0, "b-2", "d..2.", switch("b:2", "S", IDLE)),
        (5100, 1, "d-4", "d..2.", switch("d:4", "S", "a:1")),
        (5200, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "e:5")),
    ]
    assert not check(trace_of(lines, tmp_path)).violations.height
    lines.insert(
        3, (5000, 1, "d-4", "d..2.", "sched_migrate_task: comm=a pid=1 prio=120 orig_cpu=0 dest_cpu=1")
    )
    assert broken(trace_of(lines, tmp_path)) == {"work-conservation"}


def test_a_cpu_left_by_a_task_that_could_go_on_is_explained_by_a_quota(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "R", "b:2")),
        (100, 0, "b-2", "d..2.", switch("b:2", "R", IDLE)),
        (5100, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "c:3")),
        (5200, 0, "c-3", "d..2.", switch("c:3", "S", IDLE)),
        (9100, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "a:1")),
        (9200, 0, "a-1", "d..2.", switch("a:1", "R", "b:2")),
        (9300, 0, "b-2", "d..2.", switch("b:2", "S", IDLE)),
    ]
    found = check(trace_of(lines, tmp_path))
    assert found.ok, found.sentence
    held = found.violations.filter(pl.col("rule") == "work-conservation")
    # Two tasks, two windows: that another one ran between does not end the quota.
    assert held["explained_by"].to_list() == ["quota"] * 4
    assert "(4 more are explained: quota)" in found.sentence


def test_a_priority_that_was_lent_is_not_the_one_it_waited_with(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "w-1", "d..2.", switch("w:1", "S", "hog:2")),
        (100, 0, "hog-2", "d.h2.", waking("w:1")),
        (3100, 0, "hog-2", "d..2.", switch("hog:2", "R", "w:1", to_prio=9)),
        (3200, 0, "w-1", "d..2.", switch("w:1", "S", "hog:2", prio=9)),
        (3300, 0, "hog-2", "d..2.", switch("hog:2", "R", IDLE)),
    ]
    assert not check(trace_of(lines, tmp_path)).violations.height


def test_a_recorder_that_leaves_out_an_idle_thread_explains_broken_chains(tmp_path: Path) -> None:
    lines: list[Line] = []
    for n in range(4):
        lines += [
            (1000 * n + 100, 0, "a-1", "d..2.", switch("a:1", "S", IDLE)),
            (1000 * n + 600, 1, "b-2", "d..2.", waking("a:1")),
        ]
    found = check(trace_of(lines, tmp_path))
    assert found.ok, found.sentence
    assert set(found.violations["explained_by"].to_list()) == {"recorder"}
    assert found.violations["rule"].to_list() == ["one-cpu", "switch-chain"] * 3
    # One record of the idle thread, and it is no longer never.
    lines.insert(1, (200, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "c:3")))
    assert "switch-chain" in broken(trace_of(lines, tmp_path))


def test_a_thread_whose_wakeups_are_never_recorded_is_explained(tmp_path: Path) -> None:
    lines: list[Line] = [(5, 0, "<idle>-0", "d.h2.", waking("c:3"))]
    for n in range(4):
        lines += [
            (1000 * n + 100, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "a:1")),
            (1000 * n + 600, 0, "a-1", "d..2.", switch("a:1", "S", IDLE)),
        ]
    found = check(trace_of(lines, tmp_path))
    assert found.violations.select("rule", "explained_by").rows() == [("sleep-wakeup", "recorder")] * 3
    lines.insert(1, (50, 0, "<idle>-0", "d.h2.", waking("a:1")))
    assert broken(trace_of(lines, tmp_path)) == {"sleep-wakeup"}


def test_who_leaves_for_an_unknown_reason_has_left(trace: tk.Trace, tmp_path: Path) -> None:
    """Context switches of perf (PERF_RECORD_SWITCH) do not say why."""
    events = trace.events.with_columns(
        pl.when(pl.col("kind").cast(pl.String) == "switch")
        .then(pl.lit("unknown_off"))
        .otherwise(pl.col("state").cast(pl.String))
        .cast(trace.events.schema["state"])
        .alias("state")
    )
    assert not {"one-cpu", "sleep-wakeup"} & broken(changed(trace, events, tmp_path))


QUOTA = """schema = 1
written = 2026-01-31T12:00:00Z
[kernel]
release = "6.12.1"
[machine]
cpus = [{cpu = 0}]
cgroups = [
  {path = "/batch", quota_us = 20000, period_us = 100000},
]
tasks = [
  {tid = 1, pid = 1, comm = "a", cgroup = "/batch/one"},
  {tid = 2, pid = 2, comm = "b", cgroup = "/"},
]
"""


@pytest.mark.parametrize(
    ("real_us", "left_us", "by"),
    # A second of real time and 50 ms for others; half a second; more than is left to others.
    [(1_000_000, 50_000, "throttling"), (500_000, 50_000, None), (1_000_000, 90_000, None)],
)
def test_what_is_left_to_others_beside_real_time_tasks_is_explained(
    tmp_path: Path, real_us: int, left_us: int, by: str | None
) -> None:
    def at(ts: int, who: str, state: str, to: str) -> Line:
        prio = {"f:1": 49, "o:2": 120}
        return (ts, 0, who.replace(":", "-"), "d..2.", switch(who, state, to, prio[who], prio[to]))

    lines = [
        at(0, "o:2", "R", "f:1"),
        at(real_us, "f:1", "R", "o:2"),
        at(real_us + left_us, "o:2", "R", "f:1"),
    ]
    lines.append(at(real_us + left_us + 100, "f:1", "S", "o:2"))
    found = check(trace_of(lines, tmp_path)).violations.filter(rule="priority-order")
    assert found["explained_by"].to_list() == [by]
    assert found["end_ns"].item() - found["ts_ns"].item() == left_us * 1000


def test_why_names_the_quota_that_no_record_shows(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "b-2", "d..2.", waking("a:1")),
        (10, 0, "b-2", "d..2.", switch("b:2", "R", "a:1")),
        (20_010, 0, "a-1", "d..2.", switch("a:1", "R", "b:2")),
        (100_010, 0, "b-2", "d..2.", switch("b:2", "R", "a:1")),
        (100_020, 0, "a-1", "d..2.", switch("a:1", "S", "b:2")),
        (100_030, 0, "b-2", "d..2.", waking("c:3")),
        (100_040, 0, "b-2", "d..2.", switch("b:2", "S", "c:3")),
        (100_050, 0, "c-3", "d..2.", switch("c:3", "S", IDLE)),
    ]
    trace_of(lines, tmp_path)
    (tmp_path / "trace.machine.toml").write_text(QUOTA)
    trace = tk.read(tmp_path / "trace.txt")
    assert "under a quota (/batch 20 ms in each 100 ms)" in trace.why(comm="a").quotas
    assert "would pass without them" in repr(trace.why(comm="a"))
    # c is in no group, and nothing is known of quotas without the machine.
    assert trace.why(comm="c").quotas == ""
    (tmp_path / "trace.machine.toml").unlink()
    assert tk.read(tmp_path / "trace.txt").why(comm="a").quotas == ""


@pytest.mark.parametrize(("busy_us", "result"), [(20_000, "kept"), (30_000, "broken")])
def test_a_group_that_runs_longer_than_its_quota_is_found(tmp_path: Path, busy_us: int, result: str) -> None:
    lines: list[Line] = []
    for n in range(30):
        at = 100_000 * n
        lines += [
            (at, 0, "b-2", "d..2.", switch("b:2", "R", "a:1")),
            (at + busy_us, 0, "a-1", "d..2.", switch("a:1", "R", "b:2")),
        ]
    trace_of(lines, tmp_path)
    (tmp_path / "trace.machine.toml").write_text(QUOTA)
    found = check(tk.read(tmp_path / "trace.txt"))
    row = found.summary.filter(pl.col("rule") == "quota").row(0, named=True)
    assert row["result"] == result, found.sentence
    if result == "broken":
        assert found.open["text"].to_list() == [
            "group /batch runs 300000 us in 10 periods; its quota allows 235000 us"
        ]


def test_what_no_record_shows_is_refused_by_name(trace: tk.Trace) -> None:
    found = check(trace)
    assert found.unchecked["eevdf-lag"].startswith("no record shows the virtual time")
    assert found.unchecked["quota"].startswith("no quota is known")


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        ("perf-timehist/two-cpus/input.txt", len(RULES)),
        ("perf-data/killed/input.data", len(RULES) - 2),
    ],
)
def test_rules_without_records_are_not_called_kept(root: Path, path: str, rules: int) -> None:
    found = check(tk.read(root / "fixtures" / path))
    assert len(found.unchecked) == rules
    kept = found.summary.filter(pl.col("result") == "kept")["rule"].to_list()
    assert set(kept) <= {"no-copies", "time-order"}, "of which any record says something"


def test_priorities_that_no_record_states_are_not_checked(tmp_path: Path) -> None:
    """Switches as perf itself records them have no priorities."""
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "S", "b:2")),
        (50, 0, "b-2", "d..2.", switch("b:2", "S", "a:1")),
    ]
    events = trace_of(lines, tmp_path).events
    assert "priority-order" not in unchecked(events, 100)
    bare = events.with_columns(pl.lit(None, pl.Int32).alias(name) for name in ("prio", "next_prio"))
    assert unchecked(bare, 100)["priority-order"] == "no priorities were recorded"


def test_records_without_protection_are_found(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "S", "b:2")),
        (100, 0, "b-2", ".....", waking("a:1")),
        (200, 0, "b-2", "d.h2.", switch("b:2", "S", "a:1")),
        (300, 0, "a-1", "d..2.", switch("a:1", "S", "swapper/0:0")),
    ]
    assert broken(trace_of(lines, tmp_path)) == {"wakeup-atomic", "switch-context"}


def test_a_recorder_that_goes_from_cpu_to_cpu_explains_what_it_does_there(tmp_path: Path) -> None:
    """As perf does: at its start and its end it is on CPUs that record no more, or not yet."""
    lines: list[Line] = [
        (0, 0, "perf-9", "d..2.", switch("perf:9", "D", "a:1")),
        (5000, 0, "a-1", "d..2.", switch("a:1", "R", "b:2")),
        (10000, 1, "perf-9", "d..2.", switch("perf:9", "S", "c:3")),
        (20000, 0, "b-2", "d.h2.", waking("perf:9")),
        (30000, 0, "b-2", "d..2.", switch("b:2", "R", "perf:9")),
        (40000, 1, "c-3", "d..2.", switch("c:3", "R", "perf:9")),
    ]
    found = check(trace_of(lines, tmp_path))
    assert found.violations["explained_by"].to_list() == ["recorder", "recorder"]
    assert found.ok
    # The same within the records of both CPUs is what nothing explains.
    lines += [
        (50000, 0, "perf-9", "d..2.", switch("perf:9", "S", "a:1")),
        (50000, 1, "perf-9", "d..2.", switch("perf:9", "S", "c:3")),
    ]
    found = check(trace_of(lines, tmp_path))
    assert None in found.violations["explained_by"].to_list()
    assert not found.ok


def test_a_loss_explains_what_it_hides(trace: tk.Trace, tmp_path: Path) -> None:
    at = nth(trace, "switch", 700)
    events = pl.concat([trace.events[:at], trace.events[at + 1 :]])
    whole = changed(trace, events, tmp_path)
    assert not check(whole).ok
    ts = trace.events["ts_ns"]
    loss = {
        "cpu": [0],
        "ts_from_ns": [ts[at - 1]],
        "ts_to_ns": [ts[at + 1]],
        "count": [1],
        "cause": ["overwrite"],
    }
    lost = pl.DataFrame(loss, schema=trace.losses.schema)
    tables = {name: whole.table(name) for name in whole.tables}
    found = check(tk.Trace({**tables, "losses": lost}, whole.metadata))
    assert found.ok, found.sentence
    assert set(found.violations["explained_by"].to_list()) == {"loss"}
    assert "explained" in found.summary["result"].to_list()


CLEAN = (
    *("lab/6.1/forkwait-0.dat", "lab/6.12/mixed-interfifo.dat", "lab2/6.1-4cpu/server-default.dat"),
    *("lab2/7.3-4cpu/slice-default.dat", "lab2/6.12-2cpu/groups-quota50.dat"),
)


@pytest.mark.parametrize("name", CLEAN)
def test_clean_captures_keep_the_rules(testdata: Path, name: str) -> None:
    path = testdata / name
    if not path.exists():
        pytest.skip(f"{name} is not unpacked")
    assert check(tk.read(path)).sentence.startswith("No rule is broken")


@pytest.mark.parametrize("policy", [p["name"] for p in tk.policies()])
def test_replays_of_every_policy_keep_the_rules(policy: str) -> None:
    work = f"policy: {policy}\ncpus: 2\nA: (R3 S2)*\nB: (R1 S4)*\nC: R40\nD: R25\nE: (R0.5 S1)*\nuntil: 60"
    run = tk.simulate(work)
    assert run.slices.height > 20
    found = check(run)
    assert found.ok, found.sentence


def test_what_cannot_be_checked_is_named(trace: tk.Trace, tmp_path: Path) -> None:
    kind = pl.col("kind").cast(pl.String)
    found = check(
        changed(trace, trace.events.filter(~kind.is_in(["waking", "wakeup", "wakeup_new"])), tmp_path)
    )
    row = found.summary.filter(pl.col("rule") == "sleep-wakeup").row(0, named=True)
    assert (row["result"], row["says"]) == ("not checked", "no wakeups were recorded")
    assert found.summary["rule"].to_list() == list(RULES)


def test_a_filtered_trace_is_refused(trace: tk.Trace) -> None:
    with pytest.raises(tk.FilterError, match="expected a whole trace"):
        check(trace.filter(comm="waker*"))


def test_the_command_ends_with_the_result(tmp_path: Path) -> None:
    demo = str(ROOT / "fixtures/demo/slice-default.dat")
    good = CliRunner().invoke(main, ["check", demo])
    assert good.exit_code == 0, good.output
    assert good.stdout.startswith("No rule is broken: 9 of 11")
    lines: list[Line] = [
        (0, 0, "a-1", "d..2.", switch("a:1", "S", "b:2")),
        (200, 0, "b-2", "d..2.", switch("b:2", "S", "a:1")),
        (300, 0, "a-1", "d..2.", waking("c:3")),
        (300, 0, "a-1", "d..2.", switch("a:1", "S", "c:3")),
    ]
    trace_of(lines, tmp_path)
    bad = CliRunner().invoke(main, ["check", str(tmp_path / "trace.txt"), "--json"])
    assert bad.exit_code == 3
    answer = json.loads(bad.stdout)
    assert answer["ok"] is False
    assert answer["findings"][0]["rule"] == "sleep-wakeup"
    assert SLEEP_WAKEUP.name == "sleep-wakeup"
