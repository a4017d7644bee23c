"""Where Linux's fair policies place what wakes."""

import polars as pl
import pytest

import tracekit as tk
from tracekit.whatif.basis import uneven
from tracekit.whatif.intervals import Perturbation

POSTS = " ".join(["P(go)"] * 16)
#: Sixteen tasks fall asleep on CPU 0; W, on CPU 1, wakes them all at once. Where there are more CPUs, W would
#: have to wake more of them not to draw them to its own (wake_wide): four have a hog each.
TEXT = f"""
cpus: 6
hz: 250
H2 cpus=2: R∞
H3 cpus=3: R∞
H4 cpus=4: R∞
H5 cpus=5: R∞
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


def on_cpu(text: str, policy: str, name: str, cpu: int, after_ms: float) -> int:
    """How many tasks of this name run on the CPU from a time on."""
    slices = tk.simulate(text, policy).slices.with_columns(pl.col("comm").cast(pl.String))
    late = slices.filter(pl.col("comm").str.starts_with(name), pl.col("ts_ns") >= after_ms * 1e6)
    return late.filter(cpu=cpu)["comm"].n_unique()


@pytest.mark.parametrize(("policy", "moves"), [("cfs:form=6.1", True), ("eevdf:version=7.3", False)])
def test_a_cpu_that_runs_something_does_not_even_out_numbers(policy: str, moves: bool) -> None:
    # I has CPU 1, six tasks wait on CPU 0; at the ticks CPU 1 is not busy enough to compare loads.
    # Up to 6.5 it takes some of them; sibling_imbalance (6.6) leaves that to idle CPUs.
    text = """
cpus: 2
hz: 250
I policy=idle cpus=1: R100
H*6 policy=idle cpus=0: R0.5 N(cpus=0-1) R100
until: 20
"""
    assert (on_cpu(text, policy, "H", 1, 3.1) > 0) is moves


@pytest.mark.parametrize(("delayed", "cpu"), [("on", 1), ("off", 0)])
def test_what_sleeps_in_delayed_dequeue_counts_among_the_tasks_of_its_cpu(delayed: str, cpu: int) -> None:
    # A has just fallen asleep on CPU 0 when B wakes. As long as A is counted there, CPU 0 has more
    # than SCHED_IDLE tasks (sched_idle_rq), and CPU 1 does not. Of two CPUs that are as busy as that,
    # a wakeup would look at none (SIS_UTIL); of three at one.
    text = """
cpus: 3
hz: 250
I policy=idle cpus=0: R100
J policy=idle cpus=1: R100
K policy=idle cpus=2: R100
A cpus=0: S10 R2 S100
B cpus=0: R0.1 N(cpus=0-1) S12.5 R1 S100
until: 20
"""
    assert on_cpu(text, f"eevdf:version=6.12,delay_dequeue={delayed}", "B", cpu, 12) == 1


@pytest.mark.parametrize("policy", ["cfs:form=6.1", "eevdf:version=6.12", "eevdf:version=6.18"])
def test_who_executes_a_program_goes_to_an_idle_cpu_from_one_that_others_wait_for(policy: str) -> None:
    # sched_exec: X does not count as a load of its own CPU, so that alone it stays.
    bound = "Bound*2 cpus=0 policy=batch start=1: R50\n"
    for others, wanted in ((bound, [(0, 5.3), (1, 20.0)]), ("", [(0, 25.3)])):
        slices = tk.simulate(f"cpus: 2\nhz: 100\n{others}X: R5.3 X R20", policy).slices
        ran = slices.filter(pl.col("comm").cast(pl.String) == "X").group_by("cpu").agg(pl.col("dur_ns").sum())
        assert [(cpu, ns / 1e6) for cpu, ns in ran.sort("cpu").iter_rows()] == wanted


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("o1", "o1: the queues of two CPUs differ by two tasks or more for 100 % of the time: Linux 2.6 "),
        (
            "solaris-ts",
            "solaris-ts: the queues of two CPUs differ by two tasks or more for 100 % of the time: ",
        ),
        ("eevdf", None),
    ],
)
def test_queues_that_a_kernel_would_even_out_are_named(policy: str, said: str | None) -> None:
    text = "policy: cfs\ncpus: 2\nuntil: 4000\nA*4: R∞"
    shares = tk.simulate(text, policy).tasks.filter(~pl.col("is_idle"))["run_ns"]
    found = uneven(tk.replay(text, policy))
    if said is None:
        assert max(shares) < 1.1 * min(shares)
        assert found is None
    else:
        # Four alike, three of them on one CPU.
        assert max(shares) > 2.5 * min(shares)
        assert found is not None
        assert found.startswith(said)
        assert any(found in text for text in tk.compare(text, [policy], runs=1).to_dict()["not_recorded"])
    assert uneven(tk.replay(text.replace("cpus: 2", "cpus: 1"), policy)) is None


#: CPU 1 goes idle ten times a millisecond from 9.9 ms on, while three tasks share CPU 0.
GOES_IDLE = """
policy: eevdf
cpus: 2
hz: 100
H*3 cpus=0: R1 N(cpus=0-1) R∞
S cpus=1: R9.9 (S0.01 R0.09)*
until: 60
"""


@pytest.mark.parametrize("policy", ["cfs:form=6.1", "eevdf:version=6.12"])
def test_a_cpu_that_goes_idle_looks_for_work_by_chance(policy: str) -> None:
    programs = tk.Programs(GOES_IDLE)

    def first(seed: int, chance: str) -> int:
        run = programs.run(
            f"{policy},newidle_random={chance}", perturbation=Perturbation(seed, jitter_ns=0, phase_ns=0)
        )
        there = run.slices.filter(pl.col("comm").cast(pl.String).str.starts_with("H"), cpu=1)
        return int(there["ts_ns"].min() or 0)

    drawn = [first(seed, "on") for seed in range(12)]
    assert drawn == [first(seed, "on") for seed in range(12)]
    sure = {first(seed, "off") for seed in range(12)}
    assert len(sure) == 1
    # Half of the looks are left out at first (sd_init), which looks at the same moment or later.
    assert len(set(drawn)) >= 3, drawn
    assert min(drawn) == min(sure), (drawn, sure)
