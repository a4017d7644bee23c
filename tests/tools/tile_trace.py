"""Make a long text trace out of a short one: the records again and again, each time later.

    python tests/tools/tile_trace.py capture.txt -o long.txt --size 2GB

Every copy is moved in time by the length of the capture, so that the result is one trace in time
order. Names, numbers and all other text stay as they are: what a line says is real, only when it
says so is not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

#: The time stamp of a line of ftrace text: seconds and their fraction, then a colon.
STAMP = re.compile(rb"^(.*?\s)(\d+)\.(\d{6}|\d{9})(: .*)$", re.DOTALL)
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


def tiles(lines: list[bytes], size: int) -> Iterator[bytes]:
    """Pieces of the long trace, until there are `size` bytes."""
    records: list[tuple[bytes, int, bytes]] = []
    head: list[bytes] = []
    digits = 0
    for line in lines:
        match = STAMP.match(line)
        if match is None:
            if not records:
                head.append(line)
            continue
        digits = len(match[3])
        records.append((match[1], int(match[2] + match[3]), match[4]))
    if not records:
        raise SystemExit("no line with a time stamp such as `12.345678:` found")
    scale = 10**digits
    times = [time for _, time, _ in records]
    span = max(times) - min(times) + scale // 1000
    yield b"".join(head)
    done, shift = sum(map(len, head)), 0
    while done < size:
        piece = b"".join(
            b"%b%d.%0*d%b" % (before, (time + shift) // scale, digits, (time + shift) % scale, after)
            for before, time, after in records
        )
        yield piece
        done += len(piece)
        shift += span


def parse_size(text: str) -> int:
    """Bytes of `2GB`, `500MB`."""
    number, unit = text[:-2], text[-2:]
    if unit not in UNITS:
        raise argparse.ArgumentTypeError("expected a size such as 500MB or 2GB")
    return int(Decimal(number) * UNITS[unit])


def tile(source: Path, target: Path, size: int) -> None:
    """Write the long trace.

    Parameters
    ----------
    source
        Text capture.
    target
        File to write.
    size
        Its size in bytes, at least.
    """
    lines = source.read_bytes().splitlines(keepends=True)
    with target.open("wb") as file:
        for piece in tiles(lines, size):
            file.write(piece)


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--size", type=parse_size, default=2 * 10**9, help="such as 500MB or 2GB (the default)"
    )
    given = parser.parse_args()
    tile(given.source, given.output, given.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
