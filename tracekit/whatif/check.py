"""Does a replay repeat what was recorded: `tracekit calibrate` for Python."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from tracekit.analysis.compare import IDENTITY
from tracekit.errors import ReplayError
from tracekit.whatif.calibration import judge
from tracekit.whatif.fidelity import NEEDS, Fidelity, fidelity
from tracekit.whatif.identity import stated
from tracekit.whatif.intervals import RUNS
from tracekit.whatif.recorded import refuse_part
from tracekit.whatif.repeat import Asked, judged, run_all
from tracekit.whatif.run import AnyPolicy, Programs, Replay
from tracekit.whatif.source import AnyTrace, as_trace
from tracekit.whatif.threads import Beside

__all__ = ["as_captured", "calibrate"]


def calibrate(
    trace: AnyTrace,
    policy: str | AnyPolicy | None = None,
    *,
    rt: str | None = None,
    placement: str = "auto",
    runs: int = RUNS,
    jobs: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> pl.DataFrame:
    """Replay a trace under the policy that it was captured under, and judge each metric by fixed tolerances.

    Parameters
    ----------
    trace
        A recorded trace, its path, or a workload text; see `tracekit.whatif.source.as_trace`.
    policy
        The policy it was captured under; by default what its kernel uses.
    rt, placement
        As in `tracekit.replay`.
    runs, jobs, progress
        As in `tracekit.compare`: the median of the repetitions is judged. Of a trace of over a million
        slices fewer are made, see `tracekit.whatif.repeat.JUDGED_SLICES`.

    Returns
    -------
    polars.DataFrame
        As `tracekit.whatif.calibration.calibrate`: one row per metric, with `result` (String:
        ``pass``, ``fail``, ``not measured``).

    Raises
    ------
    ReplayError
        When the trace has nothing to replay, or `runs` is below 1.

    Examples
    --------
    >>> import tracekit as tk
    >>> found = tk.calibrate(tk.read("fixtures/demo/slice-default.dat"))
    >>> found.filter(metric="switches")["result"].item()
    'pass'
    """
    trace = as_trace(trace)
    if policy is None:
        policy, _ = stated(trace)
    identity = policy if isinstance(policy, str) else None
    programs = Programs(trace, placement=placement, identity=identity)
    return as_captured(programs, policy, rt=rt, runs=runs, jobs=jobs, progress=progress)[1]


def as_captured(
    programs: Programs,
    policy: str | AnyPolicy,
    *,
    rt: str | None = None,
    runs: int = RUNS,
    jobs: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> tuple[Replay, pl.DataFrame]:
    """Replay programs under the policy that they were captured under: the plain replay, and how well all do.

    Parameters
    ----------
    programs
        The programs of a trace.
    policy, rt, runs, jobs, progress
        As in `calibrate`.

    Raises
    ------
    ReplayError
        As `calibrate`; `NotModelledError` where the trace was recorded in part.
    """
    if runs < 1:
        raise ReplayError(f"runs: expected a whole number above 0, found {runs}")
    trace = programs.trace
    refuse_part(trace)
    perturbations = programs.perturbations(runs)[: judged(runs, programs)]
    found: dict[int, Fidelity] = {}

    def measured(label: str, nth: int, run: Replay) -> None:
        found[nth] = fidelity(trace, run)

    with Beside(jobs) as threads:
        plain, _ = run_all(
            programs,
            {IDENTITY: Asked(policy, {"rt": rt}, len(perturbations), NEEDS)},
            perturbations,
            "all",
            span_ns=(trace.end_ns or 0) - (trace.start_ns or 0),
            beside=threads,
            progress=progress,
            after=measured,
        )
    return plain[IDENTITY], judge([found[nth] for nth in sorted(found)])
