"""The long perf.data that parsers are measured with is in order, as that of one CPU is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MMAP, FORK, SAMPLE, ROUND = 1, 7, 9, 68


def record(kind: int, time: int) -> bytes:
    """A record with its time where `perf sched record` has it; those of perf itself have none."""
    if kind == ROUND:
        return struct.pack("<IHH", kind, 0, 8)
    # Words behind the head: a sample has its time at 32, others 24 before their end, a fork also at 24.
    words = {SAMPLE: [0, 0, 0, time, 0], FORK: [0, 0, time, time, 0, 0]}.get(kind, [0, 0, time, 0, 0])
    return struct.pack(f"<IHH{len(words)}Q", kind, 0, 8 + 8 * len(words), *words)


def times(data: bytes) -> list[tuple[int, int]]:
    """Kind and time of each record, as a parser takes it: of a fork the first one."""
    start, size = struct.unpack_from("<QQ", data, 40)
    found, at = [], start
    while at < start + size:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        place = {SAMPLE: 32, FORK: 24}.get(kind, length - 24)
        if kind != ROUND:
            found.append((kind, struct.unpack_from("<Q", data, at + place)[0]))
        at += length
    assert at == start + size
    return found


def test_copies_follow_one_another_and_what_was_there_before_is_stated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from longer import repeat_perf_data

    one = [(MMAP, 0), (SAMPLE, 1000), (FORK, 1500), (SAMPLE, 2000), (ROUND, 0)]
    records = b"".join(record(kind, time) for kind, time in one)
    head = bytearray(104)
    struct.pack_into("<QQ", head, 40, len(head), len(records))
    source, target = tmp_path / "one", tmp_path / "many"
    source.write_bytes(bytes(head) + records + b"tail")
    repeat_perf_data(source, target, 3)
    data = target.read_bytes()
    assert data.endswith(b"tail")
    found = times(data)
    assert [kind for kind, _ in found] == [MMAP, *[SAMPLE, FORK, SAMPLE] * 3]
    stamps = [time for _, time in found]
    assert stamps == sorted(stamps)
    assert stamps[-1] == 2000 + 2 * 2000
