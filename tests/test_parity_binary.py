"""Binary captures against the programs that own the formats, and captures of one run against each other.

The peers are asked for raw fields (`trace-cmd report -t -R`) and for text (`perf script --ns`);
what they print is taken apart by regular expressions here, so nothing of the parsers' code is on
both sides.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

from .peers import compare

ROOT = Path(__file__).parent.parent
DATA = ROOT / "testdata"
FIXTURES = ROOT / "fixtures"
KINDS = {
    "sched_switch": "switch",
    "sched_waking": "waking",
    "sched_wakeup": "wakeup",
    "sched_wakeup_new": "wakeup_new",
    "sched_migrate_task": "migrate",
    "sched_process_fork": "fork",
    "sched_process_exec": "exec",
    "sched_process_exit": "exit",
    "sched_process_free": "free",
    "sched_process_wait": "wait",
    "sched_stat_wait": "stat_wait",
    "sched_stat_sleep": "stat_sleep",
    "sched_stat_blocked": "stat_blocked",
    "sched_stat_iowait": "stat_iowait",
    "sched_stat_runtime": "stat_runtime",
    "sched_pi_setprio": "prio",
    "irq_handler_entry": "irq_entry",
    "irq_handler_exit": "irq_exit",
    "softirq_entry": "softirq_entry",
    "softirq_exit": "softirq_exit",
    "softirq_raise": "softirq_raise",
    "cpu_idle": "cpu_idle",
    "cpu_frequency": "cpu_freq",
}
COLUMNS = ["ts_ns", "cpu", "kind", "tid", "next_tid", "orig_cpu", "target_cpu", "prio", "value"]
HEADS = {
    # `  comm-12 [003]  1.000000001: event: payload`
    "trace-cmd": r"-\d+\s+\[(\d+)\]\s+(\d+)\.(\d{9}):\s+(?:\w+:)?(\w+):\s+(.*)$",
    # `  comm 12 [003] 1.000000001: system:event: payload`
    "perf": r"\d+ \[(\d+)\]\s+(\d+)\.(\d{9}):\s+(?:\w+:)?(\w+): (.*)$",
}


def captures(*patterns: str) -> list[Path]:
    """Files under testdata and fixtures that match; a capture that a peer cannot read has no place here."""
    found = [p for pattern in patterns for base in (DATA, FIXTURES) for p in base.glob(pattern)]
    return sorted(found)


def number(key: str) -> pl.Expr:
    """The last `key=number` of the payload: task names, which may hold anything, stand before the numbers."""
    return pl.col("payload").str.extract(rf".*(?:^|\s){key}=(-?\d+)(?:\s|$)").cast(pl.Int64)


def table(lines: list[str], head: str) -> pl.DataFrame:
    """Columns of the events that have a kind of their own, from a peer's text."""
    rows = pl.DataFrame({"line": lines}, schema={"line": pl.String})
    part = [pl.col("line").str.extract(HEADS[head], i) for i in range(1, 6)]
    rows = rows.select(
        part[0].cast(pl.Int32).alias("cpu"),
        (part[1].cast(pl.Int64) * 1_000_000_000 + part[2].cast(pl.Int64)).alias("ts_ns"),
        part[3].alias("event"),
        part[4].alias("payload"),
    ).filter(pl.col("event").is_in(list(KINDS)))
    event = pl.col("event")
    switch, fork = event == "sched_switch", event == "sched_process_fork"
    task = event.str.starts_with("sched_")
    state = pl.coalesce(number("state"))
    tid = (
        pl.when(switch).then(number("prev_pid")).when(fork).then(number("child_pid")).otherwise(number("pid"))
    )
    value = (
        pl.when(event.is_in(["sched_stat_runtime"]))
        .then(number("runtime"))
        .when(event.str.starts_with("sched_stat_"))
        .then(number("delay"))
        .when(event == "sched_pi_setprio")
        .then(number("newprio"))
        .when(event == "sched_process_exec")
        .then(number("old_pid"))
        .when(event.str.starts_with("softirq_"))
        .then(number("vec"))
        .when(event.str.starts_with("irq_"))
        .then(number("irq"))
        .when(event.is_in(["cpu_idle", "cpu_frequency"]))
        .then(pl.when(state == 0xFFFFFFFF).then(None).otherwise(state))
        .otherwise(number("success"))
    )
    prio = pl.when(switch).then(number("prev_prio")).otherwise(pl.coalesce(number("prio"), number("oldprio")))
    return rows.select(
        "ts_ns",
        "cpu",
        event.replace_strict(KINDS).alias("kind"),
        pl.when(task).then(pl.when(tid >= 0).then(tid)).alias("tid"),
        pl.when(switch).then(number("next_pid")).alias("next_tid"),
        number("orig_cpu").cast(pl.Int32).alias("orig_cpu"),
        pl.coalesce(number("target_cpu"), number("dest_cpu"), number("cpu_id"))
        .cast(pl.Int32)
        .alias("target_cpu"),
        prio.cast(pl.Int32).alias("prio"),
        value.alias("value"),
    )


def events(path: Path, format: str) -> pl.DataFrame:
    """The same columns as tracekit reads them; perf's own task records have no line in the peer's text."""
    trace = tk.read(path, format=format)
    frame = trace.events.with_columns(pl.col("kind").cast(pl.String))
    if format == "perf-data":
        own = (
            pl.col("kind").is_in(["exit", "exec", "fork"])
            & pl.col("prio").is_null()
            & pl.col("value").is_null()
        )
        tracepoints = trace.metadata["events.recorded"]
        told = [KINDS[name] for name in KINDS if f'"{name}"' in tracepoints]
        frame = frame.filter(~own | pl.col("kind").is_in(told))
    return frame.select(COLUMNS).filter(pl.col("kind").is_in(list(KINDS.values())))


def check(got: pl.DataFrame, want: pl.DataFrame) -> None:
    """Fail at the first row that differs."""
    assert got.height == want.height
    for column in COLUMNS:
        differs = got[column].ne_missing(want[column]).arg_true()
        first = differs[0] if len(differs) else None
        assert first is None, (
            f"row {first} of {len(differs)} in {column}: {got.row(first)} is not {want.row(first)}"
        )


# What trace-cmd 3.1 cannot read, or reads otherwise for a reason that the case says.
NO_PEER = {
    "v6-cut-in-data", "v6-cut-in-head", "v6-damaged-page", "v6-instance-twice", "v6-tsc-unknown-rate", "v6-uptime",
    "v7-cut-in-data", "v7-damaged-chunk", "v7-zlib-sparse-cpus", "version-5",
}  # fmt: skip
DATS = captures("corpus/trace.dat/*.dat", "lab/*/*.dat", "trace-dat/*/input.dat", "demo/*.dat")
DATS = [p for p in DATS if p.parent.name not in NO_PEER]


@pytest.mark.parametrize("path", DATS, ids=lambda p: str(p.relative_to(ROOT)))
def test_trace_dat_is_what_trace_cmd_reports(path: Path) -> None:
    got = events(path, "trace-dat")
    sched = {"trappy_trace.dat": 0, "elainecole.dat": 4427, "trappy_raw_trace.dat": 755}.get(path.name)
    assert sched in (None, got.height)
    compare(lambda lines: check(got, table(lines, "trace-cmd")), "trace-cmd", "report", "-t", "-R", path)


# Damaged on purpose, or read by perf only since 6.14, or made of records that perf script does not print.
NO_SCRIPT = {
    "compressed-2", "compressed-damaged", "cut-in-head", "cut-in-records", "damaged-record", "killed",
    "no-scheduler-events", "both-switch-records", "own-switch-records", "own-switch-records-cpu-wide", "version-1", "wakeups-twice", "event-twice",
}  # fmt: skip
PERFS = [p for p in captures("lab/*/*.perf.data", "perf-data/*/input.data") if p.parent.name not in NO_SCRIPT]


@pytest.mark.parametrize("path", PERFS, ids=lambda p: str(p.relative_to(ROOT)))
def test_perf_data_is_what_perf_script_prints(path: Path) -> None:
    fields = ["-F", "comm,tid,cpu,time,event,trace"]
    got = events(path, "perf-data")
    assert got.height > 0
    compare(lambda lines: check(got, table(lines, "perf")), "perf", "script", "--ns", *fields, "-i", path)


def test_every_perf_data_of_the_corpus_is_read_or_refused_with_a_reason(testdata: Path) -> None:
    outcomes, sentences = {}, []
    for path in [*testdata.glob("corpus/perf.data/*"), *testdata.glob("corpus/perf.data-fuzz/*")]:
        try:
            trace = tk.read(path, format="perf-data")
        except tk.ParseError as error:
            outcomes[path.name] = error.code
            sentences.append(str(error))
        else:
            outcomes[path.name] = ",".join(sorted(set(trace.diagnostics["code"])))
    assert all(re.search(r"expected .* found|perf before 2.6.35", s) for s in sentences), sentences
    # The only files with anything about scheduling: a stream with switch records, and what fuzzers
    # left of headers.
    read = {name for name, outcome in outcomes.items() if outcome not in ("no-scheduler-events", "damaged")}
    assert {name for name in read if not name.startswith(("poc-", "quipper_poc-"))} == {
        "quipper_perf.data.piped.intel_pt-4.14"
    }
    assert outcomes["mstange_sleep.data"] == "no-scheduler-events"
    assert len(outcomes) >= 32


def test_schedviz_collections_hold_what_trace_cmd_finds_in_their_pages(testdata: Path) -> None:
    # Its pages and formats, put into a trace.dat, make trace-cmd report these numbers of lines.
    pages = tk.read(testdata / "corpus" / "schedviz" / "schedviz_test.tar.gz")
    kinds = dict(pages.events["kind"].value_counts().iter_rows())
    assert kinds == {"switch": 15056, "wakeup": 11134, "wakeup_new": 2732}
    assert pages.metadata["source.format"] == "schedviz"
    script = tk.read(testdata / "corpus" / "schedviz" / "schedviz_ebpf_trace.tar.gz")
    # Lines that begin with S and W.
    assert dict(script.events["kind"].value_counts().iter_rows()) == {"switch": 975, "wakeup": 16}
    with pytest.raises(tk.ParseError, match="event formats"):
        tk.read(testdata / "corpus" / "schedviz" / "schedviz_cpu0")


SLICE = ["ts_ns", "dur_ns", "cpu", "tid", "comm", "involuntary"]


def slices(path: Path) -> pl.DataFrame:
    """Slices as plain values."""
    return tk.read(path).slices.with_columns(pl.col("comm").cast(pl.String)).select(SLICE)


RUNS = sorted(DATA.glob("lab/*/*.ftrace.txt"))


@pytest.mark.parametrize("text", RUNS, ids=lambda p: str(p.relative_to(DATA)))
def test_one_run_in_every_container_has_equal_slices(text: Path) -> None:
    stem = text.name.removesuffix(".ftrace.txt")
    exact = slices(text.with_name(f"{stem}.dat"))
    assert exact.height > 100
    names = [text.with_name(stem + end) for end in (".v6.dat", ".zstd.dat", ".report.txt")]
    others = [path for path in names if path.exists()]
    assert others
    for other in (path for path in others if path.suffix == ".dat"):
        assert slices(other).equals(exact, null_equal=True), other
    for other in (text, *(path for path in others if path.suffix == ".txt")):
        rough = slices(other)
        assert rough.height == exact.height, other
        # Text is rounded to a microsecond, at each end.
        assert (rough["ts_ns"] - exact["ts_ns"]).abs().max() <= 500, other
        assert (rough["dur_ns"] - exact["dur_ns"]).abs().max() <= 1000, other
        for column in ("cpu", "tid", "comm", "involuntary"):
            assert rough[column].equals(exact[column], null_equal=True), f"{other}: {column}"
