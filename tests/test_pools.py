"""Threads that share a queue: who takes what, and until when."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk


@pytest.mark.parametrize(
    "name", ["server-default", "server-hogsnice19", "server-workfifo", "server-hogsidle"]
)
def test_what_waits_is_taken_until_the_server_ends(testdata: Path, name: str) -> None:
    """Workers on a fast CPU take more requests than when they were recorded, and go on then: all of them end
    with the server, behind the last request, however many they got.
    """
    recorded = tk.read(testdata / "lab2" / "6.12-2cpu" / f"{name}.dat")
    programs = tk.Programs(recorded)
    said = programs.inferred.filter(name="unexplained messages")["how"].to_list()
    assert any("take its work as it comes" in how for how in said)
    for perturbation in programs.perturbations()[:3]:
        replay = programs.run("eevdf", perturbation=perturbation)
        ends = replay.slices.select(
            pl.col("comm").cast(pl.String), (pl.col("ts_ns") + pl.col("dur_ns")).alias("end")
        )
        last = ends.filter(pl.col("comm") == "gen0")["end"].max()
        workers = (
            ends.filter(pl.col("comm").str.starts_with("work")).group_by("comm").agg(pl.col("end").max())
        )
        assert workers.height == 8
        assert workers["end"].min() >= last
