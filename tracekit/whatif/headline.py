"""What a comparison found, in a sentence: the same words in the terminal, on the page and in a notebook."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.units import format_ns
from tracekit.whatif.trust import DO_NOT_USE
from tracekit.words import group_name, metric_name, no_span, percent, span, value

if TYPE_CHECKING:
    from tracekit.whatif.comparison import Comparison

__all__ = ["Effect", "Finding", "effect_of", "findings", "to_record"]


@dataclass(frozen=True)
class Effect:
    """What one policy does to one metric of one group, in words.

    Attributes
    ----------
    group, metric
        Of what.
    recorded, identity, predicted
        The values, with their unit.
    span
        The 90 % interval of the prediction; empty without one.
    no_span
        Why there is none, in short: ``none: too few``; empty where there is one, or nothing to say.
    real
        The value in a recording of what was asked, and whether it lies outside the interval; empty
        where predictions are held against none.
    change
        Predicted against identity: ``+29.6 %`` or ``x 64.7``; ``not resolved``, ``not measured``.
    row
        The row of `Comparison.table`.
    """

    group: str
    metric: str
    recorded: str
    identity: str
    predicted: str
    span: str
    no_span: str
    real: str
    change: str
    row: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The change as a clause."""
        return f"{self.group} {self.metric}, from {self.identity} to {self.predicted} ({self.change})"


@dataclass(frozen=True)
class Finding:
    """What one policy changes.

    Attributes
    ----------
    policy
        Its label.
    changed, of
        How many of the main metrics change by more than the error of the replay, and can be used.
    bare
        How many of those that change have no interval.
    unusable
        How many more change so, and are marked ``do not use``.
    largest
        The largest changes that can be used, one a group of tasks.
    refused
        Why nothing can be used, where that is so of every metric: the reason that most have.
    """

    policy: str
    changed: int
    of: int
    bare: int
    unusable: int
    largest: tuple[Effect, ...]
    refused: str | None = None

    @property
    def sentence(self) -> str:
        """The finding as a sentence."""
        if self.refused is not None:
            return f"{self.policy}: none of {self.of} metrics is to be used: {self.refused}."
        if not self.changed:
            first = f"{self.policy} changes none of {self.of} metrics by more than the error of the replay."
        else:
            some = "" if self.bare == self.changed else f"{self.bare} of them "
            bare = f", {some}without an interval" if self.bare else ""
            many = f"{self.changed} of {self.of} metrics{bare}"
            first = f"{self.policy} changes {many}; most of all {self.largest[0].sentence}."
        if not self.unusable:
            return first
        others = "change, but are" if self.unusable > 1 else "changes, but is"
        return f"{first} {self.unusable} more {others} marked `{DO_NOT_USE}`."


def effect_of(row: Mapping[str, Any]) -> Effect:
    """One row of `Comparison.table` in words."""
    unit = row["unit"]
    known = row["verdict"] == "resolved" and row["change_pct"] is not None
    return Effect(
        group_name(row),
        metric_name(row["metric"], row["statistic"]),
        _least(value(row["recorded"], unit), row.get("recorded_is_bound")),
        value(row["identity"], unit),
        _least(value(row["predicted"], unit), row.get("predicted_is_bound")),
        span(row["low"], row["high"], unit),
        no_span(row["no_interval"]) if row["low"] is None and row["predicted"] is not None else "",
        value(row["real"], unit) + (" (outside)" if row["inside"] is False else "") if "real" in row else "",
        percent(row["change_pct"]) if known else row["verdict"],
        row,
    )


def _least(text: str, bound: bool | None) -> str:
    """A value, marked where it is a lower bound."""
    return f"\u2265 {text}" if bound and text != "-" else text


def findings(comparison: Comparison) -> list[Finding]:
    """What each policy changes.

    Parameters
    ----------
    comparison
        The comparison.

    Returns
    -------
    list of Finding
        One a policy. A change counts when its verdict is ``resolved`` and its trust is not
        ``do not use``; `largest` has up to three, those with an interval first, by the logarithm of
        the factor between identity replay and prediction.
    """
    out = []
    rows = comparison.summary.to_dicts()
    for label in comparison.replays:
        own = [row for row in rows if row["policy"] == label]
        resolved = [r for r in own if r["verdict"] == "resolved"]
        usable = [r for r in resolved if r["trust"] != DO_NOT_USE]
        sized = [r for r in usable if r["identity"] and r["predicted"]]
        sized.sort(key=lambda r: (r["low"] is None, -abs(math.log(abs(r["predicted"] / r["identity"])))))
        largest: dict[str, Effect] = {}
        for row in sized or usable:
            largest.setdefault(group_name(row), effect_of(row))
        unusable = len(resolved) - len(usable)
        # Without repetitions no row has one, which is said once.
        bare = sum(r["low"] is None for r in usable) if comparison.repeated is not None else 0
        found = tuple(largest.values())[:3]
        out.append(Finding(label, len(usable), len(own), bare, unusable, found, _refused(own)))
    return out


def _refused(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Why no row is to be used; None where one is."""
    if not rows or any(row["trust"] != DO_NOT_USE for row in rows):
        return None
    # The gravest reason of a row comes first.
    reasons = Counter(row["trust_why"].split("; ")[0] for row in rows if row["trust_why"])
    return reasons.most_common(1)[0][0] if reasons else f"all are marked `{DO_NOT_USE}`"


def to_record(comparison: Comparison) -> str | None:
    """Say how much longer to record for intervals of half the width.

    None where no main metric has an interval.
    """
    rows = comparison.summary.filter(comparison.summary["low"].is_not_null()).to_dicts()
    if not rows:
        return None
    more = sorted(row["halve_ns"] for row in rows if row["halve_ns"] is not None)
    many = f"{len(more)} of {len(rows)} intervals"
    if not more:
        return "no longer recording halves an interval: the replay's own errors make them"
    rest = "; the replay's own errors make the others" if len(more) < len(rows) else ""
    return f"to halve {many}, record the same for {format_ns(more[-1])} more{rest}"
