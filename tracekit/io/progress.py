"""Progress of a reading: a bar on standard error, or whatever the caller wants."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

__all__ = ["Progress", "Report", "bar", "reporter"]

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
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    began = time.monotonic()

    class Rate(ProgressColumn):
        """Events so far and a second."""

        def render(self, task: Task) -> Text:
            rows = task.fields.get("rows", 0)
            rate = rows / max(time.monotonic() - began, 1e-9)
            return Text(f"{rows:,} events, {rate:,.0f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), Rate(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        # A file name is no markup.
        task = bars.add_task(title.replace("[", r"\["), total=None, rows=0)
        yield lambda position, size, rows: bars.update(task, completed=position, total=size, rows=rows)
