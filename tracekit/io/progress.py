"""Progress of a reading: a bar on standard error, or whatever the caller wants."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "Report", "bar", "line", "reporter"]

#: Called with bytes read, bytes in all (None for a pipe) and events so far.
Report = Callable[[int, int | None, int], None]

#: True for a bar on standard error when that is a terminal, False for none, or a function of one's own.
Progress = bool | Report


@contextmanager
def reporter(progress: Progress, title: str) -> Iterator[Report]:
    """The function to report to.

    Parameters
    ----------
    progress
        What the caller asked for.
    title
        What is being done.
    """
    if callable(progress):
        yield progress
    elif progress and sys.stderr.isatty():
        with bar(title) as report:
            yield report
    else:
        yield lambda position, size, rows: None


@contextmanager
def bar(title: str) -> Iterator[Report]:
    """A bar on standard error with the rate and the time left; gone when it is done.

    Parameters
    ----------
    title
        What is being done.
    """
    began = time.monotonic()
    with line(title) as show:

        def report(position: int, size: int | None, rows: int) -> None:
            rate = rows / max(time.monotonic() - began, 1e-9)
            share = position / size if size else None
            show(share, f"{rows:,} events, {rate:,.0f}/s")

        yield report


@contextmanager
def line(title: str) -> Iterator[Callable[[float | None, str], None]]:
    """A line on standard error with a bar, a text and the time left, drawn anew ten times a second.

    It is never longer than the terminal is wide, and gone when it is done.

    Parameters
    ----------
    title
        What is being done; cut where it is long.

    Yields
    ------
    callable
        Takes the share that is done (None when nobody knows) and the text.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(max_width=20, no_wrap=True)),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        TimeRemainingColumn(compact=True),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(_plain(title), total=None, text="")

        def show(share: float | None, text: str) -> None:
            bars.update(task, completed=share or 0.0, total=None if share is None else 1.0, text=text)

        yield show


def _plain(title: str) -> str:
    """A file's name may hold what a terminal obeys."""
    from tracekit.harmless import printable

    return printable(title)
