"""Options of parsers: names are checked, so that a slip is refused and not ignored."""

from __future__ import annotations

from collections.abc import Mapping

from tracekit.errors import ParseError
from tracekit.near import did_you_mean

__all__ = ["OPTIONS", "checked"]

#: Every option that a format takes, and what it is. The format's card says which it looks at.
OPTIONS = {
    "careful": "read every line by the full grammar",
    "clock": "trace clock of a text that does not name it",
    "clock_hz": "ticks per second of a clock that counts ticks",
    "columns": "columns of a trcrpt report",
    "cpu": "CPU of a file of ring-buffer pages",
    "file": "name of the text, where it says what was recorded",
    "formats": "folder of the format files of ring-buffer pages",
    "header_page": "layout of a ring-buffer page",
    "offline": "Perfetto files: download no trace processor",
    "perfetto_addr": "Perfetto files: HOST:PORT of a running trace processor",
    "perfetto_bin": "Perfetto files: path of a trace processor",
    "kernel": "kernel that the trace is from, for its task states",
    "os": "system that the trace is from",
    "policy": "workload texts: policy in place of the one that the text names",
    "seed": "workload texts: seed of the times that are drawn",
    "pattern": "regular expression for free-form output",
}


def checked(options: Mapping[str, object]) -> dict[str, str]:
    """Give the options as text.

    Parameters
    ----------
    options
        Name to value.

    Raises
    ------
    ParseError
        For a name that no format takes, with the nearest one.
    """
    for name in options:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS, f"; expected one of {', '.join(OPTIONS)}")
            raise ParseError(f"unknown option {name!r}{hint}", code="option")
    return {name: str(value) for name, value in options.items()}
