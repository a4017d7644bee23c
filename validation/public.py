"""Public captures of other people's machines, replayed as themselves.

    python -m validation.public testdata/corpus [-o docs/validation-public.md]

Every capture of several CPUs with 50 preemptions or more (what `tolerances.toml` asks of that
metric) is replayed under the policy that it was recorded under: as `tracekit calibrate` does it by
default, and with the policy's placement, which is left where the trace shows that the machine
places woken tasks otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tracekit as tk
from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.whatif.check import as_captured
from tracekit.whatif.kernels import infer

__all__ = ["measured", "page"]

#: Fewest preemptions; `tolerances.toml`, `min_n` of the metric.
FEWEST = 50
#: How far off the number of preemptions may be.
ASKED = 0.25
#: Folders of fuzzed files and of files made from others.
LEFT_OUT = ("perf.data-fuzz", "derived-from-real")

HEAD = f"""# Public captures of other machines

Written by `python -m validation.public testdata/corpus`. Captures of phones, boards and servers that
other people published, of several CPUs and with {FEWEST} preemptions or more, each replayed as
itself: as `tracekit calibrate` does by default, and with `--placement model`. Where most preemptions come
while another CPU idles and the policy's placement does not make them, tasks are where they were
recorded: what decides there (placement that saves energy, caches that nothing describes) is not
modelled. These captures hold no second run under another policy, so that no prediction is judged.
"""


def measured(path: Path) -> dict[str, Any] | None:
    """Replay one capture as itself.

    Parameters
    ----------
    path
        A capture.

    Returns
    -------
    dict or None
        `cpus`, `policy`, `recorded` (preemptions), `placement` and, by ``auto`` and ``model``, preemptions and
        metrics that pass of those that were measured; None where there is too little in it.

    Raises
    ------
    TracekitError
        It cannot be read or replayed.
    """
    trace = tk.read(path)
    if trace.cpus.height < 2:
        return None
    policy, _ = infer(trace.metadata, [p["name"] for p in registry.policies()])
    row: dict[str, Any] = {"cpus": trace.cpus.height, "policy": policy}
    for placement in ("auto", "model"):
        replay, found = as_captured(tk.Programs(trace, placement=placement), policy)
        rows = {r["metric"]: r for r in found.to_dicts()}
        if placement == "auto":
            row["recorded"] = rows["preemptions"]["recorded"] or 0
            row["placement"] = replay.metadata.get("replay.placement", "model")
            if row["recorded"] < FEWEST:
                return None
        results = [r["result"] for r in rows.values()]
        judged = len(results) - results.count("not measured")
        row[placement] = (rows["preemptions"]["replayed"] or 0, results.count("pass"), judged)
    return row


def page(found: dict[str, dict[str, Any]]) -> str:
    """Write the page.

    Parameters
    ----------
    found
        Rows of `measured`, by the capture's name.

    Returns
    -------
    str
        Markdown.
    """
    rows = []
    within = 0
    for name, row in sorted(found.items()):
        off = row["auto"][0] / row["recorded"] - 1
        within += abs(off) <= ASKED
        counts = [f"{row[p][0]:,.0f}, {row[p][1]} of {row[p][2]}" for p in ("auto", "model")]
        rows.append(
            [name, str(row["cpus"]), f"{row['recorded']:,.0f}", *counts, row["placement"], f"{off:+.0%}"]
        )
    columns = [
        "capture",
        "CPUs",
        "preemptions",
        "replayed, metrics that pass",
        "with the policy's placement",
        "placement",
        "off",
    ]
    said = f"{within} of {len(rows)} within {ASKED:.0%} of the recorded number of preemptions."
    lines = [columns, ["---"] * len(columns), *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{HEAD}\n{body}\n\n{said}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Replay all captures in a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(argv)
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(p for p in given.folder.rglob("*") if p.is_file()):
        if any(part in LEFT_OUT for part in path.parts):
            continue
        try:
            row = measured(path)
        except TracekitError as error:
            print(f"{path.name}: {error}".partition("\n")[0], file=sys.stderr)
            continue
        if row is not None:
            found[path.name] = row
            print(path.name, row, file=sys.stderr)
    text = page(found)
    if given.output:
        given.output.write_text(text)
    else:
        print(text)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
