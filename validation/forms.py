"""What a poorer recording of the same run takes from its identity replay.

    python -m validation.forms testdata/lab [--sample 40] [--seed 1]

Each capture is replayed as itself from several recordings of the same run: the whole one; one of
switches, wakeups, forks and exits; one of switches and wakeups; one without interrupt flags, as in
text; and the texts that the lab keeps beside some captures. A main figure within 2 % of that from
the whole recording counts as the same. Where it is not, the replay must say what the recording
lacks. The status is 1 where one does not.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import polars as pl

import tracekit as tk
from tracekit import _core, registry
from tracekit._frames import to_frame
from tracekit.errors import TracekitError
from tracekit.whatif.basis import unrecorded
from tracekit.whatif.contexts import recognise
from tracekit.whatif.intervals import PLAIN
from validation.lab import Capture, captures, question
from validation.predict import figure, run

__all__ = ["KINDS", "compared", "lacks", "main", "reduced"]

#: Kinds of records that a poorer recording has.
KINDS = {
    "switches, wakeups, forks and exits": ("switch", "waking", "fork", "exec", "exit"),
    "switches and wakeups": ("switch", "waking"),
    "switches and ends of wakeups": ("switch", "wakeup", "wakeup_new"),
}
FLAGLESS = "without interrupt flags"
#: Texts of the same recording, by the end of the file's name.
TEXTS = {".ftrace.txt": "the kernel's own text", ".perf-script.txt": "text of perf script"}
#: From this difference on a figure counts as another one.
SAME = 0.02
#: What a poorer recording can give: the same figure; none, as the whole recording; none, with the reason;
#: another figure, with what the recording lacks; another figure, without a word.
RESULTS = ("same", "no figure", "refused", "reported", "silent")


def reduced(trace: tk.Trace, name: str) -> tk.Trace:
    """The trace as a poorer recording of the same run would show it.

    Parameters
    ----------
    trace
        The whole recording.
    name
        One of `KINDS`, or `FLAGLESS`.
    """
    events = trace.events
    if name == FLAGLESS:
        events = events.with_columns(pl.lit(None, dtype=events["irq_flags"].dtype).alias("irq_flags"))
    else:
        events = events.filter(pl.col("kind").cast(pl.String).is_in(KINDS[name]))
    tables = {n: to_frame(t) for n, t in _core.derive(events, trace.metadata).items()}
    return tk.Trace(tables | {"events": events}, trace.metadata, name)


def lacks(trace: tk.Trace, replay: tk.Trace) -> str:
    """What the replay says that its recording lacks; empty where it says nothing."""
    return "; ".join(filter(None, [*unrecorded(replay), recognise(trace).sentence()]))


def _texts(capture: Capture) -> dict[str, Path]:
    """Texts of the same recording that lie beside it, by what they are."""
    stem = capture.file.name.partition(".")[0]
    files = {name: capture.file.with_name(stem + end) for end, name in TEXTS.items()}
    return {name: file for name, file in files.items() if file != capture.file and file.exists()}


def _forms(capture: Capture, whole: tk.Trace) -> Iterator[tuple[str, tk.Trace]]:
    for name in (*KINDS, FLAGLESS):
        yield name, reduced(whole, name)
    for name, file in _texts(capture).items():
        yield name, tk.read(file)


def _figure(capture: Capture, trace: tk.Trace) -> tuple[float | None, str, str]:
    """Main figure of the identity replay, why there is none, and what the recording is said to lack."""
    asked = question(capture, trace, [p["name"] for p in registry.policies()])
    try:
        replay = run(tk.Programs(trace), asked, PLAIN)
    except TracekitError as error:
        return None, str(error), ""
    found = figure(capture.metric, replay, capture)
    return found.value, found.why, lacks(trace, replay)


def compared(capture: Capture) -> list[tuple[str, str, str]]:
    """What each recording of a capture's run gives.

    Returns
    -------
    list of tuple
        Form; ``same``, ``no figure`` (from the whole recording, too), ``refused`` (with the reason),
        ``reported`` or ``silent``; and the difference or reason.
    """
    whole = tk.read(capture.file)
    full, _, _ = _figure(capture, whole)
    rows = []
    for name, form in _forms(capture, whole):
        value, why, lack = _figure(capture, form)
        if full is None or value is None:
            rows.append((name, "no figure" if full is None else "refused", why))
        elif abs(value / full - 1) <= SAME:
            rows.append((name, "same", f"{value / full - 1:+.1%}"))
        else:
            rows.append((name, "reported" if lack else "silent", f"{value / full - 1:+.1%} {lack}".strip()))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Compare a sample of the lab's guests; a table by form goes to standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.forms", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("lab", type=Path)
    parser.add_argument("--sample", type=int, default=40, help="captures; those with texts come first")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    guests = [c for _, c in sorted(captures(arguments.lab).items()) if c.exact]
    random.Random(arguments.seed).shuffle(guests)
    guests.sort(key=lambda c: not _texts(c))
    counts: dict[str, Counter[str]] = {}
    with ProcessPoolExecutor() as pool:
        chosen = guests[: arguments.sample]
        for capture, rows in zip(chosen, pool.map(compared, chosen), strict=True):
            for name, result, what in rows:
                counts.setdefault(name, Counter())[result] += 1
                if result in ("reported", "silent"):
                    print(f"{capture.key}, {name}: {result}: {what}", file=sys.stderr)
    print(f"| recording | runs | {' | '.join(RESULTS)} |")
    print("|---" * (2 + len(RESULTS)) + "|")
    for name, found in counts.items():
        print(f"| {name} | {found.total()} | {' | '.join(str(found[r]) for r in RESULTS)} |")
    return 1 if any(found["silent"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
