"""Who delayed whom: sums that are exact, answers that are known by hand, agreement with perf."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit as tk
from tracekit.analysis import antagonists, blame, response
from tracekit.analysis._overlay import overlay
from tracekit.analysis.critical_path import follow
from tracekit.analysis.occupancy import interrupts, occupancy
from tracekit.cli import main
from tracekit.explain import why

from ..peers import peer
from .text import Line, switch, trace_of, waking

ROOT = Path(__file__).parents[2]
IDLE = "swapper/0:0"


def parts(found: tk.explain.Why) -> dict[tuple[str, str | None], int]:
    """Time by cause and culprit."""
    rows = found.table.group_by("cause", "culprit").agg(pl.col("total_ns").sum())
    return {(c, k): n for c, k, n in rows.iter_rows()}


def scene_of(trace: tk.Trace) -> blame.Scene:
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    return blame.scene(trace.slices, trace.states, trace.runqueue, trace.events, trace.start_ns, trace.end_ns)


def all_spans(trace: tk.Trace, scene: blame.Scene) -> list[pl.DataFrame]:
    """Responses, waits and the whole trace."""
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    return [
        blame.spans_of_responses(response.samples(trace.slices, trace.states, trace.end_ns)),
        blame.spans_of_waits(scene.lines),
        blame.spans_of_window(scene.lines, trace.start_ns, trace.end_ns),
    ]


# --- intervals over intervals


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_parts_make_up_each_interval_exactly(data: st.DataObject) -> None:
    # Large times and many keys do not fit one number side by side: ranks must give the same.
    scale = data.draw(st.sampled_from([1, 10**17]))
    interval = st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 8))
    cut = data.draw(st.lists(interval, max_size=6))
    over = data.draw(st.lists(interval, max_size=8))
    a = np.array([(k, s * scale, (s + d) * scale) for k, s, d in cut], dtype=np.int64).reshape(-1, 3).T
    b = np.array([(k, s * scale, (s + d) * scale) for k, s, d in over], dtype=np.int64).reshape(-1, 3).T
    found = overlay(a[0], a[1], a[2], b[0], b[1], b[2])
    for i in range(a.shape[1]):
        mine = found.piece == i
        starts, ends = found.start[mine], found.end[mine]
        if a[2][i] > a[1][i]:
            assert starts[0] == a[1][i]
            assert ends[-1] == a[2][i]
            assert (starts[1:] == ends[:-1]).all()
        else:
            assert not mine.any()
    for cover, piece, s, e in zip(found.cover, found.piece, found.start, found.end, strict=True):
        covers = (b[0] == a[0][piece]) & (b[1] <= s) & (b[2] >= e) & (b[2] > b[1])
        assert covers.any() == (cover >= 0)
        if cover >= 0:
            assert covers[cover]


# --- answers known by hand


def test_the_parser_took_20_ms_and_the_network_80_ms(tmp_path: Path) -> None:
    """The example of figure 4 of the wPerf paper (OSDI 2018): a user waits 100 ms, 80 of them for
    the network."""
    lines: list[Line] = [
        (0, 0, "user-1", "d..2.", switch("user:1", "S", "parser:2")),
        (20_000, 0, "parser-2", "d..2.", switch("parser:2", "S", "network:3")),
        (100_000, 0, "network-3", "d..2.", waking("parser:2")),
        (100_000, 0, "network-3", "d..2.", switch("network:3", "S", "parser:2")),
        (100_000, 0, "parser-2", "d..2.", waking("user:1")),
        (100_000, 0, "parser-2", "d..2.", switch("parser:2", "S", "user:1")),
        (100_000, 0, "user-1", "d..2.", switch("user:1", "S", IDLE)),
    ]
    trace = trace_of(lines, tmp_path)
    found = why(trace, comm="user", what="window", start=0, end=100_000_000)
    assert parts(found) == {("awaited", "parser"): 20_000_000, ("awaited", "network"): 80_000_000}
    assert "80 % of the 100 ms of user is asleep until network had run" in found.sentence


@pytest.fixture
def small(tmp_path: Path) -> tk.Trace:
    """A task is woken by a timer, waits for a hog, is interrupted, preempted by a third, and sleeps."""
    return trace_of(
        [
            (0, 0, "db-1", "d..2.", switch("db:1", "S", "hog:2")),
            (1000, 0, "hog-2", "d.h2.", "irq_handler_entry: irq=5 name=nic0"),
            (1010, 0, "hog-2", "d.h2.", waking("db:1")),
            (1030, 0, "hog-2", "d.h2.", "irq_handler_exit: irq=5 ret=handled"),
            (1500, 0, "hog-2", "d..2.", switch("hog:2", "R", "db:1")),
            (1700, 0, "db-1", "..s1.", "softirq_entry: vec=3 [action=NET_RX]"),
            (1720, 0, "db-1", "d.h2.", "irq_handler_entry: irq=5 name=nic0"),
            (1730, 0, "db-1", "d.h2.", "irq_handler_exit: irq=5 ret=handled"),
            (1760, 0, "db-1", "..s1.", "softirq_exit: vec=3 [action=NET_RX]"),
            (2000, 0, "db-1", "d..2.", waking("rt:3", prio=9)),
            (2010, 0, "db-1", "d..2.", switch("db:1", "R", "rt:3", to_prio=9)),
            (2310, 0, "rt-3", "d..2.", switch("rt:3", "S", "db:1", prio=9)),
            (2400, 0, "db-1", "d..2.", switch("db:1", "S", "hog:2")),
            (3000, 0, "hog-2", "d..2.", switch("hog:2", "R", IDLE)),
        ],
        tmp_path,
    )


def test_interrupts_are_told_apart_from_the_task_that_they_hit(small: tk.Trace) -> None:
    found = small.why(comm="db")
    assert parts(found) == {
        ("waiting", "hog"): 470_000,
        ("interrupt", "irq nic0"): 20_000 + 10_000,
        ("softirq", "softirq NET_RX"): 50_000,
        ("running", None): 200_000 + 250_000 + 90_000,
        ("preempted", "rt"): 300_000,
    }
    assert found.spans.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() == 1_390_000
    assert found.causes["culprit"][0] == "hog"
    assert found.chains["chain"].to_list() == ["db <- irq nic0"]
    row = found.worst.row(0, named=True)
    assert (row["task"], row["span_ns"], row["run_ns"]) == ("db", 1_390_000, 540_000)
    assert (row["cause"], row["culprit"], row["part_ns"]) == ("waiting", "hog", 470_000)


def test_priority_of_the_culprit_is_shown(small: tk.Trace) -> None:
    rows = small.why(comm="db").table
    assert rows.filter(pl.col("culprit") == "rt")["prio"].to_list() == ["9"]


def test_cut_slices_are_counted_with_their_length(small: tk.Trace) -> None:
    cuts = antagonists.preemptions(small.slices)
    # The first and the last one enter without being woken; what ran when the trace began has no known length.
    assert cuts.select("slice_ns", "woken").rows() == [(1_500_000, True), (510_000, True), (600_000, None)]
    table = tk.explain.matrix(small)
    row = table.filter((pl.col("victim") == "db") & (pl.col("culprit") == "rt")).row(0, named=True)
    assert (row["n_cuts"], row["n_woken_cuts"], row["slice_cut_mean_ns"]) == (1, 1, 510_000)
    assert row["wait_ns"] == 300_000


def test_a_task_on_another_cpu_that_wakes_nobody_gets_nothing(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "db-1", "d..2.", switch("db:1", "S", "hog:2")),
        (0, 1, "<idle>-0", "d..2.", switch("swapper/1:0", "R", "far:9")),
        (1000, 0, "hog-2", "d.h2.", waking("db:1")),
        (1500, 0, "hog-2", "d..2.", switch("hog:2", "R", "db:1")),
        (2000, 0, "db-1", "d..2.", switch("db:1", "S", "hog:2")),
        (2100, 1, "far-9", "d..2.", switch("far:9", "S", "swapper/1:0")),
    ]
    trace = trace_of(lines, tmp_path)
    for what in tk.explain.SPANS:
        found = trace.why(comm="db", what=what)
        assert "far" not in found.table["culprit"].to_list()


def test_a_wait_that_is_moved_stays_one_wait_and_counts_who_had_each_cpu(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "db-1", "d..2.", switch("db:1", "S", "a:2")),
        (0, 1, "<idle>-0", "d..2.", switch("swapper/1:0", "R", "b:3")),
        (100, 0, "a-2", "d..2.", waking("db:1", 0)),
        (100, 0, "a-2", "d..2.", "sched_wakeup: db:1 [120] CPU:000"),
        (300, 1, "b-3", "d..2.", "sched_migrate_task: comm=db pid=1 prio=120 orig_cpu=0 dest_cpu=1"),
        (700, 1, "b-3", "d..2.", switch("b:3", "S", "db:1")),
        (900, 1, "db-1", "d..2.", switch("db:1", "S", "swapper/1:0")),
        (900, 0, "a-2", "d..2.", switch("a:2", "S", IDLE)),
    ]
    found = trace_of(lines, tmp_path).why(comm="db", what="waits")
    assert found.spans.height == 1
    assert parts(found) == {("waiting", "a"): 200_000, ("waiting", "b"): 400_000}


def test_the_wait_for_an_idle_cpu_has_no_culprit(tmp_path: Path) -> None:
    lines: list[Line] = [
        (0, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
        (100, 0, "<idle>-0", "d.h2.", waking("db:1")),
        (130, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "db:1")),
        (500, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
    ]
    assert parts(trace_of(lines, tmp_path).why(comm="db")) == {
        ("dispatch", None): 30_000,
        ("running", None): 370_000,
    }


# --- sums, on what nobody arranged

EVENT = st.tuples(
    st.integers(0, 40),
    st.integers(0, 1),
    st.sampled_from(["switch", "wake", "irq", "irqx"]),
    st.integers(0, 3),
)


@given(st.lists(EVENT, min_size=4, max_size=60), st.data())
@settings(max_examples=40, deadline=None)
def test_parts_sum_exactly_whatever_the_records_say(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int, str, int]], data: st.DataObject
) -> None:
    current, at, lines = [0, 0], 0, []
    for step, cpu, kind, task in events:
        at += step
        now = f"t{current[cpu]}-{current[cpu]}" if current[cpu] else "<idle>-0"
        old = f"t{current[cpu]}:{current[cpu]}" if current[cpu] else f"swapper/{cpu}:0"
        new = f"t{task}:{task}" if task else f"swapper/{cpu}:0"
        if kind == "switch":
            # Now and then somebody leaves who was not there: a lost record.
            if data.draw(st.integers(0, 9)) == 0:
                old = "t3:3"
            lines.append((at, cpu, now, "d..2.", switch(old, data.draw(st.sampled_from("SRD")), new)))
            current[cpu] = task
        elif kind == "wake" and task:
            lines.append((at, cpu, now, "d..2.", waking(f"t{task}:{task}", cpu)))
        else:
            name = "entry: irq=1 name=x" if kind == "irq" else "exit: irq=1 ret=handled"
            lines.append((at, cpu, now, "d.h2.", f"irq_handler_{name}"))
    if not any("sched_switch" in line[4] for line in lines):
        return
    trace = trace_of(lines, tmp_path_factory.mktemp("random"))
    scene = scene_of(trace)
    for spans in all_spans(trace, scene):
        pieces = blame.decompose(spans, scene)
        assert blame.check_sums(spans, pieces) == 0
        assert (pieces["dur_ns"] > 0).all()


def sample() -> list[Path]:
    """The shipped capture; and captures of the lab of each kind, where they are unpacked."""
    data = ROOT / "testdata"
    names = (
        *("lab/6.1/slice-default.dat", "lab/6.12/mixed-default.dat", "lab2/6.12-2cpu/irq-server-default.dat"),
        *("lab2/6.12-2cpu/sys-server-default.dat", "lab2/6.1-4cpu/server-default.dat"),
        "lab2/6.12-2cpu/groups-quota50.dat",
    )
    return [ROOT / "fixtures/demo/slice-default.dat", *(data / n for n in names if (data / n).exists())]


@pytest.mark.parametrize("path", sample(), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_parts_sum_exactly_on_captures(path: Path) -> None:
    trace = tk.read(path)
    scene = scene_of(trace)
    for spans in all_spans(trace, scene):
        assert spans.height
        assert blame.check_sums(spans, blame.decompose(spans, scene)) == 0


def test_each_cpu_has_one_owner_at_a_time(trace: tk.Trace) -> None:
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    table = occupancy(trace.slices, trace.runqueue, trace.events, trace.start_ns, trace.end_ns)
    ends = table.with_columns(pl.col("end_ns").shift(1).over("cpu").alias("before")).drop_nulls("before")
    assert (ends["before"] == ends["start_ns"]).all()
    busy = table.filter(pl.col("who") == "task").select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert busy == trace.cpus["busy_ns"].sum()


def test_handlers_without_an_exit_are_left_out(small: tk.Trace) -> None:
    whole = interrupts(small.events)
    assert whole.height == 3
    kind = pl.col("kind").cast(pl.String)
    assert interrupts(small.events.filter(kind != "irq_exit"))["who"].to_list() == ["softirq"]


# --- known causes


KNOWN = [
    ("lab/6.1/slice-default.dat", "waker*", "responses", "spin"),
    ("lab/6.12/mixed-default.dat", "inter*", "responses", "hog"),
    ("lab/6.1/mixed-interfifo.dat", "hog*", "waits", "hog"),
    ("lab2/6.12-2cpu/slice-wakerfifo.dat", "waker*", "responses", "spin"),
    ("lab2/6.12-2cpu/server-workfifo.dat", "hog*", "waits", "work"),
]


@pytest.mark.parametrize(("name", "victim", "what", "culprit"), KNOWN)
def test_known_causes_come_first(testdata: Path, name: str, victim: str, what: str, culprit: str) -> None:
    path = testdata / name
    if not path.exists():
        pytest.skip(f"{name} is not unpacked")
    assert tk.read(path).why(comm=victim, what=what).causes["culprit"][0].startswith(culprit)


# --- perf

ROW = re.compile(
    r"\s*(\d+\.\d+) \[(\d+)\]\s+(.+?)\[(\d+)(?:/\d+)?\]\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+next: (.+?)\[(\d+)"
)


def test_agrees_with_perf_sched_timehist(testdata: Path) -> None:
    path = testdata / "lab/6.1-perf/slice-default.perf.data"
    if not path.exists():
        pytest.skip("lab/6.1-perf is not unpacked")
    rows = [
        m.groups() for m in map(ROW.match, peer("perf", "sched", "timehist", "-w", "-n", "-i", path)) if m
    ]
    assert len(rows) > 1000
    trace = tk.read(path)
    tids = dict(trace.tasks.select("utid", "tid").iter_rows())
    # Who took the CPU from whom: the next task of every row.
    theirs = {(round(float(r[0]) * 1e6), int(r[3]), int(r[8])) for r in rows}
    cuts = antagonists.preemptions(trace.slices).drop_nulls("culprit_utid")
    ours = [(t // 1000, tids[a], tids[b]) for t, a, b in cuts.select("ts_ns", "utid", "culprit_utid").rows()]
    missing = [o for o in ours if not any((o[0] + d, o[1], o[2]) in theirs for d in (-1, 0, 1))]
    assert len(ours) > 100
    assert not missing
    # Waiting behind all others after a wakeup: the scheduling delay, task by task.
    found = trace.why(comm="waker*", what="waits")
    pieces = found.pieces.join(found.spans.select("span", "utid"), on="span")
    mine = dict(
        pieces.filter(pl.col("cause") != "preempted")
        .with_columns(pl.col("utid").replace_strict(tids, return_dtype=pl.Int64).alias("tid"))
        .group_by("tid")
        .agg(pl.col("dur_ns").sum())
        .iter_rows()
    )
    for tid, total in mine.items():
        delays = [float(r[5]) * 1e6 for r in rows if int(r[3]) == tid]
        assert len(delays) > 100
        # perf cuts each figure to a microsecond.
        assert abs(total - sum(delays)) <= 1000 * len(delays) + 2000


# --- the command


def run(*args: str) -> str:
    done = CliRunner().invoke(main, ["why", str(ROOT / "fixtures/demo/slice-default.dat"), *args])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_says_it_in_one_sentence_first() -> None:
    first = run("--comm", "waker*", "--of", "waits").splitlines()[0]
    assert re.match(
        r"\d+(\.\d)? % of the p\d+ run delay of waker \(.+ or more, [\d,]+ of [\d,]+\) is waiting behind spin",
        first,
    )


def test_what_it_prints_can_be_pasted() -> None:
    text = run("--comm", "waker*", "--of", "waits")
    start, end = re.findall(r"--from (@[\d.]+s) --to (@[\d.]+s)", text)[0]
    again = json.loads(run("--comm", "waker*", "--of", "waits", "--from", start, "--to", end, "--json"))
    assert again["n_spans"] >= 1
    assert again["worst"][0]["start_ts_ns"] == round(float(start[1:-1]) * 1e9)


@pytest.mark.parametrize("show", ["causes", "worst", "chains", "matrix", "wakers", "pieces"])
def test_every_table_is_shown(show: str) -> None:
    whose = [] if show in ("matrix", "wakers") else ["--comm", "waker*"]
    answer = json.loads(run(*whose, "--show", show, "--json", "--top", "3"))
    assert answer["show"] == show
    assert 1 <= len(answer["rows"]) <= 3


def test_refusals_say_what_to_do() -> None:
    path = str(ROOT / "fixtures/demo/slice-default.dat")
    nobody = CliRunner().invoke(main, ["why", path, "--comm", "nobody"])
    assert nobody.exit_code == 2
    assert "no task fits comm nobody; the trace has " in nobody.stderr
    near = CliRunner().invoke(main, ["why", path, "--comm", "Waker", "--tid", "3"])
    assert "no task fits comm Waker and tid 3; the trace has waker" in near.stderr
    rank = CliRunner().invoke(main, ["why", path, "--quantile", "95"])
    assert rank.exit_code == 2
    assert "expected a quantile such as p95" in rank.stderr


def test_following_nobody_leaves_sleeps_alone(trace: tk.Trace) -> None:
    scene = scene_of(trace)
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    spans = blame.spans_of_window(scene.lines, trace.start_ns, trace.end_ns)
    assert follow(spans, scene.lines, 0)["depth"].max() == 0


@pytest.mark.parametrize("window", [{"end": "100s"}, {"start": "@0s"}])
def test_a_window_that_is_wider_than_the_trace_adds_no_time(trace: tk.Trace, window: dict[str, str]) -> None:
    whole = why(trace, comm="waker*", what="window")
    wide = why(trace, comm="waker*", what="window", **window)  # type: ignore[arg-type]
    assert wide.sentence == whole.sentence
    assert wide.spans.equals(whole.spans)
    with pytest.raises(tk.FilterError, match=r"nothing lies between start and end; the trace lasts 3\.0"):
        why(trace, start="100s")


def test_a_source_of_slices_alone_is_refused_by_name(root: Path) -> None:
    text = root / "fixtures" / "perf-timehist" / "two-cpus" / "input.txt"
    with pytest.raises(tk.FilterError, match="perf-timehist says when tasks ran, and not who waited"):
        why(tk.read(text))


def test_a_quantile_that_is_none_is_named(trace: tk.Trace) -> None:
    for wrong in ("p99", 99.0):
        with pytest.raises(ValueError, match=f"between 0 and 1, such as 0.99, found {wrong!r}"):
            trace.why(comm="waker*", quantile=wrong)  # type: ignore[arg-type, unused-ignore]
