"""Workloads whose repeats fall into two groups: which values, and how often each, recorded and replayed."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from validation.repeats import families

__all__ = ["Side", "sides", "table"]

#: Two values so many times apart are not two of one group: the spread of repeats that make one
#: group is 8 to 16 % (lab2/README.md, noise floor).
APART = 1.5
#: Repeats below which nothing is said about groups.
FEWEST = 3


def split(values: Sequence[float]) -> float | None:
    """Find the value between two groups; `None` where there is one group, or too few values."""
    ordered = sorted(v for v in values if v > 0)
    if len(ordered) < FEWEST:
        return None
    low, high = max(itertools.pairwise(ordered), key=lambda pair: pair[1] / pair[0])
    return math.sqrt(low * high) if high >= APART * low else None


@dataclass(frozen=True)
class Side:
    """How many of some values are in a group, and their median (`None` for no value)."""

    n: int
    of: int
    middle: float | None

    def __str__(self) -> str:
        """Write median and share."""
        shown = "-" if self.middle is None else f"{self.middle:.4g}"
        return f"{shown} ({self.n} of {self.of})"


def sides(values: Sequence[float | None], between: float) -> tuple[Side, Side]:
    """Divide values at `between`; those without a figure count in neither group."""
    known = [v for v in values if v is not None]
    groups = [v for v in known if v < between], [v for v in known if v >= between]
    low, high = (Side(len(g), len(values), statistics.median(g) if g else None) for g in groups)
    return low, high


def table(recorded: Mapping[str, float | None], replayed: Mapping[str, Sequence[float | None]]) -> list[str]:
    """Tell of the captures whose repeats fall into two groups.

    Parameters
    ----------
    recorded
        Main metric of each capture, by folder and name.
    replayed
        The same in each of its replays as itself.

    Returns
    -------
    list of str
        Lines of a page; none where no repeats fall into two groups.
    """
    lines = []
    for name, keys in families(list(recorded)).items():
        real = [recorded[k] for k in keys]
        between = split([v for v in real if v is not None])
        if between is None:
            continue
        again = [v for k in keys for v in replayed.get(k, ())]
        cells = (*sides(real, between), *sides(again, between))
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    if not lines:
        return []
    return [
        "## Two outcomes",
        "",
        f"Captures of which {FEWEST} or more repeats were recorded, where these fall into two groups at least",
        f"{APART} times apart: median and number of repeats in each, and of their replays as themselves. A replay",
        "in neither has no figure. A prediction of one of them cannot say which outcome it will be.",
        "",
        "| captures | recorded, lower | recorded, higher | replayed, lower | replayed, higher |",
        "|---|---|---|---|---|",
        *lines,
    ]
