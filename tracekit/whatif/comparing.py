"""Make a comparison: replay a trace under several policies, each repeated, and under its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from tracekit import _core
from tracekit.analysis.compare import IDENTITY
from tracekit.errors import FilterError, FilterWarning, ReplayError
from tracekit.filters import CommPattern, Selection
from tracekit.harmless import printable
from tracekit.trace import Trace
from tracekit.whatif.basis import unheld_machine, unmeasured_cpus
from tracekit.whatif.calibration import keeps_phase
from tracekit.whatif.comparison import Comparison, keep_fidelity, metrics_of, sampling_of
from tracekit.whatif.fidelity import NEEDS, Fidelity, fidelity
from tracekit.whatif.identity import stated
from tracekit.whatif.intervals import RUNS, Perturbation
from tracekit.whatif.known import known_of
from tracekit.whatif.left_out import callers
from tracekit.whatif.not_modelled import NotModelledError, split, unmodelled_features
from tracekit.whatif.reconstructed import stated_hz
from tracekit.whatif.recorded import unreplayed
from tracekit.whatif.repeat import Asked, judged, run_all
from tracekit.whatif.row_error import change_class, unheld
from tracekit.whatif.run import Programs, Replay, Scenario
from tracekit.whatif.scenario import overrides_of
from tracekit.whatif.source import AnyTrace, as_trace
from tracekit.whatif.threads import Beside

__all__ = ["compare"]


def _changed(
    scenario: Scenario | None, cpus: int | None, rt: str | None, costs: Mapping[str, str] | None
) -> str:
    """What is changed beside the policy, as a label."""
    parts = [o.short for o in overrides_of(scenario)] if scenario else []
    parts += [f"{cpus} CPU{'s' * (cpus != 1)}"] if cpus is not None else []
    return "; ".join([*parts, *filter(None, [rt]), *(f"{k}={v}" for k, v in (costs or {}).items())])


def compare(
    trace: AnyTrace,
    policies: str | Iterable[str] | Mapping[str, str] = (),
    *,
    identity: str | None = None,
    by: str = "group",
    loop: str = "dependency",
    rt: str | None = None,
    cpus: int | None = None,
    hz: int | None = None,
    endless: Sequence[str] = (),
    placement: str = "auto",
    overheads: bool = True,
    switch_costs: bool = True,
    costs: Mapping[str, str] | None = None,
    scenario: Scenario | None = None,
    runs: int = RUNS,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[float], object] | None = None,
    real: AnyTrace | None = None,
    comm: CommPattern | Iterable[CommPattern] | None = None,
    pid: int | Iterable[int] | None = None,
    tid: int | Iterable[int] | None = None,
    exclude: CommPattern | Iterable[CommPattern] | None = None,
) -> Comparison:
    """Set a trace beside its replays under several policies.

    Every change is held against the *identity replay*: the same trace replayed under the policy it
    was captured under. What that gets wrong, every prediction may get wrong as well; it is one part
    of the 90 % interval.

    Parameters
    ----------
    trace
        A recorded trace, its path, or a workload text; see `tracekit.whatif.source.as_trace`. What
        a text does is stated and not inferred: its identity replay repeats it, and the interval
        holds what other draws and small perturbations change, without a model error.
    policies
        A policy, or several, as in `replay`; as a mapping, label to policy. None: the policy that the trace was
        captured under, for what else is asked, which is the label then: other attributes of tasks,
        other CPUs. Beside policies it is `Comparison.beside`.
    identity
        Policy that the trace was captured under; by default inferred from its metadata. It is
        replayed as the trace was recorded: `cpus`, `rt`, `costs` and `scenario` do not touch it.
    by
        Grouping of tasks: ``group``, ``comm``, ``tid`` or ``all``.
    loop, rt, cpus, hz, endless, placement, overheads, switch_costs, costs, scenario
        As in `replay`. The identity replay has the same `placement` and the same `hz`: that is of the
        recorded machine, where the trace does not say it.
    runs
        How often each replay is repeated with small changes of the machine, for the interval of
        each prediction (`tracekit.whatif.intervals`); 1 does without, and no row is `trusted` then.
    jobs
        How many threads; by default one for each CPU, at most 8. The result is the same for any number.
    force
        Compare also where nothing models what is asked for, or what the recorded kernel had
        switched on: every row is then marked `do not use`, with the reason.
    progress
        Called with the share that is done, a `tracekit.whatif.repeat.Done`; from several threads,
        one at a time.
    real
        A recording under what is asked for, or its path: each prediction is held against it, see
        `Comparison.held`.
    comm, pid, tid, exclude
        The tasks whose groups are shown and judged, as in `Trace.filter`. Everything is replayed: of
        a trace that was filtered before, a replay lacks what the others did.

    Returns
    -------
    Comparison
        Tables, and a report as JSON and HTML.

    Raises
    ------
    ValueError
        `real` with several policies: a recording is under one.
    ReplayError
        `runs` is below 1. `hz` is not what the trace, or the machine beside it, says. As in `replay`.
    FilterError
        No task of the trace fits `comm`, `pid`, `tid` and `exclude`, or tasks are chosen with
        ``by="all"``.

    Examples
    --------
    >>> import tracekit as tk
    >>> found = tk.compare("fixtures/demo/slice-default.dat", "cfs:wakeup_preemption=off", runs=1)
    >>> row = found.summary.filter(metric="slice_per_involuntary", group="spin")
    >>> round(row["recorded"].item() / 1e6, 1), round(row["predicted"].item() / 1e6, 1)
    (0.9, 3.9)
    """
    if runs < 1:
        raise ReplayError(f"runs: expected a whole number above 0, found {runs}")
    trace = as_trace(trace)
    overrides = overrides_of(scenario) if scenario else []
    chosen = _chosen(trace, by, comm=comm, pid=pid, tid=tid, exclude=exclude)
    labelled = _labelled(policies)
    identity, why = (_core.expand_policy(identity), "stated") if identity else stated(trace)
    changed = _changed(scenario, cpus, rt, costs)
    # Without a policy what is changed is the label itself.
    beside_policies = changed if labelled else ""
    labelled = labelled or {changed or identity: identity}
    if real is not None and len(labelled) > 1:
        raise ValueError(f"a recording is under one policy; {len(labelled)} were asked for")
    _check_hz(trace, hz)
    beside = None if real is None else as_trace(real)
    labelled, unmodelled = _modelled(trace, identity, labelled, force)
    for policy in labelled.values():
        _core.parse_policy(policy)
    read = ("programs", loop, hz, tuple(endless), placement, identity)
    changes = {"rt": rt, "switch_costs": switch_costs, "cpus": cpus, "costs": costs, "scenario": scenario}
    asked = {label: Asked(policy, {"overheads": overheads} | changes) for label, policy in labelled.items()}

    # What the comparison will be asked for: while others reconstruct and replay, it needs no time of its own.
    def recorded() -> None:
        sampling_of(trace, by)
        metrics_of(trace, by)

    faithful: dict[int, Fidelity] = {}

    def of_run(label: str, nth: int, run: Replay) -> object:
        if label == IDENTITY:
            faithful[nth] = fidelity(trace, run)
            return None
        return sampling_of(run, by)

    intervals = runs > 1
    with Beside(jobs) as threads:
        if intervals:
            threads.later(recorded)
        programs = trace.once(
            read, lambda: Programs(trace, loop, hz, endless, placement, identity, beside=threads)
        )
        perturbations = programs.perturbations(runs)
        key = ("identity", *read, overheads, len(perturbations), by)
        known: dict[str, Any] = trace.once(key, dict)
        # Another thread may be running it, too; both find the same.
        shared = dict(known)
        if not shared:
            # It is of what was recorded, so that every comparison of the trace shares it.
            own = {"overheads": overheads, "switch_costs": False}
            asked = {IDENTITY: Asked(identity, own, judged(runs, programs), NEEDS), **asked}
        try:
            plain, repeated = run_all(
                programs,
                asked,
                perturbations,
                by,
                span_ns=(trace.end_ns or 0) - (trace.start_ns or 0),
                beside=threads,
                progress=progress,
                after=of_run if intervals else None,
            )
        except ReplayError as error:
            if len(labelled) == 1 or isinstance(error, NotModelledError):
                raise
            named = {label: asked[label] for label in labelled}
            raise _name_refusals(programs, named, error) from None
    if not shared:
        shared = {"replay": plain.pop(IDENTITY), "repeated": repeated.pop(IDENTITY)}
        by_number = [faithful[nth] for nth in sorted(faithful)]
        shared["plain"] = keeps_phase(by_number)
        if by_number:
            keep_fidelity(trace, shared["replay"], by_number)
        known.update(shared)
    same = shared["replay"]
    repeated = {IDENTITY: shared["repeated"], **repeated}
    for label, run in {IDENTITY: same, **plain}.items():
        run.once(("metrics", by), partial(_first, repeated[label]))
    attributes = {key for o in overrides for key, _ in o.settings}
    other_cpus = cpus is not None and cpus != trace.cpus.height
    classes = {
        label: change_class(same.policy, run.policy, other_cpus, attributes, trace.cpus.height > 1)
        for label, run in plain.items()
    }
    found = known_of(programs, trace, by, repeated, classes)
    unmeasured = {label: said for label, run in plain.items() if (said := unmeasured_cpus(trace, run))}
    plainly = found.plain or shared["plain"]
    most, machine = max(trace.cpus.height, cpus or 0), unheld_machine(trace, same)
    never = {
        label: []
        if programs.stated
        else unheld((same.policy, run.policy), most, attributes, other_cpus) + machine
        for label, run in plain.items()
    }
    found = replace(found, unmodelled=unmodelled, unmeasured=unmeasured, unheld=never, plain=plainly)
    return Comparison(trace, same, plain, why, by, found, beside, overrides, chosen, beside_policies)


def _labelled(policies: object) -> dict[str, str]:
    """The policies by label."""
    given = [policies] if isinstance(policies, str) or not isinstance(policies, Iterable) else policies
    pairs = list(given.items()) if isinstance(given, Mapping) else [(policy, policy) for policy in given]
    for _, policy in pairs:
        if not isinstance(policy, str):
            own = "; tracekit.replay runs one's own" if hasattr(policy, "enqueue") else ""
            raise ReplayError(f"policies: expected names, such as 'cfs', found {policy!r:.60}{own}")
    return dict(pairs)


def _check_hz(trace: Trace, hz: int | None) -> None:
    """Refuse another clock tick than that of the recording: the identity replay would have it, too."""
    recorded, where = stated_hz(trace)
    if hz is not None and recorded is not None and hz != recorded:
        raise ReplayError(
            f"hz={hz}: {where} says {recorded}. A comparison takes `hz` for that of the recording, in every replay; "
            "what another clock tick changes it does not say. Leave it out, or correct the file"
        )


class _Begun(Exception):
    """A replay has begun: what was asked for is not refused."""


def _begun(share: float) -> None:
    # What is refused, too, ends with a share of 1.
    if 0 < share < 1:
        raise _Begun


def _name_refusals(programs: Programs, asked: Mapping[str, Asked], error: ReplayError) -> ReplayError:
    """The error of one of several policies, and which of them refuse what is asked for as well."""
    refused = []
    for label, a in asked.items():
        try:
            programs.prepared(a.policy, **a.options).run(progress=_begun)
        except _Begun:
            pass
        except ReplayError:
            refused.append(label)
    others = [label for label in asked if label not in refused]
    if not refused or not others:
        return error
    takes, does = ("takes" if len(others) == 1 else "take"), ("does" if len(refused) == 1 else "do")
    return ReplayError(
        f"{error}; of the policies asked for, {', '.join(others)} {takes} it, "
        f"{', '.join(refused)} {does} not: leave out what does not"
    )


def _chosen(trace: Trace, by: str, **conditions: Any) -> frozenset[int] | None:
    """Keys of the tasks that meet the conditions; None for all."""
    made = Selection.make(trace, **conditions, cpu=None, start=None, end=None)
    if made.utids is None:
        return None
    if by == "all":
        given = "; ".join(f"{key} {', '.join(map(str, v))}" for key, v in made.described().items())
        raise FilterError(f"{given}: by all there is one group, of all tasks; expected by comm or tid")
    unmet = made.unmet(trace)
    if not made.utids:
        raise FilterError("; ".join(unmet) or "the trace has no tasks")
    for said in unmet:
        warnings.warn(printable(said), FilterWarning, stacklevel=callers())
    return made.utids


def _first(repeated: Sequence[tuple[Perturbation, pl.DataFrame]]) -> pl.DataFrame:
    """The statistics of the plain replay."""
    return repeated[0][1]


def _modelled(
    trace: Trace, identity: str, labelled: Mapping[str, str], force: bool
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """The policies without what nothing models, and what that is by label."""
    machine = trace.machine
    recorded = () if machine is None else unmodelled_features(machine.features, identity)
    recorded += unreplayed(trace)
    parts = {label: split(_core.expand_policy(policy)) for label, policy in labelled.items()}
    found = {label: (*what, *recorded) for label, (_, what) in parts.items()}
    names = tuple(dict.fromkeys(w for what in found.values() for w in what))
    if names and not force:
        raise NotModelledError(
            f"nothing models {'; '.join(names)}: a prediction would be a guess. "
            "Leave it out, or ask for it with --force (force=True)",
            names,
        )
    return {label: policy for label, (policy, _) in parts.items()}, found
