"""Trust row by row, multiplicity, classes of metric and change, and changes that nothing models."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.whatif import headline, kernels, row_error, trust
from tracekit.whatif.calibration import tolerances
from tracekit.whatif.fitness import fitness
from tracekit.whatif.not_modelled import NotModelledError, split, unmodelled_features
from tracekit.whatif.scenario import Scenario, parse_set
from tracekit.whatif.shown import Focus

if TYPE_CHECKING:
    from tracekit.whatif import Comparison


def a_row(**other: object) -> dict:
    row = {
        **{"metric": "run_delay", "statistic": "p50", "unit": "ns", "n_recorded": 100},
        **{"recorded": 10e6, "identity": 10e6, "predicted": 12e6, "verdict": "resolved"},
        **{"identity_error_pct": 0.0, "phase_sensitive": False, "bimodal_low": None, "low": 11e6},
        **{"no_interval": None, "validated": 40},
    }
    return row | other


def test_what_is_not_to_be_used_does_not_make_the_headline() -> None:
    def says(*rows: dict) -> str:
        common = {"policy": "rr", "scope": "comm", "high": 13e6, "change_pct": 1.0}
        summary = pl.DataFrame([common | row for row in rows], infer_schema_length=None)
        (finding,) = headline.findings(
            cast(
                "Comparison",
                SimpleNamespace(
                    replays=["rr"],
                    summary=summary,
                    repetitions=9,
                    focus=Focus(),
                    table=summary.clear(),
                    main_groups=[],
                    beside="",
                ),
            )
        )
        return finding.sentence

    never = a_row(group="db", predicted=900e6, low=None, trust=trust.DO_NOT_USE)
    bare = a_row(group="web", predicted=90e6, low=None, trust=trust.CARE)
    small = a_row(group="ls", predicted=12e6, trust=trust.CARE)
    same = a_row(group="ls", verdict="not resolved", trust=trust.TRUSTED)
    assert says(never, bare, small, same) == (
        "rr changes 2 of 4 metrics, 1 of them without an interval; most of all ls run delay, p50, from 10 ms to 12 ms (+1.0 %). "
        "1 more changes, but is marked `do not use`."
    ), "what has an interval goes first"
    assert "most of all web run delay" in says(never, bare)
    assert says(never, never, same) == (
        "rr changes none of 3 metrics by more than the error of the replay. "
        "2 more change, but are marked `do not use`."
    )
    assert says(small).endswith("(+1.0 %).")
    assert says(bare, same).startswith("rr changes 1 of 2 metrics, without an interval; most of all web")
    why = "not modelled: groups; the identity replay is off by +40.0 %"
    alone = a_row(group="db", trust=trust.DO_NOT_USE, trust_why=why)
    assert says(alone, alone | {"trust_why": "not modelled: groups"}) == (
        "rr: none of 2 metrics is to be used: not modelled: groups."
    )


def test_what_has_no_interval_says_why_where_it_would_stand() -> None:
    def of(**other: object) -> tuple[str, str]:
        effect = headline.effect_of(a_row(scope="comm", group="db", high=None, change_pct=1.0, **other))
        return effect.span, effect.no_span

    drift = "predicted: the samples drift over the whole trace"
    few = "recorded: 3 effective samples leave fewer than 8 beyond the quantile"
    assert of(low=None, no_interval=drift) == ("", "none: drifts")
    assert of(low=None, no_interval=few) == ("", "none: too few")
    assert of(low=None, no_interval="n = 3 is below 30") == ("", "none: too few")
    assert headline.effect_of(a_row(scope="comm", group="db", high=13e6, change_pct=1.0)).no_span == ""
    # What was not predicted lacks more than its interval.
    assert of(low=None, predicted=None, no_interval="not predicted") == ("", "")


def test_a_row_is_held_against_its_own_tolerance() -> None:
    rules = tolerances()

    def of(**other: object) -> tuple[str, float | None]:
        return trust.calibrated(a_row(**other), rules, 4e6, 200)

    assert of() == ("pass", 0.0)
    assert of(identity=12.7e6)[0] == "fail", "10 % or a tenth of a tick, 1 ms"
    # 16.8 us recorded and 9.92 ms in the identity replay is no pass, whatever a whole trace does.
    assert of(recorded=16.8e3, identity=9.92e6)[0] == "fail"
    assert of(recorded=64e6, identity=12.7e6)[0] == "fail"
    assert of(n_recorded=19)[0] == "not measured"
    assert of(identity=None)[0] == "not measured"
    # A tenth of a tick does not excuse an error of what is shorter than a tick.
    assert of(recorded=100e3, identity=300e3)[0] == "fail"


@pytest.mark.parametrize(
    ("other", "excess", "unexplained", "lost", "mark", "why"),
    [
        ({}, 0.5, 0.0, 0.0, "trusted", ""),
        ({}, 1.5, 0.0, 0.0, "with care", "the identity replay is off by"),
        # The interval of a class that was held against real captures holds the identity error.
        ({}, 3.0, 0.0, 0.0, "with care", "the identity replay is off by"),
        ({"low": None, "no_interval": "n = 3"}, 3.0, 0.0, 0.0, "do not use", "the identity replay is off by"),
        ({"validated": 0}, 3.0, 0.0, 0.0, "do not use", "the identity replay is off by"),
        ({}, None, 0.0, 0.0, "do not use", "cannot be judged"),
        ({}, 0.5, 0.2, 0.0, "with care", "20.0 % of the wakeups have no cause"),
        ({}, 0.5, 0.6, 0.0, "do not use", "60.0 % of the wakeups have no cause"),
        ({}, 0.5, 0.0, 0.01, "with care", "1.0 % of the time lost records"),
        ({"phase_sensitive": True}, 0.5, 0.0, 0.0, "with care", "small shifts in time"),
        ({"validated": 0}, 0.5, 0.0, 0.0, "with care", "never held against real captures"),
        ({"low": None, "no_interval": "n = 3"}, 0.5, 0.0, 0.0, "with care", "no interval: n = 3"),
        ({"verdict": "not in this trace"}, 0.5, 0.0, 0.0, "do not use", "hardly ran"),
        ({"predicted": None}, 0.5, 0.0, 0.0, "do not use", "not predicted"),
    ],
)
def test_trust_has_its_reasons(
    other: dict, excess: float | None, unexplained: float, lost: float, mark: str, why: str
) -> None:
    found, text = trust.judge(a_row(**other), excess, unexplained, lost, ())
    assert found == mark
    assert why in text
    assert trust.judge(a_row(), 0.1, 0, 0, ("HRTICK",))[0] == "do not use"


def test_a_trace_is_replayed_badly_where_nothing_of_it_is_trusted() -> None:
    for failed, judged, said in (
        (0, 14, "well"),
        (1, 14, "with care"),
        (5, 15, "with care"),
        (5, 14, "badly"),
    ):
        results = ["fail"] * failed + ["pass"] * (judged - failed) + ["not measured"] * 3
        assert trust.replayed(results) == said
        assert (trust.poorly(results) is not None) == (said == "badly")
    assert trust.replayed(["not measured"]) == "unknown"


def test_nothing_is_trusted_of_a_trace_that_cannot_be_replayed_well(trace: tk.Trace) -> None:
    assert trust.poorly(["pass"] * 10 + ["not measured"] * 5 + ["fail"] * 5) is None
    assert trust.poorly([]) is None
    said = trust.poorly(["pass"] * 9 + ["fail"] * 5)
    assert said == "this trace cannot be replayed well: 5 of 14 metrics of the identity replay fail"
    assert trust.judge(a_row(), 0.5, 0.0, 0.0, (), said) == ("with care", said)
    # FIFO does not give what was recorded under CFS; beside that identity nothing is trusted.
    right, wrong = (tk.compare(trace, "cfs:latency=12ms", identity=i, runs=5) for i in (None, "fifo"))
    assert right.poor is None
    assert "trusted" in right.table["trust"].to_list()
    assert wrong.poor is not None
    assert "trusted" not in wrong.table["trust"].to_list()
    assert wrong.poor in "; ".join(wrong.table["trust_why"].drop_nulls())
    assert wrong.poor[1:] in wrong.to_html()


def test_false_discoveries_are_controlled() -> None:
    """Of 200 rows without an effect and 50 with one: fewer than a tenth of what is found is false,
    on average."""
    rng = np.random.default_rng(1)
    false, single = [], []
    for _ in range(50):
        z = np.concatenate([rng.standard_normal(200), rng.standard_normal(50) + 5])
        p = [trust.p_value(np.exp(0.01 * v), 1.0, 0.01 * 1.6448536) for v in z]
        q = trust.q_values([*p, None])
        assert q[-1] is None
        found = [i for i, v in enumerate(q) if v is not None and v <= trust.FALSE_DISCOVERY]
        false.append(sum(i < 200 for i in found) / max(1, len(found)))
        single.append(sum(v <= 0.1 for v in p[:200]))
    assert np.mean(false) < trust.FALSE_DISCOVERY
    assert np.mean(single) > 15, "each row for itself would find twenty"
    assert trust.p_value(1.0, 1.0, 0.0) == 1.0
    assert trust.p_value(0.0, 1.0, 0.1) is None


@pytest.mark.parametrize(
    ("identity", "policy", "cpus", "attributes", "kind"),
    [
        ("cfs:form=6.1", "cfs:form=6.1,latency=24ms", False, (), "same scheduler"),
        ("cfs:form=6.1", "cfs:form=2.6.32", False, (), "other kernel"),
        ("ule", "ule:slice=10ms", False, (), "other scheduler"),
        ("cfs:form=6.1", "eevdf:version=6.12", False, (), "other kernel"),
        ("cfs:form=6.1", "rr:quantum=10ms", False, (), "other scheduler"),
        ("cfs:form=6.1", "cfs:form=6.1", False, ("policy", "prio"), "class changed"),
        ("cfs:form=6.1", "cfs:form=6.1", False, ("nice",), "same scheduler"),
        ("cfs:form=6.1", "cfs:form=6.1", True, ("policy",), "CPUs changed"),
        ("cfs:form=6.1", "cfs:form=6.1", False, ("cgroup",), "groups"),
    ],
)
def test_classes_of_change(
    identity: str, policy: str, cpus: bool, attributes: tuple[str, ...], kind: str
) -> None:
    assert row_error.change_class(identity, policy, cpus, attributes) == kind
    assert kind in row_error.CHANGES


def test_the_model_error_is_fitted_by_class_and_covers_other_workloads() -> None:
    draw = random.Random(2)

    def cases(families: str, size: float) -> list[row_error.Case]:
        return [row_error.Case(f, abs(draw.gauss(0, size)), 0.01, 0.0) for f in families for _ in range(80)]

    key = ("same scheduler", "run delay")
    made = row_error.fit({key: cases("abc", 0.1), ("other kernel", "share"): cases("a", 0.1)[:29]})
    assert set(made) == {key}, "29 rows are too few"
    assert made[key].workloads == 3
    assert made[key].heavy is None
    fresh = cases("d", 0.1)
    width = row_error.width_of(made, *key, 0.0)
    assert width == (made[key].base, 240)
    assert np.mean([c.error <= np.hypot(c.measured, made[key].base) for c in fresh]) == pytest.approx(
        0.9, abs=0.08
    )
    assert row_error.width_of(made, "same scheduler", "share", 0.0) == (made[key].base, 0)
    assert row_error.width_of(made, *key, 0.9) == (made[key].base, 0), "no kernel work was measured"
    assert row_error.width_of(made, "groups", "share", 0.0) == (None, 0)
    assert row_error.row_errors(), "the package ships some"


def test_several_cpus_are_a_class_of_their_own() -> None:
    assert row_error.change_class("cfs", "cfs", several=True) == "several CPUs"
    assert row_error.change_class("cfs", "cfs", cpus=True, several=True) == "CPUs changed"


@pytest.mark.parametrize("conditions", [{"several": True}, {"cpus": True}, {"attributes": ("cgroup",)}])
def test_a_scheduler_without_captures_is_not_validated_by_those_of_others(conditions: dict[str, Any]) -> None:
    kind = row_error.change_class("cfs", "bfs", **conditions)
    assert kind == "other scheduler"
    assert all(
        row_error.width_of(row_error.row_errors(), kind, m, 0.0)[1] == 0 for m in row_error.METRIC_CLASSES
    )


def test_a_comparison_names_the_schedulers_without_captures(trace: tk.Trace) -> None:
    found = tk.compare(trace, ["bfs", "cfs:form=2.6.32", "cfs:latency=24ms"], runs=1)
    said = [s for s in found.not_recorded if "never held" in s]
    assert len(said) == 1
    assert said[0].startswith("never held against real captures: bfs, cfs:form=2.6.32. ")
    validated = dict(found.table.group_by("policy").agg(pl.col("validated").max()).iter_rows())
    assert validated["bfs"] == validated["cfs:form=2.6.32"] == 0
    assert validated["cfs:latency=24ms"] > 0
    assert not found.table.filter(trust="trusted", validated=0).height


def test_the_schedulers_with_captures_are_those_of_the_pages_pairs() -> None:
    """What the model errors come from is what the page of validation says it comes from."""
    spelled = [
        ("5.10.0-26-amd64", "cfs"), ("6.1.0-50-cloud-amd64", "cfs"), ("6.12.95+deb12-cloud-amd64", "eevdf"),
        ("6.18.5", "eevdf"), ("7.3.0", "eevdf"),
    ]  # fmt: skip
    for release, name in spelled:
        policy = kernels.infer({"os": "linux", "kernel": release}, {"cfs", "eevdf"})[0]
        assert policy.partition(":")[0] == name
        most = 2 if release == "6.18.5" else 8
        assert not row_error.unheld([policy, policy], most), release
    assert row_error.unheld(["eevdf:version=7.3", "eevdf:version=6.18"], 3) == [
        "eevdf:version=6.18 on more than 2 CPUs"
    ]
    for policy in ("eevdf:version=6.6", "cfs:form=2.6.32", "rr", "ule:form=2022"):
        assert row_error.unheld(["eevdf:version=6.12", policy], 1) == [policy]
    assert row_error.unheld(["eevdf"], 9, {"deadline"}) == ["SCHED_DEADLINE", "more than 8 CPUs"]


def test_rows_of_deadline_tasks_are_not_validated(trace: tk.Trace) -> None:
    asked = Scenario(overrides=(parse_set("waker*: deadline=2ms/10ms/10ms"),))
    found = tk.compare(trace, scenario=asked, runs=2)
    assert found.table["validated"].max() == 0
    assert any("never held against real captures: SCHED_DEADLINE. " in s for s in found.not_recorded)


def test_rows_of_more_cpus_than_any_capture_had_are_not_validated() -> None:
    demo = Path(__file__).parents[1] / "fixtures" / "demo" / "slice-default.dat"
    for cpus, named in ((9, "more than 8 CPUs. "), (5, "another number of CPUs beyond 4. ")):
        found = tk.compare(demo, cpus=cpus, runs=2)
        assert found.table["validated"].max() == 0
        assert any(f"never held against real captures: {named}" in s for s in found.not_recorded)
    found = tk.compare(demo, cpus=4, runs=2)
    assert (found.table["validated"].max() or 0) > 0


def test_a_sampling_term_that_covers_too_much_is_scaled_down() -> None:
    """Errors of 0.02 beside a sampling error of 0.1: whole, it would cover everything."""
    draw = random.Random(3)

    def cases(families: str, part: float) -> list[row_error.Case]:
        size = part / 1.6448536
        return [
            row_error.Case(f, abs(draw.gauss(0, size)), np.hypot(0.001, 0.1), 0.0, 0.1)
            for f in families
            for _ in range(120)
        ]

    made = row_error.fit(
        {("same scheduler", "counts"): cases("abc", 0.02), ("other kernel", "share"): cases("abc", 0.3)}
    )
    scale = row_error.sampling_scale(made, "counts")
    assert scale == pytest.approx(0.2, abs=0.04)
    fresh = cases("d", 0.02)
    inside = [c.error <= np.hypot(0.001, scale * c.sampling) for c in fresh]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.07)
    assert np.mean([c.error <= c.measured for c in fresh]) == 1.0
    # Where the whole does not cover, it stays whole, and the model error is what is missing.
    assert row_error.sampling_scale(made, "share") == 1.0
    assert made["other kernel", "share"].base == pytest.approx(0.28, abs=0.08)
    assert row_error.sampling_scale(made, "run delay") == 1.0, "never measured"
    text = row_error.to_toml(made, "here")
    assert f"sampling = {scale:.4f}" in text
    assert text.count("sampling") == 1


def test_few_rows_with_kernel_work_share_the_entry_of_their_class() -> None:
    light = [row_error.Case("ab"[i % 2], 0.05, 0.0, 0.0) for i in range(60)]
    heavy = [row_error.Case("ab"[i % 2], 0.3, 0.0, 0.9) for i in range(4)]
    key = ("other kernel", "mean slice")
    made = row_error.fit(
        {key: light + heavy, ("other kernel", "response"): [replace(c, error=0.9) for c in light]}
    )
    assert row_error.width_of(made, *key, 0.9) == (made[key].base, 64), "not the widest of other metrics"


def test_every_metric_has_a_class(trace: tk.Trace) -> None:
    found = tk.analysis.compare.metrics(trace.slices, trace.runqueue, trace.states, trace.end_ns)
    classes = {row_error.metric_class(m, s) for m, s in found.select("metric", "statistic").iter_rows()}
    assert classes == {*row_error.METRIC_CLASSES, ""}


def test_what_nothing_models_is_named(trace: tk.Trace) -> None:
    assert split("cfs:latency=6ms") == ("cfs:latency=6ms", ())
    assert split("rr:uclamp=on,quantum=5ms") == ("rr:quantum=5ms", ("utilisation clamping",))
    assert split("cfs:uclamp=off") == ("cfs", ())
    assert split("cfs:latncy=6ms") == ("cfs:latncy=6ms", ()), "a slip is for the parser"
    found = unmodelled_features({"HRTICK": True, "PROXY_EXEC": True, "PLACE_LAG": True}, "rr")
    assert found == ("HRTICK, a timer that ends slices between ticks", "proxy execution")
    with pytest.raises(NotModelledError, match="nothing models utilisation clamping") as raised:
        tk.compare(trace, "cfs:uclamp=on")
    assert raised.value.what == ("utilisation clamping",)
    forced = tk.compare(trace, "cfs:uclamp=on", runs=2, force=True).table
    assert set(forced["trust"]) == {"do not use"}
    assert forced["trust_why"].str.starts_with("not modelled: utilisation clamping").all()


def test_a_first_look_is_judged_by_what_needs_no_repetitions(demo: Path) -> None:
    """It said of a feature that nothing models that it changes nothing."""
    trace = tk.read(demo)
    forced = tk.compare(trace, "cfs:uclamp=on", runs=1, force=True)
    assert set(forced.table["trust"]) == {"do not use"}
    (finding,) = headline.findings(forced)
    assert "none of 10 metrics is to be used: not modelled: utilisation clamping" in finding.sentence
    plain = tk.compare(trace, "cfs:wakeup_preemption=off", runs=1).table
    assert set(plain["trust"]) == {"with care", "do not use"}
    assert plain.filter(trust="with care")["trust_why"].str.contains("each replay ran once").all()
    few = plain.filter(pl.col("n_recorded") < 20, pl.col("predicted").is_not_null(), metric="response")
    assert few.height
    assert set(few["verdict"]) == {"not in this trace"}
    # One reason for all, which the terminal gives once: no column of intervals.
    known = plain.filter(pl.col("predicted").is_not_null())
    assert set(known["no_interval"]) == {"each replay ran once"}


def test_the_command_refuses_with_status_4_unless_forced(demo: Path) -> None:
    arguments = ["compare", str(demo), "--policy", "cfs:uclamp=on", "--runs", "2"]
    refused = CliRunner().invoke(main, arguments, prog_name="tracekit")
    assert refused.exit_code == 4
    assert "nothing models utilisation clamping" in refused.output
    forced = CliRunner().invoke(main, [*arguments, "--force"], prog_name="tracekit")
    assert forced.exit_code == 0, forced.output


def test_one_policy_is_one_policy(trace: tk.Trace) -> None:
    assert list(tk.compare(trace, "fifo", runs=1).replays) == ["fifo"]


def test_a_cpu_that_ran_next_to_nothing_has_no_known_speed(tmp_path: Path) -> None:
    (tmp_path / "a.wl").write_text(
        "policy: eevdf\nuntil: 1000\ncpus: 2\nA cpus=0: R∞\nB cpus=0: (R1 S4)*\nC cpus=1: (R0.01 S20)*"
    )
    tk.generate(tmp_path / "a.wl", tmp_path / "a.parquet", to="parquet")
    trace = tk.read(tmp_path / "a.parquet")
    there = tk.compare(trace, "eevdf:base_slice=9ms")
    moved = tk.compare(trace, "eevdf", scenario={"A": {"cpus": "1"}})
    said = "the recording hardly used CPU 1, so that its speed is not known"
    assert said not in there.table["no_interval"].to_list()
    rows = moved.table.filter(pl.col("metric_class") != "", pl.col("predicted").is_not_null())
    assert rows["low"].is_null().all()
    assert said in rows["no_interval"].to_list()


def test_doctor_and_compare_agree_about_a_trace_without_wakeups(tmp_path: Path) -> None:
    (tmp_path / "a.wl").write_text("policy: cfs\nuntil: 1000\nH*2: R∞\nT*3: (R2 S5)*")
    tk.generate(tmp_path / "a.wl", tmp_path / "a.txt", to="ftrace")
    whole = (tmp_path / "a.txt").read_text().splitlines(keepends=True)
    (tmp_path / "less.txt").write_text(
        "".join(line for line in whole if "waking:" not in line and "wakeup" not in line)
    )
    (tmp_path / "hogs.wl").write_text("policy: cfs\nuntil: 200\nH*2: R∞")
    for name, said in (("a.txt", False), ("less.txt", True), ("hogs.wl", False)):
        trace = tk.read(tmp_path / name)
        why = "no record says who woke whom"
        assert (why in fitness(trace, seconds=60).because) == said, name
        found = tk.compare(trace, "cfs:latency=24ms", runs=3)
        assert (why in (found.poor or "")) == said, name
        if name != "hogs.wl":
            assert ("trusted" in found.table["trust"].to_list()) != said, name
