"""What holds for any trace: cut, joined, in another order, replayed.

That what is written is read back is in tests/test_generate.py.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tracekit as tk
from tracekit import _core
from tracekit.analysis import latency, response

#: Workloads on one to four CPUs: bursts with sleeps between them, and a task that forks another.
workloads = st.tuples(
    st.integers(1, 4),
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=6),
    st.booleans(),
)
#: Formats by the name under which they are written.
FORMS = {"ftrace": "ftrace-text", "perf-script": "perf-script", "lttng": "lttng-text"}


def simulated(cpus: int, bursts: list[list[int]], forks: bool, policy: str = "cfs") -> tk.Replay:
    """Run a workload, bursts in quarters of a millisecond."""
    tasks = [f"T{i}: " + " S1.5 ".join(f"R{b * 0.25}" for b in each) for i, each in enumerate(bursts)]
    if forks:
        tasks += ["P: R1 F(C) R1", "C start=fork: R0.5 S1 R0.25"]
    return tk.simulate("\n".join([f"cpus: {cpus}", "until: 400", *tasks]), policy)


def written(run: tk.Trace, form: str) -> tuple[str, list[str]]:
    """Head of a text, and its lines, one for each record."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "x.txt"
        tk.generate(run, place, form)
        lines = place.read_text().splitlines(keepends=True)
    head = [line for line in lines if line.startswith("#")]
    assert lines[: len(head)] == head
    return "".join(head), lines[len(head) :]


def read(form: str, *parts: str) -> tk.Trace:
    return tk.read("".join(parts).encode(), format=FORMS[form], cache=None)


def told(trace: tk.Trace) -> list[tuple[object, ...]]:
    """The rows of a trace; `seq` counts those of one file."""
    return trace.events.drop("seq").with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).rows()


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=20)
@given(work=workloads, at=st.floats(0, 1), within=st.integers(0, 120))
# What chance found: a line cut behind its contexts, and one cut in a name that is a hexadecimal number.
@example(work=(1, [[1]], True), at=0.0, within=120)
@example(work=(1, [[1]], True), at=0.875, within=16)
def test_a_part_tells_what_the_whole_tells(
    form: str, work: tuple[int, list[list[int]], bool], at: float, within: int
) -> None:
    """Cut between two lines or within one, which says what it says whole, or is told to be cut."""
    head, lines = written(simulated(*work), form)
    whole = told(read(form, head, *lines))
    assert len(whole) == len(lines)
    n = 1 + int(at * (len(lines) - 1))
    rest = lines[n][:within].rstrip("\n") if n < len(lines) else ""
    part = read(form, head, *lines[:n], rest)
    rows = told(part)
    assert rows[:n] == whole[:n]
    assert len(rows) <= n + 1
    if rest.strip() and rows[n:] != whole[n : n + 1]:
        assert {"truncated", "partly-parsed", "unparsed"} & set(part.diagnostics["code"].cast(pl.String)), (
            rest
        )
    # Joined again it is the whole: rows of the first part, then those of the second.
    # A text without any event of the scheduler is refused.
    if any("sched_" in line for line in lines[n:]):
        assert told(read(form, head, *lines[:n])) + told(read(form, head, *lines[n:])) == whole


def derived(events: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(table) for name, table in _core.derive(events, {}).items()}


@settings(deadline=None, max_examples=20)
@given(work=workloads, seed=st.integers(0, 99))
def test_the_order_of_cpus_is_no_matter(work: tuple[int, list[list[int]], bool], seed: int) -> None:
    """Numbers of CPUs are names: other ones give the same tables under the other numbers."""
    events = simulated(*work).events
    new = dict(enumerate(np.random.default_rng(seed).permutation(work[0]).tolist()))
    moved = pl.col("cpu").replace_strict(new, return_dtype=pl.Int32)
    target = pl.col("target_cpu").replace_strict(new, return_dtype=pl.Int32)
    one, two = derived(events), derived(events.with_columns(moved, target))
    slices = ["ts_ns", "dur_ns", "cpu", "tid", "run_delay_ns", "sleep_ns", "end_state", "flags"]
    for table, names in (("slices", slices), ("cpus", ["cpu", "busy_ns", "idle_ns", "unknown_ns"])):
        mine = one[table].select(names).with_columns(moved).sort(names)
        assert mine.equals(two[table].select(names).sort(names)), table
    tasks = ["tid", "comm", "run_ns", "nr_voluntary", "nr_involuntary"]
    mine, yours = (t["tasks"].filter(is_idle=False).select(tasks).sort(tasks) for t in (one, two))
    assert mine.equals(yours)


@settings(deadline=None, max_examples=20)
@given(work=workloads, seed=st.integers(0, 99))
def test_the_order_of_buffers_is_no_matter(work: tuple[int, list[list[int]], bool], seed: int) -> None:
    """A text whose lines stand CPU by CPU has the events of one in which they stand by time."""
    head, lines = written(simulated(*work), "ftrace")
    # At one instant the order of CPUs is what the text says: one line of each is left.
    kept = list({line.split(": ")[0].split()[-1]: line for line in lines}.values())
    order = np.random.default_rng(seed).permutation(work[0]).tolist()
    buffers = [line for cpu in order for line in kept if f"[{cpu:03d}]" in line]
    assert len(buffers) == len(kept)
    # A record that was moved is marked so.
    one, two = (read("ftrace", head, *lines).events.drop("seq", "quality") for lines in (buffers, kept))
    assert one.equals(two)


def beside(events: pl.DataFrame, **columns: object) -> pl.DataFrame:
    """Records that are added where their time puts them, behind those of the same time."""
    more = pl.DataFrame({"quality": [0], "seq": [1 << 30], **columns})
    both = pl.concat([events, more.cast({n: events.schema[n] for n in more.columns})], how="diagonal")
    return both.sort("ts_ns", maintain_order=True)


def others(table: pl.DataFrame, *conditions: pl.Expr) -> pl.DataFrame:
    """Rows but those; keys of tasks are by the order of CPUs and tasks."""
    left = table.filter(*(~c.fill_null(False) for c in conditions))
    left = left.drop([c for c in left.columns if "utid" in c])
    return left.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


@settings(deadline=None, max_examples=20)
@given(work=workloads, at=st.floats(0, 1), number=st.integers(4, 900))
def test_an_idle_cpu_and_a_task_that_sleeps_change_nothing_of_others(
    work: tuple[int, list[list[int]], bool], at: float, number: int
) -> None:
    """A CPU of which the idle thread alone has records, and a task that a record names that only sleeps."""
    run = simulated(*work)
    start, end = run.start_ns, run.end_ns
    assert start is not None
    assert end is not None
    when = start + int(at * (end - start))
    one = derived(run.events)
    idle = beside(run.events, ts_ns=[when], cpu=[number], kind=["irq_entry"], ctx_tid=[0])
    two = derived(idle)
    # On one CPU nobody can have been moved without a record; beside another one a place is a guess.
    for name in ("slices", "states", "cpus", *(["runqueue"] if work[0] > 1 else [])):
        mine, yours = others(one[name]), others(two[name], pl.col("cpu") == number)
        assert mine.equals(yours, null_equal=True), name
    assert (
        two["cpus"].filter(cpu=number).select("busy_ns", "unknown_ns").sum_horizontal().item() == when - start
    )
    asleep = beside(run.events, ts_ns=[when], kind=["blocked_reason"], tid=[number + 1000])
    two = derived(asleep)
    for name in ("slices", "states", "runqueue", "tasks"):
        none = () if name == "runqueue" else (pl.col("tid") == number + 1000,)
        assert others(one[name]).equals(others(two[name], *none), null_equal=True), name
    assert tk.Programs(run).table.equals(
        tk.Programs(tk.Trace({"events": asleep, **two}, run.metadata, run.name)).table, null_equal=True
    )


@pytest.mark.filterwarnings("ignore:nothing lies between")
@settings(deadline=None, max_examples=20)
@given(work=workloads, at=st.floats(0, 1))
def test_two_windows_are_the_whole(work: tuple[int, list[list[int]], bool], at: float) -> None:
    """What was counted and measured up to a time, and from then on, adds up to all of it."""
    run = simulated(*work)
    start, end = run.start_ns, run.end_ns
    assert start is not None
    assert end is not None
    cut = f"@{start + int(at * (end - start))}ns"
    parts = [run.filter(end=cut), run.filter(start=cut)]
    for name in ("events", "slices"):
        assert run.table(name).height == sum(p.table(name).height for p in parts), name

    def spent(*traces: tk.Trace) -> list[tuple[object, ...]]:
        rows = pl.concat([t.states.select("tid", pl.col("state").cast(pl.String), "dur_ns") for t in traces])
        rows = rows.group_by("tid", "state").agg(pl.col("dur_ns").sum()).filter(pl.col("dur_ns") > 0)
        return rows.sort("tid", "state").rows()

    assert spent(run) == spent(*parts)
    waits = [latency.samples(t.slices, t.states).filter(~pl.col("censored")) for t in (run, *parts)]
    assert waits[0].equals(pl.concat(waits[1:]), null_equal=True)
    done = [response.samples(t.slices, t.states, t.end_ns).filter(status="complete") for t in (run, *parts)]
    keys = ["tid", "wake_ts_ns", "end_ts_ns", "response_ns"]
    whole, both = done[0].select(keys), pl.concat(done[1:]).select(keys)
    assert both.join(whole, on=keys, how="anti").height == 0
    assert both.is_unique().all()
    # One that runs before the cut and after it is whole in neither.
    at_ns = start + int(at * (end - start))
    lacking = whole.join(both, on=keys, how="anti")
    assert lacking.filter((pl.col("wake_ts_ns") >= at_ns) | (pl.col("end_ts_ns") <= at_ns)).height == 0


@settings(deadline=None, max_examples=15)
@given(
    bursts=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=6),
    policy=st.sampled_from(["cfs", "eevdf", "rr:quantum=3ms", "fifo"]),
)
def test_a_replay_keeps_the_work_and_replays_as_itself(bursts: list[list[int]], policy: str) -> None:
    run = simulated(1, bursts, forks=False, policy=policy)
    # A run stands for the recording; what a switch takes is nothing in both.
    first = tk.replay(run, policy, overheads=False)
    second = tk.replay(first, policy, overheads=False)
    for one in (first, second):
        spent = one.tasks.filter(is_idle=False)["run_ns"].sum()
        assert spent == sum(map(sum, bursts)) * 250_000
        for row in one.cpus.to_dicts():
            assert row["busy_ns"] + row["idle_ns"] + row["unknown_ns"] == one.end_ns - one.start_ns
    ends = ["ts_ns", "dur_ns", "cpu", "tid"]
    assert second.slices.select(ends).equals(first.slices.select(ends))


def same(one: tk.Trace, other: tk.Trace) -> None:
    """Every table of two traces, and what is said of them."""
    assert one.tables == other.tables
    for name in one.tables:
        a, b = (
            t.table(name).with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)) for t in (one, other)
        )
        assert a.equals(b, null_equal=True), name
    assert (one.start_ns, one.end_ns) == (other.start_ns, other.end_ns)
    assert one.warnings() == other.warnings()
    assert one.missing() == other.missing()


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@settings(deadline=None, max_examples=15)
@given(work=workloads, policy=st.sampled_from(["cfs", "eevdf", "rr:quantum=3ms", "4bsd", "fifo", "ule"]))
def test_a_replay_that_is_written_and_read_is_the_same(
    ending: str, work: tuple[int, list[list[int]], bool], policy: str
) -> None:
    run = simulated(*work)
    for one in (run, tk.replay(run, policy)):
        with tempfile.TemporaryDirectory() as folder:
            one.write(Path(folder) / f"x.{ending}")
            same(one, tk.read(Path(folder) / f"x.{ending}"))


@pytest.mark.parametrize(
    "capture",
    [
        "demo/slice-default.perf.data.xz",
        "ftrace-text/kernel-6.1/input.txt",
        "ftrace-text/losses/input.txt",
        "perf-data/two-cpus-in-rounds/input.data",
        "schedviz/tracefs-copy/input.tar",
        "ktr/ktrdump/input.ktr",
        "trcrpt/all-columns/input.txt",
        "lttng-text/contexts/input.txt",
    ],
)
@pytest.mark.parametrize("policy", ["rr:quantum=10ms", "eevdf"])
def test_so_is_the_replay_of_a_capture(capture: str, policy: str, root: Path, tmp_path: Path) -> None:
    run = tk.replay(root / "fixtures" / capture, policy)
    run.write(tmp_path / "x.parquet")
    same(run, tk.read(tmp_path / "x.parquet"))


#: Columns of events that hold numbers of threads and processes.
TIDS = ["ctx_tid", "ctx_pid", "tid", "pid", "next_tid", "next_pid"]


def begun_at(ns: int, events: pl.DataFrame) -> list[pl.Expr]:
    return [pl.col("ts_ns") - pl.col("ts_ns").min() + ns]


def other_threads(events: pl.DataFrame) -> list[pl.Expr]:
    """Other numbers in another order, also above those of 22 bits; 0 to 2 have a meaning."""
    used = sorted({tid for name in TIDS for tid in events[name].drop_nulls() if tid > 2})
    order = np.random.default_rng(1).permutation(len(used)).tolist()
    new = {tid: (1 << 23) + 7 * place for tid, place in zip(used, order, strict=True)}
    return [pl.col(name).replace(new) for name in TIDS]


@pytest.mark.parametrize("change", ["boot of 400 days", "first at 1 ns", "first at 0 ns", "threads"])
def test_the_zero_of_the_clock_and_the_numbers_of_threads_change_no_comparison(
    change: str, trace: tk.Trace
) -> None:
    events = trace.events
    if change == "threads":
        moved = other_threads(events)
    else:
        moved = begun_at(400 * 86_400 * 10**9 if "days" in change else int("1 ns" in change), events)
    tables = []
    for one in (events, events.with_columns(moved)):
        made = derived(one)
        changed = tk.Trace({"events": one, **made}, trace.metadata, trace.name)
        tables.append(tk.compare(changed, ["eevdf", "rr:quantum=10ms"], runs=2).table)
    assert tables[0].height > 100
    assert tables[0].equals(tables[1])
