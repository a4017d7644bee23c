"""Captures that end in the middle, as those of a machine that went down."""

from __future__ import annotations

import lzma
import random
import re
from pathlib import Path

import pytest

import tracekit as tk

#: Cuts of each file; the seed makes them the same in every run.
CUTS = 200
#: Where a file ends, in a refusal.
PLACE = re.compile(r"\((byte|line) \d+\)")


#: An address of a call chain.
HEX = re.compile(rb"[0-9a-f]+")
#: What trace-cmd says of each CPU's buffer.
COUNTERS = re.compile(rb"CPU: (\d+\nentries)")
TEXTS = ("ftrace", "perf script", "tasks")


def inputs(root: Path) -> dict[str, bytes]:
    demo = root / "fixtures" / "demo"
    return {
        "trace.dat": (root / "fixtures" / "trace-dat" / "v6-tsc" / "input.dat").read_bytes(),
        "trace.dat 7": (demo / "slice-default.dat").read_bytes(),
        "perf.data": lzma.decompress((demo / "slice-default.perf.data.xz").read_bytes())[:400_000],
        "ftrace": (root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt").read_bytes(),
        "dtrace-tkd": (root / "fixtures" / "dtrace-tkd" / "illumos" / "input.tkd").read_bytes(),
        "perf script": (root / "fixtures" / "perf-script" / "ns" / "input.txt").read_bytes(),
        "tasks": (root / "fixtures" / "perf-script" / "task-events" / "input.txt").read_bytes(),
    }


@pytest.mark.parametrize(
    "name", ["trace.dat", "trace.dat 7", "perf.data", "ftrace", "dtrace-tkd", "perf script", "tasks"]
)
def test_a_capture_cut_anywhere_is_read_or_refused_with_the_place(name: str, root: Path) -> None:
    data = inputs(root)[name]
    whole = tk.read(data)
    # What is said of the whole file says nothing of a cut. The perf.data is cut already.
    usual = set(whole.diagnostics["code"].cast(str)) - {"truncated"}
    draw = random.Random(name)
    read = told = 0
    refusals = []
    for _ in range(CUTS):
        part = data[: draw.randrange(1, len(data))]
        try:
            trace = tk.read(part)
        except tk.TracekitError as error:
            refusals.append(str(error))
            continue
        assert trace.events.height <= whole.events.height
        assert trace.events["ts_ns"].is_sorted()
        read += 1
        # A text that is cut at the end of a line is a shorter text, and the head of a name may be an
        # address of a call chain.
        rest = part[part.rfind(b"\n") + 1 :].strip()
        shorter = name in TEXTS and (not rest or HEX.fullmatch(rest) is not None)
        told += shorter or bool(set(trace.diagnostics["code"].cast(str)) - usual)
    assert [r for r in refusals if not PLACE.search(r)] == []
    assert read >= CUTS // 4
    assert told == read


@pytest.mark.parametrize(
    ("name", "size", "line"),
    [
        ("ftrace", 16, 2),  # behind a line of the header
        ("ftrace", 500, 11),  # within its last line
        ("ftrace", 700, 13),  # within the first record
        ("tasks", 60, 1),  # the same, without a header
        ("tasks", 100, 2),  # behind a record that is none of the scheduler
    ],
)
def test_a_text_cut_before_its_first_event_has_none(name: str, size: int, line: int, root: Path) -> None:
    trace = tk.read(inputs(root)[name][:size])
    assert trace.events.filter(kind="switch").height == 0
    said = trace.diagnostics.filter(code="truncated")
    assert said["line"].to_list() == [line]
    assert trace.diagnostics.filter(code="missing-events").height == 1


HEADERS = {
    "ftrace": "# tracer: nop\n#\n# entries-in-buffer/entries-written: {n}/{n}   #P:4\n#\n",
    "perf": "# ========\n# perf version : 6.1\n# event : name = sched:sched_switch, type = 2\n# ========\n#\n",
}


def test_a_header_that_counts_no_record_is_whole() -> None:
    for text, truncated in [
        (HEADERS["ftrace"].format(n=0), 0),
        (HEADERS["ftrace"].format(n=7), 1),
        (HEADERS["perf"], 1),
    ]:
        trace = tk.read(text.encode())
        assert trace.events.height == 0
        assert trace.diagnostics.filter(code="truncated").height == truncated
        assert trace.diagnostics.filter(code="missing-events").height == 1


@pytest.mark.parametrize("header", HEADERS)
def test_lines_that_are_no_records_are_no_trace_without_events(header: str) -> None:
    with pytest.raises(tk.TracekitError):
        tk.read((HEADERS[header].format(n=7) + "nothing that fits\nat all\n").encode())
    with pytest.raises(tk.TracekitError):
        tk.read(b"# a comment of something else\n", format="perf-script")


#: Files of version 7: with counters and without, compressed and not, of one, two and four CPUs, and
#: of two of which the first has no records.
VERSION_7 = {
    "plain": "fixtures/trace-dat/v7-none/input.dat",
    "zstd": "fixtures/trace-dat/v7-zstd/input.dat",
    "second CPU": "fixtures/trace-dat/v7-first-cpu-empty/input.dat",
    "one CPU": "fixtures/demo/slice-default.dat",
    "four CPUs": "testdata/lab2/6.12-4cpu/server-default.dat",
}


def records_at(data: bytes) -> int:
    """Walk the sections to that of the records."""
    at = 10
    for behind in (6, 0, 8):  # the version, the compression and its version
        at = data.index(b"\0", at) + 1 + behind
    while data[at] != 3:
        at += 16 + int.from_bytes(data[at + 8 : at + 16], "little")
    return at


def evidence(data: bytes, without: str) -> bytes:
    """Take one kind of evidence for the numbers of CPUs out of a file, which keeps its length."""
    if without == "idle tasks":
        return data.replace(b"swapper/", b"swapper\0")
    return COUNTERS.sub(rb"cpu: \1", data) if without == "counters" else data


@pytest.mark.parametrize("without", ["nothing", "counters", "idle tasks"])
@pytest.mark.parametrize("name", VERSION_7)
def test_version_7_without_its_table_gives_a_part_of_the_whole(
    name: str, without: str, root: Path, request: pytest.FixtureRequest
) -> None:
    if VERSION_7[name].startswith("testdata"):
        request.getfixturevalue("testdata")
    data = evidence((root / VERSION_7[name]).read_bytes(), without)
    columns = ["ts_ns", "kind", "tid", "comm", "next_tid", "next_comm", "target_cpu", "value", "ctx_tid"]
    whole = {cpu: rows.select(columns) for (cpu,), rows in tk.read(data).events.group_by("cpu")}
    begin = records_at(data)
    draw = random.Random(name)
    placed = 0
    for _ in range(CUTS if without == "nothing" else CUTS // 4):
        part = data[: draw.randrange(begin + 16, len(data))]
        trace = tk.read(part)
        codes = set(trace.diagnostics["code"].cast(str))
        assert "truncated" in codes
        told = trace.diagnostics.filter(trace.diagnostics["code"].cast(str) == "truncated")
        assert told["offset"].null_count() == 0
        for (cpu,), rows in trace.events.group_by("cpu"):
            assert rows.select(columns).equals(whole[cpu].head(rows.height))
            placed += 1
    assert placed > CUTS // 20


def test_malformed_perf_data_of_the_corpus_names_the_place(testdata: Path) -> None:
    files = sorted((testdata / "corpus" / "perf.data-fuzz").iterdir())
    assert len(files) >= 5
    without = []
    for file in files:
        try:
            placed = tk.read(file).diagnostics["offset"].drop_nulls().len() > 0
        except tk.TracekitError as error:
            placed = PLACE.search(str(error)) is not None
        if not placed:
            without.append(file.name)
    assert without == []
