"""Writes a file so that nobody sees half of it."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tracekit.errors import OutputError

#: Names of what is open already: there is nothing to replace.
OPEN = ("/dev/fd/", "/dev/std", "/proc/")
#: A disk, a quota or a limit that takes no more: errors without the name of the file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its name when the block ends well.

    When the block raises, the temporary file is removed and what stood at `path` stays. A symbolic
    link stays, too: the file that it names is replaced. Devices and pipes (``/dev/null``,
    ``/dev/stdout``) are written to.

    Parameters
    ----------
    path
        The file to write; ``-`` is standard output.

    Yields
    ------
    BinaryIO
        The temporary file, open for writing.

    Raises
    ------
    OutputError
        When the file cannot be made, or the disk takes no more.
    """
    if os.fspath(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    place = Path(path)
    if place.is_dir():
        raise OutputError(f"{path}: expected the name of a file, found a directory")
    if str(place.absolute()).startswith(OPEN) or (place.exists() and not place.is_file()):
        try:
            with _opened(place, "wb", path) as file:
                yield file
        except OSError as error:
            refuse_full(error, path)
            raise
        return
    target = place.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with _opened(temporary, "xb", path) as file:
            yield file
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        refuse_full(error, path)
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def refuse_full(error: OSError, path: str | os.PathLike[str]) -> None:
    """Raise with the name of the file or folder where it takes no more."""
    if error.filename is None and (number := _number(error)) in FULL:
        raise OutputError(f"{os.fspath(path)}: {os.strerror(number)}") from error


def _number(error: OSError) -> int:
    """Number of an error; libraries that are not Python's have it in their text only."""
    number = re.search(r"(?:os error|errno) (\d+)", str(error))
    return error.errno or (int(number[1]) if number else 0)


def _opened(place: Path, mode: str, path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return place.open(mode)  # type: ignore[return-value]
    except OSError as error:
        raise OutputError(f"{os.fspath(path)}: {error.strerror}") from error
