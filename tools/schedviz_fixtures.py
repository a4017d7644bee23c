"""Write the fixtures under fixtures/schedviz and fixtures/ftrace-pages.

They come from captures of the lab (testdata/lab).

The pages and records are those of the captures, in the containers of SchedViz: its archive, and the
text of its eBPF script.

    python tools/schedviz_fixtures.py
"""

from __future__ import annotations

import gzip
import io
import re
import struct
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from trace_dat_fixtures import EVENTS as EVERY
from trace_dat_fixtures import LAB, PAGE, ROOT, Dat, page_header, read

OUT = ROOT / "fixtures"
EVENTS = ("sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task")


def formats(dat: Dat, names: Iterable[str] = EVENTS) -> dict[str, bytes]:
    """Format texts of the scheduler's events by name."""
    texts = dat.systems[b"sched\0"]
    named = {text.split(b"\n")[0].removeprefix(b"name: ").decode(): text for text in texts}
    return {name: named[name] for name in names if name in named}


def archive(files: dict[str, bytes]) -> bytes:
    """Return a tar of the files, the same bytes each time."""
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return to.getvalue()


def collection(dat: Dat, folder: str = "formats", cpu: str = "traces/cpu{}") -> dict[str, bytes]:
    """Return the files of a collection."""
    files = {f"{folder}/header_page": page_header(8), "metadata.textproto": b"trace_type: FTRACE\n"}
    for name, text in formats(dat, EVERY).items():
        files[f"{folder}/sched/{name}/format"] = text
    for number, pages in enumerate(dat.cpus):
        files[cpu.format(number)] = b"".join(pages)
    return files


class SchedBt:
    """The script's memory: when it started, and which threads it has named."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.named: set[int] = set()
        self.lines: dict[int, list[str]] = {}

    def event(self, cpu: int, ts: int, event: str, payload: str) -> None:
        """Print an event, and before it the threads that have no name yet."""
        n = {k: int(v) for k, v in re.findall(r"(\w+)=(-?\d+)", payload)}
        at = ts - self.start
        if event == "sched_switch":
            tasks = [
                ("prev_comm", n["prev_pid"], n["prev_prio"]),
                ("next_comm", n["next_pid"], n["next_prio"]),
            ]
            line = f"S:{at:x}:{cpu:x}:{n['prev_pid']:x}:{n['prev_state']:x}:{n['next_pid']:x}"
        else:
            tasks = [("comm", n["pid"], n["prio"])]
            if event == "sched_migrate_task":
                line = f"M:{at:x}:{cpu:x}:{n['orig_cpu']:x}:{n['dest_cpu']:x}:{n['pid']:x}"
            else:
                line = f"W:{at:x}:{cpu:x}:{n['target_cpu']:x}:{n['pid']:x}"
        to = self.lines.setdefault(cpu, [])
        for key, tid, prio in tasks:
            comm = re.search(rf"\b{key}=(.*?) \w*pid=", payload)
            if tid not in self.named and comm is not None:
                to.append(f"P:{at:x}:{tid:x}:{prio:x}:{comm[1]}")
                self.named.add(tid)
        to.append(line)


def sched_bt(path: Path, lines: int) -> str:
    """Return what sched.bt would have printed for the first events of a capture, each CPU's in one piece."""
    report = subprocess.run(
        ["trace-cmd", "report", "-t", "-R", path], capture_output=True, text=True, check=True
    )
    script = None
    for line in report.stdout.splitlines()[: lines + 1]:
        head = re.match(r".*-\d+\s+\[(\d+)\]\s+(\d+)\.(\d{9}): (\w+):\s+(.*)$", line)
        if head is None:
            continue
        ts = int(head[2]) * 10**9 + int(head[3])
        script = script or SchedBt(ts - 1000)
        if head[4] in ("sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task"):
            script.event(int(head[1]), ts, head[4], head[5])
    if script is None:
        raise SystemExit(f"{path}: no events")
    body = [line for cpu in sorted(script.lines) for line in script.lines[cpu]]
    return "\n".join(["Attaching 6 probes...", f"ST:0:{script.start:x}", *body]) + "\n"


def put(case: str, data: bytes, name: str) -> None:
    """Write the input of `case`."""
    folder = OUT / case
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def main() -> None:
    """Write all fixtures."""
    one = read(LAB / "6.1" / "slice-default.v6.dat", 0, 4)
    two = read(LAB / "6.1-smp2" / "slice-default.v6.dat", 0, 2)
    plain = archive(collection(two))
    put("schedviz/collection", gzip.compress(plain, 9, mtime=0), "input.tar.gz")
    put(
        "schedviz/tracefs-copy",
        archive(collection(two, "events", "per_cpu/cpu{}/trace_pipe_raw")),
        "input.tar",
    )
    put("schedviz/cut-archive", plain[: -PAGE - 9 * 1024], "input.tar")
    put("schedviz/no-formats", archive({"traces/cpu0": two.cpus[0][0]}), "input.tar")
    put(
        "schedviz/no-pages",
        archive({f"formats/sched/{n}/format": t for n, t in formats(two).items()}),
        "input.tar",
    )
    marked = bytearray(one.cpus[0][2])
    struct.pack_into("<Q", marked, 8, struct.unpack_from("<Q", marked, 8)[0] | 1 << 31)
    pages = [one.cpus[0][0], bytes(marked), one.cpus[0][3]]
    lossy = Dat(one.ftrace, one.systems, one.names, [pages])
    put("schedviz/lost-page", gzip.compress(archive(collection(lossy)), 9, mtime=0), "input.tar.gz")
    text = sched_bt(LAB / "6.1-smp2" / "slice-default.dat", 800)
    put("schedviz/sched-bt", text.encode(), "input.txt")
    put("schedviz/sched-bt-cut", (text[:2500] + "\nS:zz:1\n" + text[2500:4000]).encode(), "input.txt")
    put("ftrace-pages/one-cpu", b"".join(one.cpus[0][:2]), "input.raw")
    put("ftrace-pages/lost-page", b"".join(pages), "input.raw")
    put("ftrace-pages/without-formats", b"".join(one.cpus[0][:2]), "input.raw")
    put("ftrace-pages/cut-page", b"".join(one.cpus[0][:2])[:-1000], "input.raw")
    # What case.toml gives as option `formats`.
    print(b"".join(formats(one).values()).decode())


if __name__ == "__main__":
    main()
