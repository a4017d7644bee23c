"""Blame that is tested by replays: what absent tasks leave behind, and known answers."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.explain import counterfactuals
from tracekit.explain.tested import _verdict, without

from .text import Line, switch, trace_of, waking

IDLE = "swapper/0:0"


@pytest.fixture
def shared(tmp_path: Path) -> tk.Trace:
    """Every 10 ms a timer wakes `db`, which needs 1 ms and waits 2 ms for `hog` first, which a timer wakes 1 ms before."""
    lines: list[Line] = []
    for n in range(60):
        at = 10_000 * n
        lines += [
            (at, 0, "<idle>-0", "d.h2.", waking("hog:2", prio=9)),
            (at + 10, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "hog:2", to_prio=9)),
            (at + 1010, 0, "hog-2", "d.h2.", waking("db:1")),
            (at + 3010, 0, "hog-2", "d..2.", switch("hog:2", "S", "db:1", prio=9)),
            (at + 4010, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
        ]
    return trace_of(lines, tmp_path)


def test_an_absent_task_leaves_its_cpu_idle(shared: tk.Trace) -> None:
    left = without(shared.events, [2])
    kind = pl.col("kind").cast(pl.String)
    assert not left.filter((pl.col("tid") == 2) | (pl.col("next_tid") == 2) | (pl.col("ctx_tid") == 2)).height
    # `db` is woken as often as before, and at the same times.
    wakes = [
        e.filter((kind == "waking") & (pl.col("tid") == 1))["ts_ns"].to_list() for e in (shared.events, left)
    ]
    assert wakes[0] == wakes[1]
    in_hardirq = left.filter(kind == "waking")["irq_flags"].cast(pl.UInt32) & 16
    assert in_hardirq.to_list() == [16] * 60


def test_the_gain_is_what_was_attributed_where_nobody_else_waits(shared: tk.Trace) -> None:
    found = shared.why(comm="db")
    assert found.causes["culprit"][0] == "hog"
    rows = counterfactuals(shared, found, top=1, runs=3, variants=("absent", "other CPUs"))
    absent, moved = rows.rows(named=True)
    assert absent["attributed_ns"] == pytest.approx(2e6, rel=0.01)
    assert absent["gain_ns"] == pytest.approx(2e6, rel=0.1)
    assert absent["verdict"] == "agrees"
    assert (moved["verdict"], moved["reason"]) == ("not tested", "the machine has one CPU")


def test_an_interval_that_holds_everything_says_nothing() -> None:
    assert _verdict(2.0, 1.0, 3.0) == "agrees"
    assert _verdict(2.0, -1.0, 3.0) == "cannot tell"
    assert _verdict(2.0, 0.5, 1.0) == "gains less than attributed"
    assert _verdict(2.0, -2.0, -1.0) == "gains nothing: others take its place"
    assert _verdict(2.0, 4.0, 5.0) == "gains more than attributed"


def test_only_responses_are_tested(shared: tk.Trace) -> None:
    with pytest.raises(tk.FilterError, match="expected the causes of responses"):
        counterfactuals(shared, shared.why(comm="db", what="waits"))


def test_the_command_prints_the_gain(shared: tk.Trace, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["why", str(tmp_path / "trace.txt"), "--comm", "db", "--what-if", "1", "--runs", "2"]
    )
    assert done.exit_code == 0, done.output
    assert "replayed without each cause:" in done.stdout
    assert "absent" in done.stdout
