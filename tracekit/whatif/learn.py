"""Parameters of the scheduler, learned from a trace.

Which of the known values explains best what was recorded.

Each candidate replays the trace; how likely it is, `tracekit.whatif.likelihood` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from tracekit import _core
from tracekit.units import format_ns
from tracekit.whatif.families import allowed_by_records, likely_families
from tracekit.whatif.kernels import by_kernel, names_kernel
from tracekit.whatif.likelihood import LEAST, REPEATS, UNEXPLAINED, Finding, Search, Spread, preempted
from tracekit.whatif.run import Programs
from tracekit.whatif.settings import FEATURES, TUNABLES, scale_of, unscaled
from tracekit.whatif.sharing import learned

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["Inference", "infer_parameters", "lines"]

#: Factors on a parameter's default: third-octaves from a sixteenth to sixteen times.
_FACTORS = tuple(2 ** (k / 3) for k in range(-12, 13))
#: Half a third-octave: how far from the likely values others are tried, where these are few.
_FINE, FEW = 2 ** (1 / 6), 4
#: Values that no trace tells from each other: a hundredth more each. Replays under them differ by what
#: decides nothing, such as which of two equal tasks is first.
_ALIKE = tuple(1 + k / 100 for k in range(REPEATS))
#: What a kernel takes at least, ns (`kernel/sched/debug.c`), and parameters that may be 0.
_BOUND = {"base_slice": 100_000}
_ZERO = ("wakeup_granularity",)
#: Ends of slices behind which a wakeup makes the task runnable.
_SLEPT = ("sleeping", "blocked", "idle_kthread")
#: Parameters by policy: their default on one CPU in ns, which the kernel scales by 1 + log2 of at
#: most 8 CPUs.
_SCALED = {
    "cfs": {"min_granularity": 750_000, "wakeup_granularity": 1_000_000},
    "eevdf": {"base_slice": 700_000},
}
_SWITCHES = {
    "cfs": ("wakeup_preemption", "gentle_fair_sleepers", "start_debit"),
    "eevdf": ("wakeup_preemption", "run_to_parity", "place_lag"),
}


@dataclass(frozen=True)
class Inference:
    """What a trace says of its scheduler.

    Attributes
    ----------
    policy
        The policy with the parameters that were found, for ``--policy``.
    findings
        One per parameter.
    unexplained
        Share of the recorded slices and latencies that the best candidate does not have.
    worst_group
        The tasks of which most is unexplained.
    refused
        Why nothing is said; empty otherwise.
    stated
        What the machine's file states: parameter and value, as the policy takes it.
    sharing
        Which tasks share CPU time as a group, a sentence; empty where a machine is described beside the
        trace, or the trace shows no groups.
    """

    policy: str
    findings: tuple[Finding, ...]
    unexplained: float | None
    worst_group: str
    refused: str = ""
    stated: Mapping[str, str] = field(default_factory=dict)
    sharing: str = ""

    @property
    def stock(self) -> bool:
        """Whether a stock policy explains the trace."""
        return self.unexplained is not None and self.unexplained <= UNEXPLAINED


def _with(policy: str, setting: str) -> str:
    return policy + ("," if ":" in policy else ":") + setting


def infer_parameters(
    trace: Trace, *, family: str | None = None, progress: Callable[[float], object] | None = None
) -> Inference:
    """Learn the scheduler's parameters from a trace.

    Parameters
    ----------
    trace
        A recorded trace with switches and wakeups.
    family
        A policy such as ``eevdf:version=6.12`` when it is known; by default what the kernel's
        version says, and the one that explains a trace best that does not name its kernel
        (`tracekit.whatif.families`).
    progress
        Called with the share that is done.

    Returns
    -------
    Inference
        What was found, or why nothing is said: without wakeups, or with too few choices.

    Raises
    ------
    ReplayError
        When the trace cannot be replayed.
    """
    stated, _ = by_kernel(trace, ["cfs", "eevdf"])
    family = None if family is None else _core.expand_policy(family)
    slept = pl.col("end_state").cast(pl.String).is_in(_SLEPT)
    if not trace.missing().wakeups and trace.slices.select(slept.any()).item():
        why = (
            "no wakeups were recorded, so that a replay does not show who preempts by waking: record sched_waking, "
            "or sched_wakeup"
        )
        return Inference(family or stated, (), None, "", why)
    if (ended := preempted(trace)) < LEAST:
        why = (
            f"{ended} slices ended by preemption, expected at least {LEAST}: record for longer, or under load"
        )
        return Inference(family or stated, (), None, "", why)
    programs = Programs(trace)
    search = Search(
        trace,
        lambda policy, moved: programs.run(policy, perturbation=moved),
        programs.perturbations(REPEATS),
        progress,
    )
    findings: list[Finding] = []
    first = family or stated
    if family is None and not names_kernel(trace):
        allowed, _ = allowed_by_records(trace)
        shown = likely_families(trace, allowed) if len(allowed) > 1 else None
        first = max(allowed.values(), key=search.score) if shown is None else allowed[shown.best]
        findings += [] if shown is None else [shown]
    policy = first
    name = policy.partition(":")[0]
    cpus = trace.cpus.height
    scale = scale_of(cpus)
    for parameter, unit in _SCALED.get(name, {}).items():
        # cfs scales what it is given, eevdf takes it as it is.
        default = unit * (scale if name == "eevdf" else 1)
        least = _BOUND.get(parameter, 1)
        values = [max(round(default * f), least) for f in _FACTORS] + [0] * (parameter in _ZERO)
        candidates = {f"{ns}ns": _with(policy, f"{parameter}={ns}ns") for ns in values}

        spread = partial(_spread, search, policy, parameter)
        # Far from the default replays may vary otherwise.
        sigma = spread(default)
        best = int(search.finding(parameter, candidates, sigma).best.removesuffix("ns"))
        if best != default:
            sigma = sigma.pooled(spread(best))
        found = search.finding(parameter, candidates, sigma)
        if len(found.likely) <= FEW:
            likely = [int(label.removesuffix("ns")) for label in found.likely]
            fine = {max(round(ns * f), least) for ns in likely if ns for f in (1 / _FINE, _FINE)}
            candidates |= {f"{ns}ns": _with(policy, f"{parameter}={ns}ns") for ns in sorted(fine)}
            found = search.finding(parameter, candidates, sigma)
        findings.append(found)
        policy = _keep(policy, found, parameter, f"{default}ns")
    sigma = search.spread(policy)
    for parameter in _SWITCHES.get(name, ()):
        candidates = {v: _with(policy, f"{parameter}={v}") for v in ("on", "off")}
        found = search.finding(parameter, candidates, sigma)
        findings.append(found)
        policy = _keep(policy, found, parameter, "on")
    share, group = search.unexplained(policy)
    if progress is not None:
        progress(1.0)
    groups = learned(trace)
    sharing = "" if groups is None else groups.sentence()
    return Inference(policy, tuple(findings), share, group, "", _stated(trace, name), sharing)


def _stated(trace: Trace, policy: str) -> dict[str, str]:
    """What the machine's file states of the parameters that are looked for."""
    machine = trace.machine
    if machine is None:
        return {}
    cpus, scaling = trace.cpus.height, machine.tunables.get("tunable_scaling", 1)
    found = {}
    for tunable, parameter in TUNABLES.items():
        ns = machine.tunables.get(tunable)
        if isinstance(ns, int) and parameter in _SCALED.get(policy, {}):
            found[parameter] = f"{unscaled(tunable, ns, policy, cpus, scaling)}ns"
    for feature, parameter in FEATURES.items():
        if feature in machine.features and parameter in _SWITCHES.get(policy, ()):
            found[parameter] = "on" if machine.features[feature] else "off"
    # What the tasks that are listed have by default, a stock kernel shows for each of them.
    slices = machine.tasks["slice_ns"].drop_nulls().mode().to_list()
    if policy == "eevdf" and "base_slice" not in found and len(slices) == 1:
        found["base_slice"] = f"{slices[0]}ns"
    return found


def _beside(finding: Finding, stated: str) -> str:
    """A stated value, and whether the set holds it or its neighbours do."""
    value, inside = stated, stated in finding.likely
    if stated.endswith("ns") and not inside:
        ns = int(stated.removesuffix("ns"))
        tried = [int(label.removesuffix("ns")) for label in finding.scores]
        nearest = min(tried, key=lambda other: abs(math.log(max(other, 1) / max(ns, 1))))
        inside = f"{nearest}ns" in finding.likely
    return f"; the machine's file states {_short(value)}, {'inside' if inside else 'outside'}"


def _spread(search: Search, policy: str, parameter: str, ns: int) -> Spread:
    """How much the likelihood varies around a value of a parameter."""
    return search.spread(*(_with(policy, f"{parameter}={round(ns * f)}ns") for f in _ALIKE))


def _keep(policy: str, found: Finding, parameter: str, default: str) -> str:
    """The policy with what was found, where the default is not in the set."""
    return policy if default in found.likely else _with(policy, f"{parameter}={found.best}")


def _short(value: str | None) -> str:
    """A value as a person writes it; a policy takes it so."""
    ns = (value or "").removesuffix("ns")
    return format_ns(int(ns)).replace(" ", "") if ns.isdigit() and ns != value else str(value)


def lines(found: Inference) -> Sequence[str]:
    """What was found, in sentences.

    Parameters
    ----------
    found
        What `infer_parameters` gave.

    Returns
    -------
    sequence of str
        One sentence per parameter, and what is left unexplained.
    """
    if found.refused:
        return [found.refused]
    said = [found.sharing] if found.sharing else []
    for f in found.findings:
        beside = _beside(f, found.stated[f.name]) if f.name in found.stated else ""
        if f.flat:
            said.append(f"{f.name}: the trace does not say{beside}")
        else:
            best, *likely = (_short(value) for value in (f.best, *f.likely))
            said.append(f"{f.name}: {best} (90 % set: {', '.join(likely)}){beside}")
    share = 100 * (found.unexplained or 0.0)
    if found.stock:
        said.append(f"{share:.0f} % of slices and latencies are not as {found.policy} makes them")
    else:
        said.append(
            f"no stock policy explains this: {share:.0f} % contradict the best, most in {found.worst_group}"
        )
    return said
