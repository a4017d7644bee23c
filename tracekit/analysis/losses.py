"""How much of a trace is missing.

Where records were lost nobody knows who ran. Analyses leave out what touches a loss (`n_unreliable`)
instead of guessing, so counts and sums are lower bounds there; this module says how large the hole
is.
"""

from __future__ import annotations

import polars as pl

from tracekit.analysis import _common as c


def coverage(losses: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Give the share of the trace in which records were lost.

    Definition: lost time of a CPU = the union of its intervals of loss within the trace; an
    interval that begins before the trace or ends after it is cut there. Source: the `losses` table.

    Parameters
    ----------
    losses
        The `losses` table.
    start_ns, end_ns
        First and last record of the trace.

    Returns
    -------
    pl.DataFrame
        One row per CPU with losses: `cpu` (Int32; null for losses of which the source does not say
        the CPU, which may concern all), `n_losses` (UInt32), `records` (Int64, records lost; null
        when one of the numbers is not known), `lost_ns` (Int64), `share` (Float64, of the time from
        `start_ns` to `end_ns`; null when that is 0).

    Notes
    -----
    How it can mislead: a ring buffer loses records when there are many, so the hole is where the
    system was busiest. A share of a few per cent of the time can hold most of the switches.
    """
    c.check_columns(losses, "losses", ("cpu", "ts_from_ns", "ts_to_ns", "count"))
    lo = pl.col("ts_from_ns").fill_null(start_ns).clip(start_ns, end_ns)
    hi = pl.col("ts_to_ns").fill_null(end_ns).clip(start_ns, end_ns)
    rows = losses.select("cpu", "count", lo.alias("lo"), hi.alias("hi")).sort("cpu", "lo", nulls_last=True)
    # What earlier intervals of the same CPU cover already does not count again.
    covered = pl.col("hi").cum_max().shift(1).over("cpu").fill_null(start_ns)
    new = (pl.col("hi") - pl.max_horizontal("lo", covered)).clip(lower_bound=0)
    span = end_ns - start_ns
    return (
        rows.with_columns(new.alias("new"))
        .group_by("cpu", maintain_order=True)
        .agg(
            pl.len().cast(pl.UInt32).alias("n_losses"),
            pl.when(pl.col("count").null_count() == 0).then(pl.col("count").sum()).alias("records"),
            pl.col("new").sum().alias("lost_ns"),
        )
        .with_columns(
            (pl.col("lost_ns") / span if span > 0 else pl.lit(None, dtype=pl.Float64)).alias("share")
        )
    )
