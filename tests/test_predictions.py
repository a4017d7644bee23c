"""Comparisons with repeated replays: intervals, two outcomes, and the calibration beside each prediction."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.analysis.compare import IDENTITY
from tracekit.cli import main
from tracekit.whatif.comparison import Comparison
from tracekit.whatif.predictions import shows, to_halve
from tracekit.whatif.row_error import METRIC_CLASSES, RowError
from tracekit.whatif.trust import RULE_OF, p_value, q_values

#: Two tasks wake at the same time; who comes first is a matter of nanoseconds, and decides the mean response.
RACE = "until: 2000\nX: S10 R100\nY: S10 R300\nZ: S900 R1"


@pytest.fixture(scope="module")
def compared(trace: tk.Trace) -> Comparison:
    return tk.compare(trace, {"off": "cfs:wakeup_preemption=off", "idle": "cfs:latency=6ms"})


def row(found: Comparison, policy: str, metric: str, statistic: str = "mean", group: str = "spin") -> dict:
    return found.table.filter(policy=policy, metric=metric, statistic=statistic, group=group).row(
        0, named=True
    )


def test_the_real_figure_lies_in_the_interval(compared: Comparison) -> None:
    # The programs measured 3.9 ms without wakeup preemption on the real kernel.
    found = row(compared, "off", "slice_per_involuntary")
    assert found["low"] < 3.9e6 < found["high"]
    assert found["low"] < found["predicted"] < found["high"]
    assert found["high"] / found["low"] < 2
    assert found["verdict"] == "resolved"


def test_nothing_changed_is_not_resolved(compared: Comparison) -> None:
    rows = compared.table.filter(policy="idle").filter(pl.col("predicted").is_not_null())
    assert set(rows["verdict"]) <= {"not resolved", "not measured", "not in this trace"}
    assert rows["change_pct"].abs().max() == 0


def test_the_interval_is_made_of_its_parts(compared: Comparison) -> None:
    found = row(compared, "off", "run_delay", "p95")
    assert min(found["sampling_low_pct"], found["sampling_high_pct"]) > 0
    assert found["measured_pct"] > max(found["sampling_low_pct"], found["sampling_high_pct"])
    assert found["half_width_pct"] >= found["measured_pct"]
    down, up = math.log(found["predicted"] / found["low"]), math.log(found["high"] / found["predicted"])
    assert max(down, up) == pytest.approx(found["half_width_pct"] / 100)
    sides = [found[f"sampling_{side}_pct"] / 100 for side in ("low", "high")]
    assert down**2 - up**2 == pytest.approx(sides[0] ** 2 - sides[1] ** 2)
    assert down != up, "the sample is skewed"


def test_no_interval_without_a_sampling_term_and_a_reason_in_its_place(compared: Comparison) -> None:
    table = compared.table
    given = table.filter(pl.col("low").is_not_null())
    assert given.height > 20
    assert given["sampling_low_pct"].null_count() == given["sampling_high_pct"].null_count() == 0
    assert (table["low"].is_null() == table["no_interval"].is_not_null()).all()
    few = table.filter(pl.col("n_recorded") < 20)
    assert few.height > 20
    assert few["low"].null_count() == few.height
    assert {"wakeup_latency", "runqueue", "involuntary_switches"} & set(given["metric"])


def test_the_median_of_the_repetitions_is_the_identity_everywhere(compared: Comparison) -> None:
    keys = ["scope", "group", "metric", "statistic"]
    one = compared.calibration.select(*keys, "identity", "error_pct", "calibration")
    both = compared.table.join(one, on=keys, nulls_equal=True, suffix="_c")
    assert both.height == compared.table.height
    assert both["identity"].equals(both["identity_c"])
    assert both["calibration"].equals(both["calibration_c"])
    assert compared.repeated is not None
    runs = [frame for _, frame in compared.repeated.figures[IDENTITY]]
    assert len(runs) == 9
    each = [
        frame.filter(scope="group", group="spin", metric="slice_per_involuntary")["value"].item()
        for frame in runs
    ]
    found = row(compared, "off", "slice_per_involuntary")
    assert found["identity"] == statistics.median(each)
    plain = compared.identity.slices.filter(pl.col("comm").cast(pl.String).str.starts_with("spin"))
    assert found["identity_plain"] == pytest.approx(plain["dur_ns"].sum() / plain["involuntary"].sum())
    # Perturbations break the phase of the two wakers: the row says so, and has both values.
    found = row(compared, "off", "involuntary_switches", "total")
    assert found["phase_sensitive"]
    assert found["identity_plain"] == pytest.approx(3_200, rel=0.02)
    assert found["identity"] == pytest.approx(3_128, rel=0.01)
    assert "small shifts in time change it" in found["trust_why"]


def test_each_row_is_judged_by_its_own_error(compared: Comparison) -> None:
    assert set(compared.table["calibration"]) <= {"pass", "fail", "not measured"}
    assert set(RULE_OF) == set(compared.table["metric"])
    few = compared.table.filter(pl.col("n_recorded") < 20, pl.col("metric") != "runqueue")
    assert set(few["calibration"]) == {"not measured"}
    assert set(compared.table["trust"]) <= {"trusted", "with care", "do not use"}
    assert compared.table.filter(trust="do not use", trust_why="").is_empty()
    assert sum(compared.predictable.values()) == pytest.approx(1)
    page = compared.to_html()
    assert "how well they repeat the recording" in page
    assert "run time per involuntary switch, of all tasks together" in page
    assert "90 % interval" in page
    assert "run-queue clock to tracepoint offset" in page


def test_what_hardly_ran_is_not_in_this_trace(compared: Comparison) -> None:
    rows = compared.table.filter(policy="off", verdict="not in this trace")
    assert rows.height > 10
    assert rows["low"].null_count() == rows.height
    assert set(rows["trust"]) == {"do not use"}
    assert not rows["resolved"].any()


@pytest.mark.parametrize(
    ("bound", "predicted", "shown"),
    [(True, 0.7e6, False), (True, 7e6, True), (False, 0.7e6, True), (None, 0.7e6, True)],
)
def test_a_lower_bound_shows_no_fall(bound: bool | None, predicted: float, shown: bool) -> None:
    assert shows({"predicted_is_bound": bound, "predicted": predicted, "identity": 3e6}) is shown


def test_a_change_is_held_against_the_side_on_which_the_identity_lies(compared: Comparison) -> None:
    rows = [r for r in compared.table.filter(policy="off").to_dicts() if r["resolved"] is not None]

    def side(row: dict) -> float | None:
        if row["low"] is None:
            return None if row["measured_pct"] is None else row["measured_pct"] / 100
        ends = (
            (row["predicted"], row["low"])
            if row["identity"] < row["predicted"]
            else (row["high"], row["predicted"])
        )
        return math.log(ends[0] / ends[1])

    wide = [r["half_width_pct"] / 100 if r["low"] is not None else side(r) for r in rows]
    held = [r["q_value"] for r in rows]
    q, of_wider = (
        q_values([p_value(r["predicted"], r["identity"], w) for r, w in zip(rows, widths, strict=True)])
        for widths in ([side(r) for r in rows], wide)
    )
    assert held == [None if v is None else pytest.approx(v) for v in q]
    assert held != [None if v is None else pytest.approx(v) for v in of_wider]


def test_a_class_that_was_never_measured_is_not_validated(trace: tk.Trace, compared: Comparison) -> None:
    assert compared.repeated is not None
    bare = replace(compared.repeated, errors={})
    none = Comparison(trace, compared.identity, compared.replays, repeated=bare).table
    assert set(none["validated"]) == {0}
    assert none["low"].null_count() == none.height
    assert "trusted" not in set(none["trust"])
    other = {
        ("same scheduler", m): RowError("same scheduler", m, 0.2, None, 50, 3) for m in METRIC_CLASSES[:1]
    }
    some = Comparison(trace, compared.identity, compared.replays, repeated=replace(bare, errors=other)).table
    wide = some.filter(pl.col("low").is_not_null())
    assert wide.filter(pl.col("metric_class") == "mean slice")["validated"].unique().to_list() == [50]
    rest = wide.filter(pl.col("metric_class") != "mean slice")
    assert rest["validated"].unique().to_list() == [0]
    assert rest["half_width_pct"].min() >= 20
    assert rest["trust_why"].str.contains("never held against real captures").all()


def test_two_outcomes_are_told() -> None:
    trace = tk.simulate(RACE, "fifo")
    found = tk.compare(trace, {"again": "fifo"}, identity="fifo", by="all")
    table = found.table.filter(metric="response", statistic="p50", scope="group")
    one = table.row(0, named=True)
    assert one["bimodal_low"] == pytest.approx(100e6, rel=0.01)
    assert one["bimodal_high"] == pytest.approx(300e6, rel=0.01)
    assert one["verdict"] == "not in this trace", "there are five responses"
    assert "bimodal: 100 ms or 300 ms" in found.to_html()


def test_the_command_prints_intervals_and_calibration(demo: Path, tmp_path: Path) -> None:
    arguments = ["compare", str(demo), "--policy", "cfs:wakeup_preemption=off", "--runs", "3"]
    done = CliRunner().invoke(main, [*arguments, "--json", str(tmp_path / "x.json")], prog_name="tracekit")
    assert done.exit_code == 0, done.output
    assert "90 % interval" in done.output
    assert "calibration: " in done.output
    answer = json.loads((tmp_path / "x.json").read_text())
    assert answer["repetitions"] == 3
    assert {r["metric"] for r in answer["fidelity"]} >= {"main", "switches"}
    assert {r["name"] for r in answer["inferred"]} >= {"tick phase", "timer slack"}
    assert all("low" in r and "calibration" in r for r in answer["comparison"])


def test_without_repetitions_there_is_no_interval(trace: tk.Trace) -> None:
    found = tk.compare(trace, ["fifo"], runs=1)
    assert found.repetitions == 1
    assert found.table["low"].null_count() == found.table.height
    # What a picture would show with repetitions is in its "How to read it".
    assert ", 90 % interval<" not in found.to_html()


def test_how_much_more_to_record_for_half_the_interval() -> None:
    assert to_halve(10.0, 10.0, 2e9) == pytest.approx(6e9), "four times as long in all"
    more = to_halve(10.0, 9.0, 1e9)
    assert more is not None
    # With that recording, the sampling part and the others make half of what it was.
    left = 9.0**2 / (1 + more / 1e9) + (10.0**2 - 9.0**2)
    assert left == pytest.approx(5.0**2)
    assert to_halve(10.0, 8.0, 1e9) is None, "the others alone are 6"
    assert to_halve(None, 1.0, 1e9) is None
