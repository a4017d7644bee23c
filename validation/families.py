"""Hold what a trace shows of its scheduler against the kernel that made it.

Each capture is printed as `perf script` prints it, without the name of its kernel; see
`tracekit.whatif.families`. `python -m validation.tunables` writes this into its page.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.whatif.families import FAMILIES, allowed_by_records, likely_families
from tracekit.whatif.likelihood import Finding
from validation import lab

__all__ = ["Shown", "judge", "section"]

#: The first kernel with EEVDF.
EEVDF = (6, 6)


@dataclass(frozen=True)
class Shown:
    """What one capture shows.

    Attributes
    ----------
    true, changed
        Its scheduler, and whether tunables or features were set.
    blind
        What its slices and waits show, of all families; None where they show nothing.
    allowed
        The families that its records allow.
    shown
        As `blind`, but of these.
    """

    true: str
    changed: bool
    blind: Finding | None
    allowed: tuple[str, ...]
    shown: Finding | None

    @property
    def taken(self) -> str:
        """The family that a replay takes; empty where it has to guess."""
        if self.shown is not None:
            return self.shown.best
        return "" if len(self.allowed) == len(FAMILIES) else self.allowed[0]


def _scheduler(family: str) -> str:
    return family.partition(" ")[0]


def judge(capture: lab.Capture) -> Shown | None:
    """See what a capture shows without the name of its kernel; None where it names none or is unread."""
    match = re.match(r"(\d+)\.(\d+)", capture.env.get("kernel", ""))
    if match is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "printed.txt"
        try:
            recorded = tk.read(capture.file)
            tk.generate(recorded, text, "perf-script")
            printed = tk.read(text)
            # What `perf script` prints holds `sched_stat_runtime`, which what is written here does not,
            # and no `success` since Linux 4.3.
            allowed, _ = allowed_by_records(recorded, but=["success"])
            blind, shown = likely_families(printed, FAMILIES), likely_families(printed, allowed)
        except TracekitError:
            return None
    true = "eevdf" if (int(match[1]), int(match[2])) >= EEVDF else "cfs"
    return Shown(true, bool(capture.env.get("setup", "")), blind, tuple(allowed), shown)


def _row(name: str, rows: Sequence[Shown]) -> str:
    said = [(r.true, r.blind) for r in rows if r.blind is not None]
    right = sum(_scheduler(f.best) == true for true, f in said)
    both = sum(len(set(map(_scheduler, f.likely))) > 1 for _, f in said)
    wrong = sum(true not in map(_scheduler, f.likely) for true, f in said)
    share = f" ({100 * right / len(said):.0f} %)" if said else ""
    return f"| {name} | {len(rows)} | {len(said)} | {right}{share} | {both} | {wrong} |"


def section(judged: Sequence[Shown]) -> str:
    """Write the part of the page, in Markdown."""
    with_runtime = [t for t in judged if len(t.allowed) < len(FAMILIES)]
    taken = [t for t in judged if t.taken]
    right = sum(_scheduler(t.taken) == t.true for t in taken)
    lines = [
        "## Which scheduler made a trace that does not name its kernel",
        "",
        "Every capture was printed as `perf script` prints it, and read without the name of its kernel. Its",
        "scheduler, CFS (up to Linux 6.5) or EEVDF, is taken to be that of the candidate that explains its",
        "slices and waits best, with each task where it was recorded. Nothing is said where fewer than 50",
        "slices ended by preemption, or where the best candidate leaves more than 30 % unexplained.",
        "",
        "| captures | n | something is said | best is right | 90 % set has both | it has only the other |",
        "|---|---|---|---|---|---|",
        _row("all", judged),
        _row("features and tunables as the kernel comes", [t for t in judged if not t.changed]),
        _row("some of them set", [t for t in judged if t.changed]),
        _row("made by CFS", [t for t in judged if t.true == "cfs"]),
        _row("made by EEVDF", [t for t in judged if t.true == "eevdf"]),
        "",
        f"In {len(with_runtime)} of the captures records of `sched_stat_runtime` stand, as `perf sched record` makes",
        "them. Up to Linux 6.7 they hold the task's vruntime, so that they leave either CFS and EEVDF of 6.6, or",
        f"only EEVDF. With both signs the replays of {len(taken)} of the {len(judged)} captures are of a scheduler",
        f"that the trace shows, in {right} of them the right one; {len(judged) - len(taken)} have to guess.",
        "Signs of older kernels (`tracekit.whatif.families`) are in none of these texts: the header of a text",
        "up to 5.14, the field success of wakeups up to 5.10, the state of kernel workers up to 4.13.",
    ]
    return "\n".join(lines) + "\n"
