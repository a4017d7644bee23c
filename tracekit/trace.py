"""The trace: its tables, its metadata, and what can be done with it as a whole."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit import _core
from tracekit._frames import COMPUTED, TABLES, empty_frame, table_schema, to_frame
from tracekit._lazy import later
from tracekit.errors import FilterWarning
from tracekit.filters import CommPattern, Selection, Time
from tracekit.harmless import printable
from tracekit.units import format_count, format_ns

if TYPE_CHECKING:
    import html

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from tracekit.analysis.completion import Missing
    from tracekit.explain.delays import Why
    from tracekit.io.writers import Converted
    from tracekit.machine import Machine
else:
    html = later("html")
    pl = later("polars")

__all__ = ["Trace"]

T = TypeVar("T")

#: Seconds between two looks at whether to stop waiting.
LOOK_S = 0.2


class Trace:
    """A scheduler trace as a set of tables.

    Comes from `tracekit.read` or `tracekit.replay`. Each table is a polars DataFrame, made when it
    is first asked for. Times are int64 nanoseconds; null means that the source did not say. In the
    large tables names are ``Categorical`` and the words of closed lists (``kind``, ``state``,
    ``end_state``) are ``Enum``: both compare with plain strings (``pl.col("comm") == "make"``);
    string functions want a ``.cast(pl.String)`` first.

    Parameters
    ----------
    tables
        By name; a table that is missing is empty.
    metadata
        What is known of the trace as a whole, see ``tracekit._core.metadata_keys()``.
    name
        What to call the trace in output, usually its file name.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> trace.slices.filter(comm="spin00")["cpu"].unique().to_list()
    [0]
    """

    def __init__(
        self,
        tables: Mapping[str, _core.Table | _core.Records | pl.DataFrame],
        metadata: Mapping[str, str] | None = None,
        name: str = "trace",
    ) -> None:
        unknown = sorted(set(tables) - {*TABLES, *COMPUTED})
        if unknown:
            raise ValueError(f"no table is called {unknown[0]!r}; there are {', '.join(TABLES)}")
        self._tables: dict[str, _core.Table | _core.Records | pl.DataFrame] = dict(tables)
        self._metadata = dict(metadata or {})
        self._name = name
        self._known: dict[object, Any] = {}
        self._making: dict[object, threading.RLock] = {}

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What `make` gives, computed when it is first asked for and kept as long as the trace.

        Parameters
        ----------
        key
            What it is: equal keys, equal results.
        make
            Computes it. Of several threads one does; the others wait for it.
        """
        if key not in self._known:
            making = self._making.setdefault(key, threading.RLock())
            # A wait with an end: Ctrl-C ends it (`tracekit.whatif.threads.wait_for_first`).
            while not making.acquire(timeout=LOOK_S):
                pass
            try:
                if key not in self._known:
                    self._known[key] = make()
            finally:
                making.release()
        found: T = self._known[key]
        return found

    @property
    def name(self) -> str:
        """What to call the trace in output."""
        return self._name

    @property
    def metadata(self) -> dict[str, str]:
        """What is known of the trace as a whole: source, system, clock, losses, options."""
        return dict(self._metadata)

    @property
    def machine(self) -> Machine | None:
        """What was written down of the machine; None without a file.

        Tick rate, topology, cgroups, affinities.

        `tracekit.read` takes it from ``NAME.machine.toml`` beside the trace, see
        ``tracekit recipes machine``.
        """
        from tracekit.machine import parse_machine

        text = self._metadata.get("machine")
        return None if text is None else parse_machine(text)

    def with_metadata(self, metadata: Mapping[str, str]) -> Trace:
        """The same tables with other metadata.

        Parameters
        ----------
        metadata
            In place of that of this trace.
        """
        return type(self)(self._tables, metadata, self._name)

    def table(self, name: str) -> pl.DataFrame:
        """The table called `name`.

        Parameters
        ----------
        name
            ``events``, ``slices``, ``states``, ``runqueue``, ``tasks``, ``cpus``, ``losses``,
            ``diagnostics``, ``histograms``, ``summaries`` or ``program``.

        Returns
        -------
        polars.DataFrame
            The columns that ``docs/reference/schema.md`` lists.
        """
        held = self._tables.get(name)
        if isinstance(held, pl.DataFrame):
            return held
        if held is None and name in COMPUTED:
            frame = self._compute_program()
        elif held is None:
            if name not in TABLES:
                raise KeyError(f"no table is called {name!r}; there are {', '.join((*TABLES, *COMPUTED))}")
            frame = empty_frame(name)
        else:
            frame = to_frame(held.table() if isinstance(held, _core.Records) else held)
        self._tables[name] = frame
        return frame

    def columns(self, table: str, *names: str) -> pl.DataFrame:
        """Some columns of a table; of a table that nobody has asked for the others are not made.

        Parameters
        ----------
        table, *names
            Name of the table, and of its columns.

        Returns
        -------
        polars.DataFrame
            These columns, in this order.
        """
        held = self._tables.get(table)
        if isinstance(held, _core.Table):
            # Each is made once: numbers are not copied, and a kind is one byte.
            parts = [self.once((table, name), partial(to_frame, held, [name])) for name in names]
            return pl.concat(parts, how="horizontal")
        return self.table(table).select(names)

    def _until(self, table: str, end_ns: int | None) -> pl.DataFrame:
        """A table without what begins at `end_ns` or later, if nobody has asked for that.

        With it where that is no less work: in a table that is at hand, or not in order of time.
        """
        held = self._tables.get(table)
        if end_ns is None or not isinstance(held, _core.Table) or "ts_ns" not in table_schema(table):
            return self.table(table)
        ts = self.columns(table, "ts_ns")["ts_ns"]
        if ts.null_count() or not ts.is_sorted():
            return self.table(table)
        return to_frame(held.head(int(ts.search_sorted(end_ns, side="left"))))

    def at_hand(self, table: str) -> _core.Table | pl.DataFrame:
        """A table as it is at hand: for code that reads Arrow streams.

        Parameters
        ----------
        table
            Its name.
        """
        held = self._tables.get(table)
        return held if isinstance(held, _core.Table) else self.table(table)

    def _compute_program(self) -> pl.DataFrame:
        from tracekit.whatif.run import Programs

        return Programs(self).table if self._rows("events") else empty_frame("program")

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables that the trace holds; `program` is computed when it is asked for."""
        return TABLES

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each table."""
        return {name: self._rows(name) for name in self.tables}

    def _rows(self, name: str) -> int:
        held = self._tables.get(name)
        return 0 if held is None else len(held)

    @property
    def events(self) -> pl.DataFrame:
        """One row per source record, in time order; nothing is inferred."""
        return self.table("events")

    @property
    def slices(self) -> pl.DataFrame:
        """One row per uninterrupted stay of a task on a CPU, by start time."""
        return self.table("slices")

    @property
    def states(self) -> pl.DataFrame:
        """The life of each task as intervals without gap or overlap, by start time."""
        return self.table("states")

    @property
    def runqueue(self) -> pl.DataFrame:
        """Run-queue lengths as step functions: a row when the length of a CPU's queue changes."""
        return self.table("runqueue")

    @property
    def tasks(self) -> pl.DataFrame:
        """One row per thread; a thread number that is used again is another task."""
        return self.table("tasks")

    @property
    def cpus(self) -> pl.DataFrame:
        """One row per CPU that emitted a record."""
        return self.table("cpus")

    @property
    def losses(self) -> pl.DataFrame:
        """Intervals in which the source lost records."""
        return self.table("losses")

    @property
    def diagnostics(self) -> pl.DataFrame:
        """What was skipped, repaired, inferred or lost."""
        return self.table("diagnostics")

    @property
    def histograms(self) -> pl.DataFrame:
        """Histograms that a tool printed, one row a bucket."""
        return self.table("histograms")

    @property
    def summaries(self) -> pl.DataFrame:
        """Figures that a tool printed, one row each."""
        return self.table("summaries")

    @property
    def program(self) -> pl.DataFrame:
        """What each task does, free of when it did it: one row per step, as a replay runs it.

        Reconstructed from the events when first asked for. Every sleep says what ends it
        (`ends_by`) and on what evidence (`evidence`). Of a trace that was filtered, it is the
        program as far as the events that are left say.
        """
        return self.table("program")

    @property
    def start_ns(self) -> int | None:
        """Time of the first record, trace clock; None for a trace without records.

        Of a trace that was filtered: where the window begins, or where the whole trace does, also when
        the first record of what is left comes later.
        """
        return self._edge("events", first=True)

    @property
    def end_ns(self) -> int | None:
        """Time of the last record, trace clock; None for a trace without records.

        Of a trace that was filtered: where the window ends, or where the whole trace does, whichever
        comes first.
        """
        return self._edge("events", first=False)

    def _edge(self, table: str, *, first: bool) -> int | None:
        bounds = json.loads(self._metadata.get("options", "{}")).get("span", {})
        stated = bounds.get("start_ns" if first else "end_ns")
        if stated is not None:
            return int(stated)
        held = self._tables.get("events")
        if isinstance(held, _core.Records):
            return held.span[0 if first else 1]
        if self._rows("events"):
            ts = self.columns("events", "ts_ns")["ts_ns"]
            edge = ts.min() if first else ts.max()
        elif self._rows("slices"):
            ts = self.slices["ts_ns"]
            edge = ts.min() if first else (ts + self.slices["dur_ns"]).max()
        else:
            return None
        return edge if isinstance(edge, int) else None

    def filter(
        self,
        *,
        comm: CommPattern | Iterable[CommPattern] | None = None,
        pid: int | Iterable[int] | None = None,
        tid: int | Iterable[int] | None = None,
        cpu: int | Iterable[int] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        exclude: CommPattern | Iterable[CommPattern] | None = None,
    ) -> Trace:
        """The part of the trace that concerns some tasks, some CPUs or some time.

        Conditions on tasks (`comm`, `pid`, `tid`) add up: a task is chosen when it meets all of
        them. What was derived is not derived anew, so a slice keeps the waker, delay and queue that
        it had among all tasks. A replay is another matter: of what is left, it is of a machine without
        the others, and warns (`tracekit.FilterWarning`). Replay the whole trace and filter the replay;
        `tracekit.compare` takes the same conditions on tasks.

        Parameters
        ----------
        comm
            Task name as a glob (``spin*``), as a regular expression between slashes
            (``/^spin[0-9]/``, of Rust's regex crate) or one that Python compiled; several are alternatives. A task that was renamed is
            chosen by any of its names.
        pid, tid
            Process or thread numbers.
        cpu
            CPU numbers.
        exclude
            Names of tasks to leave out, as in `comm`.
        start, end
            Window of time, end not included: nanoseconds of the trace clock as an int, or text:
            time since the start of the trace (``1.5s``), or of the trace clock after an ``@``
            (``@5021.25s``).

        Returns
        -------
        Trace
            With, per table: ``events`` that name a chosen task (leaving, entering, acting or acted
            on), on a chosen CPU, within the window; ``slices`` of chosen tasks on chosen CPUs that
            *begin* in the window, kept whole; ``states`` likewise but cut at the edges of the
            window, where they are marked as open; ``runqueue`` of chosen CPUs, cut at the edges of
            the window, of *all* tasks (a queue belongs to its CPU); ``tasks`` that were chosen and
            have a slice, state or event left; ``cpus`` that were chosen; ``losses`` that touch the
            window on chosen CPUs. Sums in ``tasks`` and ``cpus`` (`run_ns`, `busy_ns`, ...) stay those of
            the whole trace. Diagnostics, histograms and summaries stay as they are. It lasts as
            long as the whole trace or the part of the window that lies within it (`start_ns`, `end_ns`),
            whatever the records that are left.

        Warns
        -----
        FilterWarning
            When no task, CPU or time of the trace meets a condition, or a name fits no task: the
            sentence names what the trace has.
        """
        chosen = Selection.make(
            self, comm=comm, pid=pid, tid=tid, cpu=cpu, start=start, end=end, exclude=exclude
        )
        if chosen.is_all:
            return self
        for said in chosen.unmet(self):
            warnings.warn(printable(said), FilterWarning, stacklevel=2)
        tables = {name: chosen.apply(name, self._until(name, chosen.end_ns)) for name in TABLES}
        options = json.loads(self._metadata.get("options", "{}"))
        options["filter"] = {**options.get("filter", {}), **chosen.described()}
        if self.start_ns is not None and self.end_ns is not None:
            options["span"] = chosen.span(self.start_ns, self.end_ns)
        if chosen.tids is not None:
            options["tids"] = sorted(chosen.tids)
        if lacks := chosen.left_out(self, options.get("left_out", {})):
            options["left_out"] = lacks
        # The part of a run is not what the whole workload does.
        known = {k: v for k, v in self._metadata.items() if k not in ("workload", "workload.seed")}
        return Trace(
            chosen.prune(tables),
            {**known, "options": json.dumps(options, sort_keys=True)},
            self._name,
        )

    def why(
        self,
        *,
        comm: CommPattern | Iterable[CommPattern] | None = None,
        pid: int | Iterable[int] | None = None,
        tid: int | Iterable[int] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        what: str = "responses",
        quantile: float | None = None,
        by: str = "group",
    ) -> Why:
        """Say where the time of some tasks went: who ran while they waited, and what they slept for.

        Parameters
        ----------
        comm, pid, tid, start, end, what, quantile, by
            As in `tracekit.explain.delays.why`.

        Returns
        -------
        Why
            One sentence, a table that sums to the time exactly, the ten longest.

        Raises
        ------
        FilterError
            When no task fits, nothing of the kind lies in the window, or too little for the quantile.
        ValueError
            When `what` or `by` is no word for it, or `quantile` does not lie between 0 and 1.
        """
        from tracekit.explain.delays import why

        return why(
            self, comm=comm, pid=pid, tid=tid, start=start, end=end, what=what, quantile=quantile, by=by
        )

    def to_arrow(self, table: str = "events") -> pa.Table:
        """A table as a pyarrow Table with the metadata in its schema.

        Parameters
        ----------
        table
            Name of the table.

        Returns
        -------
        pyarrow.Table
            Names are dictionary-encoded.
        """
        from tracekit.io.writers import arrow_table

        return arrow_table(self.table(table), table, self._metadata)

    def write(
        self, target: str | os.PathLike[str], *, table: str = "events", to: str | None = None
    ) -> Converted:
        """Write a table to a file, with the metadata, losses and diagnostics in its footer.

        `tracekit.read` takes an ``events`` file back as a trace; of events that were filtered by task
        with the tables of the chosen ones, and no ``runqueue``. To convert a trace that is larger
        than memory, use `tracekit.convert`.

        Parameters
        ----------
        target
            File; it appears when it is complete.
        table
            Name of the table.
        to
            ``parquet``, ``arrow`` or ``csv``; by default the ending of `target` decides.

        Returns
        -------
        Converted
            Rows and bytes written.
        """
        from tracekit.io.writers import output_kind, write_frame

        kind = output_kind(target, to)
        return write_frame(self.table(table), table, self, target, kind)

    def to_pandas(self, table: str = "events") -> pd.DataFrame:
        """A table as a pandas DataFrame.

        Parameters
        ----------
        table
            Name of the table.

        Returns
        -------
        pandas.DataFrame
            Integers that can be null have pandas' nullable types, names are ``category``; the
            metadata stands in ``.attrs``.
        """
        import pandas as pd
        import pyarrow as pa

        nullable = {
            pa.int64(): pd.Int64Dtype(),
            pa.int32(): pd.Int32Dtype(),
            pa.uint64(): pd.UInt64Dtype(),
            pa.uint32(): pd.UInt32Dtype(),
            pa.uint16(): pd.UInt16Dtype(),
            pa.bool_(): pd.BooleanDtype(),
        }
        frame: pd.DataFrame = self.to_arrow(table).to_pandas(types_mapper=nullable.get)
        frame.attrs.update(self._metadata)
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The events, for any consumer of the Arrow stream interface."""
        return self.to_arrow("events").__arrow_c_stream__(requested_schema)

    def __getstate__(self) -> dict[str, object]:
        """For pickle, and so for multiprocessing and dask: tables of the core go as DataFrames."""
        return {
            **self.__dict__,
            "_tables": {name: self.table(name) for name in self._tables},
            "_known": {},
            "_making": {},
        }

    def _facts(self) -> list[str]:
        meta = self._metadata
        system = " ".join(meta[k] for k in ("os", "kernel", "arch") if k in meta)
        facts = [meta.get("source.format", "unknown format")]
        if system:
            facts.append(system)
        cpus = self._rows("cpus")
        if cpus:
            facts.append(f"{cpus} CPU{'s' * (cpus != 1)}")
        start, end = self.start_ns, self.end_ns
        if start is not None and end is not None and meta.get("clock.unit", "ns") != "ticks":
            facts.append(format_ns(end - start, 4))
        if "replay.policy" in meta:
            facts.append(f"replayed under {meta['replay.policy'].partition(',')[0]}")
        chosen = json.loads(meta.get("options", "{}")).get("filter", {})
        if chosen:
            facts.append("filtered by " + ", ".join(key.removesuffix("_ns") for key in chosen))
        return facts

    def latency(self, by: str = "group", cause: str = "any") -> pl.DataFrame:
        """Waits for a CPU by group: `tracekit.analysis.latency.summary` of this trace.

        Examples
        --------
        >>> import tracekit as tk
        >>> trace = tk.read("fixtures/demo/slice-default.dat")
        >>> trace.latency(cause="wakeup").filter(group="waker")["p95_ns"].item()
        45572
        """
        from tracekit.analysis import latency

        return latency.summary(self.slices, self.states, by, cause)

    def response(self, by: str = "group") -> pl.DataFrame:
        """Response times by group: `tracekit.analysis.response.summary` of this trace."""
        from tracekit.analysis import response

        return response.summary(self.slices, self.states, self.end_ns, by)

    def slice_lengths(self, by: str = "group") -> pl.DataFrame:
        """How long tasks stay on a CPU, by group: `tracekit.analysis.slices.summary` of this trace."""
        from tracekit.analysis import slices

        return slices.summary(self.slices, by)

    def queue_lengths(self) -> pl.DataFrame:
        """Run-queue lengths by CPU and in all: `tracekit.analysis.runqueue.summary` of this trace."""
        from tracekit.analysis import runqueue

        return runqueue.summary(self.runqueue, self.end_ns)

    def causes(self) -> pl.DataFrame:
        """What was lost, damaged or inferred, by cause: see `tracekit.analysis.damage.causes`."""
        from tracekit.analysis.damage import causes

        start, end = self.start_ns, self.end_ns
        span = None if start is None or end is None else (start, end)
        stated = self._metadata.get("parse.lines", "")
        records = int(stated) if stated.isdigit() else self._rows("events")
        return causes(self.diagnostics, self.slices, self.cpus, self.losses, records, span)

    @property
    def kinds(self) -> pl.DataFrame:
        """Number of events by kind.

        Returns
        -------
        polars.DataFrame
            ``kind`` (String) and ``count`` (UInt64), the most frequent first.
        """

        def count() -> pl.DataFrame:
            counted = self.columns("events", "kind").group_by("kind").len("count")
            named = counted.select(pl.col("kind").cast(pl.String), pl.col("count").cast(pl.UInt64))
            return named.sort("count", "kind", descending=[True, False])

        return self.once("kinds", count)

    def missing(self) -> Missing:
        """What the trace does not hold, as its markers of loss say.

        See `tracekit.analysis.completion.missing`.
        """
        from tracekit.analysis.completion import EVENT_COLUMNS, missing

        def found() -> Missing:
            start, end = self.start_ns or 0, self.end_ns or 0
            events = self.columns("events", *EVENT_COLUMNS)
            return missing(
                self.losses, self.diagnostics, self.cpus, events, self._metadata, start, max(start, end)
            )

        return self.once("missing", found)

    def bounds(self, by: str = "group") -> pl.DataFrame:
        """Bounds of every metric under any completion of what was lost; empty when nothing was.

        Parameters
        ----------
        by
            Grouping, see `tracekit.analysis.GROUPINGS`.

        Returns
        -------
        polars.DataFrame
            As `tracekit.analysis.bounds.table`.
        """
        from tracekit.analysis import bounds

        return bounds.table(self.missing(), self.slices, self.states, self.runqueue, by)

    def warnings(self) -> list[str]:
        """What was lost or damaged, a line each; empty when nothing was."""
        return damages(self.diagnostics)

    def __repr__(self) -> str:
        """Losses first, then what it is, then the tables."""
        lines = [f"<{type(self).__name__} {printable(self._name)}: {', '.join(self._facts())}>"]
        lines += [f"  ! {w}" for w in self.warnings()]
        lines += [
            f"  {name:<12}{format_count(self._rows(name)):>12} rows" for name in TABLES if self._rows(name)
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        warnings = "".join(f"<li>{html.escape(w)}</li>" for w in self.warnings())
        lost = (
            f"<p><b>Some of the trace is missing or damaged:</b></p><ul>{warnings}</ul>" if warnings else ""
        )
        rows = "".join(
            f"<tr><td style='text-align:left'>{name}</td><td>{format_count(self._rows(name))}</td></tr>"
            for name in TABLES
            if self._rows(name)
        )
        facts = html.escape(", ".join(self._facts()))
        return (
            f"<div>{lost}<p><b>{html.escape(self._name)}</b>: {facts}</p>"
            f"<table><thead><tr><th style='text-align:left'>table</th><th>rows</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )


def damages(diagnostics: pl.DataFrame) -> list[str]:
    """What was lost or damaged, a line for each cause.

    Parameters
    ----------
    diagnostics
        The table of a trace.

    Returns
    -------
    list of str
        Code, how often, and the message of the first place; messages of one code that differ in
        more than numbers and the text that they quote are causes of their own, so that the numbers of a code add up over its
        lines.
    """
    from tracekit.analysis.damage import by_cause

    lines = []
    for code, places, more in by_cause(diagnostics.filter(pl.col("severity") != "info")):
        count = sum(int(p["count"]) for p in places) + more
        lines.append(f"{code} x {format_count(count)}: {places[0]['message']}")
    return lines
