"""What intervals and trust are judged by, put together from the programs of a trace and its replays."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import analysis
from tracekit.trace import Trace
from tracekit.whatif.intervals import MIN_JITTER_NS, Perturbation, kernel_share, kernel_shares
from tracekit.whatif.predictions import Repeated
from tracekit.whatif.row_error import no_error
from tracekit.whatif.run import Programs

__all__ = ["known_of"]


def known_of(
    programs: Programs,
    trace: Trace,
    by: str,
    repeated: Mapping[str, list[tuple[Perturbation, pl.DataFrame]]],
    changes: Mapping[str, str],
) -> Repeated:
    """Put together what intervals and trust are judged by.

    Parameters
    ----------
    programs, trace, by
        What was replayed, and how its tasks are grouped.
    repeated
        Label to perturbations and metrics, see `tracekit.whatif.repeat.run_all`.
    changes
        Label to class of change, see `tracekit.whatif.row_error.change_class`.
    """
    inferred_of = dict(programs.inferred.select("name", "value").unique("name", keep="first").iter_rows())
    text = trace.metadata.get("clock.resolution_ns", "1")
    clock = float(text) if text.isdigit() else 1.0
    span = max(1, (trace.end_ns or 0) - (trace.start_ns or 0)) * max(1, trace.cpus.height)
    lost = analysis.losses.coverage(trace.losses, trace.start_ns or 0, trace.end_ns or 0)
    return Repeated(
        repeated,
        changes,
        _kernel_shares(programs, by),
        unexplained={} if programs.stated else _unexplained(programs, by),
        errors=no_error() if programs.stated else None,
        lost=float(lost["lost_ns"].sum()) / span,
        tick_ns=1e9 / (inferred_of.get("ticks a second") or 250),
        resolution_ns=max(clock, inferred_of.get("jitter") or 0.0, MIN_JITTER_NS),
        span_ns=float((trace.end_ns or 0) - (trace.start_ns or 0)),
        switch_ns=0.0 if programs.stated else inferred_of.get("switch") or 0.0,
        plain=programs.stated,
    )


def _unexplained(programs: Programs, by: str) -> dict[tuple[str, str | None], float]:
    """Share of the wakeups of each group, and of all, that the trace does not explain."""
    rows = programs.demands.select(analysis.group_of(by), "sleeps", "unexplained")
    sums = rows.group_by("group").sum().filter(pl.col("sleeps") > 0)
    found: dict[tuple[str, str | None], float] = {
        ("group", group): without / sleeps for group, sleeps, without in sums.iter_rows()
    }
    found["all", None] = int(rows["unexplained"].sum()) / max(int(rows["sleeps"].sum()), 1)
    return found


def _kernel_shares(programs: Programs, by: str) -> dict[tuple[str, str | None], float]:
    """Share of kernel work of each group of tasks, and of all."""
    rows = programs.demands.with_columns(analysis.group_of(by))
    found: dict[tuple[str, str | None], float] = {("all", None): kernel_share(rows)}
    for group, share in kernel_shares(rows).items():
        found["group", group] = share
    return found
