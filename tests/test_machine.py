"""The machine beside the trace: the script that writes it down, the reader, and replays that use it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit import recipes
from tracekit.cli import main
from tracekit.machine import Machine, parse_machine
from tracekit.whatif.basis import unknown_machine, unrecorded
from tracekit.whatif.members import apart

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"

SMALL = """\
schema = 1
written = 2026-01-31T12:00:00Z
[kernel]
os = "linux"
hz = 1000
[scheduler]
features = "PLACE_LAG NO_HRTICK"
[scheduler.tunables]
base_slice_ns = 2800000
[machine]
cgroup_version = 2
cpus = [
  {cpu = 0, siblings = "0-1", llc = "0-3"},
  {cpu = 1},
]
cgroups = [
  {path = "/web", weight = 300, quota_us = 50000, period_us = 100000, idle = 0},
  {path = "/"},
]
tasks = [
  {tid = 7, pid = 7, comm = "a \\"name\\"", policy = "other", nice = 5, cpus = "1", cgroup = "/web", slice_ns = 3000000},
  {tid = 1, comm = "init", cpus = "0-1"},
]
"""


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def run_script(folder: Path, root: Path | None = None, name: str = "t.dat") -> Machine:
    """What the script writes on this machine, or on one whose /proc and /sys stand in `root`."""
    text = recipes.show("machine")
    environment = {**os.environ, "MACHINE_ROOT": str(root or "")}
    done = subprocess.run(
        ["sh", "-s", name],
        input=text,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, f"wrote {name}.machine.toml\n")
    assert [p.name for p in folder.iterdir() if p.is_file()] == [f"{name}.machine.toml"]
    return parse_machine((folder / f"{name}.machine.toml").read_text(errors="replace"))


def stat(tid: int, comm: str, *, flags: int = 0, nice: int = 0, rt: int = 0, policy: int = 0) -> bytes:
    """A line of /proc/TID/stat: the fields of proc(5)."""
    rest = ["S", "1", "1", "1", "0", "-1", str(flags), *"000000", "0", "0", "20", str(nice), *["0"] * 20]
    rest += [str(rt), str(policy), "0", "0"]
    return f"{tid} ({comm}) {' '.join(rest)}\n".encode("utf-8", "surrogateescape")


def other_machine(root: Path) -> None:
    """Four CPUs: two little ones and a big core with two threads; cgroup 2; debugfs readable; HZ 300."""
    files: dict[str, str | bytes] = {
        "proc/sys/kernel/osrelease": "6.12.0-other\n",
        "proc/sys/kernel/version": "#1 SMP\n",
        "proc/sys/kernel/sched_autogroup_enabled": "1\n",
        "proc/sys/kernel/random/boot_id": "b007\n",
        "proc/uptime": "1234.50 99.0\n",
        "proc/cmdline": "root=/dev/secret isolcpus=3 nohz_full=3 sched_own=1 password=x\n",
        "proc/mounts": "dbg /sys/kernel/debug debugfs rw 0 0\ncg /sys/fs/cgroup cgroup2 rw 0 0\n",
        "boot/config-6.12.0-other": "CONFIG_HZ_300=y\nCONFIG_HZ=300\nCONFIG_PREEMPT_DYNAMIC=y\n",
        "sys/kernel/debug/sched/features": "PLACE_LAG NO_HRTICK RUN_TO_PARITY\n",
        "sys/kernel/debug/sched/base_slice_ns": "3000000\n",
        "sys/kernel/debug/sched/tunable_scaling": "logarithmic\n",
        "sys/kernel/debug/sched/preempt": "none voluntary (full) lazy\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-3\n",
        "sys/fs/cgroup/web/cpu.weight": "250\n",
        "sys/fs/cgroup/web/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/web/cpu.idle": "0\n",
        "sys/fs/cgroup/web/a b/cpu.weight": "1\n",
        "sys/fs/cgroup/web/a b/cpu.max": "max 100000\n",
        "sys/fs/cgroup/web/a b/cpu.idle": "1\n",
        "sys/devices/system/node/online": "0-1\n",
        "sys/devices/system/node/node0/cpulist": "0-1\n",
        "sys/devices/system/node/node1/cpulist": "2-3\n",
    }
    for cpu, (core, siblings, capacity) in enumerate(
        ((0, "0", 446), (1, "1", 446), (2, "2-3", 1024), (2, "2-3", 1024))
    ):
        place = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {
            f"{place}/topology/physical_package_id": "0\n",
            f"{place}/topology/core_id": f"{core}\n",
            f"{place}/topology/thread_siblings_list": f"{siblings}\n",
            f"{place}/cpu_capacity": f"{capacity}\n",
            f"{place}/cpufreq/scaling_governor": "schedutil\n",
            f"{place}/cache/index0/level": "1\n",
            f"{place}/cache/index0/type": "Data\n",
            f"{place}/cache/index0/shared_cpu_list": f"{cpu}\n",
            f"{place}/cache/index1/level": "2\n",
            f"{place}/cache/index1/type": "Unified\n",
            f"{place}/cache/index1/shared_cpu_list": "0-1\n" if cpu < 2 else "2-3\n",
            f"sys/kernel/debug/sched/domains/cpu{cpu}/domain0/name": "MC\n",
            f"sys/kernel/debug/sched/domains/cpu{cpu}/domain1/name": "NUMA\n",
        }
    files["sys/devices/system/cpu/cpu3/online"] = "1\n"
    tasks = {
        (1, 1): (stat(1, "init"), "0-3", "/", 3000000),
        (20, 20): (stat(20, "rcu_gp", flags=0x200000, nice=-20), "0-3", "/", 3000000),
        (300, 300): (stat(300, 'we) S 1 "b\\'), "0,2-3", "/web", 100000),
        (300, 301): (stat(301, "rt\x01\udcff", rt=40, policy=1), "3", "/web/a b", 3000000),
    }
    for (pid, tid), (line, cpus, group, slice_ns) in tasks.items():
        place = f"proc/{pid}/task/{tid}"
        files |= {
            f"{place}/stat": line,
            f"{place}/status": f"Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n",
            f"{place}/cgroup": f"0::{group}\n",
            f"{place}/sched": f"x (1, #threads: 1)\nse.slice   :   {slice_ns}\n",
        }
    files["proc/300/autogroup"] = "/autogroup-5 nice 3\n"
    write(root, files)


def test_the_script_reads_another_machine_as_it_is(tmp_path: Path) -> None:
    other_machine(tmp_path / "root")
    (tmp_path / "out").mkdir()
    m = run_script(tmp_path / "out", tmp_path / "root")
    assert (m.release, m.hz, m.preempt, m.uptime_s, m.cgroup_version) == (
        "6.12.0-other",
        300,
        "full",
        1234.5,
        2,
    )
    assert m.features == {"PLACE_LAG": True, "HRTICK": False, "RUN_TO_PARITY": True}
    assert m.tunables == {
        "base_slice_ns": 3000000,
        "tunable_scaling": "logarithmic",
        "sched_autogroup_enabled": 1,
    }
    assert (m.arguments, m.unread) == ("isolcpus=3 nohz_full=3 sched_own=1", ())
    assert "secret" not in m.text
    assert "password" not in m.text
    assert m.cpus.select(
        "cpu", "core", "siblings", "llc", "node", "capacity", "governor", "domains"
    ).rows() == [
        (0, 0, [0], [0, 1], 0, 446, "schedutil", "MC NUMA"),
        (1, 1, [1], [0, 1], 0, 446, "schedutil", "MC NUMA"),
        (2, 2, [2, 3], [2, 3], 1, 1024, "schedutil", "MC NUMA"),
        (3, 2, [2, 3], [2, 3], 1, 1024, "schedutil", "MC NUMA"),
    ]
    groups = m.cgroups.select("path", "shares", "weight", "quota_us", "period_us", "idle").rows()
    assert groups == [
        ("/", None, None, None, None, None),
        ("/web", 2560, 250, 50000, 100000, False),
        ("/web/a b", 10, 1, None, 100000, True),
    ]
    columns = ["tid", "pid", "comm", "kernel", "policy", "nice", "rt_priority", "cpus", "cgroup", "slice_ns"]
    assert m.tasks.select(columns).rows() == [
        (1, 1, "init", False, "other", 0, None, [0, 1, 2, 3], "/", 3000000),
        (20, 20, "rcu_gp", True, "other", -20, None, [0, 1, 2, 3], "/", 3000000),
        (300, 300, 'we) S 1 "b\\', False, "other", 0, None, [0, 2, 3], "/web", 100000),
        (301, 300, "rt?\ufffd", False, "fifo", 0, 40, [3], "/web/a b", 3000000),
    ]
    assert m.tasks.filter(tid=301)["autogroup"].to_list() == ["/autogroup-5"]
    assert m.affinities() == {300: (0, 2, 3), 301: (3,)}


def test_the_script_says_what_it_could_not_read(tmp_path: Path) -> None:
    write(
        tmp_path / "root",
        {"proc/sys/kernel/osrelease": "4.4.0\n", "proc/mounts": "cg /cg cgroup rw,cpu 0 0\n"},
    )
    write(
        tmp_path / "root" / "cg" / "g",
        {
            **{"cpu.shares": "512\n", "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "1\n"},
            **{"cpu.rt_runtime_us": "0\n", "cpu.rt_period_us": "1000000\n"},
        },
    )
    (tmp_path / "out").mkdir()
    m = run_script(tmp_path / "out", tmp_path / "root")
    assert (m.hz, m.features, m.tasks.height) == (None, {}, 0)
    assert [text.split(":")[0] for text in m.unread] == ["hz", "features, tunables in debugfs"]
    assert m.cgroups.filter(path="/g").select("shares", "weight", "quota_us").rows() == [(512, None, None)]
    assert m.cgroups.filter(path="/g").select("rt_runtime_us", "rt_period_us").rows() == [(0, 1_000_000)]


def test_a_limit_of_a_groups_real_time_tasks_is_said_not_to_be_modelled(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    tk.simulate("policy: eevdf\nA: R∞\nB: R∞\nuntil: 100").filter(comm=["A", "B"]).write(path)
    tid = tk.read(path).tasks.filter(comm="A")["tid"].item()
    (tmp_path / "a.parquet.machine.toml").write_text(
        "schema = 1\n[machine]\ncgroup_version = 1\n"
        'cgroups = [{path = "/", shares = 1024, rt_runtime_us = 950000, rt_period_us = 1000000},'
        ' {path = "/web", shares = 1024, rt_runtime_us = 100000, rt_period_us = 1000000}]\n'
        f'tasks = [{{tid = {tid}, comm = "A", cgroup = "/web"}}]\n'
    )
    sets = {"A": {"policy": "fifo", "prio": 5}}
    said = unrecorded(*(tk.replay(path, "eevdf", scenario=s) for s in (None, sets)))
    (limit,) = [s for s in said if "rt_runtime_us" in s]
    assert limit == (
        "cpu.rt_runtime_us of group web, 100000 us in 1000000: not modelled: "
        "the kernel may hold back its real-time tasks, here A"
    )
    assert not any("rt_runtime_us" in s for s in unrecorded(tk.replay(path, "eevdf")))


def test_the_script_measures_hz_where_no_configuration_is_left(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, {"proc/sys/kernel/osrelease": "6.1\n"})
    timers = root / "proc" / "timer_list"
    os.mkfifo(timers)
    (tmp_path / "out").mkdir()
    writer = subprocess.Popen(
        [
            "sh",
            "-c",
            'printf "now at 1000000000 nsecs\njiffies: 100\n" > $0; sleep 0.2; '
            'printf "now at 2000000000 nsecs\njiffies: 350\n" > $0',
            str(timers),
        ]
    )
    m = run_script(tmp_path / "out", root)
    assert writer.wait(10) == 0
    assert (m.hz, m.hz_from) == (250, "jiffies of one second in /proc/timer_list")


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="not a Linux machine")
def test_the_script_reads_this_machine(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    child = subprocess.Popen(
        ["sleep", "60"], preexec_fn=lambda: (os.sched_setaffinity(0, cpus[-1:]), os.nice(7))[0]
    )
    try:
        m = run_script(tmp_path)
    finally:
        child.kill()
        child.wait()
    assert m.release == os.uname().release
    assert m.arch == os.uname().machine
    assert m.hz in (None, 100, 250, 300, 1000)
    assert (m.hz is None) == any(text.startswith("hz") for text in m.unread)
    online = set(m.cpus.filter("online")["cpu"].to_list())
    assert online == _online()
    for row in m.cpus.filter("online").to_dicts():
        place = Path(f"/sys/devices/system/cpu/cpu{row['cpu']}/topology/core_id")
        assert row["core"] == (int(place.read_text()) if place.exists() else None)
    asleep = m.tasks.filter(tid=child.pid).row(0, named=True)
    assert (asleep["comm"], asleep["nice"], asleep["cpus"]) == ("sleep", os.nice(0) + 7, cpus[-1:])
    if m.cgroups.height:
        assert set(m.tasks["cgroup"].drop_nulls()) & set(m.cgroups["path"])
        held = Path(f"/proc/{os.getpid()}/cgroup").read_text().splitlines()
        own = m.tasks.filter(tid=os.getpid())["cgroup"].item()
        assert own in {line.split(":", 2)[2] for line in held}


def _online() -> set[int]:
    first_last = [
        part.split("-") for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(",")
    ]
    return {cpu for part in first_last for cpu in range(int(part[0]), int(part[-1]) + 1)}


def test_a_file_is_read_with_its_units() -> None:
    m = parse_machine(SMALL)
    assert (m.hz, m.features, m.tunables) == (
        1000,
        {"PLACE_LAG": True, "HRTICK": False},
        {"base_slice_ns": 2800000},
    )
    assert m.cgroups.select("path", "shares", "quota_us", "idle").rows() == [
        ("/", None, None, None),
        ("/web", 3072, 50000, False),
    ]
    assert m.tasks["comm"].to_list() == ["init", 'a "name"']
    assert m.affinities() == {7: (1,)}
    assert repr(m) == "<Machine linux, HZ 1000, 2 CPUs, 2 cgroups, 2 tasks>"


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (("schema = 1", "schema = 0"), 1, "expected schema version 1, found 0, an older one"),
        (("schema = 1", "schema = 2"), 1, "found 2, one that this tracekit does not know"),
        (("schema = 1\n", ""), 1, "found no schema version"),
        (("hz = 1000", "hz = 0"), 5, "hz: expected clock ticks a second from 1 to 100000, found 0"),
        (("hz = 1000", 'hz = "fast"'), 5, "hz: expected a whole number, found 'fast'"),
        (("hz = 1000", "speed = 3"), 5, "unknown key 'speed'"),
        (('llc = "0-3"', 'llc = "3-0"'), 13, "cpus: llc: expected CPUs such as 0-3,8, found '3-0'"),
        (("{cpu = 1}", "{core = 1}"), 14, "cpus: expected {cpu = ..., ...}"),
        (("weight = 300", "wait = 300"), 17, "cgroups: unknown key 'wait'"),
        (("tid = 1", "tid = true"), 22, "tasks: tid: expected a whole number, found True"),
        (("tid = 1", f"tid = {1 << 70}"), 22, "tasks: tid: expected a whole number"),
        (("nice = 5", "nice = "), 21, "expected TOML"),
        (("{path", "{path = 1, path"), 17, "expected TOML"),
    ],
)
def test_a_wrong_or_old_file_is_an_error_that_names_the_line(
    change: tuple[str, str], line: int, says: str, tmp_path: Path
) -> None:
    trace = tmp_path / "t.dat"
    shutil.copy(DEMO, trace)
    beside = tmp_path / "t.machine.toml"
    text = SMALL.replace(*change)
    assert text != SMALL
    beside.write_text(text)
    with pytest.raises(tk.ParseError) as raised:
        tk.read(trace)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{beside}, line {line}: ")
    assert (raised.value.code, raised.value.position.line) == ("machine", line)
    done = CliRunner().invoke(main, ["info", str(trace)])
    assert done.exit_code == 2
    assert f"line {line}:" in done.output
    assert tk.read(trace, machine=False).machine is None


@pytest.mark.parametrize("name", ["t.dat.machine.toml", "t.machine.toml"])
def test_every_way_of_reading_takes_up_the_file(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.dat"
    shutil.copy(DEMO, trace)
    (tmp_path / name).write_text(SMALL)
    read = tk.read(trace)
    assert read.machine is not None
    assert read.machine.hz == 1000
    assert read.filter(cpu=0).machine == read.machine
    assert pickle.loads(pickle.dumps(read)).machine.text == SMALL
    cached = [tk.read(trace, cache=True).machine for _ in range(2)]
    assert [m and m.hz for m in cached] == [1000, 1000]
    stored = tmp_path / "stored.parquet"
    tk.convert(trace, stored)
    assert tk.read(stored).machine == read.machine
    read.write(tmp_path / "written.arrow")
    assert tk.read(tmp_path / "written.arrow").machine == read.machine
    elsewhere = tmp_path / "m.toml"
    elsewhere.write_text(SMALL.replace("1000", "100", 1))
    assert tk.read(DEMO.read_bytes(), machine=elsewhere).machine.hz == 100
    assert tk.read(DEMO).machine is None


def test_the_file_of_another_machine_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "t.dat"
    shutil.copy(DEMO, trace)
    kernel = tk.read(trace).metadata["kernel"]
    beside = tmp_path / "t.machine.toml"
    beside.write_text(SMALL.replace('os = "linux"', 'os = "linux"\nrelease = "2.4.1"'))
    for attempt in (lambda: tk.read(trace), lambda: tk.convert(trace, tmp_path / "t.parquet")):
        with pytest.raises(tk.ParseError, match=f"line 5: .*{kernel}.*found kernel 2.4.1") as raised:
            attempt()
        assert raised.value.position.line == 5
    assert not (tmp_path / "t.parquet").exists()
    beside.write_text(SMALL.replace("  {cpu = 0,", "  {cpu = 9,"))
    with pytest.raises(tk.ParseError, match="records of CPU 0"):
        tk.read(trace)
    done = CliRunner().invoke(main, ["info", "--machine", "none", str(trace)])
    assert done.exit_code == 0


def test_the_machine_fills_in_what_text_does_not_say(tmp_path: Path) -> None:
    trace = tmp_path / "t.txt"
    trace.write_text(
        "a 1 [000] 1.000000: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> "
        "next_comm=b next_pid=2 next_prio=120\n"
    )
    assert "kernel" not in tk.read(trace).metadata
    (tmp_path / "t.txt.machine.toml").write_text(SMALL.replace('"linux"', '"linux"\nrelease = "5.4.2"'))
    assert tk.read(trace).metadata["kernel"] == "5.4.2"


def test_info_shows_the_machine(tmp_path: Path) -> None:
    trace = tmp_path / "t.dat"
    shutil.copy(DEMO, trace)
    (tmp_path / "t.dat.machine.toml").write_text(SMALL)
    shown = CliRunner().invoke(main, ["info", str(trace)]).output
    for part in (
        "HZ                    1000",
        "PLACE_LAG NO_HRTICK",
        "base_slice_ns 2800000",
        "/web",
        "0-3",
        "1 of them bound",
    ):
        assert part in shown
    facts = json.loads(CliRunner().invoke(main, ["info", "--json", str(trace)]).output)
    assert facts["machine"]["hz"] == 1000
    assert facts["machine"]["cgroups"][1]["shares"] == 3072
    assert "machine" not in facts["metadata"]


TWO = """\
a 1 [000] 1.000000: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120
d 4 [001] 1.000000: sched:sched_switch: prev_comm=d prev_pid=4 prev_prio=120 prev_state=S ==> next_comm=e next_pid=5 next_prio=120
b 2 [000] 1.010000: sched:sched_waking: comm=a pid=1 prio=120 target_cpu=000
b 2 [000] 1.010100: sched:sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
e 5 [001] 1.010200: sched:sched_waking: comm=d pid=4 prio=120 target_cpu=001
e 5 [001] 1.010300: sched:sched_switch: prev_comm=e prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=d next_pid=4 next_prio=120
a 1 [000] 1.030000: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
d 4 [001] 1.030000: sched:sched_switch: prev_comm=d prev_pid=4 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
"""


def test_replays_take_tick_rate_and_affinities_from_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(TWO)

    def replayed(tasks: str, **given: object) -> tk.Replay:
        text = SMALL[: SMALL.index("tasks = [")] + f"tasks = [\n{tasks}]\n"
        (tmp_path / "t.machine.toml").write_text(text)
        return tk.replay(tk.read(path), "cfs", **given)  # type: ignore[arg-type]

    def cpus(run: tk.Replay) -> dict[str, set[int]]:
        rows = run.slices.filter(pl.col("comm").is_in(["b", "e"])).select("comm", "cpu").iter_rows()
        found: dict[str, set[int]] = {}
        for comm, cpu in rows:
            found.setdefault(comm, set()).add(cpu)
        return found

    every = "".join(
        f'  {{tid = {tid}, comm = "{c}", cpus = "0-1"}},\n'
        for tid, c in ((1, "a"), (2, "b"), (4, "d"), (5, "e"))
    )
    assert replayed(every).metadata["hz"] == "1000"
    assert replayed(every, hz=100).metadata["hz"] == "100"
    assert cpus(replayed(every)) == {"b": {0}, "e": {1}}
    to_one = every.replace('"e", cpus = "0-1"', '"e", cpus = "0"')
    assert cpus(replayed(to_one))["e"] == {0}
    # A CPU without records takes no part.
    more = SMALL.replace("  {cpu = 1},", "  {cpu = 1},\n  {cpu = 7},")
    assert parse_machine(more).affinities() == {7: (1,), 1: (0, 1)}
    absent = every.replace('"e", cpus = "0-1"', '"e", cpus = "7"')
    assert cpus(replayed(absent)) == {"b": {0}, "e": {1}}
    # A thread number is used again: another name is another task.
    assert cpus(replayed(to_one.replace('"e"', '"x"')))["e"] == {1}
    # What the caller says wins.
    assert cpus(replayed(to_one, scenario={"tid=5": {"cpus": "1"}}))["e"] == {1}
    # The number of CPUs that was recorded changes nothing, another one leaves affinities out.
    assert cpus(replayed(to_one, cpus=2)) == cpus(replayed(to_one))
    four = replayed(to_one, cpus=4)
    assert cpus(four)["e"] == {1}
    said = "e: bound to some of the recorded CPUs, which a replay on 4 CPUs leaves out, unless --set says so: 'e: cpus=0'"
    assert said in unrecorded(replayed(to_one), four)
    assert not any("bound to" in text for text in unrecorded(replayed(every), replayed(every, cpus=4)))
    kernel = to_one.replace('cpus = "0"}', 'cpus = "0", kernel = true}')
    assert not any("bound to" in text for text in unrecorded(replayed(kernel), replayed(kernel, cpus=4)))


def test_replays_take_policies_that_no_event_shows_from_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    shutil.copy(DEMO, path)

    def run_ns(listed: str, policy: str = "cfs") -> dict[str, int]:
        text = SMALL[: SMALL.index("tasks = [")] + f"tasks = [\n{listed}]\n"
        (tmp_path / "t.machine.toml").write_text(text)
        made = tk.replay(tk.read(path), policy).slices
        return dict(made.group_by("comm").agg(pl.col("dur_ns").sum()).iter_rows())

    # Tasks 168 and 169 spin; all have priority 120.
    plain = run_ns('  {tid = 168, comm = "spin00", policy = "other"},\n')
    assert plain["spin00"] == pytest.approx(plain["spin01"], rel=0.05)
    idle = run_ns('  {tid = 168, comm = "spin00", policy = "idle"},\n')
    assert idle["spin00"] < 0.1 * idle["spin01"], "SCHED_IDLE has a weight of 3"
    # Another name is another task, and a priority from 100 on is none of a real-time task.
    assert run_ns('  {tid = 168, comm = "other", policy = "idle"},\n') == plain
    assert run_ns('  {tid = 168, comm = "spin00", policy = "fifo"},\n') == plain


def test_a_machine_that_was_written_at_another_time_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    shutil.copy(DEMO, path)

    def said(uptime: str) -> str | None:
        (tmp_path / "t.machine.toml").write_text(SMALL.replace("hz = 1000", f"hz = 250{uptime}"))
        return apart(tk.read(path))

    # The trace is from 3.9 to 6.9 s after the boot.
    assert said("") is None
    assert said("\nuptime_s = 3.5") is None
    assert said("\nuptime_s = 60.9") is None
    late = said("\nuptime_s = 606.95")
    assert late is not None
    assert "written 600 s after it" in late
    assert unknown_machine(tk.read(path)) == late
    # A kernel's own clock may be the wall clock, which does not tell the time since boot.
    wall = tk.read(path).with_metadata({**tk.read(path).metadata, "clock.name": "tai"})
    assert apart(wall) is None


@pytest.mark.parametrize(
    ("name", "trace"), [("perf", "perf.data"), ("trace-cmd", "trace.dat"), ("tracefs", '"$name"')]
)
def test_recipes_for_linux_bring_the_script_along(name: str, trace: str) -> None:
    text = recipes.show(name)
    assert f"sh -s {trace} <<'END_OF_MACHINE'\n{recipes.show('machine')}END_OF_MACHINE\n" in text
