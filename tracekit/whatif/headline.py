"""What a comparison found, in a sentence: the same words in the terminal, on the page and in a notebook."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.units import format_ns
from tracekit.whatif.shown import unshown
from tracekit.whatif.trust import DO_NOT_USE
from tracekit.words import group_name, metric_name, no_span, percent, span, value

if TYPE_CHECKING:
    from tracekit.whatif.comparison import Comparison

__all__ = ["Effect", "Finding", "effect_of", "findings", "to_record"]

#: Groups that a sentence names.
NAMED = 3


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
        The largest changes that can be used, one a group of tasks; those of tasks that the change is
        made to first.
    most
        The largest of all; None where nothing changes.
    asked
        The groups that the change is made to, in words; empty without such groups.
    missed
        Whether it changes none of their metrics.
    unshown
        Large changes in groups that are not among the main ones, one a group.
    refused
        Why nothing can be used, where that is so of every metric: the reason that most have.
    beside
        What is changed beside the policy, where its label does not say it.
    """

    policy: str
    changed: int
    of: int
    bare: int
    unusable: int
    largest: tuple[Effect, ...]
    most: Effect | None = None
    asked: str = ""
    missed: bool = False
    unshown: tuple[Effect, ...] = ()
    refused: str | None = None
    beside: str = ""

    @property
    def subject(self) -> str:
        """What the changes come from: the policy, and what is changed beside it."""
        return f"{self.policy} with {self.beside}" if self.beside else self.policy

    @property
    def sentence(self) -> str:
        """The finding as a sentence."""
        if self.refused is not None:
            return f"{self.subject}: none of {self.of} metrics is to be used: {self.refused}."
        if not self.changed:
            of = f"{self.of} {'main ' * bool(self.unshown)}metrics"
            first = f"{self.subject} changes none of {of} by more than the error of the replay."
        else:
            some = "" if self.bare == self.changed else f"{self.bare} of them "
            bare = f", {some}without an interval" if self.bare else ""
            many = f"{self.changed} of {self.of} metrics{bare}"
            first = f"{self.subject} changes {many}{self._most}."
        if not self.unusable:
            return first
        others = "change, but are" if self.unusable > 1 else "changes, but is"
        return f"{first} {self.unusable} more {others} marked `{DO_NOT_USE}`."

    @property
    def sentences(self) -> list[str]:
        """The finding, and what changes much and is not shown."""
        return [self.sentence, *([f"{self.also}."] if self.also else [])]

    @property
    def _most(self) -> str:
        """What changes most: of the tasks that the change is made to, and of all."""
        if self.most is None or not self.largest:
            return ""
        of_all = f"; most of all {self.most.sentence}"
        if not self.asked:
            return of_all
        if self.missed:
            return f", none of them of {self.asked}{of_all}"
        first = self.largest[0]
        return of_all if first == self.most else f"; of {self.asked} most {first.sentence}{of_all}"

    @property
    def also(self) -> str:
        """What changes much and is not shown, as a sentence without its stop; empty where nothing does."""
        if not self.unshown:
            return ""
        named = ", ".join(f"{one.group} {one.metric} ({one.change})" for one in self.unshown[:NAMED])
        more = len(self.unshown) - NAMED
        rest = f" and {more} more group{'s' * (more > 1)}" if more > 0 else ""
        return f"Other tasks, which are not shown, change much: {named}{rest}"


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
        ``do not use``; `largest` has up to three, those of tasks that the change is made to first,
        then those with an interval, by the logarithm of the factor between identity replay and
        prediction.
    """
    return [_finding(comparison, label) for label in comparison.replays]


def _finding(comparison: Comparison, label: str) -> Finding:
    """What one policy changes."""
    asked = comparison.focus.changed
    own = [row for row in comparison.summary.to_dicts() if row["policy"] == label]
    resolved = [r for r in own if r["verdict"] == "resolved"]
    usable = [r for r in resolved if r["trust"] != DO_NOT_USE]
    sized = [r for r in usable if r["identity"] and r["predicted"]]
    sized.sort(key=lambda r: (r["low"] is None, -abs(math.log(abs(r["predicted"] / r["identity"])))))
    by_size = sized or usable
    largest: dict[str, Effect] = {}
    for row in sorted(by_size, key=lambda r: not _is_of(r, asked)):
        largest.setdefault(group_name(row), effect_of(row))
    return Finding(
        label,
        len(usable),
        len(own),
        # Without repetitions no row has one, which is said once.
        bare=sum(r["low"] is None for r in usable) if comparison.repetitions > 1 else 0,
        unusable=len(resolved) - len(usable),
        largest=tuple(largest.values())[:3],
        most=effect_of(by_size[0]) if by_size else None,
        asked=_named(asked),
        missed=not any(_is_of(r, asked) for r in usable),
        unshown=tuple(map(effect_of, unshown(comparison.table, label, comparison.main_groups))),
        refused=_refused(own),
        beside=comparison.beside,
    )


def _is_of(row: Mapping[str, Any], groups: Sequence[str | None]) -> bool:
    """Whether a row is of one of these groups."""
    return row["scope"] == "group" and row["group"] in groups


def _named(groups: Sequence[str | None]) -> str:
    """Groups that the change is made to, in a few words."""
    if len(groups) > NAMED:
        return "the tasks that are set"
    return " and ".join("tasks without a name" if group is None else group for group in groups)


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
