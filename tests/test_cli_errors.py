"""What goes wrong on the command line: one line on standard error, exit status 2, never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tracekit.cli import main
from tracekit.cli._choice import Choice

Run = Callable[..., subprocess.CompletedProcess[str]]

READERS = ("info", "slices", "runqueue", "latency", "response", "doctor", "convert")

BAD = {
    "empty": b"",
    "garbage": random.Random(3).randbytes(5000),
    "zeros": bytes(5000),
    "text": b"Dear reader,\nthis is a letter.\n",
    "html": b"<!DOCTYPE html><html><body>Not found</body></html>",
    "latin": "Grüße aus Köln\n".encode("latin-1") * 40,
    "gzip of text": gzip.compress(b"Dear reader\n" * 100, mtime=0),
    "cut gzip": gzip.compress(b"Dear reader\n" * 100, mtime=0)[:-12],
    "parquet": b"PAR1 and nothing else PAR1",
    "arrow": b"ARROW1\0\0 and nothing else",
}


def fails(*args: str | Path) -> str:
    """Run, and give the one line."""
    result = CliRunner().invoke(main, [str(a) for a in args], prog_name="tracekit")
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("tracekit")
    return lines[0]


def arguments(command: str, path: Path | str, folder: Path) -> list[str | Path]:
    return [command, path, *(["-o", folder / "out.parquet"] if command == "convert" else [])]


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("bad", BAD)
def test_bad_input(command: str, bad: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.dat"
    path.write_bytes(BAD[bad])
    assert "bad.dat" in fails(*arguments(command, path, tmp_path))
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("bad", ["empty", "text", "html"])
def test_bad_standard_input(bad: str, tracekit: Run) -> None:
    done = tracekit("slices", "-", stdin=BAD[bad].decode())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tracekit: standard input: expected")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", READERS)
def test_bad_places(command: str, tmp_path: Path, demo: Path) -> None:
    assert "no such file" in fails(*arguments(command, tmp_path / "nowhere", tmp_path))
    assert "folder" in fails(*arguments(command, tmp_path, tmp_path))
    closed = tmp_path / "closed"
    closed.write_bytes(demo.read_bytes())
    closed.chmod(0)
    if os.geteuid() != 0:  # root may read everything
        assert "permission denied" in fails(*arguments(command, closed, tmp_path)).lower()


@pytest.mark.parametrize("command", [c for c in READERS if c != "doctor"])
def test_wrong_format(command: str, tmp_path: Path, demo: Path) -> None:
    assert fails(*arguments(command, demo, tmp_path), "--format", "ktr")
    assert "say that it is trace-dat" in fails(*arguments(command, demo, tmp_path), "--format", "perf-data")
    assert "'nope' is not one of" in fails(*arguments(command, demo, tmp_path), "--format", "nope")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nope"], "No such command"),
        (["slices"], "Missing argument"),
        (["slices", "{}", "--nope"], "No such option"),
        (["slices", "{}", "--json", "--csv"], "exclude each other"),
        (["slices", "{}", "--plot", "x.doc"], "ends in"),
        (["slices", "{}", "--plot", "/nowhere/x.png"], "No such file or directory"),
        (["slices", "{}", "--from", "5"], "time with a unit"),
        (["slices", "{}", "--from", "2s", "--to", "1s"], "window is empty"),
        (["slices", "{}", "--comm", "/(/"], "regular expression"),
        (["slices", "{}", "--cpu", "x"], "expected numbers"),
        (["slices", "{}", "--cpu", "5-3"], "invalid range"),
        (["slices", "{}", "--top", "0"], "range"),
        (["slices", "{}", "-O", "clock"], "NAME=VALUE"),
        (["slices", "{}", "-O", "clock_hz=fast"], "whole number"),
        (["convert", "{}", "-o", "x.doc"], "ends in"),
        (["convert", "{}", "-o", "/nowhere/x.csv"], "No such file or directory"),
        (["compare", "{}", "--policy", "rr", "-o", "/nowhere/x.html"], "there is no folder /nowhere"),
        (["compare", "{}", "--policy", "rr", "--json", "/nowhere/x"], "there is no folder /nowhere"),
        (["replay", "{}", "--policy", "rr", "--program", "/nowhere/x.csv"], "there is no folder /nowhere"),
        (["replay", "{}", "--scenario", "/nowhere/x.toml"], "/nowhere/x.toml: No such file"),
        (["replay", "{}", "--scenario", "{}"], "expected a TOML file"),
        (["slices", "{}", "--to", "5"], "'--to': expected a time with a unit"),
        (["convert", "{}", "-o", "-", "--as", "parquet"], "standard output"),
        (
            [
                "compare",
                "{}",
                *["--policy", "cfs", "--policy", "rr", "--policy", "fifo", "--set", "spin*:nice=5"],
            ],
            "; of the policies asked for, cfs takes it, rr, fifo do not: leave out what does not",
        ),
        (["why", "{}", "--cpu", "1"], "a task may wait for one CPU and run on another"),
        (["why", "{}", "--show", "matrix", "--comm", "HogA"], "--show matrix is of all tasks"),
        (["formats", "nope"], "no format is called"),
        (["policies", "show", "nope"], "no policy is called"),
        (["policies", "check", "nope"], "no policy nope"),
        (["policies", "check", "rr:quantum=5"], "time with its unit"),
    ],
)
def test_bad_arguments(args: list[str], message: str, demo: Path) -> None:
    assert message in fails(*(a.replace("{}", str(demo)) for a in args))


def test_cut_captures_give_results_and_a_warning(demo: Path, tmp_path: Path) -> None:
    whole = demo.read_bytes()
    for share in (0.3, 0.6, 0.9, 0.99):
        path = tmp_path / "cut.dat"
        path.write_bytes(whole[: int(len(whole) * share)])
        result = CliRunner().invoke(main, ["slices", str(path)])
        assert result.exit_code in (0, 2), result.output
        assert result.stderr
        assert "Traceback" not in result.output


def test_an_internal_error_is_one_line_too(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracekit.analysis import slices

    def broken(*args: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(slices, "summary", broken)
    result = CliRunner().invoke(main, ["slices", str(demo)])
    assert result.exit_code == 70
    assert result.stderr.startswith("tracekit: internal error, RuntimeError: two lines; --debug")
    assert len(result.stderr.splitlines()) == 1
    for args in (["--debug", "slices", str(demo)], ["slices", str(demo), "--debug"]):
        assert isinstance(CliRunner().invoke(main, args).exception, RuntimeError), args


def test_every_command_takes_debug_behind_its_name() -> None:
    def below(command: click.Command, path: list[str]) -> Iterator[list[str]]:
        if not isinstance(command, click.Group):
            yield path
            return
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from below(found, [*path, name])

    for path in below(main, []):
        done = CliRunner().invoke(main, [*path, "--debug", "--no-such-option"], standalone_mode=False)
        assert "--no-such-option" in str(done.exception), (path, done.exception)


def test_a_process_of_its_own(tracekit: Run, demo: Path, tmp_path: Path) -> None:
    done = tracekit("info", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tracekit: {tmp_path}/nowhere: no such file\n"
    done = tracekit("slices", demo)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "slices {} --show rows",
        "slices {} --show rows --csv",
        "slices {} --show rows --json",
        "convert {} -o -",
        "info {}",
    ],
)
def test_a_reader_that_stops_reading_is_no_error(command: str, root: Path, demo: Path) -> None:
    words = command.format(demo)
    command = f"{sys.executable} -m tracekit {words} | head -c 5; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) == 5


@pytest.mark.parametrize(
    ("command", "condition"),
    [
        ("latency {}", "waker: run delay mean > 1ns"),
        ("slices {} --show rows", "spin: slice mean > 1ns"),
        ("diff {} {}", "spin: slice mean > 0.5 * baseline"),
        ("compare {} --policy cfs:wakeup_preemption=off --runs 2", "spin: slice mean > 1ns"),
    ],
)
def test_a_gate_counts_where_nobody_reads_on(command: str, condition: str, root: Path, demo: Path) -> None:
    """Behind `| head` it ended with 0, as if it had passed."""
    words = f"{command.format(demo, demo)} -q --fail-if '{condition}'"
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tracekit {words} | head -c 5; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("fail")

    # Nor is its status lost where nobody reads the verdict either.
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tracekit {words} 2>&1 | true; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=60,
    )
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("command", "trace", "status"),
    [
        ("check {} --show violations", "ftrace-text/losses/input.txt", 3),
        ("doctor {}", "perf-data/both-switch-records/input.data", 1),
        ("calibrate {} --runs 2", "ftrace-text/losses/input.txt", 1),
        ("infer {}", "perf-data/both-switch-records/input.data", 1),
    ],
)
def test_a_verdict_counts_where_nobody_reads_on(command: str, trace: str, status: int, root: Path) -> None:
    words = command.format(root / "fixtures" / trace)
    for end in ("> /dev/null", "| true"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m tracekit {words} {end}; exit ${{PIPESTATUS[0]}}"],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(root)},
            timeout=60,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (status, False), done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly_and_leave_nothing(
    number: int, status: int, root: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tracekit", "convert", "-", "--format", "dtrace-tkd", "-o", "x.csv"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, env=environment
    ) as process:
        assert process.stdin is not None
        head = (root / "fixtures" / "dtrace-tkd" / "illumos" / "input.tkd").read_bytes()
        process.stdin.write(head)
        process.stdin.flush()
        time.sleep(1.5)
        process.send_signal(number)
        time.sleep(0.2)
        process.stdin.close()
        process.wait(timeout=20)
        assert process.stderr is not None
        errors = process.stderr.read().decode()
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


#: Ctrl-C comes while click is loaded, which is before there are commands.
LOADING = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
{before}
sys.argv = ["tracekit", "--version"]
runpy.run_module("tracekit", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("before", "status"), [("", 130), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", 0)]
)
def test_an_interrupt_while_python_loads_prints_nothing(before: str, status: int, root: Path) -> None:
    code = LOADING.format(before=before)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (status, "")


INTERRUPTED = """
import os, sys
import tracekit.io
from tracekit.cli import run

def read(*_, **__):
    try:
        os.kill(os.getpid(), {number})
        for _ in range(1000):  # the handler runs between two of these
            pass
    except BaseException:
        raise {raised}("of a library") from None

tracekit.io.read = read
sys.argv = ["tracekit", "slices", {trace!r}]
run()
"""


@pytest.mark.parametrize("raised", ["RuntimeError", "OSError", "BaseException"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_the_cause_whatever_a_library_makes_of_it(
    number: int, status: int, raised: str, root: Path, demo: Path
) -> None:
    script = INTERRUPTED.format(number=int(number), raised=raised, trace=str(demo))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, timeout=60
    )
    assert (done.returncode, done.stderr.strip()) == (status, "")


KEPT = """
import os, sys, time
import tracekit.io
from tracekit.cli import run

class Closed:
    def __del__(self):  # no exception leaves it: Python prints it and goes on
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass

def read(*_, **__):
    Closed()
    time.sleep(20)

tracekit.io.read = read
sys.argv = ["tracekit", "slices", {trace!r}]
run()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_a_library_keeps_comes_again(number: int, status: int, root: Path, demo: Path) -> None:
    began = time.monotonic()
    script = KEPT.format(number=int(number), trace=str(demo))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, timeout=60
    )
    assert (done.returncode, done.stderr.strip()) == (status, "")
    assert time.monotonic() - began < 15


def test_help_is_quick(tracekit: Run) -> None:
    tracekit("--help")
    times = []
    for _ in range(3):
        began = time.monotonic()
        assert tracekit("--help").returncode == 0
        times.append(time.monotonic() - began)
    assert min(times) < 1.0, "0.3 s when the machine is idle"


def test_help_loads_nothing_heavy(root: Path) -> None:
    heavy = ("polars", "pandas", "pyarrow", "numpy", "matplotlib", "rich", "scipy", "jinja2")
    code = f"import tracekit.cli, sys; print([m for m in {heavy!r} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "command",
    [["info"], ["runqueue"], ["convert", "-o", "{out}/events.parquet"], ["compare", "--policy", "rr"]],
)
def test_commands_load_no_statistics_that_they_do_not_need(
    command: list[str], root: Path, tmp_path: Path
) -> None:
    words = [word.format(out=tmp_path) for word in command]
    words.insert(1, str(root / "fixtures" / "demo" / "slice-default.dat"))
    heavy = ["scipy", "matplotlib", "pandas"]
    if command[0] != "compare":
        heavy += ["tracekit.whatif.run"] + ["polars", "numpy"] * (command[0] == "convert") + ["pyarrow"]
    code = f"""
import sys, click
from tracekit.cli import main
from tracekit.cli._choice import Choice
try:
    main({words!r})
except SystemExit as end:
    assert not end.code, end
print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("[]\n")


@pytest.mark.parametrize("command", ["slices", "timeline", "why"])
def test_a_window_that_ends_before_it_starts_is_refused(command: str, root: Path) -> None:
    demo = root / "fixtures" / "demo" / "slice-default.dat"
    said = fails(command, demo, "--from", "2s", "--to", "1s", "-q")
    assert "the window is empty: it ends (1s) before it starts (2s)" in said


def test_a_file_of_a_window_is_said_to_be_of_one(root: Path, tmp_path: Path) -> None:
    demo, part = root / "fixtures" / "demo" / "slice-default.dat", tmp_path / "part.parquet"
    runner = CliRunner()
    assert runner.invoke(main, ["convert", str(demo), "--from", "1s", "-o", str(part), "-q"]).exit_code == 0
    first = runner.invoke(main, ["info", str(part)]).stdout.splitlines()[0]
    assert first.endswith(", filtered by start")


@pytest.mark.parametrize(
    "words",
    [
        "convert own.parquet -o ./own.parquet",
        "convert -o link.parquet own.parquet",
        "export own.parquet --chrome-json own.parquet",
        "slices own.parquet --json=own.parquet",
        "slices --csv=own.parquet own.parquet",
        "generate own.parquet --as ftrace -o own.parquet",
        "diff other.parquet own.parquet --markdown own.parquet",
        "diff --a own.parquet --b other.parquet --markdown own.parquet",
        "diff --a ow*.parquet --b other.parquet --markdown own.parquet",
        "diff --markdown own.parquet --b ./o[w]n.parquet --a other.parquet",
        "sweep own.parquet --policy rr --metric slice.mean(a) --json=own.parquet",
    ],
)
def test_the_trace_itself_is_never_written_over(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced by what was made of it."""
    monkeypatch.chdir(tmp_path)
    Path("own.parquet").write_bytes(b"a capture")
    Path("other.parquet").write_bytes(b"another")
    Path("link.parquet").symlink_to("own.parquet")
    assert "this is the trace that is read; write to another file" in fails(*words.split())
    assert Path("own.parquet").read_bytes() == b"a capture"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    "words",
    [
        "slices DEMO --machine own.toml --csv=own.toml",
        "doctor DEMO --json=own.toml --machine own.toml",
        "replay DEMO --scenario own.toml --json=own.toml",
    ],
)
def test_what_is_read_beside_the_trace_is_never_written_over(
    words: str, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'policy = "rr"\n' if "--scenario" in words else "schema = 1\n"
    Path("own.toml").write_text(text)
    assert "this is the file that is read; write to another file" in fails(
        *words.replace("DEMO", str(demo)).split()
    )
    assert Path("own.toml").read_text() == text


@pytest.mark.parametrize("name", ["a b.dat", "n\nl.dat", os.fsdecode(b"caf\xe9.dat")])
def test_a_file_may_have_any_name(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with a line break was taken for a workload, one that is no UTF-8 ended in an internal error."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes((root / "fixtures/ftrace-text/ticks/input.txt").read_bytes())
    shown = name.encode("utf-8", "surrogateescape").decode(errors="backslashreplace")
    for words in (["info"], ["doctor"], ["compare", "--policy", "rr", "--quick", "-o", f"{name}.html"]):
        done = CliRunner().invoke(main, [words[0], name, *words[1:], "--json"])
        assert done.exit_code in (0, 1), done.output
        told = json.loads(done.stdout)
        trace = told.get("trace", told)
        assert (trace if isinstance(trace, str) else trace["name"]) in (name, shown)
    first = CliRunner().invoke(main, ["info", name]).stdout.splitlines()[0]
    assert first.startswith(f"Trace {shown.replace(chr(10), chr(92) + 'n')}: ftrace-text")


def test_parquet_needs_a_name_in_utf_8(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.parquet")
    assert CliRunner().invoke(main, ["convert", str(demo), "-o", name]).exit_code == 0
    for words in (["slices", name], ["export", str(demo), "--lisa", os.fsdecode(b"\xe9")]):
        assert "Parquet and Arrow files need a name in UTF-8" in fails(*words)


def test_every_option_with_a_list_of_words_knows_the_nearest() -> None:
    def of(command: click.Command) -> list[click.Parameter]:
        below = command.commands.values() if isinstance(command, click.Group) else ()
        return [*command.params, *(param for inner in below for param in of(inner))]

    choices = [param.type for param in of(main) if isinstance(param.type, click.Choice)]
    assert len(choices) > 20
    assert all(isinstance(choice, Choice) for choice in choices)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("replay DEMO --policy cfss", "no policy cfss; did you mean cfs? Valid are 4bsd, aix"),
        ("compare DEMO --policy edvdf", "did you mean eevdf?"),
        ("replay DEMO --policy cfs:latenci=3ms", "no parameter latenci; did you mean latency? Valid are"),
        ("replay DEMO --policy cfs --set spin*:nce=5", "no task attribute nce; did you mean nice?"),
        ("replay DEMO --policy cfs --cost swich=3us", "no cost swich; did you mean switch?"),
        ("replay DEMO --policy xyzzy", "no policy xyzzy; valid are 4bsd"),
        ("policies show cfss", "'cfss'; did you mean 'cfs'? There are 4bsd"),
        ("formats trace-da", "'trace-da'; did you mean 'trace-dat'?"),
        ("recipes trace-cdm", "'trace-cdm'; did you mean 'trace-cmd'?"),
        ("help polices", "'polices'; did you mean 'policies'?"),
        ("help nothing", "'nothing'. Topics are"),
        (
            "slices DEMO --show histgram",
            "'histgram'; did you mean 'histogram'? There are summary, histogram,",
        ),
        ("slices DEMO --show HISTOGRAM", "'HISTOGRAM'; did you mean 'histogram'?"),
        ("compare DEMO --policy cfs --by com", "'com'; did you mean 'comm'? There are group, comm"),
        ("info DEMO --format trace-da", "'trace-da'; did you mean 'trace-dat'? There are trace-dat"),
        ("slices DEMO --show xyzzy", "'xyzzy' is not one of 'summary', 'histogram'"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(
    words: str, says: str, demo: Path
) -> None:
    assert says in fails(*words.replace("DEMO", str(demo)).split())
