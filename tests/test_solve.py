"""The search for changes that meet a goal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.errors import ReplayError
from tracekit.whatif.goals import parse_goal
from tracekit.whatif.solve import moves, solve

Run = Callable[..., subprocess.CompletedProcess[str]]

#: `Db` waits behind `Hog` for a quantum each time it wakes.
TEXT = "policy: rr:quantum=20ms\nuntil: 2000\nDb: (R1 S15)*\nHog1: R∞\nHog2: R∞"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("solve") / "small.parquet"
    tk.simulate(TEXT).write(path)
    return path


def test_the_tunable_that_helps_is_found_and_holds(file: Path) -> None:
    found = solve(file, "response.mean(Db) < 12ms", "cpu(Hog) > -20%", depth=1, runs=2, jobs=1)
    assert found.proposals
    first = found.proposals[0]
    assert first.holds in ("yes", "perhaps")
    assert first.goals[0]["value"] < 12e6 < first.goals[0]["identity"]
    # What was proposed does so when it is replayed again.
    again = tk.compare(tk.read(file), [first.cell.policy], scenario=_scenario(first.cell.sets), runs=1)
    (row,) = parse_goal("response.mean(Db) < 12ms").statistic.rows(again.table.to_dicts())
    assert row["predicted"] < 12e6


def _scenario(sets: tuple[str, ...]) -> list[tk.whatif.scenario.Override]:
    from tracekit.whatif.scenario import parse_set

    return [parse_set(text) for text in sets]


def test_what_cannot_be_is_answered_with_none(file: Path, tracekit: Run) -> None:
    # A burst of Db alone takes 1 ms.
    run = tracekit(
        "solve", file, "--goal", "response.p50(Db) < 0.5ms", "--depth", "1", "--runs", "2", "--json"
    )
    assert run.returncode == 1, run.stderr
    answer = json.loads(run.stdout)
    assert answer["proposals"] == []
    assert answer["tried"] > 10
    assert answer["nearest"]["goals"][0]["holds"] == "no"


def test_what_is_not_to_be_used_is_not_proposed(tmp_path: Path, tracekit: Run) -> None:
    """Seven responses decide nothing, though a shorter quantum brings them below the goal."""
    short = tmp_path / "short.parquet"
    tk.simulate(TEXT.replace("2000", "400")).write(short)
    asked = ["solve", short, "--goal", "response.mean(Db) < 12ms", "--depth", "1", "--runs", "2"]
    run = tracekit(*asked)
    assert run.returncode == 1, run.stderr
    assert run.stdout.startswith("none found")
    assert "what decides it hardly ran in this trace" in run.stdout
    (goal,) = json.loads(tracekit(*asked, "--json").stdout)["nearest"]["goals"]
    assert (goal["holds"], goal["trust"]) == ("unknown", "do not use")


def test_moves_are_of_the_recorded_scheduler_and_its_groups(file: Path) -> None:
    goal = parse_goal("response.p95(Db) < 5ms")
    found = moves(tk.read(file), "eevdf:version=6.12", [goal])
    texts = [text for _, text in found]
    assert "run_to_parity=off" in texts
    assert not any(t.startswith("version") for t in texts)
    assert "comm~^Db[-_/:.#0-9]*$: nice=-20" in texts
    assert "comm~^Hog[-_/:.#0-9]*$: policy=idle" in texts


def test_a_goal_of_nobody_is_refused(file: Path) -> None:
    with pytest.raises(ReplayError, match="groups of the trace are Db, Hog"):
        solve(file, "response.p95(web) < 5ms", jobs=1)
