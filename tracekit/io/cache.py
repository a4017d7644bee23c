"""Traces that were read before, kept so that reading them again takes a tenth of the time.

An entry holds all tables of one trace. Its key is a digest of the *content* of the source, the
format and options it was read with, and the build of tracekit that read it: so a copy of a file
hits, a changed file misses, and a new tracekit reads anew. Entries stand in
``$XDG_CACHE_HOME/tracekit/traces`` (``~/.cache/tracekit/traces``); when they outgrow the limit
(``TRACEKIT_CACHE_SIZE``, 4 GB by default), those that were not used for the longest time go.

Several processes may use the cache at once. An entry appears, complete, by a rename; a reader that
loses an entry while it reads it takes that for a miss; removals hold a lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tracekit import _core
from tracekit._frames import TABLES, table_schema
from tracekit.errors import TracekitError
from tracekit.trace import Trace

__all__ = ["Cache", "Entry", "cache_key", "default_limit"]

DEFAULT_LIMIT = 4_000_000_000
#: A half-written entry that is older than this belongs to a process that is gone.
STALE_SECONDS = 24 * 3600
_UNITS = {
    "": 1,
    "B": 1,
    "K": 10**3,
    "KB": 10**3,
    "M": 10**6,
    "MB": 10**6,
    "G": 10**9,
    "GB": 10**9,
    "T": 10**12,
}


def default_folder() -> Path:
    """Where entries stand."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tracekit" / "traces"


def default_limit() -> int:
    """How many bytes all entries together may have: ``TRACEKIT_CACHE_SIZE`` such as ``500MB``, else 4 GB."""
    text = os.environ.get("TRACEKIT_CACHE_SIZE", "").strip().upper()
    if not text:
        return DEFAULT_LIMIT
    number = text.rstrip("BKMGT ")
    try:
        return int(float(number) * _UNITS[text[len(number) :].strip()])
    except (ValueError, OverflowError, KeyError):
        raise TracekitError(
            f"TRACEKIT_CACHE_SIZE: expected a size such as 500MB or 4GB, found {text!r}"
        ) from None


def cache_key(source: str | bytes, format: str | None, options: Mapping[str, str]) -> str:
    """Digest of a source's content and of all else that its tables depend on.

    Parameters
    ----------
    source
        Path of a file, or the bytes.
    format, options
        What it is read with.
    """
    core = Path(_core.__file__).stat()
    parts = [
        _core.blake3(source),
        _core.__version__,
        core.st_size,
        core.st_mtime_ns,
        format,
        sorted(options.items()),
    ]
    return _core.blake3(json.dumps(parts).encode())


@dataclass(frozen=True)
class Entry:
    """One trace in the cache.

    Attributes
    ----------
    key : str
        Its key.
    name : str
        What the source was called when it was read.
    size : int
        Bytes on disk.
    used : float
        When it was last used, seconds since 1970.
    events : int
        Number of events.
    """

    key: str
    name: str
    size: int
    used: float
    events: int


class Cache:
    """A folder of traces.

    Parameters
    ----------
    folder
        The folder; by default that of the user.
    limit
        How many bytes all entries together may have.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        self.folder = folder or default_folder()
        self.limit = default_limit() if limit is None else limit

    def get(self, key: str, name: str) -> Trace | None:
        """The trace with this key, None when there is none or it is damaged.

        Parameters
        ----------
        key
            What `cache_key` gave.
        name
            What to call the trace.
        """
        place = self.folder / key
        try:
            about = json.loads((place / "about.json").read_text())
            tables: dict[str, _core.Table | pl.DataFrame] = {}
            for table in TABLES:
                frame = pl.read_ipc(place / f"{table}.arrow")
                if frame.schema != table_schema(table):
                    raise ValueError(f"{table} has other columns")
                tables[table] = frame
            metadata = {str(k): str(v) for k, v in about["metadata"].items()}
            os.utime(place / "about.json")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
            # Damaged: it is read anew and replaced.
            with self._lock():
                shutil.rmtree(place, ignore_errors=True)
            return None
        return Trace(tables, metadata, name)

    def put(self, key: str, trace: Trace) -> bool:
        """Keep a trace; then let the oldest go until the limit holds.

        Parameters
        ----------
        key
            What `cache_key` gave.
        trace
            The trace.

        Returns
        -------
        bool
            False when it is larger than the limit, or when the folder cannot be written.
        """
        temporary = self.folder / f".{key[:16]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        try:
            temporary.mkdir(parents=True, mode=0o700)
            for table in TABLES:
                trace.table(table).write_ipc(temporary / f"{table}.arrow", compression="zstd")
            about = {"name": trace.name, "events": len(trace.events), "metadata": trace.metadata}
            (temporary / "about.json").write_text(json.dumps(about))
            if _size(temporary) > self.limit:
                return False
            # Another process may have been quicker with the same entry; ours is as good.
            with self._lock(), contextlib.suppress(OSError):
                temporary.rename(self.folder / key)
        except OSError:
            return False
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self.trim()
        return True

    def entries(self) -> list[Entry]:
        """All entries, those used last first."""
        found = []
        for place in self._places():
            try:
                about = json.loads((place / "about.json").read_text())
                used = (place / "about.json").stat().st_mtime
                found.append(Entry(place.name, str(about["name"]), _size(place), used, int(about["events"])))
            except (OSError, ValueError, KeyError, TypeError):
                # Being removed, or damaged: `get` sees to it.
                continue
        return sorted(found, key=lambda e: (-e.used, e.key))

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(_size(place) for place in self._places())

    def trim(self) -> None:
        """Remove what was not used for longest until the limit holds, and what dead processes left."""
        with self._lock():
            for left in self.folder.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    if time.time() - left.stat().st_mtime > STALE_SECONDS:
                        shutil.rmtree(left, ignore_errors=True)
            entries = self.entries()
            size = sum(e.size for e in entries)
            while size > self.limit and entries:
                oldest = entries.pop()
                shutil.rmtree(self.folder / oldest.key, ignore_errors=True)
                size -= oldest.size

    def clear(self) -> int:
        """Remove all entries; gives their number."""
        with self._lock():
            places = list(self._places())
            for place in places:
                shutil.rmtree(place, ignore_errors=True)
        return len(places)

    def _places(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from (p for p in self.folder.iterdir() if p.is_dir() and not p.name.startswith("."))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the folder's lock; without one (a read-only folder) there is nothing to protect."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = held.enter_context((self.folder / ".lock").open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _size(place: Path) -> int:
    """Bytes of an entry, which may be going while it is looked at."""
    total = 0
    with contextlib.suppress(OSError):
        for file in place.iterdir():
            total += file.stat().st_size
    return total
