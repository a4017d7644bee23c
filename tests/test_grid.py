"""Grids and goals: what their texts stand for."""

from __future__ import annotations

import pytest

from tracekit.errors import ReplayError
from tracekit.whatif.goals import parse_goal, parse_statistic
from tracekit.whatif.grid import Cell, cells, sample, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0..4ms/5", ["0ns", "1ms", "2ms", "3ms", "4ms"]),
        ("500us..1.5ms/3", ["500us", "1ms", "1.5ms"]),
        ("1ms..64ms/7log", [f"{2**i}ms" for i in range(7)]),
        ("0..19/5", ["0", "5", "10", "14", "19"]),
        ("0..3/9", ["0", "1", "2", "3"]),
        ("0.5..1/3", ["0.5", "0.75", "1"]),
        ("{on, off,on}", ["on", "off"]),
        ("-20..19/2", ["-20", "19"]),
        ("10ms", None),
    ],
)
def test_ranges_and_lists(text: str, expected: list[str] | None) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0..4ms", "FIRST..LAST/COUNT"),
        ("0..4ms/1", "two or more"),
        ("4ms..4ms/3", "different ends"),
        ("0..4ms/3log", "above 0"),
        ("4ms..8/3", "no unit"),
        ("1..2parsecs/3", "expected a time"),
        ("1ms..9ms/10000000", "at most"),
        ("{a,,b}", "between commas"),
    ],
)
def test_what_is_no_range_is_refused(text: str, said: str) -> None:
    with pytest.raises(ReplayError, match=said):
        values(text)


def test_a_grid_is_every_combination_in_order() -> None:
    grid = cells(["rr:quantum=1ms..2ms/2,refill={on,off}", "fifo"], ["b*: nice={0,5}"])
    assert len(grid) == (4 + 1) * 2
    assert grid[1] == Cell(
        "rr:quantum=1ms,refill=on",
        ("b*: nice=5",),
        (
            ("policy", "rr"),
            ("quantum", "1ms"),
            ("refill", "on"),
            ("b*: nice", "5"),
        ),
    )
    assert [str(c) for c in grid[-2:]] == ["fifo --set 'b*: nice=0'", "fifo --set 'b*: nice=5'"]
    assert cells(["fifo", "fifo"]) == cells(["fifo", "fifo"])[:1]
    with pytest.raises(ReplayError, match="at most 100000"):
        cells(["rr:quantum=1ms..2s/1000"], ["a: slice=1ms..3s/1001"])


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    grid = cells(["rr:quantum=1ms..100ms/100"])
    drawn = sample(grid, 10, 3)
    assert drawn == sample(grid, 10, 3) != sample(grid, 10, 4)
    assert len(set(drawn)) == 10
    assert [grid.index(c) for c in drawn] == sorted(grid.index(c) for c in drawn)
    assert sample(grid, 1000) == grid


def test_goals_are_read_and_measured() -> None:
    goal = parse_goal(" response.p95(db*) < 5ms")
    row = {"scope": "group", "group": "db1", "metric": "response", "statistic": "p95"}
    assert goal.statistic.names(row)
    assert not goal.statistic.names({**row, "group": "web"})
    assert goal.slack({"predicted": 4e6, "identity": 9e6}) == pytest.approx(0.2)
    assert goal.slack({"predicted": 6e6, "identity": 9e6}) == pytest.approx(-0.2)
    assert goal.slack({"predicted": None, "identity": 9e6}) is None
    keep = parse_goal("cpu(batch) > -5%")
    assert keep.slack({"predicted": 96.0, "identity": 100.0}) == pytest.approx(0.01)
    assert keep.slack({"predicted": 90.0, "identity": 100.0}) == pytest.approx(-0.05)
    assert keep.slack({"predicted": 90.0, "identity": 0.0}) is None
    assert parse_goal("runqueue < 3").statistic.names(
        {"scope": "system", "metric": "runqueue", "statistic": "mean"}
    )
    assert parse_statistic("switches").statistic == "total"
    # Names of tasks hold parentheses and brackets: `(sd-pam)`.
    for group in ("(sd-pam)", "web (main)", "job[1]"):
        statistic = parse_goal(f"response.p95({group}) < 5ms").statistic
        row = {"metric": "response", "statistic": "p95", "scope": "group"}
        assert statistic.names({**row, "group": group})
        assert not statistic.names({**row, "group": "job"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("respnse.p95(db) < 5ms", "did you mean 'response'"),
        ("response.maen(db) < 5ms", "did you mean 'mean'"),
        ("response.p95(db) < 5", "unit"),
        ("response.p95(db) = 5ms", "STATISTIC < VALUE"),
        ("cpu(batch) > five%", "number before %"),
        ("response.p95(db < 5ms", "METRIC.STATISTIC"),
    ],
)
def test_what_is_no_goal_is_refused(text: str, said: str) -> None:
    with pytest.raises(ReplayError, match=said):
        parse_goal(text)
