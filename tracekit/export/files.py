"""Writes a file so that nobody sees half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its name when the block ends well.

    When the block raises, the temporary file is removed and what stood at `path` stays.

    Parameters
    ----------
    path
        The file to write.

    Yields
    ------
    BinaryIO
        The temporary file, open for writing and reading.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("x+b") as file:
            yield file
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
