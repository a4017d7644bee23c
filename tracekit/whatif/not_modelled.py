"""Changes that no part of the model implements: found by name, so that they are refused and not guessed."""

from __future__ import annotations

from collections.abc import Mapping

from tracekit import _core
from tracekit.errors import ReplayError

__all__ = ["MECHANISMS", "NotModelledError", "split", "unmodelled_features"]

#: Parameter that a user may ask for, and what it is; refused where the policy has no such parameter (Linux:
#: kernel/sched/features.h, Documentation/scheduler/, Documentation/admin-guide/cgroup-v2.rst).
MECHANISMS = {
    "hrtick": "HRTICK, a timer that ends slices between ticks",
    "hrtick_dl": "HRTICK_DL, the same for SCHED_DEADLINE",
    "autogroup": "automatic task groups by session",
    "bandwidth": "CPU bandwidth of cgroups (cpu.max)",
    "core_scheduling": "core scheduling of SMT siblings",
    "energy_aware": "energy-aware placement",
    "numa_balancing": "NUMA balancing",
    "uclamp": "utilisation clamping",
    "proxy_exec": "proxy execution",
}
#: Features of the kernel that change a schedule, and the parameter of the policy that models each.
FEATURES = {
    "HRTICK": "hrtick",
    "HRTICK_DL": "hrtick_dl",
    "PROXY_EXEC": "proxy_exec",
}


class NotModelledError(ReplayError):
    """A change that no part of the model implements.

    Attributes
    ----------
    what : tuple of str
        Each change by name.
    """

    status = 4

    def __init__(self, message: str, what: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.what = what

    def __reduce__(self) -> tuple[type[NotModelledError], tuple[object, ...]]:
        return type(self), (str(self), self.what)


def _parameters(name: str) -> set[str]:
    for policy in _core.policies():
        if name in (policy["name"], *policy.get("aliases", ())):
            return {str(p["name"]) for p in policy["params"]}
    return set()


def split(policy: str) -> tuple[str, tuple[str, ...]]:
    """Take out of a policy what nothing models.

    Parameters
    ----------
    policy
        ``name:param=value,...``.

    Returns
    -------
    tuple
        The policy without those parameters, and what each of them is. A parameter that is set to
        ``off`` asks for nothing and is only taken out. Misspelt parameters stay, for the parser to
        refuse.
    """
    name, colon, rest = policy.partition(":")
    if not colon:
        return policy, ()
    own, kept, found = _parameters(name), [], []
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        key = key.strip().lower()
        if key in MECHANISMS and key not in own:
            if value.strip().lower() not in ("off", "0", "false", "no"):
                found.append(MECHANISMS[key])
        else:
            kept.append(part)
    return name + (":" + ",".join(kept) if kept else ""), tuple(found)


def unmodelled_features(features: Mapping[str, bool], policy: str) -> tuple[str, ...]:
    """Name the features of the recorded kernel that its identity replay does not model.

    Only features that were on.

    Parameters
    ----------
    features
        Scheduler features of the recorded kernel, and whether each was on.
    policy
        The policy of the identity replay.
    """
    own = _parameters(policy.partition(":")[0])
    return tuple(
        MECHANISMS[parameter]
        for feature, parameter in FEATURES.items()
        if features.get(feature) and parameter not in own
    )
