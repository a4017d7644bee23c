"""Who shares CPU time with whom, learned from the CPU time that tasks got."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.whatif.basis import unknown_machine, unrecorded
from tracekit.whatif.learn import Inference, lines
from tracekit.whatif.sharing import learned
from tracekit.whatif.threads import Beside

#: Three sessions on two CPUs: each gets a third of the machine, however many jobs it has.
WORKLOAD = """\
policy: eevdf:version=6.18
cpus: 2
hz: 250
until: 3000
{groups}
ALPHA*3 {alpha}: R∞
BETA {beta}: R∞
GAMMA*2 {gamma}: R∞
"""
#: Thread 2 is the parent of the kernel's threads.
FIRST = 1000
SESSIONS = {"alpha": "group=a", "beta": "group=b", "gamma": "group=c"}


def _recorded(folder: Path, sessions: dict[str, str], workload: str = WORKLOAD) -> tk.Trace:
    """The switches of a workload, as perf prints them: nothing says who is in which group."""
    groups = "\n".join(f"group {s.removeprefix('group=')}: weight=100" for s in sessions.values() if s)
    run = tk.simulate(workload.format(groups=groups, **sessions))
    text = []
    for cpu in (0, 1):
        before = ("swapper", 0)
        slices = run.slices.filter(pl.col("tid") > 0, cpu=cpu).sort("ts_ns")
        rows = slices.select("ts_ns", pl.col("comm").cast(pl.String), pl.col("tid") + FIRST)
        for ts, comm, tid in rows.iter_rows():
            text.append(
                (
                    ts,
                    f"{before[0]} {before[1]} [{cpu:03}] {10 + ts / 1e9:.9f}: sched:sched_switch: prev_comm={before[0]} "
                    f"prev_pid={before[1]} prev_prio=120 prev_state=R ==> next_comm={comm} next_pid={tid} next_prio=120\n",
                )
            )
            before = (comm, tid)
    path = folder / "t.txt"
    path.write_text("".join(line for _, line in sorted(text)))
    return tk.read(path)


def _shares(run: tk.Trace) -> dict[str, float]:
    """Share of the CPU time by name without its number, %."""
    name = pl.col("comm").cast(pl.String).str.strip_chars("0123456789")
    time = run.slices.filter(pl.col("tid") > 0).group_by(name).agg(pl.col("dur_ns").sum())
    return {who: 100 * ns / time["dur_ns"].sum() for who, ns in time.iter_rows()}


def _together(trace: tk.Trace) -> set[frozenset[str]]:
    found = learned(trace)
    assert found is not None
    names = dict(trace.tasks.select("tid", pl.col("comm").cast(pl.String)).iter_rows())
    return {frozenset(names[tid] for tid, at in found.group.items() if at == group) for group in found.tasks}


def test_sessions_are_found_by_what_their_jobs_got(tmp_path: Path) -> None:
    trace = _recorded(tmp_path, SESSIONS)
    assert _together(trace) == {
        frozenset({"ALPHA0", "ALPHA1", "ALPHA2"}),
        frozenset({"BETA"}),
        frozenset({"GAMMA0", "GAMMA1"}),
    }
    found = learned(trace)
    assert found is not None
    assert found.within < 0.1 < found.without
    for jobs in (1, 3):
        with Beside(jobs) as threads:
            assert learned(trace.with_metadata(trace.metadata), threads) == found


#: Two sessions, each with a CPU of its own: each CPU is shared fairly by those that are on it.
APART = WORKLOAD.rpartition("GAMMA")[0]


def test_sessions_that_balancing_puts_on_a_cpu_each_are_found(tmp_path: Path) -> None:
    trace = _recorded(tmp_path, {"alpha": "group=a", "beta": "group=b"}, APART)
    on = (
        trace.slices.filter(pl.col("comm").cast(pl.String) == "BETA")
        .group_by("cpu")
        .agg(pl.col("dur_ns").sum())
    )
    assert on["dur_ns"].max() > 0.9 * on["dur_ns"].sum()
    assert _together(trace) == {frozenset({"ALPHA0", "ALPHA1", "ALPHA2"}), frozenset({"BETA"})}


def test_no_groups_are_found_where_all_stand_alike(tmp_path: Path) -> None:
    """Four hogs on two CPUs, of which each gets half of one, looked at one by one and together."""
    assert learned(_recorded(tmp_path, {"alpha": "", "beta": ""}, APART)) is None


def test_no_groups_are_found_where_all_share_alike(tmp_path: Path) -> None:
    trace = _recorded(tmp_path, dict.fromkeys(SESSIONS, ""))
    assert learned(trace) is None
    assert "who shares CPU time with whom" in (unknown_machine(trace) or "")


def test_nice_changes_nothing_for_a_job_that_is_alone_in_its_session(tmp_path: Path) -> None:
    trace = _recorded(tmp_path, SESSIONS)
    programs = tk.Programs(trace)
    plain = _shares(programs.run(programs.identity))
    nice = programs.run(programs.identity, scenario=["BETA: nice=19"])
    assert abs(_shares(nice)["BETA"] - plain["BETA"]) < 1
    # Without the groups it would have next to nothing left.
    alone = programs.prepared(programs.identity, scenario=["BETA: nice=19"], shared={}).run()
    assert _shares(alone)["BETA"] < 3
    # A group that was learned has a weight as any other.
    found = learned(trace)
    assert found is not None
    (group,) = (g for g, tasks in found.tasks.items() if "BETA" in tasks)
    heavy = programs.run(programs.identity, scenario=[f"group:{group}: weight=300"])
    assert _shares(heavy)["BETA"] > plain["BETA"] + 10


def test_what_was_learned_is_said_where_a_replay_rests_on_it(tmp_path: Path) -> None:
    trace = _recorded(tmp_path, SESSIONS)
    programs = tk.Programs(trace)
    found = learned(trace)
    assert found is not None
    assert found.sentence().startswith(
        "learned from the CPU time that tasks got: 3 groups share it (learned-1: "
    )
    identity = programs.run(programs.identity)
    row = identity.inferred.filter(name="groups that share CPU time").to_dicts()
    assert [(r["value"], r["n"], r["how"]) for r in row] == [(3.0, 6, found.sentence())]
    assert any(found.sentence() in said for said in unrecorded(identity))
    # Round robin knows no groups.
    assert programs.run("rr").inferred.filter(name="groups that share CPU time").is_empty()
    assert "who shares" not in (unknown_machine(trace) or "")
    assert lines(Inference("eevdf", (), 0.0, "", sharing=found.sentence()))[0] == found.sentence()


def test_a_machine_that_is_described_is_believed(tmp_path: Path) -> None:
    _recorded(tmp_path, SESSIONS)
    (tmp_path / "t.machine.toml").write_text(
        'schema = 1\n[kernel]\nos = "linux"\nhz = 250\n[machine]\ncgroup_version = 2\ncpus = []\ncgroups = []\ntasks = []\n'
    )
    assert learned(tk.read(tmp_path / "t.txt")) is None


@pytest.mark.parametrize("name", ["groups-w100-100", "mixed-default", "server-default", "pinned-free"])
def test_groups_of_captures_are_those_that_were_set(testdata: Path, name: str) -> None:
    file = testdata / "lab2" / "6.1-2cpu" / f"{name}.dat"
    table = file.with_suffix(".groups.tsv")
    trace = tk.read(file)
    if not table.is_file():
        assert learned(trace) is None
        return
    found = learned(trace)
    assert found is not None
    real = dict(pl.read_csv(table, separator="\t").select("comm", "group").iter_rows())
    names = dict(trace.tasks.select("tid", pl.col("comm").cast(pl.String)).iter_rows())
    pairs = {(real[names[tid]], at) for tid, at in found.group.items() if names[tid] in real}
    assert len(pairs) == len({at for _, at in pairs}) == len(set(real.values()))
