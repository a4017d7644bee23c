"""Does a replay repeat what was recorded: `tracekit calibrate` for Python."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from tracekit.whatif.calibration import calibrate as judge
from tracekit.whatif.identity import stated
from tracekit.whatif.run import AnyPolicy, Programs
from tracekit.whatif.source import AnyTrace, as_trace

__all__ = ["calibrate"]


def calibrate(
    trace: AnyTrace,
    policy: str | AnyPolicy | None = None,
    *,
    rt: str | None = None,
    placement: str = "auto",
    progress: Callable[[float], object] | None = None,
) -> pl.DataFrame:
    """Replay a trace under the policy that it was captured under, and judge each metric by fixed tolerances.

    Parameters
    ----------
    trace
        A recorded trace, its path, or a workload text; see `tracekit.whatif.source.as_trace`.
    policy
        The policy it was captured under; by default what its kernel uses.
    rt, placement, progress
        As in `tracekit.replay`.

    Returns
    -------
    polars.DataFrame
        As `tracekit.whatif.calibration.calibrate`: one row per metric, with `result` (String:
        ``pass``, ``fail``, ``not measured``).

    Raises
    ------
    ReplayError
        When the trace has nothing to replay.

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
    return judge(trace, programs.run(policy, rt=rt, progress=progress))
