"""Aims for several CPUs, groups and current kernels: ``python -m validation.several FOLDER --pairs TABLE``.

One replay a capture and a question, without repetitions: every capture as itself, every pair as asked. The negative controls replay
the same captures with balancing off, and with groups ignored: aims that hold there as well would say nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

import tracekit as tk
from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.trace import Trace
from tracekit.whatif.calibration import calibrate
from tracekit.whatif.intervals import Shake
from validation import lab, predict
from validation.metrics import Refused, measure

__all__ = ["Aim", "Result", "aims", "job"]

#: Rules by which a control differs from the replay: a parameter of the policy, or the groups left out.
CONTROLS = ("", "balance=off", "no groups")
#: A real change below which a pair asks for nothing.
CHANGE = 0.10
#: Median spread of repeats by workload, a share of their mean (lab2/README.md, noise floor).
SPREAD = {"callpipe": 0.776, "mixed": 0.09, "server": 0.089, "slice": 0.121, "pinned": 0.081}


@dataclass(frozen=True)
class Result:
    """A capture replayed as itself and as its targets.

    Attributes
    ----------
    key, workload, kernel, cpus
        What was captured.
    real, identity
        Main metric, recorded and replayed.
    errors
        Of the identity: switches, CPU share (points), migrations, run delay p95: replayed against recorded.
    targets
        Main metric of each target.
    why
        Why there is no figure.
    """

    key: str
    workload: str
    kernel: str
    cpus: int
    real: float | None
    identity: float | None
    errors: Mapping[str, tuple[float | None, float | None]]
    targets: Mapping[str, float | None]
    why: str = ""


@dataclass(frozen=True)
class Aim:
    """A share of cases that is to be within a bound, and the share that is."""

    text: str
    wanted: float
    found: float
    n: int

    @property
    def holds(self) -> bool:
        """Whether it is reached."""
        return self.n > 0 and self.found >= self.wanted


def _migrations(trace: Trace) -> int:
    rows = trace.slices.sort("utid", "ts_ns")
    return rows.filter(pl.col("cpu") != pl.col("cpu").shift(1).over("utid")).height


def _controlled(asked: lab.Question, control: str) -> lab.Question:
    if control == "no groups":
        sets = tuple(s for s in asked.sets if s[1][0][0] != "group")
        return replace(asked, sets=sets, groups=())
    if control:
        return replace(asked, policy=asked.policy + ("," if ":" in asked.policy else ":") + control)
    return asked


def _metric(trace: Trace, capture: lab.Capture) -> float | None:
    try:
        return measure(capture.metric, trace, capture.arguments).value
    except Refused:
        return None


def job(task: tuple[lab.Capture, Sequence[lab.Capture], str]) -> Result:
    """Replay a capture as itself and as each target, under a control."""
    capture, targets, control = task
    about = (capture.key, capture.workload, capture.kernel, capture.cpus)
    known = [p["name"] for p in registry.policies()]
    still = Shake(0, 0, 0)
    try:
        trace = tk.read(capture.file)
        programs = tk.Programs(trace)
        itself = lab.question(capture, trace, known)
        replayed = predict._run(programs, _controlled(itself, control), still)
    except TracekitError as error:
        return Result(
            *about, None, None, {}, dict.fromkeys((t.key for t in targets), None), str(error)[-120:]
        )
    rows = {r["metric"]: r for r in calibrate(trace, replayed).to_dicts()}
    errors = {k: (rows[k]["recorded"], rows[k]["replayed"]) for k in ("switches", "run_delay_p95")}
    errors["cpu_share"] = (0.0, rows["cpu_share"]["error"])
    errors["migrations"] = (float(_migrations(trace)), float(_migrations(replayed)))
    found: dict[str, float | None] = {}
    for target in targets:
        asked = lab.question(target, trace, known)
        costs = predict._switch_costs(programs, capture, itself, asked) if asked != itself else None
        try:
            found[target.key] = _metric(
                predict._run(programs, _controlled(asked, control), still, costs), capture
            )
        except TracekitError:
            found[target.key] = None
    return Result(*about, _metric(trace, capture), _metric(replayed, capture), errors, found)


def _aim(text: str, wanted: float, cases: Sequence[bool]) -> Aim:
    return Aim(text, wanted, sum(cases) / len(cases) if cases else 0.0, len(cases))


def _off(pair: tuple[float | None, float | None]) -> float:
    a, b = pair
    return abs(b / a - 1) if a and b is not None else 9.0


def _identity_aims(results: Sequence[Result]) -> list[Aim]:
    done = [r for r in results if r.errors]

    def delay(r: Result) -> bool:
        a, b = r.errors["run_delay_p95"]
        # A tenth of a tick at 250 HZ.
        return a is not None and b is not None and abs(b - a) <= max(0.15 * a, 400_000)

    main = [_off((r.real, r.identity)) <= max(0.10, 1.5 * SPREAD.get(r.workload, 0.0)) for r in results]
    return [
        _aim("identity: main metric within 10 % or 1.5 times the spread", 0.85, main),
        _aim("identity: switches within 10 %", 0.85, [_off(r.errors["switches"]) <= 0.10 for r in done]),
        _aim("identity: run delay p95 within 15 % or 0.1 tick", 0.80, [delay(r) for r in done]),
        _aim(
            "identity: migrations within 20 %",
            0.75,
            [_off(r.errors["migrations"]) <= 0.20 for r in done if r.cpus > 1],
        ),
        _aim(
            "identity: CPU shares within 3 points",
            0.90,
            [(r.errors["cpu_share"][1] or 0.0) <= 3 for r in done],
        ),
    ]


def aims(results: Sequence[Result], pairs: Sequence[lab.Pair]) -> tuple[list[Aim], dict[str, float]]:
    """Hold the results against the aims.

    Parameters
    ----------
    results
        Of `job`.
    pairs
        The table of pairs; the first row of each pair is its main metric.

    Returns
    -------
    tuple
        The aims, and the median error by kind of pair.
    """
    found = _identity_aims(results)
    by_key = {r.key: r for r in results}
    kinds: dict[str, list[tuple[float, bool, float]]] = {}
    seen = set()
    for pair in pairs:
        a = by_key.get(pair.a)
        if a is None or (pair.a, pair.b) in seen or pair.kind == "repeat":
            continue
        seen.add((pair.a, pair.b))
        b = by_key.get(pair.b)
        real = b.real if b is not None and b.real else pair.b_value
        if not a.real or abs(real / a.real - 1) <= max(CHANGE, SPREAD.get(a.workload, 0.0)):
            continue
        value = a.targets.get(pair.b)
        # A refusal counts as a miss.
        right = value is not None and bool(a.identity) and (value / a.identity - 1) * (real / a.real - 1) > 0
        kinds.setdefault(pair.kind, []).append(
            (_off((real, value)), right, 1.5 * SPREAD.get(a.workload, 0.0))
        )
    medians = {}
    for kind, cases in sorted(kinds.items()):
        medians[kind] = statistics.median(e for e, _, _ in cases)
        bound, wanted = (0.15, 0.80) if kind == "policy" else (0.20, 0.75)
        text = f"{kind} pairs: within {100 * bound:.0f} % or 1.5 times the spread"
        found.append(_aim(text, wanted, [e <= max(bound, s) for e, _, s in cases]))
        found.append(_aim(f"{kind} pairs: direction", 0.95, [right for _, right, _ in cases]))
    return found, medians


def _page(tables: Mapping[str, tuple[list[Aim], dict[str, float]]], results: Sequence[Result]) -> str:
    lines = [
        "# Several CPUs, groups, current kernels: what was measured",
        "",
        "Written by `python -m validation.several`. One replay each, no repetitions. The controls are replays that leave out what the",
        "aims are about: where an aim holds there as well, it says nothing.",
        "",
        "| aim | wanted | " + " | ".join(c or "replay" for c in tables) + " | n |",
        "|---|---|" + "---|" * (len(tables) + 1),
    ]
    for i, aim in enumerate(tables[""][0]):
        cells = [f"{100 * t[0][i].found:.0f} %" if i < len(t[0]) else "" for t in tables.values()]
        lines.append(f"| {aim.text} | {100 * aim.wanted:.0f} % | {' | '.join(cells)} | {aim.n} |")
    lines += [
        "",
        "Median error of pairs that change: "
        + ", ".join(f"{k} {100 * v:.1f} %" for k, v in tables[""][1].items())
        + ".",
    ]
    lines += [
        "",
        "| capture | main metric | replayed | error | switches | CPU share, points | migrations |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in sorted(results, key=lambda r: r.key):
        if not r.errors:
            lines.append(f"| {r.key} | refused: {r.why} | | | | | |")
            continue
        error = (
            f"{100 * (r.identity / r.real - 1):+.1f} %" if r.real and r.identity is not None else "no figure"
        )
        a, b = r.errors["switches"]
        moved = r.errors["migrations"]
        lines.append(
            f"| {r.key} | {r.real or 0:.5g} | {r.identity or 0:.5g} | {error} | {100 * ((b or 0) / (a or 1) - 1):+.1f} % | "
            f"{r.errors['cpu_share'][1]:.1f} | {moved[0]:.0f} -> {moved[1]:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 0 also where aims are missed: the page says which."""
    parser = argparse.ArgumentParser(prog="python -m validation.several", description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked captures")
    parser.add_argument("--pairs", type=Path, required=True, help="the table of pairs")
    parser.add_argument("--only", default="", metavar="REGEX", help="only captures whose folder and name fit")
    parser.add_argument("--controls", action="store_true", help="replay the negative controls as well")
    parser.add_argument("-o", "--output", type=Path, help="page to write")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(argv)
    captures: dict[str, Any] = {
        k: c for k, c in lab.captures(given.folder).items() if re.search(given.only, k)
    }
    every = lab.captures(given.folder)
    pairs = lab.pairs(given.pairs)
    if not captures:
        print(f"validation: no capture below {given.folder} fits --only", file=sys.stderr)
        return 2
    tables = {}
    plain: Sequence[Result] = ()
    for control in CONTROLS if given.controls else CONTROLS[:1]:
        tasks = [
            (
                c,
                [
                    every[b]
                    for b in dict.fromkeys(p.b for p in pairs if p.a == k and p.kind != "repeat")
                    if b in every
                ],
                control,
            )
            for k, c in captures.items()
        ]
        # Fresh interpreters: polars' threads do not survive a fork.
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            results = list(pool.imap_unordered(job, tasks))
        tables[control] = aims(results, pairs)
        plain = plain or results
    text = _page(tables, plain)
    if given.output is None:
        print(text)
    else:
        given.output.write_text(text)
    for aim in tables[""][0]:
        print(
            f"{'holds ' if aim.holds else 'missed'} {100 * aim.found:5.1f} %  n = {asdict(aim)['n']:<4} {aim.text}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
