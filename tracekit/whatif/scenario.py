"""Scenarios: attributes for some tasks of a replay, and what scheduling costs.

From ``--set`` texts or a TOML file.

A scenario file::

    policy = "aix"
    loop = "dependency"

    [cost]
    fork = "list:2us/50ns"

    [[task]]
    comm = "A*"          # glob; or comm_regex, tid, pid
    prio = 45

    [[task]]
    comm_regex = "^[DEF]$"
    policy = "rr"
    prio = 48

The same as ``--set`` texts: ``A*: prio=45`` and ``comm~^[DEF]$: policy=rr,prio=48``. Later entries
win. The attributes are those of the replay engine: policy, nice, prio, upri, class, slice,
deadline, tickets, foreground, process, kernel, cpus, group. ``group:web: weight=300,
quota=50ms/100ms, idle=on`` sets those of a group; ``nice=10`` in place of a weight, ``quota=off`` to
lift a limit. ``cpu:3: capacity=512, khz=600000`` sets the capacity of a CPU (1024 for the fastest)
and its frequency at all times.

A task that is made in the trace begins with the policy, nice value, priority and slice that its
parent has at that moment, as a fork hands them on. It has its own from where it was seen to set
them, or else from when it first runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit._toml import read_toml
from tracekit.errors import FilterError, ReplayError
from tracekit.filters import fits, holding, nearest
from tracekit.units import format_cpus

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = [
    "Override",
    "Scenario",
    "cpu_settings",
    "group_settings",
    "load",
    "names_of",
    "overrides_of",
    "parse_set",
    "refuse_absent",
    "resolve",
    "same_name",
]

_KEYS = ("comm", "comm_regex", "tid", "pid")


@dataclass(frozen=True)
class Override:
    """Attributes for the tasks that a selector names.

    Attributes
    ----------
    key
        ``comm`` (glob), ``comm_regex``, ``tid``, ``pid`` or ``*`` (every task); ``group`` for a
        group, not its tasks; ``cpu`` for a CPU.
    value
        What to look for.
    settings
        Attribute and value, both as text.
    """

    key: str
    value: str
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """As ``--set`` takes it."""
        settings = ",".join(f"{k}={v}" for k, v in self.settings)
        if self.key == "comm_regex" and self.value != self.value.rstrip():
            return f"/{self.value}/: {settings}"
        sign = {
            "comm": "comm=",
            "comm_regex": "comm~",
            "tid": "tid=",
            "pid": "pid=",
            "*": "*",
            "group": "group:",
            "cpu": "cpu:",
        }[self.key]
        return f"{sign}{self.value}: {settings}"

    @property
    def short(self) -> str:
        """As people write it: ``spin*: nice=5``, ``/^spin/: nice=5``."""
        text = str(self)
        if self.key == "comm_regex":
            return f"/{self.value}/: {text.rpartition(': ')[2]}"
        return text.removeprefix("comm=")


@dataclass(frozen=True)
class Scenario:
    """What a scenario file says.

    Attributes
    ----------
    policy
        Policy of the replay, `None` when the file names none.
    loop
        ``dependency``, ``open`` or ``closed``; `None` when the file names none.
    overrides
        Attributes by task, in the order of the file.
    costs
        What scheduling costs, by the names of `tracekit.costs`.
    """

    policy: str | None = None
    loop: str | None = None
    overrides: tuple[Override, ...] = field(default=())
    costs: Mapping[str, str] = field(default_factory=dict)


def _settings(text: str, where: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ReplayError(f"{where}: {part!r}: expected attribute=value, such as nice=5 or policy=fifo")
        pairs.append((key.strip(), value.strip()))
    if not pairs:
        raise ReplayError(f"{where}: expected attributes after the colon, such as `comm=A*: prio=45`")
    return tuple(pairs)


def parse_set(text: str) -> Override:
    """Read one ``--set`` text.

    Parameters
    ----------
    text
        ``SELECTOR: key=value,...``. The selector is ``comm=GLOB`` (or just the glob),
        ``comm~REGEX`` (or ``/REGEX/``), ``tid=N``, ``pid=N``, ``*``, ``group:NAME`` for weight,
        quota and idle of a group, or ``cpu:N`` for capacity and khz of a CPU.

    Returns
    -------
    Override
        What it says.

    Raises
    ------
    ReplayError
        When it does not fit, with what was expected.
    """
    where = f"--set {text!r}"
    selector, colon, rest = text.rpartition(": ") if ": " in text else text.rpartition(":")
    selector = selector.strip()
    if not colon:
        raise ReplayError(
            f"{where}: expected `selector: attribute=value`, such as `comm~^A: policy=fifo,prio=45`"
        )
    return _override(selector, _settings(rest, where), where)


def _bare(group: str) -> str:
    """The name of a group without slashes and blanks (all that `str.strip` takes for one) around it."""
    return group.strip("/" + "".join(c for c in group if c.isspace()))


def _override(selector: str, settings: tuple[tuple[str, str], ...], where: str) -> Override:
    if selector == "*":
        return Override("*", "", settings)
    if selector.startswith("group:") and (name := _bare(selector[6:])):
        return Override("group", name, settings)
    if selector.startswith("cpu:"):
        return _checked("cpu", selector[4:].strip(), settings, where)
    if len(selector) > 1 and selector.startswith("/") and selector.endswith("/"):
        return _checked("comm_regex", selector[1:-1], settings, where)
    for sign, key in (("comm~", "comm_regex"), ("comm=", "comm"), ("tid=", "tid"), ("pid=", "pid")):
        if selector.startswith(sign):
            return _checked(key, selector[len(sign) :], settings, where)
    if not selector or "=" in selector:
        expected = "comm=GLOB, comm~REGEX, tid=N, pid=N, a glob, /REGEX/ or *"
        raise ReplayError(f"{where}: selector {selector!r}: expected {expected}")
    return Override("comm", selector, settings)


def overrides_of(
    scenario: Scenario | Mapping[str, Mapping[str, object]] | str | Iterable[Override | str],
) -> list[Override]:
    """Overrides, however they were written.

    Parameters
    ----------
    scenario
        A scenario; or selector to attributes, ``{"spin*": {"nice": 5}}``; or overrides, also as texts,
        ``"spin*: nice=5"``, see `parse_set`.

    Returns
    -------
    list of Override
        In the given order.

    Raises
    ------
    ReplayError
        When a selector means nothing, or something is no override.
    """
    if isinstance(scenario, Scenario):
        return list(scenario.overrides)
    if isinstance(scenario, Mapping):
        for selector, settings in scenario.items():
            if not isinstance(settings, Mapping):
                raise ReplayError(
                    f"scenario {selector!r}: expected attributes, such as {{'nice': 5}}, found {settings!r:.60}"
                )
        return [
            _override(
                selector, tuple((k, _as_text(v)) for k, v in settings.items()), f"scenario {selector!r}"
            )
            for selector, settings in scenario.items()
        ]
    given = [scenario] if isinstance(scenario, str) else list(scenario)
    for one in given:
        if not isinstance(one, Override | str):
            raise ReplayError(f"scenario: expected changes, such as 'spin*: nice=5', found {one!r:.60}")
    return [parse_set(one) if isinstance(one, str) else one for one in given]


def _checked(key: str, value: str, settings: tuple[tuple[str, str], ...], where: str) -> Override:
    if key in ("tid", "pid", "cpu") and not re.fullmatch("-?[0-9]{1,18}", value):
        raise ReplayError(f"{where}: {key}={value}: expected a number")
    if key == "comm_regex":
        try:
            holding(value, ())
        except FilterError as error:
            raise ReplayError(f"{where}: {error}") from None
    return Override(key, value, settings)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def load(path: str | Path) -> Scenario:
    """Read a scenario file.

    Parameters
    ----------
    path
        A TOML file as in the module's text.

    Returns
    -------
    Scenario
        What it says.

    Raises
    ------
    ReplayError
        When it cannot be read or holds a key that means nothing.
    """
    try:
        data = read_toml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ReplayError(f"{path}: expected a TOML file, found bytes that are no text: {error}") from None
    except ValueError as error:
        raise ReplayError(f"{path}: no TOML: {error}") from None
    unknown = set(data) - {"policy", "loop", "task", "cost"}
    if unknown:
        raise ReplayError(
            f"{path}: unknown key {sorted(unknown)[0]!r}; valid are policy, loop, [cost] and [[task]]"
        )
    costs = data.get("cost", {})
    if not isinstance(costs, dict):
        raise ReplayError(f"{path}: cost: expected a table [cost] with lines such as switch = '3us'")
    overrides = []
    tasks = data.get("task", [])
    if not isinstance(tasks, list):
        raise ReplayError(f"{path}: expected [[task]] with two brackets on each side")
    for number, entry in enumerate(tasks, 1):
        where = f"{path}, task {number}"
        keys = [k for k in _KEYS if k in entry]
        if len(keys) > 1:
            raise ReplayError(f"{where}: expected one of {', '.join(_KEYS)}, found {' and '.join(keys)}")
        settings = tuple((k, _as_text(v)) for k, v in entry.items() if k not in _KEYS)
        if not settings:
            raise ReplayError(f"{where}: expected at least one attribute, such as nice = 5")
        key = keys[0] if keys else "*"
        overrides.append(_checked(key, _as_text(entry[key]) if keys else "", settings, where))
    texts = {key: _as_text(value) for key, value in costs.items()}
    return Scenario(data.get("policy"), data.get("loop"), tuple(overrides), texts)


def resolve(overrides: Iterable[Override], trace: Trace) -> list[tuple[list[int], list[tuple[str, str]]]]:
    """Find the threads that each override names.

    Parameters
    ----------
    overrides
        What to set.
    trace
        Whose tasks are looked at, under every name that they had.

    Returns
    -------
    list of (list of int, list of (str, str))
        Threads, and attributes with their values, in the given order.

    Raises
    ------
    ReplayError
        When an override names no task of the trace.
    """
    names, pids = names_of(trace)
    every = set().union(*names.values())
    found = []
    for override in overrides:
        if override.key in ("group", "cpu"):
            continue
        tids = _threads(override, names, pids, every)
        if not tids:
            shown = nearest([override.value], sorted(every))
            raise ReplayError(f"{override}: no task of this trace fits; it has {shown}")
        found.append((tids, list(override.settings)))
    return found


def group_settings(overrides: Iterable[Override]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Pick what is set of groups.

    Parameters
    ----------
    overrides
        What to set.

    Returns
    -------
    list of (str, list of (str, str))
        Groups, and settings with their values, in the given order.
    """
    return [(o.value, list(o.settings)) for o in overrides if o.key == "group"]


def cpu_settings(overrides: Iterable[Override]) -> list[tuple[int, list[tuple[str, str]]]]:
    """Pick what is set of CPUs.

    Parameters
    ----------
    overrides
        What to set.

    Returns
    -------
    list of (int, list of (str, str))
        CPUs by their numbers, and settings with their values, in the given order.
    """
    return [(int(o.value), list(o.settings)) for o in overrides if o.key == "cpu"]


def refuse_absent(overrides: Iterable[Override], trace: Trace, cpus: int | None) -> None:
    """Refuse to bind tasks to CPUs that a replay has not.

    Parameters
    ----------
    overrides
        What to set.
    trace
        Whose CPUs the replay has.
    cpus
        How many the replay has, where that is another number.

    Raises
    ------
    ReplayError
        When a task may use none of the replay's CPUs.
    """
    numbers = sorted(trace.cpus["cpu"].to_list())
    more = range(numbers[-1] + 1, numbers[-1] + 1 + max(0, (cpus or 0) - len(numbers))) if numbers else ()
    there = {*numbers[:cpus], *more}
    for override in overrides:
        for key, value in override.settings:
            asked = [part.partition("-") for part in value.split("+")] if key == "cpus" else []
            ranges = [
                (low, high or low) for low, _, high in asked if low.isdecimal() and (high or low).isdecimal()
            ]
            # What is no list of CPUs the core refuses.
            if ranges and not any(int(low) <= cpu <= int(high) for low, high in ranges for cpu in there):
                raise ReplayError(f"{override}: the replay has no such CPU; it has {format_cpus(there)}")


def names_of(trace: Trace) -> tuple[dict[int, set[str]], dict[int, int | None]]:
    """Names that each thread had, and its process."""
    return trace.once("names", lambda: _names_of(trace))


def _names_of(trace: Trace) -> tuple[dict[int, set[str]], dict[int, int | None]]:
    names: dict[int, set[str]] = {}
    pids: dict[int, int | None] = {}
    for tid, pid, idle, *comms in trace.tasks.select("tid", "pid", "is_idle", "comm", "comm_first").rows():
        if not idle:
            pids[tid] = pid
            names.setdefault(tid, set()).update(c for c in comms if c is not None)
    for tid, comm in trace.slices.select("tid", "comm").unique().rows():
        if tid in names and comm is not None:
            names[tid].add(comm)
    return names, pids


def same_name(full: str, name: str) -> bool:
    """Whether `name`, as a trace has it, is that of the task that /proc calls `full`.

    A trace keeps 15 bytes; of a kernel worker /proc adds what it works on, ``kworker/0:1-events``.
    """
    return full == name or full[:15] == name or (name.startswith("kworker/") and full.startswith(f"{name}-"))


def _threads(
    override: Override, names: Mapping[int, set[str]], pids: Mapping[int, int | None], every: set[str]
) -> list[int]:
    """The threads that an override names, in order; `every` holds all names."""
    match override.key:
        case "*":
            return sorted(names)
        case "tid":
            return [int(override.value)] if int(override.value) in names else []
        case "pid":
            return sorted(tid for tid, pid in pids.items() if pid == int(override.value))
        case "comm":
            fitting = {n for n in every if fits(n, override.value)}
        case _:
            fitting = holding(override.value, every)
    return sorted(tid for tid, known in names.items() if not fitting.isdisjoint(known))
