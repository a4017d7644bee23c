"""Where Linux's fair policies place what wakes."""

import polars as pl
import pytest

import tracekit as tk

POSTS = " ".join(["P(go)"] * 16)
#: Sixteen tasks fall asleep on CPU 0; W, on CPU 1, wakes them all at once.
TEXT = f"""
cpus: 2
hz: 250
A*16 cpus=0: R0.5 N(cpus=0-1) W(go) R100
W cpus=1: S40.5 {POSTS} S100
until: 42
"""


@pytest.mark.parametrize("policy", ["cfs:form=6.1", "eevdf:version=6.12"])
def test_what_wakes_elsewhere_leaves_its_load_behind_for_a_while(policy: str) -> None:
    events = tk.simulate(TEXT, policy).events.with_columns(pl.col("kind").cast(pl.String))
    woken = events.filter(
        pl.col("kind") == "waking", pl.col("ts_ns") >= 40_500_000, pl.col("comm").cast(pl.String) != "W"
    )
    placed = woken["target_cpu"].to_list()
    assert len(placed) == 16
    # The first finds its old CPU idle. For the others that CPU counts the load of those that have
    # left until it next updates its averages (remove_entity_load_avg), so that they follow their
    # waker until its CPU has much more.
    assert placed[0] == 0
    assert placed[1:].count(1) >= 11, placed


@pytest.mark.parametrize("policy", ["cfs:form=6.1", "eevdf:version=6.12"])
def test_where_cpus_share_no_cache_a_wakeup_does_not_look_for_an_idle_one(policy: str) -> None:
    # S sleeps on the CPU of W, which wakes it and goes on; CPU 1 is idle all the time.
    text = "cpus: 2\nhz: 250\nW cpus=0: R20 P(go) R20\nS cpus=0: R1 N(cpus=0-1) W(go) R1\nuntil: 60"
    ran_on = {}
    for cache in ("on", "off"):
        slices = tk.simulate(text, f"{policy},shared_cache={cache}").slices
        mine = slices.filter(pl.col("comm").cast(pl.String) == "S").sort("ts_ns")
        ran_on[cache] = mine["cpu"].to_list()[-1]
    assert ran_on == {"on": 1, "off": 0}
