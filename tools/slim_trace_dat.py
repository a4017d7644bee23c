"""Drop from a trace.dat (version 6) what its records do not need.

Other systems' event formats and kernel symbols.

A capture carries the format text of every event of the kernel and its whole symbol table, several
megabytes that say nothing about the records. This keeps the systems named on the command line and
the symbol of the marker function, and copies the ring-buffer pages unchanged.

    python tools/slim_trace_dat.py in.v6.dat out.v6.dat sched task
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

PAGE = 4096


class Cursor:
    """A position in the file that moves on with each field read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> bytes:
        """Return the next `n` bytes."""
        piece = self.data[self.at : self.at + n]
        self.at += n
        return piece

    def text(self) -> bytes:
        """Return the string up to and including its NUL."""
        return self.take(self.data.index(b"\0", self.at) + 1 - self.at)

    def number(self, code: str) -> int:
        """Return one little-endian number."""
        value: int = struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]
        return value

    def sized(self, code: str) -> bytes:
        """Return a block that is preceded by its length."""
        return self.take(self.number(code))


def systems(cur: Cursor, keep: set[bytes]) -> bytes:
    """Return the section of event formats with only the systems in `keep`."""
    kept = []
    for _ in range(cur.number("I")):
        name = cur.text()
        count = cur.number("I")
        formats = [cur.sized("Q") for _ in range(count)]
        if name.rstrip(b"\0") in keep:
            body = b"".join(struct.pack("<Q", len(f)) + f for f in formats)
            kept.append(name + struct.pack("<I", count) + body)
    return struct.pack("<I", len(kept)) + b"".join(kept)


def symbols(cur: Cursor) -> bytes:
    """Return the symbol section with only the function that writes markers.

    And the next one, where it ends.
    """
    lines = cur.sized("I").splitlines(keepends=True)
    marks = [i for i, line in enumerate(lines) if line.split()[2:3] == [b"tracing_mark_write"]]
    kept = b"".join(lines[marks[0] : marks[0] + 2]) if marks else b""
    return struct.pack("<I", len(kept)) + kept


def slim(data: bytes, keep: set[bytes]) -> bytes:
    """Return the file `data` without the formats of other systems and without kernel symbols."""
    cur = Cursor(data)
    cur.take(10)
    if data[:10] != b"\x17\x08Dtracing" or cur.text() != b"6\0" or cur.take(1) != b"\0":
        raise SystemExit("expected a little-endian trace.dat of version 6 (make one with trace-cmd convert)")
    cur.take(5)
    for _ in range(2):
        cur.text()
        cur.sized("Q")
    for _ in range(cur.number("I")):
        cur.sized("Q")
    head = data[: cur.at] + systems(cur, keep) + symbols(cur)
    start = cur.at
    cur.sized("I")
    cur.sized("Q")
    cpus = cur.number("I")
    if cur.take(10) == b"options  \0":
        while cur.number("H"):
            cur.sized("I")
        cur.take(10)
    head += data[start : cur.at]
    pages = [(cur.number("Q"), cur.number("Q")) for _ in range(cpus)]
    at = len(head) + 16 * cpus
    table, body = b"", b""
    for offset, size in pages:
        pad = -(at + len(body)) % PAGE
        body += b"\0" * pad
        table += struct.pack("<QQ", at + len(body), size)
        body += data[offset : offset + size]
    return head + table + body


if __name__ == "__main__":
    source, target, *names = sys.argv[1:]
    Path(target).write_bytes(slim(Path(source).read_bytes(), {name.encode() for name in names}))
