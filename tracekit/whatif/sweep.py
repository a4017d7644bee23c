"""Sweeps: a grid of policies and attributes replayed on one machine or many, resumable cell by cell.

Each finished cell is a Parquet file of its own beside the result until all are done, so that a
sweep that was killed goes on where it stopped. Traces travel to workers as paths of Parquet files,
results come back as rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import _core
from tracekit.errors import FilterWarning, OutputError, ReplayError, TracekitError
from tracekit.export.files import replacing
from tracekit.io.parquet import stored_metadata
from tracekit.io.reading import convert, own_file, read
from tracekit.near import did_you_mean
from tracekit.paths import check_name, file_name
from tracekit.trace import Trace
from tracekit.whatif.comparing import compare
from tracekit.whatif.goals import Statistic, parse_statistic
from tracekit.whatif.grid import Cell, Options, cells, number, sample
from tracekit.whatif.identity import stated
from tracekit.whatif.left_out import warn
from tracekit.whatif.scenario import parse_set
from tracekit.whatif.settings import left_to_default
from tracekit.whatif.threads import wait_for_first
from tracekit.whatif.workers import Workers, given_or_own, usable_cpus

__all__ = ["Options", "Runner", "Sweep", "sweep"]

#: Share of the cells that a rung of successive halving keeps, one in so many (Jamieson and
#: Talwalkar 2016: 3 or 4), and how often each cell is replayed on each rung.
HALVING = 3
RUNGS = (1, 3, 9)
#: Which columns a finished cell has: cells of an older form are run anew.
FORM = 2
#: A cell whose worker dies so often is reported as failed: it may be what kills them.
TRIES = 3
#: Columns that come before those of a comparison.
_OWN = {
    "cell": pl.UInt32,
    "key": pl.String,
    "trace": pl.String,
    "sets": pl.String,
    "runs": pl.UInt32,
    "error": pl.String,
}


@dataclass(frozen=True)
class _Job:
    """Cells of one trace with the same sets, as a worker gets them."""

    trace: str
    name: str
    sets: tuple[str, ...]
    policies: tuple[tuple[str, str], ...]
    runs: int
    options: Options


class Sweep:
    """The result of a sweep.

    Attributes
    ----------
    table
        One row per cell, trace and row of a comparison: `cell` (UInt32, place in the grid), `key`
        (String, what identifies the cell), `trace` (String), `sets` (String, the changes of tasks),
        `runs` (UInt32, repetitions), `error` (String; why the cell has no result, else null), a
        String column for each axis of the grid, named ``axis:`` and its name, the columns of
        `tracekit.Comparison.table`, and `left_to_default` (String, what the cell's policy leaves to
        its default where the recording had another, as a sentence; null where that is nothing).
    axes
        Names of the axes.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        self.table = table
        self.axes = [c.removeprefix("axis:") for c in table.columns if c.startswith("axis:")]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Sweep:
        """Read the result of ``tracekit sweep``.

        Parameters
        ----------
        path
            The Parquet file.

        Raises
        ------
        OutputError
            When it is none that a sweep wrote.
        """
        try:
            table = pl.read_parquet(Path(path), glob=False)
        except pl.exceptions.PolarsError:
            table = pl.DataFrame()
        if missing := [name for name in _OWN if name not in table.columns]:
            found = "no Parquet file" if not table.columns else f"a table without the column {missing[0]}"
            raise OutputError(f"{os.fspath(path)}: expected the result of a sweep, found {found}")
        return cls(table)

    @property
    def failed(self) -> pl.DataFrame:
        """Cells without a result: `cell`, `trace`, the axes, and `error`."""
        rows = self.table.filter(pl.col("error").is_not_null())
        return rows.select("cell", "trace", *(f"axis:{a}" for a in self.axes), "error")

    @property
    def left_to_default(self) -> list[str]:
        """Settings of the recording that cells do not have, since their policy was not asked for them.

        A sentence for each trace and policy: that of its first cell, and how many are like it. See
        `tracekit.Comparison.left_to_default`.
        """
        if "left_to_default" not in self.table.columns:
            return []
        said = self.table.filter(pl.col("left_to_default").is_not_null()).unique(
            ["cell", "trace"], maintain_order=True
        )
        name = pl.col("policy").str.split(":").list.first()
        found = said.group_by("trace", name, maintain_order=True).agg(
            pl.col("left_to_default").first(), others=pl.len() - 1
        )
        return [
            text + (f"; {others} more cell{'s' * (others > 1)} of {policy} likewise" if others else "")
            for _, policy, text, others in found.iter_rows()
        ]

    def values(self, statistic: str | Statistic) -> pl.DataFrame:
        """One statistic of every cell.

        Parameters
        ----------
        statistic
            Such as ``response.p95(db)``, see `tracekit.whatif.goals.parse_statistic`.

        Returns
        -------
        polars.DataFrame
            `cell`, `trace`, `group` (String), a column for each axis (String), and as in
            `tracekit.Comparison.table`: `unit`, `recorded`, `identity`, `value` (what is predicted;
            a lower bound where `is_bound`), `low`, `high` (Float64; the 90 % interval where there is
            one), `verdict` (against the identity replay), `trust`.

        Raises
        ------
        ReplayError
            When no cell has it.
        """
        wanted = parse_statistic(statistic) if isinstance(statistic, str) else statistic
        if "metric" not in self.table.columns:
            why = self.table["error"].drop_nulls()
            raise ReplayError(f"no cell has a result{f': {why[0]}' if len(why) else ''}")
        rows = self.table.filter(pl.col("metric") == wanted.metric, pl.col("statistic") == wanted.statistic)
        rows = pl.DataFrame([r for r in rows.iter_rows(named=True) if wanted.names(r)], schema=rows.schema)
        if not rows.height:
            groups = sorted(self.table["group"].drop_nulls().unique().to_list())
            hint = did_you_mean(wanted.group or "", groups, ".")
            raise ReplayError(f"no cell has {wanted}{hint} The groups are {', '.join(groups) or 'none'}")
        return rows.select(
            "cell",
            "trace",
            "group",
            *(pl.col(f"axis:{a}").alias(a) for a in self.axes),
            "unit",
            "recorded",
            "identity",
            pl.col("predicted").alias("value"),
            pl.col("predicted_is_bound").alias("is_bound"),
            "low",
            "high",
            "verdict",
            "trust",
        ).sort("trace", "group", "cell")

    def pivot(self, statistic: str | Statistic, column: str = "value") -> pl.DataFrame:
        """A statistic over the axes: the first as rows, the others as columns.

        Parameters
        ----------
        statistic
            As for `values`.
        column
            Which column of `values` is spread: ``trust`` says of each value how far it goes.

        Returns
        -------
        polars.DataFrame
            `trace` and `group` where there are several, the first axis (String, in order), and a
            column of the values' type for each combination of the other axes, or `value`.
        """
        found = self.values(statistic)
        lead = [c for c in ("trace", "group") if found[c].n_unique() > 1]
        first, *others = self.axes or ["cell"]
        on = (
            pl.concat_str([pl.lit(f"{o}=") + pl.col(o) for o in others], separator=", ")
            if others
            else pl.lit("value")
        )
        wide = found.with_columns(on.alias("on")).pivot(
            "on", index=[*lead, first], values=column, aggregate_function="first", maintain_order=True
        )
        order = {v: i for i, v in enumerate(sorted(found[first].unique().to_list(), key=_rank))}
        return wide.sort(*lead, pl.col(first).replace_strict(order, return_dtype=pl.UInt32))

    def front(self, goals: Sequence[tuple[str | Statistic, bool]]) -> pl.DataFrame:
        """The cells that no other is better than in all statistics at once (the Pareto set).

        Parameters
        ----------
        goals
            Statistics, each with True where less is better.

        Returns
        -------
        polars.DataFrame
            `cell`, the axes, and a Float64 column for each statistic, named as it is written;
            sorted by the first. Of several groups or traces the worst counts.

        Raises
        ------
        ReplayError
            When no cell has one of the statistics.
        """
        joined: pl.DataFrame | None = None
        signs: dict[str, int] = {}
        for statistic, less in goals:
            wanted = parse_statistic(statistic) if isinstance(statistic, str) else statistic
            worst = pl.col("value").max() if less else pl.col("value").min()
            column = self.values(wanted).group_by("cell").agg(worst.alias(str(wanted)))
            signs[str(wanted)] = 1 if less else -1
            joined = column if joined is None else joined.join(column, on="cell")
        if joined is None:
            raise ReplayError("expected a statistic or more, such as response.p95(db)")
        rows = joined.drop_nulls().to_dicts()

        def beaten(row: Mapping[str, Any]) -> bool:
            return any(
                all(s * other[n] <= s * row[n] for n, s in signs.items())
                and any(s * other[n] < s * row[n] for n, s in signs.items())
                for other in rows
            )

        best = pl.DataFrame([row for row in rows if not beaten(row)], schema=joined.schema)
        axes = self.table.select("cell", *(pl.col(f"axis:{a}").alias(a) for a in self.axes)).unique("cell")
        return axes.join(best, on="cell").sort(next(iter(signs)))

    def __repr__(self) -> str:
        """Name the axes, and count the cells and those without a result."""
        cells, failed = (frame["cell"].n_unique() for frame in (self.table, self.failed))
        without = f", {failed} of them without a result" if failed else ""
        return f"<Sweep of {cells} cells over {', '.join(self.axes) or 'nothing'}{without}>"


def _rank(value: Any) -> tuple[int, float, str]:
    as_number = number(str(value))
    return (0, as_number, "") if as_number is not None else (1, 0.0, str(value))


@lru_cache(maxsize=2)
def _trace(path: str) -> Trace:
    """A trace, kept by the worker that has read it."""
    return read(path)


def _evaluate(job: _Job) -> list[tuple[str, bytes]]:
    """Run cells in a worker: for each its key and its rows, packed."""
    trace = _trace(job.trace)
    options = asdict(job.options)
    scenario = [parse_set(text) for text in job.sets]
    own = options["identity"] or stated(trace)[0] if any(not p for _, p in job.policies) else ""
    policies = {key: policy or own for key, policy in job.policies}
    found: dict[str, pl.DataFrame] = {}
    try:
        with warnings.catch_warnings():
            # It was warned of once, for all cells.
            warnings.simplefilter("ignore", FilterWarning)
            made = compare(trace, policies, scenario=scenario, runs=job.runs, jobs=1, **options)
        table = made.table
        for key, policy in policies.items():
            left = left_to_default(policy, getattr(made.replays[key], "policy", ""), made.identity_policy)
            found[key] = table.filter(policy=key).with_columns(
                policy=pl.lit(policy), left_to_default=pl.lit(left, pl.String)
            )
    except TracekitError as error:
        if len(job.policies) > 1:
            # One of them has no replay: which one shows when each is run alone.
            return [r for one in job.policies for r in _evaluate(_alone(job, one))]
        (key,) = policies
        found[key] = pl.DataFrame({"policy": [policies[key]], "error": [str(error)]})
    return [(key, _packed(key, job, rows)) for key, rows in found.items()]


def _alone(job: _Job, policy: tuple[str, str]) -> _Job:
    return _Job(job.trace, job.name, job.sets, (policy,), job.runs, job.options)


def _packed(key: str, job: _Job, rows: pl.DataFrame) -> bytes:
    own: dict[str, Any] = {"key": key, "trace": job.name, "sets": "; ".join(job.sets), "runs": job.runs}
    if "error" not in rows.columns:
        own["error"] = None
    return _written(rows.hstack([_constant(k, v, _OWN[k], rows) for k, v in own.items()]))


def _constant(name: str, value: Any, dtype: Any, beside: pl.DataFrame) -> pl.Series:
    """A column of one value. An expression would take another thread, which costs more than the column."""
    return pl.Series(name, [value], dtype).new_from_index(0, beside.height)


def _written(rows: pl.DataFrame) -> bytes:
    """As Arrow's stream: a fifth of the time of Parquet for tables so small, and no larger."""
    out = io.BytesIO()
    rows.write_ipc_stream(out, compression="zstd")
    return out.getvalue()


class _Store:
    """Finished cells on disk, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.arrows"

    def has(self, key: str) -> bool:
        return self.path(key).exists()

    def put(self, key: str, packed: bytes) -> None:
        with replacing(self.path(key)) as file:
            file.write(packed)

    def get(self, key: str) -> pl.DataFrame:
        return pl.read_ipc_stream(self.path(key))


def _key(identity: str, cell: Cell, runs: int, options: Options) -> str:
    """What makes a cell: the same key, the same result."""
    policy = _core.parse_policy(cell.policy) if cell.policy else ""
    parts = [_core.__version__, FORM, identity, policy, cell.sets, runs, asdict(options)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _jobs(
    todo: Sequence[tuple[str, str, str, Cell]], runs: int, options: Options, workers: int
) -> list[_Job]:
    """Cells in portions that share an identity replay, several for each worker."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for key, path, name, cell in todo:
        groups.setdefault((path, name, cell.sets), []).append((key, cell.policy))
    size = max(1, min(8, math.ceil(len(todo) / (4 * workers))))
    return [
        _Job(path, name, sets, tuple(members[i : i + size]), runs, options)
        for (path, name, sets), members in groups.items()
        for i in range(0, len(members), size)
    ]


def _run(executor: Executor, jobs: Iterable[_Job], keep: Callable[[str, bytes], object]) -> None:
    """Run jobs and keep what each gives, in any order.

    Those that a dying worker took along are run again.
    """
    tries: dict[_Job, int] = dict.fromkeys(jobs, 0)
    while tries:
        for job in tries:
            tries[job] += 1
        waiting = {executor.submit(_evaluate, job): job for job in tries}
        try:
            _collect(waiting, tries, keep)
        except BaseException:
            # Workers of our own are ended with their block: what is called off then is an error to them.
            for future in () if isinstance(executor, Workers) else waiting:
                future.cancel()
            raise
        for job in [job for job, count in tries.items() if count >= TRIES]:
            del tries[job]
            for key, policy in job.policies:
                why = f"its worker ended {TRIES} times while it ran this cell; is there memory enough?"
                keep(key, _packed(key, job, pl.DataFrame({"policy": [policy], "error": [why]})))


def _collect(
    waiting: Mapping[Future[list[tuple[str, bytes]]], _Job],
    tries: dict[_Job, int],
    keep: Callable[[str, bytes], object],
) -> None:
    """Keep results as they come; `tries` keeps the jobs whose worker died."""
    left = set(waiting)
    while left:
        done, left = wait_for_first(left)
        for future in done:
            try:
                found = future.result()
            except BrokenProcessPool:
                continue
            del tries[waiting[future]]
            for key, packed in found:
                keep(key, packed)


class Runner:
    """Replays cells of a few traces, and keeps what was found.

    Parameters
    ----------
    files
        Traces, of any format.
    folder
        Where finished cells are kept, a file each, and the traces as Parquet.
    options
        How each cell is replayed.
    executor
        Where.
    """

    def __init__(
        self, files: Iterable[str | os.PathLike[str]], folder: Path, options: Options, executor: Executor
    ) -> None:
        self.store = _Store(folder)
        self.options = options
        self._executor = executor
        self._sources = [_source(Path(f), folder) for f in files]

    @property
    def paths(self) -> list[str]:
        """The traces as Parquet."""
        return [path for _, path, _ in self._sources]

    def run(
        self, asked: Sequence[Cell], runs: int, progress: Callable[[int, int], object] | None = None
    ) -> dict[tuple[str, Cell], pl.DataFrame]:
        """Rows of each cell, by name of the trace and cell.

        Those that were found before are not run again.
        """
        wanted = {
            (name, cell): (_key(identity, cell, runs, self.options), path)
            for identity, path, name in self._sources
            for cell in asked
        }
        todo = [
            (key, path, name, cell) for (name, cell), (key, path) in wanted.items() if not self.store.has(key)
        ]
        # What is there is read while the workers go on.
        rows: dict[str, pl.DataFrame] = {}
        done = len(wanted) - len(todo)

        def keep(key: str, packed: bytes) -> None:
            nonlocal done
            self.store.put(key, packed)
            rows[key] = pl.read_ipc_stream(packed)
            done += 1
            if progress is not None:
                progress(done, len(wanted))

        if progress is not None:
            progress(done, len(wanted))
        workers = self._executor.jobs if isinstance(self._executor, Workers) else usable_cpus()
        _run(self._executor, _jobs(todo, runs, self.options, workers), keep)
        return {
            place: rows[key] if key in rows else self.store.get(key) for place, (key, _) in wanted.items()
        }


def sweep(
    traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    policies: str | Sequence[str] = (),
    sets: Sequence[str] = (),
    *,
    output: str | os.PathLike[str] | None = None,
    search: str = "grid",
    seed: int = 0,
    runs: int = 3,
    jobs: int | None = None,
    executor: Executor | None = None,
    options: Options | Mapping[str, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Sweep:
    """Replay traces under every cell of a grid.

    Parameters
    ----------
    traces
        Files of traces, of any format.
    policies
        Policies, whose values can be ranges and lists: ``cfs:wakeup_granularity=0..4ms/9``; see
        `tracekit.whatif.grid`. None: the policy that each trace was captured under.
    sets
        Changes of tasks, likewise: ``batch*: nice=0..19/5``.
    output
        Parquet file for the result. Finished cells are kept beside it, in a folder named
        ``OUTPUT.cells``, until all are done: a sweep that was stopped goes on there, and cells of
        an earlier result are taken from it.
    search
        ``grid`` (every cell), ``random:N`` (N cells drawn with `seed`), or ``halving:STATISTIC``:
        every cell once, the best third three times, the best third of those nine times; less is
        better (``halving:-STATISTIC`` where more is).
    seed
        For ``random``.
    runs
        Repetitions of each cell, for the interval; see `tracekit.compare`. ``halving`` has its own.
    jobs
        Processes on this machine; by default one for each CPU.
    executor
        Where to run instead: any `concurrent.futures.Executor`, such as
        ``distributed.Client(...).get_executor()``. Its workers must see the folder of `output`.
    options
        How each cell is replayed: `Options`, or some of them by name, ``{"by": "comm"}``.
    progress
        Called with the number of cells that are done, and of all.

    Returns
    -------
    Sweep
        The same for any number of workers.

    Raises
    ------
    ReplayError
        When a text is not understood. A cell whose replay fails is a row with its `error`.
    OutputError
        When `output` is no Parquet file, or one that no sweep wrote.
    TypeError
        When `options` names what is no option.
    """
    options = Options.of(options)
    grid = cells([policies] if isinstance(policies, str) else list(policies), list(sets))
    for text in {text for cell in grid for text in cell.sets}:
        parse_set(text)
    rungs, goal, grid = _searched(search, grid, seed, runs)
    files = [traces] if isinstance(traces, str | os.PathLike) else list(traces)
    target = None if output is None else Path(output)
    if target is not None and target.suffix != ".parquet":
        raise OutputError(f"{target}: expected a name that ends in .parquet")
    if target is not None and target.is_dir():
        raise OutputError(f"{target}: expected the name of a file, found a directory")
    # What stands there already gives its cells; a device gives none.
    earlier = Sweep.read(target).table if target is not None and target.is_file() else None
    with _place(target) as folder, given_or_own(jobs, executor) as workers:
        runner = Runner(files, folder, options, workers)
        if earlier is not None:
            _unpack(earlier, runner.store)
        numbers = {cell: i for i, cell in enumerate(grid)}
        found: dict[tuple[str, Cell], pl.DataFrame] = {}
        for rung, count in enumerate(rungs):
            rows = runner.run(grid, count, progress)
            found |= rows
            if goal is not None and rung + 1 < len(rungs):
                grid = _best(rows, grid, goal)
        if isinstance(workers, Workers):
            # They end while their cells are put together.
            workers.shutdown(wait=False)
        labelled = [_labelled(rows, cell, numbers[cell]) for (_, cell), rows in found.items()]
        table = pl.concat(labelled, how="diagonal_relaxed")
        axes = dict.fromkeys(f"axis:{name}" for cell in numbers for name, _ in cell.axes)
        lead = [*_OWN, *(axis for axis in axes if axis in table.columns)]
        table = table.select(*lead, pl.exclude(lead)).sort("trace", "cell", maintain_order=True)
        if target is not None:
            # polars says of a full disk what is no error of the system.
            packed = io.BytesIO()
            table.write_parquet(packed)
            with replacing(target) as file:
                file.write(packed.getbuffer())
    if target is not None:
        shutil.rmtree(_cells_of(target), ignore_errors=True)
    return Sweep(table)


def _searched(
    search: str, grid: list[Cell], seed: int, runs: int
) -> tuple[tuple[int, ...], tuple[Statistic, bool] | None, list[Cell]]:
    kind, _, rest = search.partition(":")
    if kind == "grid" and not rest:
        return (runs,), None, grid
    if kind == "random" and rest.isdigit() and int(rest):
        return (runs,), None, sample(grid, int(rest), seed)
    if kind == "halving" and rest:
        return RUNGS, (parse_statistic(rest.removeprefix("-")), not rest.startswith("-")), grid
    raise ReplayError(
        f"search {search!r}: expected grid, random:N, or halving:STATISTIC such as halving:response.p95(db)"
    )


def _best(
    rows: Mapping[tuple[str, Cell], pl.DataFrame], grid: Sequence[Cell], goal: tuple[Statistic, bool]
) -> list[Cell]:
    """The third of the cells that is best, by the worst trace and group of each."""
    statistic, less = goal
    worst: dict[Cell, float] = {}
    for (_, cell), table in rows.items():
        if "metric" not in table.columns:
            continue
        for row in statistic.rows(table.to_dicts()):
            if row["predicted"] is not None:
                value = row["predicted"] if less else -row["predicted"]
                worst[cell] = max(worst.get(cell, -math.inf), value)
    # Cells that are alike keep their order.
    ranked = sorted((cell for cell in grid if cell in worst), key=lambda cell: worst[cell])
    if not ranked:
        raise ReplayError(f"no cell has {statistic}")
    return ranked[: math.ceil(len(ranked) / HALVING)]


def _labelled(rows: pl.DataFrame, cell: Cell, place: int) -> pl.DataFrame:
    axes = [_constant(f"axis:{name}", value, None, rows) for name, value in cell.axes]
    return rows.hstack([_constant("cell", place, pl.UInt32, rows), *axes])


def _cells_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.cells")


@contextlib.contextmanager
def _place(target: Path | None) -> Iterator[Path]:
    """The folder of finished cells; it goes with the process where no result is asked for."""
    if target is None:
        with tempfile.TemporaryDirectory(prefix="tracekit-sweep-") as folder:
            yield Path(folder)
        return
    check_name(target)
    if not target.parent.is_dir():
        raise OutputError(f"{target}: there is no folder {target.parent}")
    yield _cells_of(target)


def _unpack(table: pl.DataFrame, store: _Store) -> None:
    """Take the cells of an earlier result."""
    plain = [c for c in table.columns if c != "cell" and not c.startswith("axis:")]
    for (key,), rows in (
        table.filter(pl.col("error").is_null()).select(plain).group_by("key", maintain_order=True)
    ):
        if not store.has(str(key)):
            store.put(str(key), _written(rows))


def _source(file: Path, folder: Path) -> tuple[str, str, str]:
    """Identity of a trace, the Parquet file in which it travels, and its name."""
    if not file.is_file():
        why = "several processes read a trace: write it to a file" if str(file) == "-" else "no such file"
        raise OutputError(f"{file}: {why}")
    if (kind := own_file(os.fspath(file))) is not None:
        warn(stored_metadata(os.fspath(file), kind))
    digest = _core.blake3(file)
    place = folder / f"trace-{digest[:24]}.parquet"
    if not place.exists():
        convert(file, place)
    return digest, os.fspath(place.resolve()), file_name(file)
