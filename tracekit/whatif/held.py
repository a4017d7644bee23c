"""Predictions held against a recording of what they predict.

Whoever can record the other set-up as well, a service at nice 19 beside the same at nice 0, sees on
the own machine how far a prediction is right, and how often its interval holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.analysis.sampling import KEYS
from tracekit.trace import Trace
from tracekit.whatif.trust import CARE, DECIDING, DO_NOT_USE, TRUSTED

__all__ = ["Held", "unlike", "with_real"]

#: Lengths of two recordings that differ by more make totals, as CPU time and switches, differ: by as
#: much as is let pass of them.
LENGTH = 0.02


@dataclass(frozen=True)
class Held:
    """How predictions do beside a real recording.

    Attributes
    ----------
    name
        Of the recording.
    by_trust
        One row a trust: `trust` (String), `rows` (UInt32, with an interval and at least 20 real
        samples), `inside` (UInt32, of these the real values inside the interval), `median_error`
        (Float64, median of abs(predicted / real - 1)).
    unlike
        What the recording is not as asked, in sentences.
    """

    name: str
    by_trust: pl.DataFrame
    unlike: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: pl.DataFrame, name: str, unlike: Sequence[str] = ()) -> Held:
        """Count the rows of a table with the columns of `with_real`."""
        order = {TRUSTED: 0, CARE: 1, DO_NOT_USE: 2}
        error = (pl.col("predicted") / pl.col("real") - 1).abs()
        known = table.filter(pl.col("inside").is_not_null())
        rows = known.group_by("trust").agg(
            rows=pl.len(), inside=pl.col("inside").sum().cast(pl.UInt32), median_error=error.median()
        )
        rank = pl.col("trust").replace_strict(order, default=9, return_dtype=pl.Int8)
        return cls(name, rows.sort(rank), tuple(unlike))

    def to_dict(self) -> dict[str, Any]:
        """`name`, `unlike` and `by_trust` (a list of rows) as plain data."""
        return {"name": self.name, "unlike": list(self.unlike), "by_trust": self.by_trust.to_dicts()}

    @property
    def sentences(self) -> list[str]:
        """What was found, a sentence each."""
        if not self.by_trust.height:
            return [*self.unlike, f"No prediction with an interval has enough real samples in {self.name}."]
        n, inside = int(self.by_trust["rows"].sum()), int(self.by_trust["inside"].sum())
        parts = [
            f"{rows:,} {trust}, {100 * held / rows:.0f} % inside, half of them within {100 * error:.2g} %"
            for trust, rows, held, error in self.by_trust.iter_rows()
        ]
        first = (
            f"{inside:,} of {n:,} real values of {self.name} lie inside their 90 % interval "
            f"({100 * inside / n:.0f} %)"
        )
        return [*self.unlike, f"{first}: {'; '.join(parts)}."]


def with_real(table: pl.DataFrame, real: pl.DataFrame, totals: bool = True) -> pl.DataFrame:
    """Put real values beside predictions.

    Parameters
    ----------
    table
        `tracekit.whatif.comparison.Comparison.table`.
    real
        Result of `tracekit.analysis.compare.metrics` of a recording under what was asked.
    totals
        Totals can be compared: both recordings are equally long.

    Returns
    -------
    pl.DataFrame
        `table` with `real` (Float64), `n_real` (UInt32) and `inside` (Boolean: the interval holds
        the real value; null without an interval, or with fewer than 20 real samples).
    """
    found = table.join(
        real.select(*KEYS, real="value", n_real=pl.col("n").cast(pl.UInt32)),
        on=KEYS,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    if not totals:
        total = pl.col("statistic") == "total"
        found = found.with_columns(real=pl.when(~total).then("real"))
    enough = pl.col("n_real").fill_null(DECIDING) >= DECIDING
    inside = pl.col("real").is_between("low", "high")
    return found.with_columns(inside=pl.when(enough & pl.col("low").is_not_null()).then(inside))


def unlike(trace: Trace, real: Trace, cpus: int) -> tuple[bool, list[str]]:
    """Say in what a recording is not what was asked for.

    Parameters
    ----------
    trace, real
        What is replayed, and what its replay is held against.
    cpus
        CPUs of the replay.

    Returns
    -------
    tuple
        Whether totals can be compared, and sentences; none where nothing is seen.
    """
    said = []
    lengths = [(t.end_ns or 0) - (t.start_ns or 0) for t in (trace, real)]
    same = abs(lengths[1] - lengths[0]) <= LENGTH * max(lengths[0], 1)
    if not same:
        said.append(
            f"{real.name} is {lengths[1] / 1e9:.3g} s long, {trace.name} {lengths[0] / 1e9:.3g} s: "
            "totals are not held against it."
        )
    if real.cpus.height != cpus:
        said.append(f"{real.name} was recorded on {_cpus(real.cpus.height)}, the replay has {_cpus(cpus)}.")
    return same, said


def _cpus(n: int) -> str:
    return f"{n} CPU" if n == 1 else f"{n} CPUs"
