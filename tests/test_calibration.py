"""Calibration: a replay is judged by fixed tolerances, and can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import polars as pl
import pytest

import tracekit as tk
from tracekit.calibration import METRICS, calibrate, tolerances

Run = Callable[..., CompletedProcess[str]]


def results(recorded: tk.Trace, replayed: tk.Trace) -> dict[str, str]:
    return dict(calibrate(recorded, replayed).select("metric", "result").iter_rows())


def test_every_metric_has_a_tolerance() -> None:
    rules = tolerances()
    assert set(METRICS) == set(rules) - {"pair"}
    assert all("min_n" in rules[m] for m in METRICS)


def test_a_trace_agrees_with_itself(trace: tk.Trace) -> None:
    table = calibrate(trace, trace)
    assert table["metric"].to_list() == list(METRICS)
    assert set(table["result"]) <= {"pass", "not measured"}
    judged = table.filter(pl.col("result") == "pass")
    assert judged.height > 10
    exact = judged.filter(~pl.col("metric").is_in(["placement", "placement_task"]))
    assert exact["error"].to_list() == [0.0] * exact.height
    assert judged.filter(pl.col("metric") == "placement_task")["error"].item() == 1.0


def test_few_samples_are_not_judged(trace: tk.Trace) -> None:
    short = trace.filter(start=0, end=(trace.start_ns or 0) + 4_000_000)
    found = results(short, short)
    assert found["run_delay_p95"] == "not measured"
    assert found["main"] == "not measured"


@pytest.mark.parametrize(
    ("policy", "metrics"),
    [
        ("rr:quantum=20ms", ("main", "switches", "slice_ks")),
        ("cfs:latency=48ms,min_granularity=6ms", ("main",)),
    ],
)
def test_a_wrong_policy_fails(trace: tk.Trace, policy: str, metrics: tuple[str, ...]) -> None:
    found = results(trace, tk.replay(trace, policy))
    assert {m: found[m] for m in metrics} == dict.fromkeys(metrics, "fail")


def test_the_command_ends_with_1_when_a_metric_fails(tracekit: Run, demo: Path) -> None:
    wrong = tracekit("calibrate", demo, "--policy", "rr:quantum=20ms", "--json")
    assert wrong.returncode == 1, wrong.stderr
    answer = json.loads(wrong.stdout)
    assert {"main", "switches"} <= set(answer["failed"])
    assert [r["metric"] for r in answer["rows"]] == list(METRICS)
    text = tracekit("calibrate", demo, "--policy", "rr:quantum=20ms")
    assert text.returncode == 1
    assert "fail" in text.stdout
