"""The five documents that tracekit grew out of, each as one experiment.

What was published stands beside what replays give.

Each study writes workloads as text, runs them under the policy of its system, and sets its
published metrics beside the results. A metric that was used to set the workload up is marked
*fitted*: it shows nothing.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from scipy import stats

from tracekit.errors import ReplayError

__all__ = ["NAMES", "Metric", "Study", "Table", "load", "mean_of"]

#: Name of a study to its module.
NAMES = {
    "solaris-fork": "solaris",
    "aix-directory": "aix",
    "cfs-sleepers": "cfs",
    "freebsd-fork": "freebsd",
    "linux-runqueue": "goodness",
}
#: Level of the error bars.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Metric:
    """One published metric beside ours.

    Attributes
    ----------
    name, unit
        What is measured.
    published
        As it was printed; the lowest and the highest where a range was, None where only a shape was.
    values
        Ours, one for each repetition.
    fitted
        The workload was set up so that this comes out.
    note
        Why it is not reached, or what it rests on.
    """

    name: str
    unit: str
    published: tuple[float, float] | None
    values: tuple[float, ...]
    fitted: bool = False
    note: str = ""

    @property
    def value(self) -> float:
        """Mean over the repetitions."""
        return float(np.mean(self.values))

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval of the mean (Student's t); None for one repetition."""
        n = len(self.values)
        if n < 2:
            return None
        spread = float(np.std(self.values, ddof=1))
        return float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * spread / math.sqrt(n)

    @property
    def ratio(self) -> float | None:
        """Ours over the published one; 1 within a published range."""
        if self.published is None:
            return None
        low, high = self.published
        if low <= self.value <= high:
            return 1.0
        near = low if self.value < low else high
        return self.value / near if near else None


@dataclass(frozen=True)
class Table:
    """The result of a study."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    notes: tuple[str, ...] = field(default=())

    def frame(self) -> pl.DataFrame:
        """One row per metric.

        Returns
        -------
        polars.DataFrame
            `metric`, `unit` (String), `published_low`, `published_high`, `value`, `half_width`
            (Float64; of the 95 % interval, null for one repetition), `n` (UInt32, repetitions),
            `ratio` (Float64, ours over published), `fitted` (Boolean), `note`.
        """
        rows = [
            {
                "metric": m.name,
                "unit": m.unit,
                "published_low": m.published and m.published[0],
                "published_high": m.published and m.published[1],
                "value": m.value,
                "half_width": m.half_width,
                "n": len(m.values),
                "ratio": m.ratio,
                "fitted": m.fitted,
                "note": m.note,
            }
            for m in self.metrics
        ]
        numbers = ("published_low", "published_high", "value", "half_width", "ratio")
        schema = {"metric": pl.String, "unit": pl.String} | dict.fromkeys(numbers, pl.Float64)
        order = ["metric", "unit", *numbers[:4], "n", "ratio", "fitted", "note"]
        types = schema | {"n": pl.UInt32, "fitted": pl.Boolean, "note": pl.String}
        return pl.DataFrame(rows, schema={name: types[name] for name in order})


@dataclass(frozen=True)
class Study:
    """An experiment that can be run.

    Attributes
    ----------
    name, title
        What it is called.
    question
        What the document asked, and what it found.
    source
        Which document.
    run
        Runs it: share of the full size (1 is all), repetitions, and a function that is told the
        share that is done.
    """

    name: str
    title: str
    question: str
    source: str
    run: Callable[[float, int, Callable[[float], object]], Table]


def load(name: str) -> Study:
    """Give a study by its name.

    Raises
    ------
    ReplayError
        When there is no such study.
    """
    if name not in NAMES:
        raise ReplayError(f"unknown study {name!r}; choose from {', '.join(NAMES)}")
    study: Study = importlib.import_module(f"tracekit.studies.{NAMES[name]}").STUDY
    return study


def mean_of(
    name: str,
    unit: str,
    published: float | tuple[float, float] | None,
    values: Sequence[float],
    *,
    fitted: bool = False,
    note: str = "",
) -> Metric:
    """Make a metric; one published number is a range of itself."""
    low_high = (published, published) if isinstance(published, int | float) else published
    return Metric(name, unit, low_high, tuple(float(v) for v in values), fitted, note)
