"""What predictions miss beyond what their own terms say.

By class of metric and of change, as found on real captures.

The table ``row_error.toml`` is written by `make validate` from every row of every pair of the lab
that it predicted. A class of which no pair was measured has no entry: a row of it takes the widest
entry of its kind of change, and says so.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tracekit.whatif.intervals import quantile, scheduler

__all__ = [
    "CHANGES",
    "METRIC_CLASSES",
    "Case",
    "RowError",
    "change_class",
    "fit",
    "metric_class",
    "no_error",
    "row_errors",
    "sampling_scale",
    "to_toml",
    "unheld",
    "width_of",
]

#: Classes of metrics whose errors are alike.
METRIC_CLASSES = (
    *("mean slice", "slice quantile", "run delay", "wakeup latency", "response", "share", "counts"),
    *("run queue",),
)
#: Classes of changes, the one that decides first: of a scheduler that no real capture ran under nothing is
#: validated, on one CPU or several; with more CPUs nothing else is validated either.
CHANGES = (
    "other scheduler",
    "CPUs changed",
    "groups",
    "several CPUs",
    "class changed",
    "other kernel",
    "same scheduler",
)
#: What the captures of the lab were recorded under: schedulers by name, with their forms (kernels 5.10, 6.1,
#: 6.12, 6.18 and 7.3) and their real-time classes, on how many CPUs at most, all of one capacity and with
#: one last-level cache (docs/validation-several.md, "Eight CPUs"). SCHED_DEADLINE is in none.
HELD = {"cfs": {"form=6.1": 8}, "eevdf": {"version=6.12": 8, "version=6.18": 2, "version=7.3": 8}}
#: Most CPUs of any of them.
HELD_CPUS = max(most for forms in HELD.values() for most in forms.values())
#: The same where another number of CPUs is asked for.
CHANGED_CPUS = 4
#: Fewest rows that an entry is fitted to. A 90 % quantile of fewer is their maximum
#: (split-conformal: n >= 9), and 30 rows keep its standard error below 6 percentage points.
MIN_ROWS = 30
#: Share of kernel work from which a row counts as kernel work: forks, execs, exits and yields cost
#: what no schedule says.
HEAVY = 0.5


def metric_class(metric: str, statistic: str) -> str:
    """Give the class of a row of `tracekit.analysis.compare.metrics`; empty for a maximum, which has none."""
    if statistic == "max":
        return ""
    if metric in ("slice", "slice_per_involuntary"):
        return "mean slice" if statistic == "mean" else "slice quantile"
    if metric in ("switches", "involuntary_switches"):
        return "counts"
    return {"cpu_time": "share", "runqueue": "run queue"}.get(metric, metric.replace("_", " "))


def change_class(
    identity: str, policy: str, cpus: bool = False, attributes: Iterable[str] = (), several: bool = False
) -> str:
    """Give the class of a change.

    Parameters
    ----------
    identity, policy
        The policy of the recording, and the one that is predicted; with all their parameters or without.
    cpus
        The number of CPUs is another one.
    attributes
        Attributes of tasks that are changed.
    several
        The trace is of more than one CPU: where tasks are put is predicted, too, so pairs on one
        CPU say little of it.

    Returns
    -------
    str
        One of `CHANGES`. ``other scheduler`` unless captures of `HELD` ran under both, in whatever form;
        another ``form`` or ``version``, or eevdf for cfs, is another kernel.
    """
    one, two = scheduler(identity), scheduler(policy)
    if not {one[0], two[0]} <= HELD.keys():
        return "other scheduler"
    names = set(attributes)
    if cpus:
        return "CPUs changed"
    if names & {"cgroup", "group", "cpus"}:
        return "groups"
    if several:
        return "several CPUs"
    if names & {"policy", "class"}:
        return "class changed"
    return "same scheduler" if one == two else "other kernel"


def unheld(
    policies: Iterable[str], cpus: int, attributes: Iterable[str] = (), changed: bool = False
) -> list[str]:
    """Name what no capture of the lab had, so that what a prediction misses there was never measured.

    Parameters
    ----------
    policies
        That of the recording, and the one that is predicted.
    cpus
        The most CPUs that one of them has.
    attributes
        Attributes of tasks that are changed.
    changed
        The number of CPUs is another one.

    Returns
    -------
    list of str
        Schedulers without captures under their name and stated form, or on as many CPUs, see `HELD`, more
        CPUs, and SCHED_DEADLINE. Empty where there were captures of each.
    """
    found = []
    for name, *forms in dict.fromkeys(map(scheduler, policies)):
        known = HELD.get(name, {})
        if not known or not set(forms) <= known.keys():
            found.append(":".join([name, *forms]))
            continue
        most = min((known[form] for form in forms), default=HELD_CPUS)
        if most < cpus <= HELD_CPUS:
            found.append(f"{':'.join([name, *forms])} on more than {most} CPUs")
    if "deadline" in attributes:
        found.append("SCHED_DEADLINE")
    if cpus > HELD_CPUS:
        found.append(f"more than {HELD_CPUS} CPUs")
    elif changed and cpus > CHANGED_CPUS:
        found.append(f"another number of CPUs beyond {CHANGED_CPUS}")
    return found


@dataclass(frozen=True)
class RowError:
    """The model error of a class.

    Attributes
    ----------
    change, metric
        The classes.
    base, heavy
        Relative half-width at 90 %, of rows with little and with much kernel work; None where too
        few rows were measured.
    rows, workloads
        What it rests on.
    sampling
        How much of the sampling error another run of the same programs shows, 0 to 1; one for a
        class of metrics. A capture of the same programs repeats much of their demand, so that it
        can differ by less than another sample would.
    """

    change: str
    metric: str
    base: float | None
    heavy: float | None
    rows: int
    workloads: int
    sampling: float = 1.0

    def of(self, share: float) -> float | None:
        """The half-width for a share of kernel work."""
        return self.base if share < HEAVY else self.heavy


Table = Mapping[tuple[str, str], RowError]


@cache
def row_errors() -> dict[tuple[str, str], RowError]:
    """Give the model errors that ship with the package, by class of change and of metric."""
    text = resources.files("tracekit.whatif").joinpath("row_error.toml").read_text()
    found = {}
    for change, metrics in tomllib.loads(text).get("change", {}).items():
        for metric, t in metrics.items():
            known = t.get("base"), t.get("heavy"), t["rows"], t["workloads"], t.get("sampling", 1.0)
            found[change, metric] = RowError(change, metric, *known)
    return found


@cache
def no_error() -> dict[tuple[str, str], RowError]:
    """Give the table for workload texts, whose programs are stated.

    No model error, and no real capture behind it.
    """
    keys = [(change, metric) for change in CHANGES for metric in METRIC_CLASSES]
    return {key: RowError(*key, 0.0, 0.0, 0, 0) for key in keys}


def width_of(table: Table, change: str, metric: str, share: float) -> tuple[float | None, int]:
    """Give the model error of a row, and how many validated rows it rests on.

    Returns
    -------
    tuple
        The relative half-width, and the rows behind it; 0 rows for a class that was never measured,
        which takes the widest entry of the same change, else of the same metric, else None.
    """
    own = table.get((change, metric))
    exact = None if own is None else own.of(share)
    if own is not None and exact is not None:
        return exact, own.rows
    for same in (
        [e for (c, _), e in table.items() if c == change],
        [e for (_, m), e in table.items() if m == metric],
    ):
        known = [w for e in same for w in (e.base, e.heavy) if w is not None]
        if known:
            return max(known), 0
    return None, 0


def sampling_scale(table: Table, metric: str) -> float:
    """Give what the sampling error of a class of metrics is multiplied by; 1 where it was never measured."""
    return max((e.sampling for (_, m), e in table.items() if m == metric), default=1.0)


@dataclass(frozen=True)
class Case:
    """A row of a real pair.

    Workload, |log(real / predicted)|, half-width measured, share of kernel work, its sampling part.
    """

    family: str
    error: float
    measured: float
    share: float
    sampling: float = 0.0


def _scale(cases: Sequence[Case]) -> float:
    """The share of the sampling error, at most all of it, with which the measured terms cover 90 %."""
    wanted = []
    for c in cases:
        beyond = math.sqrt(max(0.0, c.error**2 - (c.measured**2 - c.sampling**2)))
        # What has no sampling error and misses is not mended by any share of it.
        wanted.append((beyond / c.sampling if c.sampling > 0 else math.inf if beyond > 0 else 0.0, c.family))
    return min(1.0, quantile(wanted)) if len(cases) >= MIN_ROWS else 1.0


def _term(cases: Sequence[Case], scale: float) -> float:
    """What the measured terms leave of the errors."""
    left = [c.error**2 - (c.measured**2 - c.sampling**2) - (scale * c.sampling) ** 2 for c in cases]
    return quantile([(math.sqrt(max(0.0, x)), c.family) for x, c in zip(left, cases, strict=True)])


def fit(cases: Mapping[tuple[str, str], Sequence[Case]]) -> dict[tuple[str, str], RowError]:
    """Fit the model errors: the conformal 90 % quantile of what the measured terms leave of the errors.

    Where the measured terms of a class of metrics cover more than 90 % over all changes, its
    sampling term is scaled down to the share that covers them. Rows with little and with much
    kernel work have a term each where both are measured in `MIN_ROWS` rows, else one together. Each
    workload counts the same, however many rows it has.

    Parameters
    ----------
    cases
        Class of change and of metric to rows.
    """
    scales = {m: _scale([c for (_, k), rows in cases.items() if k == m for c in rows]) for _, m in cases}
    found = {}
    for (change, metric), rows in sorted(cases.items()):
        if len(rows) < MIN_ROWS:
            continue
        scale = scales[metric]
        light, heavy = ([c for c in rows if (c.share >= HEAVY) == want] for want in (False, True))
        if min(len(light), len(heavy)) >= MIN_ROWS:
            terms: tuple[float | None, float | None] = (_term(light, scale), _term(heavy, scale))
        else:
            one = _term(rows, scale)
            terms = (one if light else None), (one if heavy else None)
        families = len({c.family for c in rows})
        found[change, metric] = RowError(change, metric, *terms, len(rows), families, scale)
    return found


def to_toml(table: Table, source: str) -> str:
    """Write the table as it ships."""
    lines = [f"# {line}" for line in source.splitlines()]
    for (change, metric), e in sorted(table.items()):
        lines += ["", f'[change."{change}"."{metric}"]']
        lines += [f"{k} = {v:.4f}" for k, v in (("base", e.base), ("heavy", e.heavy)) if v is not None]
        lines += [f"sampling = {e.sampling:.4f}"] if e.sampling < 1 else []
        lines += [f"rows = {e.rows}", f"workloads = {e.workloads}"]
    return "\n".join(lines) + "\n"
