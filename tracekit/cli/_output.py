"""Results on standard output: text for people, JSON and CSV for programs; figures as files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.units import format_count, format_ns

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from tracekit.trace import Trace

__all__ = ["cell", "emit", "emit_json", "paragraph", "printable", "save_plot", "table"]


def printable(text: str) -> str:
    """Text from a trace as it may go to a terminal: control characters written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cell(column: str, value: Any) -> str:
    """A value as people read it; the column's name tells its unit."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "-"
    if column in (
        "ts_ns",
        "wake_ts_ns",
        "end_ts_ns",
        "first_ts_ns",
        "last_ts_ns",
        "max_at_ns",
        "start_ts_ns",
    ):
        return f"{value / 1e9:.9f}"
    if column.endswith("_ns"):
        return format_ns(value)
    if column.endswith("share") or column in ("cdf", "exceedance"):
        return f"{100 * value:.2f} %"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return format_count(value) if column.startswith(("n", "count")) else str(value)


def header(column: str) -> str:
    """The name of a column without its unit."""
    return column.removesuffix("_ns").replace("_", " ")


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as aligned columns; on a terminal with a rule and colours."""
    cells = [[cell(c, row.get(c)) for c in columns] for row in rows]
    right = [not any(isinstance(row.get(c), str) for row in rows) for c in columns]
    if sys.stdout.isatty():
        _rich_table(cells, columns, right)
        return
    heads = [header(c) for c in columns]
    widths = [max(map(len, [h, *(row[i] for row in cells)])) for i, h in enumerate(heads)]
    for line in [heads, *cells]:
        padded = [t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)]
        print("  ".join(padded).rstrip())


def _rich_table(cells: list[list[str]], columns: Sequence[str], right: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column, to_the_right in zip(columns, right, strict=True):
        grid.add_column(header(column), justify="right" if to_the_right else "left", overflow="fold")
    for row in cells:
        grid.add_row(*(Text(c, style="dim" if c == "-" else "") for c in row))
    Console().print(grid)


def paragraph(text: str) -> None:
    """Print a line of text."""
    print(printable(text))


def emit(
    frame: pl.DataFrame,
    trace: Trace,
    *,
    show: str,
    as_json: bool,
    as_csv: bool,
    top: int | None = None,
    hide: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Print the result of an analysis.

    Parameters
    ----------
    frame
        The result.
    trace
        What it was computed from.
    show
        Name of the table, for JSON.
    as_json, as_csv
        What was asked for; text when neither.
    top
        How many rows; all by default.
    hide
        Columns that the text leaves out.
    extra
        What JSON holds beside the rows.
    """
    if top is not None:
        frame = frame.head(top)
    if as_json:
        emit_json({"trace": about(trace), "show": show, **(extra or {}), "rows": frame.to_dicts()})
    elif as_csv:
        sys.stdout.write(frame.write_csv())
    elif frame.height == 0:
        paragraph(
            "nothing to show: the trace has no records of this kind, or the filters leave none; "
            "`tracekit info` lists what it has"
        )
    else:
        columns = [c for c in frame.columns if c not in hide]
        # A column without a single value tells nothing.
        columns = [c for c in columns if frame[c].null_count() < frame.height]
        table(frame.to_dicts(), columns)


def about(trace: Trace) -> dict[str, Any]:
    """What a trace is, for JSON."""
    start, end = trace.start_ns, trace.end_ns
    return {
        "name": trace.name,
        "metadata": trace.metadata,
        "start_ns": start,
        "end_ns": end,
        "warnings": trace.warnings(),
    }


def emit_json(value: Any) -> None:
    """Print JSON: indented, without NaN."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def save_plot(figure: Figure, file: str, how_to_read: str = "") -> None:
    """Write a figure, and on a terminal how to read it."""
    figure.savefig(file, bbox_inches="tight", dpi=150)
    print(f"wrote {file}", file=sys.stderr)
    if how_to_read and sys.stderr.isatty():
        print(f"How to read it: {how_to_read}", file=sys.stderr)
