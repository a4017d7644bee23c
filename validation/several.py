"""Aims for several CPUs, groups and current kernels: ``python -m validation.several FOLDER --pairs TABLE``.

Every capture as itself, every pair as asked, each the median of a few replays with other jitter and
tick phases. The negative controls replay the same captures with balancing off, and with groups
ignored: aims that hold there as well would say nothing.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

import tracekit as tk
from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.trace import Trace
from tracekit.whatif.calibration import calibrate
from tracekit.whatif.switch_costs import Change
from validation import bistable, lab, predict, repeats
from validation.metrics import Refused, measure

__all__ = ["Aim", "Result", "aims", "job"]

#: How a column differs from the replay: tasks where they were recorded, a parameter of the policy,
#: or the groups left out.
CONTROLS = ("", "placement=trace", "balance=off", "no groups")
#: The first of them.
PLACED = "placement=trace"
#: Misses with their causes, as part of the page.
CAUSES = Path(__file__).with_name("several-causes.md")
#: Replays of each question: the plain one and four with other jitter and tick phases.
REPEATS = 5
#: Error of a case for which there is no figure: beyond every bound.
NO_FIGURE = 9.0
#: A real change below which a pair asks for nothing.
CHANGE = 0.10


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
    replays
        Main metric of each replay as itself.
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
    replays: tuple[float | None, ...] = ()


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


def _floor(captures: Mapping[str, lab.Capture]) -> str:
    """Say how well repeats of one capture agree in their migrations: no prediction can do better."""
    families = repeats.families([key for key, capture in captures.items() if capture.cpus > 1])
    counts = [[_migrations(tk.read(captures[k].file)) for k in of] for of in families.values() if len(of) > 1]
    off = [_off((a, b)) for of in counts for a, b in itertools.combinations(of, 2)]
    if not off:
        return ""
    share = sum(o <= 0.20 for o in off) / len(off)
    return (
        f"Repeats of one capture (all workloads, same kernel and CPUs) agree in their migrations within 20 % in\n"
        f"{100 * share:.0f} % of {len(off)} pairs: that is what a prediction of one of them can reach."
    )


def _controlled(asked: lab.Question, control: str) -> lab.Question:
    if control == PLACED:
        return asked
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


def _middle(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _replays(programs: tk.Programs, asked: lab.Question, costs: Change | None = None) -> list[Trace]:
    """The replay as it is, and with small changes of the machine."""
    shakes = programs.shakes()[:REPEATS]
    return [predict.run(programs, asked, shake, costs) for shake in shakes]


def _errors(trace: Trace, replays: Sequence[Trace]) -> dict[str, tuple[float | None, float | None]]:
    rows = [{r["metric"]: r for r in calibrate(trace, x).to_dicts()} for x in replays]
    errors = {
        k: (rows[0][k]["recorded"], _middle(r[k]["replayed"] for r in rows))
        for k in ("switches", "run_delay_p95")
    }
    errors["cpu_share"] = (0.0, _middle(r["cpu_share"]["error"] for r in rows))
    errors["migrations"] = (float(_migrations(trace)), _middle(float(_migrations(x)) for x in replays))
    return errors


def job(task: tuple[lab.Capture, Sequence[lab.Capture], str]) -> Result:
    """Replay a capture as itself and as each target, under a control."""
    capture, targets, control = task
    about = (capture.key, capture.workload, capture.kernel, capture.cpus)
    known = [p["name"] for p in registry.policies()]
    try:
        trace = tk.read(capture.file)
        programs = tk.Programs(trace, placement="trace" if control == PLACED else "model")
        itself = lab.question(capture, trace, known)
        replays = _replays(programs, _controlled(itself, control))
    except TracekitError as error:
        return Result(
            *about, None, None, {}, dict.fromkeys((t.key for t in targets), None), str(error)[-120:]
        )
    errors = _errors(trace, replays)
    found: dict[str, float | None] = {}
    for target in targets:
        try:
            asked = lab.question(target, trace, known)
            costs = predict.switch_costs(programs, capture, itself, asked) if asked != itself else None
            predicted = _replays(programs, _controlled(asked, control), costs)
            found[target.key] = _middle(_metric(x, capture) for x in predicted)
        except TracekitError:
            found[target.key] = None
    each = tuple(_metric(x, capture) for x in replays)
    return Result(*about, _metric(trace, capture), _middle(each), errors, found, replays=each)


def _aim(text: str, wanted: float, cases: Sequence[bool]) -> Aim:
    return Aim(text, wanted, sum(cases) / len(cases) if cases else 0.0, len(cases))


def _off(pair: tuple[float | None, float | None]) -> float:
    a, b = pair
    return abs(b / a - 1) if a and b is not None else NO_FIGURE


def _spreads(results: Sequence[Result]) -> dict[str, float]:
    return repeats.spreads({r.key: r.real for r in results}, {r.key: r.workload for r in results})


def _main_bounds(results: Sequence[Result]) -> list[tuple[float, float]]:
    """Relative error of the main metric of each identity, and what is allowed."""
    spread = _spreads(results)
    return [(_off((r.real, r.identity)), max(0.10, 1.5 * spread[r.key])) for r in results]


def _identity_aims(results: Sequence[Result]) -> list[Aim]:
    done = [r for r in results if r.errors]

    def delay(r: Result) -> bool:
        a, b = r.errors["run_delay_p95"]
        # A tenth of a tick at 250 HZ.
        return a is not None and b is not None and abs(b - a) <= max(0.15 * a, 400_000)

    main = [error <= bound for error, bound in _main_bounds(results)]
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


@dataclass(frozen=True)
class Case:
    """A pair whose main metric really changes: recorded as A and as B, and the replays of A as A and as B.

    Attributes
    ----------
    a, b, kind, workload
        The pair.
    real_a, real_b, identity
        Main metric.
    predicted
        Main metric of the prediction; `None` where it was refused.
    spread
        Of repeats of B, a share.
    """

    a: str
    b: str
    kind: str
    workload: str
    real_a: float
    real_b: float
    identity: float | None
    predicted: float | None
    spread: float

    @property
    def error(self) -> float:
        """Of the prediction, relative; a refusal counts as a miss."""
        return _off((self.real_b, self.predicted))

    @property
    def right(self) -> bool:
        """Whether it changes in the direction in which it really does."""
        if self.predicted is None or not self.identity:
            return False
        return (self.predicted / self.identity - 1) * (self.real_b / self.real_a - 1) > 0

    @property
    def bound(self) -> float:
        """Relative error that is allowed."""
        return max(0.15 if self.kind == "policy" else 0.20, 1.5 * self.spread)


def cases(results: Sequence[Result], pairs: Sequence[lab.Pair]) -> list[Case]:
    """Pick the pairs that really change.

    Parameters
    ----------
    results
        Of `job`.
    pairs
        The table of pairs; the first row of each pair is its main metric.

    Returns
    -------
    list of Case
        In the order of the table: where the recorded values differ by more than a tenth and by more
        than repeats of either capture do.
    """
    by_key, spreads = {r.key: r for r in results}, _spreads(results)
    found, seen = [], set()
    for pair in pairs:
        a = by_key.get(pair.a)
        if a is None or (pair.a, pair.b) in seen or pair.kind == "repeat" or pair.b not in a.targets:
            continue
        seen.add((pair.a, pair.b))
        b = by_key.get(pair.b)
        real = b.real if b is not None and b.real else pair.b_value
        spread = spreads.get(pair.b, spreads[pair.a])
        if a.real and abs(real / a.real - 1) > max(CHANGE, spreads[pair.a], spread):
            predicted = a.targets[pair.b]
            found.append(
                Case(pair.a, pair.b, pair.kind, a.workload, a.real, real, a.identity, predicted, spread)
            )
    return found


def aims(results: Sequence[Result], pairs: Sequence[lab.Pair]) -> tuple[list[Aim], dict[str, float]]:
    """Hold the results against the aims.

    Parameters
    ----------
    results
        Of `job`.
    pairs
        The table of pairs.

    Returns
    -------
    tuple
        The aims, and the median error by kind of pair.
    """
    found = _identity_aims(results)
    kinds: dict[str, list[Case]] = {}
    for case in cases(results, pairs):
        kinds.setdefault(case.kind, []).append(case)
    medians = {}
    for kind, of in sorted(kinds.items()):
        medians[kind] = statistics.median(c.error for c in of)
        bound, wanted = (0.15, 0.80) if kind == "policy" else (0.20, 0.75)
        text = f"{kind} pairs: within {100 * bound:.0f} % or 1.5 times the spread"
        found.append(_aim(text, wanted, [c.error <= c.bound for c in of]))
        found.append(_aim(f"{kind} pairs: direction", 0.95, [c.right for c in of]))
    return found, medians


def _percent(a: float | None, b: float | None) -> str:
    """By how much `b` is off from `a`."""
    return f"{100 * (b / a - 1):+.1f} %" if a and b is not None else "no figure"


def _aims_table(tables: Mapping[str, tuple[list[Aim], dict[str, float]]]) -> list[str]:
    lines = [
        "| aim | wanted | " + " | ".join(c or "replay" for c in tables) + " | n |",
        "|---|---|" + "---|" * (len(tables) + 1),
    ]
    of = [{aim.text: aim for aim in t[0]} for t in tables.values()]
    for text, aim in of[0].items():
        cells = [f"{100 * t[text].found:.0f} %" if text in t else "" for t in of]
        lines.append(f"| {text} | {100 * aim.wanted:.0f} % | {' | '.join(cells)} | {aim.n} |")
    medians = ", ".join(f"{k} {100 * v:.1f} %" for k, v in tables[""][1].items())
    return [*lines, "", f"Median error of pairs that change: {medians}."]


def _group_table(results: Sequence[Result], found: Sequence[Case]) -> list[str]:
    """The main metric of identities by kernel and number of CPUs, and of pairs by kind and workload."""
    lines = ["| captures | n | main metric within its bound | median error |", "|---|---|---|---|"]
    kinds: dict[str, list[tuple[float, float]]] = {}
    for r, pair in zip(results, _main_bounds(results), strict=True):
        kinds.setdefault(r.key.split("/")[0], []).append(pair)
    for case in found:
        kinds.setdefault(f"pairs: {case.kind}, {case.workload}", []).append((case.error, case.bound))
    for kind, of in sorted(kinds.items()):
        within = sum(e <= bound for e, bound in of) / len(of)
        middle = statistics.median_high(e for e, _ in of)
        told = f"{100 * statistics.median(e for e, _ in of):.1f} %"
        told = told if middle < NO_FIGURE else "no figure for half or more"
        lines.append(f"| {kind} | {len(of)} | {100 * within:.0f} % | {told} |")
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


def _page(
    tables: Mapping[str, tuple[list[Aim], dict[str, float]]],
    results: Sequence[Result],
    found: Sequence[Case],
    left: str,
    floor: str,
) -> str:
    head = [
        "# Several CPUs, groups, current kernels: what was measured",
        "",
        f"Written by `python -m validation.several`. Medians of {REPEATS} replays with other jitter and tick phases. The",
        "last two leave out what the aims are about: where an aim holds there as well, it says nothing. With",
        "placement=trace each task is where it was recorded, so that migrations are given, and no other",
        "number of CPUs or affinity can be asked for. The spread is that of a capture's own repeats, and of",
        "captures recorded once the median of their workload's.",
        "",
    ]
    parts = [
        [*_aims_table(tables), "", floor],
        ["## By kind", "", *_group_table(results, found)],
        bistable.table({r.key: r.real for r in results}, {r.key: r.replays for r in results}),
        ["## Pairs that change", "", *_pairs_table(found)],
        ["## Captures", "", *_captures_table(results)],
    ]
    if CAUSES.is_file():
        parts.insert(2, [CAUSES.read_text().rstrip()])
    text = "\n\n".join("\n".join(part) for part in parts if part)
    return "\n".join(head) + "\n" + (left + "\n\n" if left else "") + text + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 0 also where aims are missed: the page says which."""
    parser = argparse.ArgumentParser(prog="python -m validation.several", description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked captures")
    parser.add_argument("--pairs", type=Path, required=True, help="the table of pairs")
    parser.add_argument("--only", default="", metavar="REGEX", help="only captures whose folder and name fit")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="every so many captures that N remain; 0 takes all"
    )
    parser.add_argument("--controls", action="store_true", help="replay the negative controls as well")
    parser.add_argument("-o", "--output", type=Path, help="page to write")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(argv)
    captures: dict[str, Any] = {
        k: c for k, c in lab.captures(given.folder).items() if re.search(given.only, k)
    }
    every = lab.captures(given.folder)
    pairs = lab.pairs(given.pairs)
    left = ""
    if 0 < given.sample < len(captures):
        left = f"A sample of {given.sample} of {len(captures)} captures."
        keys = list(captures)
        chosen = {keys[i * len(keys) // given.sample] for i in range(given.sample)}
        captures = {k: c for k, c in captures.items() if k in chosen}
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
    text = _page(tables, plain, cases(plain, pairs), left, _floor(every))
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
