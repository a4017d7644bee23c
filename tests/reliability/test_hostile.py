"""Files that mean harm: names, numbers, and what a command may reach while it reads them."""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.reliability.test_sources import HEAD, switches

#: Names of tasks, of 15 bytes or less: a title of the terminal, markup, a formula, a way up the
#: folders, letters written backwards.
NAMES = ("\x1b]0;x\x07", "<img src=x>", "=cmd|'/C'!A0", "../../../evil", "a\u202egnp.b", "${x}`y`;z")
RAW = ("\x1b", "\x07", "\u202e")


def hostile() -> str:
    """A text in which tasks with such names take turns."""
    text = ""
    for k, name in enumerate(NAMES):
        lines = "".join(switches(20, 1.0 + k / 10))
        for old, new in (("=a ", f"={name} "), (" a-10", f" {name}-{20 + k}"), ("pid=10 ", f"pid={20 + k} ")):
            lines = lines.replace(old, new)
        text += lines
    return HEAD + text


def test_names_that_mean_harm_do_none(tmp_path: Path, tracekit: Run) -> None:
    """In the terminal, as CSV and JSON, on the page, for Perfetto's and Chrome's viewers, and as files."""
    own = tmp_path / "own"
    own.mkdir()
    trace = own / "x.txt"
    trace.write_text(hostile())
    for words in (
        ["slices"],
        ["latency"],
        ["timeline"],
        ["why", "--of", "window"],
        ["slices", "--csv"],
        ["slices", "--json"],
    ):
        done = tracekit(words[0], trace, *words[1:])
        assert done.returncode == 0, done.stderr
        assert not any(raw in done.stdout + done.stderr for raw in RAW), words
        if "--csv" in words:
            assert "=cmd" in done.stdout
            assert not any(line.lstrip('"').startswith("=") for line in done.stdout.splitlines())
        if "--json" in words:
            assert NAMES[0] in {cell for row in json.loads(done.stdout)["rows"] for cell in row.values()}
    page, chrome = own / "page.html", own / "trace.json"
    done = tracekit("compare", trace, "--policy", "fifo", "--quick", "-o", page)
    assert done.returncode == 0, done.stderr
    assert "<img src=x>" not in page.read_text()
    assert "img src=x" in page.read_text()
    done = tracekit(
        "export", trace, "--chrome-json", chrome, "--perfetto", own / "trace.pftrace", "--lisa", own / "lisa"
    )
    assert done.returncode == 0, done.stderr
    assert NAMES[1] in json.dumps(json.loads(chrome.read_text()))
    assert sorted(p.name for p in own.iterdir()) == [
        "lisa",
        "page.html",
        "trace.json",
        "trace.pftrace",
        "x.txt",
    ]
    assert list(tmp_path.iterdir()) == [own]
    assert not any("evil" in p.name for p in own.rglob("*"))


#: Tells of each connection, each process and each file that is opened for writing.
WATCH = """
import os, sys
def told(event, args):
    if event == "open":
        mode, flags = args[1], args[2]
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
    elif event not in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec"):
        return
    os.write(told.fd, f"{event} {args[0] if event != 'socket.connect' else args[1]}\\n".encode())
told.fd = os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
sys.addaudithook(told)
import runpy
runpy.run_module("tracekit", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("info",),
        ("slices", "--json", "OUT"),
        ("why", "--of", "window"),
        ("convert", "-o", "OUT.parquet"),
        ("compare", "--policy", "fifo", "--quick", "-o", "OUT.html"),
        ("sql", "--engine", "duckdb", "select count(*) from slices"),
    ],
)
def test_a_command_reaches_only_what_was_asked_for(words: tuple[str, ...], tmp_path: Path) -> None:
    """No connection, no program, and no file written but the output."""
    trace, watched = tmp_path / "x.txt", tmp_path / "watched"
    trace.write_text(hostile())
    out = str(tmp_path / "out")
    command = [words[0], str(trace), *(w.replace("OUT", out) for w in words[1:])]
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *command], capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "WATCHED": str(watched), "HOME": str(tmp_path),
             "MPLCONFIGDIR": str(tmp_path / "fonts"), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fine = (out, str(tmp_path / "fonts"), "/dev/null")
    told = [
        line
        for line in watched.read_text().splitlines()
        if not line.startswith(tuple(f"open {f}" for f in fine))
    ]
    # matplotlib asks once which fonts the machine has.
    told = [line for line in told if line != "subprocess.Popen fc-list"]
    # Beside the output lies its unfinished file.
    beside = [line for line in told if line.startswith(f"open {tmp_path}/.") or line.endswith(".tmp")]
    # An open by number is a stream of this process, or a pipe to a thread of it.
    assert [line for line in told if line not in beside and not line.removeprefix("open ").isdigit()] == []
    left = {p.name.split(".")[0] for p in tmp_path.iterdir()}
    assert left <= {"x", "watched", "out", "fonts"}


def test_dask_reaches_the_scheduler_that_was_named(tmp_path: Path) -> None:
    """A sweep on Dask connects to its scheduler and its workers, starts nothing and writes its output."""
    distributed = pytest.importorskip("distributed", reason="pip install 'tracekit[dask]'")
    trace, watched, out = tmp_path / "x.txt", tmp_path / "watched", tmp_path / "out.parquet"
    trace.write_text(hostile())
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        command = [
            "sweep",
            str(trace),
            "--policy",
            "rr:quantum=1ms..4ms/2",
            "--metric",
            "slice",
            "--runs",
            "1",
        ]
        done = subprocess.run(
            [sys.executable, "-c", WATCH, *command, "--dask", cluster.scheduler_address, "-o", str(out)],
            capture_output=True, text=True, timeout=120,
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "WATCHED": str(watched), "HOME": str(tmp_path),
                 "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        known = [cluster.scheduler_address, *(w["id"] for w in cluster.scheduler_info["workers"].values())]
        known += list(cluster.scheduler_info["workers"])
    assert done.returncode == 0, done.stderr
    assert out.exists()
    told = watched.read_text().splitlines()
    reached = {line for line in told if line.startswith("socket.")}
    ports = {str(k).rpartition(":")[2] for k in known}
    assert reached
    for line in reached:
        assert "'127.0.0.1'" in line or line == "socket.getaddrinfo 127.0.0.1", line
        assert line.startswith("socket.getaddrinfo") or line.rstrip(")").rpartition(" ")[2] in ports, line
    # Python's `platform` asks once what system this is.
    others = [line for line in told if not line.startswith(("socket.", "open "))]
    assert [line for line in others if line != "subprocess.Popen uname"] == []
    fine = ("open /dev/null", f"open {out}", f"open {tmp_path}/.")
    rest = [line for line in told if line.startswith("open ") and not line.startswith(fine)]
    assert [line for line in rest if not line.removeprefix("open ").isdigit()] == []


#: Calls by which text becomes a program, or bytes an object with code of its own.
EVALUATING = {
    "eval", "exec", "compile", "pickle.load", "pickle.loads", "marshal.load", "marshal.loads", "shelve.open", "os.system",
    "os.popen", "runpy.run_path", "runpy.run_module", "subprocess.run", "subprocess.Popen", "pl.read_json",
    "yaml.load", "np.load", "pd.read_pickle", "DataFrame.deserialize", "joblib.load",
}  # fmt: skip


def called(tree: ast.AST) -> set[str]:
    """Names of what a module calls, with their module."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = set()
    for func in calls:
        if isinstance(func, ast.Name):
            names.add(func.id)
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            names.add(f"{func.value.id}.{func.attr}")
    return names


def test_nothing_of_a_trace_is_evaluated() -> None:
    found = {}
    for path in sorted((ROOT / "tracekit").rglob("*.py")):
        bad = called(ast.parse(path.read_text())) & EVALUATING
        if bad:
            found[str(path.relative_to(ROOT))] = bad
    assert found == {}


#: Reads damaged copies in one process with 1 GiB of address space: an allocation by a number of the
#: file would end it.
READS = """
import random, sys
import tracekit as tk
data, draw = open(sys.argv[1], "rb").read(), random.Random(7)
size = min(len(data), 1 << 16)
small = data[: 1 << 18]
for _ in range(150):
    at = draw.randrange(8, size - 8)
    width = draw.choice([2, 4, 8])
    value = draw.choice([b"\\xff" * 8, b"\\xff" * 7 + b"\\x7f", b"\\x00\\x00\\x00\\x40" * 2, b"\\x7f" + b"\\xff" * 7])
    damaged = small[:at] + value[:width] + small[at + width :]
    try:
        tk.read(damaged, format=sys.argv[2], cache=None)
    except tk.TracekitError:
        pass
"""


@pytest.mark.parametrize(
    "fixture", ["trace-dat/v6-tsc/input.dat", "trace-dat/v7-none/input.dat", "perf-data/lost-records/input.data",
                "ftrace-pages", "ctf", "schedviz"]
)  # fmt: skip
def test_numbers_of_a_file_ask_for_no_memory(fixture: str) -> None:
    place = ROOT / "fixtures" / fixture
    if place.is_dir():
        place = min(
            (p for p in place.glob("*/input*") if p.is_file()),
            key=lambda p: (-min(p.stat().st_size, 4096), p.name),
        )
    room = 1 << 30
    done = subprocess.run(
        [sys.executable, "-c", READS, str(place), fixture.split("/")[0]], capture_output=True, text=True, timeout=300,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (room, room)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
