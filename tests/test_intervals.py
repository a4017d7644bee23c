"""Intervals of predictions: their parts, and schedules with two outcomes."""

from __future__ import annotations

import math
import random
import statistics

import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis import response
from tracekit.whatif import intervals as p

#: Two tasks wake at the same time; who comes first is a matter of nanoseconds, and decides the mean response.
RACE = "until: 1000\nX: S10 R100\nY: S10 R300\nZ: S600 R1"


def mean_response(trace: tk.Trace) -> float:
    rows = response.samples(trace.slices, trace.states, trace.end_ns).filter(pl.col("status") == "complete")
    return float(rows.filter(pl.col("comm") != "Z")["response_ns"].mean())


def test_a_race_is_bimodal() -> None:
    trace = tk.simulate(RACE, "fifo")
    programs = tk.Programs(trace)
    perturbations = programs.perturbations()
    values = [mean_response(programs.run("fifo", perturbation=s)) for s in perturbations]
    found = p.modes(values)
    assert found is not None, values
    assert found == pytest.approx((250e6, 350e6), rel=0.01)
    made = p.interval(p.centre(values), values, 250e6, 250e6)
    assert made is not None
    assert made.low < 251e6
    assert made.high > 349e6


def test_what_is_decided_is_not_bimodal() -> None:
    programs = tk.Programs(tk.simulate("until: 1000\nX: S10 R100\nY: S12 R300\nZ: S600 R1", "fifo"))
    values = [mean_response(programs.run("fifo", perturbation=s)) for s in programs.perturbations()]
    assert p.modes(values) is None
    assert max(values) / min(values) < 1.0001


def test_one_hump_is_seldom_taken_for_two() -> None:
    draw = random.Random(1)
    for kind in (lambda: draw.gauss(100, 20), lambda: draw.uniform(50, 150)):
        hits = sum(p.modes([kind() for _ in range(9)]) is not None for _ in range(2000))
        assert hits / 2000 < 0.05


def test_the_same_perturbation_gives_the_same_replay(trace: tk.Trace) -> None:
    programs = tk.Programs(trace)
    plain, *others = programs.perturbations()
    assert programs.run("cfs", perturbation=plain).events.equals(programs.run("cfs").events)
    one, two = (programs.run("cfs", perturbation=others[0]).events for _ in range(2))
    assert one.equals(two)
    assert not one.equals(programs.run("cfs", perturbation=others[1]).events)


def test_perturbations_move_the_tick_where_it_is_known_and_more_where_not() -> None:
    known, unknown = p.perturbations(4_000_000, 34.0), p.perturbations(4_000_000, 500.0, phase_known=False)
    assert len(known) == len(unknown) == p.RUNS
    assert known[0] == p.Perturbation(0, 0, 0)
    assert sum(s.in_place for s in known) == 7
    assert {s.jitter_ns for s in known[1:]} == {p.MIN_JITTER_NS}
    assert {s.jitter_ns for s in unknown[1:]} == {500}
    assert len({s.phase_ns for s in unknown}) == p.RUNS


def test_the_interval_is_the_root_of_the_sum_of_squares() -> None:
    values = [90.0, 100.0, 110.0]
    made = p.interval(100.0, values, 100.0, 104.0, 0.03, p.ModelError("", 0.05, 0.2, 1), 0.5)
    assert made is not None
    s = statistics.stdev(map(math.log, values))
    width = math.sqrt((p.Z90 * s) ** 2 + 0.03**2 + math.log(1.04) ** 2 + 0.05**2 + (0.2 * 0.5) ** 2)
    assert made.low == pytest.approx(100 * math.exp(-width))
    assert made.high == pytest.approx(100 * math.exp(width))
    assert p.interval(0.0, [0.0, 0.0], 1.0, 1.0) is None


def test_a_phase_that_perturbations_break_is_said() -> None:
    assert p.apart(100.0, [103.0, 103.2, 103.1]) == (100.0, 103.1)
    assert not p.apart(100.0, [96.0, 104.0, 101.0])
    assert not p.apart(100.0, [100.1, 100.1]), "less than 0.5 %"
    assert not p.apart(100.0, [150.0]), "one says nothing"
    assert not p.apart(None, [103.0, 103.2])
    values = [100.0, 103.0, 103.1]
    width = p.measured(103.0, values, (100.0, 103.1), 100.0, 104.0)
    assert width is not None
    assert width == pytest.approx(math.hypot(math.log(1.03), math.log(1.04)))
    without = p.measured(103.0, values, (), 100.0, 104.0)
    assert without is not None
    assert without < width
    assert p.measured(0.0, [0.0], (), 1.0, 1.0) is None


def test_a_fit_covers_what_it_was_fitted_to() -> None:
    draw = random.Random(2)
    cases = [
        p.Case(family, abs(draw.gauss(0, size)), 0.01, share)
        for family, size, share in (("a", 0.02, 0.0), ("b", 0.05, 0.1), ("c", 0.1, 1.0), ("d", 0.15, 0.9))
        for _ in range(100)
    ]
    made = p.fit(p.KINDS[0], cases)
    light = [c.error <= made.width(c.measured, c.share) for c in cases if c.share < 0.5]
    heavy = [c.error <= made.width(c.measured, c.share) for c in cases if c.share >= 0.5]
    assert sum(light) / len(light) == pytest.approx(0.9, abs=0.03)
    assert sum(heavy) / len(heavy) == pytest.approx(0.9, abs=0.03)
    assert made.kernel > made.base > 0
    assert p.fit(p.KINDS[0], cases[:3]) == p.ModelError(p.KINDS[0], 0.0, 0.0, 3)


def test_a_conformal_quantile_is_a_rank() -> None:
    scores = [(float(i), "x") for i in range(1, 20)]
    assert p.quantile(scores) == 18.0
    assert p.quantile([(1.0, "x")] * 3) == 1.0
    # A family with many pairs counts no more than one with few.
    many = [(1.0, "many")] * 90 + [(2.0, "few")] * 10
    assert p.quantile(many) == 2.0


@pytest.mark.parametrize(
    ("identity", "policy", "kind"),
    [
        ("cfs:form=6.1", "cfs:form=6.1,latency=24ms", "same scheduler"),
        ("cfs:form=6.1", "cfs:form=2.6.32", "other scheduler"),
        ("cfs:form=6.1,latency=6ms", "eevdf:version=6.12", "other scheduler"),
    ],
)
def test_kinds_of_change(identity: str, policy: str, kind: str) -> None:
    assert p.kind_of_change(identity, policy) == kind
    assert kind in p.model_error()


def recorded(text: str) -> pl.DataFrame:
    """The demands of a run as its records show them; a run itself has the program that its text
    states, without exits."""
    run = tk.simulate(text, "cfs")
    metadata = {k: v for k, v in run.metadata.items() if k != "workload"}
    return tk.Programs(tk.Trace({k: run.table(k) for k in run.tables}, metadata)).demands


def test_kernel_work_is_what_stands_beside_forks_and_yields() -> None:
    forks = recorded("A: R1 F(C) R1 F(D) R1\nC start=fork: R1\nD start=fork: R1")
    assert p.kernel_share(forks) == pytest.approx(1.0, abs=0.05)
    sleeps = recorded("until: 100\nA: S1 R1 S5 R1 S5 R1 S50")
    assert p.kernel_share(sleeps) == 0.0
    # Most of a long run before an exit is the task's own.
    assert p.kernel_share(recorded("A: S1 R100")) == pytest.approx(0.02, abs=0.005)


def test_an_effect_within_the_noise_is_not_resolved() -> None:
    assert p.resolved(120, 100, 101, [119, 120, 121], [100, 100, 101])
    assert not p.resolved(120, 100, 125, [119, 120, 121], [100, 100, 101])
    assert not p.resolved(120, 100, 101, [100, 120, 140], [80, 100, 120])
    assert not p.resolved(100.4, 100, 100, [100.4], [100.0])
