"""`tracekit.whatif.learn`: parameters of the scheduler learned from a trace; groups in replays;
servers of the lab."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.errors import ReplayError
from tracekit.whatif import learn
from tracekit.whatif.groups import read_map
from tracekit.whatif.learn import infer_parameters, lines
from tracekit.whatif.likelihood import quantile90
from tracekit.whatif.scenario import group_settings, parse_set

HOGS = "policy: {policy}\nhz: 1000\nA*6: R∞\nS*2: (R0.1 S3)*\nuntil: 600\n"


def test_the_base_slice_that_made_a_trace_is_found_again() -> None:
    trace = tk.simulate(HOGS.format(policy="eevdf:base_slice=2800000ns"))
    found = infer_parameters(trace, family="eevdf:version=6.12")
    base = next(f for f in found.findings if f.name == "base_slice")
    values = [int(v.removesuffix("ns")) for v in base.likely]
    assert min(values) <= 2_800_000 <= max(values) * 1.3
    assert not base.flat
    assert 2_800_000 / 1.3 <= int(base.best.removesuffix("ns")) <= 2_800_000 * 1.3
    assert found.stock, lines(found)


def test_of_hogs_whose_slices_end_at_ticks_no_base_slice_below_is_ruled_out(tmp_path: Path) -> None:
    path = tmp_path / "hogs.parquet"
    tk.simulate("policy: eevdf:base_slice=1400000ns\nhz: 250\nA*5: R∞\nuntil: 2000\n").filter(
        comm="A*"
    ).write(path)
    (tmp_path / "hogs.parquet.machine.toml").write_text(
        "schema = 1\n[scheduler.tunables]\nbase_slice_ns = 1400000\n"
    )
    found = infer_parameters(tk.read(path), family="eevdf:version=6.12")
    base = next(f for f in found.findings if f.name == "base_slice")
    values = [int(v.removesuffix("ns")) for v in base.likely]
    assert min(values) < 250_000 < 3_000_000 < max(values)
    assert "; the machine's file states 1.4ms, inside" in lines(found)[0]


def test_the_factor_of_a_set_grows_with_what_is_compared() -> None:
    # The first is Student's; the last was drawn at random, 400,000 times.
    assert quantile90(2, 4) == pytest.approx(1.533, abs=0.01)
    assert quantile90(2, 100) < quantile90(10, 100) < quantile90(25, 100) < quantile90(25, 4)
    assert quantile90(10, 4) == pytest.approx(2.82, abs=0.03)


def test_a_trace_without_choices_says_nothing() -> None:
    found = infer_parameters(tk.simulate("A: R5\nB: R3", policy="fifo"), family="cfs:form=6.1")
    assert "0 slices ended by preemption" in found.refused
    assert not found.findings
    assert lines(found) == [found.refused]


def test_a_trace_without_wakeups_says_nothing_where_tasks_sleep(tmp_path: Path) -> None:
    def recorded(text: str) -> tk.Trace:
        path = tmp_path / "t.txt"
        tk.generate(text, path, "ftrace")
        kept = [line for line in path.read_text().splitlines() if ": sched_wak" not in line]
        path.write_text("\n".join(kept) + "\n")
        return tk.read(path, cache=None)

    slept = infer_parameters(recorded(HOGS.format(policy="eevdf")), family="eevdf:version=6.12")
    assert slept.refused.startswith("no wakeups were recorded")
    assert lines(slept) == [slept.refused]
    hogs = recorded("policy: eevdf\nhz: 1000\nA*3: R∞\nuntil: 100\n")
    assert not hogs.missing().wakeups
    assert not infer_parameters(hogs, family="eevdf:version=6.12").refused.startswith("no wakeups")


def test_settings_of_a_group_are_no_attributes_of_tasks() -> None:
    override = parse_set("group:web: weight=300, quota=50ms/100ms")
    assert (override.key, override.value) == ("group", "web")
    assert group_settings([override, parse_set("A*: nice=5")]) == [
        ("web", [("weight", "300"), ("quota", "50ms/100ms")])
    ]
    assert str(override) == "group:web: weight=300,quota=50ms/100ms"


def test_a_map_of_groups_is_read_and_refused_by_line(tmp_path: Path) -> None:
    table = tmp_path / "a.groups.tsv"
    head = "pid\tcomm\tgroup\tcpu_weight\tcpu_max\n"
    table.write_text(head + "7\tweb0\t/web\t300\t50000 100000\n")
    overrides, groups = read_map(table)
    assert [(o.value, o.settings) for o in overrides] == [("web0", (("group", "web"),))]
    assert groups == [("web", [("weight", "300"), ("quota", "50000us/100000us")])]
    table.write_text(head + "7\tweb0\t/web\tmany\tmax 100000\n")
    with pytest.raises(ReplayError, match=r"a\.groups\.tsv:2: expected a weight"):
        read_map(table)


def test_groups_share_a_cpu_by_weight_in_the_replay_of_a_trace() -> None:
    trace = tk.simulate("A: R∞\nB*3: R∞\nuntil: 600", policy="eevdf")
    sets = ["A: group=one", "B*: group=three", "group:one: weight=100", "group:three: weight=300"]
    replay = tk.replay(trace, "eevdf", scenario=[parse_set(s) for s in sets])
    run = dict(replay.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum()).iter_rows())
    assert run["A"] / sum(run.values()) == pytest.approx(0.25, abs=0.03)
    alone = tk.replay(trace, "eevdf", scenario=[parse_set("A: group=one"), parse_set("group:one: weight=1")])
    run = dict(alone.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum()).iter_rows())
    assert run["A"] / sum(run.values()) < 0.05


def test_a_group_setting_that_means_nothing_is_refused() -> None:
    trace = tk.simulate("A: R5", policy="eevdf")
    with pytest.raises(
        ReplayError, match="no attribute prio of a group; valid are weight, nice, quota, idle"
    ):
        tk.replay(trace, "eevdf", scenario=[parse_set("group:web: prio=5")])


def test_a_group_without_tasks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hogs.parquet"
    tk.simulate("A: R∞\nB: R∞\nuntil: 300", policy="eevdf").filter(comm=["A", "B"]).write(path)
    sets = ["A: group=web/db", "group:web: quota=20ms/100ms"]
    limited = tk.replay(path, "eevdf", scenario=[parse_set(s) for s in sets])
    run = dict(
        limited.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum()).iter_rows()
    )
    assert run["A"] / sum(run.values()) < 0.3
    nobody = "no task of this trace is known to be in web"
    with pytest.raises(ReplayError, match=f"{nobody}; say who is"):
        tk.replay(path, "eevdf", scenario=[parse_set(sets[1])])
    with pytest.raises(ReplayError, match=f"{nobody}; groups with tasks are wbe; say who is"):
        tk.replay(path, "eevdf", scenario=[parse_set(s) for s in ("A: group=wbe", sets[1])])


def test_cpus_that_a_replay_has_not_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hogs.parquet"
    tk.simulate("cpus: 2\nA*2: R∞\nB: R∞\nuntil: 300", policy="eevdf").filter(comm=["A*", "B"]).write(path)
    for text, cpus, there in (
        ("B: cpus=9", None, "0-1"),
        ("B: cpus=2-5+7", None, "0-1"),
        ("B: cpus=1", 1, "0"),
    ):
        with pytest.raises(
            ReplayError, match=f"{text}: the replay has no such CPU; it has {there}$".replace("+", "[+]")
        ):
            tk.replay(path, "eevdf", scenario=[parse_set(text)], cpus=cpus)
    run = tk.replay(path, "eevdf", scenario=[parse_set("B: cpus=2+9")], cpus=3)
    assert run.slices.filter(comm="B")["cpu"].unique().to_list() == [2]


def test_a_policy_without_groups_refuses_them_by_name() -> None:
    trace = tk.simulate("A: R5", policy="fifo")
    for text in ("group:web: weight=300", "A: group=web"):
        for policy in ("o1", "cfs:form=2.6.32"):
            with pytest.raises(
                ReplayError, match=r"does not model groups; expected cfs \(form 6.1\) or eevdf"
            ):
                tk.replay(trace, policy, scenario=[parse_set(text)])


def test_stated_times_are_scaled_by_all_cpus_idle_ones_too() -> None:
    """A kernel scales by those that are online, as a replay does by those of the trace."""
    run = tk.simulate("cpus: 4\nA: R50", "cfs")
    assert (run.cpus.height, run.slices["cpu"].n_unique()) == (4, 1)
    machine = "schema = 1\n[scheduler.tunables]\nmin_granularity_ns = 2250000\n"
    assert learn._stated(run.with_metadata({**run.metadata, "machine": machine}), "cfs") == {
        "min_granularity": "750000ns"
    }
