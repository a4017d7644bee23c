"""Names of files as text: most systems allow bytes in them that are no UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

from tracekit.errors import OutputError

__all__ = ["check_name", "file_name"]


def _text(path: str | os.PathLike[str]) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def file_name(path: str | os.PathLike[str]) -> str:
    r"""The last part of a path as text: bytes that are no UTF-8 are written out, as ``\xff``.

    Examples
    --------
    >>> import os
    >>> print(file_name(os.fsdecode(b"day/caf\xe9.dat")))
    caf\xe9.dat
    """
    return _text(Path(path).name)


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a path that the libraries of Parquet and Arrow cannot open.

    Raises
    ------
    OutputError
        When bytes of it are no UTF-8.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise OutputError(
            f"{_text(path)}: Parquet and Arrow files need a name in UTF-8; rename it, or its folder"
        ) from None
