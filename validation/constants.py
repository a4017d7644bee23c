"""How far the main metric of a replay moves with a constant of the reading.

The constant is doubled, or a rule is left out. Writes `docs/constants.md`.

`python -m validation.constants LAB LAB2` takes one capture of each workload below LAB, and some of
several CPUs below LAB2. A constant that moves nothing could be any number; one that moves much
needs a better source.
"""

from __future__ import annotations

import statistics
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
#: Captures on several CPUs, for what is inferred there.
SEVERAL = (
    "6.1-2cpu/server-hogsnice19",
    "6.12-2cpu/server-default",
    "6.12-4cpu/server-default",
    "5.10/callpipe-default-batch",
    "6.12-2cpu/mixed-default",
    "7.3-2cpu/pinned-default",
    "6.12-2cpu/server-default -> 6.1-2cpu/server-default",
)
#: Beginnings of the names of constants that only captures on several CPUs or with unobserved messages meet.
INFERRED = ("speed_", "pool_", "unexplained")
#: Replays of a capture on several CPUs, with other phases of the tick and another jitter each.
RUNS = 7
#: Row that says how far the median moves by chance: other phases and jitter, no constant.
CHANCE = "(chance)"
HEAD = """# Constants of the reading

Reading a trace into programs takes some constants. Each has a source. The table says how far the
main metric of a replay moves, in percent, when the constant is doubled or the rule left out: of
the identity replay, or of capture A replayed as capture B was run (A -> B).
`python -m validation.constants testdata/lab testdata/lab2` writes this page.

"""
SECOND = """
## Speeds of CPUs, and messages

On several CPUs a replay depends on chance: each value is the median of {runs} replays with other
phases of the tick and another jitter. The row `{chance}` says how far that median moves with {runs}
others. What moves a metric by no more shows nothing.

"""

#: What was measured of rules before they were removed; by hand, since the code is gone.
GONE = """
## Rules that were removed

227 captures of the lab (99 of one CPU), no two of them alike, were each reconstructed and replayed as
themselves with and without each rule. *Changed* are captures whose programs or costs differ without it;
the main metric's error is called better or worse without it where it moves by more than a point. A rule
without which no more captures are worse than better is gone.

| rule | changed | better, same, worse without | mean error | |
|---|---|---|---|---|
| switches take longer to a lower class, and where the timer of the sleep is the next | 18 | 5, 11, 2 | -0.3 | `slice` only |
| a task that slept although a reschedule was asked for was in the kernel | 1 | 0, 1, 0 | 0.0 | |
| a task with few slices goes with those that the same task reaped | 12 | 2, 8, 2 | +0.1 | several CPUs |
| a task that ran in its last burst before the stop ended by itself | 17 | 1, 15, 1 | -0.6 | |
| a wait in the kernel before the exit is part of it; nothing is forked while a run is stopped | 0 | | | |
| speeds of CPUs: wider intervals for contradictions and for many CPUs, a second look at messages | 0 | | | |
| wakeups of a pool that are answers; a waker that has not sent yet; idle first sleeps | 0 | | | |

The first of them once more, over the 48 captures of `slice` and 95 pairs among them, with nine
repetitions each: 9 identity replays are better without it and 10 worse, within 5 % are 46 without it and
43 with it; 18 pairs are better without it and 14 worse. `in_time` was measured in the same way and stays:
without it 7 captures are worse and one is better. Without both, 6.1/slice-wakerfifo predicts
6.1/slice-default by 31 % too low, in place of 4 % with both and 6 % with `in_time` alone.

One more, over 347 captures of the lab (42 servers and 21 calls through pipes among them) and 14
fresh ones of this machine: the one length that agrees with all timer sleeps of a task, where most
of them ended with an interrupt for something else. Without it the programs of one differ
(6.12/slice-noplacelag), and its main metric, switches and run delays as itself are the same.

One more, in 12 captures of several CPUs and 10 of one, as themselves and as up to two targets of
each: what is left of a burst that the end of the trace cuts off was taken from the median of the
task's longer bursts; now it is as much again as it had taken. The programs of all 22 differ, and no
main metric of a capture or a pair moves by a point.

## What the inference of messages is worth

Parts of what infers messages that no wakeup shows (`replay/src/infer/`) were left out by hand, one by
one, and the aims measured again: main metrics of identity replays of several CPUs (156), policy pairs
there that change (68) and kernel pairs (65), as in [several CPUs](validation-several.md), and policy
pairs of `callpipe` on one CPU (42) within 15 %, as in [one CPU](validation.md). All of them stay.

| left out | identity | policy pairs | kernel pairs | callpipe |
|---|---|---|---|---|
| nothing | 85 % | 66 % | 86 % | 98 % |
| all of it | 75 % | 56 % | 80 % | 48 % |
| the search; tasks that take turns and pools are left | 76 % | 62 % | 82 % | 14 % |
| in the search: several guesses side by side | 79 % | 60 % | 85 % | 71 % |
| in the search: stations that never seem to send | 85 % | 66 % | 86 % | 79 % |
| in the search: a server alone that reads all from one queue | 85 % | 66 % | 86 % | 83 % |
| pools | 77 % | 59 % | 78 % | 98 % |

The search serves servers and callers of the lab. In 260 pairs of fresh recordings it changes no row of
twelve of the thirteen workloads of every day; of the thirteenth it took waits for a lock for messages,
and such tasks are asked for a lock first now.
"""


def _metric(
    trace: tk.Trace, capture: Capture, target: Capture, vary: str | None, chances: range
) -> float | None:
    exact = trace.metadata.get("os") != "linux"
    system = trace.metadata.get("os")
    core = _core.Programs(_core.Reading(trace.events, exact_timers=exact, system=system, vary=vary))
    asked = question(target, trace, [p["name"] for p in registry.policies()])
    sets = [(list(tids), list(settings)) for tids, settings in asked.sets]
    values = []
    for chance in chances:
        # The first is the replay as it is; a tick of 4 ms is divided by the golden ratio.
        other = {"phase_ns": int(chance * 0.618 * 4e6) % 4_000_000, "jitter_ns": 1000, "seed": chance}
        metadata, tables = core.run(asked.policy, rt=asked.rt, sets=sets, **(other if chance else {}))[:2]
        replay = tk.Replay(tables, metadata, "replay")
        try:
            values.append(measure(METRIC_OF[capture.workload], replay, capture.arguments).value)
        except Refused:
            return None
    return statistics.median(values)


def table(
    found: dict[str, Capture],
    names: tuple[str, ...] = CAPTURES,
    *,
    inferred: bool = False,
    runs: int = 1,
) -> str:
    """Measure constants on the captures, as Markdown.

    Parameters
    ----------
    found
        Captures by key, as `validation.lab.captures` finds them.
    names
        Which of them; `A -> B` is A replayed as B was run.
    inferred
        The constants of `INFERRED` rather than the others.
    runs
        Replays of which the median counts; with several, the first row is what chance does.

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
    plain = [_metric(*case, None, range(runs)) for case in cases]

    def row(name: str, source: str, vary: str | None, chances: range) -> None:
        moved = []
        for case, before in zip(cases, plain, strict=True):
            after = _metric(*case, vary, chances)
            moved.append("-" if not before or after is None else f"{100 * (after / before - 1):+.2f}")
        lines.append(f"| `{name}` | {source} | " + " | ".join(moved) + " |")

    if runs > 1:
        row(CHANCE, "no constant", None, range(runs, 2 * runs))
    for constant, source in _core.constants():
        if constant.startswith(INFERRED) == inferred:
            row(constant, source, constant, range(runs))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    one, several = (captures(Path(folder)) for folder in sys.argv[1:])
    page = HEAD + table(one) + SECOND.format(runs=RUNS, chance=CHANCE)
    Path("docs/constants.md").write_text(page + table(several, SEVERAL, inferred=True, runs=RUNS) + GONE)
