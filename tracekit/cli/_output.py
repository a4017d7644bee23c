"""Results: text for people, JSON and CSV for programs; pictures as files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._table import cell, definitions, header, paragraph, setting, table
from tracekit.harmless import escaped, printable
from tracekit.near import did_you_mean

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from tracekit.io.one_pass import Survey
    from tracekit.trace import Trace

__all__ = [
    "about",
    "cell",
    "chosen",
    "definitions",
    "emit",
    "emit_csv",
    "emit_json",
    "header",
    "on_standard_output",
    "paragraph",
    "printable",
    "save_plot",
    "survey_facts",
    "table",
    "wakeup_facts",
]

#: Version of what `--json` writes, as `docs/json-schema.json` describes it.
SCHEMA = "tracekit/1"


def emit(
    frame: pl.DataFrame,
    trace: Trace,
    *,
    show: str,
    as_json: bool,
    as_csv: bool,
    top: int | None = None,
    columns: Sequence[str] | None = None,
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
        What was asked for; text when neither, or when both go to files.
    top
        How many rows; all by default.
    columns
        Columns of the text, most important first; by default the first eight. `--wide` shows all,
        and `--columns` others. JSON and CSV hold all, or what `--columns` names.
    extra
        What JSON holds beside the rows.
    """
    if top is not None:
        frame = frame.head(top)
    part = frame.select(chosen(frame.columns) or frame.columns)
    if as_json and emit_json({"trace": about(trace), "show": show, **(extra or {}), "rows": part.to_dicts()}):
        return
    if as_csv and emit_csv(frame):
        return
    if frame.height == 0:
        paragraph(
            "nothing to show: the trace has no records of this kind, or the filters leave none; "
            "`tracekit info` lists what it has"
        )
    else:
        main = [c for c in columns or frame.columns[:8] if c in frame.columns]
        table(part.to_dicts(), main, more=[c for c in frame.columns if c not in main])


def chosen(known: Sequence[str]) -> list[str]:
    """The columns that `--columns` names, none by default; an error names what there is."""
    asked: Sequence[str] = setting("columns") or ()
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, known, ".")
            raise click.UsageError(f"no column {name!r}{hint} This table has {', '.join(known)}")
    return list(asked)


def about(trace: Trace) -> dict[str, Any]:
    """What a trace is, for JSON; `info` shows its machine."""
    start, end = trace.start_ns, trace.end_ns
    return {
        "name": trace.name,
        "metadata": {k: v for k, v in trace.metadata.items() if k != "machine"},
        "start_ns": start,
        "end_ns": end,
        "warnings": trace.warnings(),
    }


def wakeup_facts(trace: Trace) -> dict[str, Any]:
    """What JSON says of how wakeups were recorded.

    Says on standard error where waits count from later on than they might.
    """
    from tracekit.whatif.recorded import wakes_late

    if (late := wakes_late(trace)) is None:
        return {}
    print(f"note: {printable(late)}", file=sys.stderr)
    return {"wakeups": late}


def survey_facts(trace: Survey) -> dict[str, Any]:
    """What JSON says of statistics that were taken in one pass.

    Says on standard error where they are not exact.
    """
    from tracekit.io.one_pass import ROUNDING

    if trace.lossy:
        refused = trace.missing().refused
        part = (
            "bounds under losses are given for a part of a trace this large: choose it with --from and --to"
        )
        said = part if refused is None else f"no bounds can be given: {refused}"
        print(f"note: {printable(said)}", file=sys.stderr)
    if not trace.rounded:
        return {}
    print(
        f"note: more samples than are held: quantiles are off by at most {100 * ROUNDING:.3f} %",
        file=sys.stderr,
    )
    return {"largest_error_of_quantiles": ROUNDING}


def emit_json(value: Any) -> bool:
    """Write JSON, indented, without NaN, to where `--json` says.

    An object begins with the version of its schema (`docs/json-schema.json`) and a bounded list of findings.

    Returns
    -------
    bool
        Whether it went to standard output; if not, the text is still to be printed.
    """
    if isinstance(value, Mapping):
        value = {"schema": SCHEMA, "findings": [], **value}
    text = json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _deliver("json", escaped(text) + "\n")


def emit_csv(frame: pl.DataFrame) -> bool:
    """Write CSV to where `--csv` says, of the columns that `--columns` names.

    A text that a spreadsheet would take for a formula gets an apostrophe.

    Returns
    -------
    bool
        Whether it went to standard output; if not, the text is still to be printed.
    """
    from tracekit.harmless import for_csv

    return _deliver("csv", for_csv(frame.select(chosen(frame.columns) or frame.columns)).write_csv())


def on_standard_output() -> bool:
    """Whether JSON or CSV is what standard output is for."""
    return "-" in (setting("json"), setting("csv"))


def _deliver(form: str, text: str) -> bool:
    """Write to the file that the option names, or to standard output: UTF-8 whatever the locale."""
    from tracekit.export.files import replacing

    place = setting(form) or "-"
    sys.stdout.flush()
    with replacing(place) as unfinished:
        # A path can hold bytes that are no UTF-8: what stands for them is an escape of JSON, too.
        unfinished.write(text.encode(errors="backslashreplace"))
    if place == "-":
        return True
    print(f"wrote {printable(place)}", file=sys.stderr)
    return False


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def save_plot(figure: Figure, file: str, how_to_read: str = "") -> None:
    """Write a picture, and on a terminal how to read it."""
    from tracekit.export.files import replacing

    with replacing(file) as unfinished:
        figure.savefig(unfinished, bbox_inches="tight", dpi=150, format=Path(file).suffix[1:] or "png")
    print(f"wrote {printable(file)}", file=sys.stderr)
    if how_to_read and sys.stderr.isatty():
        paragraph(f"How to read it: {how_to_read}", file=sys.stderr)
