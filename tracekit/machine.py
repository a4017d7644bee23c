"""The machine beside a trace: what ``NAME.machine.toml`` says of kernel, CPUs, cgroups and tasks.

A trace says who ran when. It does not say how fast the clock ticked, which CPUs share a cache, or
which task may run where. The script that ``tracekit recipes machine`` prints writes these down
while the machine is at hand. `tracekit.read` takes up the file beside the trace; replays take the
tick rate, the affinities, the policies, the groups and the scheduler's settings from it.

The file is TOML, one line a thing::

    schema = 1
    written = 2026-01-31T12:00:00Z
    [kernel]
    release = "6.12.1"
    hz = 250
    [scheduler]
    features = "PLACE_LAG NO_HRTICK"
    [scheduler.tunables]
    base_slice_ns = 2800000
    [machine]
    cgroup_version = 2
    cpus = [
      {cpu = 0, package = 0, core = 0, siblings = "0-1", llc = "0-7", node = 0, capacity = 1024},
    ]
    cgroups = [
      {path = "/", cpus = "0-7"},
    ]
    tasks = [
      {tid = 1, pid = 1, comm = "init", policy = "other", nice = 0, cpus = "0-7", cgroup = "/",
      slice_ns = 2800000},
    ]

What the machine did not let be read is absent there and null here; `Machine.unread` says what and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import polars as pl

from tracekit._toml import read_toml
from tracekit.errors import ParseError

__all__ = ["SCHEMA", "Machine", "parse_machine"]

#: Version of the file that this module reads.
SCHEMA = 1

#: Weight of a cgroup and of a nice-0 task in the kernel, and the default of ``cpu.weight`` that
#: means the same (kernel: include/linux/cgroup.h, CGROUP_WEIGHT_DFL;
#: Documentation/admin-guide/cgroup-v2.rst, "cpu.weight").
SHARES_DEFAULT, WEIGHT_DEFAULT = 1024, 100

#: Arguments that begin with ``sched_`` and only make the kernel print more (Linux:
#: Documentation/scheduler/sched-domains.rst; the first until 5.12).
PRINTING = ("sched_debug", "sched_verbose")

_CPUS = pl.List(pl.Int32)
_TABLES: dict[str, dict[str, pl.DataType | type[pl.DataType]]] = {
    "cpus": {
        "cpu": pl.Int32,
        "online": pl.Boolean,
        "package": pl.Int32,
        "die": pl.Int32,
        "core": pl.Int32,
        "siblings": _CPUS,
        "llc": _CPUS,
        "llc_level": pl.Int32,
        "node": pl.Int32,
        "capacity": pl.Int32,
        "governor": pl.String,
        "max_khz": pl.Int64,
        "domains": pl.String,
    },
    "cgroups": {
        "path": pl.String,
        "shares": pl.Int64,
        "weight": pl.Int64,
        "quota_us": pl.Int64,
        "period_us": pl.Int64,
        "rt_runtime_us": pl.Int64,
        "rt_period_us": pl.Int64,
        "idle": pl.Boolean,
        "cpus": _CPUS,
    },
    "tasks": {
        "tid": pl.Int64,
        "pid": pl.Int64,
        "comm": pl.String,
        "kernel": pl.Boolean,
        "policy": pl.String,
        "nice": pl.Int32,
        "rt_priority": pl.Int32,
        "cpus": _CPUS,
        "cgroup": pl.String,
        "slice_ns": pl.Int64,
        "autogroup": pl.String,
        "autogroup_nice": pl.Int32,
    },
}
_REQUIRED = {"cpus": "cpu", "cgroups": "path", "tasks": "tid"}
_SECTIONS = {
    "": {"schema", "written", "kernel", "scheduler", "machine"},
    "kernel": {
        *("os", "release", "version", "arch", "hz", "hz_from", "preempt"),
        *("uptime_s", "boot_id", "arguments", "configuration"),
    },
    "scheduler": {"features", "unread", "tunables"},
    "machine": {"cgroup_version", *_TABLES},
}


@dataclass(frozen=True)
class Machine:
    """What was written down of the machine that a trace was recorded on.

    Attributes
    ----------
    text : str
        The file as it was read.
    written : datetime or None
        When it was written.
    os, release, version, arch : str or None
        As ``uname`` has them.
    hz : int or None
        Clock ticks a second of the kernel.
    hz_from : str or None
        What `hz` was read from.
    preempt : str or None
        Preemption model: ``none``, ``voluntary``, ``full``, ``lazy``.
    uptime_s : float or None
        Seconds since boot when the file was written.
    boot_id : str or None
        Identity of that boot.
    arguments : str
        Arguments of the kernel's command line that concern the scheduler.
    configuration : dict of str to str
        Settings of the kernel's configuration that concern the scheduler.
    features : dict of str to bool
        Scheduler features, on or off; empty where debugfs could not be read.
    tunables : dict of str to int or str
        Scheduler tunables by the name of their file, in the unit that the name ends in.
    unread : tuple of str
        What could not be read, and why.
    cgroup_version : int or None
        1 or 2.
    cpus : polars.DataFrame
        One row per CPU: ``cpu`` (Int32), ``online`` (Boolean), ``package``, ``die``, ``core``
        (Int32), ``siblings`` (list of Int32: hardware threads of its core), ``llc`` (list of Int32:
        CPUs that share its last-level cache), ``llc_level``, ``node`` (Int32: NUMA node),
        ``capacity`` (Int32, 1024 for the fastest), ``governor`` (String), ``max_khz`` (Int64),
        ``domains`` (String: scheduling domains, smallest first). Null where the machine does not
        say.
    cgroups : polars.DataFrame
        One row per cgroup: ``path`` (String), ``shares`` (Int64, 1024 by default, in the kernel's
        unit under either version; null where the group has no CPU controller: its tasks compete in
        the nearest group above that has one), ``weight`` (Int64, ``cpu.weight`` of version 2),
        ``quota_us`` (Int64, null for none), ``period_us`` (Int64), ``rt_runtime_us``,
        ``rt_period_us`` (Int64: how long its real-time tasks may run in a period, version 1 with
        CONFIG_RT_GROUP_SCHED; 0: it may have none), ``idle`` (Boolean), ``cpus`` (list of Int32:
        CPUs it may use).
    tasks : polars.DataFrame
        One row per thread: ``tid``, ``pid`` (Int64), ``comm`` (String), ``kernel`` (Boolean: a
        kernel thread), ``policy`` (String), ``nice``, ``rt_priority`` (Int32), ``cpus`` (list of
        Int32: its affinity), ``cgroup`` (String), ``slice_ns`` (Int64), ``autogroup`` (String),
        ``autogroup_nice`` (Int32).
    """

    text: str
    written: datetime | None
    os: str | None
    release: str | None
    version: str | None
    arch: str | None
    hz: int | None
    hz_from: str | None
    preempt: str | None
    uptime_s: float | None
    boot_id: str | None
    arguments: str
    configuration: dict[str, str]
    features: dict[str, bool]
    tunables: dict[str, int | str]
    unread: tuple[str, ...]
    cgroup_version: int | None
    cpus: pl.DataFrame
    cgroups: pl.DataFrame
    tasks: pl.DataFrame

    def __repr__(self) -> str:
        """Kernel, tick rate, and how much is known."""
        what = [f"{self.os or 'unknown system'} {self.release or ''}".strip()]
        if self.hz is not None:
            what.append(f"HZ {self.hz}")
        counted = ((self.cpus, "CPU"), (self.cgroups, "cgroup"), (self.tasks, "task"))
        what += [f"{f.height} {name}{'s' * (f.height != 1)}" for f, name in counted]
        return f"<Machine {', '.join(what)}>"

    def affinities(self) -> dict[int, tuple[int, ...]]:
        """Tasks that may not run on every CPU.

        Returns
        -------
        dict of int to tuple of int
            The CPUs that a thread may use, by thread number, in order. Threads that may use every
            CPU that was online are absent.
        """
        online = set(self.cpus.filter(pl.col("online"))["cpu"].to_list())
        rows = self.tasks.select("tid", "cpus").drop_nulls().iter_rows()
        return {tid: tuple(cpus) for tid, cpus in rows if cpus and not online <= set(cpus)}

    def isolated(self) -> tuple[int, ...]:
        """CPUs without a scheduling domain: nothing balances tasks onto them.

        Returns
        -------
        tuple of int
            CPUs that ``isolcpus=`` among the kernel's arguments takes out of the domains (Linux:
            Documentation/admin-guide/kernel-parameters.txt; without flags it does, with flags only
            where ``domain`` is one of them), and those for which the file lists no domain while it
            does for others: cpuset partitions make these. In order.
        """
        found: set[int] = set()
        for argument in self.arguments.split():
            key, _, value = argument.partition("=")
            if key != "isolcpus":
                continue
            flags: list[str] = []
            listed: list[str] = []
            for part in value.split(","):
                (listed if part[:1].isdigit() else flags).append(part)
            if not flags or "domain" in flags:
                try:
                    found.update(_numbers(",".join(listed)))
                except ValueError:
                    continue  # The kernel leaves out as well what it cannot read.
        online = self.cpus.filter(pl.col("online"))
        none = online.filter(pl.col("domains").is_null() | (pl.col("domains").str.strip_chars() == ""))
        if none.height < online.height:
            found.update(none["cpu"].to_list())
        known = set(self.cpus["cpu"].to_list())
        return tuple(sorted(found & known if known else found))

    def unmodelled_arguments(self) -> tuple[str, ...]:
        """Arguments of the kernel by which it may choose tasks or CPUs otherwise.

        Returns
        -------
        tuple of str
            Those that begin with ``sched_``, without those that only make it print more. In order.
        """
        found = (a for a in self.arguments.split() if a.startswith("sched_"))
        return tuple(a for a in found if a.partition("=")[0] not in PRINTING)

    def tickless(self) -> tuple[int, ...]:
        """CPUs that ``nohz_full=`` names, which tick only while several tasks run."""
        for argument in self.arguments.split():
            key, _, value = argument.partition("=")
            if key == "nohz_full":
                try:
                    return tuple(_numbers(value))
                except ValueError:
                    return ()
        return ()

    def line_of(self, key: str) -> int | None:
        """Line of the file that holds `key`, from 1; None when no line does.

        Parameters
        ----------
        key
            Name of a key, such as ``release``.
        """
        return _line_of_key(self.text, key)


def parse_machine(text: str, name: str = "machine.toml") -> Machine:
    r"""Read the text of a ``machine.toml``.

    Parameters
    ----------
    text
        The file.
    name
        What to call it in errors.

    Returns
    -------
    Machine
        What it says.

    Raises
    ------
    ParseError
        When it is no TOML, of another version, or says what cannot be; with the line
        (``.position.line``) and code ``machine``.

    Examples
    --------
    >>> from tracekit.machine import parse_machine
    >>> parse_machine('schema = 1\n[kernel]\nhz = 1000').hz
    1000
    """
    return _parse(text, name)


@lru_cache(maxsize=8)
def _parse(text: str, name: str) -> Machine:
    try:
        data = read_toml(text)
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        number = int(line[1]) if line else text.count("\n") + 1
        _refuse(name, number, f"expected TOML as `tracekit recipes machine` writes it, found: {error}")
    return _Reader(text, name, data).machine()


def _refuse(name: str, line: int | None, message: str) -> NoReturn:
    where = f"{name}, line {line}" if line else name
    advice = "write it anew with the script of `tracekit recipes machine`, or remove it"
    raise ParseError(f"{where}: {message}; {advice}", "machine", "machine", line=line)


def _line_of_key(text: str, key: str, section: str | None = None) -> int | None:
    """Line on which a key is set, or a section begins, from 1."""
    inside = section is None
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\[?([^\]]+)\]", line)
        if head and head[1] == key:
            return number
        if head and section is not None:
            inside = head[1] == section
        if inside and re.match(rf"\s*{re.escape(key)}\s*=", line):
            return number
    return None


def _numbers(text: str) -> list[int]:
    """Numbers of a list of CPUs as the kernel prints it: ``0-3,8``."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < 1 << 16:
            raise ValueError(part)
        numbers += range(low, high + 1)
    return numbers


class _Reader:
    """Checks what a file says, key by key, and knows the line of each."""

    def __init__(self, text: str, name: str, data: dict[str, Any]) -> None:
        self.text, self.name, self.data = text, name, data

    def refuse(self, message: str, key: str, section: str | None = None) -> NoReturn:
        _refuse(self.name, _line_of_key(self.text, key, section), message)

    def machine(self) -> Machine:
        self._version()
        kernel, scheduler = self._section("kernel"), self._section("scheduler")
        rest = self._section("machine")
        self._only("", self.data)
        for section, held in (("kernel", kernel), ("scheduler", scheduler), ("machine", rest)):
            self._only(section, held)
        return Machine(
            text=self.text,
            written=self._typed("written", self.data, datetime),
            **{k: self._typed(k, kernel, str) for k in ("os", "release", "version", "arch", "hz_from")},
            **{k: self._typed(k, kernel, str) for k in ("preempt", "boot_id")},
            hz=self._hz(kernel),
            uptime_s=self._typed("uptime_s", kernel, float, int),
            arguments=self._typed("arguments", kernel, str) or "",
            configuration=self._settings(self._typed("configuration", kernel, str) or ""),
            features=self._features(self._typed("features", scheduler, str) or ""),
            tunables=self._tunables(scheduler),
            unread=tuple(map(str, self._typed("unread", scheduler, list) or ())),
            cgroup_version=self._typed("cgroup_version", rest, int),
            cpus=self._table("cpus", rest.get("cpus", [])),
            cgroups=self._table("cgroups", rest.get("cgroups", [])),
            tasks=self._table("tasks", rest.get("tasks", [])),
        )

    def _version(self) -> None:
        version = self.data.get("schema")
        if version is None:
            _refuse(self.name, 1, "expected `schema = 1`, found no schema version")
        if not isinstance(version, int) or version != SCHEMA:
            older = isinstance(version, int) and version < SCHEMA
            kind = "an older one" if older else "one that this tracekit does not know"
            self.refuse(f"expected schema version {SCHEMA}, found {version!r}, {kind}", "schema")

    def _section(self, name: str) -> dict[str, Any]:
        held = self.data.get(name, {})
        if not isinstance(held, dict):
            self.refuse(f"expected a table [{name}], found {held!r}", name)
        return held

    def _only(self, section: str, held: Mapping[str, Any]) -> None:
        for key in held:
            if key not in _SECTIONS[section]:
                known = ", ".join(sorted(_SECTIONS[section]))
                self.refuse(f"unknown key {key!r}; known here are {known}", key, section or None)

    def _typed(self, key: str, held: Mapping[str, Any], *kinds: type) -> Any:
        value = held.get(key)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            names = {
                str: "text",
                int: "a whole number",
                float: "a number",
                list: "a list",
                datetime: "a date",
            }
            self.refuse(f"{key}: expected {names[kinds[0]]}, found {value!r}", key)
        return value

    def _hz(self, kernel: Mapping[str, Any]) -> int | None:
        hz: int | None = self._typed("hz", kernel, int)
        if hz is not None and not 1 <= hz <= 100_000:
            self.refuse(f"hz: expected clock ticks a second from 1 to 100000, found {hz}", "hz")
        return hz

    @staticmethod
    def _settings(text: str) -> dict[str, str]:
        return dict(p.split("=", 1) for p in text.split() if "=" in p)

    @staticmethod
    def _features(text: str) -> dict[str, bool]:
        return {w.removeprefix("NO_"): not w.startswith("NO_") for w in text.split()}

    def _tunables(self, scheduler: Mapping[str, Any]) -> dict[str, int | str]:
        held = scheduler.get("tunables", {})
        if not isinstance(held, dict):
            self.refuse(f"expected a table [scheduler.tunables], found {held!r}", "tunables")
        for key, value in held.items():
            if not isinstance(value, int | str) or isinstance(value, bool):
                self.refuse(f"{key}: expected a whole number or text, found {value!r}", key)
        return dict(held)

    def _table(self, table: str, rows: object) -> pl.DataFrame:
        if not isinstance(rows, list):
            self.refuse(f"{table}: expected a list of tables, found {rows!r}", table)
        first = _line_of_key(self.text, table) or 0
        checked = []
        for number, row in enumerate(rows):
            line = self._line_of_row(first, number)
            if not isinstance(row, dict) or _REQUIRED[table] not in row:
                _refuse(
                    self.name, line, f"{table}: expected {{{_REQUIRED[table]} = ..., ...}}, found {row!r}"
                )
            checked.append({k: self._value(table, k, v, line) for k, v in row.items()})
        return _completed(table, pl.DataFrame(checked, schema=_TABLES[table], orient="row"))

    def _line_of_row(self, first: int, number: int) -> int:
        """Line of a row of a table, as the script writes it: one line each."""
        found = -1
        for line, text in enumerate(self.text.splitlines()[first - 1 :], first):
            found += text.count("{") and 1
            if found == number:
                return line
        return first

    def _value(self, table: str, key: str, value: object, line: int) -> object:
        kind = _TABLES[table].get(key)
        if kind is None:
            known = ", ".join(_TABLES[table])
            _refuse(self.name, line, f"{table}: unknown key {key!r}; known here are {known}")
        wanted, convert = _KINDS[kind]
        try:
            return convert(value)
        except (TypeError, ValueError):
            _refuse(self.name, line, f"{table}: {key}: expected {wanted}, found {value!r}")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
        raise TypeError
    return value


def _small(value: object) -> int:
    if abs(_whole(value)) >= 1 << 31:
        raise ValueError
    return _whole(value)


def _flag(value: object) -> bool:
    if value not in (0, 1):
        raise TypeError
    return bool(value)


def _words(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_KINDS: dict[Any, tuple[str, Callable[[object], object]]] = {
    pl.Int64: ("a whole number", _whole),
    pl.Int32: ("a whole number of 31 bits", _small),
    pl.Boolean: ("true or false", _flag),
    pl.String: ("text", _words),
    _CPUS: ("CPUs such as 0-3,8", lambda value: _numbers(_words(value))),
}


def _completed(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Say what absence means: a CPU that cannot be taken away is online, a task is no kernel thread."""
    if table == "cpus":
        return frame.with_columns(pl.col("online").fill_null(True)).sort("cpu")
    if table == "tasks":
        return frame.with_columns(pl.col("kernel").fill_null(False)).sort("tid")
    # As the kernel rounds it: kernel/sched/core.c, sched_weight_from_cgroup.
    from_weight = (pl.col("weight") * SHARES_DEFAULT + WEIGHT_DEFAULT // 2) // WEIGHT_DEFAULT
    return frame.with_columns(pl.coalesce("shares", from_weight).alias("shares")).sort("path")
