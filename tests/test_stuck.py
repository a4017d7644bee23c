"""Replays in which tasks wait for ever, and what a comparison says of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.cli._comparison import print_comparison
from tracekit.whatif.comparison import Comparison

#: Two that ask each other, one that sleeps on a timer, and one that only computes.
TEXT = "policy: cfs\nuntil: 1000\nAsk: (R3 P(a) W(b))*\nAnswer: (W(a) R1 P(b))*\nTimer: (S19 R0.1)*\nHog: R∞"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stuck") / "run.parquet"
    tk.simulate(TEXT).filter(comm=["Ask", "Answer", "Timer", "Hog"]).write(path)
    return path


def stopped(path: Path, name: str | None = None, at_ns: int | None = None) -> Comparison:
    """A comparison; the tasks of a name wait for ever in the replay, as the core notes it."""
    found = tk.compare(tk.read(path), ["rr:quantum=5ms"], identity="cfs")
    if name is not None:
        trace = found.trace
        tid = trace.tasks.filter(trace.tasks["comm"].cast(pl.String) == name)["tid"].item()
        time = "null" if at_ns is None else (trace.start_ns or 0) + at_ns
        next(iter(found.replays.values()))._metadata["replay.stuck"] = f"[[{tid}, {time}]]"
    return found


def trusts(found: Comparison, group: str) -> set[str]:
    rows = found.table.filter(pl.col("n_recorded") >= 20, scope="group", group=group)
    return set(rows["trust"].drop_nulls().to_list())


def test_rows_of_tasks_that_wait_for_ever_are_not_to_be_used(path: Path) -> None:
    assert stopped(path).stuck == {}
    assert "with care" in trusts(stopped(path), "Ask")
    found = stopped(path, "Ask", 250_000_000)
    assert trusts(found, "Ask") == {"do not use"}
    row = found.table.filter(group="Ask", metric="switches").row(0, named=True)
    assert "its tasks wait for ever in the replay from 250 ms on" in row["trust_why"]
    # It used a share of the CPU that the others now have.
    assert "trusted" not in trusts(found, "Hog")
    (said,) = found.to_dict()["stuck"].values()
    assert (said["groups"], said["tasks"], said["since_ns"]) == (("Ask",), 1, 250_000_000)
    assert 0.2 < said["share"] < 0.5


def test_a_task_that_uses_next_to_nothing_changes_no_other_row(path: Path) -> None:
    found = stopped(path, "Timer")
    (waits,) = found.stuck.values()
    assert waits.others is None
    assert waits.share < 0.011
    assert waits.sentence.startswith("1 task (Timer) waits for ever in the replay, where the one recorded")
    assert trusts(found, "Timer") == {"do not use"}
    assert trusts(found, "Hog") == trusts(stopped(path), "Hog")


def test_the_command_line_says_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = stopped(path, "Ask", 250_000_000)
    print_comparison(found, found.summary, verbose=False)
    assert "waits for ever in the replay, from 250 ms on" in " ".join(capsys.readouterr().out.split())
