"""Hold what `tracekit infer` says of captures against what they were made with: tunables, and schedulers.

python -m validation.tunables testdata/lab testdata/lab2 -o docs/validation-infer.md
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tracekit as tk
from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.whatif.learn import infer_parameters
from tracekit.whatif.likelihood import Finding
from validation import families, lab

__all__ = ["Judged", "judge", "main"]

#: The aim for a point: off by no more than this factor.
FACTOR = 1.3
#: A parameter matters in a capture where at most this share of the values remains likely.
MATTERS = 1 / 3


@dataclass(frozen=True)
class Judged:
    """One changed parameter of one capture.

    Attributes
    ----------
    capture, parameter, true
        What was set.
    best
        The value that explains the trace best; empty where nothing is said.
    inside
        The true value is in the 90 % set.
    share
        Part of the values tried that is in the set.
    why
        Why nothing is said.
    """

    capture: str
    parameter: str
    true: str
    best: str = ""
    inside: bool = False
    share: float = 1.0
    why: str = ""

    @property
    def off(self) -> float | None:
        """Factor by which the best value is off; `None` for switches and where a time is 0."""
        a, b = _ns(self.true), _ns(self.best)
        return max(a / b, b / a) if a and b else None


def _ns(value: str) -> int | None:
    digits = value.removesuffix("ns")
    return int(digits) if digits.isdigit() and digits != value else None


def _inside(found: Finding, true: str) -> bool:
    ns = _ns(true)
    if ns is None:
        return true in found.likely
    tried = {label: _ns(label) or 0 for label in found.scores}
    return min(tried, key=lambda label: abs(math.log((tried[label] or 1) / (ns or 1)))) in found.likely


def judge(capture: lab.Capture) -> list[Judged]:
    """Infer the parameters of a capture, and hold those that were changed against the truth.

    Parameters
    ----------
    capture
        Any; one without a changed parameter gives nothing.
    """
    if not capture.env.get("setup", ""):
        return []
    trace = tk.read(capture.file)
    try:
        asked = lab.question(capture, trace, [p["name"] for p in registry.policies()])
    except (TracekitError, ValueError):
        return []
    set_to = dict(x.split("=", 1) for x in asked.policy.partition(":")[2].split(",") if "=" in x)
    learned = {"base_slice", "min_granularity", "wakeup_granularity"}
    learned |= {"wakeup_preemption", "run_to_parity", "place_lag", "gentle_fair_sleepers", "start_debit"}
    changed = {k: v for k, v in set_to.items() if k in learned}
    if not changed:
        return []
    where = functools.partial(Judged, f"{capture.file.parent.parent.name}/{capture.key}")
    try:
        said = infer_parameters(trace)
    except TracekitError as error:
        return [where(p, v, why=str(error)) for p, v in changed.items()]
    found = {f.name: f for f in said.findings}
    rows = []
    for parameter, value in changed.items():
        f = found.get(parameter)
        if f is None:
            rows.append(where(parameter, value, why=said.refused or "not looked at for this policy"))
        else:
            share = len(f.likely) / len(f.scores)
            rows.append(where(parameter, value, f.best, _inside(f, value), share))
    return rows


def _page(rows: Sequence[Judged]) -> str:
    judged = [r for r in rows if r.best]
    inside = sum(r.inside for r in judged)
    matters = [r for r in judged if r.off is not None and r.share <= MATTERS]
    close = sum(r.off is not None and r.off <= FACTOR for r in matters)
    lines = [
        "# Tunables learned from traces: what was measured",
        "",
        "Written by `python -m validation.tunables`: what `tracekit infer` says of captures of which a tunable or",
        "a feature had been changed, with nothing but the trace and the kernel's version.",
        "",
        "| aim | wanted | found | n |",
        "|---|---|---|---|",
        f"| true value inside the 90 % set | 85 to 95 % | {100 * inside / max(len(judged), 1):.0f} % | {len(judged)} |",
        f"| times within a factor of {FACTOR}, where they matter | all | "
        f"{100 * close / max(len(matters), 1):.0f} % | {len(matters)} |",
        "",
        "A true value is inside where the value closest to it, of those that are tried, is in the set. A time",
        f"matters where at most {100 * MATTERS:.0f} % of the values are likely.",
        "",
        "| capture | parameter | true | best | set, of the values tried | |",
        "|---|---|---|---|---|---|",
    ]
    for r in sorted(rows, key=lambda r: (r.parameter, r.capture)):
        verdict = "" if r.inside else r.why or "missed"
        share = f"{100 * r.share:.0f} %" if r.best else ""
        lines.append(f"| {r.capture} | {r.parameter} | {r.true} | {r.best} | {share} | {verdict} |")
    return "\n".join(lines) + "\n\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 0 also where an aim is missed: the page says which."""
    parser = argparse.ArgumentParser(prog="python -m validation.tunables", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+", help="unpacked captures")
    parser.add_argument("-o", "--output", type=Path, help="page to write")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(argv)
    captures = [c for folder in given.folder for c in lab.captures(folder).values()]
    # Fresh interpreters: polars' threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        rows = list(itertools.chain.from_iterable(pool.imap(judge, captures)))
        judged = [t for t in pool.imap(families.judge, captures) if t is not None]
    text = _page(rows) + families.section(judged)
    if given.output is None:
        print(text)
    else:
        given.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
