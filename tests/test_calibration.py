"""Calibration: a replay is judged by fixed tolerances, and can fail."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from tracekit.cli.calibrate import _readable
from tracekit.whatif.calibration import METRICS, _judge, calibrate, keeps_phase, passed, tolerances
from tracekit.whatif.fidelity import Fidelity, Pair, fidelity, medians

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


def test_several_repetitions_are_judged_by_the_median_of_each_metric(trace: tk.Trace) -> None:
    wrong = tk.replay(trace, "rr:quantum=20ms")
    near = [tk.replay(trace, tk.whatif.infer(trace.metadata, ["cfs"])[0], phase_ns=p) for p in (0, 1_000_000)]
    assert results(trace, wrong)["main"] == "fail"
    both = calibrate(trace, [near[0], wrong, near[1]])
    each = [calibrate(trace, run) for run in (near[0], wrong, near[1])]
    for name in ("main", "switches", "run_delay_p95"):
        values = [table.filter(metric=name)["replayed"].item() for table in each]
        assert both.filter(metric=name)["replayed"].item() == statistics.median(values)
    assert dict(both.select("metric", "result").iter_rows())["main"] == "pass"


def test_a_metric_that_most_repetitions_lack_is_not_measured() -> None:
    have = Fidelity({"main": Pair("ns", 5.0, 6.0, (60, 60)), "drift": Pair("ns", 1.0, 1.0, (1, 1))}, (), 4e6)
    lack = Fidelity({"main": Pair("ns", 5.0, None, (60, 0))}, (), 4e6)
    found = medians([have, lack, lack])
    assert found.pairs == {"main": Pair("ns", 5.0, None, (60, 0))}
    assert medians([have, lack]).pairs["main"].replayed == 6.0


def test_a_schedule_without_any_disturbance_is_judged_by_the_plain_replay(tmp_path: Path) -> None:
    # Perturbations break the phase of its three tasks: each repetition fails a third of the metrics.
    (tmp_path / "a.wl").write_text("policy: cfs\nuntil: 1000\nH*2: R∞\nT*3: (R2 S5)*")
    tk.generate(tmp_path / "a.wl", tmp_path / "a.txt", to="ftrace")
    trace = tk.read(tmp_path / "a.txt")
    assert "fail" not in tk.calibrate(trace)["result"].to_list()
    found = tk.compare(trace, "cfs:latency=24ms")
    assert found.repeated is not None
    assert found.repeated.plain
    assert found.table["identity"].equals(found.table["identity_plain"])
    programs = tk.Programs(trace)
    runs = [fidelity(trace, programs.run("cfs", perturbation=p)) for p in programs.perturbations(4)]
    assert keeps_phase(runs)
    assert not keeps_phase(runs[:2]), "one says nothing"
    assert not keeps_phase([*runs, runs[0]]), "another one is as good"
    assert not keeps_phase(runs[1:])


def test_calibrate_repeats_and_takes_one_replay_where_asked(trace: tk.Trace) -> None:
    once = tk.calibrate(trace, runs=1)
    assert once.equals(calibrate(trace, tk.replay(trace, tk.whatif.identity.stated(trace)[0])))
    several = tk.calibrate(trace)
    assert several.equals(tk.calibrate(trace, jobs=1))
    assert several.equals(tk.compare(trace, "rr").fidelity)
    assert not several["replayed"].equals(once["replayed"])
    with pytest.raises(tk.ReplayError, match="runs: expected a whole number above 0"):
        tk.calibrate(trace, runs=0)


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


#: A knob for each metric, which it must answer: what is asked of the replay.
KNOBS: dict[str, dict[str, Any]] = {
    "quantum": {"policy": "rr:quantum=20ms"},
    "nice": {"policy": "cfs", "scenario": {"spin*": {"nice": 0}, "spin0*": {"nice": 15}}},
    "cpus": {"policy": "cfs", "cpus": 32},
}
ANSWERS = {
    "quantum": (
        "main",
        "switches",
        "preemptions",
        "blocks",
        "run_delay_p50",
        "run_delay_p95",
        "run_delay_ks",
        "slice_p50",
        "slice_ks",
        "runqueue_mean",
        "runqueue_histogram",
    ),
    "nice": ("cpu_share",),
    "cpus": ("cpu_share_window", "idle_share", "placement"),
}


def test_every_metric_has_a_knob() -> None:
    elsewhere = {"yields", "drift", "placement_task"}
    assert {m for metrics in ANSWERS.values() for m in metrics} | elsewhere == set(METRICS)


@pytest.mark.parametrize("knob", KNOBS)
def test_metrics_answer_their_knob(trace: tk.Trace, knob: str) -> None:
    same = results(trace, tk.replay(trace, "cfs"))
    turned = calibrate(trace, tk.replay(trace, **KNOBS[knob]))
    found = {r["metric"]: r for r in turned.iter_rows(named=True)}
    for metric in ANSWERS[knob]:
        assert found[metric]["result"] == "fail", metric
    assert sum(same[m] == "pass" for m in ANSWERS[knob]) >= len(ANSWERS[knob]) - 3
    assert found["placement_task"]["error"] < 0.5


def test_yields_and_drift_answer_their_knob() -> None:
    yielding = tk.simulate("until: 3000\nA: (R1 Y)*\nH: R∞", "cfs")
    turned = calibrate(yielding, tk.replay(yielding, "cfs", scenario={"A": {"nice": 15}}))
    assert dict(turned.select("metric", "result").iter_rows())["yields"] == "fail"
    # The sooner X runs, the sooner its sleep is over.
    ending = tk.simulate("Y: R50\nX: R10 S100 R1", "fifo")
    drift = calibrate(ending, tk.replay(ending, "srpt")).filter(metric="drift").row(0, named=True)
    assert drift["result"] == "fail"
    assert drift["error"] == pytest.approx(-50e6, rel=0.05)


def test_the_figures_of_the_lab_answer_their_knobs(testdata: Path) -> None:
    from validation import lab
    from validation.metrics import measure

    captures = lab.captures(testdata / "lab")
    knobs: dict[str, tuple[str, dict[str, Any], tuple[float, float]]] = {
        "6.1/nicefork-fork-hog19": ("mean_fork_us", {"policy": "eevdf"}, (0.0, 0.5)),
        "6.1/yield-work50-other": ("yield_us", {"cpus": 2}, (0.0, 0.7)),
        "6.1/callpipe-default-batch": (
            "mean_response_ms",
            {"policy": "cfs:gentle_fair_sleepers=off"},
            (0.9, 0.99),
        ),
    }
    for key, (metric, knob, (least, most)) in knobs.items():
        capture = captures[key]
        trace = tk.read(capture.file)
        plain, turned = (
            measure(metric, tk.replay(trace, **({"policy": "cfs"} | k)), capture.arguments).value
            for k in ({}, knob)
        )
        assert least * plain < turned < most * plain, (key, plain, turned)


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


def test_a_shift_below_clock_and_jitter_is_no_distance(trace: tk.Trace) -> None:
    """Point masses of the demo's run delays move by 100 ns: 0.149 by plain Kolmogorov-Smirnov, and
    a failure."""
    same = tk.replay(trace, tk.whatif.infer(trace.metadata, ["cfs"])[0])
    found = {r["metric"]: r for r in calibrate(trace, same).iter_rows(named=True)}
    assert found["run_delay_ks"]["result"] == "pass"
    assert found["run_delay_ks"]["error"] < 0.05
    delays = [tk.analysis.latency.samples(t.slices)["run_delay_ns"] for t in (trace, same)]
    assert tk.analysis.uncertainty.ks_distance(*delays) > 0.1


@pytest.mark.parametrize("name", ["6.1/yield-other.dat", "6.1-perf/yield-other.perf.data"])
def test_a_replay_counts_yields_as_its_recorded_trace_does(testdata: Path, name: str) -> None:
    trace = tk.read(testdata / "lab" / name)
    run = tk.replay(trace, "cfs")
    assert "yielding" not in trace.slices["end_state"].cast(pl.String)
    yields = run.slices.filter(pl.col("end_state").cast(pl.String) == "yielding")
    assert yields.height > 7000
    assert yields["involuntary"].all()
    assert run.slices["involuntary"].sum() == pytest.approx(trace.slices["involuntary"].sum(), rel=0.02)


def test_a_workload_tells_its_yields() -> None:
    slices = tk.simulate("A: (R1 Y)*5\nB: (R1 Y)*5\n", "rr:quantum=10ms").slices
    assert slices.filter(pl.col("end_state").cast(pl.String) == "yielding")["involuntary"].sum() == 0
    assert "yielding" in slices["end_state"].cast(pl.String)


def test_what_passes_by_a_fixed_allowance_alone_says_so(trace: tk.Trace) -> None:
    def shifted(by_ns: int) -> tk.Trace:
        later = trace.slices.with_columns(pl.col("run_delay_ns") + by_ns)
        return tk.Trace(
            {**{name: trace.table(name) for name in trace.tables}, "slices": later}, trace.metadata
        )

    delay = trace.slices["run_delay_ns"].drop_nulls().quantile(0.5, "lower")
    assert delay is not None
    assert 0 < delay < 4_000_000, "shorter than a tick"
    found = {}
    for by_ns in (0, round(delay / 20), 300_000, 500_000):
        row = calibrate(trace, shifted(by_ns)).filter(metric="run_delay_p50").row(0, named=True)
        found[by_ns] = row["result"], row["only_by"]
    assert list(found.values()) == [("pass", None), ("pass", None), ("pass", "400 us"), ("fail", None)]


def test_a_count_that_passes_by_a_fixed_allowance_says_so() -> None:
    rule = {"relative": 0.05, "absolute": 5, "min_n": 1}

    def only_by(recorded: float, replayed: float) -> str | None:
        found: str | None = _judge("blocks", Pair("1", recorded, replayed, (60, 60)), rule, 4e6)["only_by"]
        return found

    assert only_by(60, 64) == "5"
    assert only_by(60, 62) is None
    assert only_by(60, 66) is None, "it fails"


def test_the_command_names_what_passes_by_a_fixed_allowance() -> None:
    row = _judge(
        "run_delay_p50", Pair("ns", 14_100.0, 58_400.0, (90, 90)), tolerances()["run_delay_p50"], 4e6
    )
    readable = _readable(row)
    assert (readable["result"], readable["error"]) == ("pass (< 400 us)", "+314.18 %")
    assert _readable(row | {"only_by": None})["result"] == "pass"
    many = [row, row | {"only_by": None}, row | {"result": "fail"}, row | {"result": "not measured"}]
    assert passed(many) == "2 of 3 metrics pass, 1 only by a fixed allowance"
    assert passed(many[1:2]) == "1 of 1 metrics pass"
