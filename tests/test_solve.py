"""The search for changes that meet a goal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.cli.solve import _print
from tracekit.errors import ReplayError
from tracekit.whatif.goals import parse_goal
from tracekit.whatif.grid import Cell
from tracekit.whatif.solve import (
    Proposal,
    Solution,
    _chosen,
    _fewer,
    _fronts,
    _needless,
    extended,
    moves,
    solve,
)

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


@pytest.mark.parametrize(("limit", "met"), [("100ms", True), ("12ms", False)])
def test_a_goal_that_is_met_as_recorded_is_said_to_be(
    file: Path, limit: str, met: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = solve(file, f"response.mean(Db) < {limit}", depth=1, runs=1, jobs=1)
    _print(found, as_json=False)
    assert ("as recorded, every goal is met already" in capsys.readouterr().out) == met
    assert found.already == met


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


def test_what_another_beats_comes_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    def made(name: str, ms: float, loss: float) -> Proposal:
        goal = {"goal": "response.mean(Db) < 5ms", "text": "response.mean(Db) < 5ms", "group": "Db"}
        goal |= {"identity": 10e6, "value": ms * 1e6, "low": None, "high": None, "unit": "ns"}
        cost = {"group": "Hog", "metric": "response", "statistic": "p95", "change_pct": loss}
        cell = Cell("rr", axes=(("tunable", name),))
        return Proposal(cell, (goal | {"holds": "yes", "trust": "trusted"},), (cost,))

    fast, cheap = made("fast", 1, 50), made("cheap", 4, 5)
    slow, twin, slower = made("slow", 2, 60), made("twin", 1, 50), made("slower", 4, 70)
    assert _fronts([slower, slow, cheap, fast, twin]) == [[fast, cheap], [slow], [slower]]
    assert _chosen([slower, slow, cheap, fast, twin]) == ([fast, cheap], [slow])
    assert _chosen([]) == ([], [])
    _print(Solution((fast, cheap), (slow,), fast, 9), False)
    shown = [line for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    behind = "3. (meets the goals, but one above is as good in everything) slow"
    assert shown == ["2 proposals; 9 sets of changes were replayed", "1. fast", "2. cheap", behind]


def test_a_change_that_makes_no_difference_is_left_out() -> None:
    start = Cell("cfs")
    nice, parity = ("set", "tid=1: nice=5"), ("tunable", "last_buddy=off")
    one = extended(start, nice)
    assert one is not None
    both = extended(one, parity)
    assert both is not None
    assert _fewer(start, both) == [extended(start, parity), one]
    assert _fewer(start, one) == []

    def made(cell: Cell, ms: float, holds: str) -> Proposal:
        goal = {"goal": "response.mean(Db) < 5ms", "value": ms * 1e6, "low": 1.5e6, "high": 2.5e6}
        return Proposal(cell, (goal | {"identity": 10e6, "holds": holds},), ())

    assert _needless(made(both, 2.0, "yes"), [made(one, 2.4, "yes")])
    assert not _needless(made(both, 2.0, "yes"), [made(one, 2.6, "yes")])
    assert not _needless(made(both, 2.0, "yes"), [made(one, 2.0, "perhaps")])
    assert not _needless(made(one, 2.0, "yes"), [made(both, 2.0, "yes"), made(one, 2.0, "yes")])


def test_what_is_beaten_fills_up_to_three(file: Path, tracekit: Run) -> None:
    asked = ["solve", file, "--goal", "response.mean(Db) < 12ms", "--depth", "1", "--runs", "2", "--json"]
    answer = json.loads(tracekit(*asked).stdout)
    assert 1 <= len(answer["proposals"]) <= 3
    assert all(p["holds"] in ("yes", "perhaps") for p in answer["proposals"] + answer["further"])
    assert len(answer["further"]) <= 3 - len(answer["proposals"])


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
