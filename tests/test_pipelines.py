"""Pipelines: buffers between tasks, not a pool of those at their ends."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

FOLDER = Path(__file__).parent.parent / "fixtures" / "pipelines"


def _replay(name: str) -> tuple[tk.Trace, tk.Replay, str]:
    """Replay a pipeline as itself: the recording, the replay, and how its messages were read."""
    trace = tk.read(FOLDER / f"{name}.parquet")
    with pytest.warns(tk.FilterWarning):
        replay = tk.replay(trace, "eevdf:version=6.18")
    said = [row["how"] for row in replay.inferred.to_dicts() if "messages" in row["name"]]
    return trace, replay, " ".join(said)


def test_the_ends_of_a_pipeline_are_no_pool_where_both_limits_show() -> None:
    """The ends sleep and are woken in turns by whoever is between them.

    Taken for a pool, this replay had 1,504 of 7,979 slices.
    """
    trace, replay, how = _replay("linux-6.18-cat-tr-md5sum")
    assert "fills and empties the buffers" in how
    assert len(trace.slices) / 2 < len(replay.slices) < len(trace.slices) * 2


def test_a_pool_that_sleeps_far_less_than_recorded_is_none() -> None:
    """Taken for a pool, this replay had 114 of 2,356 slices, and its tasks were awake as long as recorded."""
    trace, replay, how = _replay("linux-6.18-cat-tr-md5sum-short")
    assert "is replayed less well with their explanation" in how
    assert len(trace.slices) / 2 < len(replay.slices) < len(trace.slices) * 2


def _waits(run: tk.Trace | tk.Replay) -> float:
    """Slices of the reader for each millisecond that the writer had a CPU."""
    slices = run.slices.with_columns(pl.col("comm").cast(pl.String))
    of = {
        comm: (n, ns) for comm, n, ns in slices.group_by("comm").agg(pl.len(), pl.sum("dur_ns")).iter_rows()
    }
    return of["grep"][0] * 1e6 / of["gzip"][1]


def test_two_programs_share_a_pipe_and_no_lock() -> None:
    """A reader that never runs alone waits nowhere else, as at a lock; on one CPU it waits as often.

    Taken for a lock, it waited for one that runs beside it, and there is none.
    """
    trace = tk.read(FOLDER / "linux-6.18-gzip-grep.parquet")
    programs = tk.Programs(trace, placement="model")
    assert not any("as at a lock" in row["how"] for row in programs.inferred.to_dicts())
    with pytest.warns(tk.FilterWarning):
        alone = programs.run("eevdf:version=6.18", cpus=1)
    assert abs(_waits(alone) / _waits(trace) - 1) < 0.25
