"""The five documents that tracekit grew out of, each as one experiment.

What was published stands beside what replays give.

Each study writes workloads as text, runs them under the policy of its system, and sets its
published metrics beside the results. A metric that was used to set the workload up is marked
*fitted*: it shows nothing.
"""

from __future__ import annotations

import html
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

    def texts(self) -> tuple[str, str, str]:
        """Published, ours with its error bar, and the ratio, as people read them.

        Examples
        --------
        >>> Metric("longest", "", (36.0, 36.0), (27.0, 29.0)).texts()
        ('36', '28 ± 13', '0.78')
        """
        ours = _number(self.value)
        # An error bar that rounding alone makes is none.
        if self.half_width is not None:
            wide = self.half_width if self.half_width > 1e-9 * abs(self.value) else 0.0
            ours += f" ± {wide:.2g}" if wide < 100 else f" ± {wide:,.0f}"
        ratio = "fitted" if self.fitted else "-" if self.ratio is None else f"{self.ratio:.2f}"
        if self.published is None:
            return "-", ours, ratio
        low, high = self.published
        if high == math.inf:
            return f"> {_number(low)}", ours, ratio
        return _number(low) if low == high else f"{_number(low)} to {_number(high)}", ours, ratio


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


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

    def _repr_html_(self) -> str:
        """Published beside ours, for a notebook."""
        head = "".join(f"<th>{name}</th>" for name in ("metric", "unit", "published", "ours", "ratio"))
        cells = ((m.name, m.unit, *m.texts()) for m in self.metrics)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in cells
        )
        return (
            f"<p>{html.escape(self.title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            "<p>± is half of the 95 % interval over the repetitions. "
            "A value that the workload was fitted to shows nothing.</p>"
        )


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
        Runs it: share of the full size (1 is all), repetitions, and a function that is given the
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
