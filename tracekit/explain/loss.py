"""What still holds of a trace that lost records: sentences and cells from `tracekit.analysis.bounds`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracekit.units import format_count, format_cpus
from tracekit.words import NAMES, UNBOUNDED, span, value

if TYPE_CHECKING:
    import polars as pl

    from tracekit.analysis.completion import Missing

__all__ = ["UNITS", "bound", "lost", "what_holds"]

#: Units of metrics, where they are not ns.
UNITS = {"switches": "1", "involuntary_switches": "1", "runqueue": "1"}
#: A metric counts as known where its upper bound exceeds the lower one by at most this factor: what
#: `calibrate` allows the main metric to be off (``replay/tolerances.toml``).
KNOWN = 1.05


def bound(row: Mapping[str, Any]) -> str:
    """The bounds of one row in words: ``45.4 to 45.9 us``, ``at least 3 ms``, ``no bound``."""
    lower, upper, unit = row["lower"], row["upper"], UNITS.get(row["metric"], "ns")
    if lower is None:
        return "no bound"
    if upper is None or upper > UNBOUNDED * lower > 0:
        return f"at least {value(lower, unit)}"
    if lower == upper:
        return value(lower, unit)
    return f"at most {value(upper, unit)}" if lower <= 0 else span(lower, upper, unit)


def what_holds(missing: Missing, bounds: pl.DataFrame) -> list[str]:
    """Say what can still be trusted, whatever was lost.

    Parameters
    ----------
    missing
        What the trace does not hold (`Trace.missing`).
    bounds
        Its bounds (`Trace.bounds`).

    Returns
    -------
    list of str
        Sentences on the metrics of all tasks and of the system; empty when nothing is missing.
    """
    if missing.whole:
        return []
    if missing.refused is not None:
        return [f"No bounds can be given: {missing.refused}."]
    known, between, least, none = [], [], [], []
    for row in bounds.filter(bounds["scope"] != "group").iter_rows(named=True):
        text = bound(row)
        if row["lower"] is None:
            none.append((row, ""))
        elif text.startswith("at least"):
            least.append((row, text.removeprefix("at least ")))
        elif row["upper"] <= KNOWN * row["lower"] or row["upper"] == row["lower"]:
            known.append((row, ""))
        else:
            between.append((row, text))
    what = "is missing" if missing.silent else "was in them"
    said = [f"{lost(missing)} Whatever {what}, known to 5 %: {_listed(known) or 'no metric'}."]
    for words, rows in (
        ("Between bounds", between),
        ("At least", least),
        ("No bound can be given", none),
    ):
        if rows:
            said.append(f"{words}: {_listed(rows)}.")
    return said


def lost(missing: Missing) -> str:
    """Say in a sentence what a trace does not hold.

    Parameters
    ----------
    missing
        What that is (`Trace.missing`); not nothing.

    Returns
    -------
    str
        As in ``3 records were lost in 2 places.``
    """
    places = len(missing.losses) - len(missing.silent)
    where = f" in {format_count(places)} places" if places > 1 else ""
    if not missing.windows:
        return "Wakeups were not recorded."
    if missing.silent:
        several = len(missing.silent) > 1
        cpus = f"CPU{'s' * several} {format_cpus(missing.silent)} {'have' if several else 'has'}"
        silent = f"{cpus} no record, though tasks were sent there."
        others = f"An unknown number of records was lost{where}. " if places else ""
        return others + silent
    if math.isinf(missing.records):
        return f"An unknown number of records was lost{where}."
    one = missing.records == 1
    return f"{format_count(int(missing.records))} record{'' if one else 's'} {'was' if one else 'were'} lost{where}."


def _listed(rows: list[tuple[dict[str, Any], str]]) -> str:
    """Metrics with their statistics and what is said of each.

    As in ``slice p50 32 us, p95 1.03 ms; switches 369``.
    """
    parts: dict[str, list[str]] = {}
    for row, text in rows:
        plain = row["statistic"] == "total" or row["metric"] == "slice_per_involuntary"
        parts.setdefault(row["metric"], []).append(
            " ".join(filter(None, ("" if plain else row["statistic"], text)))
        )
    return "; ".join(
        " ".join(filter(None, (NAMES[metric], ", ".join(said)))) for metric, said in parts.items()
    )
