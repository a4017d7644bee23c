"""Grids of policies and attributes: texts with ranges, the cells that they name, and how all are replayed.

A value in a policy or a ``--set`` text can be a range or a list::

    cfs:wakeup_granularity=0..4ms/9       nine values from 0 to 4 ms, both ends included
    rr:quantum=1ms..64ms/7log             seven values, each the same factor from the last
    batch*: nice=0..19/5                  five whole numbers: both ends are whole
    eevdf:base_slice={700us,3ms}          these two

Every combination of all such values is a cell.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tracekit.errors import ReplayError
from tracekit.units import exact_duration, parse_duration

__all__ = ["Cell", "Options", "cells", "number", "sample", "values"]

#: Cells of a grid, at most: at a second each they take a day. More is a mistake of typing rather than a plan.
MAX_CELLS = 100_000

_NUMBER = r"[+-]?(?:[0-9]{1,300}(?:\.[0-9]*)?|\.[0-9]+)"
_RANGE = re.compile(
    rf"({_NUMBER})\s*([a-zµ]*)\s*\.\.\s*({_NUMBER})\s*([a-zµ]*)\s*/\s*([0-9]{{1,18}})\s*(log)?"
)


@dataclass(frozen=True)
class Cell:
    """One point of a grid.

    Attributes
    ----------
    policy
        The policy, ranges replaced by one value each; empty for that of the recording.
    sets
        ``--set`` texts, likewise.
    axes
        What varies in the grid, and its value here, as text: ``wakeup_granularity``, ``batch*:
        nice``; ``policy`` where several policies were named.
    """

    policy: str
    sets: tuple[str, ...] = ()
    axes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """As options of the command line."""
        return " ".join([*filter(None, [self.policy]), *(f"--set '{text}'" for text in self.sets)])


@dataclass(frozen=True)
class Options:
    """How each cell is replayed; as in `tracekit.compare`."""

    identity: str | None = None
    by: str = "group"
    loop: str = "dependency"
    rt: str | None = None
    cpus: int | None = None
    hz: int | None = None
    overheads: bool = True

    @classmethod
    def of(cls, given: Options | Mapping[str, Any] | None) -> Options:
        """What was given for options: these, or some of them by name, or none.

        Parameters
        ----------
        given
            `Options`, or a mapping such as ``{"by": "comm", "cpus": 2}``.

        Raises
        ------
        TypeError
            When it names what is no option, or is something else.
        """
        if given is None or isinstance(given, Options):
            return given or cls()
        known = [each.name for each in fields(cls)]
        if not isinstance(given, Mapping):
            raise TypeError(
                f"options: expected Options, or a mapping of {', '.join(known)}; found {type(given).__name__}"
            )
        if unknown := [str(name) for name in given if name not in known]:
            raise TypeError(f"options: unknown {', '.join(unknown)}; expected {', '.join(known)}")
        return cls(**given)


def number(text: str) -> float | None:
    """The number that a value stands for: times in ns, plain numbers as they are, None for words.

    Examples
    --------
    >>> number("4ms"), number("19"), number("off")
    (4000000.0, 19.0, None)
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(parse_duration(text))
    except ValueError:
        return None


def values(text: str) -> list[str] | None:
    """The values that a range or a list stands for; None where the text is neither.

    Parameters
    ----------
    text
        Such as ``0..4ms/9``, ``1ms..64ms/7log``, ``{on,off}``.

    Returns
    -------
    list of str or None
        Each once, in order. A range between whole numbers gives whole numbers.

    Raises
    ------
    ReplayError
        When a range has no number of values, has units that do not fit, or ends where it begins.

    Examples
    --------
    >>> values("0..4ms/3"), values("{on,off}"), values("10ms")
    (['0ns', '2ms', '4ms'], ['on', 'off'], None)
    """
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        found = [part.strip() for part in text[1:-1].split(",")]
        if not all(found):
            raise ReplayError(f"{text!r}: expected values between commas, such as {{on,off}}")
        return list(dict.fromkeys(found))
    if ".." not in text:
        return None
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ReplayError(f"{text!r}: expected a range FIRST..LAST/COUNT, such as 0..4ms/9 or 1ms..64ms/7log")
    first, unit, last, last_unit, count, log = match.groups()
    unit = unit or last_unit
    if unit and not last_unit:
        raise ReplayError(f"{text!r}: the last value has no unit; write {first}{unit}..{last}{unit}/{count}")
    try:
        ends = (
            (parse_duration(first + unit), parse_duration(last + last_unit))
            if unit
            else (float(first), float(last))
        )
    except ValueError as error:
        raise ReplayError(f"{text!r}: {error}") from None
    points = _spread(text, float(ends[0]), float(ends[1]), int(count), bool(log))
    if unit:
        found = [exact_duration(round(p)) for p in points]
    elif all(end == int(end) for end in ends):
        found = [str(round(p)) for p in points]
    else:
        found = [f"{p:.9g}" for p in points]
    return list(dict.fromkeys(found))


def _spread(text: str, first: float, last: float, count: int, log: bool) -> list[float]:
    if count < 2 or first == last:
        raise ReplayError(f"{text!r}: expected two or more values between two different ends")
    if count > MAX_CELLS:
        raise ReplayError(f"{text!r}: {count} values; at most {MAX_CELLS} cells can be run")
    steps = [i / (count - 1) for i in range(count)]
    if not log:
        return [first + (last - first) * s for s in steps]
    if first <= 0 or last <= 0:
        raise ReplayError(f"{text!r}: a logarithmic range needs ends above 0")
    return [math.exp(math.log(first) + (math.log(last) - math.log(first)) * s) for s in steps]


def _parts(text: str) -> list[str]:
    """Split at commas that stand outside braces."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]]


def _variants(settings: str, prefix: str) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Every combination of the values of ``key=value,...``, and what varies in it."""
    choices: list[list[tuple[str, tuple[tuple[str, str], ...]]]] = []
    for part in _parts(settings):
        key, equals, value = part.partition("=")
        several = values(value) if equals else None
        if several is None:
            choices.append([(part, ())])
        else:
            name = prefix + key.strip()
            choices.append([(f"{key}={one}", ((name, one),)) for one in several])
    count = math.prod(len(one) for one in choices)
    if count > MAX_CELLS:
        raise ReplayError(f"{settings!r}: {count} cells; at most {MAX_CELLS} can be run")
    for chosen in itertools.product(*choices):
        yield ",".join(text for text, _ in chosen), tuple(axis for _, axes in chosen for axis in axes)


def _policies(policies: Sequence[str]) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    found: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    for policy in policies:
        name, colon, settings = policy.partition(":")
        own = (("policy", name if colon and ("{" in settings or ".." in settings) else policy),)
        shown = own if len(policies) > 1 else ()
        if not colon:
            found.append((policy, shown))
        else:
            found += [(f"{name}:{text}", shown + axes) for text, axes in _variants(settings, "")]
    return found


def _sets(sets: Sequence[str]) -> list[list[tuple[str, tuple[tuple[str, str], ...]]]]:
    found = []
    for text in sets:
        selector, colon, settings = text.rpartition(": ") if ": " in text else text.rpartition(":")
        if not colon:
            raise ReplayError(
                f"--set {text!r}: expected `selector: attribute=value`, such as 'batch*: nice=0..19/5'"
            )
        name = f"{selector.strip()}: "
        found.append([(f"{selector}: {rest.strip()}", axes) for rest, axes in _variants(settings, name)])
    return found


def cells(policies: Sequence[str], sets: Sequence[str] = ()) -> list[Cell]:
    """Every cell of a grid.

    Parameters
    ----------
    policies
        Policies, whose values can be ranges and lists; none: the policy of the recording.
    sets
        ``--set`` texts, likewise.

    Returns
    -------
    list of Cell
        In the order in which they were written, the last axis fastest; each once.

    Raises
    ------
    ReplayError
        When a text is not understood, or there are more than a hundred thousand cells.

    Examples
    --------
    >>> [str(cell) for cell in cells(["rr:quantum=1ms..4ms/2"], ["batch*: nice={0,19}"])][:2]
    ["rr:quantum=1000000ns --set 'batch*: nice=0'", "rr:quantum=1000000ns --set 'batch*: nice=19'"]
    """
    named, changed = _policies(policies) or [("", ())], _sets(sets)
    count = len(named) * math.prod(len(one) for one in changed)
    if count > MAX_CELLS:
        raise ReplayError(f"the grid has {count} cells; at most {MAX_CELLS} can be run")
    found = []
    for (policy, axes), *others in itertools.product(named, *changed):
        texts = tuple(text for text, _ in others)
        found.append(Cell(policy, texts, axes + tuple(a for _, more in others for a in more)))
    return list(dict.fromkeys(found))


def sample(all_cells: Sequence[Cell], count: int, seed: int = 0) -> list[Cell]:
    """Draw cells at random, each once, in the order of the grid.

    Parameters
    ----------
    all_cells
        A grid.
    count
        How many; all where there are fewer.
    seed
        The same seed draws the same cells.
    """
    places = random.Random(seed).sample(range(len(all_cells)), min(count, len(all_cells)))
    return [all_cells[i] for i in sorted(places)]
