"""What `replay` and `compare` have in common: how a replay is asked for, and its progress."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

__all__ = ["progress_bar", "replay_options"]

F = TypeVar("F", bound=Callable[..., Any])


def _settings(
    context: click.Context, param: click.Parameter, given: Sequence[str]
) -> dict[str, dict[str, str]]:
    scenario: dict[str, dict[str, str]] = {}
    for text in given:
        pattern, colon, pairs = text.rpartition(":")
        parts = [pair.partition("=") for pair in pairs.split(",")]
        if not colon or not pattern or not all(key and equals for key, equals, _ in parts):
            raise click.BadParameter(f"expected GLOB:KEY=VALUE,KEY=VALUE, found {text!r}", context, param)
        scenario.setdefault(pattern, {}).update({key.strip(): value for key, _, value in parts})
    return scenario


def replay_options(function: F) -> F:
    """The options that say how to replay."""
    decorators = [
        click.option(
            "--loop",
            type=click.Choice(["dependency", "open", "closed"]),
            default="dependency",
            show_default=True,
            help="What moves when the schedule changes: wakeups with their wakers (dependency), nothing (open: each "
            "wakeup keeps its time), or everything (closed: each sleep keeps its length).",
        ),
        click.option("--cpus", type=click.IntRange(1, 4096), help="Number of CPUs; by default as recorded."),
        click.option(
            "--hz", type=click.IntRange(1, 100_000), help="Clock ticks a second; by default as found."
        ),
        click.option("--rt", metavar="POLICY", help="The real-time class above, such as rt:slice=20ms."),
        click.option(
            "--set",
            "scenario",
            multiple=True,
            metavar="GLOB:KEY=VALUE",
            callback=_settings,
            help="Change tasks: 'spin*:nice=5,policy=batch'. Can be given several times.",
        ),
        click.option(
            "--overheads/--no-overheads",
            default=True,
            show_default=True,
            help="Let switches, ticks and interrupts cost what they cost in the trace.",
        ),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], object] | None]:
    """A bar on standard error while a replay runs; None when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title.replace("[", r"\["), total=1.0)
        yield lambda done: bars.update(task, completed=done)
