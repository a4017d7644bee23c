"""Predictions held against a recording of what they predict."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.errors import ReplayError
from tracekit.whatif.held import Held, with_real
from tracekit.whatif.predictions import again

TEXT = "policy: rr:quantum=2ms\nuntil: 900\nA: (R3 S2)*\nB: (R1 S4)*\nH: R∞"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments), prog_name="tracekit")
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A recording, and the same under another quantum."""
    folder = tmp_path_factory.mktemp("held")
    a, b = str(folder / "a.parquet"), str(folder / "b.parquet")
    tk.simulate(TEXT).write(a)
    tk.simulate(TEXT, "rr:quantum=8ms").write(b)
    return a, b


def test_a_prediction_of_what_was_recorded_is_inside(files: tuple[str, str]) -> None:
    a, b = files
    found = tk.compare(a, "rr:quantum=8ms", identity="rr:quantum=2ms", real=b)
    rows = found.table.filter(pl.col("inside").is_not_null())
    assert rows.height >= 10
    assert found.held is not None
    assert found.held.by_trust["rows"].sum() == rows.height
    assert found.held.by_trust["inside"].sum() == rows["inside"].sum()
    assert rows["inside"].mean() > 0.8, "the replay is of the same programs"
    told = found.held.sentences[-1]
    assert told.startswith(f"{rows['inside'].sum():,} of {rows.height:,} real values of b.parquet lie inside")


def test_another_recording_is_not_inside(files: tuple[str, str]) -> None:
    a, _ = files
    wrong = tk.compare(a, "rr:quantum=40ms", identity="rr:quantum=2ms", real=a)
    hog = wrong.table.filter(group="H", metric="slice", statistic="mean").row(0, named=True)
    assert hog["inside"] is False
    assert hog["real"] == pytest.approx(hog["recorded"])


def test_no_interval_and_few_samples_say_nothing() -> None:
    rows = [("a", 90.0, 110.0), ("b", None, None), ("c", 90.0, 110.0), ("d", 90.0, 110.0)]
    table = pl.DataFrame(
        [
            {
                "scope": "group",
                "group": g,
                "metric": "slice",
                "statistic": s,
                "low": low,
                "high": high,
                "trust": "trusted",
            }
            | {"predicted": 100.0}
            for (g, low, high), s in zip(rows, ("mean", "mean", "mean", "total"), strict=True)
        ]
    )
    real = table.select(
        "scope", "group", "metric", "statistic", value=pl.lit(105.0), n=pl.Series([30, 30, 19, None])
    )
    assert with_real(table, real)["inside"].to_list() == [True, None, None, True]
    assert with_real(table, real, totals=False)["real"].to_list() == [105, 105, 105, None]
    held = Held.of(with_real(table, real), "b")
    assert held.by_trust.row(0) == ("trusted", 2, 2, pytest.approx(1 - 100 / 105))


def test_a_recording_of_another_length_or_of_other_cpus_is_named(files: tuple[str, str]) -> None:
    a, _ = files
    short = tk.simulate(TEXT.replace("900", "600"))
    found = tk.compare(a, "rr:quantum=8ms", identity="rr:quantum=2ms", real=short, cpus=2)
    assert found.held is not None
    said = " ".join(found.held.unlike)
    assert "0.6 s long" in said
    assert "totals are not held against it" in said
    assert "was recorded on 1 CPU, the replay has 2 CPUs" in said
    assert (
        found.table.filter(statistic="total")["real"].null_count()
        == found.table.filter(statistic="total").height
    )


def test_the_command_holds_predictions_against_a_recording(files: tuple[str, str], tmp_path: Path) -> None:
    a, b = files
    page = tmp_path / "page.html"
    asked = ["compare", a, "--policy", "rr:quantum=8ms", "--identity", "rr:quantum=2ms", "--real", b, "-q"]
    code, text = run(*asked, "-o", str(page))
    assert code == 0, text
    assert "real values of b.parquet lie inside their 90 % interval" in text
    assert "real values of b.parquet lie inside" in page.read_text()
    assert "real: " in page.read_text()
    code, text = run(*asked, "--json")
    assert code == 0, text
    answer = json.loads(text)
    assert answer["held"]["name"] == "b.parquet"
    assert {"real", "n_real", "inside"} <= set(answer["comparison"][0])
    code, text = run(*asked, "--policy", "fifo")
    assert code == 2
    assert "a recording under one policy; 2 were given" in text
    code, text = run(*asked[:-2], "none.dat")
    assert code == 2
    assert "none.dat: no such file" in text
    with pytest.raises(ValueError, match="a recording is under one policy"):
        tk.compare(a, ["fifo", "rr"], real=b)


def test_without_a_policy_the_one_of_the_recording_is_used(files: tuple[str, str]) -> None:
    a, _ = files
    found = tk.compare(a, scenario={"A*": {"policy": "fifo", "prio": 10}}, identity="rr:quantum=2ms", runs=1)
    assert list(found.replays) == ["A*: policy=fifo,prio=10"]
    assert found.replays["A*: policy=fifo,prio=10"].metadata["replay.policy"].startswith("rr:quantum=2ms")
    code, text = run(
        "compare", a, "--identity", "rr:quantum=2ms", "--set", "A: policy=fifo,prio=10", "--quick", "-q"
    )
    assert code == 0, text
    assert text.startswith("A: policy=fifo,prio=10 changes")
    for command in ("compare", "replay"):
        code, text = run(command, a, "-q")
        assert code == 2
        assert "nothing is asked for: give a --policy" in text
    code, text = run("compare", a, "--hz", "1000", "-q")
    assert code == 2
    assert "--hz says how often the clock of the recorded machine ticks" in text


def test_a_comparison_is_no_place_for_another_clock_tick(demo: Path, tmp_path: Path) -> None:
    stated = tk.simulate("policy: cfs\nuntil: 100\nhz: 250\nA*3: (R5 S3)*")
    with pytest.raises(ReplayError, match="hz=1000: the trace says 250"):
        tk.compare(stated, "eevdf", hz=1000, runs=1)
    assert tk.compare(stated, "eevdf", hz=250, runs=1).summary.height
    path = tmp_path / "t.dat"
    path.write_bytes(demo.read_bytes())
    path.with_name("t.machine.toml").write_text('schema = 1\n[kernel]\nos = "linux"\nhz = 250\n')
    with pytest.raises(ReplayError, match="hz=1000: the file of the machine says 250"):
        tk.compare(path, "cfs", hz=1000, runs=1)
    assert tk.compare(demo, "cfs", hz=250, runs=1).summary.height, "nothing says otherwise"


def test_a_replay_is_of_the_recorded_policy_where_none_is_named(demo: Path) -> None:
    trace = tk.read(demo)
    assert (
        tk.replay(trace).policy == tk.replay(trace, tk.compare(trace, "fifo", runs=1).identity_policy).policy
    )
    code, text = run("replay", str(demo), "--cpus", "1", "-q")
    assert code == 0, text
    assert "under cfs:form=" in text


def test_short_times_differ_by_a_switch() -> None:
    assert again(4000, "slice", 4000, None) == pytest.approx(math.log(2))
    assert again(4000, "run_delay", 4e6, 1.0) == pytest.approx(0.001, rel=1e-3)
    assert again(4000, "cpu_time", 4e9, 12000) == pytest.approx(math.log(4 / 3)), "by the mean slice"
    assert again(4000, "switches", 100, 12000) == 0
    assert again(4000, "cpu_time", 4e9, None) == 0
    assert again(0, "slice", 4000, None) == 0


def test_what_a_switch_costs_is_a_part_of_the_interval(demo: Path) -> None:
    found = tk.compare(demo, "cfs:wakeup_preemption=off")
    rows = found.table.filter(pl.col("low").is_not_null(), pl.col("metric") == "run_delay")
    assert rows.height
    x = found.repeated.switch_ns if found.repeated else 0
    assert x > 0
    for row in rows.iter_rows(named=True):
        assert row["switch_pct"] == pytest.approx(100 * math.log1p(x / row["predicted"]))
        assert row["half_width_pct"] >= math.hypot(row["measured_pct"], row["switch_pct"]) - 1e-9
    stated = tk.compare(TEXT, "rr:quantum=8ms")
    assert stated.repeated is not None
    assert stated.repeated.switch_ns == 0, "what is stated costs what it costs"
