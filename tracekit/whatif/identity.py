"""The policy a trace was captured under, as far as anything says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.whatif.families import family_of
from tracekit.whatif.kernels import by_kernel, names_kernel
from tracekit.whatif.settings import differing

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["stated"]


def stated(trace: Trace) -> tuple[str, str]:
    """Say the policy that a trace was captured under.

    Parameters
    ----------
    trace
        The trace. The machine beside it names the kernel where the trace does not, and features and
        tunables that differ from those of the kernel's version. Where neither names it, what the trace
        shows counts, see `tracekit.whatif.families`.

    Returns
    -------
    tuple of str
        The policy, and a sentence that says why, as in `tracekit.whatif.kernels.infer`.
    """
    return trace.once("stated policy", lambda: _stated(trace))


def _stated(trace: Trace) -> tuple[str, str]:
    policy, why = by_kernel(trace)
    if "replay.policy" in trace.metadata:
        return policy, why
    if not names_kernel(trace):
        return _shown(trace) or (policy, why)
    machine = trace.machine
    if machine is not None and (set_to := differing(machine, policy, trace.cpus.height)):
        policy += ("," if ":" in policy else ":") + ",".join(set_to)
        why += f"; machine.toml says {', '.join(set_to)}"
    return policy, why


def _shown(trace: Trace) -> tuple[str, str] | None:
    """What a trace shows that does not name its kernel; None where that is nothing, or not of Linux."""
    if trace.metadata.get("os", "").lower() not in ("", "linux"):
        return None
    found = family_of(trace)
    if found is None:
        return None
    doubt = "" if found.sure else ", so this is a guess"
    return found.policy, f"the trace does not say which kernel it is from; {found.why}{doubt}"
