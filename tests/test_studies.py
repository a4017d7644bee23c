"""The five studies at reduced size: they run, their error bars are not zero where chance is
involved, and what holds still holds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tracekit.cli.study import NAMES as COMMAND_NAMES
from tracekit.errors import ReplayError
from tracekit.studies import NAMES, Table, load, mean_of

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    scales = {"aix-directory": 0.15, "freebsd-fork": 0.05, "linux-runqueue": 0.07}
    return {name: load(name).run(scales.get(name, 0.1), 2, lambda _: None) for name in NAMES}


def value(table: Table, name: str) -> float:
    return next(m.value for m in table.metrics if m.name == name)


def test_solaris_times_are_the_published_ones_within_15_percent(tables: dict[str, Table]) -> None:
    for metric in tables["solaris-fork"].metrics:
        assert metric.ratio == pytest.approx(1, abs=0.15), metric.name


def test_fair_sleepers_cut_slices_and_cost_throughput(tables: dict[str, Table]) -> None:
    table = tables["cfs-sleepers"]
    assert value(table, "slice as printed, fair sleepers on") < 1 < 7 < value(table, "slice as printed, off")
    assert value(table, "throughput, off over on") == pytest.approx(10.5, rel=0.15)


def test_a_batch_job_hurts_under_dynamic_priorities_only(tables: dict[str, Table]) -> None:
    table = tables["aix-directory"]
    dynamic, fixed = (value(table, f"response, 60 % and batch, {how}") for how in ("dynamic", "fixed"))
    assert dynamic > 2 * value(table, "response, 60 %, dynamic")
    assert fixed < value(table, "response, 60 %, dynamic")
    batch = [
        value(table, f"batch job, {how}")
        for how in ("batch alone", "60 % and batch, dynamic", "60 % and batch, fixed")
    ]
    assert batch == sorted(batch)
    # Nothing else is in the way of a search on an idle machine.
    assert value(table, "response, no load") == pytest.approx(40, rel=0.03)


def test_only_the_list_of_processes_makes_forks_dearer(tables: dict[str, Table]) -> None:
    table = tables["freebsd-fork"]
    assert value(table, "slope, list") == pytest.approx(50, rel=0.15)
    for name in ("bitmap", "table"):
        assert value(table, f"slope, {name}") == pytest.approx(0, abs=5)
    # Every point has draws of its own: slopes have an error, too.
    assert all(m.half_width and m.half_width > 0.01 for m in table.metrics)


def test_run_queues_of_a_web_server_are_short_with_a_long_tail(tables: dict[str, Table]) -> None:
    table = tables["linux-runqueue"]
    assert value(table, "length at a switch, mean") == pytest.approx(2.5, rel=0.25)
    assert value(table, "longest") > 20
    assert value(table, "yield among 40, Linux over NT") == pytest.approx(1.9, rel=0.15)
    assert value(table, "switches per recalculation") == pytest.approx(200, rel=0.25)


def test_a_table_marks_what_was_fitted_and_gives_error_bars() -> None:
    metric = mean_of("x", "ms", (1, 2), [3.0, 5.0], fitted=True)
    assert (metric.value, metric.ratio) == (4.0, 2.0)
    # t with one degree of freedom times the standard error: 12.706 * 1.
    assert metric.half_width == pytest.approx(12.706, rel=1e-3)
    assert mean_of("x", "ms", (1, 5), [3.0]).ratio == 1.0
    assert mean_of("x", "ms", None, [3.0]).half_width is None
    frame = Table("t", "T", (metric,)).frame()
    assert frame.row(0, named=True)["fitted"] is True
    assert frame["n"].to_list() == [2]


def test_the_command_runs_one_by_name(tracekit: Run) -> None:
    assert tuple(NAMES) == COMMAND_NAMES
    run = tracekit("study", "cfs-sleepers", "--scale", "0.1", "--repeats", "1", "--json")
    assert run.returncode == 0, run.stderr
    (study,) = json.loads(run.stdout)
    assert study["study"] == "cfs-sleepers"
    assert {"published_low", "value", "ratio", "fitted"} <= set(study["metrics"][0])
    with pytest.raises(ReplayError, match="choose from solaris-fork"):
        load("nosuch")
