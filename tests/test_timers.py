"""Tasks with a periodic timer: what a replay of them is held against is the same workload, run anew."""

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

TEXT = """policy: cfs
hz: 1000
until: 3000
T nice={nice}: (R~uniform(1,2) {sleep})*
H: R∞
I: (R~exp(4) S~exp(2))*
"""


def ran(trace: tk.Trace) -> float:
    """CPU time of `T`, ms."""
    return float(trace.slices.filter(pl.col("comm") == "T")["dur_ns"].sum()) / 1e6


@pytest.mark.parametrize("sleep", ["S@10.3", "S@10.3/merge", "S@10.3/skip", "S8.3"])
def test_a_task_with_another_nice_value_works_as_much_as_in_a_run_of_it(sleep: str, tmp_path: Path) -> None:
    tk.generate(TEXT.format(nice=0, sleep=sleep), tmp_path / "recorded.txt", "ftrace")
    real = ran(tk.simulate(TEXT.format(nice=15, sleep=sleep)))
    replayed = tk.replay(tk.read(tmp_path / "recorded.txt"), "cfs", scenario={"T": {"nice": 15}})
    predicted = ran(replayed)
    assert predicted == pytest.approx(real, rel=0.1)


def test_a_text_and_rt_app_say_that_a_timer_is_periodic(tmp_path: Path) -> None:
    text = "policy: fifo\nuntil: 100\nT: (R1 S@10~50us S@5/merge S@5/skip)*"
    tk.generate(text, tmp_path / "t.txt", "workload")
    assert "(R1000000ns S@10000000ns~50000ns S@5000000ns/merge S@5000000ns/skip )*" in (
        tmp_path / "t.txt"
    ).read_text(encoding="utf-8")
    tk.generate(text, tmp_path / "t.json", "rt-app")
    timers = (tmp_path / "t.json").read_text(encoding="utf-8")
    assert timers.count('"ref": "unique"') == 3
    assert timers.count('"mode": "absolute"') == 1
