"""Reading and writing traces.

Any format of `tracekit formats`, and tracekit's own Parquet and Arrow files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit.io.one_pass import survey
    from tracekit.io.reading import convert, read, scan

__all__ = ["convert", "read", "scan", "survey"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, "reading") | {"survey": "one_pass"})
