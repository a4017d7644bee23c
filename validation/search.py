"""Proposals of `solve` beside random ones of equal size, and beside what the lab did.

    python -m validation.search testdata/lab [--capture KEY] [--goal GOAL] [--keep GOAL] [--draws 20]

`solve` searches a capture for changes that meet the goals. The first three that it shows, those
last that another one beats, are held against random ones: each draw has as many, of the same
numbers of changes, from the same changes, and its seed is its number, from 0. All are replayed
alike. Two measures say which is better: the score by which `solve` searches (what is missing of the
goals, then how far the first is met), and the main figure of the workload, which no goal names and
the search does not see. Beside them stand the captures of the same workload whose tasks the lab
gave other policies, each as a replay of this capture. Then the impossible is asked: the first goal
at a thousandth of its bound.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tracekit as tk
from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.whatif.goals import Goal, parse_goal
from tracekit.whatif.grid import Cell
from tracekit.whatif.scenario import parse_set
from tracekit.whatif.solve import extended, moves, score, solve
from tracekit.whatif.sweep import Options, Runner
from tracekit.whatif.workers import Workers
from validation import lab
from validation.metrics import Refused, measure

__all__ = ["Measured", "draw", "main", "wins"]

#: The pipe of the lab: searches pass A and B; its generator and the batch job are to be left alone.
CAPTURE = "6.1/callpipe-default-batch"
GOAL, KEEP = "response.mean(A) < 3ms", ("response.p95(gen) < 1ms", "cpu(batch) > -5%")
#: Proposals of a draw, and draws.
SIZE, DRAWS = 3, 20
#: An impossible goal: the bound of the first divided by so much.
IMPOSSIBLE = 1000
#: Arguments of the lab's workloads that give tasks a policy.
POLICIES = ("pol", "all", "bpol")


@dataclass(frozen=True)
class Measured:
    """A set of changes, how well it meets the goals, and the workload's figure where there is one."""

    cell: Cell
    score: tuple[float, float]
    figure: float | None

    @property
    def by_figure(self) -> float:
        """The figure, more is better; a set of changes without one is worse than any with one."""
        return -math.inf if self.figure is None else -self.figure


def draw(start: Cell, steps: Sequence[tuple[str, str]], sizes: Sequence[int], seed: int) -> list[Cell]:
    """Random sets of changes, one of each size.

    Parameters
    ----------
    start
        Where nothing is changed.
    steps
        Changes, as `tracekit.whatif.solve.moves` gives them.
    sizes
        How many changes each set has.
    seed
        The same seed gives the same sets.

    Returns
    -------
    list of Cell
        Distinct sets.

    Raises
    ------
    ValueError
        When there are not so many changes that go together.
    """
    rng = random.Random(seed)
    found: list[Cell] = []
    for size in sizes:
        for _ in range(1000):
            cell = start
            for step in rng.sample(steps, len(steps)):
                if len(cell.axes) == size:
                    break
                cell = extended(cell, step) or cell
            if len(cell.axes) == size and cell not in found:
                found.append(cell)
                break
        else:
            raise ValueError(f"there is no further set of {size} changes among {len(steps)}")
    return found


def wins(
    own: Sequence[Measured], draws: Sequence[Sequence[Measured]], key: Callable[[Measured], Any]
) -> dict[str, int]:
    """How often our sets of changes are better than random ones.

    Parameters
    ----------
    own
        Our sets.
    draws
        Draws of as many sets.
    key
        What is compared; more is better.

    Returns
    -------
    dict
        `best`: draws whose best is worse than our best. `all`: draws whose best is worse than our
        worst. `pairs`: sets, the first of a draw beside our first and so on, that are worse. What
        comes to the same is no win. `of`: draws; `of_pairs`: pairs.
    """
    mine, theirs = [key(one) for one in own], [[key(one) for one in drawn] for drawn in draws]
    return {
        "best": sum(max(mine) > max(drawn) for drawn in theirs),
        "all": sum(min(mine) > max(drawn) for drawn in theirs),
        "of": len(draws),
        "pairs": sum(a > b for drawn in theirs for a, b in zip(mine, drawn, strict=True)),
        "of_pairs": len(mine) * len(draws),
    }


def _of_lab(
    captures: Mapping[str, lab.Capture], given: lab.Capture, trace: tk.Trace, policy: str
) -> dict[str, Cell]:
    """The policies that the lab gave to tasks of the same workload and kernel."""

    def plain(one: lab.Capture) -> tuple[Any, ...]:
        rest = {k: v for k, v in one.arguments.items() if k not in POLICIES}
        return Path(one.key).parent, one.workload, one.env.get("setup"), rest

    known = [p["name"] for p in registry.policies()]
    found = {}
    for key, other in captures.items():
        if plain(other) == plain(given) and other.arguments != given.arguments:
            asked = lab.question(other, trace, known)
            found[key] = Cell(
                policy,
                tuple(
                    f"tid={t}: {','.join(map('='.join, pairs))}" for tids, pairs in asked.sets for t in tids
                ),
            )
    return found


def _measured(
    cells: Sequence[Cell], runner: Runner, trace: tk.Trace, goals: Sequence[Goal], capture: lab.Capture
) -> list[Measured]:
    """Replay each set of changes."""
    tables = {cell: table for (_, cell), table in runner.run(list(dict.fromkeys(cells)), 1).items()}
    found: dict[Cell, Measured] = {}
    for cell, table in tables.items():
        known = "metric" in table.columns
        rated = score(table.to_dicts(), goals, judged=False) if known else (-math.inf, -math.inf)
        try:
            replay = tk.replay(trace, cell.policy, scenario=[parse_set(text) for text in cell.sets])
            figure = measure(capture.metric, replay, capture.arguments).value
        except (Refused, TracekitError):
            # Too few requests come to their end, or the replay comes to none.
            figure = None
        found[cell] = Measured(cell, rated, figure)
    return [found[cell] for cell in cells]


def _line(name: str, one: Measured) -> str:
    missing, first = one.score
    changes = "; ".join(text.replace("\n", " + ") for _, text in one.cell.axes)
    figure = "-" if one.figure is None else f"{one.figure:.1f}"
    return f"{name:36}{missing:>9.2f}{first:>9.2f}{figure:>9}  {changes}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lab", type=Path)
    parser.add_argument("--capture", default=CAPTURE)
    parser.add_argument("--goal", default=GOAL)
    parser.add_argument("--keep", action="append", help="given several times; by default those of the pipe")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    captures = lab.captures(given.lab)
    capture, keep = captures[given.capture], given.keep or KEEP
    goals = [parse_goal(text) for text in (given.goal, *keep)]
    trace = tk.read(capture.file)
    identity = lab.question(capture, trace, [p["name"] for p in registry.policies()]).policy
    options = Options(identity=identity)
    solution = solve(capture.file, given.goal, keep, depth=given.depth, options=options)
    proposed = [p.cell for p in (*solution.proposals, *solution.further)[:SIZE]]
    start, steps = Cell(identity), moves(trace, identity, goals)
    drawn = [draw(start, steps, [len(c.axes) for c in proposed], seed) for seed in range(given.draws)]
    others = _of_lab(captures, capture, trace, identity)
    with tempfile.TemporaryDirectory() as scratch, Workers() as workers:
        runner = Runner([capture.file], Path(scratch), options, workers)

        def measured(cells: Sequence[Cell]) -> list[Measured]:
            return _measured(cells, runner, trace, goals, capture)

        recorded, *own = measured([start, *proposed])
        of_lab = dict(zip(others, measured(list(others.values())), strict=True))
        flat = measured([cell for cells in drawn for cell in cells])
    draws = [flat[i : i + len(own)] for i in range(0, len(flat), len(own))] if own else []
    print(f"{capture.key}: {given.goal}; keep {', '.join(keep)}; {solution.tried} sets of changes tried")
    print(f"{'':36}{'missing':>9}{'first':>9}{capture.metric.rpartition('_')[2]:>9}  changes")
    print(_line("as recorded", recorded))
    for i, one in enumerate(own):
        print(_line(f"proposal {i + 1}", one))
    for key, one in of_lab.items():
        print(_line(key, one))
    print(_line("best of all random, by score", max(flat, key=lambda o: o.score, default=recorded)))
    print(_line(f"... by {capture.metric}", max(flat, key=lambda o: o.by_figure, default=recorded)))
    result: dict[str, Any] = {}
    measures: dict[str, Callable[[Measured], Any]] = {"score": lambda o: o.score}
    measures[capture.metric] = lambda o: o.by_figure
    for name, better in measures.items():
        result[name] = found = wins(own, draws, better)
        print(
            f"by {name}: our best beats the best of a draw in {found['best']} of {found['of']} draws, our worst "
            f"in {found['all']}; one beside one in {found['pairs']} of {found['of_pairs']} pairs"
        )
    bound = replace(goals[0], bound=goals[0].bound / IMPOSSIBLE)
    impossible = f"{given.goal.rpartition('<')[0]}< {bound.bound:.0f}ns"
    none = solve(capture.file, impossible, keep, depth=1, options=options)
    print(f"{impossible}: {len(none.proposals) or 'none'} found, {none.tried} sets of changes tried")
    if given.json:
        result |= {"proposals": len(own), "impossible": len(none.proposals)}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
