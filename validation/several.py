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
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

import tracekit as tk
from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.trace import Trace
from tracekit.whatif.calibration import calibrate
from tracekit.whatif.switch_costs import Change
from validation import lab, predict, repeats, several_page
from validation.metrics import Refused, measure
from validation.several_aims import REPLAYS, Result, aims, cases

__all__ = ["job", "repeated"]

#: How a column differs from the replay: tasks where they were recorded, a parameter of the policy,
#: or the groups left out.
CONTROLS = ("", "placement=trace", "balance=off", "no groups")
#: The first of them.
PLACED = "placement=trace"


def _migrations(trace: Trace) -> int:
    rows = trace.slices.sort("utid", "ts_ns")
    return rows.filter(pl.col("cpu") != pl.col("cpu").shift(1).over("utid")).height


def repeated(family: Sequence[lab.Capture]) -> list[Result]:
    """Take each repeat of a capture for the prediction of each other one.

    Parameters
    ----------
    family
        Repeats of one capture.

    Returns
    -------
    list of Result
        One for each ordered pair. Tasks are matched by their last names.
    """
    traces = [(c, tk.read(c.file)) for c in family]
    found = []
    for (capture, a), (other, b) in itertools.permutations(traces, 2):
        rows = {r["metric"]: r for r in calibrate(a, b).to_dicts()}
        errors: dict[str, tuple[float | None, float | None]] = {
            k: (rows[k]["recorded"], rows[k]["replayed"]) for k in ("switches", "run_delay_p95")
        }
        errors["cpu_share"] = (0.0, repeats.share_gap(a.slices, b.slices))
        errors["migrations"] = (float(_migrations(a)), float(_migrations(b)))
        real = _recorded(a, capture), _recorded(b, other)
        found.append(
            Result(capture.key, capture.workload, capture.kernel, capture.cpus, *real, errors, targets={})
        )
    return found


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


def _recorded(trace: Trace, capture: lab.Capture) -> float | None:
    """The main metric of a recording.

    Which request a thread of a pool takes is in no trace, so that it could only be estimated: what the
    workload wrote down is taken there.
    """
    logged = capture.logged_us() if capture.metric == "mean_request_us" else None
    return _metric(trace, capture) if logged is None else logged


def _middle(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _replays(programs: tk.Programs, asked: lab.Question, costs: Change | None = None) -> list[Trace]:
    """The replay as it is, and with small changes of the machine."""
    perturbations = programs.perturbations()[:REPLAYS]
    return [predict.run(programs, asked, perturbation, costs) for perturbation in perturbations]


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
    return Result(*about, _recorded(trace, capture), _middle(each), errors, found, replays=each)


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
    families = repeats.families([key for key, capture in every.items() if capture.cpus > 1])
    alike = [[every[key] for key in keys] for keys in families.values() if len(keys) > 1]
    again = [r for family in alike for r in repeated(family)]
    text = several_page.page(tables, plain, cases(plain, pairs), left, again)
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
