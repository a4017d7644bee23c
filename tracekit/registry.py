"""What there is: formats, policies, tables, vocabularies, diagnostic codes. Light to import."""

from __future__ import annotations

from tracekit import _core
from tracekit.io.external import all_formats

__all__ = [
    "FILLS",
    "attributes",
    "check_policy",
    "costs",
    "diagnostic_codes",
    "fills",
    "formats",
    "metadata_keys",
    "policies",
    "tables",
    "version",
    "vocabularies",
]

#: Version of tracekit.
version: str = _core.__version__


def formats() -> list[_core.FormatInfo]:
    """All formats that can be read.

    Returns
    -------
    list of dict
        Each with ``name``, ``title``, ``streams`` (can a pipe of any length be read?),
        ``produced_by``, ``kinds``, ``provides``, ``resolution``, ``clock``, ``confidence`` and
        ``notes``.

    Examples
    --------
    >>> import tracekit as tk
    >>> [f["name"] for f in tk.formats() if f["name"].startswith("trace-")]
    ['trace-dat']
    """
    return all_formats()


#: What a trace can hold besides its records, as `provides` of a format names it.
FILLS: tuple[str, ...] = ("waker", "target CPU", "priority", "state", "queue length", "losses")


def fills(info: _core.FormatInfo) -> dict[str, bool]:
    """Tell which columns of general use a format can fill.

    Parameters
    ----------
    info
        A format of `formats`.

    Returns
    -------
    dict
        For each of `waker`, `target CPU`, `priority`, `state`, `queue length`, `losses`: can it be
        provided? The format's ``provides`` says under which condition.
    """
    return {what: what in info["provides"] for what in FILLS}


def policies() -> list[_core.PolicyInfo]:
    """All policies that a trace can be replayed under.

    Returns
    -------
    list of dict
        Each with ``name``, ``title``, ``idea``, ``formula``, ``tie_break``, ``not_modelled``,
        ``sources``, ``rt_above`` (do SCHED_FIFO and SCHED_RR tasks run in a class above?),
        ``deadline_above`` (do SCHED_DEADLINE tasks run above those?), ``reads`` (what it looks at of
        tasks by itself; ``rt_prio`` is their ``prio`` under fifo and rr), ``aliases`` (other names) and ``params``, a list of dict with ``name``, ``unit``,
        ``default``, ``range`` and ``doc``.

    Examples
    --------
    >>> import tracekit as tk
    >>> [(p["name"], p["default"]) for policy in tk.policies() if policy["name"] == "fifo" for p in policy["params"]]
    [('queue', 'cpu')]
    """
    return _core.policies()


def attributes(policy: _core.PolicyInfo) -> list[str]:
    """Name the attributes of tasks that a policy looks at, or the classes above it do.

    Parameters
    ----------
    policy
        A policy of `policies`.

    Returns
    -------
    list of str
        Keys of ``--set``. Under others nothing would change, and a replay refuses them.

    Examples
    --------
    >>> from tracekit.registry import attributes, policies
    >>> [attributes(p) for p in policies() if p["name"] == "rr"]
    [['policy', 'prio (under fifo and rr)', 'deadline', 'cpus']]
    """
    own = policy["reads"]
    above = ["policy"] if policy["rt_above"] or policy["deadline_above"] else []
    found = list(dict.fromkeys([*above, *(a for a in own if a != "rt_prio")]))
    if "prio" not in own and (policy["rt_above"] or "rt_prio" in own):
        found.append("prio (under fifo and rr)")
    return [*found, *(["deadline"] if policy["deadline_above"] else []), "cpus"]


def costs() -> list[_core.WordInfo]:
    """What scheduling itself can cost in a replay, apart from the policy.

    Returns
    -------
    list of dict
        Each with ``name`` and ``doc``. A cost is given as ``name=time``, such as ``switch=3us``;
        that of a fork as a function of the processes alive.

    Examples
    --------
    >>> import tracekit as tk
    >>> next(cost["doc"] for cost in tk.costs() if cost["name"] == "wakeup")
    'a wakeup made by a task'
    """
    return _core.costs()


def check_policy(policy: str) -> str:
    """Check a policy and write all its parameters out.

    Parameters
    ----------
    policy
        ``name`` or ``name:param=value,param=value``, times with their unit; the name may be
        ``linux-6.12``, for the scheduler of that kernel.

    Returns
    -------
    str
        The same policy with every parameter.

    Raises
    ------
    ReplayError
        When there is no such policy or parameter, or a value does not fit.

    Examples
    --------
    >>> check_policy("rr:quantum=10ms").startswith("rr:quantum=10ms,")
    True
    """
    return _core.parse_policy(policy)


def tables() -> list[_core.TableInfo]:
    """All tables of a trace.

    Returns
    -------
    list of dict
        Each with ``name``, ``doc`` and ``columns``, a list of dict with ``name``, ``type``,
        ``null`` (when it is null; empty for never) and ``doc``.
    """
    return _core.tables()


def vocabularies() -> _core.Vocabularies:
    """The words that columns of closed lists can hold, and the bits of columns of flags.

    Returns
    -------
    dict
        ``kinds`` and ``states``: lists of dict with ``name`` and ``doc``; ``irq_flags``,
        ``quality`` and ``flags``: lists of dict with ``bit``, ``name`` and ``doc``.
    """
    return _core.vocabularies()


def diagnostic_codes() -> list[_core.CodeInfo]:
    """All codes of the ``diagnostics`` table.

    Returns
    -------
    list of dict
        Each with ``code``, ``severity`` (info, loss, error) and ``doc``.
    """
    return _core.diagnostic_codes()


def metadata_keys() -> list[_core.WordInfo]:
    """All keys of a trace's metadata.

    Returns
    -------
    list of dict
        Each with ``name`` and ``doc``.
    """
    return _core.metadata_keys()
