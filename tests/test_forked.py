"""When a new task gets the CPU that it is put on."""

import polars as pl
import pytest

import tracekit as tk
from validation.forks import preempting

#: H is alone on its CPU, far beyond its slice, when C comes there from the other one.
TEXT = """
cpus: 2
hz: 250
H cpus=1: R∞
P cpus=0: R10.5 {gives} R10
C cpus=1 {start}: {waits} R1
until: 40
"""


def delay_ms(text: str, policy: str) -> float:
    slices = tk.simulate(text, policy).slices.filter(pl.col("comm").cast(pl.String) == "C")
    return float(slices["run_delay_ns"][0]) / 1e6


@pytest.mark.parametrize(
    ("policy", "waits_ms"),
    [
        ("eevdf:version=6.6", 0.0),
        ("eevdf:version=6.12", 0.0),
        # The next tick is at 12 ms.
        ("eevdf:version=6.18", 1.5),
        ("eevdf:version=7.3,hrtick=off,preempt=full", 1.5),
    ],
)
def test_from_6_18_on_a_new_task_preempts_nobody(policy: str, waits_ms: float) -> None:
    new = TEXT.format(gives="F(C)", start="start=fork", waits="")
    assert delay_ms(new, policy) == waits_ms
    assert preempting(tk.simulate(new, policy)) == (int(waits_ms == 0.0), 1)
    woken = TEXT.format(gives="P(go)", start="", waits="W(go)")
    assert delay_ms(woken, policy) == 0.0
