"""What scheduling costs: given by name, in Python, on the command line, in a file; and the
experiment of the guide."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

import tracekit as tk
from tracekit.cli import main
from tracekit.errors import ReplayError
from tracekit.whatif.scenario import load, parse_set

GUIDE = Path(__file__).parent.parent / "docs" / "guide" / "costs.md"


def run(*args: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in args], prog_name="tracekit")
    assert result.exit_code == status, (result.output, result.exception)
    return result


def busy(trace: tk.Trace) -> int:
    return int(trace.slices["dur_ns"].sum())


@pytest.fixture(scope="module")
def pair() -> tk.Replay:
    """Two tasks that run and sleep, and make a task each."""
    turn = "(R3 S5)*4"
    return tk.simulate(
        f"policy: fifo\nA: {turn} F(C) S1 {turn}\nB: {turn} F(D) S1 {turn}\nC start=fork: R1 S1 R1\nD start=fork: R1 S1 R1"
    )


def test_a_given_cost_replaces_the_measured_one(pair: tk.Replay) -> None:
    free = tk.replay(pair, "fifo", overheads=False)
    dear = tk.replay(pair, "fifo", overheads=False, costs={"switch": "100us"})
    assert busy(free) == busy(pair)
    assert busy(dear) == busy(free) + dear.slices.height * 100_000
    assert dear.metadata["replay.costs"] == "switch=100us"
    assert "replay.costs" not in free.metadata


def test_each_model_of_forks_gives_its_cost(pair: tk.Replay) -> None:
    free = busy(tk.replay(pair, "fifo", overheads=False))

    def extra(fork: str) -> int:
        return busy(tk.replay(pair, "fifo", overheads=False, costs={"fork": fork})) - free

    assert extra("bitmap:50us") == extra("table:50us/1us") == 100_000
    # A forks beside B, and B beside A and perhaps C: two or three are alive.
    assert extra("list:50us/10us") - 100_000 in (40_000, 50_000)


@pytest.mark.parametrize(
    ("costs", "says"),
    [
        ({"swich": "1us"}, "no cost swich; did you mean switch? Valid are switch"),
        ({"switch": "fast"}, "cost switch=fast: expected a time such as 3us"),
        ({"fork": "tree:1us"}, "expected list:BASE/EACH"),
    ],
)
def test_a_cost_that_means_nothing_is_refused(pair: tk.Replay, costs: dict[str, str], says: str) -> None:
    with pytest.raises(ReplayError, match=re.escape(says)):
        tk.replay(pair, "fifo", costs=costs)


def test_the_command_line_takes_costs_and_options_win_over_the_file(pair: tk.Replay, tmp_path: Path) -> None:
    trace, file = tmp_path / "pair.parquet", tmp_path / "s.toml"
    pair.write(trace)
    file.write_text('policy = "fcfs"\n[cost]\nswitch = "1ms"\nfork = "list:1ms/1us"\n')
    assert load(file).costs == {"switch": "1ms", "fork": "list:1ms/1us"}
    out = tmp_path / "out.parquet"
    run("replay", trace, "--scenario", file, "--cost", "switch=2ms", "-o", out)
    assert tk.read(out).metadata["replay.costs"] == "switch=2ms,fork=list:1ms/1us"
    assert tk.read(out).metadata["replay.policy"] == "fifo:queue=cpu"
    assert (
        "expected KEY=TIME" in run("replay", trace, "--policy", "fifo", "--cost", "switch", status=2).stderr
    )
    wrong = run("replay", trace, "--policy", "fifo", "--cost", "fork=x", status=2)
    assert "cost fork=x: expected list:BASE/EACH" in wrong.stderr
    rows = json.loads(run("policies", "costs", "--json").stdout)
    assert {"switch", "scan", "recalc", "second", "fork"} <= {row["name"] for row in rows}
    assert "list:BASE/EACH" in run("policies", "costs").stdout


@pytest.fixture(scope="module")
def experiment() -> Any:
    """The function of the guide."""
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    assert found is not None
    space: dict[str, Any] = {}
    exec(found[1], space)
    return space["fork_exit_wait"]


def test_the_guide_tells_what_its_experiment_gives(experiment: Any) -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| `(.*?)` \| (.*?) ± (.*?) \|$", GUIDE.read_text(), re.M)
    assert len(rows) >= 8
    for sleepers, policy, fork, mean, bar in rows:
        got = experiment(int(sleepers), policy, fork)
        assert [f"{v:.1f}" for v in got] == [mean, bar], (sleepers, policy, fork)


def test_sleepers_cost_forks_by_list_and_4bsd_only(experiment: Any) -> None:
    mean = {
        (policy, fork): [experiment(n, policy, fork, n=1200)[0] for n in (0, 1000)]
        for policy in ("4bsd", "ule")
        for fork in ("list:20us/50ns", "bitmap:20us")
    }
    few, many = mean["ule", "bitmap:20us"]
    assert many == pytest.approx(few, abs=0.01)
    few, many = mean["ule", "list:20us/50ns"]
    assert many - few == pytest.approx(50, abs=0.2)
    few, many = mean["4bsd", "bitmap:20us"]
    assert many - few == pytest.approx(1000 * 0.2 / 1000, rel=0.3)


def test_fcfs_is_another_name_of_fifo() -> None:
    text = run("policies", "show", "fcfs").stdout
    assert text.startswith("fifo: first come, first served")
    assert "Also called\n  fcfs" in text
    with_alias = tk.simulate("A: R5\nB: R3\nC: R1", policy="fcfs")
    ends = with_alias.slices.select("comm", (pl.col("ts_ns") + pl.col("dur_ns")) // 1_000_000).rows()
    assert ends == [("A", 5), ("B", 8), ("C", 9)]


CALLS = """policy: cfs
cpus: 2
costs: {costs}
W cpus=0: (R~uniform(0.5,1.5) P(x))*
B policy=fifo prio=10 cpus=1: (W(x) R0.2)*
{beside}
until: 100
"""


@pytest.mark.parametrize(
    ("beside", "name"),
    [("A cpus=1: R∞", "wakeup by another CPU"), ("", "wakeup of an idle CPU by another")],
)
def test_what_a_call_from_another_cpu_takes_is_measured_and_replayed(
    tmp_path: Path, beside: str, name: str
) -> None:
    found = {}
    for took in (0, 20_000):
        costs = f"remote_wakeup={took}ns remote_idle={took}ns"
        text = tmp_path / "calls.txt"
        tk.generate(CALLS.format(costs=costs, beside=beside), text, "ftrace")
        trace = tk.read(text)
        woken = trace.slices.filter(pl.col("comm").cast(pl.String) == "B", pl.col("wake_ts_ns").is_not_null())
        # The wakeup is recorded where the waker runs.
        assert set(woken["waker_cpu"]) == {0}
        assert set(woken["run_delay_ns"]) == {took}
        bound = [parse_set("W: cpus=0"), parse_set("B: cpus=1")]
        again = tk.replay(trace, "cfs", scenario=bound)
        measured = again.inferred.filter(name=name).row(0, named=True)
        assert (measured["value"], measured["n"] > 50) == (took, True)
        delays = again.slices.filter(
            pl.col("comm").cast(pl.String) == "B", pl.col("run_delay_ns").is_not_null()
        )
        found[took] = delays["run_delay_ns"].median()
    assert found == {0: 0, 20_000: 20_000}
