"""Makes a long perf.data of a short one: the lab's hold 31,000 events, read within 3 ms.

So short a parse is half taking memory from the system, which a long one does once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

#: Number of PERF_RECORD_SAMPLE, and the first number of perf's own records, which have no time.
SAMPLE, OWN = 9, 64
#: Where a sample of `perf sched record` has its time (behind header, identifier, ip and thread).
TIME = 32
#: Where other records have it, from their end (before stream, CPU and identifier).
TIME_FROM_END = 24
#: In the file's head: place and size of the records; bits of the features behind them.
RECORDS, FEATURES = 40, slice(72, 104)


def repeat_perf_data(source: Path, target: Path, times: int) -> None:
    """Write the records of a `perf sched record` `times` times, one copy after the other in time."""
    file = source.read_bytes()
    start, size = struct.unpack_from("<QQ", file, RECORDS)
    one = file[start : start + size]
    places = list(clocks(one))
    stamps = [stamp for stamp, _ in places if stamp]
    step = max(stamps) - min(stamps) + 1000
    head, tail = bytearray(file[:start]), bytearray(file[start + size :])
    struct.pack_into("<Q", head, RECORDS + 8, size * times)
    # Behind the records: place and size of each feature.
    for entry in range(int.from_bytes(file[FEATURES], "little").bit_count()):
        (at,) = struct.unpack_from("<Q", tail, entry * 16)
        struct.pack_into("<Q", tail, entry * 16, at + size * (times - 1))
    with target.open("wb") as out:
        out.write(head)
        for copy in range(times):
            records = bytearray(one)
            for stamp, at in places:
                # What is without a time was there before the recording.
                if stamp:
                    struct.pack_into("<Q", records, at, stamp + copy * step)
            out.write(records)
        out.write(tail)


def clocks(records: bytes) -> Iterator[tuple[int, int]]:
    """Time of each record of the kernel, and where it stands."""
    at = 0
    while at < len(records):
        kind, _, size = struct.unpack_from("<IHH", records, at)
        if kind < OWN:
            place = at + (TIME if kind == SAMPLE else size - TIME_FROM_END)
            yield struct.unpack_from("<Q", records, place)[0], place
        at += size
