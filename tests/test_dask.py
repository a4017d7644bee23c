"""What the extra `dask` is for: converted traces as dask dataframes, and traces and policies on
many workers."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit as tk
from tracekit._frames import TABLES

if TYPE_CHECKING:
    from distributed import Client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    distributed = pytest.importorskip("distributed", reason="pip install 'tracekit[dask]'")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_trace_and_a_replay_can_be_pickled(trace: tk.Trace) -> None:
    replay = tk.replay(trace, "rr:quantum=10ms")
    for one in (trace, replay):
        other: Any = pickle.loads(pickle.dumps(one))
        assert type(other) is type(one)
        assert (other.name, other.metadata) == (one.name, one.metadata)
        for table in TABLES:
            assert other.table(table).equals(one.table(table))
            assert other.table(table).schema == one.table(table).schema
    again = pickle.loads(pickle.dumps(replay))
    assert (again.policy, again.wakeups) == (replay.policy, replay.wakeups)
    assert tk.replay(pickle.loads(pickle.dumps(trace)), "fifo").slices.equals(tk.replay(trace, "fifo").slices)


def test_other_processes_take_traces_as_they_are(trace: tk.Trace) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(tk.analysis.slices.summary, (trace.slices,)).equals(
            tk.analysis.slices.summary(trace.slices)
        )


def test_workers_replay_a_trace_under_many_policies(client: Client, trace: tk.Trace) -> None:
    policies = ["rr:quantum=10ms", "rr:quantum=100ms", "fifo"]
    held = client.scatter(trace)
    found = client.gather([client.submit(tk.replay, held, policy) for policy in policies])
    for policy, replay in zip(policies, found, strict=True):
        assert replay.slices.equals(tk.replay(trace, policy).slices), policy


@pytest.mark.parametrize("table", ["events", "slices", "tasks"])
def test_a_converted_trace_is_a_dask_dataframe(
    table: str, trace: tk.Trace, demo: Path, tmp_path: Path
) -> None:
    pytest.importorskip("dask.dataframe", reason="pip install 'tracekit[dask]'")
    import dask.dataframe as dd

    path = tmp_path / "trace.parquet"
    tk.convert(demo, path, table=table)
    frame = dd.read_parquet(path, split_row_groups=True, dtype_backend="numpy_nullable")
    theirs = pl.from_pandas(frame.compute(scheduler="synchronous"))
    ours = trace.table(table).with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    assert theirs.columns == ours.columns
    for column, dtype in ours.schema.items():
        # Integers stay integers where they can be null: a float would lose nanoseconds.
        assert theirs.schema[column] == dtype or dtype == pl.String, column
        assert theirs[column].cast(dtype).to_list() == ours[column].to_list(), column


def test_sums_over_partitions_are_those_of_the_trace(
    trace: tk.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask.dataframe", reason="pip install 'tracekit[dask]'")
    import dask.dataframe as dd

    path = tmp_path / "slices.parquet"
    monkeypatch.setattr("tracekit.io.writers.ROW_GROUP", 1000)
    trace.write(path, table="slices")
    frame = dd.read_parquet(path, split_row_groups=True, dtype_backend="numpy_nullable")
    assert frame.npartitions == -(-len(trace.slices) // 1000)
    sums = frame.groupby("comm", observed=True)["dur_ns"].sum().compute(scheduler="synchronous")
    expected = trace.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum())
    assert dict(sums.items()) == dict(expected.iter_rows())
