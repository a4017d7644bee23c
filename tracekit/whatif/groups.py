"""Groups of tasks that share CPU time as one: cgroups and autogroups.

From the machine beside a trace, a map file, or ``--set``; without a machine those that the trace shows
(`tracekit.whatif.sharing`).

A group has a weight against its siblings (``cpu.weight``, 100 by default), a quota of CPU time per
period (``cpu.max``), and may count as SCHED_IDLE (``cpu.idle``). Names are paths: ``web/db`` lies
within ``web``. `eevdf`, and `cfs` as in 6.1, schedule by them; other policies look at tasks alone,
and refuse what is asked of groups.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.errors import ReplayError
from tracekit.units import format_names
from tracekit.whatif.members import grouped, membership, models_groups
from tracekit.whatif.scenario import Override, group_settings
from tracekit.whatif.sharing import learned

if TYPE_CHECKING:
    from tracekit.trace import Trace
    from tracekit.whatif.threads import Beside

__all__ = [
    "Group",
    "asked_of_groups",
    "from_machine",
    "known_groups",
    "models_groups",
    "read_map",
    "refuse_empty",
    "rt_limits",
]

#: A group's name, and its settings as text: ``weight``, ``quota`` (``50ms/100ms`` or ``max``), ``idle``.
Group = tuple[str, list[tuple[str, str]]]

_COLUMNS = ("pid", "comm", "group", "cpu_weight", "cpu_max")


def asked_of_groups(policy: object, overrides: Sequence[Override]) -> list[Group]:
    """Pick what is set of groups, for a policy that schedules by them.

    Parameters
    ----------
    policy
        As a replay takes it.
    overrides
        What to set.

    Returns
    -------
    list of Group
        Groups and their settings.

    Raises
    ------
    ReplayError
        When something is asked of groups and the policy does not know any.
    """
    asked = [o for o in overrides if o.key == "group" or any(key == "group" for key, _ in o.settings)]
    if asked and not models_groups(policy):
        name = policy.partition(":")[0] if isinstance(policy, str) else "this policy"
        raise ReplayError(f"{asked[0]}: {name} does not model groups; expected cfs (form 6.1) or eevdf")
    return group_settings(asked)


def refuse_empty(
    overrides: Iterable[Override], sets: Iterable[tuple[Sequence[int], Sequence[tuple[str, str]]]]
) -> None:
    """Refuse what is set of a group in which nobody is: nothing would change by it.

    Parameters
    ----------
    overrides
        What to set.
    sets
        Threads with their attributes, as `from_machine` and `tracekit.whatif.scenario.resolve` give
        them.

    Raises
    ------
    ReplayError
        When no task of the trace is in such a group, nor in one within it.
    """
    asked = [o for o in overrides if o.key == "group" and o.value.strip("/")]
    if not asked:
        return
    named = {value.strip("/") for tids, settings in sets if tids for key, value in settings if key == "group"}
    for override in asked:
        name = override.value.strip("/")
        if not any(group == name or group.startswith(f"{name}/") for group in named):
            known = f"; groups with tasks are {', '.join(sorted(named)[:8])}" if named else ""
            raise ReplayError(
                f"{override}: no task of this trace is known to be in {name}{known}; say who is, such as "
                f"'make: group={name}', or write the machine's file while the work runs"
            )


def _quota(quota_us: int | None, period_us: int | None) -> str:
    return "max" if quota_us is None else f"{quota_us}us/{period_us or 100_000}us"


def known_groups(
    trace: Trace, shared: Mapping[int, str] | None = None, threads: Beside | None = None
) -> tuple[list[tuple[list[int], list[tuple[str, str]]]], list[Group]]:
    """Groups that the machine beside a trace states; without one, those that the trace shows.

    Parameters
    ----------
    trace
        The trace.
    shared
        Threads and their groups, to be taken instead.
    threads
        As in `tracekit.whatif.sharing.learned`.

    Returns
    -------
    tuple
        As `from_machine`.
    """
    if shared is None and trace.machine is None and (found := learned(trace, threads)) is not None:
        shared = found.group
    if shared is None:
        return from_machine(trace)
    return [([tid], [("group", group)]) for tid, group in shared.items()], []


def from_machine(trace: Trace) -> tuple[list[tuple[list[int], list[tuple[str, str]]]], list[Group]]:
    """Groups that the machine beside the trace states.

    Parameters
    ----------
    trace
        The trace, with or without a machine.

    Returns
    -------
    tuple
        Threads with their group, as `tracekit.whatif.scenario.resolve` gives attributes, and the
        groups with their settings. A group without the CPU controller is left out: its tasks
        compete in the nearest group above that has it. Tasks in the root group are in their
        session's autogroup, where the machine has these. Of tasks that the machine does not list
        see `tracekit.whatif.members.membership`.
    """
    machine = trace.machine
    if machine is None:
        return [], []
    groups: list[Group] = []
    known = grouped(machine)
    for path, shares, quota, period, idle in machine.cgroups.select(
        "path", "shares", "quota_us", "period_us", "idle"
    ).iter_rows():
        if path in known:
            weight = min(max(round(shares * 100 / 1024), 1), 10_000)
            settings = [("weight", str(weight)), ("quota", _quota(quota, period))]
            groups.append((path.strip("/"), settings + ([("idle", "on")] if idle else [])))
    for session, nice in (
        machine.tasks.select("autogroup", "autogroup_nice").unique().drop_nulls().iter_rows()
    ):
        if nice:
            groups.append((session.strip("/"), [("nice", str(nice))]))
    found = membership(trace, machine, known)
    return [([tid], [("group", group)]) for tid, group in found.group.items() if group], groups


def rt_limits(trace: Trace, *replays: Trace) -> list[str]:
    """Say which real-time tasks of a replay are in groups that limit these: no replay models it.

    Parameters
    ----------
    trace
        The recording, with or without a machine.
    replays
        Replays of it.

    Returns
    -------
    list of str
        A sentence for each group (``cpu.rt_runtime_us`` of cgroup v1, CONFIG_RT_GROUP_SCHED), below
        the root group, whose limit is that of the system (``sched_rt_runtime_us``).
    """
    machine = trace.machine
    if machine is None or machine.cgroups["rt_runtime_us"].null_count() == machine.cgroups.height:
        return []
    limits = {
        path.strip("/"): (runtime, period or 1_000_000)
        for path, runtime, period in machine.cgroups.select(
            "path", "rt_runtime_us", "rt_period_us"
        ).iter_rows()
        if runtime is not None and path.strip("/") and 0 <= runtime < (period or 1_000_000)
    }
    tasks = pl.concat(
        [r.tasks.select("tid", pl.col("comm").cast(pl.String), "prio_min", "is_idle") for r in replays]
    )
    above = tasks.filter(pl.col("prio_min").is_between(0, 98), ~pl.col("is_idle"))
    listed = dict(machine.tasks.select("tid", "cgroup").drop_nulls().iter_rows())
    found: dict[str, set[str]] = {}
    for tid, comm in above.select("tid", "comm").iter_rows():
        path = listed.get(tid, "").strip("/")
        if path in limits:
            found.setdefault(path, set()).add(str(comm))
    said = []
    for path, names in sorted(found.items()):
        runtime, period = limits[path]
        what = "the kernel lets it have no" if runtime == 0 else "the kernel may hold back its"
        said.append(
            f"cpu.rt_runtime_us of group {path}, {runtime} us in {period}: not modelled: {what} real-time tasks, here "
            f"{format_names(sorted(names), 3)}"
        )
    return said


def _whole(text: str) -> bool:
    """Whether it is a whole number of at most 18 digits, so that it fits in 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def read_map(path: str | Path) -> tuple[list[Override], list[Group]]:
    """Read who is in which group from a table.

    Parameters
    ----------
    path
        A text file of tab-separated columns with a header: ``pid``, ``comm``, ``group``,
        ``cpu_weight``, ``cpu_max`` (as the kernel writes it: ``max 100000`` or ``50000 100000``, in
        us).

    Returns
    -------
    tuple
        Overrides that put tasks into groups, by name, and the groups with their settings.

    Raises
    ------
    ReplayError
        When the file cannot be read or lacks a column.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReplayError(f"{path}: expected a table of tab-separated columns: {error}") from None
    absent = [c for c in _COLUMNS if not rows or c not in rows[0]]
    if absent:
        raise ReplayError(
            f"{path}: expected the columns {', '.join(_COLUMNS)} and a row; {absent[0]} is absent"
        )
    groups: dict[str, list[tuple[str, str]]] = {}
    overrides = []
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ReplayError(f"{path}:{number}: expected {len(rows[0])} columns between tabs")
        name = row["group"].strip("/")
        quota, _, period = row["cpu_max"].partition(" ")
        if not (_whole(row["cpu_weight"]) and (quota == "max" or (_whole(quota) and _whole(period)))):
            raise ReplayError(
                f"{path}:{number}: expected a weight such as 100 and 'max 100000' or '50000 100000'"
            )
        limit = "max" if quota == "max" else _quota(int(quota), int(period))
        groups[name] = [("weight", row["cpu_weight"]), ("quota", limit)]
        overrides.append(Override("comm", row["comm"], (("group", name),)))
    return overrides, list(groups.items())
