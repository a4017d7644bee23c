"""`python -m validation.fresh DIR [-o FILE] [--rows FILE]`."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.export.files import replacing
from tracekit.whatif.pace import IDLER, idle_share
from tracekit.whatif.predictions import WAITS
from tracekit.whatif.scenario import parse_set
from validation import fresh

#: Parts of times by their length, in order, to the least of it, us: a switch takes some 3 to 5 us.
NAMES = {
    "0 under 15 us": 0,
    "1 15 to 40 us": 15,
    "2 40 to 100 us": 40,
    "3 100 us to 1 ms": 100,
    "4 over 1 ms": 1000,
}
NUMBERS = "5 numbers, no times"
#: Factor between two values that really differ, as in docs/validation-several.md.
FAR = 1.1
#: What a switch costs is taken this many times, to show how much hangs on it.
TIMES = (0.0, 0.5, 1.0, 2.0)


def rows_of(
    folder: Path, pair: dict[str, str], costs: dict[str, str] | None = None
) -> tuple[pl.DataFrame, list[list[str]]]:
    """The rows of one comparison, held against the other recording; groups whose work is done sooner."""
    changes, policy = [parse_set(pair["set"])] if pair["set"] else None, pair.get("policy") or ()
    compared = tk.compare(folder / pair["a"], policy, scenario=changes, real=folder / pair["b"], costs=costs)
    found = compared.table
    used = found.filter(pl.col("metric") == "cpu_time", pl.col("scope") == "group", pl.col("real") > 0)
    real = {r["group"]: r["real"] / r["recorded"] for r in used.iter_rows(named=True) if r["recorded"]}
    early = [
        [pair["a"], pair["b"], str(s.group), f"{s.recorded_ns / s.replayed_ns:.2f}", f"{real[s.group]:.2f}"]
        for groups in compared.sooner.values()
        for s in groups
        if s.group in real
    ]
    own = found.filter(pl.col("metric") == "slice", pl.col("statistic") == "mean")
    keys = ["scope", "group"]
    found = found.join(own.select(*keys, mean_slice="predicted"), on=keys, how="left", nulls_equal=True)
    changed = pair["set"].partition(": ")[2] or pair.get("policy") or "nothing"
    (run,) = compared.replays.values()
    more = (idle_share(run) or 0) - (idle_share(compared.trace) or 0)
    found = found.with_columns(
        a=pl.lit(pair["a"]),
        b=pl.lit(pair["b"]),
        workload=pl.lit(pair["workload"]),
        changed=pl.lit(changed),
        idle=pl.lit(more),
    )
    return found, early


def half_width(times: float = 1.0) -> pl.Expr:
    """How far an interval reaches to the side of the real value, a switch's cost taken so many times."""
    up, down = (pl.col("high") / pl.col("predicted")).log(), (pl.col("predicted") / pl.col("low")).log()
    half = pl.when(pl.col("real") > pl.col("predicted")).then(up).otherwise(down)
    short = pl.col("switch_pct").fill_null(0) / 100
    other = ((short.exp() - 1) * times).log1p()
    return (half**2 - short**2 + other**2).clip(0).sqrt()


def inside(times: float = 1.0) -> pl.Expr:
    """Share of the real values inside such intervals, as text."""
    held = (pl.col("real") / pl.col("predicted")).log().abs() <= half_width(times)
    return pl.format("{} %", (100 * held.mean()).round(0).cast(pl.Int64))


def shares(rows: pl.DataFrame, key: str) -> list[list[str]]:
    """Rows of a table: the key, and for trusted rows and those with care n, inside, median error."""
    out = []
    for value in sorted(rows[key].unique().to_list()):
        cells = [value[2:] if key == "part" else value]
        for trust in ("trusted", "with care"):
            part = rows.filter(pl.col(key) == value, trust=trust)
            share = part.select(pl.col("inside").mean(), pl.col("error").median()).row(0)
            cells += [str(part.height), *("-" if v is None else f"{100 * v:.0f} %" for v in share)]
        out.append(cells)
    return out


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parted(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that can be judged, with `error` and `part`: which of `NAMES` a time is in."""
    judged = rows.filter(
        pl.col("inside").is_not_null(),
        pl.col("trust") != "do not use",
        pl.col("predicted") > 0,
        pl.col("real") > 0,
    )
    own = pl.when(pl.col("metric").is_in(["slice", *WAITS])).then("predicted")
    us = own.otherwise(pl.when(pl.col("unit") == "ns").then("mean_slice")) / 1e3
    part = pl.lit(NUMBERS)
    for name, least in NAMES.items():
        part = pl.when(us > least).then(pl.lit(name)).otherwise(part)
    error = (pl.col("predicted") / pl.col("real") - 1).abs()
    return judged.with_columns(part=part, error=error)


def only(why: str) -> pl.Expr:
    """Rows that are not trusted for the reason that begins so, and for no other."""
    said = pl.col("trust_why")
    return said.str.starts_with(why) & ~said.str.contains(";", literal=True)


def beside(name: str, part: pl.DataFrame) -> list[str]:
    """Row of a table: how many rows, inside, median error."""
    share = part.select(pl.col("inside").mean(), pl.col("error").median()).row(0)
    return [name, str(part.height), *("-" if v is None else f"{100 * v:.0f} %" for v in share)]


def ways(held: pl.DataFrame) -> list[list[str]]:
    """Rows of a table: changes that are said to be resolved, by trust, and how many have the right sign."""
    said = held.filter(pl.col("resolved").fill_null(False), pl.col("recorded") > 0)
    real = pl.col("real") / pl.col("recorded")
    right = (real - 1).sign() == pl.col("change_pct").sign()
    out = []
    for trust in ("trusted", "with care"):
        cells = [trust]
        for part in (said.filter(trust=trust), said.filter(real.log().abs() > math.log(FAR), trust=trust)):
            share = part.select(right.mean()).item()
            cells += [str(part.height), "-" if share is None else f"{100 * share:.0f} %"]
        out.append(cells)
    return out


def page(rows: pl.DataFrame, early: Sequence[Sequence[str]], pairs: int, system: str) -> str:
    """The page; `early`: groups whose work is done sooner, as `rows_of` gives them."""
    held = parted(rows)
    kinds = ["rows", "inside", "median error"]
    head = [*kinds, *(f"{k}, with care" for k in kinds)]
    short = list(NAMES)[:2]
    doubled = []
    for times in TIMES:
        shown = [held.filter(pl.col("part") == name) for name in short] + [held]
        width = held.select(half_width(times).median()).item()
        doubled.append(
            [
                f"{times:g}",
                *(part.select(inside(times)).item() or "-" for part in shown),
                f"{100 * width:.0f} %",
            ]
        )
    trusted = pl.col("trust") == "trusted"
    totals = held.filter(statistic="total")
    longer = [
        beside("about as long", totals.filter(trusted)),
        beside("longer", totals.filter(only("the replay lasts"))),
    ]
    otherwise = held.filter(trusted | only("CPUs idle"))
    idler = [beside(f"at most {100 * IDLER:.0f} points more", otherwise.filter(pl.col("idle") <= IDLER))]
    for least in (IDLER / 2, IDLER, 2 * IDLER):
        idler.append(beside(f"over {100 * least:.0f} points more", otherwise.filter(pl.col("idle") > least)))
    every = held.with_columns(all=pl.lit("all"))
    return f"""# Fresh recordings: what predictions are worth on a machine that nothing was fitted to

Written by `python -m validation.fresh`. {pairs} pairs of recordings of 2.6 s by `perf sched record`
({system}), made by `validation/fresh/record.sh`: a build (`make -j4`),
compression, a web server, a pipeline, a pool of workers, a parent that polls its workers, threads that
share a lock, threads that wait for each other, senders and receivers of messages, short commands, and
where they are installed a server in Node, thread pools in Java and Rust, goroutines in Go, PostgreSQL
with pgbench, Redis with its benchmark, and nginx with wrk, each beside others that take CPU time. No
rule was found with these recordings; those for pools in Rust and for messages were found with earlier
ones of the same programs, and the one for threads that wait for each other with a program alike. A
recording is predicted from another one, in which nothing was changed, by `tracekit compare A --set
CHANGE --real B`, or with `--under` from one of the same under another kernel, by `tracekit compare A
--policy linux-VERSION --real B`. *Inside*: the 90 % interval holds the real value; rows with fewer than
20 real samples, without an interval or marked `do not use` are left out. The first columns are of rows
marked `trusted`.

{table(["", *head], shares(every, "all"))}

## By what was changed

{table(["change", *head], shares(held, "changed"))}

*nothing*: one recording is predicted from another of the same. `weight`, `quota` and `idle` are of the
group of the tasks in the background (cgroups, the others in a second group), and are predicted from
recordings with both groups alike.

## By workload

{table(["workload", *head], shares(held, "workload"))}

## By length of time

Of times their own length, of CPU time and slices per involuntary switch the mean slice of the group.

{table(["length", *head], shares(held, "part"))}

## Which way

Rows whose change is said to be resolved (larger than what the replays get wrong), and how many of the real
values lie on that side of the recorded one; the same of those that really differ by over
{100 * (FAR - 1):.0f} %:

{table(["trust", "resolved", "right side", "really changed", "right side"], ways(held))}

## Work that is done sooner

Groups that ran until the end of the recording and do the same work sooner in the replay
([Definitions](definitions.md#predictions)): how many times as fast, and how many times the CPU time the
group used in the other recording.

{table(["recording", "predicted", "group", "times as fast", "real CPU time"], early)}

## Replays that last longer

Totals of replays up to 1.1 times as long as the recording that are trusted, and of longer ones that are
not trusted only for that ([Definitions](definitions.md#predictions)):

{table(["replay", *kinds], longer)}

## Replays that idle more

Trusted rows, and rows that are not trusted only since the CPUs of the replay are idle for over
{100 * IDLER:.0f} points more of their time than recorded ([Definitions](definitions.md#predictions)):

{table(["idle", *kinds], idler)}

## What a switch costs

Two recordings of the same differ in short times by more than samples and replays say: caches are
cold behind a switch, an idle CPU has to wake. The interval holds log(1 + x / v), x what a switch costs
in the trace and v the time ([Definitions](definitions.md#predictions)). It was found on 48 pairs of
earlier recordings of a machine with Linux 6.18 (a build, compression, a web server, a pipeline): of values
under 15 us 76 % were inside without it, 89 % with it, of those over 100 us 95 % in both cases. Left out,
halved, as it is, and doubled:

{table(["times x", *(f"inside, {name[2:]}" for name in short), "inside, all", "median half-width"], doubled)}
"""


def under_another(folder: Path, other: Path) -> list[dict[str, str]]:
    """Pairs of a recording and one of another round, of the same, under the kernel of `other`."""
    with (folder / "pairs.tsv").open() as file:
        known = {p["b"]: p["workload"] for p in csv.DictReader(file, delimiter="\t")}
    found = []
    for name, workload in sorted(known.items()):
        stem = name.rpartition("-")[0]
        real = next((f for f in sorted(other.glob(f"{stem}-*.data")) if f.name != name), None)
        if real is not None and (folder / name).exists():
            policy = f"linux-{tk.read(real).metadata['kernel']}"
            found.append(
                {"a": name, "b": str(real.absolute()), "workload": workload, "set": "", "policy": policy}
            )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 2 where there is nothing to hold predictions against."""
    parser = argparse.ArgumentParser(prog="python -m validation.fresh", description=fresh.__doc__)
    parser.add_argument("folder", type=Path, help="where record.sh wrote")
    parser.add_argument("-o", "--output", type=Path, help="page of Markdown, else standard output")
    parser.add_argument("--cost", action="append", metavar="KEY=TIME", help="in place of what was measured")
    parser.add_argument("--rows", type=Path, help="write every row, a line of Parquet each, to look into")
    parser.add_argument(
        "--under",
        type=Path,
        metavar="DIR",
        help="predict the recordings of this folder, under another kernel",
    )
    given = parser.parse_args(argv)
    known = given.folder / "pairs.tsv"
    if not known.exists():
        print(
            f"validation: no {known}: `sh validation/fresh/record.sh {given.folder}` records", file=sys.stderr
        )
        return 2
    if given.under is not None:
        pairs = under_another(given.folder, given.under)
    else:
        with known.open() as file:
            pairs = [p for p in csv.DictReader(file, delimiter="\t") if p["a"] != p["b"]]
    costs = {key: time for key, _, time in (cost.partition("=") for cost in given.cost or ())} or None
    frames, early = [], []
    for number, pair in enumerate(pairs, 1):
        print(f"{number} of {len(pairs)}: {pair['a']} -> {pair['b']}", file=sys.stderr)
        try:
            frame, sooner = rows_of(given.folder, pair, costs)
            frames.append(frame)
            early += sooner
        except TracekitError as error:
            print(f"validation: {pair['a']} as {pair['b']}: {error}", file=sys.stderr)
    if not frames:
        print(f"validation: no pair of {known} could be predicted", file=sys.stderr)
        return 2
    first = tk.read(given.folder / pairs[0]["a"])
    system = f"{first.metadata.get('os')} {first.metadata.get('kernel')}, {first.cpus.height} CPUs"
    rows = pl.concat(frames, how="diagonal_relaxed")
    if given.rows is not None:
        with replacing(given.rows) as out:
            rows.write_parquet(out)
    text = page(rows, early, len(frames), system)
    if given.output is None:
        print(text, end="")
    else:
        with replacing(given.output) as out:
            out.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
