"""Write the fixtures of binary CTF traces from nothing: fixtures/ctf/<case>/input.tar.

Each is a trace of one schedule on two CPUs, laid out as LTTng or perf does it: packets with a
context, events with compact and with extended headers, text in arrays. ``python
tools/ctf_fixtures.py`` writes them all; the tests read them with babeltrace2 too.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "ctf"
MAGIC = 0xC1FC1FC1
METADATA_MAGIC = 0x75D11D57
UUID = bytes(range(16))

LTTNG = """/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
trace {
	major = 1;
	minor = 8;
	uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f";
	byte_order = ORDER;
	packet.header := struct {
		uint32_t magic;
		uint8_t  uuid[16];
		uint32_t stream_id;
	};
};
env {
	hostname = "testhost";
	domain = "kernel";
	kernel_release = "4.4.3-1-test";
	tracer_name = "lttng-modules";
	tracer_major = 2;
	tracer_minor = 8;
};
clock {
	name = "monotonic";
	freq = 1000000000; /* Hz */
	offset_s = 1457111225;
	offset = 177515989;
};
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := uint27_clock_monotonic_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_monotonic_t;
struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	unsigned long events_discarded;
	uint32_t cpu_id;
};
struct event_header_compact {
	enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
	variant <id> {
		struct {
			uint27_clock_monotonic_t timestamp;
		} compact;
		struct {
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		} extended;
	} v;
} align(8);
stream {
	id = 0;
	event.header := struct event_header_compact;
	packet.context := struct packet_context;
};
event {
	name = "sched_switch";
	id = 1;
	stream_id = 0;
	fields := struct {
		integer { size = 8; align = 8; signed = 0; encoding = UTF8; base = 10; } _prev_comm[16];
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _prev_tid;
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _prev_prio;
		integer { size = 64; align = 8; signed = 1; encoding = none; base = 10; } _prev_state;
		integer { size = 8; align = 8; signed = 0; encoding = UTF8; base = 10; } _next_comm[16];
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _next_tid;
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _next_prio;
	};
};
event {
	name = "sched_wakeup";
	id = 40;
	stream_id = 0;
	fields := struct {
		integer { size = 8; align = 8; signed = 0; encoding = UTF8; base = 10; } _comm[16];
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _tid;
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _prio;
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _target_cpu;
	};
};
event {
	name = "syscall_entry_write";
	id = 2;
	stream_id = 0;
	fields := struct {
		integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; } _fd;
		integer { size = 8; align = 8; signed = 0; encoding = none; base = 10; } __buf_length;
		integer { size = 8; align = 8; signed = 0; encoding = none; base = 10; } _buf[ __buf_length ];
		string _path;
	};
};
"""

# What `perf data convert --to-ctf --all` writes, in the layout above: the tracepoint's own names and
# numbers behind its subsystem, and records of perf's own.
PERF = (
    LTTNG.replace("ORDER", "le")
    .replace('"lttng-modules"', '"perf"')
    .replace('"sched_', '"sched:sched_')
    .replace("_tid;", "_pid;")
    .replace("offset_s = 1457111225", "offset_s = 0")
    .replace("offset = 177515989", "offset = 0")
    + """event {
	name = "perf_comm";
	id = 41;
	stream_id = 0;
	fields := struct {
		integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; } _pid;
		integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; } _tid;
		string _comm;
	};
};
"""
)


class Writer:
    """Packets of the LTTng layout in one byte order."""

    def __init__(self, big: bool) -> None:
        self.big = big
        self.order = ">" if big else "<"

    def pack(self, codes: str, *values: object) -> bytes:
        """Fields without gaps, each at a whole byte."""
        return struct.pack(self.order + codes, *values)

    def compact(self, number: int, ts: int) -> bytes:
        """Five bits of number, 27 of time."""
        low = ts & (1 << 27) - 1
        word = number << 27 | low if self.big else low << 5 | number
        return self.pack("I", word)

    def extended(self, number: int, ts: int) -> bytes:
        """The number 31, then number and time in full, from the next byte on."""
        return bytes([31 << 3 if self.big else 31]) + self.pack("IQ", number, ts)

    def switch(self, ts: int, prev: tuple[bytes, int], state: int, following: tuple[bytes, int]) -> bytes:
        """A switch with a compact header; LTTng prints priority 120 as 20."""
        body = self.pack("16siiq16sii", prev[0], prev[1], 20, state, following[0], following[1], 20)
        return self.compact(1, ts) + body

    def wakeup(self, ts: int, task: tuple[bytes, int], cpu: int) -> bytes:
        """A wakeup, whose number needs an extended header."""
        return self.extended(40, ts) + self.pack("16siii", task[0], task[1], 20, cpu)

    def write(self, ts: int, fd: int, data: bytes, path: bytes) -> bytes:
        """A system call with a sequence and a string."""
        return self.compact(2, ts) + self.pack("IB", fd, len(data)) + data + path + b"\0"

    def comm(self, ts: int, tid: int, name: bytes) -> bytes:
        """A name, as perf records it."""
        return self.extended(41, ts) + self.pack("II", tid, tid) + name + b"\0"

    def packet(
        self, cpu: int, span: tuple[int, int], events: list[bytes], discarded: int = 0, pad: int = 64
    ) -> bytes:
        """A packet with its head; `pad` bytes follow its content."""
        content = b"".join(events)
        size = 24 + 44 + len(content)
        head = self.pack("I16sI", MAGIC, UUID, 0)
        head += self.pack("QQQQQI", *span, size * 8, (size + pad) * 8, discarded, cpu)
        return head + content + bytes(pad)

    def metadata(self, text: str, piece: int = 1000) -> bytes:
        """The text in packets, as LTTng stores it."""
        data, packets = text.encode(), []
        for at in range(0, len(data), piece):
            part = data[at : at + piece]
            size = 37 + len(part)
            pad = -size % 64
            head = self.pack("I16sIII5B", METADATA_MAGIC, UUID, 0, size * 8, (size + pad) * 8, 0, 0, 0, 1, 8)
            packets.append(head + part + bytes(pad))
        return b"".join(packets)


A, B, IDLE0, IDLE1 = (b"worker", 101), (b"helper \xc3\xa9", 102), (b"swapper/0", 0), (b"swapper/1", 0)
BASE = 5_000_000_000


def streams(w: Writer, discarded: int = 0) -> dict[str, bytes]:
    """The schedule: two packets on CPU 0, one on CPU 1.

    The lower 27 bits of the time overflow between the packets.
    """
    second = BASE + (1 << 27) + 500
    first = [
        w.wakeup(BASE + 100, A, 0),
        w.switch(BASE + 200, IDLE0, 0, A),
        w.write(BASE + 300, 1, b"abc", b"/dev/null"),
        w.wakeup(BASE + 400, B, 1),
        w.switch(BASE + 900, A, 1, IDLE0),
    ]
    later = [
        w.wakeup(second + 1, A, 0),
        w.switch(second + 2, IDLE0, 0, A),
        w.switch(second + 90, A, 64, IDLE0),
    ]
    other = [w.switch(BASE + 450, IDLE1, 0, B), w.switch(BASE + 850, B, 2048, IDLE1)]
    return {
        "channel0_0": w.packet(0, (BASE, BASE + 1000), first)
        + w.packet(0, (second, second + 100), later, discarded),
        "channel0_1": w.packet(1, (BASE, BASE + 1000), other),
    }


def write(case: str, files: dict[str, bytes]) -> None:
    """Write a tar archive that is the same on every run."""
    target = FIXTURES / case / "input.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"kernel/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    target.write_bytes(buffer.getvalue())


def lttng(big: bool, **options: int) -> dict[str, bytes]:
    """A trace of LTTng in one byte order."""
    w = Writer(big)
    text = LTTNG.replace("ORDER", "be" if big else "le")
    return {"metadata": w.metadata(text), **streams(w, **options)}


def perf_all() -> dict[str, bytes]:
    """Names from before the recording, at time 0 and at perf's start; then a switch, a name, a switch."""
    w = Writer(big=False)
    events = [
        w.comm(0, *A[::-1]),
        w.comm(0, *B[::-1]),
        w.comm(BASE - 40_000_000, 103, b"perf"),
        w.switch(BASE + 200, IDLE0, 0, A),
        w.comm(BASE + 300, 101, b"renamed"),
        w.switch(BASE + 900, (b"renamed", 101), 1, IDLE0),
    ]
    return {"metadata": PERF.encode(), "stream_0": w.packet(0, (0, BASE + 1000), events)}


def damaged() -> dict[str, bytes]:
    """The first packet of CPU 0 holds an event that the metadata does not declare."""
    files = lttng(big=False)
    stream = bytearray(files["channel0_0"])
    stream[24 + 44] = stream[24 + 44] & ~31 | 17
    return {**files, "channel0_0": bytes(stream)}


def changed(change: Callable[[dict[str, bytes]], None]) -> dict[str, bytes]:
    """The little-endian trace after a change."""
    files = lttng(big=False)
    change(files)
    return files


def main() -> None:
    """Write every case."""
    plain = LTTNG.replace("ORDER", "be").encode()
    write("lttng", lttng(big=False))
    write("big-endian", {**lttng(big=True), "metadata": plain})
    write("discarded", lttng(big=False, discarded=7))
    write("damaged-packet", damaged())
    write("perf-all", perf_all())
    write("cut", changed(lambda files: files.update(channel0_0=files["channel0_0"][:-80])))
    write("ctf-2", {"metadata": b'\x1e{"type": "preamble", "version": 2}\n', **streams(Writer(big=False))})
    write(
        "wrong-metadata",
        changed(lambda files: files.update(metadata=b"/* CTF 1.8 */\ntrace {\n major = ;\n};\n")),
    )


if __name__ == "__main__":
    main()
