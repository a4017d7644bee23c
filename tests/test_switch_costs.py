"""What switches take in other kernels and scheduling classes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk
from tracekit.whatif import switch_costs

#: The last record of a task's account, the end of the next one's wait, and the switch.
SWITCHES = """# tracer: nop
#
   a-10   [000] d..2.     1.000000: sched_stat_runtime: comm=a pid=10 runtime=1000 [ns]
   a-10   [000] d..2.     1.000003: sched_stat_wait: comm=b pid=11 delay=0 [ns]
   a-10   [000] d..2.     1.000006: sched_switch: a:10 [120] R ==> b:11 [120]
   b-11   [000] d..2.     1.001000: sched_stat_runtime: comm=b pid=11 runtime=1000 [ns]
   b-11   [000] d..2.     1.001002: sched_stat_wait: comm=c pid=12 delay=0 [ns]
   b-11   [000] d..2.     1.001005: sched_switch: b:11 [120] S ==> c:12 [89]
   c-12   [000] d..2.     1.002000: sched_stat_runtime: comm=c pid=12 runtime=1000 [ns]
   c-12   [000] d..2.     1.002009: sched_switch: c:12 [89] S ==> a:10 [120]
   a-10   [000] d.h3.     1.003000: sched_waking: comm=c pid=12 prio=89 target_cpu=000
   a-10   [000] dNh4.     1.003004: sched_wakeup: c:12 [89] CPU:000
   a-10   [000] dN.2.     1.003008: sched_stat_runtime: comm=a pid=10 runtime=1000 [ns]
   a-10   [000] d..2.     1.003010: sched_stat_wait: comm=c pid=12 delay=0 [ns]
   a-10   [000] d..2.     1.003013: sched_switch: a:10 [120] R ==> c:12 [89]
   c-12   [000] d..2.     1.004000: sched_stat_runtime: comm=c pid=12 runtime=1000 [ns]
   c-12   [000] d..2.     1.004009: sched_switch: c:12 [89] S ==> swapper/0:0 [120]
"""
KNOWN = {
    "6.1": switch_costs.KernelCosts(8_000, {"fair fair ready": 5_200, "rt rt ready": 4_200}),
    "6.12": switch_costs.KernelCosts(8_800, {"fair fair ready": 6_300, "rt rt ready": 4_200}),
}


def place(kind: str) -> int:
    return switch_costs.SWITCH_KINDS.index(kind)


def test_switches_are_measured_from_the_account_to_the_record(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(SWITCHES)
    # The switch to the idle task is no choice among tasks. Behind an interrupt its wakeup is the
    # beginning as well.
    assert switch_costs.measure(tk.read(file).events) == {
        "fair fair ready": [6_000],
        "fair rt sleeps": [5_000],
        "fair rt ready": [5_000],
        "fair rt woken": [13_000],
    }


@pytest.mark.parametrize(
    ("kernel", "entry"),
    [
        ("4.19.0", None),
        ("5.10.0-32", "5.10"),
        ("5.15.1", "6.1"),
        ("6.5.0", "6.1"),
        ("6.6.9", None),
        ("6.12.95", "6.12"),
        ("6.18", "6.12"),
        ("", None),
    ],
)
def test_a_kernel_is_stood_for_by_the_one_that_was_measured(kernel: str, entry: str | None) -> None:
    assert switch_costs.entry_of(kernel) == entry


def test_the_machine_of_the_trace_sets_the_scale() -> None:
    found = switch_costs.change("cfs:form=6.1", "6.1.0", "eevdf:version=6.12,base_slice=0ns", 4_000, KNOWN)
    assert found is not None
    was, is_ = found
    # Half the run-queue clock to tracepoint offset of the machine that was measured: half the
    # time, of both kernels.
    assert (was[place("fair fair ready")], is_[place("fair fair ready")]) == (2_600, 3_150)
    assert was[place("fair rt ready")] is None


def test_the_same_scheduler_is_the_same_kernel() -> None:
    found = switch_costs.change(
        "eevdf:version=6.12", "6.18.1", "eevdf:version=6.12,run_to_parity=off", 8_800, KNOWN
    )
    assert found is not None
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("identity", "kernel", "policy", "clock_offset"),
    [
        ("cfs:form=6.1", "6.1.0", "rr:quantum=10ms", 8_000),
        ("cfs:form=6.1", "6.1.0", "eevdf:version=6.6", 8_000),
        ("eevdf:version=6.6", "6.6.1", "eevdf:version=6.12", 8_000),
        ("cfs:form=6.1", "6.1.0", "eevdf:version=6.12", None),
        ("cfs:form=6.1", "6.1.0", "eevdf:version=6.12", 0),
    ],
)
def test_nothing_is_claimed_of_what_was_not_measured(
    identity: str, kernel: str, policy: str, clock_offset: float | None
) -> None:
    assert switch_costs.change(identity, kernel, policy, clock_offset, KNOWN) is None


def test_the_shipped_table_orders_the_classes_and_kernels() -> None:
    known = switch_costs.shipped()
    assert list(known) == ["5.10", "6.1", "6.12"]
    fair = [known[k].switch["fair fair ready"] for k in known]
    assert fair == sorted(fair)
    for kernel in ("6.1", "6.12"):
        assert known[kernel].switch["rt rt ready"] < known[kernel].switch["fair fair ready"]


def assumed(run: tk.Replay) -> list[str]:
    return [m for m in run.diagnostics["message"] if m.startswith("assumed: ")]


def test_a_replay_in_another_class_says_what_it_assumes(trace: tk.Trace) -> None:
    spinners = {"spin*": {"policy": "rr", "prio": 10}}
    policy = "cfs:form=6.1"
    changed = tk.replay(trace, policy, scenario=spinners)
    assert len(assumed(changed)) == 1
    assert "less than recorded" in assumed(changed)[0]
    # It can be done without, it goes with the other costs, and a stated cost of switches is all of it.
    for others in ({"switch_costs": False}, {"overheads": False}, {"costs": {"switch": "10us"}}):
        assert not assumed(tk.replay(trace, policy, scenario=spinners, **others))
    # Nobody in another class, and the same kernel: nothing to assume.
    assert not assumed(tk.replay(trace, policy))
