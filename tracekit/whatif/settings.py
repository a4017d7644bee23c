"""What the machine beside a trace says of the scheduler, as parameters of a policy.

Features and tunables of the kernel (`kernel/sched/features.h`; `kernel/sched/debug.c` and
`/proc/sys/kernel/sched_*` show them) under which a trace was recorded belong to the policy that it
was captured under.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tracekit import _core

if TYPE_CHECKING:
    from tracekit.machine import Machine

__all__ = [
    "FEATURES",
    "TUNABLES",
    "differing",
    "left_to_default",
    "real_time",
    "real_time_asked",
    "scale_of",
    "unscaled",
]

#: Features of the kernel, and the parameter of the policy that models each.
FEATURES = {
    "GENTLE_FAIR_SLEEPERS": "gentle_fair_sleepers",
    "NEW_FAIR_SLEEPERS": "fair_sleepers",
    "NORMALIZED_SLEEPER": "normalized_sleepers",
    "ADAPTIVE_GRAN": "adaptive_granularity",
    "BASE_SLICE": "base_slice",
    "WAKEUP_PREEMPTION": "wakeup_preemption",
    "START_DEBIT": "start_debit",
    "NEXT_BUDDY": "next_buddy",
    "LAST_BUDDY": "last_buddy",
    "PLACE_LAG": "place_lag",
    "PLACE_DEADLINE_INITIAL": "place_deadline_initial",
    "PLACE_REL_DEADLINE": "place_rel_deadline",
    "RUN_TO_PARITY": "run_to_parity",
    "PREEMPT_SHORT": "preempt_short",
    "DELAY_DEQUEUE": "delay_dequeue",
    "DELAY_ZERO": "delay_zero",
    "HRTICK": "hrtick",
    "NI_RANDOM": "newidle_random",
}
#: Tunables that are times, and the parameter that models each.
TUNABLES = {
    "latency_ns": "latency",
    "min_granularity_ns": "min_granularity",
    "wakeup_granularity_ns": "wakeup_granularity",
    "idle_min_granularity_ns": "idle_min_granularity",
    "base_slice_ns": "base_slice",
    "migration_cost_ns": "migration_cost",
}
#: Those that a running kernel shows after it scaled them by its CPUs; `cfs` takes them unscaled.
_SCALED = ("latency_ns", "min_granularity_ns", "wakeup_granularity_ns")
#: Parameters that the kernel's version decides where nobody names them, as what they are then.
_AUTO = {"hrtick": ("on", "off"), "preempt": ("lazy", "full")}
#: The version of `eevdf` from which on they are the first of these.
_AUTO_FROM = "7.3"


def scale_of(cpus: int, scaling: int | str = 1) -> int:
    """By what the kernel multiplies its times on so many CPUs.

    Parameters
    ----------
    cpus
        How many are online.
    scaling
        ``tunable_scaling``: 0 none, 1 by logarithm, 2 linear (kernel/sched/fair.c,
        get_update_sysctl_factor: of at most 8 CPUs).
    """
    most = min(max(cpus, 1), 8)
    return {"0": 1, "none": 1, "2": most, "linear": most}.get(str(scaling), 1 + int(math.log2(most)))


def unscaled(name: str, ns: int, policy: str, cpus: int, scaling: int | str = 1) -> int:
    """Turn a time as a running kernel shows it into what the policy takes, ns.

    Parameters
    ----------
    name
        The tunable, ``latency_ns``.
    ns
        Its value.
    policy
        Name of the policy.
    cpus, scaling
        As in `scale_of`.
    """
    return ns // scale_of(cpus, scaling) if policy == "cfs" and name in _SCALED else ns


def _parameters(policy: str) -> dict[str, str]:
    """All parameters of a policy, with their values."""
    return _pairs(_core.parse_policy(policy))


def _pairs(policy: str) -> dict[str, str]:
    """The parameters that a policy names."""
    return dict(p.partition("=")[::2] for p in policy.partition(":")[2].split(",") if p)


def _usual(policy: str, own: Mapping[str, str], cpus: int) -> dict[str, str]:
    """What parameters stand for that say no value of their own."""
    usual = dict(own)
    for name, (newer, older) in _AUTO.items():
        if own.get(name) == "auto":
            usual[name] = newer if own["version"] == _AUTO_FROM else older
    if policy == "eevdf" and own["base_slice"] == "0ns":
        # kernel/sched/fair.c: 0.75 ms until 6.11, then 0.70 ms.
        unit = 750_000 if own["version"] == "6.6" else 700_000
        usual["base_slice"] = f"{unit * scale_of(cpus)}ns"
    return usual


def differing(machine: Machine, policy: str, cpus: int) -> list[str]:
    """Settings of the recorded kernel that differ from those of its version.

    Parameters
    ----------
    machine
        The machine beside the trace.
    policy
        What the kernel's version schedules with, ``eevdf:version=6.12``.
    cpus
        CPUs of the trace, by which a replay scales times. A kernel scales by those that are online.

    Returns
    -------
    list of str
        ``name=value``, each a parameter of the policy. A feature that the policy does not have is
        left to `tracekit.whatif.not_modelled`.
    """
    name = policy.partition(":")[0]
    if name not in ("cfs", "eevdf"):
        return []
    own = _parameters(policy)
    usual = _usual(name, own, cpus)
    asked: dict[str, str] = {}
    for feature, on in machine.features.items():
        # A switch of cfs has the name of a time of eevdf.
        if (parameter := FEATURES.get(feature, "")) in own and (feature != "BASE_SLICE" or name == "cfs"):
            asked[parameter] = "on" if on else "off"
    # Kernels of one version have it or not, by their date. A list that names TTWU_QUEUE is a kernel's own,
    # and whole.
    if "TTWU_QUEUE" in machine.features and "newidle_random" in own:
        asked.setdefault("newidle_random", "off")
    scaling = machine.tunables.get("tunable_scaling", 1)
    for tunable, parameter in TUNABLES.items():
        ns = machine.tunables.get(tunable)
        if isinstance(ns, int) and parameter in own and (tunable != "base_slice_ns" or name == "eevdf"):
            asked[parameter] = f"{unscaled(tunable, ns, name, cpus, scaling)}ns"
    first = machine.tunables.get("sched_child_runs_first")
    if isinstance(first, int) and "child_runs_first" in own:
        asked["child_runs_first"] = "on" if first else "off"
    if machine.preempt is not None and "preempt" in own:
        asked["preempt"] = "lazy" if machine.preempt == "lazy" else "full"
    if "scaling" in own and str(scaling) in ("0", "2"):
        asked["scaling"] = {"0": "none", "2": "linear"}[str(scaling)]

    def other(parameter: str, value: str) -> bool:
        if value == usual[parameter]:
            return False
        probe = f"{policy}{',' if ':' in policy else ':'}{parameter}={usual[parameter]}"
        return _parameters(probe)[parameter] != _parameters(f"{probe},{parameter}={value}")[parameter]

    return [f"{parameter}={value}" for parameter, value in asked.items() if other(parameter, value)]


def real_time(machine: Machine | None) -> str | None:
    """Describe the real-time class of the recorded kernel where it differs from the usual one.

    Parameters
    ----------
    machine
        The machine beside the trace.

    Returns
    -------
    str or None
        ``rt:slice=20ms``, from ``sched_rr_timeslice_ms``, ``sched_rt_runtime_us``,
        ``sched_rt_period_us`` and, where it is known, the feature ``RT_PUSH_IPI``, which stable
        kernels turned off within a version (Debian's changelogs of 6.1.178 and 6.12.96).
    """
    if machine is None:
        return None
    asked = []
    for tunable, parameter, unit, usual in (
        ("sched_rr_timeslice_ms", "slice", "ms", 100),
        ("sched_rt_runtime_us", "runtime", "us", 950_000),
        ("sched_rt_period_us", "period", "us", 1_000_000),
    ):
        value = machine.tunables.get(tunable)
        if isinstance(value, int) and value != usual:
            asked.append("throttle=off" if value < 0 else f"{parameter}={value}{unit}")
    if (push := machine.features.get("RT_PUSH_IPI")) is not None:
        asked.append(f"push_ipi={'on' if push else 'off'}")
    return "rt:" + ",".join(asked) if asked else None


def real_time_asked(machine: Machine | None, rt: str | None) -> str | None:
    """Describe the real-time class that is asked for: what is left open is that of the recording.

    Parameters
    ----------
    machine
        The machine beside the trace.
    rt
        The class with its parameters, such as ``rt:slice=5ms``; None for that of the recording.

    Returns
    -------
    str or None
        What a replay takes; None for the class of the policy's kernel.
    """
    own = real_time(machine)
    if rt is None or own is None or rt.partition(":")[0] != "rt":
        return rt or own
    given, kept = _pairs(rt), _pairs(own)
    if "runtime" in given or "period" in given:
        # Who asks for a limit asks for the throttle.
        kept.pop("throttle", None)
    return "rt:" + ",".join(f"{k}={v}" for k, v in {**kept, **given}.items())


def left_to_default(asked: str, replayed: str, identity: str) -> str | None:
    """Say which settings of the recording a policy of the same name does not have, since nobody named them.

    Parameters
    ----------
    asked
        The policy as it was asked for: ``eevdf:base_slice=10ms``.
    replayed, identity
        The same, and the policy of the recording, with all their parameters.

    Returns
    -------
    str or None
        None where they have other names, or every difference was asked for.
    """
    name = identity.partition(":")[0]
    if asked.partition(":")[0] != name or replayed.partition(":")[0] != name:
        return None
    named, now, was = (_pairs(policy) for policy in (asked, replayed, identity))
    kernel = {k: v for k, v in was.items() if k in ("form", "version")}
    usual = _parameters(name + ":" + ",".join(f"{k}={v}" for k, v in kernel.items()) if kernel else name)
    stated = {k: v for k, v in was.items() if k in kernel or usual.get(k) != v}
    other = {k: v for k, v in stated.items() if k not in named and now.get(k) != v}
    if not other:
        return None
    kept = ",".join(f"{k}={v}" for k, v in {**other, **named}.items())
    changed = ", ".join(f"{k}={now[k]}" for k in other if k in now)
    return (
        f"as nothing else was asked for, {asked} has {changed}, and the recording "
        f"{', '.join(f'{k}={v}' for k, v in other.items())}: {name}:{kept} keeps what was recorded"
    )
