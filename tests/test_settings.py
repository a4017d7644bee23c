"""What machine.toml says of the scheduler: settings that differ from those of the kernel's version."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit import _core
from tracekit.cli import main
from tracekit.machine import parse_machine
from tracekit.whatif.identity import stated
from tracekit.whatif.kernels import by_kernel, names_kernel
from tracekit.whatif.run import Programs
from tracekit.whatif.settings import differing, left_to_default, real_time, real_time_asked

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"
#: As a stock 6.1 shows itself on two CPUs (lab: 6.1-2cpu/mixed-default).
STOCK = {"latency_ns": 12_000_000, "min_granularity_ns": 1_500_000, "wakeup_granularity_ns": 2_000_000}


def text_of(features: str = "", release: str = "6.1.0-50", preempt: str = "", **tunables: int) -> str:
    """A machine.toml with these features and tunables."""
    lines = ["schema = 1", "[kernel]", 'os = "linux"', f'release = "{release}"']
    lines += [f'preempt = "{preempt}"'] if preempt else []
    lines += ["[scheduler]", f'features = "{features}"', "[scheduler.tunables]"]
    return "\n".join(lines + [f"{k} = {v}" for k, v in tunables.items()]) + "\n"


def differences(policy: str, cpus: int, features: str = "", preempt: str = "", **tunables: int) -> list[str]:
    return differing(parse_machine(text_of(features, preempt=preempt, **tunables)), policy, cpus)


def test_a_stock_kernel_differs_in_nothing() -> None:
    stock = "GENTLE_FAIR_SLEEPERS START_DEBIT NO_NEXT_BUDDY LAST_BUDDY WAKEUP_PREEMPTION NO_HRTICK BASE_SLICE"
    assert differences("cfs:form=6.1", 2, stock, **STOCK) == []
    newer = "PLACE_LAG PLACE_DEADLINE_INITIAL PLACE_REL_DEADLINE RUN_TO_PARITY PREEMPT_SHORT DELAY_DEQUEUE DELAY_ZERO"
    assert differences("eevdf:version=6.12", 2, newer, "voluntary", base_slice_ns=1_400_000) == []
    # On one CPU the same time is twice the usual.
    assert differences("eevdf:version=6.12", 1, base_slice_ns=1_400_000) == ["base_slice=1400000ns"]
    # HRTICK and lazy preemption are usual from 7.1 on, and unusual before.
    assert differences("eevdf:version=7.3", 2, "HRTICK", "lazy") == []
    assert differences("eevdf:version=6.12", 2, "HRTICK", "lazy") == ["hrtick=on", "preempt=lazy"]


def test_what_differs_is_a_parameter_of_the_policy() -> None:
    assert differences("cfs:form=6.1", 2, "NO_WAKEUP_PREEMPTION") == ["wakeup_preemption=off"]
    # A running kernel shows what it scaled by its CPUs, cfs takes it unscaled.
    assert differences("cfs:form=6.1", 2, **(STOCK | {"latency_ns": 48_000_000})) == ["latency=24000000ns"]
    unscaled = differences("cfs:form=6.1", 2, latency_ns=6_000_000, tunable_scaling=0)
    assert unscaled == ["scaling=none"]
    assert differences("eevdf:version=6.12", 2, "NO_RUN_TO_PARITY") == ["run_to_parity=off"]
    # BASE_SLICE is a switch of cfs; eevdf has a time of that name.
    assert differences("eevdf:version=6.12", 2, "NO_BASE_SLICE") == []
    # What a policy does not know is not asked of it.
    assert differences("cfs:form=6.1", 2, "HRTICK NO_PLACE_LAG") == []
    assert differences("ule", 2, "NO_WAKEUP_PREEMPTION") == []


def test_the_real_time_class() -> None:
    assert real_time(None) is None
    usual = text_of(sched_rr_timeslice_ms=100, sched_rt_runtime_us=950_000, sched_rt_period_us=1_000_000)
    assert real_time(parse_machine(usual)) is None
    assert real_time(parse_machine(text_of(sched_rr_timeslice_ms=20))) == "rt:slice=20ms"
    assert real_time(parse_machine(text_of(sched_rt_runtime_us=-1))) == "rt:throttle=off"
    assert real_time(parse_machine(text_of("NO_RT_PUSH_IPI"))) == "rt:push_ipi=off"
    assert (
        real_time(parse_machine(text_of("RT_PUSH_IPI", sched_rr_timeslice_ms=20)))
        == "rt:slice=20ms,push_ipi=on"
    )


def test_what_is_asked_of_the_real_time_class_leaves_the_rest_as_recorded() -> None:
    machine = parse_machine(text_of("NO_RT_PUSH_IPI", sched_rt_runtime_us=-1))
    assert real_time_asked(None, None) is None
    assert real_time_asked(None, "rt:slice=5ms") == "rt:slice=5ms"
    assert real_time_asked(machine, None) == "rt:throttle=off,push_ipi=off"
    assert real_time_asked(machine, "rt:slice=5ms") == "rt:throttle=off,push_ipi=off,slice=5ms"
    assert real_time_asked(machine, "rt:push_ipi=on") == "rt:throttle=off,push_ipi=on"
    assert real_time_asked(machine, "rt:runtime=500ms") == "rt:push_ipi=off,runtime=500ms"


def test_the_identity_replay_has_the_real_time_class_of_the_recording() -> None:
    text = "policy: cfs\nuntil: 3000\nA*3 policy=rr prio=10: (R80 S20)*\nB*2: (R5 S3)*"
    for policies in ((), "cfs"):
        compared = tk.compare(tk.simulate(text), policies, rt="rt:slice=5ms", runs=1)
        assert not (compared.calibration["calibration"] == "fail").any()
        row = compared.summary.filter(group="A", metric="slice_per_involuntary").row(0, named=True)
        assert row["identity"] == row["recorded"] > 90e6
        assert row["predicted"] < 6e6
        assert row["verdict"] == "resolved"


@pytest.mark.parametrize(
    ("asked", "identity", "says"),
    [
        ("eevdf", "eevdf:version=6.12", None),
        ("eevdf:version=6.12", "eevdf:version=6.18", None),
        ("linux-6.12", "eevdf:version=6.18", None),
        ("rr", "cfs", None),
        ("cfs:wakeup_preemption=on", "cfs:wakeup_preemption=off", None),
        (
            "eevdf:base_slice=10ms",
            "eevdf:version=6.18,base_slice=3ms",
            "as nothing else was asked for, eevdf:base_slice=10ms has version=6.12, and the recording version=6.18: "
            "eevdf:version=6.18,base_slice=10ms keeps what was recorded",
        ),
        (
            "cfs:latency=10ms",
            "cfs:wakeup_preemption=off",
            "as nothing else was asked for, cfs:latency=10ms has wakeup_preemption=on, and the recording "
            "wakeup_preemption=off: cfs:wakeup_preemption=off,latency=10ms keeps what was recorded",
        ),
    ],
)
def test_what_a_policy_of_the_same_name_leaves_to_its_default(
    asked: str, identity: str, says: str | None
) -> None:
    full = (_core.parse_policy(_core.expand_policy(policy)) for policy in (asked, identity))
    assert left_to_default(asked, *full) == says


def test_a_comparison_says_what_it_leaves_to_defaults(tmp_path: Path) -> None:
    text = "policy: eevdf:version=6.18\nuntil: 300\nA*3: (R5 S3)*"
    (tmp_path / "t.wl").write_text(text)
    asked = ["compare", str(tmp_path / "t.wl"), "--quick", "-q", "-o", str(tmp_path / "t.html")]
    said = "s nothing else was asked for, eevdf has version=6.12, and the recording version=6.18"
    for policy, expected in (("eevdf", True), ("linux-6.18", False)):
        done = CliRunner().invoke(main, [*asked, "--policy", policy])
        assert (f"a{said}" in done.stdout) == expected
        assert (f"A{said}" in (tmp_path / "t.html").read_text()) == expected
    assert tk.compare(text, "eevdf", runs=1).to_dict()["left_to_default"]


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """The shipped capture, under a name of its own."""
    path = tmp_path / "t.dat"
    path.write_bytes(DEMO.read_bytes())
    return path


def test_a_capture_is_replayed_under_the_settings_beside_it(beside: Path) -> None:
    assert stated(tk.read(beside))[0] == "cfs:form=6.1"
    plain = tk.replay(tk.read(beside), "cfs").slices.height
    release = tk.read(beside).metadata["kernel"].split()[0]
    text = text_of("NO_WAKEUP_PREEMPTION", release, wakeup_granularity_ns=1_000_000, sched_rr_timeslice_ms=20)
    beside.with_name("t.machine.toml").write_text(text)
    trace = tk.read(beside)
    policy, why = stated(trace)
    assert policy == "cfs:form=6.1,wakeup_preemption=off"
    assert "machine.toml says wakeup_preemption=off" in why
    assert by_kernel(trace)[0] == "cfs:form=6.1"
    assert names_kernel(trace)
    run = tk.replay(trace, policy)
    assert "wakeup_preemption=off" in run.policy
    assert run.slices.height < plain / 2
    programs = Programs(trace)
    assert programs.prepared("cfs").options["rt"] == "rt:slice=20ms"
    assert programs.prepared("cfs", rt="rt:slice=5ms").options["rt"] == "rt:slice=5ms"
    # What the caller says wins.
    assert "wakeup_preemption=on" in tk.replay(trace, "cfs").policy
    compared = tk.compare(trace, "cfs:wakeup_preemption=on", runs=1)
    assert "machine.toml says" in compared.why


def test_a_kernel_without_random_newidle_balances_is_replayed_without() -> None:
    """Stable kernels of one version have NI_RANDOM or not; their list of features says so."""

    def asked(features: str) -> list[str]:
        return differences("eevdf:version=6.12", 2, features)

    assert asked("TTWU_QUEUE") == ["newidle_random=off"]
    assert asked("TTWU_QUEUE NI_RANDOM") == []
    assert asked("TTWU_QUEUE NO_NI_RANDOM") == ["newidle_random=off"]
    # A list of one's own says nothing of what it leaves out.
    assert asked("NO_RUN_TO_PARITY") == ["run_to_parity=off"]
