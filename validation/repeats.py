"""Repeats of one capture: which captures they are, and how far apart their figures lie."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

import polars as pl

__all__ = ["families", "share_gap", "spreads"]

#: Median spread of repeats by workload, a share of their mean (lab2/README.md, noise floor): for
#: captures that were recorded once.
BY_WORKLOAD = {"callpipe": 0.776, "mixed": 0.09, "server": 0.089, "slice": 0.121, "pinned": 0.081}


def families(keys: Sequence[str]) -> dict[str, list[str]]:
    """Name the captures that repeat one another.

    Parameters
    ----------
    keys
        Folder and name of each capture.

    Returns
    -------
    dict
        By folder and name without `-rep2`, `-boot2` and the like: the captures.
    """
    found: dict[str, list[str]] = {}
    for key in sorted(keys):
        found.setdefault(re.sub(r"-(rep|boot)\d+$", "", key), []).append(key)
    return found


def spreads(recorded: Mapping[str, float | None], workloads: Mapping[str, str]) -> dict[str, float]:
    """Say how far repeats of each capture lie apart: (max - min) / mean, as lab2/README.md defines it.

    Parameters
    ----------
    recorded
        Main metric of each capture, by folder and name.
    workloads
        Workload of each of them.

    Returns
    -------
    dict
        By folder and name, a share: of the capture's own repeats where there are some, else the
        median of those of its workload; 0 for workloads that were never repeated.
    """
    found = {}
    for keys in families(list(recorded)).values():
        values = [v for v in (recorded[k] for k in keys) if v]
        own = (max(values) - min(values)) / statistics.mean(values) if len(values) > 1 else None
        found.update({k: BY_WORKLOAD.get(workloads[k], 0.0) if own is None else own for k in keys})
    return found


def share_gap(a: pl.DataFrame, b: pl.DataFrame) -> float:
    """Compare the CPU shares of tasks in two recordings.

    Parameters
    ----------
    a, b
        Slices of each.

    Returns
    -------
    float
        Largest difference of the share that tasks of one name have in the CPU time, percentage
        points. A task counts by its last name: its number is another in each recording.
    """

    def shares(slices: pl.DataFrame) -> pl.DataFrame:
        task = slices.sort("ts_ns").group_by("utid").agg(pl.col("dur_ns").sum(), pl.col("comm").last())
        time = task.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum().alias("share"))
        return time.with_columns(pl.col("share") / pl.col("share").sum())

    both = shares(a).join(shares(b), on="comm", how="full", coalesce=True, suffix="_b", nulls_equal=True)
    gap = (both["share"].fill_null(0.0) - both["share_b"].fill_null(0.0)).abs().max()
    return 100 * float(gap) if isinstance(gap, float) else 0.0
