"""SQL by DuckDB: on the tables of a trace, and on a folder of many."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.io.query import query

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_tables_are_there_under_their_names(trace: tk.Trace) -> None:
    (row,) = query(
        trace, "select count(*), sum(dur_ns) from slices join tasks using (utid) where not is_idle"
    ).rows()
    tasks = trace.tasks.filter(is_idle=False)["utid"]
    slices = trace.slices.filter(trace.slices["utid"].is_in(tasks.implode()))
    assert row == (slices.height, slices["dur_ns"].sum())


def test_a_query_reaches_no_file(trace: tk.Trace, root: Path) -> None:
    for sql in (
        f"select * from read_csv('{root / 'setup.cfg'}')",
        "copy slices to 'out.csv'",
        "set enable_external_access = true",
    ):
        with pytest.raises(TracekitError, match=r"duckdb: .*(disabled|Cannot|cannot)"):
            query(trace, sql)
    with pytest.raises(TracekitError, match="nosuch"):
        query(trace, "select nosuch from slices")


def test_the_command_takes_the_engine(tracekit: Run, demo: Path) -> None:
    run = tracekit("sql", demo, "--engine", "duckdb", "select count(*) as n from slices", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout) == [{"n": tk.read(demo).slices.height}]


def test_a_folder_of_traces_is_one_table(tmp_path: Path) -> None:
    """The layout and the query of docs/guide/sweeps.md."""
    for host, quantum in (("a", "1ms"), ("b", "4ms")):
        folder = tmp_path / "slices" / f"host={host}" / "boot=1" / "date=2026-11-22"
        folder.mkdir(parents=True)
        run = tk.simulate("until: 40\nA: R∞\nB: R∞", policy=f"rr:quantum={quantum}")
        run.write(folder / "boot.parquet", table="slices")
    sql = f"""
        select host, avg(dur_ns) / 1e6 as mean_ms
        from read_parquet('{tmp_path}/slices/**/*.parquet', hive_partitioning = true)
        where date = '2026-11-22' and end_state is not null
        group by host order by host
    """
    assert duckdb.sql(sql).fetchall() == [("a", 1.0), ("b", 4.0)]
