"""The command line: every command on a real capture, its forms of output, its filters."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result

import tracekit as tk
from tracekit import _core
from tracekit.cli import main

ANALYSES = ("slices", "runqueue", "latency", "response")
SHOWS = {
    "slices": ("summary", "histogram", "endings", "cdf", "quantum", "rows"),
    "runqueue": ("summary", "distribution", "at-switch", "rows"),
    "latency": ("summary", "cdf", "rows"),
    "response": ("summary", "cdf", "rows"),
}


def run(*args: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in args], prog_name="tracekit")
    assert result.exit_code == status, (result.output, result.exception)
    return result


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    if isinstance(command, click.Group):
        for name, sub in command.commands.items():
            found += commands(sub, (*path, name))
    return found


@pytest.mark.parametrize("path", commands(main), ids=" ".join)
def test_every_command_has_help_that_teaches(path: tuple[str, ...]) -> None:
    text = run(*path, "--help").output
    assert text.startswith("Usage: tracekit")
    if len(path) < 2:
        assert "Examples:" in text
    for line in text.splitlines():
        # A list of choices stands on one line.
        assert len(line) <= (100 if line.startswith("  --") else 80), line


def test_without_a_command_there_is_help() -> None:
    assert run().output == run("--help").output
    assert run("--version").output == f"tracekit {_core.__version__}\n"


def test_info_tells_what_a_trace_is(demo: Path, trace: tk.Trace) -> None:
    text = run("info", demo).output
    assert "trace-dat, linux 6.1" in text
    assert f"{trace.events.height:,} records" in text
    assert "spin00" in text
    assert "none, as the source counts" in text
    assert not re.search(r"[{}\[\]]", text), "no JSON in text for people"
    assert "state.table" in run("info", demo, "--verbose").output
    told = json.loads(run("info", demo, "--json").output)
    assert told["metadata"] == trace.metadata
    assert told["causes"] == trace.causes().to_dicts()
    assert told["rows"]["slices"] == trace.slices.height
    assert told["start_ns"] == trace.start_ns
    assert {k["kind"]: k["count"] for k in told["kinds"]}["switch"] == trace.cpus["nr_switches"].sum()
    assert len(told["tasks"]) == 10
    part = run("info", demo, "--comm", "spin*", "--comm", "wl", "--cpu", "0", "--to", "1s").output
    end = trace.start_ns + 10**9  # type: ignore[operator]
    assert re.search(rf"options +comm=spin\*,wl, cpu=0, end_ns={end}\n", part), "what was asked for"
    assert not re.search(r"[{}\[\]]", part)


def test_info_lists_losses_first(root: Path) -> None:
    text = run("info", root / "fixtures" / "dtrace-tkd" / "freebsd-drops" / "input.tkd").output
    assert text.startswith("Trace input.tkd: dtrace-tkd")
    assert text.index("lost-events") < text.index("records:")


@pytest.mark.parametrize(("command", "show"), [(c, s) for c, shows in SHOWS.items() for s in shows])
def test_analyses_in_all_forms(command: str, show: str, demo: Path) -> None:
    args = (command, demo, "--show", show, "--top", "20", "--to", "300ms")
    told = json.loads(run(*args, "--json").output)
    rows = list(csv.DictReader(io.StringIO(run(*args, "--csv").output)))
    lines = run(*args).output.splitlines()
    assert told["show"] == show
    assert 0 < len(told["rows"]) == len(rows) == len(lines) - 1
    for one, other in zip(told["rows"], rows, strict=True):
        assert list(one) == list(other)
        for key, value in one.items():
            if isinstance(value, int) and not isinstance(value, bool):
                assert int(other[key]) == value
    assert all("_ns" not in cell for cell in lines[0].split())


def test_figures_are_those_of_the_public_api(demo: Path, trace: tk.Trace) -> None:
    from tracekit.analysis import slices

    told = json.loads(run("slices", demo, "--by", "comm", "--json").output)
    expected = slices.summary(trace.slices, "comm").to_dicts()
    assert told["rows"] == json.loads(json.dumps(expected))


def test_filters_of_the_command_line_are_those_of_the_api(demo: Path, trace: tk.Trace) -> None:
    args = ("--comm", "spin0*", "--comm", "/^waker/", "--cpu", "0-3", "--from", "500ms", "--to", "1.5s")
    told = json.loads(run("slices", demo, "--show", "rows", "--json", *args).output)
    part = trace.filter(comm=["spin0*", "/^waker/"], cpu=range(4), start="500ms", end="1.5s")
    assert [r["seq_in"] for r in told["rows"]] == part.slices["seq_in"].to_list()
    assert told["trace"]["start_ns"] == part.start_ns
    tids = part.tasks["tid"].head(2).to_list()
    told = json.loads(
        run("slices", demo, "--show", "rows", "--json", "--tid", ",".join(map(str, tids))).output
    )
    assert {r["tid"] for r in told["rows"]} == set(tids)


def test_a_filter_that_leaves_nothing_says_so(demo: Path) -> None:
    for command in ("slices", "latency", "response"):
        assert "nothing to show" in run(command, demo, "--comm", "nobody").output
        assert json.loads(run(command, demo, "--comm", "nobody", "--json").output)["rows"] == []


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        (["--comm", "nobody"], "--comm nobody: no task of the trace fits; it has cat, kcompactd0"),
        (["--cpu", "5-6"], "--cpu 5-6: the trace has no such CPU; it has 0"),
        (["--exclude", "nobody"], "--exclude nobody: no task of the trace fits; it has cat, kcompactd0"),
        (["--from", "90s"], "nothing lies between --from and --to; the trace lasts 3.0358 s"),
    ],
)
def test_a_filter_that_leaves_nothing_says_what_there_is(filters: list[str], told: str, demo: Path) -> None:
    assert told in run("slices", demo, *filters).stderr
    assert run("slices", demo, "--quiet", *filters).stderr == ""


def test_a_plot_is_of_the_table_that_is_shown(demo: Path, tmp_path: Path) -> None:
    for command, show, title in (
        ("slices", "summary", "Length of slice"),
        ("slices", "cdf", "Slice, "),
        ("slices", "quantum", "Time until a task is preempted"),
        ("runqueue", "summary", "Run-queue length by share of time"),
        ("runqueue", "at-switch", "Run-queue length at each switch"),
    ):
        file = tmp_path / "x.svg"
        run(command, demo, "--show", show, "--plot", file)
        assert f"<!-- {title}" in file.read_text(), show
    run("runqueue", demo, "--waiting", "--plot", file)
    assert "<!-- tasks waiting to run -->" in file.read_text()


@pytest.mark.parametrize("command", ANALYSES)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plots(command: str, ending: str, demo: Path, tmp_path: Path) -> None:
    file = tmp_path / f"x.{ending}"
    result = run(command, demo, "--plot", file)
    head = file.read_bytes()[:400]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<svg" in head or b"<?xml" in head
    assert f"wrote {file}" in result.stderr
    assert "wrote" not in result.stdout


def test_text_comes_from_standard_input(root: Path, tracekit: Callable[..., Any], tmp_path: Path) -> None:
    text = (root / "fixtures" / "dtrace-tkd" / "illumos" / "input.tkd").read_text()
    assert "perl" in tracekit("slices", "-", stdin=text).stdout
    assert json.loads(tracekit("info", "-", "--json", stdin=text).stdout)["name"] == "standard input"
    assert tracekit("convert", "-", "-o", tmp_path / "x.parquet", stdin=text).returncode == 0
    assert tk.read(tmp_path / "x.parquet").slices.height == 3


def test_warnings_go_to_standard_error(root: Path) -> None:
    lossy = root / "fixtures" / "dtrace-tkd" / "freebsd-drops" / "input.tkd"
    loud = run("slices", lossy)
    # Two causes of one code are two lines, so that none hides behind the other.
    dropped, failed = loud.stderr.splitlines()
    assert dropped == "warning: lost-events x 1: dtrace dropped 12 records"
    assert failed.startswith("warning: lost-events x 1: a probe's action failed")
    assert "warning" not in loud.stdout
    assert run("slices", lossy, "--quiet").stderr == ""
    assert json.loads(run("slices", lossy, "--json", "-q").stdout)["trace"]["warnings"]


def test_names_cannot_reach_the_terminal(tmp_path: Path, trace: tk.Trace) -> None:
    events = trace.events.head(400).with_columns(
        pl.col("comm", "next_comm", "ctx_comm")
        .cast(pl.String)
        .str.replace("spin", "\x1b[31mspin\n")
        .cast(pl.Categorical)
    )
    tk.Trace({"events": events}, trace.metadata).write(tmp_path / "x.parquet")
    for command in (("info",), ("slices", "--by", "comm"), ("slices", "--by", "comm", "--csv")):
        result = run(command[0], tmp_path / "x.parquet", *command[1:])
        if "--csv" not in command:
            assert "\x1b" not in result.output
            assert "\\x1b[31mspin" in result.output


def test_convert(demo: Path, tmp_path: Path, trace: tk.Trace) -> None:
    file = tmp_path / "x.parquet"
    result = run("convert", demo, "-o", file, "--table", "slices")
    assert (result.stdout, result.stderr) == ("", "")
    assert pl.read_parquet(file).height == trace.slices.height
    run("convert", demo, "-o", file, "--comm", "spin00")
    assert tk.read(file).events.height == trace.filter(comm="spin00").events.height
    run("convert", demo, "-o", file, "--exclude", "spin*")
    assert tk.read(file).events.height == trace.filter(exclude="spin*").events.height < trace.events.height
    text = run("convert", demo, "-o", "-", "--table", "cpus").stdout
    assert next(iter(csv.DictReader(io.StringIO(text))))["cpu"] == "0"
    run("convert", demo, "-o", tmp_path / "y", "--as", "arrow")
    assert tk.read(tmp_path / "y").slices.equals(trace.slices)
    assert "spin" in run("slices", tmp_path / "y").output


def test_formats_lists_the_registry() -> None:
    names = {f["name"] for f in tk.formats()}
    text = run("formats").output
    assert {line.split()[0] for line in text.splitlines()[1:]} == names
    cards = run("formats", "--verbose").output
    assert all(f"{name}: " in cards for name in names)
    rows = {line.split()[0]: line.split()[1:] for line in cards.splitlines()[1 : len(names) + 1]}
    assert set(rows) == names
    # waker, target CPU, priority, state, queue length, losses: FreeBSD tells no CPU of a wakeup, a
    # map next to nothing.
    assert rows["ktr"] == ["yes", "-", "yes", "yes", "yes", "yes"]
    assert rows["perf-sched-map"] == ["-", "-", "-", "-", "-", "yes"]
    assert [f["name"] for f in json.loads(run("formats", "--json", "ktr").output)] == ["ktr"]


def test_policies_lists_the_registry() -> None:
    text = run("policies").output
    for policy in _core.policies():
        assert policy["name"] in text
        card = run("policies", "show", policy["name"]).output
        for part in ("Idea", "Formula", "Ties", "Sources", *(p["name"] for p in policy["params"])):
            assert part in card
        assert run("policies", "check", policy["name"]).output.startswith(policy["name"])
    assert json.loads(run("policies", "--json").output) == _core.policies()


def test_doctor_checks_the_installation_and_a_trace(demo: Path, root: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--json"])
    checks: list[dict[str, Any]] = json.loads(result.output)
    assert {"tracekit", "Python", "polars"} <= {c["what"] for c in checks}
    assert result.exit_code == (0 if all(c["ok"] for c in checks) else 1)
    assert "MISSING" not in run("doctor", demo).output
    lossy = run("doctor", root / "fixtures" / "dtrace-tkd" / "freebsd-drops" / "input.tkd", status=1)
    assert "MISSING  records: lost-events x 2 (15 % of the CPUs' time)" in lossy.output
