"""What is known of each row of a comparison.

From the repetitions, the samples, the identity replay and real captures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tracekit.analysis.compare import medians
from tracekit.analysis.sampling import KEYS
from tracekit.whatif import intervals, trust
from tracekit.whatif.calibration import tolerances
from tracekit.whatif.intervals import Perturbation
from tracekit.whatif.loops import Loops
from tracekit.whatif.row_error import Table, metric_class, row_errors, sampling_scale, width_of
from tracekit.whatif.stuck import Stuck

__all__ = ["ADDED", "DEFAULT_TICK_NS", "Repeated", "judged_alone", "to_halve", "with_intervals"]

Key = tuple[str, str | None, str, str]


@dataclass(frozen=True)
class Repeated:
    """Replays that were repeated with perturbations, and what else is known of a comparison.

    Attributes
    ----------
    figures
        Label to the repetitions that came to an end, the plain replay first: its perturbation, and
        the result of `tracekit.analysis.compare.metrics`.
    changes
        Label to the class of change, see `tracekit.whatif.row_error.change_class`.
    shares
        Share of kernel work by scope and group; of all tasks under ``("all", None)``.
    sampling
        Label to the result of `tracekit.analysis.sampling.sampling`, of the recording and of each
        plain replay.
    unexplained
        Share of wakeups without a cause, by scope and group.
    lost
        Share of the time in which records were lost.
    unmodelled
        Label to what of the change nothing models.
    unmeasured
        Label to why no prediction under it has an interval.
    unheld
        Label to what of the recording or of the replay no capture of the lab had, see
        `tracekit.whatif.row_error.unheld` and `tracekit.whatif.basis.unheld_machine`: its rows are not
        validated.
    poor
        Why no row can be trusted, see `tracekit.whatif.trust.poorly`.
    sooner
        Label to the groups that do their recorded work sooner, see `tracekit.whatif.pace.sooner`.
    longer
        Label to why totals are of another time than recorded, see `tracekit.whatif.pace.longer`.
    idler
        Label to how much more CPUs idle than recorded, see `tracekit.whatif.pace.idler`.
    stuck
        Label to the tasks that wait for ever, see `tracekit.whatif.stuck`.
    loops
        Groups that answer each other through sockets, see `tracekit.whatif.loops`.
    tick_ns, resolution_ns
        Length of a clock tick, and the smallest difference that clock and perturbation resolve.
    errors
        Model errors by class; by default those that ship with the package.
    span_ns
        Length of the recording.
    switch_ns
        What a switch costs in the trace, see `again`; 0 where the programs are stated.
    plain
        Rows are of the plain replays, and repetitions give the spread alone. Of a workload text, whose
        recording is the plain replay, of the same random draws as each other plain replay; and where
        `tracekit.whatif.calibration.keeps_phase`.
    """

    figures: Mapping[str, Sequence[tuple[Perturbation, pl.DataFrame]]]
    changes: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[tuple[str, str | None], float] = field(default_factory=dict)
    sampling: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    unexplained: Mapping[tuple[str, str | None], float] = field(default_factory=dict)
    lost: float = 0.0
    unmodelled: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    unheld: Mapping[str, Sequence[str]] = field(default_factory=dict)
    poor: str | None = None
    sooner: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    longer: Mapping[str, str] = field(default_factory=dict)
    idler: Mapping[str, str] = field(default_factory=dict)
    stuck: Mapping[str, Stuck] = field(default_factory=dict)
    loops: Loops | None = None
    tick_ns: float = 4e6
    resolution_ns: float = intervals.MIN_JITTER_NS
    errors: Table | None = None
    span_ns: float = 0.0
    switch_ns: float = 0.0
    plain: bool = False

    def figures_of(self, label: str) -> pl.DataFrame | None:
        """The figures that rows are of, see `plain`; None where there are no repetitions."""
        runs = [frame for _, frame in self.figures.get(label, ())]
        return medians(runs[:1] if self.plain else runs) if runs else None

    @property
    def once(self) -> bool:
        """Whether each replay ran once, so that nothing is known of the spread."""
        return all(len(runs) <= 1 for runs in self.figures.values())


#: Why there is no interval where each replay ran once.
ONCE = "each replay ran once"
#: Length of a tick where nothing says: Linux's default of 250 a second (kernel/Kconfig.hz).
DEFAULT_TICK_NS = 4e6
#: Metrics of waits, and those that are made of slices.
WAITS = ("run_delay", "wakeup_latency", "response")
OF_SLICES = ("cpu_time", "slice_per_involuntary")
#: Columns that `with_intervals` adds.
ADDED: dict[str, Any] = {
    "low": pl.Float64,
    "high": pl.Float64,
    "no_interval": pl.String,
    "half_width_pct": pl.Float64,
    "measured_pct": pl.Float64,
    "sampling_low_pct": pl.Float64,
    "sampling_high_pct": pl.Float64,
    "switch_pct": pl.Float64,
    "halve_ns": pl.Float64,
    "n_effective": pl.Float64,
    "bimodal_low": pl.Float64,
    "bimodal_high": pl.Float64,
    "phase_sensitive": pl.Boolean,
    "identity_plain": pl.Float64,
    "predicted_plain": pl.Float64,
    "change_class": pl.String,
    "metric_class": pl.String,
    "validated": pl.UInt32,
    "kernel_share": pl.Float64,
    "q_value": pl.Float64,
    "calibration": pl.String,
    "trust": pl.String,
    "trust_why": pl.String,
}


def _key(row: Mapping[str, Any]) -> Key:
    return row["scope"], row["group"], row["metric"], row["statistic"]


def _values(
    repetitions: Sequence[tuple[Perturbation, pl.DataFrame]],
) -> dict[Key, list[tuple[Perturbation, float]]]:
    found: dict[Key, list[tuple[Perturbation, float]]] = {}
    for perturbation, frame in repetitions:
        for scope, group, metric, statistic, value in frame.select(*KEYS, "value").iter_rows():
            if value is not None:
                found.setdefault((scope, group, metric, statistic), []).append((perturbation, value))
    return found


@dataclass(frozen=True)
class _Sampled:
    """How far a sampling interval reaches down and up, as logarithms, or why there is none."""

    width: tuple[float, float] | None
    n_effective: float | None
    reason: str | None


_UNKNOWN = _Sampled(None, None, "its sampling error was not computed")


def _sampled(table: pl.DataFrame) -> dict[Key, _Sampled]:
    found = {}
    for row in table.select(*KEYS, "value", "low", "high", "n_effective", "reason").iter_rows(named=True):
        value, low, high = row["value"], row["low"], row["high"]
        if low is None:
            found[_key(row)] = _Sampled(None, row["n_effective"], row["reason"])
        elif min(value, low) <= 0:
            found[_key(row)] = _Sampled(None, row["n_effective"], "it is zero, or its interval reaches zero")
        else:
            width = math.log(value / low), math.log(high / value)
            found[_key(row)] = _Sampled(width, row["n_effective"], None)
    return found


def with_intervals(
    table: pl.DataFrame, repeated: Repeated | None, recorded: str, identity: str, resolution_ns: int = 1
) -> pl.DataFrame:
    """Put an interval and a judgement beside each prediction.

    Definitions: docs/definitions.md, "Predictions". The medians of the repetitions are the prediction
    and the identity; all of them give the spread. A change is resolved when it is larger than the error
    of the identity replay, 0.5 %, the clock and the noise of the repetitions, and when its p-value,
    adjusted for all rows of the policy (Benjamini and Hochberg), is at most 0.1.

    Parameters
    ----------
    table
        Result of `tracekit.analysis.compare.compare`.
    repeated
        The repetitions; without them the columns are null, but for those that need none. Where each
        replay ran once there is no interval, and no row is `trusted`.
    recorded, identity
        Labels of the recording and of the identity replay.
    resolution_ns
        Smallest step of the trace's clock.

    Returns
    -------
    pl.DataFrame
        `table` with `low`, `high` (Float64, the 90 % interval), `no_interval` (String, why there is
        none), `half_width_pct`, `measured_pct`, `sampling_low_pct`, `sampling_high_pct`, `switch_pct`
        (Float64, %, on the logarithmic scale: the wider side of the interval, its part without the
        model error and what a switch costs, the part of the sample size downwards and upwards, the
        larger one of recording and prediction, and that of what a switch costs, see `again`),
        `halve_ns` (Float64, how much more to record for half the interval, see `to_halve`; null
        where no recording halves it), `n_effective` (Float64, of the smaller sample), `bimodal_low` and `bimodal_high` (Float64, the two values of a schedule with two
        outcomes, else null), `phase_sensitive` (Boolean, true when perturbations move identity or
        prediction by more than they spread), `identity_plain`, `predicted_plain` (Float64, of the
        plain replays), `change_class`, `metric_class` (String), `validated`
        (UInt32, rows of real pairs of this class; 0: not validated), `kernel_share` (Float64),
        `q_value` (Float64, adjusted p-value of the change), `calibration` (String: `pass`, `fail`,
        `not measured`, of this very row), `trust` (String: `trusted`, `with care`, `do not use`)
        and `trust_why` (String).

        `verdict` can also be `not in this trace`: fewer than 20 samples were recorded of what the
        row is about.
    """
    if repeated is None:
        return judged_alone(table)
    same = _values(repeated.figures.get(identity, ()))
    of_policy = {label: _values(runs) for label, runs in repeated.figures.items() if label != identity}
    sampled = {label: _sampled(frame) for label, frame in repeated.sampling.items()}
    ran = _deciding(table)
    out: list[dict[str, Any]] = []
    for label in table["policy"].unique(maintain_order=True).to_list():
        rows = []
        of_label = table.filter(pl.col("policy") == label)
        slices = _mean_slices(of_label)
        for row in of_label.iter_rows(named=True):
            key = _key(row)
            made = _row(
                row, of_policy.get(label, {}).get(key, []), same.get(key, []),
                sampled.get(recorded, {}).get(key, _UNKNOWN), sampled.get(label, {}).get(key, _UNKNOWN),
                repeated, resolution_ns, slices.get(key[:2]),
            )  # fmt: skip
            rows.append(_in_trace(made, ran))
        out += _together(rows, repeated, label)
    return pl.DataFrame(out, schema={**table.schema, **ADDED})


def again(switch_ns: float, metric: str, value: float | None, mean_slice: float | None) -> float:
    """Give by how much a time can differ in another recording of the same, as a relative half-width.

    Definition: log(1 + x / v), x what a switch costs in the trace and v the time itself, or the mean
    slice for CPU time and what is made of it; 0 for numbers. Caches that are cold behind a switch,
    an idle CPU that has to wake and the way of an interrupt take another time in each recording, of
    the order of a switch, which matters where times are as short. See docs/validation-fresh.md
    for what it covers, with half of x and with twice as much.

    Parameters
    ----------
    switch_ns, metric, value, mean_slice
        x, the metric of a row, its value, and the mean slice of its group.
    """
    base = value if metric in WAITS or metric == "slice" else mean_slice if metric in OF_SLICES else None
    return math.log1p(switch_ns / base) if base else 0.0


def _mean_slices(table: pl.DataFrame) -> dict[tuple[str, str | None], float]:
    """The predicted mean slice of each group."""
    rows = table.filter((pl.col("metric") == "slice") & (pl.col("statistic") == "mean"))
    return {(s, g): v for s, g, v in rows.select("scope", "group", "predicted").iter_rows() if v}


def _deciding(table: pl.DataFrame) -> dict[tuple[str, str | None], int]:
    """Recorded switches of each group; of the system those of all tasks."""
    switches = table.filter(pl.col("metric") == "switches").unique(["scope", "group"], keep="first")
    found = {(s, g): n or 0 for s, g, n in switches.select("scope", "group", "n_recorded").iter_rows()}
    found["system", None] = found.get(("all", None), 0)
    return found


def _in_trace(row: dict[str, Any], ran: Mapping[tuple[str, str | None], int]) -> dict[str, Any]:
    """Refuse a row of which the trace holds too little.

    Waits by their own number, the others by switches and CPU time.
    """
    waits = row["metric"] in WAITS
    n = (row["n_recorded"] or 0) if waits else ran.get((row["scope"], row["group"]), 0)
    if n < trust.DECIDING and row["predicted"] is not None:
        row |= {"verdict": "not in this trace", "resolved": None, "low": None, "high": None}
        if row["no_interval"] != ONCE:
            row["no_interval"] = f"n = {n} is below {trust.DECIDING}"
    return row


def judged_alone(table: pl.DataFrame) -> pl.DataFrame:
    """Give a table without repetitions the columns of `with_intervals`.

    The calibration of each row, nothing of intervals.
    """
    rules = tolerances()
    calibration = [
        trust.calibrated(row, rules, DEFAULT_TICK_NS, intervals.MIN_JITTER_NS)[0]
        for row in table.iter_rows(named=True)
    ]
    null = [pl.lit(None, dtype=t).alias(n) for n, t in ADDED.items() if n != "calibration"]
    out = table.with_columns(*null, pl.Series("calibration", calibration, dtype=pl.String))
    return out.select(*table.columns, *ADDED)


def _row(
    row: dict[str, Any],
    found: Sequence[tuple[Perturbation, float]],
    own: Sequence[tuple[Perturbation, float]],
    of_recorded: _Sampled,
    of_predicted: _Sampled,
    repeated: Repeated,
    resolution_ns: int,
    mean_slice: float | None,
) -> dict[str, Any]:
    """A row of the table with its interval."""
    out = {**row, **dict.fromkeys(ADDED)}
    share = repeated.shares.get((row["scope"], row["group"]), repeated.shares.get(("all", None), 0.0))
    kind, change = metric_class(row["metric"], row["statistic"]), repeated.changes.get(row["policy"], "")
    errors = row_errors() if repeated.errors is None else repeated.errors
    model, validated = width_of(errors, change, kind, share) if kind else (None, 0)
    validated = 0 if repeated.unheld.get(row["policy"]) else validated
    out |= {"change_class": change, "metric_class": kind, "validated": validated, "kernel_share": share}
    predicted, identity, recorded = row["predicted"], row["identity"], row["recorded"]
    values, same = [v for _, v in found], [v for _, v in own]
    (same_plain, same_apart), (plain, apart) = (_apart(runs) for runs in (own, found))
    out |= {"identity_plain": same_plain, "predicted_plain": plain}
    out["phase_sensitive"] = bool(same_apart or apart)
    if predicted is None:
        return out | {"no_interval": "not predicted"}
    if repeated.once:
        return out | {"no_interval": ONCE}
    two = intervals.modes(values)
    if two is not None:
        out |= {"bimodal_low": two[0], "bimodal_high": two[1]}
    if identity is None or recorded is None:
        return out | {"no_interval": "not measured in the recording"}
    clear = intervals.resolved(predicted, identity, recorded, values, same)
    step = resolution_ns if row["unit"] == "ns" else 0
    out["resolved"] = clear and abs(predicted - identity) > step and shows(row)
    out["n_effective"] = min(
        (x.n_effective for x in (of_recorded, of_predicted) if x.n_effective), default=None
    )
    if not kind:
        return out | {"no_interval": of_recorded.reason}
    measured = intervals.measured(predicted, values, apart, recorded, identity)
    short = again(repeated.switch_ns, row["metric"], predicted, mean_slice)
    scale = sampling_scale(errors, kind)
    if (why := repeated.unmeasured.get(row["policy"])) is not None:
        return out | {"no_interval": why}
    made = _with_width(out, (measured, short), of_recorded, of_predicted, (model, scale), len(values))
    return made | {"halve_ns": to_halve(made["half_width_pct"], _wider(made), repeated.span_ns)}


def _apart(runs: Sequence[tuple[Perturbation, float]]) -> tuple[float | None, tuple[float, ...]]:
    """The metric in the plain replay, and what it is with and without a phase that perturbations break."""
    plain = next((v for s, v in runs if s == intervals.PLAIN), None)
    rest = [v for s, v in runs if s.in_place and s != intervals.PLAIN]
    return plain, intervals.apart(plain, rest)


def shows(row: Mapping[str, Any]) -> bool:
    """Whether the values of a row can show its change: a lower bound shows a rise, never a fall."""
    return not (row["predicted_is_bound"] and row["predicted"] < row["identity"])


def _wider(row: Mapping[str, Any]) -> float | None:
    """The wider side of the part of the sample size, %; None without an interval."""
    down, up = row["sampling_low_pct"], row["sampling_high_pct"]
    return None if down is None or up is None else max(down, up)


def to_halve(half_width_pct: float | None, sampling_pct: float | None, span_ns: float) -> float | None:
    """Give how much longer a recording must be for half the interval.

    Definition: w² = s² + r², s the sampling part, which falls with the square root of the recorded
    time, and r all others, which don't: (w / 2)² = s² T / (T + x) + r².

    Parameters
    ----------
    half_width_pct, sampling_pct
        w and s, in any unit.
    span_ns
        T.

    Returns
    -------
    float or None
        x, ns; None where there is no interval, or no recording halves it since r is over w / 2.
    """
    if half_width_pct is None or sampling_pct is None or span_ns <= 0:
        return None
    rest = half_width_pct**2 - sampling_pct**2
    room = half_width_pct**2 / 4 - rest
    return span_ns * (sampling_pct**2 / room - 1) if room > 0 else None


def _with_width(
    out: dict[str, Any],
    terms: tuple[float | None, float],
    of_recorded: _Sampled,
    of_predicted: _Sampled,
    fitted: tuple[float | None, float],
    repetitions: int,
) -> dict[str, Any]:
    """The interval of a row, or why there is none.

    `terms`: what the trace says of the error, and what `again` does; `fitted`: model error, and scale of
    the sampling error.
    """
    (measured, short), (model, scale) = terms, fitted
    reasons = [
        ("it is zero somewhere" if measured is None else None),
        ("the replay was not repeated" if repetitions < 2 else None),
        (None if of_recorded.reason is None else f"recorded: {of_recorded.reason}"),
        (None if of_predicted.reason is None else f"predicted: {of_predicted.reason}"),
        ("no prediction of this kind was held against a real capture" if model is None else None),
    ]
    if measured is not None:
        out["measured_pct"] = 100 * measured
    reason = next((r for r in reasons if r), None)
    if reason is not None:
        return out | {"no_interval": reason}
    # Both samples are of the same demand, so that their errors are no two independent ones.
    both = zip(of_recorded.width or (0.0, 0.0), of_predicted.width or (0.0, 0.0), strict=True)
    sampling = [scale * max(sides) for sides in both]
    down, up = (math.hypot(measured or 0.0, side, model or 0.0, short) for side in sampling)
    out |= {"sampling_low_pct": 100 * sampling[0], "sampling_high_pct": 100 * sampling[1]}
    out |= {"measured_pct": 100 * math.hypot(measured or 0.0, max(sampling)), "switch_pct": 100 * short}
    out |= {"half_width_pct": 100 * max(down, up)}
    return out | {"low": out["predicted"] * math.exp(-down), "high": out["predicted"] * math.exp(up)}


def _towards_identity(row: dict[str, Any]) -> float | None:
    """Give the width of the interval on the side on which the identity replay lies, as a logarithm.

    Without an interval, what was measured of the error; None where nothing was.
    """
    low, high, predicted = row["low"], row["high"], row["predicted"]
    if low:
        return math.log(predicted / low if row["identity"] < predicted else high / predicted)
    return None if row["measured_pct"] is None else row["measured_pct"] / 100


def _together(rows: list[dict[str, Any]], repeated: Repeated, label: str) -> list[dict[str, Any]]:
    """Control false discoveries among the rows of a policy, then judge each."""
    p = [
        trust.p_value(r["predicted"], r["identity"], None if r["resolved"] is None else _towards_identity(r))
        for r in rows
    ]
    rules = tolerances()
    looping = repeated.loops
    if looping is not None and all(r["predicted"] == r["identity"] for r in rows if _own(r, looping.groups)):
        # What nothing changes about is as it was recorded.
        looping = None
    for row, q in zip(rows, trust.q_values(p), strict=True):
        row["q_value"] = q
        if row["resolved"] is not None:
            row["resolved"] = row["resolved"] and (q is None or q <= trust.FALSE_DISCOVERY)
            row["verdict"] = "resolved" if row["resolved"] else "not resolved"
        row["calibration"], excess = trust.calibrated(row, rules, repeated.tick_ns, repeated.resolution_ns)
        where = (row["scope"], row["group"]) if row["scope"] == "group" else ("all", None)
        unmodelled, other = [*repeated.unmodelled.get(label, ())], None
        if looping is not None and _own(row, looping.groups):
            unmodelled.append(looping.why)
        elif looping is not None and label in looping.foremost:
            unmodelled.append(looping.before)
        elif looping is not None:
            other = looping.others
        if (waits := repeated.stuck.get(label)) is not None:
            if _own(row, waits.groups):
                unmodelled.append(waits.why)
            other = other or waits.others
        row["trust"], row["trust_why"] = trust.judge(
            row,
            excess,
            repeated.unexplained.get(where, 0.0),
            repeated.lost,
            unmodelled,
            repeated.poor,
            other
            or _less(row, repeated.sooner.get(label, ()))
            or _more(row, repeated.longer.get(label))
            or repeated.idler.get(label),
        )
    return rows


def _own(row: Mapping[str, Any], groups: Sequence[str | None]) -> bool:
    """Whether a row is of one of these groups."""
    return row["scope"] == "group" and row["group"] in groups


def _less(row: Mapping[str, Any], groups: Sequence[str | None]) -> str | None:
    """Why a row is of less work than a real run does: the groups that do theirs sooner."""
    if not groups or (_own(row, groups) and row["statistic"] != "total"):
        return None
    return f"the recorded work of {groups[0] or '(no name)'} is done sooner, and a real run does more"


def _more(row: Mapping[str, Any], longer: str | None) -> str | None:
    """Why a row is of another time than recorded: totals of a replay that lasts longer."""
    return longer if row["statistic"] == "total" else None
