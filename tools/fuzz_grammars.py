"""Look for texts that break a grammar of the command line or of a settings file.

``python tools/fuzz_grammars.py TARGET [SECONDS of CPU time] [SEED]``; TARGET is all, one of those
that ``list`` prints, or ``filter`` or ``text``, which draw from several. A text is a valid one,
damaged; it is read, or refused with an error of tracekit's own. Anything else is a finding: another
exception, over 10 s, over 1 GiB, or a text that is shown and not read as the same. The grammars that
Rust reads (policies, workloads) are targets of ``replay/examples/fuzz``.
"""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

import tracekit as tk
from tracekit.cli._options import _parse_numbers
from tracekit.explain.gate import parse_condition
from tracekit.machine import parse_machine
from tracekit.units import parse_duration
from tracekit.whatif import scenario
from tracekit.whatif.goals import parse_goal
from tracekit.whatif.grid import cells
from tracekit.whatif.groups import read_map
from tracekit.whatif.run import replay

#: Limits of one text.
SLOW_S, LARGE_KIB = 10.0, 1 << 20
#: Findings of a target after which it stops.
ENOUGH = 10

#: Grammars that are one target, too.
FILTERS = ("filter-name", "filter-time", "filter-cpu")
TOGETHER = {"filter": FILTERS, "text": (*FILTERS, "fail-if", "scenario", "machine")}

ROOT = Path(__file__).resolve().parent.parent
#: A machine as it was recorded, and the tables that it lacks.
MACHINE = (
    (ROOT / "fixtures/demo/slice-default.perf.data.machine.toml").read_text()
    + """\
cgroups = [
  {path = "/web", weight = 300, quota_us = 50000, period_us = 100000, idle = 0},
]
tasks = [
  {tid = 7, pid = 7, comm = "a \\"name\\"", policy = "other", nice = 5, cpus = "1", cgroup = "/web"},
]
"""
)
LETTERS = "\n\t =:,;()[]{}<>\"'\\/-+|%#.*?^$~@0189eEkmsuµé\u202e\0"
NUMBERS = (
    "", "0", "-1", "1e999", "nan", "inf", "4294967296", "9223372036854775807", "18446744073709551616",
    "99999999999999999999", "00000001", "9" * 5000, "0.0000000001", "1e308",
)  # fmt: skip
PIECES = (
    "[" * 3000,
    "(" * 3000,
    "a{1,4294967295}",
    "(a+)+$",
    "(?P<x>",
    "\\",
    "[z-a]",
    "baseline",
    "../..",
    "''",
    '"""',
)


@dataclass(frozen=True)
class Target:
    """A grammar: valid texts, what reads one, and the errors that refuse one."""

    seeds: tuple[str, ...]
    read: Callable[[str], object]
    refused: tuple[type[Exception], ...] = (tk.TracekitError,)


def _shown(text: str) -> object:
    found = scenario.parse_set(text)
    again = scenario.parse_set(str(found).removeprefix("--set "))
    if again != found:
        raise AssertionError(f"shown as {found}, which is read as {again}")
    return found


def _trace() -> tk.Replay:
    return tk.simulate("until: 20\nSpin: (R2 S1)*\nBatch: (R5 S1)*", "rr:quantum=1ms")


def quiet(read: Callable[[str], object]) -> Callable[[str], object]:
    """The same, without the warning that nothing meets a filter: hardly any made up one is met."""

    def silently(text: str) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tk.FilterWarning)
            return read(text)

    return silently


def _by_file(read: Callable[[Path], object]) -> Callable[[str], object]:
    path = Path(tempfile.mkdtemp()) / "given"

    def through(text: str) -> object:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return read(path)

    return through


def targets() -> dict[str, Target]:
    """Every grammar that Python reads, by name."""
    trace = _trace()

    def time_filter(text: str) -> object:
        start, _, end = text.partition(";")
        return trace.filter(start=start or None, end=end or None).slices.height

    def cpu_filter(text: str) -> object:
        numbers = _parse_numbers(None, None, (text,))  # type: ignore[arg-type]
        return trace.filter(cpu=numbers).slices.height + trace.filter(pid=numbers, tid=numbers).tasks.height

    def changed(text: str) -> object:
        return replay(trace, "cfs", scenario=[scenario.parse_set(text)]).slices.height

    sets = (
        "Spin*: nice=5", "comm=Batch: policy=fifo,prio=45", "comm~^S.*n$: nice=-3,cpus=0+1", "tid=1: nice=19",
        "pid=1: nice=19", "/Spi./: policy=rr,prio=3", "*: policy=batch", "group:web: weight=300,quota=50ms/100ms",
        "Batch: group=web", "Spin: nice=7,policy=idle",
    )  # fmt: skip
    scenarios = (
        "policy = 'cfs'\nloop = 'open'\n[cost]\nswitch = '3us'\n[[task]]\ncomm = 'Spin*'\nnice = 5\n",
        "[[task]]\ncomm_regex = '^S'\npolicy = 'fifo'\nprio = 45\n[[task]]\ntid = 1\nnice = -3\n",
        "[[task]]\ntid = 1\nnice = 19\n[[task]]\nnice = 1\n",
    )
    maps = (
        "pid\tcomm\tgroup\tcpu_weight\tcpu_max\n7\tSpin\tweb/a\t100\tmax 100000\n8\tBatch\tdb\t39\t50000 100000\n",
    )
    return {
        "fail-if": Target(
            (
                "db: response p99 > 1.10 * baseline",
                "run delay max >= 5ms",
                "switches > 1000",
                "cpu share < 50%",
                "db*: wakeup latency p99.9 > 250us",
                "preemption wait p50 > 2 * baseline",
            ),
            lambda text: parse_condition(text),
        ),
        "goal": Target(
            (
                "response.p95(db) < 5ms",
                "cpu(Batch) > -5%",
                "runqueue.mean < 3.5",
                "latency.max(*) <= 1.5s",
                "preemptions(Spin*) < 10",
            ),
            parse_goal,
        ),
        "set": Target(sets, changed),
        "set-shown": Target(sets, _shown),
        "grid": Target(
            (
                "cfs:wakeup_granularity=0..4ms/9",
                "rr:quantum=1ms..64ms/7log",
                "eevdf:base_slice={700us,3ms}",
                "cfs:latency=6ms..24ms/4,wakeup_granularity={0,1ms}",
            ),
            lambda text: len(cells([text], ["Batch*: nice=0..19/5"])),
        ),
        "grid-set": Target(
            ("Batch*: nice=0..19/5", "comm=a: policy={fifo,rr},prio=1..99/3", "*: weight=1..1024/5log"),
            lambda text: len(cells(["cfs", "rr"], [text])),
        ),
        "filter-name": Target(
            ("Spin*", "/^B.*h$/", "[SB]*", "Batch", "!x", "/(a|b)+/"),
            quiet(lambda text: trace.filter(comm=text).slices.height),
        ),
        "filter-time": Target(
            ("1ms;5ms", "@0.001s;@0.01s", ";10ms", "2.5ms;", "100us;1m"), quiet(time_filter)
        ),
        "filter-cpu": Target(
            ("3", "0-3", "0,2,4-7"), quiet(cpu_filter), (tk.TracekitError, click.BadParameter)
        ),
        "duration": Target(("10ms", "1.5s", "-250us", ".5h", "3 m"), parse_duration, (ValueError,)),
        "scenario": Target(
            scenarios, _by_file(lambda path: scenario.resolve(scenario.load(path).overrides, trace))
        ),
        "machine": Target((MACHINE,), lambda text: parse_machine(text).affinities()),
        "group-map": Target(maps, _by_file(read_map)),
    }


def damage(text: str, other: str, draw: random.Random) -> str:
    """A copy of `text` with one to six things done to it."""
    for _ in range(draw.randint(1, 6)):
        at = draw.randint(0, len(text))
        end = min(len(text), at + draw.randint(1, 16))
        match draw.randrange(9):
            case 0:
                text = text[:at] + draw.choice(LETTERS) + text[at + 1 :]
            case 1:
                text = text[:at] + draw.choice(LETTERS) + text[at:]
            case 2:
                text = text[:at] + text[end:]
            case 3:
                text = text[:at] + text[at:end] * draw.choice((2, 3, 50)) + text[end:]
            case 4:
                start = draw.randint(0, len(other))
                text = text[:at] + other[start : start + draw.randint(1, 40)] + text[end:]
            case 5 | 6:
                text = _renumbered(text, at, draw)
            case 7:
                text = text[:at] + draw.choice(PIECES) + text[at:] if draw.random() < 0.3 else text
            case _:
                text = (
                    text[:at] + chr(draw.choice((0x20, 0x7F, 0x85, 0x2028, 0x661, 0xB2, 0x1F600))) + text[at:]
                )
    return text


def _renumbered(text: str, at: int, draw: random.Random) -> str:
    first = next((i for i in range(at, len(text)) if text[i].isdigit()), None)
    if first is None:
        return text
    last = next((i for i in range(first, len(text)) if not text[i].isdigit()), len(text))
    return text[:first] + draw.choice(NUMBERS) + text[last:]


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"takes over {SLOW_S:g} s")


def tried(target: Target, text: str) -> tuple[bool, str | None]:
    """Whether `text` was read, and what is wrong with that; None where nothing is."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SLOW_S)
    try:
        target.read(text)
    except target.refused as error:
        return False, None if str(error) else f"{type(error).__name__} without a message"
    except Exception as error:
        return False, f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return True, None


def fuzz(name: str, several: list[Target], seconds: float, seed: int) -> int:
    """Try one target, or several in turn, for so much CPU time; the number of findings."""
    draw = random.Random(f"{name} {seed}")
    start = time.process_time()
    runs, read, slowest, findings = 0, 0, 0.0, []
    while time.process_time() - start < seconds and len(findings) < ENOUGH:
        target = several[runs % len(several)]
        text = damage(draw.choice(target.seeds), draw.choice(target.seeds), draw)
        began = time.process_time()
        fine, wrong = tried(target, text)
        slowest = max(slowest, time.process_time() - began)
        runs += 1
        read += fine
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if wrong is None and peak > LARGE_KIB:
            wrong = f"needs {peak >> 10} MiB"
        if wrong is not None and wrong not in findings:
            findings.append(wrong)
            folder = ROOT / "target" / "findings"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}-{len(findings)}"
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            print(f"{name}: finding {len(findings)}: {wrong}; input in {path}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{name}: {runs} inputs in {time.process_time() - start:.0f} s of CPU time, {read} were read, "
        f"slowest {1000 * slowest:.0f} ms, peak {peak} MiB, {len(findings)} findings",
        flush=True,
    )
    return len(findings)


def main(arguments: list[str]) -> int:
    """Run what the command line asks for."""
    known = targets()
    wanted = arguments[0] if arguments else ""
    if wanted == "list":
        print("\n".join(known))
        return 0
    chosen = list(known) if wanted == "all" else [wanted]
    if not set(chosen) <= {*known, *TOGETHER}:
        print(
            f"usage: fuzz_grammars.py TARGET [SECONDS] [SEED]; TARGET is all, {', '.join([*TOGETHER, *known])}",
            file=sys.stderr,
        )
        return 2
    seconds = float(arguments[1]) if len(arguments) > 1 else 600.0
    seed = int(arguments[2]) if len(arguments) > 2 else 1
    signal.signal(signal.SIGVTALRM, _too_slow)
    found = 0
    with contextlib.suppress(BrokenPipeError):
        parts = {name: [known[part] for part in TOGETHER.get(name, (name,))] for name in chosen}
        found = sum(fuzz(name, parts[name], seconds / len(chosen), seed) for name in chosen)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
