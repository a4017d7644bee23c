"""Tested blame against real captures: what a task cost others, and what they gained without it.

    python -m validation.blame testdata/lab

Each pair is a capture of the lab with a cause (hogs, wakers, batch jobs), and the same workload
without it. The first is replayed as if these tasks had never run, as `tracekit why --what-if` does,
and the gain is held against the real one: of the workload's main figure, and of the mean response of
each group of tasks (the names without their digits).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

import tracekit as tk
from tracekit import registry
from tracekit.analysis import response
from tracekit.explain.changes import Culprit, replays
from tracekit.trace import Trace
from tracekit.whatif.kernels import infer
from tracekit.whatif.run import Programs
from validation.lab import METRIC_OF, Capture, captures
from validation.metrics import Refused, measure

__all__ = ["CAUSES", "main"]

#: Captures with a cause, those without it, and the names of the tasks that are the cause.
CAUSES = (
    ("callpipe-default-batch", "callpipe-default-nobatch", r"^batch\d"),
    ("callpipe-fifo-batch", "callpipe-fifo-nobatch", r"^batch\d"),
    ("mixed-default", "mixed-nohogs", r"^hog\d"),
    ("slice-default", "slice-nowakers", r"^waker\d"),
    *(
        (f"nicefork-{how}-{hog}", f"nicefork-{how}-nohog", r"^hog\d")
        for how in ("fork", "forkexec", "vforkexec")
        for hog in ("hog0", "hog19")
    ),
)
#: Of pairs whose figure changes by more than this, the gain should be within `WITHIN` of the real one.
CHANGES, WITHIN = 0.10, 0.15


#: Fewer responses of a group say nothing.
FEW = 20


def figures(run: Trace, metric: str, capture: Capture, names: str) -> dict[str, float]:
    """The main figure of a workload, and the mean response of each group that is not the cause."""
    rows = response.samples(run.slices, run.states, run.end_ns).filter(pl.col("status") == "complete")
    group = pl.col("comm").cast(pl.String).str.replace(r"\d+$", "")
    rows = rows.filter(~pl.col("comm").cast(pl.String).str.contains(names))
    means = rows.group_by(group).agg(pl.col("response_ns").mean().alias("mean"), pl.len())
    found = {
        f"  response of {comm}, us": mean / 1e3
        for comm, mean, n in means.sort("comm").iter_rows()
        if n >= FEW
    }
    return {metric: measure(metric, run, capture.arguments).value, **found}


def gains(a: Capture, b: Capture, names: str) -> list[dict[str, float]]:
    """Figures as recorded with the cause and without it, of the identity replay, and predicted.

    Raises
    ------
    Refused
        When the figure cannot be had, or nothing is called so.
    """
    metric = METRIC_OF[a.workload]
    trace = tk.read(a.file)
    programs = Programs(trace)
    policy, _ = infer(trace.metadata, [p["name"] for p in registry.policies()])
    tids = trace.tasks.filter(pl.col("comm").cast(pl.String).str.contains(names))["tid"].to_list()
    if not tids:
        raise Refused(f"no task is called {names}")
    culprit = Culprit(names, sorted(set(tids)), trace.tasks["utid"].head(0))
    why = trace.why(comm="*")
    perturbations = programs.perturbations(1)
    less = replays(trace, programs, why, culprit, "absent", policy, perturbations)[0]
    runs = (trace, tk.read(b.file), programs.run(policy, perturbation=perturbations[0]), less)
    return [figures(run, metric, a, names) for run in runs]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lab", type=Path)
    parser.add_argument("--only", default="", help="regular expression for captures with a cause")
    given = parser.parse_args(arguments)
    known = captures(given.lab)
    print(
        f"{'with the cause':<36} {'recorded':>10} {'without':>10} {'identity':>10} {'predicted':>10} {'gain off':>9}"
    )
    counts = {"main figures": [0, 0], "responses of groups": [0, 0]}
    for key, a in sorted(known.items()):
        folder, name = key.rsplit("/", 1)
        for cause, lack, names in CAUSES:
            if name != cause or f"{folder}/{lack}" not in known or not re.search(given.only, key):
                continue
            try:
                found = gains(a, known[f"{folder}/{lack}"], names)
            except (Refused, tk.TracekitError) as error:
                print(f"{key:<36} {error}", flush=True)
                continue
            print(key)
            for number, what in enumerate(found[0]):
                if any(what not in one for one in found):
                    continue
                with_it, without, identity, predicted = (one[what] for one in found)
                real, said = with_it - without, identity - predicted
                note = "same"
                if abs(real) / with_it > CHANGES:
                    off = abs(said - real) / abs(real)
                    note = f"{off:.1%}"
                    count = counts["responses of groups" if number else "main figures"]
                    count[0] += off <= WITHIN
                    count[1] += 1
                print(
                    f"{what:<36} {with_it:>10.4g} {without:>10.4g} {identity:>10.4g} {predicted:>10.4g} {note:>9}",
                    flush=True,
                )
    for what, (near, changing) in counts.items():
        print(f"{what}: gain within {WITHIN:.0%} in {near} of {changing} that change by over {CHANGES:.0%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
