"""Tasks whose last burst the end of the trace cuts off."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

#: What is recorded ends when the recorder, which waits for the work, has run for 1 ms.
TEXT = """
policy: eevdf
until: 200
cpus: 1
Hog: R∞
Recorder: R0.4 W(end) R30
Work: R20 S20 R10 S118 R0.2 P(end)
Late: S190 R0.5
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tk.Programs:
    place: Path = tmp_path_factory.mktemp("cut")
    (place / "a.wl").write_text(TEXT)
    tk.generate(place / "a.wl", place / "a.txt", to="ftrace")
    return tk.Programs(tk.read(place / "a.txt"))


def runs(programs: tk.Programs, comm: str) -> list[int | None]:
    """Lengths of a task's bursts, ns; ``None`` has no end."""
    rows = programs.table.filter(
        pl.col("comm").cast(pl.String) == comm, pl.col("op").cast(pl.String) == "run"
    )
    return list(rows["dur_ns"])


def test_a_short_burst_goes_on_for_as_long_again_and_is_said_to_be_cut_off(programs: tk.Programs) -> None:
    assert runs(programs, "Recorder") == [400_000, 1_000_000, 1_000_000]
    cut = programs.table.filter(pl.col("censored"), pl.col("comm").cast(pl.String) == "Recorder")
    assert cut["op"].cast(pl.String).to_list() == ["run", "wait"]


def test_one_that_fills_the_trace_has_no_end(programs: tk.Programs) -> None:
    assert runs(programs, "Hog") == [None]


def test_the_recorder_is_no_hog_where_the_work_ends_sooner(programs: tk.Programs) -> None:
    # With a CPU of its own the work ends 30 ms sooner than recorded, and 20 ms before the last other task.
    replay = programs.run("eevdf", cpus=2)
    ran = replay.slices.filter(pl.col("comm").cast(pl.String) == "Recorder")["dur_ns"].sum()
    assert 0 < ran <= 2_400_000
