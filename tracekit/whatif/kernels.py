"""What schedules in a kernel, by its name and version."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tracekit import _core

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["by_kernel", "infer", "names_kernel"]

_OTHERS = {
    "solaris": ("the time-sharing class", "solaris-ts"),
    "illumos": ("the time-sharing class", "solaris-ts"),
    "freebsd": ("ULE", "ule"),
    "aix": ("AIX's scheduler", "aix"),
    "windows": ("NT's scheduler", "nt4"),
}
_FALLBACK = "cfs"


def infer(metadata: Mapping[str, str], known: Collection[str]) -> tuple[str, str]:
    """Infer the policy that a trace was captured under.

    Parameters
    ----------
    metadata
        Metadata of the trace: `workload`, `replay.policy`, `os` and `kernel` are looked at.
    known
        Names of the policies that can be replayed.

    Returns
    -------
    tuple of str
        The policy, and a sentence that says why. Only the fair class is meant: tasks with a
        real-time priority in the trace keep it under every policy.
    """
    if "workload" in metadata and "replay.policy" in metadata:
        return metadata["replay.policy"], "the workload text names it"
    if "replay.policy" in metadata:
        policy = metadata["replay.policy"]
        return policy, f"the trace is itself a replay under {policy}"
    system = metadata.get("os", "").lower()
    kernel = metadata.get("kernel", "")
    if system in ("", "linux") and (found := _core.kernel_scheduler(kernel)):
        scheduler, policy = found
        why = f"the trace says that the kernel is {kernel}, which schedules with {scheduler}"
        return _pick(policy, known, why)
    if system in _OTHERS:
        scheduler, policy = _OTHERS[system]
        why = f"the trace says that the system is {system}, which schedules with {scheduler}"
        return _pick(policy, known, why)
    return _pick(_FALLBACK, known, "the trace does not say which kernel it is from, so this is a guess")


def by_kernel(trace: Trace, known: Collection[str] | None = None) -> tuple[str, str]:
    """Say what the kernel of a trace schedules with, as its version came.

    Parameters
    ----------
    trace
        The trace. The machine beside it names the kernel where the trace does not.
    known
        Names of the policies that may be said; by default all that can be replayed.

    Returns
    -------
    tuple of str
        The policy, and a sentence that says why, as in `infer`.
    """
    meta, machine = trace.metadata, trace.machine
    known = [p["name"] for p in _core.policies()] if known is None else known
    if "kernel" in meta or machine is None or machine.release is None:
        return infer(meta, known)
    policy, why = infer({**meta, "kernel": machine.release}, known)
    return policy, why.replace("the trace says", "machine.toml says", 1)


def names_kernel(trace: Trace) -> bool:
    """Whether the trace, or the machine beside it, says which kernel it is from."""
    machine = trace.machine
    return bool(trace.metadata.get("kernel") or (machine is not None and machine.release))


def _pick(policy: str, known: Collection[str], why: str) -> tuple[str, str]:
    if policy.partition(":")[0] in known:
        return policy, why
    stand_in = _FALLBACK if _FALLBACK in known else min(known, default=_FALLBACK)
    return stand_in, f"{why}; tracekit cannot replay that, and {stand_in} stands in for it"
