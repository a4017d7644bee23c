"""The statistics of a trace that does not fit into memory, in one pass over its source.

What is kept grows with the number of tasks, and by four bytes a sample, not with events: the tables
`events`, `slices`, `states` and `runqueue` are never whole in memory. Statistics are exact, and
those of the analyses, up to 64 Mi samples (256 MB); beyond, values are rounded to 12 significant
bits, so that quantiles are off by at most 1 part in 4,096; counts, sums, means without censored
samples, least and largest stay exact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import _core
from tracekit._frames import to_frame
from tracekit.errors import ParseError, TracekitError
from tracekit.io.machine import Beside, beside, check, machine_metadata
from tracekit.io.options import checked
from tracekit.io.progress import Progress, reporter
from tracekit.io.reading import own_file, provenance
from tracekit.trace import Trace

if TYPE_CHECKING:
    from tracekit.analysis.completion import Missing

__all__ = ["Survey", "survey"]

#: Events from the start by which `tracekit info` judges what the source does not say.
HEAD_EVENTS = 1 << 18
#: Largest relative error of a quantile once values are rounded.
ROUNDING = 1 / 4096

_SMALL = ("tasks", "cpus", "losses", "diagnostics", "histograms", "summaries")
_QUANTILES = ("p50_ns", "p90_ns", "p95_ns", "p99_ns")


class Survey(Trace):
    """A trace of which only statistics are known, and the tables that do not grow with it.

    Made by `survey`. The tables ``events``, ``slices``, ``states`` and ``runqueue`` are not kept,
    and asking for them is an error.

    Parameters
    ----------
    core
        The pass over the source, at its end.
    metadata, name
        As in `tracekit.Trace`.
    stated
        Losses and diagnostics that stand in a file of tracekit's own.
    """

    def __init__(
        self,
        core: _core.Survey,
        metadata: Mapping[str, str],
        name: str,
        stated: Mapping[str, pl.DataFrame] | None = None,
    ) -> None:
        tables: dict[str, _core.Table | pl.DataFrame] = {t: core.table(t) for t in _SMALL}
        if stated is not None:
            tables |= stated
            if "diagnostics" in stated:
                found = pl.concat([stated["diagnostics"], to_frame(core.table("diagnostics"))])
                tables["diagnostics"] = found.unique(maintain_order=True)
        super().__init__(tables, metadata, name)
        self._core = core
        self._count = dict(zip(("events", "slices", "states", "runqueue"), core.rows, strict=True))
        self._span = core.span or self._span_of_tasks()
        self._head = core.head

    def table(self, name: str) -> pl.DataFrame:
        """A table that is kept; the others are refused.

        Parameters
        ----------
        name
            ``tasks``, ``cpus``, ``losses``, ``diagnostics``, ``histograms`` or ``summaries``.

        Raises
        ------
        TracekitError
            For a table that grows with the trace.
        """
        if name not in _SMALL:
            raise TracekitError(
                f"the table {name!r} of {self.name} was not kept: read the trace with tracekit.read, or write the "
                f"table to a file with tracekit.convert"
            )
        return super().table(name)

    def _span_of_tasks(self) -> tuple[int, int] | None:
        """From the first slice to the end of the last, where a tool states slices and no events."""
        if not self.tasks.height:
            return None
        first, last = self.tasks.select(pl.col("first_ts_ns").min(), pl.col("last_ts_ns").max()).row(0)
        return first, last

    def _rows(self, name: str) -> int:
        return self._count.get(name) or super()._rows(name)

    def _edge(self, table: str, *, first: bool) -> int | None:
        return None if self._span is None else self._span[0 if first else 1]

    @property
    def rounded(self) -> bool:
        """Whether values were rounded, because there are too many samples to hold."""
        return self._core.rounded

    @property
    def lossy(self) -> bool:
        """Whether records are missing; bounds of what they may have held need the whole tables."""
        return not self.missing().whole

    def missing(self) -> Missing:
        """What the trace does not hold, as far as its markers say it without its events.

        Whether something is missing, and why there can be no bounds, is as of the whole trace; but
        CPUs without a record, and pauses of the recording, are known from events alone.
        """
        from tracekit.analysis.completion import missing

        def found() -> Missing:
            start, end = self.start_ns or 0, self.end_ns or 0
            no_cpu = pl.lit(None, dtype=pl.Int32)
            kinds = self.kinds.select(
                pl.lit(start).alias("ts_ns"), "kind", no_cpu.alias("target_cpu"), no_cpu.alias("orig_cpu")
            )
            tables = (self.losses, self.diagnostics, self.cpus, kinds)
            return missing(*tables, self._metadata, start, max(start, end))

        return self.once("missing", found)

    @property
    def queues_known(self) -> bool:
        """Whether one pass gave the run queues: not where records are out of time order."""
        return self._core.queues(False) is not None

    @property
    def kinds(self) -> pl.DataFrame:
        """Number of events by kind, as of any trace."""
        found = pl.DataFrame(self._core.kinds, schema={"kind": pl.String, "count": pl.UInt64}, orient="row")
        return found.sort("count", "kind", descending=[True, False])

    @property
    def head(self) -> Trace:
        """The first events, as many as were asked for, with the tables derived from them."""
        events = _core.concat("events", self._head, self.metadata)
        return Trace({"events": events, **_core.derive(events, self.metadata)}, self.metadata, self.name)

    def causes(self) -> pl.DataFrame:
        """What was lost, damaged or inferred, by cause: see `tracekit.analysis.damage.causes`."""
        from tracekit.analysis.damage import causes

        stated = self._metadata.get("parse.lines", "")
        records = int(stated) if stated.isdigit() else self._rows("events")
        damaged = self.once("damaged", lambda: to_frame(self._core.table("slices")))
        return causes(self.diagnostics, damaged, self.cpus, self.losses, records, self._span)

    def slice_summary(self, by: str = "group", labels: Sequence[str | None] | None = None) -> pl.DataFrame:
        """The result of `tracekit.analysis.slices.summary`.

        Parameters
        ----------
        by
            Grouping, see `tracekit.analysis.GROUPINGS`.
        labels
            Name of the group of each task (by `utid`), in place of `by`; None for tasks without one.
        """
        rows = []
        for group, (tasks, n_open, unreliable, run, forced, switches), s in self._core.slices(by, labels):
            n, _, _, mean, _, least, quantiles, most, _ = s
            rows.append(
                {
                    **{
                        "group": group,
                        "nr_tasks": tasks,
                        "n": n,
                        "n_open": n_open,
                        "n_unreliable": unreliable,
                    },
                    **{"run_ns": run, "nr_involuntary": forced, "nr_voluntary": switches - forced},
                    "involuntary_share": forced / switches if switches else None,
                    "mean_per_involuntary_ns": run / forced if forced else None,
                    **{"mean_ns": mean, "min_ns": least, **_named(quantiles), "max_ns": most},
                }
            )
        return pl.DataFrame(rows, schema=_SLICES)

    def latency_summary(
        self, by: str = "group", cause: str = "any", labels: Sequence[str | None] | None = None
    ) -> pl.DataFrame:
        """The result of `tracekit.analysis.latency.summary`.

        Parameters
        ----------
        by, labels
            As in `slice_summary`.
        cause
            ``any``, ``wakeup``, ``preemption``, ``yield`` or ``first``.
        """
        rows = [
            {"group": group, "cause": cause, **_censored(s), "max_at_ns": at, "n_unreliable": unreliable}
            for group, (at, unreliable), s in self._core.waits(by, cause, labels)
        ]
        return pl.DataFrame(rows, schema=_WAITS)

    def response_summary(self, by: str = "group", labels: Sequence[str | None] | None = None) -> pl.DataFrame:
        """The result of `tracekit.analysis.response.summary`.

        Parameters
        ----------
        by, labels
            As in `slice_summary`.
        """
        rows = [
            {"group": group, **_censored(s), "n_excluded": excluded}
            for group, excluded, s in self._core.responses(by, labels)
        ]
        return pl.DataFrame(rows, schema=_RESPONSES)

    def runqueue_summary(self, count: str = "all") -> pl.DataFrame:
        """The result of `tracekit.analysis.runqueue.summary`.

        Parameters
        ----------
        count
            ``all``, or ``waiting`` to leave the running tasks out.

        Raises
        ------
        TracekitError
            When rows came out of time order, so that one pass does not give the length of the system's queue.
        """
        found = self._core.queues(count == "waiting")
        if found is None:
            raise TracekitError(
                f"{self.name}: its records are not in time order, so one pass does not give its run queues; "
                "read the trace with tracekit.read"
            )
        rows = [
            (scope, cpu, span, mean, *quantiles, most, *shares, bound)
            for scope, cpu, span, mean, quantiles, most, shares, bound in found
        ]
        return pl.DataFrame(rows, schema=_QUEUES, orient="row")

    def __reduce__(self) -> tuple[Any, ...]:
        """A survey cannot be pickled: what it knows lies in the core."""
        raise TypeError("a Survey cannot be pickled; survey the source again")


_LENGTHS = {**dict.fromkeys(_QUANTILES, pl.Int64), "max_ns": pl.Int64}
_SLICES: dict[str, Any] = {
    **{"group": pl.String, "nr_tasks": pl.UInt32, "n": pl.UInt32, "n_open": pl.UInt32},
    **{"n_unreliable": pl.UInt32, "run_ns": pl.Int64, "nr_involuntary": pl.UInt32, "nr_voluntary": pl.UInt32},
    **{"involuntary_share": pl.Float64, "mean_per_involuntary_ns": pl.Float64, "mean_ns": pl.Float64},
    **{"min_ns": pl.Int64, **_LENGTHS},
}
_CENSORED: dict[str, Any] = {
    **{"n": pl.UInt32, "n_censored": pl.UInt32, "sum_ns": pl.Int64, "mean_ns": pl.Float64},
    **{"mean_is_bound": pl.Boolean, "min_ns": pl.Int64, **_LENGTHS},
}
_WAITS = {
    **{"group": pl.String, "cause": pl.String, **_CENSORED},
    **{"max_at_ns": pl.Int64, "n_unreliable": pl.UInt32},
}
_RESPONSES = {"group": pl.String, **_CENSORED, "n_excluded": pl.UInt32}
_QUEUES = {
    **{"scope": pl.String, "cpu": pl.Int32, "span_ns": pl.Int64, "mean": pl.Float64},
    **dict.fromkeys(("p50", "p95", "p99", "max"), pl.Int32),
    **{"empty_share": pl.Float64, "estimated_share": pl.Float64, "mean_is_bound": pl.Boolean},
}


def _named(quantiles: Sequence[int | None]) -> dict[str, int | None]:
    return dict(zip(_QUANTILES, quantiles, strict=True))


def _censored(s: _core._Spread) -> dict[str, Any]:
    """Columns of `tracekit.analysis.uncertainty.describe_censored`."""
    n, censored, total, mean, bound, least, quantiles, most, _ = s
    return {
        **{"n": n, "n_censored": censored, "sum_ns": total, "mean_ns": mean, "mean_is_bound": bound},
        **{"min_ns": least, **_named(quantiles), "max_ns": most},
    }


def survey(
    source: str | os.PathLike[str],
    format: str | None = None,
    *,
    progress: Progress = False,
    machine: Beside = None,
    hold: int | None = None,
    head: int = 0,
    **options: object,
) -> Survey:
    """Read a trace once for its statistics, without ever holding it.

    Parameters
    ----------
    source
        A path, or ``-`` for standard input; also a Parquet or Arrow file of events. No Perfetto trace.
    format, progress, machine, **options
        As in `tracekit.read`.
    hold
        How many samples are held one by one before values are rounded; by default 64 Mi, which is 256 MB.
    head
        How many events from the start are kept, for `Survey.head`.

    Returns
    -------
    Survey
        Statistics, and the small tables.

    Raises
    ------
    ParseError
        As `tracekit.read`, and of a file of events that were filtered before they were written.

    Examples
    --------
    >>> import tracekit as tk
    >>> found = tk.survey("fixtures/demo/slice-default.dat")
    >>> found.metadata["source.format"]
    'trace-dat'
    """
    path = os.fspath(source)
    name = "standard input" if path == "-" else Path(path).name
    settings = checked(options)
    own = own_file(path) if format is None else None
    if own is not None:
        return _of_stored(path, own, name, head, hold)
    core = _core.Survey(path, format, settings, head=head, hold=hold)
    with reporter(progress, f"reading {name}") as report:
        _drain(core, report)
    metadata = core.metadata | provenance(path, core.size, settings)
    found = beside(path, machine)
    if found is not None:
        metadata = machine_metadata(metadata, found)
    made = Survey(core, metadata, name)
    if found is not None:
        check(made, found)
    return made


def _of_stored(path: str, kind: str, name: str, head: int, hold: int | None) -> Survey:
    """Of a file that tracekit wrote."""
    from tracekit.io.parquet import batches_of, filtered_by

    metadata, stated, batches = batches_of(path, kind)
    if part := filtered_by(metadata):
        raise ParseError(
            f"{name}: expected events of a whole trace, found those of a filtered one (by {', '.join(part)}): "
            "tracekit.read says what they hold",
            kind,
            "unsupported",
        )
    core = _core.Survey.fed(metadata, head=head, hold=hold)
    for batch in batches:
        core.push(batch)
    while core.read():
        pass
    return Survey(core, metadata, name, stated)


def _drain(core: _core.Survey, report: Callable[[int, int | None, int], object]) -> None:
    while core.read():
        report(core.position, core.size, core.rows[0])
