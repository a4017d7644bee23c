"""Many write what one reads: recordings that begin in the middle, and programs written out as text."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.whatif.worst import waits

#: Six write to each of three in turns; who finds no room waits until three quarters are free.
MANY = """
policy: eevdf
until: 1000
cpus: 2
hz: 1000
buffer a: capacity=40 room=30
buffer b: capacity=40 room=30
buffer c: capacity=40 room=30
W*6: ((R~uniform(0.015,0.025) I(a) R~uniform(0.015,0.025) I(b) R~uniform(0.015,0.025) I(c))*200 S~uniform(1,30))*
A: (O(a) R~uniform(0.015,0.025))*
B: (O(b) R~uniform(0.015,0.025))*
C: (O(c) R~uniform(0.015,0.025))*
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the workload above."""
    file = tmp_path_factory.mktemp("many") / "many.txt"
    tk.generate(MANY, file, "ftrace")
    return file


def _stuck(replay: tk.Replay) -> list[str]:
    return [d["message"] for d in replay.diagnostics.to_dicts() if d["code"] == "stuck"]


@pytest.mark.parametrize("begin", [0, 112, 191.5, 452])
def test_a_recording_may_begin_in_the_middle(recorded: Path, tmp_path: Path, begin: float) -> None:
    """Tasks are asleep then, readers and writers, and buffers hold something."""
    cut = tmp_path / "cut.parquet"
    words = ["convert", str(recorded), "-o", str(cut), "--from", f"{begin}ms", "--to", "900ms"]
    assert CliRunner().invoke(main, words).exit_code == 0
    trace = tk.read(cut)
    replay = tk.replay(trace, "eevdf")
    assert any("many of them put into a buffer" in how for how in replay.inferred["how"].to_list())
    assert _stuck(replay) == []
    n = len(trace.slices)
    assert 0.65 * n < len(replay.slices) < 1.5 * n, (n, len(replay.slices))
    readers = trace.tasks.filter(pl.col("comm").cast(pl.String).is_in(["A", "B", "C"]))["tid"].to_list()
    # Who was asleep when the recording began does not wait for the writer that had woken it, either.
    steps = replay.program.with_columns(pl.col("op").cast(pl.String)).filter(
        pl.col("tid").is_in(readers), pl.col("op").is_in(["take", "wait"])
    )
    assert set(steps.group_by("tid", maintain_order=True).first()["op"].to_list()) == {"take"}
    assert set(waits(replay, readers).values()) == {"messages from several tasks (100 %)"}


def test_buffers_of_many_are_in_a_text_of_the_programs(recorded: Path, tmp_path: Path) -> None:
    """Units for which there must be room are, and who puts in any number; the text repeats the replay."""
    trace = tk.read(recorded)
    tk.generate(trace, tmp_path / "many.wl", "workload")
    stated = (tmp_path / "many.wl").read_text()
    rooms = [int(found) for found in re.findall(r"^buffer b\d: .* room=(\d+)", stated, re.M)]
    assert len(rooms) == 3
    assert all(25 <= room <= 36 for room in rooms), rooms
    was, again = len(tk.replay(trace, "eevdf").slices), len(tk.read(tmp_path / "many.wl").slices)
    assert 0.8 * was < again < 1.25 * was, (was, again)
    # Where nobody ever waited for room.
    (tmp_path / "any.wl").write_text(re.sub(r"capacity=\d+", "capacity=max", stated))
    tk.generate(tk.read(tmp_path / "any.wl"), tmp_path / "again.wl", "workload")
    assert (tmp_path / "again.wl").read_text().count("capacity=max") == 3
