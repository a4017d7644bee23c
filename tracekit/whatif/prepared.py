"""What the core is given for a run, made once for runs that differ in their perturbation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import _core
from tracekit.errors import ReplayError
from tracekit.units import MOST_CPUS
from tracekit.whatif.as_recorded import Held, as_recorded
from tracekit.whatif.groups import asked_of_groups, refuse_empty
from tracekit.whatif.intervals import Perturbation
from tracekit.whatif.scenario import Scenario as ScenarioFile
from tracekit.whatif.scenario import cpu_settings, overrides_of, refuse_absent, resolve
from tracekit.whatif.settings import real_time_asked
from tracekit.whatif.switch_costs import Change, change, shipped

if TYPE_CHECKING:
    from tracekit.whatif.run import AnyPolicy, Programs, Replay, Scenario

__all__ = ["Prepared", "core_options"]


@dataclass(frozen=True)
class Prepared:
    """Programs that are ready to run under a policy; see `Programs.prepared`."""

    programs: Programs
    policy: str | AnyPolicy
    options: Mapping[str, Any]

    def _perturbed(self, moved: Perturbation | None) -> dict[str, Any]:
        if moved is None:
            return dict(self.options)
        phase = self.options["phase_ns"] + moved.phase_ns
        return {**self.options, "phase_ns": phase, "jitter_ns": moved.jitter_ns, "seed": moved.seed}

    def run(
        self,
        perturbation: Perturbation | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Replay:
        """Run the programs; see `Programs.run` for the parameters."""
        core = self.programs.core_of(perturbation)
        metadata, tables, _ = core.run(self.policy, progress=progress, **self._perturbed(perturbation))
        return self.programs.replay_of(metadata, tables)

    def measure(
        self,
        by: str,
        *,
        tables: Sequence[str] | None = (),
        perturbation: Perturbation | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> tuple[Sequence[tuple[object, ...]], Replay | None]:
        """Run the programs for their statistics.

        Parameters
        ----------
        perturbation, progress
            As in `Programs.run`.
        by
            Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
        tables
            Tables of the run that are made as well, by name; None for all. They take longer than its statistics.

        Returns
        -------
        tuple
            What `tracekit.analysis.compare.as_metrics` takes, and the run with these tables; None without.
            No library is called behind the run: while another thread computes, each call would
            wait for it.
        """
        core, options = self.programs.core_of(perturbation), self._perturbed(perturbation)
        metadata, made, rows = core.run(self.policy, progress=progress, tables=tables, by=by, **options)
        return rows, self.programs.replay_of(metadata, made) if made else None


def _check_cpus(cpus: object) -> None:
    """Refuse what is no number of CPUs; the core takes 0 for one CPU."""
    if isinstance(cpus, bool) or not isinstance(cpus, Integral) or not 1 <= int(cpus) <= MOST_CPUS:
        raise ReplayError(f"cpus: expected a whole number from 1 to {MOST_CPUS}, found {cpus!r}")


def core_options(
    programs: Programs,
    policy: str | AnyPolicy,
    *,
    rt: str | None = None,
    cpus: int | None = None,
    phase_ns: int = 0,
    overheads: bool = True,
    switch_costs: bool = True,
    costs: Mapping[str, str] | None = None,
    scenario: Scenario | None = None,
    shared: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """What the core is given for a run; see `tracekit.whatif.run.replay` for the parameters.

    `shared` has groups to be taken instead of those of the machine, or that the trace shows.
    """
    trace = programs.trace
    if cpus is not None:
        _check_cpus(cpus)
    # What the caller sets wins over what the machine says.
    same_cpus = cpus is None or cpus == trace.cpus.height
    # A workload text states everything itself.
    held = Held() if programs.stated else as_recorded(trace, policy, same_cpus=same_cpus, shared=shared)
    overrides = overrides_of(scenario) if scenario else []
    sets = resolve(overrides, trace)
    groups = [*held.groups, *asked_of_groups(policy, overrides)]
    if not programs.stated:
        refuse_empty(overrides, [*held.stated, *sets])
        refuse_absent(overrides, trace, cpus)
    given = dict(scenario.costs) if isinstance(scenario, ScenarioFile) else {}
    given |= costs or {}
    shift = _switch_costs(programs, policy) if switch_costs and isinstance(policy, str) else None
    return {
        "rt": real_time_asked(None if programs.stated else trace.machine, rt),
        "cpus": cpus,
        "phase_ns": phase_ns,
        "overheads": overheads,
        "stated": held.stated,
        "sets": sets,
        "groups": groups,
        "cpu_sets": cpu_settings(overrides),
        "switch_costs": shift,
        "costs": list(given.items()),
    }


def _switch_costs(programs: Programs, policy: str) -> Change | None:
    """What switches take in the recorded kernel and under `policy`; a workload text states it."""
    if programs.stated:
        return None
    identity = programs.identity
    if identity.partition(":")[0] not in ("cfs", "eevdf"):
        return None
    found = programs.inferred.filter(
        pl.col("name") == "run-queue clock to tracepoint offset", pl.col("n") > 0
    )["value"].to_list()
    return change(
        _core.parse_policy(identity),
        programs.trace.metadata.get("kernel", ""),
        _core.parse_policy(policy),
        found[0] if found else None,
        shipped(),
    )
