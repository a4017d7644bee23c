"""Write the fixtures under fixtures/perf-data from a capture of the lab (testdata/lab).

The records are those of the capture; what is made is the container around them: a stream,
compression, another byte order, rounds out of order, losses, perf's own switch records in place of
tracepoints.

    python tools/perf_data_fixtures.py
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from trace_dat_fixtures import FIELD, swap_record

ROOT = Path(__file__).parent.parent
LAB = ROOT / "testdata" / "lab"
OUT = ROOT / "fixtures" / "perf-data"
ATTR = 144
COMM, EXIT, FORK, SAMPLE, LOST, SWITCH, WIDE, ROUND = 3, 4, 7, 9, 2, 14, 15, 68
LOST_SAMPLES, FORMAT_LOST = 13, 16
TRACING_DATA, HOSTNAME, ARCH, NRCPUS, CMDLINE, EVENT_DESC, COMPRESSED = 1, 3, 6, 7, 11, 12, 27
# Offset of the time in a sample, and of the raw field; the layout of `perf sched record`.
TIME, CPU, RAW = 32, 40, 56


@dataclass
class Perf:
    """A little-endian perf.data in parts."""

    attrs: list[tuple[bytes, list[int]]]
    records: list[bytes]
    features: dict[int, bytes]


def kind(record: bytes) -> int:
    """Return the number of a record's kind."""
    value: int = struct.unpack_from("<I", record)[0]
    return value


def time(record: bytes) -> int:
    """Return the time of a sample, or of a record with a trailer."""
    value: int = struct.unpack_from("<Q", record, TIME if kind(record) == SAMPLE else len(record) - 24)[0]
    return value


def read(path: Path, samples: int) -> Perf:
    """Read the head, the task records and the first samples of a file."""
    data = path.read_bytes()
    _, _, attr_at, attr_size, at, size, _, _, flags = struct.unpack_from("<9Q", data, 8)
    attrs = []
    for one in range(attr_at, attr_at + attr_size, ATTR):
        ids_at, ids_size = struct.unpack_from("<QQ", data, one + 128)
        attrs.append((data[one : one + 128], list(struct.unpack_from(f"<{ids_size // 8}Q", data, ids_at))))
    table, features = at + size, {}
    for bit in range(64):
        if flags >> bit & 1:
            where, length = struct.unpack_from("<QQ", data, table)
            table += 16
            features[bit] = data[where : where + length]
    records, seen = [], 0
    while at < table and seen < samples:
        length = struct.unpack_from("<H", data, at + 6)[0]
        record = data[at : at + length]
        at += length
        if kind(record) in (COMM, EXIT, FORK, SAMPLE) and len(record) < 4096:
            records.append(record)
            seen += kind(record) == SAMPLE
    keep = (TRACING_DATA, ARCH, NRCPUS, EVENT_DESC)
    return Perf(attrs, records, {k: v for k, v in features.items() if k in keep})


def round_mark() -> bytes:
    """Return a record that ends a round."""
    return struct.pack("<IHH", ROUND, 0, 8)


def write(perf: Perf, killed: bool = False) -> bytes:
    """Return `perf` as a file."""
    ids_at = 104
    ids = b"".join(struct.pack(f"<{len(n)}Q", *n) for _, n in perf.attrs)
    attr_at, at, attrs = ids_at + len(ids), ids_at, b""
    for attr, numbers in perf.attrs:
        attrs += attr + struct.pack("<QQ", at, 8 * len(numbers))
        at += 8 * len(numbers)
    body = b"".join(perf.records)
    start = attr_at + len(attrs)
    flags = sum(1 << bit for bit in perf.features)
    size = 0 if killed else len(body)
    head = b"PERFILE2" + struct.pack(
        "<9Q", 104, ATTR, attr_at, len(attrs), start, size, 0, 0, 0 if killed else flags
    )
    out = head.ljust(104, b"\0") + ids + attrs + body
    if killed:
        return out
    offset = len(out) + 16 * len(perf.features)
    table, blobs = b"", b""
    for _, blob in sorted(perf.features.items()):
        table += struct.pack("<QQ", offset + len(blobs), len(blob))
        blobs += blob
    return out + table + blobs


def pipe(perf: Perf) -> bytes:
    """Return `perf` as a stream."""
    out = b"PERFILE2" + struct.pack("<Q", 16)
    for attr, numbers in perf.attrs:
        ids = struct.pack(f"<{len(numbers)}Q", *numbers)
        out += struct.pack("<IHH", 64, 0, 8 + len(attr) + len(ids)) + attr + ids
    for number in (ARCH, NRCPUS):
        data = perf.features[number]
        data += b"\0" * (-len(data) % 8)
        out += struct.pack("<IHHQ", 80, 0, 16 + len(data), number) + data
    formats = perf.features[TRACING_DATA]
    formats += b"\0" * (-len(formats) % 8)
    return out + struct.pack("<IHHII", 66, 0, 16, len(formats), 0) + formats + b"".join(perf.records)


def packed(perf: Perf, number: int, piece: int) -> Perf:
    """Compress all records, cut into pieces without regard to where those inside begin."""
    command = ["zstd", "-q", "-3", "--stdout", "--no-check"]
    stream = b"".join(perf.records)
    records = []
    for at in range(0, len(stream), piece):
        data = subprocess.run(command, input=stream[at : at + piece], capture_output=True, check=True).stdout
        if number == 83:
            body = struct.pack("<Q", len(data)) + data + b"\0" * (-len(data) % 8)
        else:
            body = data
        records.append(struct.pack("<IHH", number, 0, 8 + len(body)) + body)
    features = {**perf.features, COMPRESSED: struct.pack("<5I", 1, 1, 3, 4, 1 << 20)}
    return replace(perf, records=records, features=features)


def two_cpus(perf: Perf) -> Perf:
    """Give every second sample to CPU 1.

    Each CPU's samples of a round are written in one piece, as perf does.
    """
    samples = [r for r in perf.records if kind(r) == SAMPLE]
    records = [r for r in perf.records if kind(r) == COMM and time(r) == 0]
    halves: list[list[bytes]] = [[], []]
    for i, record in enumerate(samples):
        halves[i % 2].append(record[:CPU] + struct.pack("<I", i % 2) + record[CPU + 4 :])
    step = len(halves[0]) // 4 + 1
    # CPU 1 lags by half a round, so a round's last records are newer than the next one's first.
    for at in range(0, len(halves[0]), step):
        records += halves[0][at : at + step]
        records += halves[1][max(0, at - step // 2) : at + step - step // 2]
        records.append(round_mark())
    records += halves[1][at + step - step // 2 :]
    return replace(perf, records=records)


def with_losses(perf: Perf) -> Perf:
    """Take out ten samples and put the record in their place with which the kernel reports that."""
    samples = [i for i, r in enumerate(perf.records) if kind(r) == SAMPLE]
    first, after = samples[100], samples[110]
    identifier = struct.unpack_from("<Q", perf.records[after], 8)[0]
    # Trailer: pid, tid, time, cpu, reserved, identifier.
    trailer = struct.pack("<iiQIIQ", 0, 0, time(perf.records[after]), 0, 0, identifier)
    record = struct.pack("<IHHQQ", LOST, 0, 24 + len(trailer), identifier, 10) + trailer
    return replace(perf, records=[*perf.records[:first], record, *perf.records[after:]])


def with_losses_read(perf: Perf, behind: int) -> Perf:
    """Add to `with_losses` what perf reads from the events at the end.

    The ten samples again, those that were lost behind the last record, and samples that a filter
    left out.
    """
    lossy = with_losses(perf)
    first = next(r for r in lossy.records if kind(r) == LOST)
    (event,) = struct.unpack_from("<Q", first, 8)
    other = next(n[0] for _, n in perf.attrs if event not in n)
    attrs = []
    for attr, numbers in perf.attrs:
        (asked,) = struct.unpack_from("<Q", attr, 32)
        attrs.append((attr[:32] + struct.pack("<Q", asked | FORMAT_LOST) + attr[40:], numbers))

    def read_at_end(number: int, count: int, flags: int = 0) -> bytes:
        trailer = struct.pack("<iiQIIQ", 0, 0, 0, 0, 0, number)
        return struct.pack("<IHHQ", LOST_SAMPLES, flags, 16 + len(trailer), count) + trailer

    read = [read_at_end(event, 7), read_at_end(other, 3 + behind), read_at_end(event, 100, 1 << 15)]
    return Perf(attrs, lossy.records + read, perf.features)


def command_line(perf: Perf, line: str, cpus: int) -> Perf:
    """Add the words of the command that recorded, on a machine of so many CPUs."""
    words = line.split()
    data = struct.pack("<I", len(words))
    for word in words:
        text = word.encode() + b"\0"
        text += b"\0" * (-len(text) % 64)
        data += struct.pack("<I", len(text)) + text
    return replace(perf, features={**perf.features, CMDLINE: data, NRCPUS: struct.pack("<II", cpus, cpus)})


def of_cpu(perf: Perf, cpu: int) -> Perf:
    """Leave out the samples of other CPUs."""
    records = [r for r in perf.records if kind(r) != SAMPLE or struct.unpack_from("<I", r, CPU)[0] == cpu]
    return replace(perf, records=records)


def of_task(perf: Perf, tid: int) -> Perf:
    """Leave the samples that a recording of one task has: those that it makes, and its wakeups."""
    records = []
    for record in perf.records:
        if kind(record) == SAMPLE:
            (maker,) = struct.unpack_from("<i", record, 28)
            woken = b"sched_wak" in event_name(perf, record)
            (subject,) = struct.unpack_from("<i", record, RAW + 4 + 24)
            if maker != tid and not (woken and subject == tid):
                continue
        records.append(record)
    return replace(perf, records=records)


def own_switches(perf: Perf, wide: bool) -> Perf:
    """Put perf's own switch records in place of the sched_switch samples, and drop all other samples."""
    attr = bytearray(perf.attrs[0][0])
    config = struct.unpack_from("<Q", attr, 8)[0]
    struct.pack_into("<IIQ", attr, 0, 1, 128, 9)
    flags = struct.unpack_from("<Q", attr, 40)[0]
    struct.pack_into("<Q", attr, 40, flags | 1 << 26)
    records, identifier = [], perf.attrs[0][1][0]
    for record in perf.records:
        if kind(record) != SAMPLE:
            records.append(record)
        elif struct.unpack_from("<H", record, RAW + 4)[0] == config:
            old, _, state = struct.unpack_from("<iiq", record, RAW + 4 + 24)
            (new,) = struct.unpack_from("<i", record, RAW + 4 + 56)
            preempted = 0x4000 if state & 0x100 or state == 0 else 0
            for misc, me, other in ((0x2000 | preempted, old, new), (0, new, old)):
                body = struct.pack("<ii", other, other) if wide else b""
                body += struct.pack("<iiQIIQ", me, me, time(record), 0, 0, identifier)
                records.append(struct.pack("<IHH", WIDE if wide else SWITCH, misc, 8 + len(body)) + body)
    features = {k: v for k, v in perf.features.items() if k in (ARCH, NRCPUS)}
    return Perf([(bytes(attr), [identifier])], records, features)


def twice(perf: Perf) -> Perf:
    """Deliver each wakeup twice, as per-task recordings do."""
    records = []
    for record in perf.records:
        records.append(record)
        if kind(record) == SAMPLE and b"sched_wak" in event_name(perf, record):
            records.append(record)
    return replace(perf, records=records)


def named_twice(perf: Perf) -> Perf:
    """Add a second event of sched_switch, as a command does that names it beside `sched:*`."""
    switches = [
        r for r in perf.records if kind(r) == SAMPLE and event_name(perf, r) == b"name: sched_switch\n"
    ]
    config = struct.unpack_from("<H", switches[0], RAW + 4)[0]
    (attr,) = (a for a, _ in perf.attrs if struct.unpack_from("<Q", a, 8)[0] == config)
    number, records = 1 + max(n for _, numbers in perf.attrs for n in numbers), []
    for record in perf.records:
        records.append(record)
        if record in switches:
            copy = bytearray(record)
            struct.pack_into("<Q", copy, 8, number)
            struct.pack_into("<Q", copy, TIME, time(record) + 600)
            records.append(bytes(copy))
    return replace(perf, attrs=[*perf.attrs, (attr, [number])], records=records)


def event_name(perf: Perf, record: bytes) -> bytes:
    """Return the name of a sample's event."""
    number = struct.unpack_from("<H", record, RAW + 4)[0]
    text = perf.features[TRACING_DATA]
    at = text.index(b"ID: %d\n" % number)
    return text[text.rindex(b"name: ", 0, at) : at]


def swap(data: bytes, widths: str) -> bytes:
    """Swap the bytes of the integers of the given widths, one after the other."""
    out, at = b"", 0
    for width in map(int, widths):
        out += data[at : at + width][::-1]
        at += width
    return out + data[at:]


def big_endian(perf: Perf) -> bytes:
    """Return `perf` as a big-endian machine writes it."""
    formats = perf.features[TRACING_DATA]
    fields = {}
    for text in formats.split(b"name: ")[1:]:
        number = text.split(b"ID: ")[1].split(b"\n")[0]
        fields[int(number)] = [(d, int(o), int(s)) for d, o, s in FIELD.findall(text.decode("latin1"))]
    records = []
    for record in perf.records:
        head, body = swap(record[:8], "422"), record[8:]
        if kind(record) == SAMPLE:
            (length,) = struct.unpack_from("<I", record, RAW)
            raw = record[RAW + 4 : RAW + 4 + length]
            raw = swap_record(raw, fields[struct.unpack_from("<H", raw)[0]])
            body = swap(record[8:RAW], "88448448") + struct.pack(">I", length) + raw
        elif kind(record) == COMM:
            body = swap(body[:8], "44") + body[8:-32] + swap(body[-32:], "448448")
        elif kind(record) in (FORK, EXIT):
            body = swap(body, "44448448448"[: 5 + 6])
        records.append(head + body)
    attrs = []
    for attr, numbers in perf.attrs:
        flags = struct.unpack_from("<Q", attr, 40)[0]
        reversed_flags = int(f"{flags:064b}"[::-1], 2)
        new = (
            swap(attr[:40], "4488888"[:6])
            + struct.pack(">Q", reversed_flags)
            + swap(attr[48:], "448888448422448")
        )
        attrs.append((new.ljust(128, b"\0"), numbers))
    tracing = big_endian_formats(formats)
    # Without a host name perf takes the feature bits for those of a 32-bit machine.
    host = struct.pack(">I", 8) + b"big".ljust(8, b"\0")
    little = write(Perf(attrs, records, {TRACING_DATA: tracing, HOSTNAME: host}))
    # The container's own integers.
    start = struct.unpack_from("<Q", little, 40)[0]
    out = bytearray(little)
    out[:8] = b"2ELIFREP"
    out[8:104] = swap(little[8:104], "8" * 12)
    count = sum(len(n) for _, n in attrs)
    out[104 : 104 + 8 * count] = swap(little[104 : 104 + 8 * count], "8" * count)
    for at in range(104 + 8 * count, start, ATTR):
        out[at + 128 : at + 144] = swap(little[at + 128 : at + 144], "88")
    table = start + sum(map(len, records))
    out[table : table + 32] = swap(little[table : table + 32], "8888")
    return bytes(out)


def big_endian_formats(data: bytes) -> bytes:
    """Turn the numbers between the texts of the format block."""
    at = data.index(b"\0", 10) + 1
    out = data[:at] + b"\x01" + data[at + 1 : at + 2] + data[at + 2 : at + 6][::-1]
    at += 6

    def number(width: int) -> int:
        nonlocal at, out
        raw = data[at : at + width]
        at += width
        out += raw[::-1]
        return int.from_bytes(raw, "little")

    def copy(length: int) -> None:
        nonlocal at, out
        out += data[at : at + length]
        at += length

    for _ in range(2):
        copy(data.index(b"\0", at) + 1 - at)
        copy(number(8))
    for _ in range(number(4)):
        copy(number(8))
    for _ in range(number(4)):
        copy(data.index(b"\0", at) + 1 - at)
        for _ in range(number(4)):
            copy(number(8))
    copy(number(4))
    copy(number(4))
    if at < len(data):
        copy(number(8))
    return out


def cut_formats(perf: Perf) -> Perf:
    """Drop the texts of trace_printk, which no event here uses."""
    data = perf.features[TRACING_DATA]
    at = data.rindex(b"print fmt")
    at = data.index(b"\n", at) + 1
    kallsyms, printk = struct.unpack_from("<I", data, at)[0], at + 4
    printk += kallsyms
    length = struct.unpack_from("<I", data, printk)[0]
    shorter = data[:printk] + bytes(4) + data[printk + 4 + length :]
    return replace(perf, features={**perf.features, TRACING_DATA: shorter})


def put(case: str, data: bytes) -> None:
    """Write the input of `case`."""
    folder = OUT / case
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.data").write_bytes(data)


def main() -> None:
    """Write all fixtures."""
    perf = cut_formats(read(LAB / "6.1-perf" / "forkwait-0.perf.data", 200))
    plain = write(perf)
    put("file", plain)
    put("pipe", pipe(perf))
    put("compressed", write(packed(perf, 81, 5000)))
    put("compressed-2", write(packed(perf, 83, 5000)))
    put(
        "compressed-damaged",
        write(packed(perf, 81, 5000)).replace(b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe", 1),
    )
    put("big-endian", big_endian(perf))
    put("two-cpus-in-rounds", write(two_cpus(perf)))
    put("lost-records", write(with_losses(perf)))
    put("lost-read-at-end", write(with_losses_read(perf, 0)))
    put("lost-behind-the-last", write(with_losses_read(perf, 5)))
    put(
        "one-cpu-of-two",
        write(command_line(of_cpu(two_cpus(perf), 1), "perf sched record -C 1 -- sleep 1", 2)),
    )
    put("some-tasks", write(command_line(of_task(perf, 611), "perf record -e sched:* -p 611 -- sleep 1", 1)))
    put("own-switch-records", write(own_switches(perf, wide=False)))
    put("own-switch-records-cpu-wide", write(own_switches(perf, wide=True)))
    put("wakeups-twice", write(twice(perf)))
    put("event-twice", write(named_twice(perf)))
    put("killed", write(replace(perf, records=perf.records[-30:]), killed=True))
    put("cut-in-records", plain[: plain.index(perf.records[-20]) + 17])
    broken = bytearray(plain)
    at = plain.index(perf.records[-20])
    broken[at + 6 : at + 8] = b"\3\0"
    put("damaged-record", bytes(broken))
    cycles = bytearray(perf.attrs[0][0])
    struct.pack_into("<IIQ", cycles, 0, 0, 128, 0)
    put("no-scheduler-events", write(Perf([(bytes(cycles), [1])], [], {})))
    put("cut-in-head", plain[:300])
    put("version-1", b"PERFFILE" + plain[8:400])


if __name__ == "__main__":
    main()
