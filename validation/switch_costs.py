"""Measure what switches take in the lab's kernels: ``python -m validation.switch_costs FOLDER``.

Writes what ships with the package, and beside it what is known without each workload: a prediction
of a workload uses what the others show.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.whatif.switch_costs import SWITCH_KINDS, KernelCosts, measure, read, shipped
from validation import lab

__all__ = ["LEFT_OUT", "fit", "left_out", "main"]

#: What ships with the package, and what is known without each workload.
SHIPPED = Path(tk.__file__).parent / "whatif" / "switch_costs.toml"
LEFT_OUT = Path(__file__).parent / "switch_costs.toml"
#: Switches of a kind that a capture needs to count.
ENOUGH = 20

#: Medians of one capture: entries of `SWITCH_KINDS`, and "clock_offset".
Medians = Mapping[str, float]


def _medians(capture: lab.Capture) -> dict[str, float]:
    trace = tk.read(capture.file)
    found = {w: statistics.median(ns) for w, ns in measure(trace.events).items() if len(ns) >= ENOUGH}
    rows = tk.Programs(trace).inferred.filter(name="run-queue clock to tracepoint offset").row(0, named=True)
    if (rows["n"] or 0) >= ENOUGH:
        found["clock_offset"] = rows["value"]
    return found


def fit(measured: Collection[tuple[str, str, Medians]], without: str | None = None) -> dict[str, KernelCosts]:
    """Join the medians of captures: median of a workload's captures, and of the workloads.

    Parameters
    ----------
    measured
        Kernel, workload and medians of each capture.
    without
        A workload to leave out.

    Returns
    -------
    dict
        By kernel.
    """
    by_kind: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kernel, workload, medians in measured:
        if workload != without:
            for name, ns in medians.items():
                by_kind[kernel, name][workload].append(ns)
    joint = {
        kind: round(statistics.median(statistics.median(values) for values in workloads.values()))
        for kind, workloads in by_kind.items()
    }
    kernels = sorted(
        {k for k, name in joint if name == "clock_offset"}, key=lambda k: tuple(map(int, k.split(".")))
    )
    return {
        kernel: KernelCosts(
            joint[kernel, "clock_offset"], {w: joint[kernel, w] for w in SWITCH_KINDS if (kernel, w) in joint}
        )
        for kernel in kernels
    }


def left_out(workload: str) -> dict[str, KernelCosts]:
    """Give what is known without a workload.

    Parameters
    ----------
    workload
        Its name.

    Returns
    -------
    dict
        By kernel; what ships where the workload took no part.
    """
    _, found, rest = LEFT_OUT.read_text().partition(f"# without {workload}\n")
    return read(rest.partition("# without ")[0]) if found else shipped()


def _text(known: Mapping[str, KernelCosts]) -> str:
    lines = []
    for kernel, entry in known.items():
        lines += [
            f'[kernel."{kernel}"]',
            f"clock_offset = {entry.clock_offset}",
            "",
            f'[kernel."{kernel}".switch]',
        ]
        lines += [f'"{kind}" = {ns}' for kind, ns in entry.switch.items()]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m validation.switch_costs", description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked captures")
    given = parser.parse_args()
    measured = []
    for capture in lab.captures(given.folder).values():
        # perf's own records make its switches longer.
        if not capture.exact or capture.file.suffix != ".dat":
            continue
        try:
            measured.append((capture.kernel, capture.workload, _medians(capture)))
        except TracekitError:
            continue
    known = fit(measured)
    SHIPPED.write_text(
        "# What switches take by kernel and scheduling class, ns: written by `make validate` from the lab's\n"
        "# one-CPU guests, in which an instruction takes 2 ns and all events of the scheduler are recorded.\n"
        "# From the account of the task that leaves to the record of the switch; see docs/guide/replay.md.\n"
        "\n" + _text(known)
    )
    parts = [
        "# The same as tracekit/whatif/switch_costs.toml without each workload, one after the other: a\n"
        "# prediction of a workload uses what the others show. Written by `make validate`.\n"
    ]
    for workload in sorted({w for _, w, _ in measured}):
        parts.append(f"# without {workload}\n{_text(fit(measured, workload))}")
    LEFT_OUT.write_text("\n".join(parts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
