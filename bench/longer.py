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
#: A task that ends, or is made: such a record states its time a second time, here.
ENDS_AND_FORKS, THEIR_TIME = (4, 7), 24
#: In the file's head: place and size of the records; bits of the features behind them.
RECORDS, FEATURES = 40, slice(72, 104)


def repeat_perf_data(source: Path, target: Path, times: int) -> None:
    """Write the records of a `perf sched record` `times` times, one copy after the other in time."""
    file = source.read_bytes()
    start, size = struct.unpack_from("<QQ", file, RECORDS)
    first = file[start : start + size]
    # What is without a time was there before the recording: it is stated once.
    again = b"".join(first[at : at + long] for at, long, stamp in records_of(first) if stamp != 0)
    places = list(clocks(again))
    stamps = [stamp for stamp, _ in places]
    step = max(stamps) - min(stamps) + 1000
    head, tail = bytearray(file[:start]), bytearray(file[start + size :])
    more = len(again) * (times - 1)
    struct.pack_into("<Q", head, RECORDS + 8, size + more)
    # Behind the records: place and size of each feature.
    for entry in range(int.from_bytes(file[FEATURES], "little").bit_count()):
        (at,) = struct.unpack_from("<Q", tail, entry * 16)
        struct.pack_into("<Q", tail, entry * 16, at + more)
    with target.open("wb") as out:
        out.write(head)
        out.write(first)
        for copy in range(1, times):
            records = bytearray(again)
            for stamp, at in places:
                struct.pack_into("<Q", records, at, stamp + copy * step)
            out.write(records)
        out.write(tail)


def records_of(records: bytes) -> Iterator[tuple[int, int, int | None]]:
    """Place, size and time of each record; those of perf itself have none."""
    at = 0
    while at < len(records):
        kind, _, size = struct.unpack_from("<IHH", records, at)
        time = at + (TIME if kind == SAMPLE else size - TIME_FROM_END)
        yield at, size, struct.unpack_from("<Q", records, time)[0] if kind < OWN else None
        at += size


def clocks(records: bytes) -> Iterator[tuple[int, int]]:
    """The times of the kernel's records, and where they stand."""
    for at, size, stamp in records_of(records):
        (kind,) = struct.unpack_from("<I", records, at)
        if stamp is None:
            continue
        yield stamp, at + (TIME if kind == SAMPLE else size - TIME_FROM_END)
        if kind in ENDS_AND_FORKS:
            yield struct.unpack_from("<Q", records, at + THEIR_TIME)[0], at + THEIR_TIME
