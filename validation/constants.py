"""How far the main metric of an identity replay moves with a constant of the reading.

The constant is doubled, or a rule is left out. Writes `docs/constants.md`.

`python -m validation.constants FOLDER` takes one capture of each workload below FOLDER. A constant
that moves nothing could be any number; one that moves much needs a better source.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tracekit as tk
from tracekit import _core, registry
from validation.lab import METRIC_OF, Capture, captures, question
from validation.metrics import Refused, measure

CAPTURES = (
    "6.1/slice-default",
    "6.1/nicefork-fork-hog19",
    "6.1/forkwait-100",
    "6.1/mixed-default",
    "6.1/yield-other",
    "6.12-smp2/forkwait-100",
    "6.1/slice-nowakeuppreempt -> 6.1/slice-default",
)
HEAD = """# Constants of the reading

Reading a trace into programs takes some constants. Each has a source. The table says how far the
main metric of a replay moves, in percent, when the constant is doubled or the rule left out: of
the identity replay, or of capture A replayed as capture B was run (A -> B).
`python -m validation.constants testdata/lab` writes this page.

"""


def _figure(trace: tk.Trace, capture: Capture, target: Capture, vary: str | None) -> float | None:
    exact = trace.metadata.get("os") != "linux"
    core = _core.Programs(trace.events, exact_timers=exact, system=trace.metadata.get("os"), vary=vary)
    asked = question(target, trace, [p["name"] for p in registry.policies()])
    sets = [(list(tids), list(settings)) for tids, settings in asked.sets]
    metadata, tables = core.run(asked.policy, rt=asked.rt, sets=sets)
    try:
        return measure(
            METRIC_OF[capture.workload], tk.Replay(tables, metadata, "replay"), capture.arguments
        ).value
    except Refused:
        return None


def table(found: dict[str, Capture], names: tuple[str, ...] = CAPTURES) -> str:
    """Measure every constant on the captures, as Markdown.

    Parameters
    ----------
    found
        Captures by key, as `validation.lab.captures` finds them.
    names
        Which of them; `A -> B` is A replayed as B was run.

    Returns
    -------
    str
        A row for each constant: name, source, and a column of percent for each capture.
    """
    lines = ["| constant | source | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    cases = []
    for name in names:
        first, _, target = name.partition(" -> ")
        cases.append((tk.read(found[first].file), found[first], found[target or first]))
    plain = [_figure(*case, None) for case in cases]
    for constant, source in _core.constants():
        moved = []
        for case, before in zip(cases, plain, strict=True):
            after = _figure(*case, constant)
            moved.append("-" if not before or after is None else f"{100 * (after / before - 1):+.2f}")
        lines.append(f"| `{constant}` | {source} | " + " | ".join(moved) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path("docs/constants.md").write_text(HEAD + table(captures(Path(sys.argv[1]))))
