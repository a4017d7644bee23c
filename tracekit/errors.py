"""The exceptions of tracekit."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "FilterError",
    "InternalError",
    "OutputError",
    "ParseError",
    "Position",
    "ReplayError",
    "TracekitError",
]


class TracekitError(Exception):
    """Anything that tracekit raises on purpose. Its text is one sentence that a user can act on.

    Attributes
    ----------
    status : int
        Exit status of a command that ends with it.
    """

    status = 2


@dataclass(frozen=True)
class Position:
    """Where in a source.

    Attributes
    ----------
    offset
        Byte offset in the decompressed source, `None` when unknown.
    line
        Line from 1, `None` for binary formats.
    """

    offset: int | None = None
    line: int | None = None


class ParseError(TracekitError, ValueError):
    """A source that cannot be read at all: no such file, unknown format, damaged head.

    A source that is damaged further on does not raise: its tables hold what could be read, and
    ``trace.diagnostics`` says what could not.

    Attributes
    ----------
    format : str
        Format that was being read, ``unknown`` when none was recognised.
    code : str
        ``unknown-format``, ``empty``, ``truncated``, ``damaged``, ``unsupported``, ``no-scheduler-events``, ``option`` or
        ``io``.
    position : Position
        Where it went wrong.
    """

    def __init__(
        self,
        message: str,
        format: str = "unknown",
        code: str = "damaged",
        offset: int | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.format = format
        self.code = code
        self.position = Position(offset, line)

    def __reduce__(self) -> tuple[type[ParseError], tuple[object, ...]]:
        return type(self), (str(self), self.format, self.code, self.position.offset, self.position.line)


class ReplayError(TracekitError, ValueError):
    """A replay that cannot be made: unknown policy or parameter, a value out of range, no workload in the trace."""


class FilterError(TracekitError, ValueError):
    """A filter that makes no sense: a time that is no time, a pattern that does not compile."""


class OutputError(TracekitError, ValueError):
    """A file that cannot be written as asked: an ending that names no kind, a kind that wants a file."""


class InternalError(TracekitError, RuntimeError):
    """A bug of tracekit itself. Its text names the place; please report it."""
