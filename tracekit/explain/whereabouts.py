"""Where tasks ran, and whose the CPUs' time was."""

from __future__ import annotations

import polars as pl

from tracekit.analysis import GROUPINGS, blame, grouping, placement
from tracekit.errors import FilterError
from tracekit.trace import Trace

__all__ = ["WHERE", "where"]

#: What can be asked.
WHERE = ("cpus", "time", "migrations", "idle", "waits", "handlers", "inversions", "periods", "lives", "cost")


def topology(trace: Trace) -> pl.DataFrame | None:
    """The topology that was written down beside the trace.

    Parameters
    ----------
    trace
        The trace.

    Returns
    -------
    polars.DataFrame or None
        `cpu`, and `core`, `cache`, `node`, `package` as numbers that CPUs share; None without a machine file.
    """
    machine = trace.machine
    if machine is None or not machine.cpus.height:
        return None
    cpus = machine.cpus
    # Numbers of cores are of their package; hardware threads and caches are known by the first CPU
    # that shares them.
    return cpus.select(
        "cpu",
        pl.col("siblings").list.min().alias("core"),
        pl.col("llc").list.min().alias("cache"),
        "node",
        "package",
    )


def where(trace: Trace, show: str = "cpus", by: str = "group") -> pl.DataFrame:
    """Say where tasks ran, and whose the CPUs' time was.

    Parameters
    ----------
    trace
        The whole trace.
    show
        ``cpus``, ``time``, ``migrations``, ``idle``, ``waits``, ``handlers``, ``inversions``, ``periods``,
        ``lives`` or ``cost``.
    by
        Grouping of tasks, one of `tracekit.analysis.grouping.BY`.

    Returns
    -------
    polars.DataFrame
        See `tracekit.analysis.placement`: `imbalance`; `times`; `migrations`, summed by group, reason and
        distance (`group`, `reason`, `distance`, `n`, `per_s`, `sleep_mean_ns`);
        `idle_while_waiting`; the longest waits (see `tracekit.analysis.blame.worst`); `handlers`;
        `inversions`; `periodic`; `lives`; `cost_of_life`.

    Raises
    ------
    FilterError
        When the trace has no records with a time.
    ValueError
        For a table or a grouping that does not exist, or one that the trace does not state.

    Examples
    --------
    >>> import tracekit as tk
    >>> tk.explain.where(tk.read("fixtures/demo/slice-default.dat"), "periods").height > 0
    True
    """
    if show not in WHERE:
        raise ValueError(f"unknown table {show!r}: expected one of {', '.join(WHERE)}")
    first, last = trace.start_ns, trace.end_ns
    if first is None or last is None:
        raise FilterError(f"{trace.name}: expected records with a time, found none")
    names = _named(trace, by)
    if show == "time":
        return placement.times(trace.slices, trace.states, names, (last - first) * trace.cpus.height)
    if show in ("lives", "cost"):
        found = placement.lives(trace.tasks, trace.slices, trace.events)
        return found if show == "lives" else placement.cost_of_life(found)
    if show == "periods":
        return placement.periodic(trace.slices, names)
    if show == "migrations":
        return _migrations(trace, names, last - first)
    scene = blame.scene(trace.slices, trace.states, trace.runqueue, trace.events, first, last)
    if show == "cpus":
        return placement.imbalance(scene, first, last)
    if show == "idle":
        return placement.idle_while_waiting(scene, trace.tasks)
    if show == "handlers":
        return placement.handlers(scene, names)
    if show == "inversions":
        return placement.inversions(scene, trace.slices, names)
    spans = blame.spans_of_waits(scene.lines)
    return blame.worst(spans, blame.labelled(blame.decompose(spans, scene, 0), names), names, 50)


def _named(trace: Trace, by: str) -> pl.DataFrame:
    """What to call each task: by its name, or by what the trace or the machine file says of it."""
    if by in GROUPINGS:
        return blame.named(trace.tasks, by)
    known = next((b for b in grouping.BY if b == by), None)
    if known is None:
        raise ValueError(f"unknown grouping {by!r}: expected one of {', '.join(grouping.BY)}")
    found = grouping.labels(trace.tasks, known, None if trace.machine is None else trace.machine.tasks)
    return found.select("utid", pl.col("label").fill_null("(not recorded)").alias("group"))


def _migrations(trace: Trace, names: pl.DataFrame, span_ns: int) -> pl.DataFrame:
    moves = placement.migrations(trace.slices, trace.events, topology(trace))
    return (
        moves.join(names.select(pl.col("utid").cast(pl.UInt32), "group"), on="utid", how="left")
        .group_by("group", "reason", "distance")
        .agg(pl.len().cast(pl.UInt32).alias("n"), pl.col("sleep_ns").mean().alias("sleep_mean_ns"))
        .with_columns((pl.col("n") / (max(span_ns, 1) / 1e9)).alias("per_s"))
        .select("group", "reason", "distance", "n", "per_s", "sleep_mean_ns")
        .sort(["n", "group", "reason"], descending=[True, False, False])
    )
