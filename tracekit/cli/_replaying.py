"""What `replay` and `compare` have in common: how a replay is asked for, and its progress."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import side_place
from tracekit.cli._room import room
from tracekit.units import MOST_CPUS, MOST_HZ

if TYPE_CHECKING:
    from tracekit import Replay
    from tracekit.trace import Trace
    from tracekit.whatif.repeat import Done
    from tracekit.whatif.scenario import Override, Scenario

__all__ = [
    "asked",
    "caution",
    "costs_together",
    "importing",
    "placement_option",
    "print_basis",
    "progress_bar",
    "replay_options",
    "runs_options",
    "together",
]

F = TypeVar("F", bound=Callable[..., Any])


def _overrides(context: click.Context, param: click.Parameter, given: Sequence[str]) -> list[Override]:
    from tracekit.whatif.scenario import parse_set

    return [parse_set(text) for text in given]


def _scenario(context: click.Context, param: click.Parameter, file: str | None) -> Scenario | None:
    from tracekit.whatif.scenario import load

    if file is None:
        return None
    side_place(context, param, file)
    return load(file)


def _costs(context: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for text, (key, equals, value) in zip(given, pairs, strict=True):
        if not (key.strip() and equals and value.strip()):
            raise click.BadParameter(
                f"{text!r}: expected KEY=TIME, such as switch=3us; see `tracekit policies costs`."
            )
    return {key.strip(): value.strip() for key, _, value in pairs}


def costs_together(scenario: Scenario | None, costs: Mapping[str, str]) -> dict[str, str]:
    """What the file and the options say of costs, the options last."""
    return {**(scenario.costs if scenario else {}), **costs}


def runs_options(what: str) -> Callable[[F], F]:
    """How often each replay is repeated, and for what, and how many replays run at the same time."""

    def add(command: F) -> F:
        jobs = click.option(
            "--jobs",
            type=click.IntRange(1, 256),
            metavar="N",
            help="How many replays run at the same time; by default one for each CPU. The result is the same for any number.",
        )
        runs = click.option(
            "--runs",
            type=click.IntRange(1, 1000),
            default=9,
            show_default=True,
            help=f"How often each replay is repeated with small perturbations, for {what}",
        )
        return runs(jobs(command))

    return add


placement_option = click.option(
    "--placement",
    type=Choice(["auto", "model", "trace"]),
    default="auto",
    show_default=True,
    help="What decides where a task runs: the policy (model), or the recording (trace): each task is on the CPU on "
    "which it was at the same point of its work, which needs as many CPUs as recorded. auto: the policy, but the "
    "recording where a replay as recorded shows that the machine places woken tasks otherwise; it is said then. "
    "Asked for, trace leaves no row of a comparison trusted.",
)


def replay_options(function: F) -> F:
    """The options that say how to replay."""
    decorators = [
        click.option(
            "--loop",
            type=Choice(["dependency", "open", "closed"]),
            show_default="dependency",
            help="What moves when the schedule changes: wakeups with their wakers (dependency), nothing (open: each "
            "wakeup keeps its time), or everything (closed: each sleep keeps its length).",
        ),
        click.option(
            "--cpus", type=click.IntRange(1, MOST_CPUS), help="Number of CPUs; by default as recorded."
        ),
        click.option(
            "--hz",
            type=click.IntRange(1, MOST_HZ),
            help="Clock ticks a second, of the recording and of its replays; by default as found.",
        ),
        click.option(
            "--endless",
            multiple=True,
            metavar="GLOB",
            help="Tasks that would have gone on for ever, such as 'spin*': their recorded end is that of the recording. "
            "Can be given several times.",
        ),
        placement_option,
        click.option("--rt", metavar="POLICY", help="The real-time class above, such as rt:slice=20ms."),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="SELECTOR:KEY=VALUE",
            callback=_overrides,
            help="Change tasks: 'spin*: nice=5' or 'comm~^A[0-9]: policy=fifo,prio=45'. Can be given several times.",
        ),
        click.option(
            "--scenario",
            metavar="FILE",
            callback=_scenario,
            help="Take policy, loop, costs and changes of tasks from a TOML file; options come after it.",
        ),
        click.option(
            "--overheads/--no-overheads",
            default=True,
            show_default=True,
            help="Let switches, ticks and interrupts cost what they cost in the trace.",
        ),
        click.option(
            "--switch-costs/--no-switch-costs",
            default=True,
            show_default=True,
            help="Adjust context-switch cost when the target kernel or scheduling class differs.",
        ),
        click.option(
            "--cost",
            "costs",
            multiple=True,
            metavar="KEY=TIME",
            callback=_costs,
            help="A cost in place of the measured one: switch=3us, second=100ns, fork=list:2us/50ns. "
            "See `tracekit policies costs`. Can be given several times.",
        ),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def asked(
    policies: Sequence[str], loop: str | None, scenario: Scenario | None, changes: bool = False
) -> tuple[list[str], str]:
    """Policies and loop, from options or else from the file.

    No policy stands for the one that the trace was captured under, which is refused unless something else `changes`.
    """
    if not policies and scenario is not None and scenario.policy is not None:
        policies = [scenario.policy]
    if not policies and not changes:
        raise click.UsageError(
            "nothing is asked for: give a --policy (see `tracekit policies`), or change something else under the "
            "policy of the recording, such as --set 'batch*: nice=19' or --cpus 4"
        )
    return list(policies), loop or (scenario.loop if scenario else None) or "dependency"


def caution(trace: Trace, quiet: bool) -> None:
    """Say on standard error what the trace does not say, and every replay depends on."""
    from tracekit.cli._table import paragraph
    from tracekit.whatif.contexts import recognise

    said = None if quiet else recognise(trace).sentence()
    if said is not None:
        paragraph(f"warning: {said}", file=sys.stderr)


def together(scenario: Scenario | None, overrides: Sequence[Override]) -> list[Override]:
    """What the file and the options say, the options last."""
    return [*(scenario.overrides if scenario else ()), *overrides]


@contextlib.contextmanager
def importing(*modules: str) -> Iterator[None]:
    """Import what is needed later while the block reads, which needs no Python.

    It is all there behind the block: two threads never import at the same time but for what the
    block itself imports. Where memory is limited (`ulimit -v`), nothing is imported beside: a library
    that gets none in another thread ends the process, where one line is to say it.
    """
    if room() is not None:
        yield
        return

    def load() -> None:
        # Whoever needs the module gets the error.
        with contextlib.suppress(Exception):
            for name in modules:
                importlib.import_module(name)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextlib.contextmanager
def progress_bar(title: str, trace: Trace, quiet: bool = False) -> Iterator[Callable[[float], object] | None]:
    """A line on standard error while replays run: runs, simulated time, its rate, time left.

    Parameters
    ----------
    title
        What is being done.
    trace
        The trace that is replayed.
    quiet
        Show nothing.

    Yields
    ------
    callable or None
        What a replay is to call; None when standard error is no terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tracekit.io.progress import line
    from tracekit.whatif.repeat import Done

    span_ns = (trace.end_ns or 0) - (trace.start_ns or 0)
    began: float | None = None
    with line(title) as show:
        show(None, "reconstructing what tasks did")

        def report(done: float) -> None:
            nonlocal began
            began = time.monotonic() if began is None else began
            whole = done if isinstance(done, Done) else Done.of([done], 0, span_ns)
            show(done, _described(whole, time.monotonic() - began))

        yield report


def _described(done: Done, seconds: float) -> str:
    """How far the runs are."""
    if done >= 1:
        return "intervals and metrics"
    simulated, total = done.simulated_ns / 1e9, done.total_ns / 1e9
    runs = f"run {min(done.run + 1, done.runs)} of {done.runs}, " if done.runs > 1 else ""
    # A rate over a moment says nothing.
    rate = f", {_three(simulated / seconds)}x" if seconds > 0.3 else ""
    return f"{runs}{_three(simulated)}/{_three(total)} s simulated{rate}"


def _three(x: float) -> str:
    """Three digits, and those before the point."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def print_basis(run: Replay) -> None:
    """Print what a replay rests on: why sleeps ended, and what was inferred about the recorded run."""
    from tracekit.cli._output import definitions, paragraph
    from tracekit.units import format_ns

    for row in run.wakeups:
        paragraph(f"  {100 * row['share']:5.1f} % of wakeups by {row['class']}")
    print()
    rows = []
    for row in run.inferred.iter_rows(named=True):
        value = row["value"]
        if value is None:
            text = "-"
        elif row["unit"] == "ns":
            text = format_ns(value)
        else:
            text = f"{value:.0f}"
        if row["n"] is not None:
            text += f" (n = {row['n']:,})"
        rows.append((row["name"], text, row["how"]))
    definitions(rows)
