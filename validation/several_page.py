"""The page of several CPUs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from validation import bimodal
from validation.several_aims import NO_FIGURE, REPLAYS, Aim, Case, Result, identity_aims, main_bounds

__all__ = ["page"]

#: What was found out about misses.
CAUSES = Path(__file__).with_name("several-causes.md")


def _percent(a: float | None, b: float | None) -> str:
    """By how much `b` is off from `a`."""
    return f"{100 * (b / a - 1):+.1f} %" if a and b is not None else "no figure"


def _aims_table(
    tables: Mapping[str, tuple[list[Aim], dict[str, float]]], noise: Mapping[str, Sequence[Aim]]
) -> list[str]:
    names = [*(c or "replay" for c in tables), *noise]
    lines = [f"| aim | wanted | {' | '.join(names)} | n |", "|---|---|" + "---|" * (len(names) + 1)]
    of = [{aim.text: aim for aim in aims} for aims in [*(t[0] for t in tables.values()), *noise.values()]]
    for text, aim in of[0].items():
        cells = [f"{100 * t[text].found:.0f} %" if text in t else "" for t in of]
        lines.append(f"| {text} | {100 * aim.wanted:.0f} % | {' | '.join(cells)} | {aim.n} |")
    medians = ", ".join(f"{k} {100 * v:.1f} %" for k, v in tables[""][1].items())
    return [*lines, "", f"Median error of pairs that change: {medians}."]


def _group_table(results: Sequence[Result], found: Sequence[Case]) -> list[str]:
    """The main metric of identities by kernel and number of CPUs, and of pairs by kind and workload."""
    lines = ["| captures | n | main metric within its bound | median error |", "|---|---|---|---|"]
    kinds: dict[str, list[tuple[float, float]]] = {}
    for r, pair in zip(results, main_bounds(results), strict=True):
        kinds.setdefault(r.key.split("/")[0], []).append(pair)
    for case in found:
        kinds.setdefault(f"pairs: {case.kind}, {case.workload}", []).append((case.error, case.bound))
    for kind, of in sorted(kinds.items()):
        within = sum(e <= bound for e, bound in of) / len(of)
        middle = statistics.median_high(e for e, _ in of)
        shown = f"{100 * statistics.median(e for e, _ in of):.1f} %"
        shown = shown if middle < NO_FIGURE else "no figure for half or more"
        lines.append(f"| {kind} | {len(of)} | {100 * within:.0f} % | {shown} |")
    return lines


def _pairs_table(found: Sequence[Case]) -> list[str]:
    lines = ["| pair | kind | real change | predicted change | error of B | |", "|---|---|---|---|---|---|"]
    for c in sorted(found, key=lambda c: (c.kind, c.a, c.b)):
        real, predicted = _percent(c.real_a, c.real_b), _percent(c.identity, c.predicted)
        verdict = "" if c.error <= c.bound else "missed"
        error = _percent(c.real_b, c.predicted)
        lines.append(f"| {c.a} -> {c.b} | {c.kind} | {real} | {predicted} | {error} | {verdict} |")
    return lines


def _captures_table(results: Sequence[Result]) -> list[str]:
    lines = [
        "| capture | main metric | replayed | error | switches | CPU share, points | migrations |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in sorted(results, key=lambda r: r.key):
        if not r.errors:
            lines.append(f"| {r.key} | refused: {r.why} | | | | | |")
            continue
        moved = r.errors["migrations"]
        lines.append(
            f"| {r.key} | {r.real or 0:.5g} | {r.identity or 0:.5g} | {_percent(r.real, r.identity)} | "
            f"{_percent(*r.errors['switches'])} | {r.errors['cpu_share'][1]:.1f} | {moved[0]:.0f} -> {moved[1]:.0f} |"
        )
    return lines


def page(
    tables: Mapping[str, tuple[list[Aim], dict[str, float]]],
    results: Sequence[Result],
    found: Sequence[Case],
    left: str,
    again: Sequence[Result],
) -> str:
    """Write the page.

    Parameters
    ----------
    tables
        Aims and median errors of each control; the plain replays under an empty name.
    results, found
        Plain replays, and the pairs that change.
    left
        What was left out, or nothing.
    again
        Recordings held against their repeats.

    Returns
    -------
    str
        Markdown.
    """
    keys = {r.key for r in again}
    noise = {
        # Main metrics of repeats are within their own spread as a matter of course.
        "replay, repeated captures": identity_aims([r for r in results if r.key in keys])[1:],
        "a repeat": identity_aims(again)[1:],
    }
    head = [
        "# Several CPUs, groups, current kernels: what was measured",
        "",
        f"Written by `python -m validation.several`. Medians of {REPLAYS} replays with other jitter, tick phases and",
        "random numbers of the kernel.",
        "`balance=off` and `no groups` leave out what the aims are about: where an aim holds there as well, it",
        "says nothing. With placement=trace each task is where it was recorded, so that migrations are given,",
        "and no other number of CPUs or affinity can be asked for. The spread is that of a capture's own",
        "repeats, and of captures recorded once the median of their workload's. The last two columns are about",
        f"the {len(keys)} captures with repeats: the replay, and one recording taken for the prediction of another",
        f"({len(again)} ordered pairs), which shows how much of a miss is chance. Which request of a server a",
        "thread takes is in no trace: recorded responses of servers are those that the workload wrote down.",
        "",
    ]
    parts = [
        _aims_table(tables, noise if keys else {}),
        ["## By kind", "", *_group_table(results, found)],
        bimodal.table({r.key: r.real for r in results}, {r.key: r.replays for r in results}),
        ["## Pairs that change", "", *_pairs_table(found)],
        ["## Captures", "", *_captures_table(results)],
    ]
    if CAUSES.is_file():
        parts.insert(2, [CAUSES.read_text().rstrip()])
    text = "\n\n".join("\n".join(part) for part in parts if part)
    return "\n".join(head) + "\n" + (left + "\n\n" if left else "") + text + "\n"
