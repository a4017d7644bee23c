"""Tells Perfetto traces by their bytes; kept light, since every file is looked at."""

from __future__ import annotations

import io
import lzma
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tracekit._lazy import later

if TYPE_CHECKING:
    import zipfile
else:
    zipfile = later("zipfile")

__all__ = ["XZ", "ZIP", "first_bytes", "looks_like_perfetto", "recognises", "traces_in_zip"]

# Bytes that decide what a file is.
HEAD = 65_536
# Largest field number of a packet, and how many packets have to look right.
LARGEST_FIELD, ENOUGH_PACKETS = 2000, 4
ZIP, XZ = b"PK\x03\x04", b"\xfd7zXZ\0"


def looks_like_perfetto(head: bytes, size: int | None = None) -> bool:
    """Tell a Perfetto trace by its first bytes.

    A trace is a row of packets: each is field 1, a length, and so many bytes that begin with another
    field. There is no magic number, so several packets have to fit, or all of a small file.

    Parameters
    ----------
    head
        The first bytes.
    size
        Size of the file, None when it is not known.
    """
    at = packets = 0
    while at < len(head) and packets < ENOUGH_PACKETS:
        if head[at] != 0x0A:
            return False
        length, start = _number(head, at + 1)
        if not length:
            return False
        if start < len(head):
            tag, _ = _number(head, start)
            if tag is None or tag & 7 not in (0, 1, 2, 5) or not 0 < tag >> 3 <= LARGEST_FIELD:
                return False
        at = start + length
        packets += 1
    if packets == ENOUGH_PACKETS or (packets and at == size):
        return True
    # A packet larger than the head: text that begins with an empty line can look like one.
    return bool(packets) and size is not None and at < size and b"\0" in head


def _number(data: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7
    return None, at


def sniff(head: bytes, size: int | None = None) -> bool:
    """Tell a Perfetto trace, compressed by gzip or xz or not, by its first bytes; `size` is the file's."""
    if head.startswith(b"\x1f\x8b"):
        return looks_like_perfetto(_inflate(head))
    if head.startswith(XZ):
        return looks_like_perfetto(_decompress_xz(head))
    return looks_like_perfetto(head, size)


def recognises(source: str | bytes) -> bool:
    """Tell whether a file, or the bytes of one, is a Perfetto trace or a zip that holds one."""
    try:
        if isinstance(source, bytes):
            head, size = source[:HEAD], len(source)
        else:
            path = Path(source)
            if not path.is_file():
                return False
            head, size = first_bytes(source), path.stat().st_size
        if head.startswith(ZIP):
            return bool(traces_in_zip(io.BytesIO(source) if isinstance(source, bytes) else source))
    except (OSError, zipfile.BadZipFile):
        # Whoever reads it will say what is wrong.
        return False
    return sniff(head, size)


def _inflate(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(head, HEAD)
    except zlib.error:
        return b""


def _decompress_xz(head: bytes) -> bytes:
    try:
        return lzma.LZMADecompressor().decompress(head, HEAD)
    except lzma.LZMAError:
        return b""


def traces_in_zip(source: IO[bytes] | str) -> list[str]:
    """Name the Perfetto traces in a zip (an Android bug report), the largest first."""
    found: list[tuple[int, str]] = []
    with zipfile.ZipFile(source) as archive:
        for entry in archive.infolist():
            if entry.file_size and not entry.is_dir():
                with archive.open(entry) as file:
                    head = file.read(HEAD)
                if sniff(head, entry.file_size):
                    found.append((entry.file_size, entry.filename))
    return [name for _, name in sorted(found, reverse=True)]


def first_bytes(path: str, size: int = HEAD) -> bytes:
    """The beginning of a file."""
    with Path(path).open("rb") as file:
        return file.read(size)
