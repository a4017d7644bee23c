"""Runs under a policy: of workloads written as text."""

from __future__ import annotations

from tracekit import _core
from tracekit.policy import CompiledPolicy, LoadedPolicy, Policy
from tracekit.trace import Trace

__all__ = ["Replay", "simulate"]

#: A policy that is not in the registry.
AnyPolicy = Policy | CompiledPolicy | LoadedPolicy


class Replay(Trace):
    """A trace that was not recorded but computed; all that works on a trace works on it."""

    @property
    def policy(self) -> str:
        """The policy with all its parameters."""
        return self.metadata["replay.policy"]


def simulate(workload: str, policy: str | AnyPolicy | None = None) -> Replay:
    r"""Run a workload that is written down instead of recorded.

    Parameters
    ----------
    workload
        Text: a policy, a machine, and a line for each task with its steps. Times are in ms: ``A: R5 S10`` runs for
        5 ms and sleeps for 10; ``(R1 S3)*`` does so for ever. The fixtures under ``fixtures/policies`` hold many.
    policy
        Policy instead of the one in the text, such as ``rr:quantum=10ms``, or a policy of one's own (`tracekit.policy`).

    Returns
    -------
    Replay
        With all tables; its time starts at 0.

    Raises
    ------
    ReplayError
        When the text or the policy is not understood.

    Examples
    --------
    >>> import tracekit as tk
    >>> run = tk.simulate("A: R5\nB: R3", policy="rr:quantum=2ms")
    >>> run.slices["dur_ns"].to_list()
    [2000000, 2000000, 2000000, 1000000, 1000000]
    """
    if policy is None or isinstance(policy, str):
        metadata, tables = _core.simulate(workload, policy)
    else:
        metadata, tables = _core.simulate_with(workload, policy)
    return Replay(tables, metadata, "workload")
