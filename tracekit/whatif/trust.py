"""How far each row of a comparison can be trusted, and which changes are more than chance.

A row is judged by itself: by what the identity replay gets wrong in this very row, by how much of
the tasks' wakeups is explained, by records that were lost, and by whether predictions of its class
were ever held against real captures. Where the identity replay gets much of the trace wrong, a row
that it gets right may be right by chance, so that none is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from tracekit.analysis.uncertainty import false_discovery

__all__ = [
    "CARE",
    "DO_NOT_USE",
    "RULE_OF",
    "TRUSTED",
    "calibrated",
    "judge",
    "p_value",
    "poorly",
    "q_values",
    "replayed",
]

TRUSTED, CARE, DO_NOT_USE = "trusted", "with care", "do not use"

#: Rule of ``replay/tolerances.toml`` that a row's identity error is held against; a dict where it
#: goes by statistic.
RULE_OF: dict[str, str | dict[str, str]] = {
    "slice_per_involuntary": "main",
    "slice": "slice_p50",
    "run_delay": {"p95": "run_delay_p95", "p99": "run_delay_p95", "": "run_delay_p50"},
    "wakeup_latency": {"p95": "run_delay_p95", "p99": "run_delay_p95", "": "run_delay_p50"},
    "response": {"p95": "run_delay_p95", "p99": "run_delay_p95", "": "run_delay_p50"},
    "cpu_time": "main",
    "switches": "switches",
    "involuntary_switches": "preemptions",
    "runqueue": "runqueue_mean",
}
#: Fewest recorded samples of a row, and of switches of its group, without which the trace does not
#: hold what decides it. The same as for any interval (`tracekit.analysis.blocks.MIN_N`).
DECIDING = 20
#: Share of wakeups without a cause from which a row is only to be taken with care, and from which
#: it is not to be used: with a tenth, a metric that moves with its wakers can be off by its own
#: tolerance (10 %); with half, chance decides.
UNEXPLAINED = (0.1, 0.5)
#: The same of the time in which records were lost.
LOST = (0.001, 0.1)
#: Share of failing metrics of the identity replay above which a trace cannot be replayed well. In captures
#: of several kernels and numbers of CPUs, 90 % intervals of rows that only this keeps from being trusted hold
#: 86 % of the real values (4,830 rows of 39 captures, 52 % of them within 10 %), those of trusted rows 91 %
#: (61 % within 10 %): `python -m validation.unseen testdata/lab2 --pairs ../shared/lab2/pairs.tsv`.
MANY_FAIL = 1 / 3
#: Of 80 pairs of fresh recordings of two guests (docs/guide/replay.md) 86 % of the real values lay inside
#: the intervals of the rows that would be trusted, with the model's placement 96 % (by hand).
GIVEN = (
    "each task is put where it was recorded, as asked (--placement trace): the identity replay agrees because it is "
    "given the places, and a prediction need not"
)
#: Level of the false discovery rate.
FALSE_DISCOVERY = 0.1
#: The identity replay may be off by so many tolerances before a row without an interval, or of a
#: class that was never held against real captures, is not to be used. An interval of a class that
#: was holds the identity error; docs/validation.md has what such intervals cover, by trust.
TIMES = 2.0


def _rule(metric: str, statistic: str) -> str:
    rule = RULE_OF.get(metric, "")
    return rule.get(statistic, rule[""]) if isinstance(rule, dict) else rule


def _excess(
    row: Mapping[str, Any], rules: Mapping[str, Mapping[str, float]], tick_ns: float, resolution_ns: float
) -> float | None:
    """Error of the identity replay in units of what is allowed; None where it is not measured."""
    rule = rules.get(_rule(row["metric"], row["statistic"]), {})
    recorded, identity = row["recorded"], row["identity"]
    counted = row["metric"] == "runqueue" or (row["n_recorded"] or 0) >= DECIDING
    if recorded is None or identity is None or not counted:
        return None
    allowed = [rule.get("relative", 0.0) * abs(recorded)]
    if row["unit"] == "ns":
        # A tenth of a tick excuses nothing that is itself shorter than a tick.
        allowed += [rule.get("ticks", 0.0) * tick_ns if recorded > tick_ns else 0.0, resolution_ns]
    else:
        allowed.append(rule.get("absolute", 0.0))
    most = max(allowed)
    error = abs(identity - recorded)
    return error / most if most > 0 else (0.0 if error == 0 else math.inf)


def calibrated(
    row: Mapping[str, Any], rules: Mapping[str, Mapping[str, float]], tick_ns: float, resolution_ns: float
) -> tuple[str, float | None]:
    """Judge the identity replay in one row.

    Parameters
    ----------
    row
        A row of `tracekit.analysis.compare.compare`.
    rules
        Tolerances, see `tracekit.whatif.calibration.tolerances`.
    tick_ns
        Length of a clock tick.
    resolution_ns
        Smallest difference that means something.

    Returns
    -------
    tuple
        ``pass``, ``fail`` or ``not measured`` (fewer than 20 recorded samples), and the error in
        units of what is allowed.
    """
    excess = _excess(row, rules, tick_ns, resolution_ns)
    if excess is None:
        return "not measured", None
    return ("pass" if excess <= 1 else "fail"), excess


def poorly(results: Sequence[str], places_given: bool = False) -> str | None:
    """Say why no row of a comparison can be trusted, where none can.

    Parameters
    ----------
    results
        Column ``result`` of `tracekit.whatif.calibration.calibrate`.
    places_given
        The caller asked for the recorded places, so that the identity replay shows less.

    Returns
    -------
    str or None
        None unless more than `MANY_FAIL` of the metrics that could be judged fail, or places are given.
    """
    failed = results.count("fail")
    judged = failed + results.count("pass")
    if failed <= MANY_FAIL * judged:
        return GIVEN if places_given else None
    return f"this trace cannot be replayed well: {failed} of {judged} metrics of the identity replay fail"


def replayed(results: Sequence[str]) -> str:
    """Say how well a trace is replayed, as `tracekit doctor` does.

    Parameters
    ----------
    results
        Column ``result`` of `tracekit.whatif.calibration.calibrate`.

    Returns
    -------
    str
        ``unknown``: none of the metrics of the identity replay could be judged. ``badly``: so many fail
        that no row of a comparison is trusted (`poorly`). ``with care``: some fail; rows are trusted, or
        not, each by itself. ``well``: none fails.
    """
    if not {"pass", "fail"} & set(results):
        return "unknown"
    if poorly(results) is not None:
        return "badly"
    return "with care" if "fail" in results else "well"


def p_value(predicted: float | None, identity: float | None, half_width: float | None) -> float | None:
    """Give the p-value of a change: two-sided, normal on the logarithmic scale.

    Definition: 2 (1 - Phi(|log(predicted / identity)| / (w / 1.645))), w the width of the 90 %
    interval on the side of the identity.
    """
    if half_width is None or not predicted or not identity or predicted <= 0 or identity <= 0:
        return None
    effect = abs(math.log(predicted / identity))
    if half_width <= 0:
        return 1.0 if effect == 0 else 0.0
    # erfc is twice the normal distribution's tail, in units of sqrt(2) standard deviations.
    return math.erfc(effect / half_width * NormalDist().inv_cdf(0.95) / math.sqrt(2))


def q_values(p: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for the number of rows that are judged together, after Benjamini and Hochberg.

    References
    ----------
    Y. Benjamini and Y. Hochberg, Controlling the false discovery rate, JRSS B 57 (1995) 289-300.
    """
    known = [i for i, v in enumerate(p) if v is not None]
    out: list[float | None] = [None] * len(p)
    if known:
        adjusted = false_discovery([p[i] or 0.0 for i in known])
        for i, v in zip(known, adjusted, strict=True):
            out[i] = v
    return out


def judge(
    row: Mapping[str, Any],
    excess: float | None,
    unexplained: float,
    lost: float,
    unmodelled: Sequence[str],
    poor: str | None = None,
    other: str | None = None,
) -> tuple[str, str]:
    """Judge one row.

    Parameters
    ----------
    row
        A row with its interval, see `tracekit.whatif.predictions.with_intervals`.
    excess
        Error of the identity replay in units of what is allowed; None where it is not measured.
    unexplained
        Share of the wakeups of these tasks without a cause.
    lost
        Share of the time in which records were lost.
    unmodelled
        What of the change nothing models.
    poor
        What `poorly` says of the trace.
    other
        Why the row is of other work, or of another time, than that of a real run, see
        `tracekit.whatif.pace`.

    Returns
    -------
    tuple of str
        `TRUSTED`, `CARE` or `DO_NOT_USE`, and the reasons, first the gravest; empty when trusted.
    """
    never = [f"not modelled: {what}" for what in unmodelled]
    care: list[str] = []
    if row["predicted"] is None:
        never.append("not predicted")
    if row["verdict"] == "not in this trace":
        never.append("what decides it hardly ran in this trace")
    elif excess is None:
        never.append("the identity replay cannot be judged: too few recorded samples")
    elif excess > 1:
        error = row["identity_error_pct"]
        by = f"by {error:+.1f} %" if error is not None else f"by {excess:.1f} times what is allowed"
        known = row["low"] is not None and row["validated"]
        (care if excess <= TIMES or known else never).append(f"the identity replay is off {by}")
    for value, (some, much), text in (
        (unexplained, UNEXPLAINED, "of the wakeups have no cause in the trace"),
        (lost, LOST, "of the time lost records"),
    ):
        if value > some:
            (never if value > much else care).append(f"{100 * value:.1f} % {text}")
    care += filter(None, (poor, other))
    if row["phase_sensitive"]:
        care.append("small shifts in time change it")
    if row["bimodal_low"] is not None:
        care.append("the schedule has two outcomes")
    if row["low"] is None:
        care.append(f"no interval: {row['no_interval']}")
    if not row["validated"]:
        care.append("never held against real captures")
    if never:
        return DO_NOT_USE, "; ".join(never + care)
    return (CARE, "; ".join(care)) if care else (TRUSTED, "")
