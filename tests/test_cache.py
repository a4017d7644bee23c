"""The cache of traces: what hits, what misses, what goes, and many processes at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit import _core
from tracekit._frames import TABLES
from tracekit.cli import main
from tracekit.io import reading
from tracekit.io.cache import Cache, cache_key, default_limit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRACEKIT_CACHE", raising=False)
    monkeypatch.delenv("TRACEKIT_CACHE_SIZE", raising=False)
    return tmp_path / "cache" / "tracekit" / "traces"


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From here on, whoever reads a source fails."""

    def fail(*_: object) -> None:
        raise AssertionError("the source was read")

    monkeypatch.setattr(reading, "_read", fail)
    return monkeypatch


def same(one: tk.Trace, other: tk.Trace) -> bool:
    return all(
        one.table(t).equals(other.table(t)) and one.table(t).schema == other.table(t).schema for t in TABLES
    )


def test_a_second_reading_gives_the_same_tables_without_the_source(
    demo: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plain = tk.read(demo)
    first = tk.read(demo, cache=True)
    copy = tmp_path / "copy.xyz"
    copy.write_bytes(demo.read_bytes())
    request.getfixturevalue("no_reading")
    again = tk.read(copy, cache=True)
    assert same(plain, first)
    assert same(plain, again)
    assert again.name == "copy.xyz"
    assert json.loads(again.metadata["source.files"])[0]["name"] == "copy.xyz"
    assert {**again.metadata, "source.files": ""} == {**plain.metadata, "source.files": ""}
    assert len(again.filter(cpu=0).slices) == len(plain.slices)
    assert len(tk.read(demo.read_bytes(), cache=True).events) == len(plain.events)


def test_content_format_options_and_build_make_the_key(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "changed.dat"
    changed.write_bytes(demo.read_bytes() + b"\0")
    keys = {
        cache_key(str(demo), None, {}),
        cache_key(str(demo), "trace-dat", {}),
        cache_key(str(demo), None, {"clock": "boot"}),
        cache_key(str(changed), None, {}),
    }
    assert len(keys) == 4
    assert cache_key(demo.read_bytes(), None, {}) in keys
    # A build of the same version at another time, and another version.
    core = tmp_path / "_core.so"
    core.write_bytes(b"built")
    with monkeypatch.context() as other:
        other.setattr(_core, "__file__", str(core))
        keys.add(cache_key(str(demo), None, {}))
        os.utime(core, (1, 1))
        keys.add(cache_key(str(demo), None, {}))
    with monkeypatch.context() as other:
        other.setattr(_core, "__version__", "0.0.1")
        keys.add(cache_key(str(demo), None, {}))
    assert len(keys) == 7


def test_the_environment_turns_it_on_and_false_off(
    demo: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tk.read(demo)
    assert not folder.exists()
    monkeypatch.setenv("TRACEKIT_CACHE", "1")
    tk.read(demo, cache=False)
    assert not folder.exists()
    tk.read(demo)
    assert len(Cache().entries()) == 1


def test_a_damaged_entry_is_read_anew(demo: Path, folder: Path) -> None:
    good = tk.read(demo, cache=True)
    (entry,) = Cache().entries()
    for name, data in (
        ("slices.arrow", b"ARROW1 not"),
        ("about.json", b"{"),
        ("about.json", b'{"metadata":3}'),
    ):
        (folder / entry.key / name).write_bytes(data)
        assert same(tk.read(demo, cache=True), good)
        assert Cache().get(entry.key, "x") is not None
    (folder / entry.key / "tasks.arrow").unlink()
    assert same(tk.read(demo, cache=True), good)


def test_what_was_not_used_longest_goes_first(demo: Path) -> None:
    trace = tk.read(demo)
    cache = Cache()
    for key in ("a", "b", "c"):
        assert cache.put(key, trace)
    size = cache.size() // 3
    for age, key in enumerate(("b", "c", "a")):
        about = cache.folder / key / "about.json"
        os.utime(about, (1000 + age, 1000 + age))
    assert cache.get("b", "used now") is not None
    small = Cache(limit=2 * size + size // 2)
    small.trim()
    assert {e.key for e in small.entries()} == {"a", "b"}
    assert small.put("d", trace)
    assert {e.key for e in small.entries()} == {"b", "d"}
    assert not Cache(limit=size // 2).put("e", trace)
    assert small.clear() == 2
    assert small.entries() == []
    assert small.size() == 0


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(demo: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    old, new = folder / ".k.1.aa.tmp", folder / ".k.2.bb.tmp"
    for left in (old, new):
        left.mkdir()
        (left / "events.arrow").write_bytes(b"half")
    past = time.time() - 3 * 24 * 3600
    os.utime(old, (past, past))
    tk.read(demo, cache=True)
    assert not old.exists()
    assert new.exists()
    assert len(Cache().entries()) == 1


def test_a_folder_that_cannot_be_written_costs_only_time(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(tk.read(demo, cache=True).slices) > 1000


def test_an_absent_source_and_a_pipe_are_not_the_caches_business(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(tk.ParseError, match="no such file"):
        tk.read(tmp_path / "absent.dat", cache=True)
    with pytest.raises(tk.ParseError):
        tk.read(b"not a trace", cache=True)
    assert not list(folder.glob("*"))


@pytest.mark.parametrize(
    ("text", "size"), [("", 4_000_000_000), ("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("7", 7)]
)
def test_the_limit_is_told_in_units(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE_SIZE", text)
    assert default_limit() == size


@pytest.mark.parametrize("text", ["lots", "1e999MB"])
def test_a_limit_that_is_no_size_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE_SIZE", text)
    with pytest.raises(tk.TracekitError, match="500MB or 4GB"):
        Cache()


def _hammer(demo: str, folder: str, seed: int, results: multiprocessing.SimpleQueue[str]) -> None:
    """Read, store, trim and clear in a loop, as several programs at once would."""
    os.environ["XDG_CACHE_HOME"] = folder
    try:
        expected = None
        for step in range(6):
            trace = tk.read(demo, cache=True)
            total = trace.slices["dur_ns"].sum(), len(trace.events), len(trace.states)
            expected = expected or total
            if total != expected:
                raise AssertionError(f"{total} instead of {expected}")
            if (step + seed) % 3 == 0:
                Cache(limit=10).trim()
            if (step + seed) % 4 == 0:
                Cache().clear()
        results.put("")
    except BaseException as error:
        results.put(repr(error))


def test_many_processes_at_once_read_the_right_tables(demo: Path, tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn")
    results = start.SimpleQueue()
    workers = [
        start.Process(target=_hammer, args=(str(demo), str(tmp_path / "cache"), seed, results))
        for seed in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert [results.get() for _ in workers] == [""] * 4
    assert not list((tmp_path / "cache").rglob("*.tmp"))


#: Another process: each of two readings says whether the cache has the trace, and keeps it.
READ_TWICE = """
import sys, tracekit as tk
from tracekit.io.cache import Cache, cache_key
for _ in range(2):
    print("hit" if Cache().get(cache_key(sys.argv[1], None, {}), "") else "miss")
    tk.read(sys.argv[1], cache=True)
"""
CLEAR = "from tracekit.io.cache import Cache; print(Cache().clear())"


def other_process(code: str, *words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_is_half_written_is_no_entry(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tk.read(demo)
    table, seen = tk.Trace.table, []

    def paused(self: tk.Trace, name: str) -> object:
        # Half of the tables are written.
        if name == TABLES[len(TABLES) // 2] and not seen:
            seen.extend(other_process(READ_TWICE, str(demo)))
        return table(self, name)

    monkeypatch.setattr(tk.Trace, "table", paused)
    key = cache_key(str(demo), None, {})
    assert Cache().put(key, trace)
    # The other process read, kept what it read, and found it again.
    assert seen == ["miss", "hit"]
    kept = Cache().get(key, "")
    assert kept is not None
    assert same(kept, trace)


def test_an_entry_that_goes_while_it_is_read_is_a_miss(
    demo: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tk.read(demo, cache=True)
    read_ipc, removed = pl.read_ipc, []

    def paused(path: Path) -> pl.DataFrame:
        if path.stem == TABLES[len(TABLES) // 2] and not removed:
            removed.extend(other_process(CLEAR))
        return read_ipc(path)

    monkeypatch.setattr(pl, "read_ipc", paused)
    again = tk.read(demo, cache=True)
    assert removed == ["1"]
    assert same(first, again)
    # It was read anew and kept.
    assert [e.events for e in Cache(folder).entries()] == [len(first.events)]


def test_the_command_lists_measures_and_clears(demo: Path) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["cache", *words], standalone_mode=False)
        assert done.exception is None
        return done.stdout

    assert run() == "the cache is empty\n"
    trace = tk.read(demo, cache=True)
    (row,) = json.loads(run("list", "--json"))
    assert row["name"] == demo.name
    assert row["count"] == len(trace.events)
    assert demo.name in run("list")
    size = json.loads(run("size", "--json"))
    assert size["entries"] == 1
    assert size["size"] == row["size"]
    assert size["limit"] == 4_000_000_000
    assert "1 traces" in run("size")
    assert run("clear") == "removed 1 traces\n"
    assert run("list") == "the cache is empty\n"


def test_cached_tables_are_typed_as_read_ones(demo: Path) -> None:
    tk.read(demo, cache=True)
    cached = tk.read(demo, cache=True)
    assert cached.events.schema == tk.read(demo).events.schema
    assert cached.events.filter(pl.col("kind") == "switch").height > 1000
