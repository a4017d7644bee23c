"""What goes wrong with a trace processor."""

from __future__ import annotations

from tracekit.errors import TracekitError

__all__ = ["EngineError"]


class EngineError(TracekitError, RuntimeError):
    """No trace processor can be had, or it failed; the text says what to do."""
