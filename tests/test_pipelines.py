"""Pipelines: buffers between tasks, not a pool of those at their ends."""

from __future__ import annotations

from pathlib import Path

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
