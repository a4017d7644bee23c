"""The exceptions of tracekit."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "FilterError",
    "FilterWarning",
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

    Examples
    --------
    >>> import tracekit as tk
    >>> try:
    ...     tk.read("no-such-file.dat")
    ... except tk.TracekitError as error:
    ...     print(error.status)
    2
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

    Examples
    --------
    >>> import tracekit as tk
    >>> tk.Position(line=7)
    Position(offset=None, line=7)
    """

    offset: int | None = None
    line: int | None = None


class ParseError(TracekitError, ValueError):
    """A source that cannot be read at all: no such file, unknown format, damaged header.

    A source that is damaged further on does not raise: its tables hold what could be read, and
    ``trace.diagnostics`` says what could not.

    Attributes
    ----------
    format : str
        Format that was being read, ``unknown`` when none was recognised.
    code : str
        ``unknown-format``, ``empty``, ``truncated``, ``damaged``, ``unsupported``,
        ``no-scheduler-events``, ``option`` or ``io``.
    position : Position
        Where it went wrong.

    Examples
    --------
    >>> import tracekit as tk
    >>> try:
    ...     tk.read(b"neither a trace nor a workload")
    ... except tk.ParseError as error:
    ...     print(error.code)
    unknown-format
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
    """A replay that cannot be made.

    An unknown policy or parameter, a value out of range, no workload in the trace.

    Examples
    --------
    >>> import tracekit as tk
    >>> try:
    ...     tk.simulate("A: R5", policy="rr:quantum=1")
    ... except tk.ReplayError as error:
    ...     print("time with its unit" in str(error))
    True
    """


class FilterError(TracekitError, ValueError):
    """A filter that makes no sense: a time that is no time, a pattern that does not compile.

    Examples
    --------
    >>> import tracekit as tk
    >>> try:
    ...     tk.simulate("A: R5", "fifo").filter(start="soon")
    ... except tk.FilterError as error:
    ...     print(type(error).__name__)
    FilterError
    """


class FilterWarning(UserWarning):
    r"""A filter that nothing meets, or a replay of a part of the tasks or CPUs: it lacks the others.

    Examples
    --------
    >>> import tracekit as tk, warnings
    >>> whole = tk.simulate("policy: fifo\nA: (R1 S1)*3\nB: R5")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     _ = tk.replay(whole.filter(comm="A"), "fifo")
    >>> str(caught[0].message)[:59]
    'filtered out before the replay: 1 of 2 tasks, with 62 % of '
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     _ = whole.filter(comm="C")
    >>> str(caught[0].message)
    'comm C: no task of the trace fits; it has A, B'
    """


class OutputError(TracekitError, ValueError):
    """A file that cannot be written as asked: an ending that names no kind, a kind that wants a file.

    Examples
    --------
    >>> import tracekit as tk
    >>> try:
    ...     tk.simulate("A: R5", "fifo").write("slices.xls", table="slices")
    ... except tk.OutputError as error:
    ...     print(error)
    slices.xls: expected a name that ends in .parquet, .arrow or .csv
    """


class InternalError(TracekitError, RuntimeError):
    """A bug of tracekit itself. Its text names the place; please report it.

    Examples
    --------
    >>> import tracekit as tk
    >>> issubclass(tk.InternalError, tk.TracekitError)
    True
    """
