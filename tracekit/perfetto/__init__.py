"""Perfetto both ways: traces in through its trace processor, traces out as its protobuf.

Parts are loaded when they are first used: writing needs neither the `perfetto` package nor an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit.perfetto.engine import EngineOptions, QueryError, Session
    from tracekit.perfetto.export import Exported, write_perfetto, write_perfetto_to
    from tracekit.perfetto.failure import EngineError
    from tracekit.perfetto.loading import load, sql
    from tracekit.perfetto.read import read_perfetto

__all__ = [
    "EngineError",
    "EngineOptions",
    "Exported",
    "QueryError",
    "Session",
    "load",
    "read_perfetto",
    "sql",
    "write_perfetto",
    "write_perfetto_to",
]

_HOMES = {
    "EngineError": "failure",
    "EngineOptions": "engine",
    "Exported": "export",
    "QueryError": "engine",
    "Session": "engine",
    "load": "loading",
    "read_perfetto": "read",
    "sql": "loading",
    "write_perfetto": "export",
    "write_perfetto_to": "export",
}


__getattr__ = lazy(__name__, _HOMES)
