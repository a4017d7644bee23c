"""Which tasks, CPUs and time: the selections of `Trace.filter` and of the command line."""

from __future__ import annotations

import contextlib
import fnmatch
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit._lazy import later
from tracekit.errors import FilterError
from tracekit.units import MAX_NS, format_cpus, format_moment, format_names, format_ns, parse_duration

if TYPE_CHECKING:
    import polars as pl

    from tracekit.trace import Trace
else:
    pl = later("polars")

__all__ = ["CommPattern", "Selection", "Time", "fits", "holding", "matching", "nearest", "resolve_time"]

#: A name or a glob, a regular expression between slashes, or a compiled regular expression.
CommPattern = str | re.Pattern[str]
#: Nanoseconds of the trace clock, as any whole number; or text, since the start of the trace
#: (``1.5s``) or absolute (``@5021.25s``).
Time = int | str

#: Names that a sentence gives.
NAMED = 8
#: Columns of `events` that name a task by its thread number.
NAMING = ("tid", "next_tid", "ctx_tid")

_OPEN_START = 1
_OPEN_END = 2


def resolve_time(time: Time, start_ns: int) -> int:
    """A time as nanoseconds of the trace clock.

    Parameters
    ----------
    time
        Nanoseconds of the trace clock, or text: since the start of the trace, or absolute after an ``@``.
    start_ns
        Start of the trace.

    Returns
    -------
    int
        Nanoseconds of the trace clock.

    Raises
    ------
    FilterError
        When it is no time.
    """
    if isinstance(time, str):
        try:
            ns = parse_duration(time[1:]) if time.startswith("@") else start_ns + parse_duration(time)
        except ValueError as error:
            raise FilterError(str(error)) from None
    else:
        ns = _whole(time, "nanoseconds of the trace's clock, or a text such as '1.5s'")
    return max(-MAX_NS, min(ns, MAX_NS))


def _whole(given: Any, expected: str) -> int:
    """A whole number, also one of numpy, which a frame of pandas holds."""
    if not isinstance(given, bool):
        with contextlib.suppress(TypeError):
            return operator.index(given)
    raise FilterError(f"expected {expected}, found {given!r:.60}")


def _several(given: Any) -> list[Any]:
    """What was given alone, or several times."""
    alone = isinstance(given, str | bytes) or not isinstance(given, Iterable)
    return [given] if alone else list(given)


def _patterns(comm: CommPattern | Iterable[CommPattern]) -> list[CommPattern]:
    """One pattern, or several, as a list."""
    given: list[Any] = _several(comm)
    for one in given:
        if not isinstance(one, str | re.Pattern):
            raise FilterError(f"expected names of tasks or patterns, such as 'spin*', found {one!r:.60}")
    return given


def _fitting(names: Iterable[str], comm: CommPattern | Iterable[CommPattern]) -> set[str]:
    """Those of the names that one of the patterns fits."""
    known = list(names)
    found: set[str] = set()
    for pattern in _patterns(comm):
        if isinstance(pattern, re.Pattern):
            found.update(name for name in known if pattern.search(name))
        elif len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
            found |= holding(pattern[1:-1], known)
        else:
            found.update(name for name in known if fits(name, pattern))
    return found


def fits(name: str, pattern: str) -> bool:
    """Whether a name is the pattern, or one that it stands for as a glob.

    A name may hold what is special in a pattern: ``[kworker]``, ``job[1]``.
    """
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def holding(regex: str, names: Iterable[str]) -> set[str]:
    """Those of the names in which a regular expression finds something.

    Parameters
    ----------
    regex
        In the syntax of Rust's regex crate, which polars uses: its time is linear in the name,
        whatever the name; it has no look-around and no back references.
    names
        Names.

    Raises
    ------
    FilterError
        When it is no such regular expression, or one that takes over 10 MB.
    """
    # The name at the end makes polars look at the expression where there is no other.
    known = [*names, ""]
    try:
        found = pl.Series(known, dtype=pl.String).str.contains(regex)
    except pl.exceptions.ComputeError as error:
        reasons = re.findall(r"^(?:error|regex error): (?!regex parse)(.*)$", str(error), re.MULTILINE)
        why = reasons[-1] if reasons else str(error).splitlines()[0]
        raise FilterError(f"{regex!r} is no regular expression: {why}") from None
    return {name for name, fits in zip(known[:-1], found, strict=False) if fits}


def _vain(trace: Trace, comm: CommPattern | Iterable[CommPattern]) -> list[str]:
    """Those of the patterns that fit no name of the trace, as text."""
    names = _known_names(trace)
    return [text for one in _patterns(comm) if not _fitting(names, one) for text in _texts(one)]


def nearest(asked: Iterable[str], known: list[str]) -> str:
    """Some of the known names, first those that look like one that was asked for."""
    from difflib import get_close_matches

    close = [name for text in asked for name in get_close_matches(text, known, 3)]
    return format_names(list(dict.fromkeys([*close, *known])), NAMED)


def _texts(comm: CommPattern | Iterable[CommPattern]) -> list[str]:
    return [p if isinstance(p, str) else f"/{p.pattern}/" for p in _patterns(comm)]


def _numbers(given: int | Iterable[int] | None) -> list[int] | None:
    if given is None:
        return None
    numbers = sorted({_whole(n, "whole numbers") for n in _several(given)})
    beyond = [n for n in numbers if abs(n) > MAX_NS]
    if beyond:
        raise FilterError(f"expected numbers of processes, threads and CPUs of 63 bits, found {beyond[0]}")
    return numbers


def _known_names(trace: Trace) -> set[str]:
    """All names that tasks have somewhere in a trace, which keeps them."""
    return trace.once(
        "names of tasks",
        lambda: _names(trace.tasks, ("comm", "comm_first")) | _names(trace.slices, ("comm",)),
    )


def _names(frame: pl.DataFrame, columns: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for column in columns:
        if column in frame.columns:
            found.update(frame[column].drop_nulls().unique().cast(pl.String).to_list())
    return found


@dataclass(frozen=True)
class Selection:
    """What `Trace.filter` was asked for, settled against one trace.

    Attributes
    ----------
    tids
        Thread numbers that events are kept for; None for all.
    utids
        Keys of the chosen tasks; None for all.
    cpus
        CPUs; None for all.
    start_ns, end_ns
        Window; None for an open side.
    asked
        The conditions as they were given, for the metadata.
    vain
        The patterns that fit no name of the trace, by condition, as text.
    lives
        Of thread numbers that chosen tasks share with others: `tid`, `chosen`, and `ts_ns`, since when the
        number is that task's; in order of time.
    """

    tids: frozenset[int] | None
    utids: frozenset[int] | None
    cpus: tuple[int, ...] | None
    start_ns: int | None
    end_ns: int | None
    asked: Mapping[str, Any]
    vain: Mapping[str, list[str]]
    lives: pl.DataFrame

    @classmethod
    def make(
        cls,
        trace: Trace,
        *,
        comm: CommPattern | Iterable[CommPattern] | None,
        pid: int | Iterable[int] | None,
        tid: int | Iterable[int] | None,
        cpu: int | Iterable[int] | None,
        start: Time | None,
        end: Time | None,
        exclude: CommPattern | Iterable[CommPattern] | None = None,
    ) -> Selection:
        """Settle the conditions against the tasks and the times of `trace`."""
        # Some can be read but once.
        comm = None if comm is None else _patterns(comm)
        exclude = None if exclude is None else _patterns(exclude)
        pids, tids, cpus = _numbers(pid), _numbers(tid), _numbers(cpu)
        origin = trace.start_ns or 0
        start_ns = None if start is None else resolve_time(start, origin)
        end_ns = None if end is None else resolve_time(end, origin)
        if start_ns is not None and end_ns is not None and end_ns <= start_ns:
            raise FilterError(f"the window is empty: it ends ({end}) before it starts ({start})")
        chosen_tids: frozenset[int] | None = None
        chosen_utids: frozenset[int] | None = None
        if comm is not None or pids is not None or tids is not None:
            chosen = _choose(trace, comm, pids, tids)
            chosen_utids = frozenset(chosen["utid"].to_list())
            chosen_tids = frozenset(chosen["tid"].to_list())
        if exclude is not None:
            gone = set(_choose(trace, exclude, None, None)["utid"].to_list())
            known = trace.tasks.select("utid", "tid")
            kept = known.filter(~pl.col("utid").is_in(gone))
            if chosen_utids is not None:
                kept = kept.filter(pl.col("utid").is_in(chosen_utids))
            chosen_utids = frozenset(kept["utid"].to_list())
            chosen_tids = frozenset(kept["tid"].to_list())
        asked = {
            "exclude": None if exclude is None else _texts(exclude),
            "comm": None if comm is None else _texts(comm),
            "pid": pids,
            "tid": tids,
            "cpu": cpus,
            "start_ns": start_ns,
            "end_ns": end_ns,
        }
        vain = {
            key: _vain(trace, patterns)
            for key, patterns in (("comm", comm), ("exclude", exclude))
            if patterns is not None
        }
        places = None if cpus is None else tuple(cpus)
        lives = _lives(trace.tasks, chosen_utids)
        return cls(chosen_tids, chosen_utids, places, start_ns, end_ns, asked, vain, lives)

    @property
    def is_all(self) -> bool:
        """True when nothing is left out."""
        return all(v is None for v in self.asked.values())

    def described(self) -> dict[str, Any]:
        """The conditions that were given, as they travel in the metadata."""
        return {k: v for k, v in self.asked.items() if v is not None}

    def span(self, first: int, last: int) -> dict[str, int]:
        """Give the part of a trace's time that is looked at, as it travels in the metadata.

        Parameters
        ----------
        first, last
            Begin and end of the trace.

        Returns
        -------
        dict
            `start_ns`, `end_ns`: the window as far as it lies within the trace.
        """
        begins = first if self.start_ns is None else self.start_ns
        ends = last if self.end_ns is None else self.end_ns
        return {"start_ns": min(max(begins, first), last), "end_ns": min(max(ends, first), last)}

    def unmet(self, trace: Trace, names: Mapping[str, str] | None = None) -> list[str]:
        """Say which conditions nothing meets, and what the trace has instead.

        Parameters
        ----------
        trace
            What is filtered.
        names
            What the conditions are called, where not as in `Trace.filter`.

        Returns
        -------
        list of str
            A sentence each; empty where each condition and each name is met by something.
        """
        called = {key: (names or {}).get(key, key) for key in (*self.asked, "start", "end")}
        found = []
        cpus = sorted(trace.cpus["cpu"].drop_nulls().to_list())
        if self.cpus and cpus and not set(self.cpus) & set(cpus):
            given = f"{called['cpu']} {format_cpus(self.cpus)}"
            found.append(f"{given}: the trace has no such CPU; it has {format_cpus(cpus)}")
        found += self._unmet_tasks(trace, called)
        first, last = trace.start_ns, trace.end_ns
        if first is not None and last is not None:
            begins = first if self.start_ns is None else self.start_ns
            ends = last + 1 if self.end_ns is None else self.end_ns
            if begins > last or ends <= first:
                found.append(
                    f"nothing lies between {called['start']} and {called['end']}; the trace lasts "
                    f"{format_ns(last - first, 5)}, from {format_moment(first)} to {format_moment(last)}"
                )
        return found

    def _unmet_tasks(self, trace: Trace, called: Mapping[str, str]) -> list[str]:
        """The same of the conditions on tasks."""
        conditions = {key: self.asked[key] for key in ("comm", "pid", "tid", "exclude")}
        if not trace.tasks.height:
            return []
        if self.utids is not None and not self.utids:
            given = conditions
        else:
            given = {key: texts or None for key, texts in self.vain.items()}
        said = " ".join(
            f"{called[key]} {format_names(list(map(str, values)), NAMED)}"
            for key, values in given.items()
            if values is not None
        )
        if not said:
            return []
        known = trace.tasks.filter(~pl.col("is_idle"))["comm"].drop_nulls().cast(pl.String).unique().sort()
        asked = [text for texts in self.vain.values() for text in texts]
        return [f"{said}: no task of the trace fits; it has {nearest(asked, known.to_list())}"]

    def left_out(self, trace: Trace, before: Mapping[str, Any]) -> dict[str, Any]:
        """Count the tasks and CPUs that are not chosen, as they travel in the metadata.

        Parameters
        ----------
        trace
            What is filtered.
        before
            The same of an earlier filter; empty without one.

        Returns
        -------
        dict
            `tasks`, `of` (how many, and of all), `run_ns`, `all_ns` (their CPU time, and that of all),
            `names` (three of them, most CPU time first), `named` (how many names), `cpus`; empty where
            all tasks and CPUs are wanted.
        """
        found = dict(before)
        if self.utids is not None:
            tasks = trace.tasks.filter(~pl.col("is_idle"))
            gone = tasks.filter(~pl.col("utid").is_in(list(self.utids)))
            named = gone.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("run_ns").sum())
            names = (
                named.drop_nulls("comm").sort("run_ns", "comm", descending=[True, False])["comm"].to_list()
            )
            counts = {"tasks": gone.height, "run_ns": int(gone["run_ns"].sum()), "named": len(names)}
            found |= {key: n + before.get(key, 0) for key, n in counts.items()}
            found |= {"of": tasks.height, "all_ns": int(tasks["run_ns"].sum())} | {
                key: before[key] for key in ("of", "all_ns") if key in before
            }
            found["names"] = [*before.get("names", ()), *names][:3]
        if self.cpus is not None:
            gone_cpus = set(trace.cpus["cpu"].drop_nulls().to_list()) - set(self.cpus)
            found["cpus"] = sorted({*before.get("cpus", ()), *gone_cpus})
        return found

    def apply(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """The chosen rows of table `name`."""
        match name:
            case "events":
                return self._named(frame.filter(*self._events()))
            case "slices":
                return frame.filter(*self._task(), *self._cpu(), *self._window())
            case "states":
                return self._cut(frame.filter(*self._task(), *self._cpu()))
            case "runqueue":
                return self._restart(frame.filter(*self._cpu(keep_unknown=True)))
            case "cpus":
                return frame.filter(*self._cpu())
            case "tasks":
                return frame.filter(*self._task())
            case "losses":
                return frame.filter(*self._cpu(keep_unknown=True), *self._overlap("ts_from_ns", "ts_to_ns"))
        return frame

    def prune(self, tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Leave out tasks of which nothing is left."""
        left = [tables[t]["utid"] for t in ("slices", "states") if tables[t].height]
        if left and (self.cpus is not None or self.start_ns is not None or self.end_ns is not None):
            seen = pl.concat(left).unique()
            named = [tables["events"][c] for c in NAMING]
            tids = pl.concat(named).drop_nulls().unique()
            # A number that is used again names another task later.
            here = self._overlap("first_ts_ns", "last_ts_ns", touching=True)
            by_number = pl.all_horizontal(pl.col("tid").is_in(tids.implode()), *here)
            tables["tasks"] = tables["tasks"].filter(pl.col("utid").is_in(seen.implode()) | by_number)
        return tables

    def _events(self) -> list[pl.Expr]:
        conditions = self._window()
        if self.tids is not None:
            tids = pl.Series(sorted(self.tids), dtype=pl.Int64).implode()
            names = [pl.col(c).is_in(tids).fill_null(False) for c in NAMING]
            conditions.append(pl.any_horizontal(names))
        if self.cpus is not None:
            cpus = list(self.cpus)
            conditions.append(pl.col("cpu").is_in(cpus).fill_null(False))
        return conditions

    def _named(self, events: pl.DataFrame) -> pl.DataFrame:
        """Leave out the records that name a chosen task's number while it is another task's."""
        if self.lives.is_empty():
            return events
        # Of numbers that nobody else has the answer is known; of the others it depends on the time.
        shared = self.lives["tid"].unique().implode()
        sure = pl.Series(sorted(self.tids or ()), dtype=pl.Int64)
        sure = sure.filter(~sure.is_in(shared)).implode()
        meant = pl.any_horizontal(pl.col(c).is_in(sure).fill_null(False) for c in NAMING)
        rows = events.select("ts_ns", *NAMING, meant.alias("_meant")).with_row_index("_row")
        asked = rows.filter(~pl.col("_meant")).sort("ts_ns", maintain_order=True)
        for column in NAMING:
            asked = asked.join_asof(
                self.lives.rename({"tid": column, "chosen": f"_{column}"}),
                on="ts_ns",
                by=column,
                check_sortedness=False,
            )
        theirs = asked.filter(~pl.any_horizontal(pl.col(f"_{c}").fill_null(False) for c in NAMING))["_row"]
        return events.filter(~pl.int_range(pl.len(), dtype=pl.UInt32).is_in(theirs.implode()))

    def _task(self) -> list[pl.Expr]:
        if self.utids is None:
            return []
        return [pl.col("utid").is_in(pl.Series(sorted(self.utids), dtype=pl.UInt32).implode())]

    def _cpu(self, *, keep_unknown: bool = False) -> list[pl.Expr]:
        if self.cpus is None:
            return []
        return [pl.col("cpu").is_in(list(self.cpus)).fill_null(keep_unknown)]

    def _window(self) -> list[pl.Expr]:
        conditions = []
        if self.start_ns is not None:
            conditions.append(pl.col("ts_ns") >= self.start_ns)
        if self.end_ns is not None:
            conditions.append(pl.col("ts_ns") < self.end_ns)
        return conditions

    def _overlap(self, begin: str, end: str, *, touching: bool = False) -> list[pl.Expr]:
        conditions = []
        if self.start_ns is not None:
            after = pl.col(end) >= self.start_ns if touching else pl.col(end) > self.start_ns
            conditions.append(after.fill_null(True))
        if self.end_ns is not None:
            conditions.append((pl.col(begin) < self.end_ns).fill_null(True))
        return conditions

    def _cut(self, states: pl.DataFrame) -> pl.DataFrame:
        """Intervals cut at the edges of the window, marked as open where they were cut."""
        if self.start_ns is None and self.end_ns is None:
            return states
        begin, end = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns")
        first = begin if self.start_ns is None else pl.max_horizontal(begin, pl.lit(self.start_ns))
        last = end if self.end_ns is None else pl.min_horizontal(end, pl.lit(self.end_ns))
        flags = pl.col("flags").cast(pl.UInt16)
        flags = flags | pl.when(first > begin).then(_OPEN_START).otherwise(0).cast(pl.UInt16)
        flags = flags | pl.when(last < end).then(_OPEN_END).otherwise(0).cast(pl.UInt16)
        left = states.with_columns(first.alias("ts_ns"), (last - first).alias("dur_ns"), flags.alias("flags"))
        return left.filter(pl.col("dur_ns") > 0).sort("ts_ns", maintain_order=True)

    def _restart(self, runqueue: pl.DataFrame) -> pl.DataFrame:
        """Step functions cut at the edges of the window: the value that held before it starts it."""
        if self.end_ns is not None:
            runqueue = runqueue.filter(pl.col("ts_ns") < self.end_ns)
        if self.start_ns is None:
            return runqueue
        before = runqueue.filter(pl.col("ts_ns") <= self.start_ns)
        held = before.group_by("cpu", maintain_order=True).last().select(runqueue.columns)
        held = held.with_columns(pl.lit(self.start_ns, dtype=pl.Int64).alias("ts_ns"))
        return pl.concat([held, runqueue.filter(pl.col("ts_ns") > self.start_ns)])


def _lives(tasks: pl.DataFrame, chosen: frozenset[int] | None) -> pl.DataFrame:
    """Return from when on a thread number is whose, of numbers that chosen tasks share with others."""
    mine = (
        pl.lit(True)
        if chosen is None
        else pl.col("utid").is_in(pl.Series(sorted(chosen), dtype=pl.UInt32).implode())
    )
    known = tasks.filter(~pl.col("is_idle")).select(
        "tid", pl.col("first_ts_ns").alias("ts_ns"), mine.alias("chosen")
    )
    both = pl.col("chosen").any().over("tid") & ~pl.col("chosen").all().over("tid")
    return known.filter(both).sort("ts_ns", maintain_order=True)


def _choose(
    trace: Trace,
    comm: CommPattern | Iterable[CommPattern] | None,
    pids: list[int] | None,
    tids: list[int] | None,
) -> pl.DataFrame:
    """Keys and thread numbers of the tasks that meet all conditions."""
    tasks = trace.tasks.select("utid", "tid", "pid", "comm", "comm_first")
    if pids is not None:
        tasks = tasks.filter(pl.col("pid").is_in(pids))
    if tids is not None:
        tasks = tasks.filter(pl.col("tid").is_in(tids))
    if comm is not None:
        wanted = sorted(_fitting(_known_names(trace), comm))
        by_slice = trace.slices.filter(pl.col("comm").cast(pl.String).is_in(wanted))["utid"].unique()
        named = [pl.col(c).cast(pl.String).is_in(wanted).fill_null(False) for c in ("comm", "comm_first")]
        tasks = tasks.filter(pl.any_horizontal(*named, pl.col("utid").is_in(by_slice.implode())))
    return tasks


def matching(trace: Trace, comm: CommPattern) -> list[str]:
    """Names of tasks that a pattern fits.

    Parameters
    ----------
    trace
        Whose names are looked at.
    comm
        As in `Trace.filter`.

    Returns
    -------
    list of str
        In order.

    Raises
    ------
    FilterError
        When it fits none.
    """
    found = sorted(_fitting(_known_names(trace), comm))
    if not found:
        raise FilterError(f"no task is called {comm!r}")
    return found
