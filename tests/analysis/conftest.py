"""Small tables with the columns of the schema, for hand-computed cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import settings

# The first call of each polars expression compiles it, and machines that test are busy: time says
# nothing here.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

SLICES: dict[str, Any] = {
    "ts_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "cpu": pl.Int32,
    "utid": pl.UInt32,
    "tid": pl.Int64,
    "pid": pl.Int64,
    "comm": pl.Categorical,
    "prio": pl.Int32,
    "end_state": pl.Categorical,
    "involuntary": pl.Boolean,
    "wake_ts_ns": pl.Int64,
    "run_delay_ns": pl.Int64,
    "sleep_ns": pl.Int64,
    "blocked": pl.Boolean,
    "waker_utid": pl.UInt32,
    "waker_cpu": pl.Int32,
    "prev_cpu": pl.Int32,
    "seq_in": pl.UInt64,
    "seq_out": pl.UInt64,
    "flags": pl.UInt16,
}
STATES: dict[str, Any] = {
    "ts_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "utid": pl.UInt32,
    "tid": pl.Int64,
    "comm": pl.Categorical,
    "state": pl.Categorical,
    "cpu": pl.Int32,
    "reason": pl.Categorical,
    "flags": pl.UInt16,
}
RUNQUEUE: dict[str, Any] = {
    "ts_ns": pl.Int64,
    "cpu": pl.Int32,
    "nr_running": pl.Int32,
    "nr_waiting": pl.Int32,
    "flags": pl.UInt16,
}

Maker = Callable[..., pl.DataFrame]


def _fill(rows: list[dict[str, Any]], schema: dict[str, Any], defaults: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**dict.fromkeys(schema), **defaults, **row} for row in rows], schema=schema)


@pytest.fixture(scope="session")
def make_slices() -> Maker:
    """Rows as dicts; `tid` also gives `utid`, `end` gives `end_state` and `involuntary`."""

    def make(*rows: dict[str, Any]) -> pl.DataFrame:
        full = []
        for row in rows:
            row = dict(row)
            end = row.pop("end", None)
            row.setdefault("end_state", end)
            if end is not None:
                row.setdefault("involuntary", end == "preempted")
            row.setdefault("tid", 1)
            row.setdefault("utid", row["tid"])
            full.append(row)
        return _fill(full, SLICES, {"cpu": 0, "comm": "t", "flags": 0, "ts_ns": 0, "dur_ns": 0})

    return make


@pytest.fixture(scope="session")
def make_states() -> Maker:
    def make(*rows: dict[str, Any]) -> pl.DataFrame:
        full = [{"tid": 1, **row} for row in rows]
        return _fill([{"utid": r["tid"], **r} for r in full], STATES, {"comm": "t", "flags": 0})

    return make


@pytest.fixture(scope="session")
def make_runqueue() -> Maker:
    """Rows as tuples (ts, cpu, running, waiting[, flags])."""

    def make(*rows: tuple[Any, ...]) -> pl.DataFrame:
        return pl.DataFrame([(*r, 0)[:5] for r in rows], schema=RUNQUEUE, orient="row")

    return make
