"""Statistics in one pass: those of the whole tables, in bounded memory, and by themselves for large files."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

import tracekit as tk
from tracekit import _core, analysis
from tracekit.analysis import latency, response, runqueue, slices
from tracekit.cli import _options

from .threads import soon

ROOT = Path(__file__).parent.parent
CAPTURES = sorted((ROOT / "fixtures").glob("*/*/input*"))
CAUSES = ("any", "wakeup", "preemption", "yield", "first")


def close(ours: pl.DataFrame, theirs: pl.DataFrame) -> None:
    """The same rows, but for the last digits of numbers with a fraction."""
    assert ours.schema == theirs.schema
    keys = [c for c, t in ours.schema.items() if t != pl.Float64]
    names = [c for c in ("group", "scope", "cpu") if c in keys]
    ours, theirs = (t.sort(names) for t in (ours, theirs))
    assert ours.select(keys).rows() == theirs.select(keys).rows()
    for c in set(ours.columns) - set(keys):
        assert ours[c].is_null().equals(theirs[c].is_null())
        assert not ((ours[c] - theirs[c]).abs() > 1e-9 * theirs[c].abs()).fill_null(False).any()


def same(known: tk.io.one_pass.Survey, trace: tk.Trace, by: str) -> None:  # type: ignore[name-defined]
    """Hold a survey against the tables of the same trace."""
    close(known.slice_summary(by), slices.summary(trace.slices, by))
    for cause in CAUSES:
        close(known.latency_summary(by, cause), latency.summary(trace, by=by, cause=cause))  # type: ignore[arg-type]
    close(known.response_summary(by), response.summary(trace, by=by))
    if known.queues_known:
        for count in ("all", "waiting"):
            close(known.runqueue_summary(count), runqueue.summary(trace, count=count))  # type: ignore[arg-type]
    assert known.counts == {name: trace.table(name).height for name in trace.tables}
    assert dict(known.kinds.rows()) == dict(
        trace.events.group_by(pl.col("kind").cast(pl.String)).len().rows()
    )
    for name in ("tasks", "cpus", "losses", "diagnostics", "histograms", "summaries"):
        assert known.table(name).equals(trace.table(name)), name
    assert known.causes().equals(trace.causes())
    whole = trace.missing()
    if not whole.silent and "trace_off" not in dict(known.kinds.rows()):
        found = known.missing()
        assert (known.lossy, found.refused) == (not whole.whole, whole.refused)
    assert known.metadata == trace.metadata
    assert (known.start_ns, known.end_ns) == (trace.start_ns, trace.end_ns)


@pytest.mark.parametrize("by", ["group", "comm", "tid", "all"])
def test_of_the_shipped_capture(demo: Path, trace: tk.Trace, by: str) -> None:
    same(tk.survey(demo), trace, by)


def test_a_row_is_one_task_where_a_number_was_free_again(tmp_path: Path) -> None:
    head = "{}-{} [000] {:.6f}: "
    switch = head + "sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={} ==> next_comm={} "
    switch += "next_pid={} next_prio=120\n"
    wakes = head + "sched_wakeup{}: comm={} pid={} prio=120 target_cpu=000\n"
    text = ""
    # The first of those with number 5 runs without a wait before it, so that it is in no table of waits.
    for at, name, wait in ((1, "sh", False), (2, "sh", True), (3, "ls", True)):
        if wait:
            text += (
                head.format("b", 9, at) + f"sched_process_fork: comm=b pid=9 child_comm={name} child_pid=5\n"
            )
            text += wakes.format("b", 9, at + 0.1, "_new", name, 5)
        text += switch.format("b", 9, at + 0.2, "b", 9, "R", name, 5)
        text += head.format(name, 5, at + 0.3) + f"sched_process_exit: comm={name} pid=5 prio=120\n"
        text += switch.format(name, 5, at + 0.4, name, 5, "X", "b", 9)
    path = tmp_path / "again.txt"
    path.write_text(text)
    trace = tk.read(path)
    assert trace.tasks.filter(tid=5).height == 3
    found = slices.summary(trace, by="tid")
    assert set(found["group"]) == {"b:9", "sh:5", "sh:5#2", "ls:5#3"}
    assert found["nr_tasks"].to_list() == [1] * 4
    waits = latency.summary(trace, by="tid", cause="first")
    assert {"sh:5#2", "ls:5#3"} <= set(waits["group"])
    assert "sh:5" not in set(waits["group"])
    same(tk.survey(path), trace, "tid")
    metrics = analysis.compare.metrics(trace.slices, trace.runqueue, trace.states, trace.end_ns, by="tid")
    assert {"sh:5", "sh:5#2", "ls:5#3"} <= set(metrics["group"].drop_nulls())


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.parent.name}-{p.parent.name}")
def test_of_every_fixture(path: Path) -> None:
    try:
        trace = tk.read(path)
    except tk.ParseError:
        return  # one that cannot be read at all
    if trace.metadata.get("source.format") == "perfetto":
        return  # another tool's reader gives all or nothing
    same(tk.survey(path), trace, "group")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("case", ["kernel-6.1", "losses"])
def test_of_files_of_our_own(kind: str, case: str, tmp_path: Path) -> None:
    stored = tmp_path / f"x.{kind}"
    tk.convert(ROOT / "fixtures" / "ftrace-text" / case / "input.txt", stored)
    same(tk.survey(stored), tk.read(stored), "group")


def test_a_file_of_another_table_is_refused(demo: Path, tmp_path: Path) -> None:
    stored = tmp_path / "x.parquet"
    tk.convert(demo, stored, table="slices")
    with pytest.raises(tk.ParseError, match="expected events, found the table 'slices'"):
        tk.survey(stored)


def test_values_are_rounded_when_there_are_too_many(demo: Path, trace: tk.Trace) -> None:
    known = tk.survey(demo, hold=1000)
    assert known.rounded
    assert not tk.survey(demo).rounded
    near, exact = known.slice_summary("all"), slices.summary(trace.slices, "all")
    same_columns = ["n", "run_ns", "mean_ns", "min_ns", "max_ns", "nr_involuntary"]
    assert near.select(same_columns).equals(exact.select(same_columns))
    for name in ("p50_ns", "p90_ns", "p95_ns", "p99_ns"):
        a, b = near[name].item(), exact[name].item()
        assert abs(a - b) <= b / 4096
    assert not near.equals(exact)


def contradictions(target: Path) -> None:
    """A text of several batches in which the parser finds faults, and the state machine others."""
    head = "# tracer: nop\n"
    switch = (
        "  a-{0} [00{1}] d... {2}.{3:06d}: sched_switch: prev_comm=a prev_pid={0} prev_prio=120 "
        "prev_state=S ==> next_comm=b next_pid={4} next_prio=120\n"
    )
    with target.open("w") as file:
        file.write(head)
        for n in range(150_000):
            # Who leaves is who came, but for one record in 9,000.
            left, came = 10 + n // 2 % 2, 10 + (n // 2 + 1) % 2
            left = 30 if n % 9000 == 8999 else left + 10 * (n % 2)
            file.write(switch.format(left, n % 2, 100 + n // 1_000_000, n % 1_000_000, came + 10 * (n % 2)))
            if n % 11_000 == 10_999:
                file.write("no line of ftrace\n")


@pytest.mark.parametrize("cpus", [1, 2])
def test_any_number_of_cpus_finds_the_same(cpus: int, tmp_path: Path) -> None:
    every = os.sched_getaffinity(0)
    if len(every) < cpus:
        pytest.skip("one CPU")
    contradictions(text := tmp_path / "long.txt")
    trace = tk.read(text)
    # More than are listed one by one, of both, batch by batch.
    codes = trace.diagnostics["code"].cast(pl.String).to_list()
    assert codes.count("unparsed") == codes.count("switch-mismatch") == 11
    assert codes.index("switch-mismatch") < len(codes) - codes[::-1].index("unparsed") < len(codes) - 3
    os.sched_setaffinity(0, set(list(every)[:cpus]))
    try:
        known = tk.survey(text, head=100)
    finally:
        os.sched_setaffinity(0, every)
    same(known, trace, "tid")
    assert known.head.events.equals(trace.events.head(known.head.events.height))


def test_what_is_given_up_leaves_no_thread(tmp_path: Path) -> None:
    contradictions(text := tmp_path / "long.txt")
    several = len(os.sched_getaffinity(0)) > 1
    core = _core.Survey(text)
    assert core.read()
    assert soon("statistics", int(several))
    del core
    assert soon("statistics", 0)

    def often() -> None:
        for _ in range(10_000):
            tk.survey(text)

    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        often()
    timer.join()
    assert soon("statistics", 0)


def test_large_tables_are_refused_by_name(demo: Path) -> None:
    with pytest.raises(tk.TracekitError, match=r"'slices' of .* was not kept"):
        _ = tk.survey(demo).slices


@pytest.mark.parametrize("command", ["slices", "latency", "response", "runqueue", "info"])
def test_commands_say_the_same_of_a_large_file(
    command: str, demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tracekit.cli import main

    said = []
    for large in (1 << 40, 1):
        monkeypatch.setattr(_options, "LARGE", large)
        with pytest.raises(SystemExit) as ended:
            main([command, str(demo), "-q"])
        assert ended.value.code in (0, None)
        text = capsys.readouterr().out
        said.append([line for line in text.splitlines() if not line.startswith("note: ")])
    assert said[0] == said[1]
    assert len(said[0]) > 2


def test_a_large_file_says_what_can_be_trusted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where what is missing is neither lost nor damaged."""
    from tracekit.cli import main

    seen = set()
    for path in CAPTURES:
        said = []
        for large in (1 << 40, 1):
            monkeypatch.setattr(_options, "LARGE", large)
            with contextlib.suppress(SystemExit):
                main(["info", str(path), "-q"])
            said.append(capsys.readouterr().out)
        head = "What can still be trusted"
        if "was recorded" in said[0] or "though tasks were sent there" in said[0]:
            continue
        assert (head in said[0]) == (head in said[1]), path
        refusals = [[line for line in text.splitlines() if "No bounds" in line] for text in said]
        assert refusals[0] == refusals[1], path
        seen.add((head in said[0], bool(refusals[0])))
    assert {(True, True), (True, False), (False, False)} <= seen


def tool(name: str, path: str) -> ModuleType:
    """A script of the repository."""
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """Twice the text takes hardly more; the tables of 20 MB of text take 70 MB."""
    source = ROOT / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt"
    tiles, bench = tool("tile_trace", "tests/tools/tile_trace.py"), tool("memory", "bench/convert_memory.py")
    script = "import sys, tracekit as tk; k = tk.survey(sys.argv[1]); k.slice_summary(); k.latency_summary()"
    peaks = []
    for size in (20, 40):
        long = tmp_path / "long.txt"
        tiles.tile(source, long, size * 10**6)
        got = bench.measure([sys.executable, "-c", script, str(long)])
        assert got.status == 0
        peaks.append(got.peak_bytes)
    assert peaks[1] - peaks[0] < 20e6
