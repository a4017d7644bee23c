"""How often the intervals that ship hold on captures that nothing was fitted to.

`python -m validation.unseen FOLDER --pairs TABLE` replays each capture A of the table as its captures B
were run, and holds every row that `tracekit compare` would print against the same row of B. The
intervals are made with the model errors of the package, not with a fit to these captures. Shares are
printed by class of change, kind of metric and trust, and of rows that are only not trusted since their
trace cannot be replayed well (`tracekit.whatif.trust.poorly`), or that are of less work than a real run
does, or of a replay that lasts longer or idles more (`tracekit.whatif.pace`), apart; and by what
`tracekit doctor` says of their capture (`tracekit.whatif.trust.replayed`). First comes the median error of
all rows, and what it would be of the plain replays.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tracekit.errors import TracekitError
from tracekit.whatif.row_error import row_errors
from tracekit.whatif.trust import replayed
from validation import coverage, lab

__all__ = ["main"]


def _of(task: tuple[Path, Path, str]) -> tuple[list[pl.DataFrame], list[str]]:
    """The rows of one capture A, and why pairs have none."""
    folder, table, a = task
    captures = lab.captures(folder)
    pairs = [p for p in lab.pairs(table) if p.a == a and p.b in captures]
    try:
        frames, notes, job = coverage.pair_rows(captures[a], [(p, captures[p.b]) for p in pairs])
    except TracekitError as error:
        return [], [f"{a} as itself: {error}"]
    results = {row["metric"]: row["result"] for row in job["calibration"]}
    said = {"doctor": replayed(list(results.values())), "main": results["main"]}
    return [f.with_columns(**{k: pl.lit(v) for k, v in said.items()}) for f in frames], notes


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 2 where no pair of the table is below the folder."""
    parser = argparse.ArgumentParser(prog="python -m validation.unseen", description=__doc__)
    parser.add_argument("folder", type=Path, help="the captures")
    parser.add_argument("--pairs", type=Path, required=True, help="the table of pairs")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of the captures, drawn with seed 1")
    given = parser.parse_args(argv)
    captures = lab.captures(given.folder)
    known = dict.fromkeys(p.a for p in lab.pairs(given.pairs) if p.a in captures and p.b in captures)
    if not known:
        print(f"validation: no pair of {given.pairs} is below {given.folder}", file=sys.stderr)
        return 2
    drawn = list(known)
    if given.sample is not None:
        random.Random(1).shuffle(drawn)
    frames: list[pl.DataFrame] = []
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for found, notes in pool.imap(_of, [(given.folder, given.pairs, a) for a in drawn[: given.sample]]):
            frames += found
            for note in notes:
                print(f"validation: {note}", file=sys.stderr)
    rows = coverage.judged(pl.concat(frames, how="vertical_relaxed"), row_errors())
    why = pl.col("trust_why")
    only = why.str.starts_with("this trace cannot be replayed well") & ~why.str.contains(";", literal=True)
    early = why.str.contains("is done sooner", literal=True) & (pl.col("mark") != "do not use")
    late = why.str.contains("the replay lasts", literal=True) & (pl.col("mark") != "do not use")
    idler = why.str.starts_with("CPUs idle") & (pl.col("mark") != "do not use")
    mark = pl.when(only).then(pl.lit("trusted but for the trace")).when(early).then(pl.lit("of less work"))
    mark = mark.when(late).then(pl.lit("of another time")).when(idler).then(pl.lit("of idler CPUs"))
    rows = rows.with_columns(mark=mark.otherwise("mark"))
    both = rows.filter(pl.col("real") > 0, pl.col("n_real").fill_null(20) >= 20, pl.col("metric_class") != "")
    off = [(pl.col("real") / pl.col(name)).log().abs() for name in ("predicted", "predicted_plain")]
    both = both.select(off[0].alias("median"), off[1].alias("plain")).filter(
        pl.all_horizontal(pl.all().is_finite())
    )
    print(
        f"median error of {both.height} rows: {both['median'].median():.4f}, "
        f"of the plain replays {both['plain'].median():.4f} (logarithms)"
    )
    by = (["change_class"], ["metric_class"], ["mark"], ["doctor", "mark"], ["main", "mark"], ["a"])
    for keys in by:
        with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            print(coverage.shares(rows, keys).with_columns(pl.col(pl.Float64).round(3)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
