"""Tables for people: as wide as the terminal, no cell on two lines."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click

from tracekit.harmless import printable
from tracekit.units import format_count, format_moment, format_ns

__all__ = ["cell", "definitions", "header", "paragraph", "table", "terminal_width"]

#: Columns that hold a point in time on the trace's clock; printed as `--from` takes it.
MOMENTS = re.compile(r"(?:\w+_)?ts(?:_from|_to)?_ns|(?:start|end|max_at)_ns")
#: Columns that hold a share or a bound of one; printed in per cent.
SHARES = re.compile(r"(?:\w*share|cdf|exceedance)(?:_low|_high)?")
#: Column names that are too long for a heading.
SHORT = {
    "nr_tasks": "tasks",
    "nr_involuntary": "invol.",
    "nr_voluntary": "vol.",
    "involuntary_share": "invol. share",
    "mean_per_involuntary_ns": "mean/invol.",
    "mean_is_bound": "bound",
    "n_open": "open",
    "n_censored": "cens.",
    "n_unreliable": "unreliable",
    "n_excluded": "excluded",
    "nr_events": "records",
    "nr_switches": "switches",
    "nr_slices": "slices",
    "nr_lost": "lost",
    "nr_migrations": "migrations",
    "run_delay_ns": "run delay",
    "run_delay_mean_ns": "delay mean",
    "run_delay_p95_ns": "delay p95",
    "response_p95_ns": "resp. p95",
}
#: What a heading that is short, or a word of ours, stands for. A terminal shows it below the table.
LEGEND = {
    "n_open": "open: cut off by an end of the trace",
    "nr_involuntary": "invol.: ended by an involuntary switch",
    "nr_voluntary": "vol.: ended by a voluntary switch",
    "mean_per_involuntary_ns": "mean/invol.: run time per involuntary switch",
    "mean_is_bound": "bound: the mean is a lower bound",
    "n_censored": "cens.: not seen to their end",
    "n_excluded": "excluded: nothing says when they began",
    "n_unreliable": "unreliable: records beside them are missing",
    "empty_share": "empty share: of the time, without a task",
    "estimated_share": "estimated share: of the time in which a task waits where its last record put it, and none "
    "says of migrations",
    "max_at_ns": "max at: when, as --from takes it",
    "tail_share": "tail share: of the time of the slow ones",
}
#: A name, or a sentence, is not cut below this many characters while a column can be left out instead.
_KEPT_NAME, _KEPT_SENTENCE = 16, 48
_LEAST_TEXT = 6
_GAP = "  "


def cell(column: str, value: Any) -> str:
    """A value as people read it; the column's name gives its unit."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "-"
    if MOMENTS.fullmatch(column):
        return format_moment(int(value))
    if column.endswith("_ns"):
        return format_ns(value)
    if SHARES.fullmatch(column):
        return f"{100 * value:.2f} %"
    if isinstance(value, float):
        text = f"{value:.3f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    return format_count(value) if column.startswith(("n", "count")) else str(value)


def header(column: str) -> str:
    """The heading of a column, without its unit."""
    return SHORT.get(column, column.removesuffix("_ns").replace("_", " "))


def terminal_width(file: TextIO | None = None) -> int | None:
    """Columns of the terminal; None where the file, by default standard output, is no terminal."""
    return shutil.get_terminal_size().columns if (file or sys.stdout).isatty() else None


def setting(name: str) -> Any:
    """What the command line asked of all its tables: `wide`, `columns`."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"tracekit.{name}")


@dataclass
class _Column:
    """One column, ready to print."""

    name: str
    head: str
    cells: list[str]
    text: bool

    @property
    def width(self) -> int:
        return max(map(_len, (self.head, *self.cells)))

    def cut(self, width: int) -> None:
        self.head = shorten(self.head, width)
        self.cells = [shorten(c, width) for c in self.cells]


def _len(text: str) -> int:
    """Columns that `text` takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` columns, with a mark where something was left out.

    Examples
    --------
    >>> shorten("kworker/u8:3-events_unbound", 12)
    'kworker/u8:…'
    """
    if _len(text) <= width:
        return text
    while text and _len(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    more: Sequence[str] = (),
    section: str | None = None,
    right: Sequence[str] = (),
    first_out: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print rows as aligned columns, each row on one line of the terminal.

    Parameters
    ----------
    rows
        The rows.
    columns
        Columns in order of importance and of display. In a narrow terminal the last ones are left
        out, and the columns left out are counted below the table. Columns that hold nothing, or
        only zeros, are left out.
    more
        Columns that only `--wide` shows.
    section
        Column that groups the rows: the first column of a pipe, headings of their own in a terminal.
    right
        Columns of texts that stand to the right, as numbers do.
    first_out
        Columns that a narrow terminal leaves out before the last ones.
    notes
        What a terminal shows below the table, beside what its headings stand for.
    """
    width = terminal_width()
    heads = [str(row.get(section)) for row in rows] if section and width is not None else []
    if section and width is None:
        columns = [section, *columns]
    asked, wide = setting("columns"), bool(setting("wide"))
    names = list(asked or [*columns, *(more if wide else ())])
    made = [_made(name, rows, name in right) for name in names]
    hidden = 0
    if not asked and not wide:
        kept = [c for i, c in enumerate(made) if i == 0 or not _is_void(c.name, rows)]
        hidden = len([c for c in more if not _is_void(c, rows)])
        made = kept
    if width is None:
        _print(made)
        return
    if asked or wide:
        for number, block in enumerate(_blocks(made, width)):
            if number:
                print()
            _print(block, heads)
        _note([*_legend(made), *notes], width)
        return
    shown = _fitting(made, width, first_out)
    _print(shown, heads)
    hidden += len(made) - len(shown)
    more_columns = [f"{hidden} more column{'s' * (hidden > 1)}: --wide"] if hidden else []
    _note([*_legend(shown), *notes, *more_columns], width)


def _legend(columns: Sequence[_Column]) -> list[str]:
    """What the short headings of a table stand for."""
    return [LEGEND[c.name] for c in columns if c.name in LEGEND]


def _note(parts: Sequence[str], width: int) -> None:
    """Print what a table needs to be read, in faint lines below it."""
    import textwrap

    for line in textwrap.wrap("; ".join(parts), min(width, 100), break_on_hyphens=False):
        print(click.style(line, dim=True) if _colours() else line)


def _made(name: str, rows: Sequence[Mapping[str, Any]], right: bool) -> _Column:
    text = not right and any(isinstance(row.get(name), str) for row in rows)
    return _Column(name, header(name), [cell(name, row.get(name)) for row in rows], text)


def _is_void(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no row says anything here: nothing, zero, or no."""
    return bool(rows) and all(row.get(name) is None or row.get(name) == 0 for row in rows)


def _total(columns: Sequence[_Column]) -> int:
    return sum(c.width for c in columns) + len(_GAP) * (len(columns) - 1)


def _least(column: _Column) -> int:
    """To how many characters a column may be cut before others are left out."""
    if not column.text:
        return column.width
    return min(column.width, _KEPT_SENTENCE if column.width > 2 * _KEPT_NAME else _KEPT_NAME)


def _least_first(column: _Column) -> int:
    """The same of the first column, which names the rows: what differs in it looks different."""
    names = set(column.cells)
    enough = range(_least(column), column.width)
    return next((w for w in enough if len({shorten(n, w) for n in names}) == len(names)), column.width)


def _fitting(columns: list[_Column], width: int, first_out: Sequence[str] = ()) -> list[_Column]:
    """The columns that fit, texts cut where that is enough."""
    kept = list(columns)
    first = _least_first(kept[0]) if kept and kept[0].text else 0

    def apart(column: _Column) -> int:
        return max(_least(column), first if column is kept[0] else 0)

    while len(kept) > 2 and sum(map(apart, kept)) + len(_GAP) * (len(kept) - 1) > width:
        kept.remove(next((c for c in kept if c.name in first_out), kept[-1]))
    for least in (apart, lambda c: _LEAST_TEXT):
        # The longest text first.
        while (over := _total(kept) - width) > 0:
            texts = [c for c in kept if c.text and c.width > least(c)]
            if not texts:
                break
            longest = max(texts, key=lambda c: c.width)
            longest.cut(max(least(longest), longest.width - over))
    return kept


def _blocks(columns: list[_Column], width: int) -> list[list[_Column]]:
    """All columns in as many blocks as it takes; each begins with the first column."""
    if not columns:
        return []
    first, rest = columns[0], columns[1:]
    first.cut(max(_LEAST_TEXT, width // 2))
    blocks: list[list[_Column]] = [[first]]
    for column in rest:
        if column.text:
            column.cut(max(_LEAST_TEXT, width - first.width - len(_GAP)))
        if _total([*blocks[-1], column]) > width and len(blocks[-1]) > 1:
            blocks.append([first])
        blocks[-1].append(column)
    return blocks


def _colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print(columns: Sequence[_Column], sections: Sequence[str] = ()) -> None:
    colours = _colours()
    widths = [c.width for c in columns]

    def line(cells: Sequence[str], bold: bool = False) -> str:
        out = []
        for text, width, column in zip(cells, widths, columns, strict=True):
            room = " " * (width - _len(text))
            styled = click.style(text, bold=bold or None, dim=text == "-" or None) if colours else text
            out.append(styled + room if column.text else room + styled)
        return _GAP.join(out).rstrip()

    if columns:
        print(line([c.head for c in columns], bold=True))
        for number, row in enumerate(zip(*(c.cells for c in columns), strict=True)):
            if sections and (number == 0 or sections[number] != sections[number - 1]):
                print(
                    click.style(printable(sections[number]), underline=True) if colours else sections[number]
                )
            print(line(row))


def paragraph(text: str, hang: int = 0, file: TextIO | None = None) -> None:
    """Print a text, in a terminal in lines that fit, each as far to the right as the first.

    Parameters
    ----------
    text
        The text; spaces before its first word are kept.
    hang
        How many columns further to the right all lines but the first begin.
    file
        Where to; standard output by default.
    """
    import textwrap

    width = terminal_width(file)
    shown = printable(text)
    if width is None:
        print(shown, file=file)
        return
    left = " " * min(len(shown) - len(shown.lstrip()) + hang, width // 3)
    print(textwrap.fill(shown, min(width, 100), subsequent_indent=left, break_on_hyphens=False), file=file)


def definitions(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print names with a value and a sentence each: the sentence runs over several lines where it must.

    Parameters
    ----------
    rows
        Name, value (empty for none) and sentence.
    """
    import textwrap

    width = min(terminal_width() or 100, 100)
    wide = max((len(name) for name, _, _ in rows), default=0)
    for name, value, sentence in rows:
        first = f"{printable(name):<{wide}}  {printable(value)}".rstrip()
        left = " " * min(wide + 2, width // 3)
        if value or len(first) > width // 3:
            print(shorten(first, width))
            if sentence:
                print(
                    textwrap.fill(printable(sentence), width, initial_indent="    ", subsequent_indent="    ")
                )
        else:
            filled = textwrap.fill(
                printable(sentence), width, initial_indent=f"{first:<{len(left)}}", subsequent_indent=left
            )
            print(filled)
