"""Tables in terminals of 80, 120 and 200 columns: no line on two, nothing cut without a mark."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.cli._table import cell, definitions, paragraph, shorten, table

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"
Capture = pytest.CaptureFixture[str]


def in_terminal(columns: int, *args: str | Path) -> list[str]:
    """Lines of standard output of a command that runs in a terminal so wide; warnings and progress
    go elsewhere."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "tracekit", *map(str, args)]
    process = subprocess.Popen(
        command, stdout=theirs, stdin=theirs, stderr=subprocess.PIPE, env=environment, cwd=ROOT
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.stderr is not None
    told = process.stderr.read().decode()
    assert process.wait() in (0, 1), told
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).replace("\r", "").splitlines()


COMMANDS: dict[str, tuple[str | Path, ...]] = {
    "info": ("info", DEMO),
    "slices": ("slices", DEMO),
    "slices rows": ("slices", DEMO, "--show", "rows", "--top", "5"),
    "latency": ("latency", DEMO),
    "response": ("response", DEMO),
    "runqueue": ("runqueue", DEMO),
    "policies": ("policies",),
    "formats": ("formats",),
}


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "info"])
def test_every_row_stands_on_one_line(name: str, columns: int) -> None:
    lines = in_terminal(columns, *COMMANDS[name])
    assert max(map(len, lines)) <= columns
    # Heading, the rows, and what a terminal says below them.
    piped = (
        CliRunner().invoke(main, [str(a) for a in COMMANDS[name]], prog_name="tracekit").stdout.splitlines()
    )
    notes = " ".join(lines[len(piped) :])
    assert len(notes) < 320
    assert not notes or re.search(r"more columns?: --wide$|: ", notes)
    # Names of formats and policies are whole.
    assert columns > 80 or name not in ("policies", "formats") or not any("…" in line for line in lines)
    # The first word of each row is that of the pipe, so that no row begins with the rest of another.
    assert [line.split()[0] for line in lines[: len(piped)]] == [line.split()[0] for line in piped]


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("compare", DEMO, "--policy", "rr", "--quick"), "rr changes"),
        (("calibrate", DEMO), "metrics pass"),
        (("replay", DEMO, "--policy", "rr"), "spin"),
    ],
)
def test_the_answer_comes_first_and_fits(command: tuple[str | Path, ...], answer: str, columns: int) -> None:
    lines = in_terminal(columns, *command)
    assert max(map(len, lines)) <= columns
    assert any(answer in line for line in lines[:2])
    assert not any("inferred" in line and ":" not in line for line in lines[:24])


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_wide_shows_each_column_in_blocks(columns: int) -> None:
    lines = in_terminal(columns, "slices", DEMO, "--wide")
    assert max(map(len, lines)) <= columns
    heads = " ".join(line for line in lines if line.startswith("group"))
    for head in ("tasks", "open", "unreliable", "invol. share", "p90", "p99", "min", "max"):
        assert head in heads


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    runner = CliRunner()
    text = runner.invoke(main, ["slices", str(DEMO), "--columns", "group,p99_ns"]).stdout.splitlines()
    assert text[0].split() == ["group", "p99"]
    rows = runner.invoke(main, ["slices", str(DEMO), "--columns", "group,p99_ns", "--csv"]).stdout
    assert rows.splitlines()[0] == "group,p99_ns"
    wrong = runner.invoke(main, ["slices", str(DEMO), "--columns", "p99"])
    assert wrong.exit_code == 2
    assert "did you mean 'p99_ns'?" in wrong.stderr


def show(capsys: Capture, monkeypatch: pytest.MonkeyPatch, width: int, make: Callable[[], None]) -> list[str]:
    monkeypatch.setattr("tracekit.cli._table.terminal_width", lambda: width)
    make()
    return capsys.readouterr().out.splitlines()


def test_columns_that_hold_nothing_are_left_out(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"group": "a", "n": 3, "n_open": 0, "cause": None}, {"group": "b", "n": 1, "n_open": 0}]
    lines = show(capsys, monkeypatch, 80, lambda: table(rows, ["group", "n", "n_open", "cause"]))
    assert lines[0].split() == ["group", "n"]
    rows[1]["n_open"] = 2
    lines = show(capsys, monkeypatch, 80, lambda: table(rows, ["group", "n", "n_open"]))
    assert lines[0].split() == ["group", "n", "open"]


def test_the_last_columns_go_first_and_are_counted(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{f"column{i}": i + 1 for i in range(12)}]
    lines = show(capsys, monkeypatch, 50, lambda: table(rows, list(rows[0])))
    assert lines[0].split() == [f"column{i}" for i in range(5)]
    assert lines[2] == "7 more columns: --wide"


def test_long_and_wide_names_are_cut_with_a_mark(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shorten("漢字漢字漢字", 7) == "漢字漢…"
    rows = [{"group": "x" * 70, "n": 1, "mean_ns": 5}]
    lines = show(capsys, monkeypatch, 40, lambda: table(rows, ["group", "n", "mean_ns"]))
    assert max(map(len, lines)) == 40
    assert "…" in lines[1]


def test_sentences_run_on_below_their_name(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = show(capsys, monkeypatch, 60, lambda: definitions([("switch", "9.73 us", "word " * 30)]))
    assert lines[0] == "switch  9.73 us"
    assert all(line.startswith("    word") and len(line) <= 60 for line in lines[1:])


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["slices", "{}", "--json", "out"], "out"),
        (["slices", "{}", "--json=out"], "out"),
        (["slices", "--json", "x.json", "{}"], "x.json"),
        (["slices", "--csv", "x.csv", "{}"], "x.csv"),
        (["slices", "{}", "--csv", "out", "--json", "x.json"], "x.json"),
        (["slices", "--json", "{}"], None),
        (["slices", "{}", "--json"], None),
        (["slices", "{}", "--json", "-"], None),
    ],
)
def test_json_and_csv_take_a_file_or_none(
    words: list[str], file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [w.replace("{}", str(DEMO)) for w in words])
    assert result.exit_code == 0, result.stderr
    if file is None:
        assert result.stdout.startswith("{")
        assert list(tmp_path.iterdir()) == []
    else:
        assert result.stdout.startswith("group")
        assert f"wrote {file}" in result.stderr
        assert (tmp_path / file).stat().st_size > 100


def test_trust_is_shown_where_80_columns_must_do() -> None:
    command = ("compare", DEMO, "--policy", "cfs:wakeup_preemption=off", "--runs", "3")
    narrow, broad = in_terminal(80, *command), in_terminal(120, *command)
    assert max(map(len, narrow)) <= 80
    assert "? with care, ! do not use" in narrow
    assert any(line.endswith(" ?") for line in narrow)
    assert any(line.endswith(("trusted", "with care", "do not use")) for line in broad)


def test_proposals_keep_their_trust_in_80_columns(tmp_path: Path) -> None:
    file = tmp_path / "small.parquet"
    tk.simulate("policy: rr:quantum=20ms\nuntil: 2000\nDatabase: (R1 S15)*\nHog1: R∞\nHog2: R∞").write(file)
    goal = ("--goal", "response.mean(Database) < 12ms", "--depth", "1", "--runs", "3")
    lines = in_terminal(80, "solve", file, *goal)
    heads = [line.split()[-2:] for line in lines if line.startswith("goal ")]
    assert heads
    assert all(head == ["holds", "trust"] for head in heads)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("column", ["fork_ts_ns", "ts_from_ns", "end_ns", "last_ts_ns"])
def test_a_point_in_time_is_printed_as_the_options_take_it(column: str) -> None:
    assert cell(column, 815_528_618_199) == "@815.528618199s"
    assert cell(column.replace("ts", "dur").replace("end", "len"), 5_000_000) == "5 ms"


@pytest.mark.parametrize("column", ["share", "cdf", "exceedance", "busy_share"])
def test_a_bound_of_a_share_has_the_unit_of_the_share(column: str) -> None:
    assert [cell(f"{column}{end}", 0.0142) for end in ("", "_low", "_high")] == ["1.42 %"] * 3


def test_topics_are_folded_in_a_terminal() -> None:
    lines = in_terminal(80, "help", "filters")
    assert max(map(len, lines)) <= 80
    assert "* `--comm GLOB`: tasks with this name, a glob or a `/regular expression/` (the" in lines
    assert "    tracekit latency boot.dat --from 500ms --to 1.5s" in lines


def test_nothing_is_less_than_nothing() -> None:
    assert [cell("imbalance", value) for value in (-0.0004, -0.0, 0.0, -0.0006)] == ["0", "0", "0", "-0.001"]


def test_columns_of_a_comparison(demo: Path) -> None:
    """`--columns` showed a column of dashes for what is none, and CSV had all."""
    words = ["compare", str(demo), "--policy", "rr", "--quick", "--top", "2", "--columns"]
    table = CliRunner().invoke(main, [*words, "group,metric,predicted,trust"])
    assert table.stdout.splitlines()[0].split() == ["group", "metric", "predicted", "trust"]
    assert "100 ms" in table.stdout.splitlines()[2]
    rows = CliRunner().invoke(main, [*words, "group,predicted", "--csv"])
    assert rows.stdout.splitlines()[0] == "group,predicted"
    for more in ([], ["--csv"]):
        wrong = CliRunner().invoke(main, [*words, "grp", *more])
        assert (wrong.exit_code, wrong.stdout) == (2, "")
        assert "no column 'grp'; did you mean 'group'?" in wrong.stderr


def test_names_of_rows_stay_apart(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two metrics had the same name, cut, beside a column that could have been left out."""
    monkeypatch.setattr("tracekit.cli._table.terminal_width", lambda *_: 60)
    names = ["preempted slice, p50", "preempted slice, dist."]
    rest = {"result": "not measured", "error": "+511.67 %", "allowed": "10 % or 0.1 tick"}
    table([{"metric": name} | rest for name in names], ["metric", *rest])
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert shown == names


def test_a_paragraph_is_as_wide_as_the_terminal_that_it_goes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a plot is to be read, and warnings, were one line each, which a terminal breaks within words."""
    monkeypatch.setenv("COLUMNS", "40")
    terminal, pipe = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for file in (terminal, pipe):
        paragraph("warning: " + "some words " * 20, file=file)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 40 < len(pipe.getvalue())
    assert {word for line in lines for word in line.split()} == {"warning:", "some", "words"}
