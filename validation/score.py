"""Scores a predictor on the lab's pairs: a real capture A, a change, and what a real kernel then did.

``python -m validation.score testdata/lab --pairs lab/pairs.tsv --predictor 'python mine.py'`` asks
the command once for each pair. It gets the question as JSON on standard input and prints the
number, or nothing where it cannot say. The built-in predictors (``no-change``, ``open``,
``closed``, ``formula``, ``tracekit``) stand beside it. `docs/benchmark.md` explains the question
and how the captures were made.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import rich
from rich.progress import track
from rich.table import Table

from validation import lab
from validation.baselines import BASELINES, Asked
from validation.metrics import METRICS

__all__ = ["Score", "asked", "command", "sample", "score", "scored"]

#: A prediction is right within this; a change that is smaller is none.
CLOSE = 0.10
#: Seconds that a command may take for one answer.
PATIENCE = 60


@dataclass(frozen=True)
class Score:
    """How near a predictor came.

    Attributes
    ----------
    predictor, kind
        Who predicted, and what kind of change.
    pairs, answered
        Questions, and those that got a number.
    median_error
        Median of |prediction / real - 1| over the answers, `None` without any.
    close
        Part of all pairs that are within 10 %; no answer is a miss.
    direction
        Part of the pairs whose figure really changes by over 10 % where the sign of the change is right.
    """

    predictor: str
    kind: str
    pairs: int
    answered: int
    median_error: float | None
    close: float
    direction: float | None


def asked(pair: lab.Pair, a: lab.Capture, b: lab.Capture) -> Asked:
    """The question of a pair, with the two captures for those who are built in."""

    def setting(c: lab.Capture) -> dict[str, Any]:
        return {
            "kernel": c.env.get("kernel", ""),
            "cpus": c.cpus,
            "setup": c.env.get("setup", ""),
            "workload": c.env["workload"],
        }

    return (
        {
            "capture": str(a.file),
            "metric": pair.metric,
            "meaning": (METRICS[pair.metric].__doc__ or "").strip(),
            "recorded": pair.a_value,
            "kind": pair.kind,
            "a": setting(a),
            "b": setting(b),
        },
        a,
        b,
    )


def command(line: str) -> Callable[[Asked], float | None]:
    """A predictor that is a program: JSON in, a number out, nothing where it cannot say.

    Raises
    ------
    ValueError
        When it fails or prints something else.
    """
    words = shlex.split(line)

    def ask(question: Asked) -> float | None:
        done = subprocess.run(
            words, input=json.dumps(question[0]), capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode:
            raise ValueError(f"{line}: exit status {done.returncode}: {done.stderr.strip()[-200:]}")
        text = done.stdout.strip()
        try:
            return float(text) if text else None
        except ValueError:
            raise ValueError(f"{line}: expected one number or nothing, found `{text[:80]}`") from None

    return ask


def sample(pairs: Sequence[lab.Pair], n: int, seed: int = 1) -> list[lab.Pair]:
    """At most `n` pairs, in turn from every kind and workload so that none is left out."""
    drawn = random.Random(seed)
    boxes: dict[tuple[str, str], list[lab.Pair]] = defaultdict(list)
    for pair in pairs:
        boxes[pair.kind, pair.metric].append(pair)
    for box in boxes.values():
        drawn.shuffle(box)
    chosen: list[lab.Pair] = []
    while len(chosen) < min(n, len(pairs)):
        for key in sorted(boxes):
            if boxes[key] and len(chosen) < n:
                chosen.append(boxes[key].pop())
    return chosen


def scored(predictor: str, kind: str, rows: Iterable[tuple[lab.Pair, float | None]]) -> Score:
    """The score of the answers to some pairs."""
    errors, close, signs = [], [], []
    for pair, value in rows:
        change = pair.b_value / pair.a_value - 1
        error = None if value is None else abs(value / pair.b_value - 1)
        if error is not None:
            errors.append(error)
        close.append(error is not None and error <= CLOSE)
        if abs(change) > CLOSE:
            signs.append(value is not None and (value / pair.a_value - 1) * change > 0)
    return Score(
        predictor,
        kind,
        len(close),
        len(errors),
        pl.Series(errors, dtype=pl.Float64).median() if errors else None,  # type: ignore[arg-type]
        sum(close) / len(close),
        sum(signs) / len(signs) if signs else None,
    )


def score(
    predictors: dict[str, Callable[[Asked], float | None]],
    pairs: Sequence[lab.Pair],
    captures: dict[str, lab.Capture],
    *,
    jobs: int = 2,
    show: bool = False,
) -> tuple[list[Score], pl.DataFrame]:
    """Ask every predictor about every pair.

    Returns
    -------
    tuple
        Scores by predictor and kind of change (``all``, ``changes`` for pairs that change by over
        10 %, and each kind), and a row for each answer: ``predictor``, ``a``, ``b``, ``kind``,
        ``metric``, ``recorded``, ``real``, ``predicted``.
    """
    scores, answers = [], []
    for name, predict in predictors.items():
        questions = [asked(p, captures[p.a], captures[p.b]) for p in pairs]
        with ThreadPoolExecutor(jobs) as pool:
            values = list(
                track(
                    pool.map(predict, questions), name, total=len(questions), disable=not show, transient=True
                )
            )
        rows = list(zip(pairs, values, strict=True))
        kinds = {
            "all": rows,
            "changes": [(p, v) for p, v in rows if abs(p.b_value / p.a_value - 1) > CLOSE],
            **{k: [(p, v) for p, v in rows if p.kind == k] for k in sorted({p.kind for p in pairs})},
        }
        scores += [scored(name, kind, found) for kind, found in kinds.items() if found]
        answers += [
            {"predictor": name, "a": p.a, "b": p.b, "kind": p.kind, "metric": p.metric}
            | {"recorded": p.a_value, "real": p.b_value, "predicted": v}
            for p, v in rows
        ]
    return scores, pl.DataFrame(answers, infer_schema_length=None)


def _label(name: str) -> str:
    """What a table calls a predictor: a program by its last word, without folder."""
    return name if name in BASELINES else Path(shlex.split(name)[-1]).name


def _table(scores: Sequence[Score]) -> Table:
    table = Table(box=None, header_style="")
    for column in ("predictor", "pairs of", "n", "answered", "median error", "within 10 %", "direction"):
        table.add_column(column, justify="left" if column in ("predictor", "pairs of") else "right")
    for s in scores:
        error = "-" if s.median_error is None else f"{100 * s.median_error:.1f} %"
        sign = "-" if s.direction is None else f"{100 * s.direction:.0f} %"
        row = (s.predictor, s.kind, str(s.pairs), str(s.answered), error, f"{100 * s.close:.0f} %", sign)
        table.add_row(*row)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Score and print; exit status 2 where a predictor answers what is no number."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.score",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="the unpacked captures")
    parser.add_argument("--pairs", type=Path, required=True, help="the table of pairs")
    parser.add_argument("--predictor", action="append", default=[], metavar="COMMAND|NAME", help=
        f"a program, or one of {', '.join(BASELINES)}; may be repeated (where no built-in one is named, "
        "all of them but tracekit stand beside it)")  # fmt: skip
    parser.add_argument(
        "--sample", type=int, default=60, metavar="N", help="pairs to ask (default 60; 0: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="which pairs the sample has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every answer, as JSON lines")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="questions at a time")
    given = parser.parse_args(argv)
    captures = lab.captures(given.folder)
    known = [p for p in lab.pairs(given.pairs) if p.a in captures and p.b in captures and p.metric in METRICS]
    if not known:
        print(f"score: no pair of {given.pairs} has its captures below {given.folder}", file=sys.stderr)
        return 2
    chosen = known if given.sample == 0 else sample(known, given.sample, given.seed)
    names = given.predictor
    if not set(names) & set(BASELINES):
        names = [*(name for name in BASELINES if name != "tracekit"), *names]
    predictors = {_label(name): BASELINES.get(name) or command(name) for name in names}
    try:
        scores, answers = score(predictors, chosen, captures, jobs=given.jobs, show=sys.stderr.isatty())
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"score: {error}", file=sys.stderr)
        return 2
    rich.print(_table(scores))
    if given.json is not None:
        answers.write_ndjson(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
