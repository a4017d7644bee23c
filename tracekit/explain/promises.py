"""Whether the schedule keeps its promises: `check`, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.analysis import blame, conformance
from tracekit.errors import FilterError
from tracekit.trace import Trace
from tracekit.units import format_moment
from tracekit.whatif.recorded import part

__all__ = ["Checked", "check"]

#: Priorities below it are real time on Linux.
_RT_BELOW = 100
#: What the clocks of two CPUs may disagree by where the source does not say that they are in step:
#: perf's and ftrace's local clocks drift by up to a jiffy in theory; contradictions below this are
#: not held against the schedule.
_UNSYNCHRONISED_NS = 10_000
#: Rules that need every CPU, and those that need every task, too.
EVERY_CPU = ("sleep-wakeup", "work-conservation", "priority-order")
EVERY_TASK = ("one-cpu", "switch-chain")


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes
    ----------
    name
        Of the trace.
    violations
        See `tracekit.analysis.conformance.violations`.
    unchecked
        Rules for which records are missing, and which.
    """

    name: str
    violations: pl.DataFrame
    unchecked: Mapping[str, str]

    @property
    def open(self) -> pl.DataFrame:
        """Violations that nothing explains."""
        return self.violations.filter(pl.col("explained_by").is_null())

    @property
    def ok(self) -> bool:
        """Whether there is no such violation."""
        return self.open.height == 0

    @property
    def summary(self) -> pl.DataFrame:
        """One row per rule.

        Returns
        -------
        polars.DataFrame
            `rule`, `result` (String: `kept`, `broken`, `explained`, `not checked`), `n` (UInt32,
            violations), `n_loss`, `n_clock`, `n_quota`, `n_throttling`, `n_recorder` (UInt32, of them
            explained so, see `tracekit.analysis.conformance.EXPLANATIONS`), `first_ts_ns` (Int64;
            null without any), `says` (String, the rule, or why it is not checked).
        """
        rows = []
        for rule, says in conformance.RULES.items():
            own = self.violations.filter(pl.col("rule") == rule)
            by = dict(own.group_by("explained_by").len().iter_rows())
            broken = by.get(None, 0)
            result = "broken" if broken else "explained" if own.height else "kept"
            rows.append(
                {
                    "rule": rule,
                    "result": "not checked" if rule in self.unchecked else result,
                    "n": own.height,
                    **{f"n_{why}": by.get(why, 0) for why in conformance.EXPLANATIONS},
                    "first_ts_ns": own["ts_ns"].min(),
                    "says": self.unchecked.get(rule, says),
                }
            )
        explained = tuple(f"n_{why}" for why in conformance.EXPLANATIONS)
        counts = dict.fromkeys(("n", *explained), pl.UInt32)
        texts = dict.fromkeys(("rule", "result", "says"), pl.String)
        names = ("rule", "result", "n", *explained, "first_ts_ns", "says")
        types: dict[str, type[pl.DataType]] = {**counts, **texts, "first_ts_ns": pl.Int64}
        return pl.DataFrame(rows, schema={n: types[n] for n in names})

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        checked = len(conformance.RULES) - len(self.unchecked)
        explained = self.violations.height - self.open.height
        whys = self.violations["explained_by"].drop_nulls().value_counts(sort=True)["explained_by"].to_list()
        also = f" ({explained} more are explained: {', '.join(whys)})" if explained else ""
        if self.ok:
            return f"No rule is broken: {checked} of {len(conformance.RULES)} could be checked{also}."
        rules = self.open["rule"].value_counts(sort=True)
        first = self.open.row(0, named=True)
        return (
            f"{self.open.height} violations of {', '.join(rules['rule'].to_list())}{also}; the first: {first['text']} "
            f"at {format_moment(first['ts_ns'])}."
        )

    @property
    def findings(self) -> list[dict[str, object]]:
        """The first violations of each rule as a bounded list for scripts: at most 20."""
        some = self.open.group_by("rule", maintain_order=True).head(
            20 // max(self.open["rule"].n_unique(), 1)
        )
        return [
            {"rank": i, "kind": "violation", **r}
            for i, r in enumerate(some.head(20).iter_rows(named=True), 1)
        ]

    def __repr__(self) -> str:
        """The sentence."""
        return f"<Checked {self.name}: {self.sentence}>"


def quotas_of(trace: Trace) -> pl.DataFrame | None:
    """Tasks with each group above them that has a quota, by the machine file; None where it names none."""
    machine = trace.machine
    if machine is None or not machine.tasks.height or not machine.cgroups.height:
        return None
    limited = machine.cgroups.filter(pl.col("quota_us").is_not_null() & (pl.col("period_us") > 0)).select(
        pl.col("path").alias("group"),
        (pl.col("quota_us") * 1000).alias("quota_ns"),
        (pl.col("period_us") * 1000).alias("period_ns"),
    )
    tasks = machine.tasks.filter(pl.col("cgroup").is_not_null()).select("tid", "cgroup")
    below = (pl.col("cgroup") == pl.col("group")) | pl.col("cgroup").str.starts_with(
        pl.col("group").str.strip_suffix("/") + "/"
    )
    found = tasks.join(limited, how="cross").filter(below).drop("cgroup")
    return found if found.height else None


def check(trace: Trace, limit_ns: int = conformance.LIMIT_NS) -> Checked:
    """Check a trace, recorded or replayed, against rules that every schedule keeps.

    Parameters
    ----------
    trace
        The whole trace.
    limit_ns
        Shortest window that breaks a rule about waiting.

    Returns
    -------
    Checked
        Violations with their windows, and what could not be checked.

    Raises
    ------
    FilterError
        When the trace was filtered, or has no records with a time.

    Examples
    --------
    >>> import tracekit as tk
    >>> tk.explain.check(tk.read("fixtures/demo/slice-default.dat")).ok
    True
    """
    first, last = trace.start_ns, trace.end_ns
    if first is None or last is None:
        raise FilterError(f"{trace.name}: expected records with a time, found none")
    if '"filter"' in trace.metadata.get("options", ""):
        raise FilterError(
            f"{trace.name}: expected a whole trace, found a filtered one: what is left out would look lost"
        )
    scene = blame.scene(trace.slices, trace.states, trace.runqueue, trace.events, first, last)
    linux = trace.metadata.get("prio.scale", trace.metadata.get("os")) == "linux"
    replayed = "replay.policy" in trace.metadata
    rt_below = _RT_BELOW if linux and not replayed else None
    resolution = trace.metadata.get("clock.resolution_ns", "1")
    error = int(resolution) if resolution.isdigit() else 1
    if not replayed and trace.metadata.get("clock.synchronised") != "true" and trace.cpus.height > 1:
        error = max(error, _UNSYNCHRONISED_NS)
    quotas = quotas_of(trace)
    found = conformance.violations(
        trace.events, trace.slices, trace.tasks, trace.losses, scene, rt_below, error, limit_ns, quotas
    )
    missing = dict(conformance.unchecked(trace.events, rt_below, quotas))
    if (of := part(trace)) is not None and not of.alone:
        # What was not recorded goes on between the records.
        rules = (*EVERY_CPU, *(EVERY_TASK if of.tasks is not None else ()))
        missing |= dict.fromkeys(rules, f"{of.what} {'was' if of.single else 'were'} recorded")
        found = found.filter(~pl.col("rule").is_in(list(rules)))
    return Checked(trace.name, found, missing)
