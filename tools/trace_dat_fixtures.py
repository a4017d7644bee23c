"""Write the fixtures under fixtures/trace-dat from two captures of the lab (testdata/lab).

The records are those of the captures, unchanged; what is made is the container around them: another
byte order, another size of long, a page taken out and marked as the kernel marks lost pages, an
instance, a clock in ticks. Version 7 files are written by `trace-cmd convert`, so they are another
program's work.

    python tools/trace_dat_fixtures.py
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from slim_trace_dat import Cursor

ROOT = Path(__file__).parent.parent
LAB = ROOT / "testdata" / "lab"
OUT = ROOT / "fixtures" / "trace-dat"
PAGE = 4096
EVENTS = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exit",
    "sched_process_exec",
    "sched_process_free",
    "sched_process_wait",
    "sched_stat_runtime",
    "sched_stat_wait",
    "sched_stat_sleep",
    "sched_stat_blocked",
    "print",
]
FIELD = re.compile(r"field:([^;]*);\s*offset:(\d+);\s*size:(\d+);")


@dataclass
class Dat:
    """What a trace.dat holds, as far as fixtures need it.

    Texts and pages are little endian, long is 8 bytes.
    """

    ftrace: list[bytes]
    systems: dict[bytes, list[bytes]]
    names: bytes
    cpus: list[list[bytes]]
    options: list[tuple[int, bytes]] = field(default_factory=list)
    instances: dict[bytes, list[list[bytes]]] = field(default_factory=dict)


def named(formats: list[bytes]) -> list[bytes]:
    """Keep the formats of the events in EVENTS."""
    return [f for f in formats if f.split(b"\n")[0].removeprefix(b"name: ").decode() in EVENTS]


def read(path: Path, first: int, count: int) -> Dat:
    """Read `count` pages of each CPU from page `first` on."""
    data = path.read_bytes()
    cur = Cursor(data)
    cur.take(18)
    for _ in range(2):
        cur.text()
        cur.sized("Q")
    ftrace = [cur.sized("Q") for _ in range(cur.number("I"))]
    systems = {}
    for _ in range(cur.number("I")):
        name = cur.text()
        systems[name] = [cur.sized("Q") for _ in range(cur.number("I"))]
    cur.sized("I")
    cur.sized("I")
    names = cur.sized("Q")
    cpus = cur.number("I")
    options = []
    if cur.take(10) == b"options  \0":
        while option := cur.number("H"):
            options.append((option, cur.sized("I")))
        cur.take(10)
    table = [(cur.number("Q"), cur.number("Q")) for _ in range(cpus)]
    pages = []
    for offset, size in table:
        all_pages = [data[at : at + PAGE] for at in range(offset, offset + size, PAGE)]
        pages.append(all_pages[first : first + count])
    keep = {name: kept for name, formats in systems.items() if (kept := named(formats))}
    return Dat(named(ftrace), keep, names, pages, [o for o in options if o[0] in (5, 9)])


def formats_by_id(dat: Dat) -> dict[int, list[tuple[str, int, int]]]:
    """Map event numbers to (declaration, offset, size) of their fields."""
    found = {}
    for text in [*dat.ftrace, *(f for fs in dat.systems.values() for f in fs)]:
        number = int(re.search(rb"ID: (\d+)", text)[1])  # type: ignore[index]
        found[number] = [(d, int(o), int(s)) for d, o, s in FIELD.findall(text.decode())]
    return found


def swap_record(record: bytes, fields: list[tuple[str, int, int]]) -> bytes:
    """Turn the integers of a little-endian record into big-endian ones."""
    out = bytearray(record)
    for declaration, offset, size in fields:
        is_text = "char" in declaration and "[" in declaration and "__data_loc" not in declaration
        if not is_text and size in (2, 4, 8):
            out[offset : offset + size] = record[offset : offset + size][::-1]
    return bytes(out)


def big_endian_page(page: bytes, by_id: dict[int, list[tuple[str, int, int]]]) -> bytes:
    """Turn a page into one of a big-endian machine whose long has 4 bytes."""
    ts, commit = struct.unpack_from("<QQ", page)
    data = page[16 : 16 + (commit & 0x7FFFFFF)]
    out, at = b"", 0
    while at < len(data):
        (head,) = struct.unpack_from("<I", data, at)
        kind, delta = head & 31, head >> 5
        body, at = b"", at + 4
        if kind in (30, 31) or kind == 0 or (kind == 29 and delta):
            (word,) = struct.unpack_from("<I", data, at)
            body, at = struct.pack(">I", word), at + 4
        length = 4 * kind if 0 < kind < 29 else word - 4 if kind == 0 else 0
        record = data[at : at + length]
        if record:
            (number,) = struct.unpack_from("<H", record)
            body += swap_record(record, by_id[number])
        at += length
        out += struct.pack(">I", kind << 27 | delta) + body
    return (struct.pack(">QI", ts, len(out)) + out).ljust(PAGE, b"\0")


def page_header(long: int) -> bytes:
    """Return the text of header_page for this size of long."""
    return (
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        f"\tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n"
        "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
        f"\tfield: char data;\toffset:{8 + long};\tsize:{PAGE - 8 - long};\tsigned:1;\n"
    ).encode()


def write(dat: Dat, order: str = "<", long: int = 8) -> bytes:
    """Return `dat` as a version 6 file."""

    def number(code: str, value: int) -> bytes:
        return struct.pack(order + code, value)

    def sized(code: str, data: bytes) -> bytes:
        return number(code, len(data)) + data

    event = b"# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n"
    out = b"\x17\x08Dtracing6\0" + bytes([order == ">", long]) + number("I", PAGE)
    out += b"header_page\0" + sized("Q", page_header(long)) + b"header_event\0" + sized("Q", event)
    out += number("I", len(dat.ftrace)) + b"".join(sized("Q", f) for f in dat.ftrace)
    out += number("I", len(dat.systems))
    for system, formats in dat.systems.items():
        out += system + number("I", len(formats)) + b"".join(sized("Q", f) for f in formats)
    out += sized("I", b"") + sized("I", b"") + sized("Q", dat.names) + number("I", len(dat.cpus))
    options = b"".join(number("H", n) + sized("I", data) for n, data in dat.options)
    places = b"".join(number("H", 3) + sized("I", bytes(8) + name + b"\0") for name in dat.instances)
    out += b"options  \0" + options
    instance_at = len(out)
    out += places + number("H", 0)
    out = bytearray(with_pages(out, b"flyrecord\0", dat.cpus, order))
    at = instance_at
    for name, cpus in dat.instances.items():
        out[at + 6 : at + 14] = number("Q", len(out))
        at += 6 + 8 + len(name) + 1
        out = bytearray(with_pages(bytes(out), b"options  \0" + number("H", 0) + b"flyrecord\0", cpus, order))
    return bytes(out)


def with_pages(out: bytes, tag: bytes, cpus: list[list[bytes]], order: str) -> bytes:
    """Append a table of CPU data and the pages that it names."""
    out += tag
    body, table = b"", b""
    start = -(-(len(out) + 16 * len(cpus)) // PAGE) * PAGE
    for pages in cpus:
        table += struct.pack(order + "QQ", start + len(body), PAGE * len(pages))
        body += b"".join(pages)
    return (out + table).ljust(start, b"\0") + body


def write_7(dat: Dat, cpu_ids: list[int]) -> bytes:
    """Return `dat` as a version 7 file compressed with zlib, its CPUs numbered as asked."""

    def number(code: str, value: int) -> bytes:
        return struct.pack("<" + code, value)

    def sized(code: str, data: bytes) -> bytes:
        return number(code, len(data)) + data

    def block(data: bytes) -> bytes:
        packed = zlib.compress(data)
        return number("I", len(packed)) + number("I", len(data)) + packed

    def section(kind: int, body: bytes) -> bytes:
        packed = block(body)
        return number("H", kind) + number("H", 1) + number("I", 0) + number("Q", len(packed)) + packed

    out = b"\x17\x08Dtracing7\0\0\x08" + number("I", PAGE) + b"zlib\x001.2\0"
    first_options = len(out)
    out += bytes(8)
    event = b"# compressed entry header\n"
    systems = b"".join(
        name + number("I", len(formats)) + b"".join(sized("Q", f) for f in formats)
        for name, formats in dat.systems.items()
    )
    bodies = {
        16: b"header_page\0" + sized("Q", page_header(8)) + b"header_event\0" + sized("Q", event),
        17: number("I", len(dat.ftrace)) + b"".join(sized("Q", f) for f in dat.ftrace),
        18: number("I", len(dat.systems)) + systems,
        21: sized("Q", dat.names),
    }
    options = [*dat.options]
    for kind, body in bodies.items():
        options.append((kind, number("Q", len(out))))
        out += section(kind, body)
    buffer_at = len(out)
    out += number("H", 3) + number("H", 1) + number("I", 0) + bytes(8)
    cpus = b""
    for cpu, pages in zip(cpu_ids, dat.cpus, strict=True):
        out = out.ljust(-(-len(out) // PAGE) * PAGE, b"\0")
        data = number("I", len(pages)) + b"".join(block(page) for page in pages)
        cpus += number("I", cpu) + number("Q", len(out)) + number("Q", len(data))
        out += data
    buffer = number("Q", buffer_at) + b"\0local\0" + number("I", PAGE) + number("I", len(cpu_ids)) + cpus
    options += [(3, buffer), (0, bytes(8))]
    out = out[:first_options] + number("Q", len(out)) + out[first_options + 8 :]
    return out + section(0, b"".join(number("H", n) + sized("I", data) for n, data in options))


def lost_page(dat: Dat) -> Dat:
    """Take out the second page of CPU 0 and mark the third as the kernel does.

    The loss is counted in CPUSTAT too.
    """
    first, gone, after, *rest = dat.cpus[0]
    lost = records(gone)
    (commit,) = struct.unpack_from("<Q", after, 8)
    end = 16 + commit
    marked = bytearray(after)
    if end + 8 > PAGE:
        raise SystemExit("choose a page with room for the count")
    struct.pack_into("<Q", marked, 8, commit | 3 << 30)
    struct.pack_into("<Q", marked, end, lost)
    stat = f"CPU: 0\nentries: 0\noverrun: {lost + 5}\ncommit overrun: 0\nbytes: 0\ndropped events: 2\nread events: 9\n"
    return replace(
        dat,
        cpus=[[first, bytes(marked), *rest], *dat.cpus[1:]],
        options=[*dat.options, (2, stat.encode() + b"\0")],
    )


def counted(dat: Dat) -> Dat:
    """Add the clock and the counters, as trace-cmd record does."""
    options = [*dat.options, (4, b"[local] global mono\0")]
    for cpu, pages in enumerate(dat.cpus):
        stat = f"CPU: {cpu}\nentries: 0\noverrun: 0\ncommit overrun: 0\nbytes: 0\ndropped events: 0\n"
        options.append((2, f"{stat}read events: {sum(map(records, pages))}\n\0".encode()))
    return replace(dat, options=options)


def records(page: bytes) -> int:
    """Count the records of a page."""
    (commit,) = struct.unpack_from("<Q", page, 8)
    at, count = 16, 0
    while at < 16 + commit:
        (head,) = struct.unpack_from("<I", page, at)
        kind = head & 31
        count += kind < 29
        at += 4 + (
            4 * kind if 0 < kind < 29 else 4 if kind >= 29 else struct.unpack_from("<I", page, at + 4)[0]
        )
    return count


def convert(data: bytes, compression: str) -> bytes:
    """Return a version 6 file as version 7, by trace-cmd."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.dat"), Path(folder, "out.dat")
        source.write_bytes(data)
        command = ["trace-cmd", "convert", "-i", source, "-o", target, "--file-version", "7"]
        subprocess.run([*command, "--compression", compression], check=True, capture_output=True)
        return target.read_bytes()


def put(case: str, data: bytes) -> None:
    """Write the input of `case`."""
    folder = OUT / case
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.dat").write_bytes(data)


def main() -> None:
    """Write all fixtures."""
    one = read(LAB / "6.1" / "slice-default.v6.dat", 0, 3)
    two = read(LAB / "6.1-smp2" / "slice-default.v6.dat", 0, 2)
    plain = write(one)
    put("v6-one-cpu", plain)
    put("v6-two-cpus", write(two))
    by_id = formats_by_id(two)
    swapped = [[big_endian_page(p, by_id) for p in pages] for pages in two.cpus]
    put("v6-big-endian-long-4", write(replace(two, cpus=swapped), ">", 4))
    for compression in ("zstd", "none"):
        put(f"v7-{compression}", convert(write(two), compression))
    put("v7-zlib-sparse-cpus", write_7(two, [3, 70]))
    put("v6-lost-page", write(lost_page(read(LAB / "6.1" / "slice-default.v6.dat", 0, 4))))
    two_buffers = replace(two, instances={b"mine": two.cpus})
    put("v6-instance-twice", write(two_buffers))
    put("v6-instance-only", write(replace(two, cpus=[[], []], instances={b"mine": two.cpus})))
    put(
        "v7-instance-only", convert(write(replace(two, cpus=[[], []], instances={b"mine": two.cpus})), "zstd")
    )
    ticks = [(4, b"local [x86-tsc] mono\0"), (14, struct.pack("<IIQ", 3, 1, 7))]
    put("v6-tsc", write(replace(two, options=[*two.options, *ticks])))
    put("v6-tsc-unknown-rate", write(replace(two, options=[*two.options, ticks[0]])))
    put("v6-uptime", write(replace(two, options=[*two.options, (4, b"local [uptime] mono\0")])))
    damaged = bytearray(plain)
    damaged[-2 * PAGE + 16 + 40 : -2 * PAGE + 16 + 80] = b"\xff" * 40
    put("v6-damaged-page", bytes(damaged))
    put("v6-cut-in-data", plain[: -PAGE - 1000])
    put("v6-cut-in-head", plain[:3000])
    second = replace(two, cpus=[[], two.cpus[1]])
    put("v7-first-cpu-empty", convert(write(counted(second)), "none"))
    put("v7-cut-in-data", convert(write(counted(two)), "none")[: -PAGE - 1000])
    zstd = bytearray(convert(write(two), "zstd"))
    zstd[-600:-500] = bytes(100)
    put("v7-damaged-chunk", bytes(zstd))
    put("version-5", plain.replace(b"tracing6\0", b"tracing5\0", 1))


if __name__ == "__main__":
    main()
