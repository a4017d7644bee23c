"""How far the main metric of an identity replay moves when a constant of the reading is doubled or a rule left out; writes `docs/constants.md`.

`python -m validation.constants FOLDER` takes one capture of each workload below FOLDER. A constant that moves nothing could be
any number; one that moves much needs a better source.
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
)
HEAD = """# Constants of the reading

Reading a trace into programs takes some constants. Each has a source. The table says how far the main metric of an identity
replay moves, in percent, when the constant is doubled or the rule left out. `python -m validation.constants testdata/lab` writes this page.

"""


def _figure(trace: tk.Trace, capture: Capture, vary: str | None) -> float | None:
    exact = trace.metadata.get("os") != "linux"
    core = _core.Programs(trace.events, exact_timers=exact, system=trace.metadata.get("os"), vary=vary)
    asked = question(capture, trace, [p["name"] for p in registry.policies()])
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
        Which of them.

    Returns
    -------
    str
        A row for each constant: name, source, and a column of percent for each capture.
    """
    used = [found[name] for name in names]
    lines = ["| constant | source | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    traces = [(capture, tk.read(capture.file)) for capture in used]
    plain = [_figure(trace, capture, None) for capture, trace in traces]
    for constant, source in _core.constants():
        moved = []
        for (capture, trace), before in zip(traces, plain, strict=True):
            after = _figure(trace, capture, constant)
            moved.append("-" if not before or after is None else f"{100 * (after / before - 1):+.2f}")
        lines.append(f"| `{constant}` | {source} | " + " | ".join(moved) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path("docs/constants.md").write_text(HEAD + table(captures(Path(sys.argv[1]))))
