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
        ("cfs:wakeup_preemption=off", ("main", "switches")),
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


def test_slices_follow_the_knobs_that_make_them(trace: tk.Trace) -> None:
    from validation.metrics import measure

    def slice_us(policy: str) -> float:
        return measure("mean_slice_us", tk.replay(trace, policy), {}).value

    quantum = [slice_us(f"rr:quantum={t}") for t in ("4ms", "20ms")]
    assert quantum[1] > 1.5 * quantum[0]
    assert slice_us("cfs:wakeup_preemption=off") > 1.5 * slice_us("cfs")


def test_figures_agree_with_what_the_workload_logged(testdata: Path, root: Path) -> None:
    from validation import lab
    from validation.metrics import measure

    captures = lab.captures(testdata / "lab")
    logged = {
        "6.1/slice-default": ("mean_slice_us", 887.0),
        "6.12/mixed-default": ("mean_response_us", 5994.9),
        "6.1/nicefork-fork-hog19": ("mean_fork_us", 3990.9),
        "6.12/callpipe-default-batch": ("mean_response_ms", 78.09),
    }
    for key, (metric, value) in logged.items():
        found = measure(metric, tk.read(captures[key].file), captures[key].arguments)
        assert found.value == pytest.approx(value, rel=0.015), key


def test_a_response_follows_its_policy(testdata: Path) -> None:
    from validation import lab
    from validation.metrics import measure

    capture = lab.captures(testdata / "lab")["6.1/mixed-default"]
    trace = tk.read(capture.file)
    found = {
        p: measure("mean_response_us", tk.replay(trace, p), capture.arguments).value
        for p in ("cfs", "rr:quantum=20ms")
    }
    assert found["rr:quantum=20ms"] > 2 * found["cfs"]
