"""Which captures are given groups by what their tasks got, held against the groups that were set.

    python -m validation.sharing testdata/lab testdata/lab2

A capture is in groups where NAME.groups.tsv lies beside it. Every other one must be given none. Prints
those that are in groups or are given some, how far a replay is off without and with them, and the sums.
"""

from __future__ import annotations

from pathlib import Path

import click
import polars as pl

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.whatif.sharing import learned


def agreement(trace: tk.Trace, groups: dict[int, str], table: Path) -> float:
    """Share of the pairs of tasks that are together in both or in neither."""
    set_to = dict(pl.read_csv(table, separator="\t").select("comm", "group").iter_rows())
    names = dict(trace.tasks.select("tid", pl.col("comm").cast(pl.String)).iter_rows())
    both = [(set_to[names[tid]], at) for tid, at in groups.items() if names.get(tid) in set_to]
    pairs = [(a, b) for i, a in enumerate(both) for b in both[:i]]
    return sum((a[0] == b[0]) == (a[1] == b[1]) for a, b in pairs) / max(len(pairs), 1)


@click.command(help=__doc__)
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(folders: tuple[Path, ...]) -> None:
    """See the module."""
    counts = {True: [0, 0], False: [0, 0]}
    for file in sorted(f for folder in folders for f in folder.rglob("*.dat")):
        table = file.with_name(f"{file.stem}.groups.tsv")
        try:
            trace = tk.read(file)
            found = learned(trace)
        except TracekitError as error:
            print(f"{file.parent.name}/{file.name}: {error}")
            continue
        counts[table.is_file()][0] += 1
        counts[table.is_file()][1] += found is not None
        if found is None:
            if table.is_file():
                print(f"{file.parent.name}/{file.name}: none are found")
            continue
        said = f"{len(found.tasks)} groups, {found.without:.3f} of the CPU time off without, {found.within:.3f} with"
        if table.is_file():
            said += f"; {100 * agreement(trace, found.group, table):.0f} % of pairs of tasks as they were set"
        print(f"{file.parent.name}/{file.name}: {said}")
    for grouped, (captures, given) in counts.items():
        print(f"{'in' if grouped else 'not in'} groups: {captures} captures, {given} are given some")


if __name__ == "__main__":
    main()
