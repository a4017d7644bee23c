"""Printed histograms against values worked out by hand, and in the plots."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.patches import Rectangle

import tracekit as tk
from tracekit import plot
from tracekit.analysis import tool_histograms

QUEUES = b"""Sampling... Hit Ctrl-C to end.
^C
 CPU 0
           value  ------------- Distribution ------------- count
             < 0 |                                         0
               0 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@           6
               1 |                                         2
               2 |                                         0

 CPU 1
           value  ------------- Distribution ------------- count
             < 0 |                                         0
               0 |@@@                                      1
               1 |                                         0
               2 |                                         1
               3 |                                         0

"""

TIMES = b"""dtrace: description 'sched:::on-cpu ' matched 3 probes
^C

  sh
           value  ------------- Distribution ------------- count
            1024 |                                         0
            2048 |@@@@@@@@@@                               3
            4096 |                                         0
            8192 |@@@                                      1
           16384 |                                         0

"""


def test_queue_lengths_by_hand() -> None:
    table = tool_histograms.lengths(tk.read(QUEUES).histograms)
    rows = table.select("scope", "cpu", "length", "n", "share").rows()
    assert rows == [
        ("cpu", 0, 0, 6, 0.75),
        ("cpu", 0, 1, 2, 0.25),
        ("cpu", 1, 0, 1, 0.5),
        ("cpu", 1, 2, 1, 0.5),
        ("system", None, 0, 7, 0.7),
        ("system", None, 1, 2, 0.2),
        ("system", None, 2, 1, 0.1),
    ]
    exceedance = table.filter(pl.col("scope") == "system")["exceedance"].to_list()
    assert exceedance == pytest.approx([0.3, 0.1, 0.0])


def test_times_by_hand() -> None:
    table = tool_histograms.times(tk.read(TIMES).histograms, unit="us")
    assert table.select("group", "lo_ns", "hi_ns", "n", "share").rows() == [
        ("sh", 2_048_000, 4_096_000, 3, 0.75),
        ("sh", 4_096_000, 8_192_000, 0, 0.0),
        ("sh", 8_192_000, 16_384_000, 1, 0.25),
    ]
    assert table["time_share"].null_count() == 3


def test_the_plots_of_traces_take_them() -> None:
    figure = plot.histogram(tool_histograms.times(tk.read(TIMES).histograms), what="time on CPU")
    assert figure.axes[0].get_ylim()[1] > 0
    figure = plot.queue_distribution(
        tool_histograms.lengths(tk.read(QUEUES).histograms), cpu=1, at_switch=True
    )
    heights = [bar.get_height() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert heights == [0.5, 0.5]


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(ValueError, match="width 1"):
        tool_histograms.lengths(tk.read(TIMES).histograms)
    with pytest.raises(ValueError, match="unit"):
        tool_histograms.times(tk.read(TIMES).histograms, unit="hours")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 1000)), max_size=60))
def test_shares_add_up(rows: list[tuple[int, int, int]]) -> None:
    table = pl.DataFrame(
        {
            "title": pl.Series([None] * len(rows), dtype=pl.String),
            "key": pl.Series([f"CPU {cpu}" for _, cpu, _ in rows], dtype=pl.String),
            "lo": pl.Series([lo for lo, _, _ in rows], dtype=pl.Int64),
            "hi": pl.Series([lo + 1 for lo, _, _ in rows], dtype=pl.Int64),
            "count": pl.Series([n for _, _, n in rows], dtype=pl.Int64),
        }
    )
    lengths = tool_histograms.lengths(table)
    sums = lengths.group_by("scope", "cpu").agg(pl.col("share").sum())["share"].to_list()
    assert sums == pytest.approx([1.0] * len(sums))
    assert (lengths["exceedance"] >= 0).all()
