"""Writes traces in other tools' formats: Chrome JSON and LISA's Parquet.

For Perfetto see `tracekit.perfetto`. Parts are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit.export.chrome import write_chrome_json
    from tracekit.export.lisa import LisaExport, write_lisa

__all__ = ["LisaExport", "write_chrome_json", "write_lisa"]

_HOMES = {"LisaExport": "lisa", "write_chrome_json": "chrome", "write_lisa": "lisa"}

__getattr__ = lazy(__name__, _HOMES)
