"""The lab: its captures, its pairs, and what each of them asks a replay."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tracekit.trace import Trace
from tracekit.whatif.groups import read_map
from tracekit.whatif.kernels import infer
from tracekit.whatif.members import models_groups
from tracekit.whatif.settings import FEATURES, TUNABLES, unscaled

__all__ = ["METRIC_OF", "Capture", "Pair", "Question", "captures", "pairs", "question"]

#: Main figure of each workload.
METRIC_OF = {
    "slice": "mean_slice_us",
    "nicefork": "mean_fork_us",
    "forkwait": "mean_fork_us",
    "callpipe": "mean_response_ms",
    "mixed": "mean_response_us",
    "yield": "yield_us",
    "pinned": "mean_response_us",
    "server": "mean_request_us",
    "groups": "mean_response_us",
    "autogroup": "mean_response_us",
}
#: Policies of callpipe's tasks A to F by its argument `pol`.
PIPES = {
    "fifo": ("fifo:50", "fifo:40", "fifo:30", "fifo:20", "fifo:20", "fifo:20"),
    "rr": ("rr:50", "rr:40", "rr:30", "rr:20", "rr:20", "rr:20"),
    "fiforev": ("fifo:20", "fifo:30", "fifo:40", "fifo:50", "fifo:50", "fifo:50"),
    "nice": ("other/n-15", "other/n-10", "other/n-5", "other/n0", "other/n0", "other/n0"),
}


@dataclass(frozen=True)
class Capture:
    """A capture of the lab.

    Attributes
    ----------
    key
        Folder and name: ``6.1/slice-default``.
    file
        The trace.
    env
        Kernel, set-up and tunables, as the guest wrote them down.
    workload
        First word of its command line.
    arguments
        The others, as name and value.
    """

    key: str
    file: Path
    env: Mapping[str, str]
    workload: str
    arguments: Mapping[str, str]

    @property
    def kernel(self) -> str:
        """Version of the kernel, two numbers."""
        match = re.match(r"\d+\.\d+", self.env.get("kernel", ""))
        return match[0] if match else ""

    @property
    def exact(self) -> bool:
        """A guest on virtual time: nothing but the scheduler decides its timing."""
        return not self.key.startswith("host-") and "-smp" not in self.key

    @property
    def cpus(self) -> int:
        """Number of CPUs; 1 where the capture does not say."""
        return int(self.env.get("ncpu", "1"))

    @property
    def metric(self) -> str:
        """Main metric of the capture: groups in which nobody answers are compared by their CPU shares."""
        if self.workload == "groups" and set(self.arguments.get("gi", "0,0").split(",")) == {"0"}:
            return "group0_share"
        return METRIC_OF[self.workload]

    def logged_us(self) -> float | None:
        """Mean response that the workload wrote down, us; `None` where it wrote none."""
        log = self.file.with_name(self.key.rpartition("/")[2] + ".log")
        text = log.read_text(errors="replace") if log.is_file() else ""
        found = re.search(r"^# response n=\d+ mean_us=([\d.]+)", text, re.MULTILINE)
        return float(found[1]) if found else None

    @property
    def affinity(self) -> tuple[tuple[str, str], ...]:
        """CPUs to which its tasks are bound: regular expression of the name, and CPUs."""
        found = []
        of_all = self.env.get("cpus", "")
        if of_all and len(of_all.split(",")) < self.cpus:
            found = [(pattern, of_all) for pattern, _ in _roles(self.workload, self.arguments)]
        for argument, name in (("hpin", r"^hog{:02}_"), ("ipin", r"^inter{:02}$")):
            cpus = self.arguments.get(argument, "")
            found += [(name.format(i), c) for i, c in enumerate(cpus.split(",")) if c.isdigit()]
        return tuple(found)


@dataclass(frozen=True)
class Pair:
    """Capture A, and capture B that a replay of A is to predict."""

    a: str
    b: str
    kind: str
    metric: str
    a_value: float
    b_value: float


@dataclass(frozen=True)
class Question:
    """A replay: the fair policy, the class above it, attributes by threads, and more.

    What cannot be said, groups, other CPUs.
    """

    policy: str
    rt: str | None
    sets: tuple[tuple[tuple[int, ...], tuple[tuple[str, str], ...]], ...]
    unmodelled: tuple[str, ...]
    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    cpus: int | None = None


def captures(folder: Path) -> dict[str, Capture]:
    """Find all captures below `folder`."""
    found = {}
    for path in sorted(folder.glob("*/*.env")):
        env = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        files = [path.with_name(path.stem + end) for end in (".dat", ".perf.data", ".perf.txt")]
        file = next((f for f in files if f.is_file()), None)
        words = env.get("workload", "").split()
        if file is None or not words:
            continue
        arguments = dict(w.split("=", 1) for w in words[1:] if "=" in w)
        key = f"{path.parent.name}/{path.stem}"
        found[key] = Capture(key, file, env, words[0], arguments)
    return found


def pairs(table: Path) -> list[Pair]:
    """Read the table of pairs."""
    found = []
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            b = row["capture_b"]
            found.append(
                Pair(
                    f"{row['dir']}/{row['capture_a']}",
                    b if "/" in b else f"{row['dir']}/{b}",
                    row["kind"],
                    row["metric"],
                    float(row["a_value"]),
                    float(row["b_value"]),
                )
            )
    return found


def _spec(text: str) -> tuple[tuple[str, str], ...]:
    """Attributes of a policy as the workload's arguments spell it: ``rr:10/n5/s100000``."""
    first, *rest = text.split("/")
    name, _, prio = first.partition(":")
    settings = {"policy": name}
    if prio:
        settings["prio"] = prio
    else:
        settings["nice"] = "0"
    for part in rest:
        settings["nice" if part[0] == "n" else "slice"] = part[1:] if part[0] == "n" else f"{part[1:]}ns"
    return tuple(settings.items())


def _roles(workload: str, arguments: Mapping[str, str]) -> list[tuple[str, str]]:
    """Which tasks run under which policy: regular expression of the name, and policy."""
    get = arguments.get
    match workload:
        case "slice":
            return [(r"^spin\d", get("spol", "other")), (r"^waker\d", get("wpol", "other"))]
        case "nicefork":
            return [(r"^hog\d", get("hpol", "other/n19")), (r"^(forker|exe|wlchild)$", get("ppol", "other"))]
        case "forkwait":
            return [(r"^forker$", get("pol", "other"))]
        case "yield":
            return [(r"^yield\d", get("pol", "other"))]
        case "mixed" | "pinned":
            spec, hogs = get("hpol", "other"), get("hogs", "0,5,10,19")
            nices = [] if hogs == "none" else hogs.split(",")
            of_hog = [(rf"^hog{i:02}_", spec if ":" in spec else f"{spec}/n{n}") for i, n in enumerate(nices)]
            return [*of_hog, (r"^inter\d", get("ipol", "other"))]
        case "server":
            return [
                (r"^hog\d", get("hpol", "other")),
                (r"^disp0$", get("dpol", "other")),
                (r"^work\d", get("wpol", "other")),
                (r"^gen0$", "fifo:90"),
            ]
        case "groups" | "autogroup":
            return [(r"^g\dhog", get("gpol", "other")), (r"^g\dint", get("ipol", "other"))]
        case _:
            six = PIPES.get(get("pol", "default"), (get("all", "other"),) * 6)
            return [
                *((rf"^{name}\d", spec) for name, spec in zip("ABCDEF", six, strict=True)),
                (r"^batch\d", get("bpol", "other")),
                (r"^gen0$", "fifo:90"),
            ]


def _setup(text: str, known: str, cpus: int = 1) -> tuple[list[str], list[str], list[str]]:
    """Parameters of the policy and of the real-time class that a set-up means, and what nothing models."""
    fair: list[str] = []
    rt: list[str] = []
    unmodelled: list[str] = []
    for command in filter(None, (c.strip() for c in text.split(";"))):
        verb, *words = command.split()
        if verb == "feat":
            for word in words:
                name, on = (word[3:], "off") if word.startswith("NO_") else (word, "on")
                if name in FEATURES:
                    fair.append(f"{FEATURES[name]}={on}")
                else:
                    unmodelled.append(f"feature {word}")
        elif verb == "tun" and words[0] in TUNABLES:
            ns = unscaled(words[0], int(words[1]), known, cpus)
            fair.append(f"{TUNABLES[words[0]]}={ns}ns")
        elif words[:1] == ["sched_rr_timeslice_ms"]:
            rt.append(f"slice={words[1]}ms")
        elif words[:1] == ["sched_rt_runtime_us"]:
            rt.append("throttle=off" if words[1] == "-1" else f"runtime={words[1]}us")
        elif words[:1] == ["sched_child_runs_first"] and known == "cfs":
            fair.append(f"child_runs_first={'on' if words[1] == '1' else 'off'}")
        else:
            unmodelled.append(command)
    return fair, rt, unmodelled


def _groups(
    target: Capture,
) -> tuple[list[tuple[str, str]], tuple[tuple[str, tuple[tuple[str, str], ...]], ...]]:
    """Who is in which group by the capture's own map, and the groups with their settings.

    Sessions are groups where autogroup is on.
    """
    table = target.file.with_name(target.file.stem + ".groups.tsv")
    if not table.is_file() or (target.workload == "autogroup" and target.env.get("autogroup") != "1"):
        return [], ()
    overrides, groups = read_map(table)
    members = [(o.value, value) for o in overrides for _, value in o.settings]
    return members, tuple((name, tuple(settings)) for name, settings in groups)


def question(target: Capture, trace: Trace, known: list[str]) -> Question:
    """What a replay is asked so that it predicts `target`.

    Parameters
    ----------
    target
        The capture to predict: only its kernel, set-up and command line are looked at.
    trace
        The trace to be replayed, for the names of its tasks.
    known
        Names of all policies.

    Returns
    -------
    Question
        What to replay. The policy of every task that the workload gives one is stated: SCHED_BATCH,
        SCHED_IDLE and the difference of FIFO and RR cannot be seen in a trace of scheduler events.
    """
    policy, _ = infer({"os": "linux", "kernel": target.env.get("kernel", "")}, known)
    name, _, form = policy.partition(":")
    fair, rt, unmodelled = _setup(target.env.get("setup", ""), name, target.cpus)
    tasks = trace.tasks.filter(~pl.col("is_idle")).select("tid", pl.col("comm").cast(pl.String))
    sets = []
    for pattern, spec in _roles(target.workload, target.arguments):
        chosen = tuple(sorted(set(tasks.filter(pl.col("comm").str.contains(pattern))["tid"])))
        if chosen:
            sets.append((chosen, _spec(spec)))
    # Where the workload binds tasks, those that it does not bind are free.
    free = [(pattern, f"0-{target.cpus - 1}") for pattern, _ in _roles(target.workload, target.arguments)]
    for pattern, cpu in (*(free if target.workload == "pinned" else ()), *target.affinity):
        chosen = tuple(sorted(set(tasks.filter(pl.col("comm").str.contains(pattern))["tid"])))
        if chosen:
            sets.append((chosen, (("cpus", cpu),)))
    members, groups = _groups(target)
    for comm, group in members:
        chosen = tuple(sorted(set(tasks.filter(pl.col("comm") == comm)["tid"])))
        if chosen:
            sets.append((chosen, (("group", group),)))
    if members and not models_groups(policy):
        unmodelled.append(f"groups under {name}")
    parameters = [p for p in (form, *fair) if p]
    return Question(
        name + (":" + ",".join(parameters) if parameters else ""),
        "rt:" + ",".join(rt) if rt else None,
        tuple(sets),
        tuple(unmodelled),
        groups,
        target.cpus,
    )
