"""Workload texts in place of a trace.

They are run under the policy that they name, and read like a recording of that run.

Produced by
    Hand, or ``tracekit generate TRACE --as workload``. The language stands in `tracekit.workload_language`
    and in the guide.
Clock
    Starts at 0; ns.
Kept
    Everything: the text is kept in the metadata, so that replays run the stated programs and
    reconstruct nothing.
Traps
    ``values NAME: bursts of nginx in boot.dat`` takes recorded times from a trace beside the text;
    see `resolve`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import _core
from tracekit._lazy import later
from tracekit.errors import ParseError, ReplayError, TracekitError
from tracekit.trace import Trace

if TYPE_CHECKING:
    import polars as pl

    from tracekit._core import Table
else:
    pl = later("polars")

__all__ = ["FORMAT", "KINDS", "recognises", "recorded_times", "resolve", "run"]

FORMAT = "workload"
#: Flags of states that were not seen as a whole: open at the start, open at the end, crossing a loss.
CUT = 0b111
#: Bytes that decide.
HEAD = 65_536
_KEYS = (
    *("policy", "policy rt", "cpus", "capacity", "hz", "unit", "until", "seed", "phase"),
    *("timers", "kernel", "costs"),
    *("tolerance", "run", "share", "end", "switches", "slice", "state", "count"),
)
_KEY = re.compile(rf"(?:{'|'.join(_KEYS)}|expect(?:@\d+)?|values \w+|(?:group|buffer|queue) \S+|khz \d+)\s*:")
_TASK = re.compile(r"[A-Z][\w.-]*(?:\*\d+)?(?:\s+\w+=\S+)*\s*:\s*[(RKSDEUWPBYFVTXQZNACMIOLGH]")
#: What is meant as one: a name may not begin with a small letter.
_MEANT = re.compile(_TASK.pattern.replace("[A-Z]", "[A-Za-z]", 1))
_FROM_TRACE = re.compile(r"values\s+(\w+)\s*:\s*([a-z]+)\s+of\s+(.+?)\s+in\s+(.+)")


def recognises(source: str | bytes) -> bool:
    """Whether the first lines of a path or of bytes are those of a workload.

    Each is a key or a task, and one is a task.
    """
    if isinstance(source, bytes):
        head = source[:HEAD]
    else:
        try:
            with Path(source).open("rb") as file:
                head = file.read(HEAD)
        except OSError:
            return False
    if b"\0" in head[:512]:
        return False
    # The last line may be cut, but how it begins says what it is: a task of a recording has long ones.
    lines = [line.partition("#")[0].strip() for line in head.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    # A text that is being written may have a line that is wrong: it is named when it is run.
    task = _MEANT if lines and _KEY.match(lines[0]) else _TASK
    fit = sum(bool(_KEY.match(line) or task.match(line)) for line in lines)
    tasks = any(task.match(line) and not _KEY.match(line) for line in lines)
    return (
        bool(lines)
        and tasks
        and bool(_KEY.match(lines[0]) or _TASK.match(lines[0]))
        and fit >= 0.5 * len(lines)
    )


def run(
    text: str, policy: object | None = None, *, seed: int | None = None
) -> tuple[dict[str, str], dict[str, Table]]:
    """Run a text; its expectations are checked where it runs under its own policy and its own seed.

    Parameters
    ----------
    text
        The workload, with its times from traces resolved.
    policy
        In place of its own: a name with parameters, or a policy of one's own.
    seed
        In place of its own.

    Returns
    -------
    tuple
        Metadata and tables of the run. A run under its own policy keeps the text (``workload``), so
        that it can take the place of a trace.

    Raises
    ------
    ReplayError
        When the text or the policy is not understood, or the run is not what the text expects.
    """
    if policy is None or isinstance(policy, str):
        metadata, tables = _core.simulate(text, policy, seed)
    else:
        metadata, tables = _core.simulate_with(text, policy, seed)
    kept = {"workload": text} | ({} if seed is None else {"workload.seed": str(seed)})
    return metadata | kept, tables


def read_workload(
    source: str | bytes,
    name: str,
    known: Mapping[str, str],
    options: Mapping[str, str],
    report: Callable[[int], None],
) -> Trace:
    """Read a workload text as a trace: of a run under its own policy."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    folder = Path(source).parent if isinstance(source, str) else Path()
    seed = options.get("seed")
    if seed is not None and not seed.isdigit():
        raise ParseError(f"seed={seed}: expected a whole number of 0 or more", code="option")
    try:
        metadata, tables = run(
            resolve(data.decode(), folder),
            options.get("policy"),
            seed=None if seed is None else int(seed),
        )
    except UnicodeDecodeError as error:
        raise ParseError(f"{name}: expected UTF-8 text, found {error}", code="io") from None
    except ReplayError as error:
        raise ReplayError(f"{name}: {error}") from None
    report(len(tables["events"]))
    return Trace(tables, metadata | {**known, "source.format": FORMAT}, name)


#: What can be taken from a trace: name to what it is.
KINDS = {
    "bursts": "CPU time of each response: between a wakeup and the next sleep",
    "slices": "length of each slice",
    "sleeps": "length of each sleep",
    "arrivals": "time from each wakeup to the next, of all the tasks together",
}


def resolve(text: str, folder: Path | None = None) -> str:
    """Put recorded times in place of lines such as ``values service: bursts of nginx* in boot.dat``.

    Parameters
    ----------
    text
        The workload.
    folder
        Where the traces lie that it names; by default the current one.

    Returns
    -------
    str
        The text with the times written out, in the unit ns.

    Raises
    ------
    ReplayError
        When a kind is unknown, a trace cannot be read, or has no such times. It names the line.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _FROM_TRACE.fullmatch(line.partition("#")[0].strip())
        if found is None:
            continue
        name, kind, comm, path = found.groups()
        try:
            from tracekit.io.reading import read

            trace = read((folder or Path()) / path)
            times = recorded_times(trace, kind, comm)
        except TracekitError as error:
            raise ReplayError(f"line {number + 1}: values {name}: {error}") from None
        lines[number] = f"values {name}: " + " ".join(f"{ns}ns" for ns in times)
    return "\n".join(lines) + "\n"


def recorded_times(trace: Trace, kind: str, comm: str = "*") -> list[int]:
    """Times of the tasks with a name, as a trace has them: an empirical distribution for a workload.

    Only complete ones count: what the trace began or ended in is left out.

    Parameters
    ----------
    trace
        A recorded trace.
    kind
        One of `KINDS`.
    comm
        Name of the tasks, a glob.

    Returns
    -------
    list of int
        ns, in the order of time.

    Raises
    ------
    ReplayError
        When the kind is unknown, or nothing fits.
    """
    from tracekit import analysis

    if kind not in KINDS:
        raise ReplayError(f"unknown kind {kind!r}; choose from {', '.join(KINDS)}")
    part = trace.filter(comm=comm, exclude=None)
    if kind in ("bursts", "arrivals"):
        complete = analysis.response.samples(part.slices, part.states, part.end_ns).filter(status="complete")
        complete = complete.sort("wake_ts_ns")
        times = complete["run_ns"] if kind == "bursts" else complete["wake_ts_ns"].diff().drop_nulls()
    elif kind == "slices":
        times = part.slices.sort("ts_ns")["dur_ns"]
    else:
        asleep = pl.col("state").cast(pl.String).is_in(["sleeping", "blocked"])
        times = part.states.filter(asleep & (pl.col("flags") & CUT == 0)).sort("ts_ns")["dur_ns"]
    found = [int(ns) for ns in times.drop_nulls().to_list() if ns >= 0]
    if not found:
        raise ReplayError(f"{trace.name} has no {kind} of {comm!r}; `tracekit slices` lists the names")
    return found
