"""What tasks do, rather than what was recorded: as a workload text, and as JSON for rt-app.

The JSON follows the grammar of rt-app's ``doc/tutorial.txt`` (github.com/scheduler-tools/rt-app):
one object for each thread, with phases of events. Event keys carry a number, since keys of a JSON
object are to be unique.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracekit.errors import ReplayError

__all__ = ["Listing", "Task", "rt_app", "text_of"]

Step = tuple[str, Sequence[int]]


@dataclass(frozen=True)
class Task:
    """A task of a listing.

    `start` is None for one that another makes, `attrs[0]` holds its first attributes.
    """

    comm: str
    tid: int
    start: int | None
    attrs: Sequence[Sequence[tuple[str, str]]]
    steps: Sequence[Step]


@dataclass(frozen=True)
class Listing:
    """The programs of a trace or of a workload text, and the machine that they ran on.

    Attributes
    ----------
    tasks, requests
        What they do; what a message asks for.
    units
        Units of each semaphore at the start.
    hz, cpus, end_ns
        Ticks a second, CPUs, and the end of the run; None where there is none.
    policy
        The policy it ran under.
    costs
        What scheduling cost, by the names of `tracekit.costs`.
    phases
        Time of the first tick of each CPU, ns.
    buffers
        Room of each buffer, what is written and read at once, for how much there is room again when
        those who wait for it are woken, and what is in it at the start, in units.
    """

    tasks: Sequence[Task]
    requests: Sequence[Sequence[Step]]
    units: Sequence[int]
    hz: int
    cpus: int
    end_ns: int | None
    policy: str
    costs: Sequence[tuple[str, str]] = ()
    phases: Sequence[int] = ()
    buffers: Sequence[tuple[int, int, int, int, int]] = ()

    def names(self) -> list[str]:
        """A name for each task, of letters, digits and _, each once, beginning with an upper-case letter."""
        plain = [re.sub(r"\W", "_", t.comm, flags=re.ASCII) or "Task" for t in self.tasks]
        plain = [p if p[0].isalpha() else f"T{p}" for p in plain]
        plain = [p[0].upper() + p[1:] for p in plain]
        often = Counter(plain)
        found: list[str] = []
        for name, task in zip(plain, self.tasks, strict=True):
            made = name if often[name] == 1 else f"{name}_{task.tid}"
            while made in found:
                made += "x"
            found.append(made)
        return found


_SIMPLE = {"run": "R", "kernel": "K", "ticks": "S", "io": "D", "external": "E", "at": "U", "receive": "A"}
#: What a task does that finds its periodic timer expired.
_LATE = ("", "/merge", "/skip")
_BARE = {"yield": "Y", "exec": "X", "exiting": "Q", "exit": "Z"}
#: What an attribute is when nobody sets it.
_UNSET = {"policy": "other", "nice": "0", "foreground": "off", "kernel": "off"}


#: Room of a buffer that holds any number of units.
_ANY = 2**32 - 1


def _ns(ns: int) -> str:
    return "∞" if ns < 0 else f"{ns}ns"


def text_of(found: Listing, left_out: Counter[str]) -> Iterator[str]:
    """A workload text of the programs, a line at a time.

    What the language cannot say is counted in `left_out`.
    """
    names = found.names()
    yield f"policy: {found.policy}\ncpus: {found.cpus}\nhz: {found.hz}\n"
    if any(found.phases):
        yield f"phase: {','.join(f'{ns}ns' for ns in found.phases)}\n"
    if found.costs:
        yield f"costs: {' '.join(f'{key}={time}' for key, time in found.costs)}\n"
    if found.end_ns is not None:
        yield f"until: {found.end_ns}ns\n"
    for i, (capacity, write, read, room, holds) in enumerate(found.buffers):
        most = "max" if capacity == _ANY else str(capacity)
        yield f"buffer b{i}: capacity={most} write={write} read={read} room={room} holds={holds}\n"
    units = [f"P(s{i})" for i, n in enumerate(found.units) for _ in range(n)]
    if units:
        yield f"Units: {' '.join(units)}\n"
    for name, task in zip(names, found.tasks, strict=True):
        if name != task.comm:
            yield f"# {name}: {task.comm}, thread {task.tid}\n"
        attrs = "".join(f" {key}={value}" for key, value in task.attrs[0])
        start = "fork" if task.start is None else f"{task.start}ns"
        steps = " ".join(_words(task, found, names, left_out)) or "Z"
        yield f"{name}{attrs}{'' if task.start == 0 else f' start={start}'}: {steps}\n"


def _words(task: Task, found: Listing, names: Sequence[str], left_out: Counter[str]) -> Iterator[str]:
    """Steps of a task as words; a jump back closes a loop, and what is behind it is never reached."""
    jump = next((i for i, (op, _) in enumerate(task.steps) if op in ("goto", "loop_until")), None)
    steps = task.steps if jump is None else task.steps[:jump]
    target = None if jump is None else task.steps[jump][1][0]
    if jump is not None and task.steps[jump][0] == "loop_until":
        left_out["ends of loops (they go on until the end of the run)"] += 1
    held = dict(task.attrs[0])
    for i, step in enumerate(steps):
        opening = "(" if i == target else ""
        if step[0] == "attrs":
            new = dict(task.attrs[step[1][0]])
            change = {k: v for k, v in new.items() if held.get(k) != v}
            change |= {k: _UNSET[k] for k in held if k not in new and k in _UNSET}
            held = new
            word = f"N({','.join(f'{k}={v}' for k, v in change.items())})" if change else ""
        else:
            word = _word(step, found, names)
        if opening + word:
            yield opening + word
    if jump is not None:
        yield ")*"


def _word(step: Step, found: Listing, names: Sequence[str]) -> str:
    op, numbers = step
    if op in _BARE:
        return _BARE[op]
    first = numbers[0]
    match op:
        case "receive":
            return f"A(q{first})"
        case "sleep" | "period":
            slack = numbers[1]
            word = f"S{first}ns" if op == "sleep" else f"S@{first}ns"
            late = _LATE[numbers[2]] if op == "period" else ""
            return word + (f"~{slack}ns" if slack else "") + late
        case "wait":
            return f"W(s{first})"
        case "spin":
            turns = "" if numbers[2] < 0 else f",{numbers[2]}"
            return f"B(s{first},{numbers[1]}ns{turns})"
        case "post":
            return f"{'Psync' if numbers[1] else 'P'}(s{first})"
        case "put":
            return f"I(b{first})"
        case "take":
            return f"O(b{first})"
        case "barrier":
            return f"J(m{first})"
        case "acquire" | "release":
            return f"{'L' if op == 'acquire' else 'G'}(l{first})"
        case "contend":
            return f"H(l{first},{_ns(numbers[1])}{',ready' if numbers[2] else ''})"
        case "fork":
            return f"{'FVT'[numbers[1]]}({names[first]})"
        case "send":
            request = found.requests[numbers[1]]
            if any(inner in ("fork", "attrs", "exit", "goto", "loop_until") for inner, _ in request):
                raise ReplayError(
                    "a request makes tasks, changes attributes or ends its server: no text can say so"
                )
            return f"M(q{first}: {' '.join(_word(s, found, names) for s in request) or 'R0'})"
        case _:
            return f"{_SIMPLE[op]}{_ns(first)}"


@dataclass
class _Phase:
    """A phase of a thread of rt-app."""

    loop: int = 1
    head: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        numbered = {f"{key}{i}": value for i, (key, value) in enumerate(self.events)}
        return {"loop": self.loop, **self.head, **numbered}


_POLICIES = {"fifo": "SCHED_FIFO", "rr": "SCHED_RR", "idle": "SCHED_IDLE", "deadline": "SCHED_DEADLINE"}


def rt_app(found: Listing, left_out: Counter[str]) -> Iterator[str]:
    """JSON for rt-app; it counts what its grammar cannot say in `left_out`."""
    queues = sum(op in ("send", "receive") for t in found.tasks for op, _ in t.steps)
    if queues:
        raise ReplayError(
            f"rt-app has no queues of requests, and {queues} steps send or receive one; write the workload with "
            "semaphores (W, P), or use --as workload"
        )
    if found.buffers:
        raise ReplayError(
            f"rt-app has no buffers that hold so much, and there are {len(found.buffers)}: use --as workload"
        )
    if any(found.units):
        left_out["units that semaphores begin with"] += sum(found.units)
    names = [name[:15] for name in found.names()]
    names = [
        n if names.count(n) == 1 else f"{n[:8]}_{t.tid}" for n, t in zip(names, found.tasks, strict=True)
    ]
    threads = {n: _thread(t, names, left_out) for n, t in zip(names, found.tasks, strict=True)}
    whole = {
        "tasks": threads,
        "global": {
            "duration": -1 if found.end_ns is None else math.ceil(found.end_ns / 1e9),
            "calibration": "CPU0",
            "default_policy": "SCHED_OTHER",
            "lock_pages": False,
            "logdir": "./",
            "log_size": "disable",
        },
    }
    yield json.dumps(whole, indent=2) + "\n"


def _attributes(attrs: Sequence[tuple[str, str]], left_out: Counter[str]) -> dict[str, Any]:
    """Attributes as rt-app takes them.

    Policy, priority (nice outside real time), CPUs, times of a reservation.
    """
    given = dict(attrs)
    head: dict[str, Any] = {}
    policy = given.pop("policy", "deadline" if "deadline" in given else "other")
    real_time = policy in ("fifo", "rr")
    head["policy"] = _POLICIES.get(policy, "SCHED_OTHER")
    if policy == "batch":
        left_out["policy batch (other instead)"] += 1
    priority = given.pop("prio", "0") if real_time else given.pop("nice", "0")
    head["priority"] = int(priority)
    if "deadline" in given:
        times = [int(ns.removesuffix("ns")) // 1000 for ns in given.pop("deadline").split("/")]
        head |= dict(zip(("dl-runtime", "dl-deadline", "dl-period"), times, strict=True))
    if "cpus" in given:
        head["cpus"] = [int(cpu) for cpu in given.pop("cpus").split("+")]
    if "group" in given:
        head["taskgroup"] = "/" + given.pop("group").strip("/")
    for key in given:
        left_out[f"attribute {key}"] += 1
    return head


def _thread(task: Task, names: Sequence[str], left_out: Counter[str]) -> dict[str, Any]:
    phases = [_Phase()]
    jump = next((i for i, (op, _) in enumerate(task.steps) if op in ("goto", "loop_until")), len(task.steps))
    target = task.steps[jump][1][0] if jump < len(task.steps) else None
    # Times are whole us: what is rounded off goes to the next run, so that the sum is right.
    rest, clock = 0, task.start or 0
    met: Counter[int] = Counter()
    for i, (op, numbers) in enumerate(task.steps[:jump]):
        if i == target:
            phases.append(_Phase(loop=-1))
        if op == "attrs":
            phases.append(_Phase(phases[-1].loop, _attributes(task.attrs[numbers[0]], left_out)))
            if phases[-1].loop < 0:
                left_out["changes of attributes in a loop (the part before is repeated by itself)"] += 1
            continue
        ns = numbers[0] if numbers else 0
        if op in ("run", "kernel"):
            if ns < 0:
                phases.append(_Phase(-1, events=[("run", 1_000_000)]))
                break
            us, rest = divmod(ns + rest, 1000)
            clock += ns
            if us:
                phases[-1].events.append(("run", us))
            continue
        if op == "at":
            # An absolute time: the time that is left when nothing delays the task.
            left_out["wakeups at a time of their own (sleeps instead)"] += 1
            ns, clock = max(ns - clock, 0), max(ns, clock)
        elif op in ("sleep", "ticks", "io", "external"):
            clock += ns
        elif op == "barrier":
            # A barrier waits for as many as there are steps that name it: each time has a name of its own.
            if task.start is None:
                left_out[
                    "barriers of tasks that others make (rt-app waits for those that begin by themselves)"
                ] += 1
            met[ns] += 1
            phases[-1].events.append(("barrier", f"m{ns}_{met[ns]}"))
            continue
        phases[-1].events += _events(op, ns, numbers, names, left_out)
    phases = [p for p in phases if p.events or p.head]
    whole: dict[str, Any] = {"instance": 0 if task.start is None else 1, "loop": 1}
    if task.start:
        whole["delay"] = round(task.start / 1000)
    whole |= _attributes(task.attrs[0], left_out)
    whole["phases"] = {f"phase{i}": phase.as_json() for i, phase in enumerate(phases or [_Phase()])}
    return whole


def _events(
    op: str, ns: int, numbers: Sequence[int], names: Sequence[str], left_out: Counter[str]
) -> list[tuple[str, Any]]:
    """Events of rt-app for a step."""
    match op:
        case "sleep" | "ticks" | "io" | "external" | "at":
            if op in ("io", "external"):
                left_out["devices and wakers from outside (sleeps of the same length instead)"] += 1
            us = round(ns / 1000)
            return [("sleep", us)] if us else []
        case "period":
            mode = "relative" if numbers[2] else "absolute"
            return [("timer", {"ref": "unique", "period": round(ns / 1000), "mode": mode})]
        case "wait":
            mutex, ref = f"m{numbers[0]}", f"c{numbers[0]}"
            return [("lock", mutex), ("wait", {"ref": ref, "mutex": mutex}), ("unlock", mutex)]
        case "post":
            left_out["posts that come before their wait (rt-app's signals are not counted)"] += 1
            mutex, ref = f"m{numbers[0]}", f"c{numbers[0]}"
            return [("lock", mutex), ("signal", ref), ("unlock", mutex)]
        case "fork":
            if numbers[1] == 1:
                left_out["vfork (fork instead)"] += 1
            return [("fork", names[numbers[0]])]
        case "yield":
            return [("yield", "")]
        case "acquire" | "release":
            return [("lock" if op == "acquire" else "unlock", f"l{numbers[0]}")]
        case "contend":
            left_out["waits for a lock, of which the trace shows no more than that"] += 1
            return []
        case "spin":
            left_out["busy waits (they take no time there)"] += 1
            return []
        case _:
            if op != "exit":
                left_out[op] += 1
            return []
