"""The trace as an object: filters, conversions, how it shows itself."""

from __future__ import annotations

import datetime
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tracekit import _core, filters
from tracekit._frames import to_frame, typed
from tracekit.filters import resolve_time
from tracekit.trace import Trace, damages
from tracekit.units import format_ns, parse_duration


def evil(name: str) -> Trace:
    """A trace of one switch to a task with the given name, and a loss."""
    switch = {
        "ts_ns": 1,
        "cpu": 0,
        "seq": 0,
        "kind": "switch",
        "tid": 1,
        "next_tid": 2,
        "next_comm": name,
        "quality": 0,
    }
    lost = {"severity": "loss", "code": "lost-events", "count": 3, "message": f"3 records lost near {name}"}
    tables = {
        "events": typed(pl.DataFrame([switch]), "events"),
        "diagnostics": typed(pl.DataFrame([lost]), "diagnostics"),
    }
    return Trace(tables, {"tracekit.schema": "1", "host": name}, name)


def test_unknown_tables_are_refused(trace: tk.Trace) -> None:
    with pytest.raises(KeyError, match="no table is called 'event'"):
        trace.table("event")
    with pytest.raises(ValueError, match="no table is called 'event'"):
        Trace({"event": pl.DataFrame()})


def test_tables_are_made_once(trace: tk.Trace) -> None:
    assert trace.slices is trace.slices


def test_names_compare_with_plain_strings(trace: tk.Trace) -> None:
    (utid,) = trace.tasks.filter(pl.col("comm") == "spin00")["utid"]
    by_name = trace.slices.filter(pl.col("comm") == "spin00")
    assert set(by_name["utid"]) == {utid}
    assert trace.events.filter(pl.col("kind") == "switch").height == trace.cpus["nr_switches"].sum()


def test_names_are_looked_for_once(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = filters._names
    monkeypatch.setattr(
        filters, "_names", lambda frame, columns: looked.append(columns) or real(frame, columns)
    )
    trace = tk.read(demo)
    assert trace.filter(comm="spin*", exclude="spin0*").tasks.height == 6
    assert sorted(looked) == [("comm",), ("comm", "comm_first")]


def test_numbers_of_a_frame_are_numbers(trace: tk.Trace) -> None:
    """A column of pandas gives integers of numpy; they ended with an AttributeError or a TypeError."""
    rows = trace.to_pandas("slices")
    tid, at = np.int64(rows["tid"][5]), np.int64(rows["ts_ns"][1000])
    plain = trace.filter(tid=int(tid), cpu=0, start=int(at))
    assert plain.slices.height
    for numbers in (tid, [tid], np.array([tid]), rows["tid"][5:6]):
        part = trace.filter(tid=numbers, cpu=np.int32(0), start=at)
        assert part.slices.equals(plain.slices)
        assert part.metadata == plain.metadata


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"start": 1.5}, "nanoseconds of the trace's clock, or a text such as '1.5s', found 1.5"),
        ({"end": datetime.timedelta(seconds=1)}, "nanoseconds .*, found datetime.timedelta"),
        ({"tid": "7"}, "expected whole numbers, found '7'"),
        ({"cpu": True}, "expected whole numbers, found True"),
        ({"comm": 3}, r"expected names of tasks or patterns, such as 'spin\*', found 3"),
        ({"exclude": [b"spin"]}, "expected names of tasks .*, found b'spin'"),
    ],
)
def test_what_is_no_condition_is_named(trace: tk.Trace, condition: dict[str, Any], found: str) -> None:
    with pytest.raises(tk.FilterError, match=found):
        trace.filter(**condition)


def test_without_conditions_a_filter_is_the_trace_itself(trace: tk.Trace) -> None:
    assert trace.filter() is trace


def test_a_name_that_looks_like_a_pattern_fits_itself() -> None:
    text = b"  a-[b]-7 [000] 1.000000: sched_switch: a-[b]:7 [120] S ==> a-b:8 [120]\n"
    text += b"   a-b-8 [000] 1.000100: sched_switch: a-b:8 [120] S ==> a-[b]:7 [120]\n"
    trace = tk.read(text)
    assert set(trace.filter(comm="a-[b]").tasks["tid"]) == {7, 8}, "a name, and a pattern that fits a-b"
    assert set(trace.filter(comm="a-b").tasks["tid"]) == {8}


def test_a_warning_writes_control_characters_of_names_out() -> None:
    text = b"  a\x1b[31m-7 [000] 1.000000: sched_switch: a\x1b[31m:7 [120] S ==> b:8 [120]\n"
    text += b"   b-8 [000] 1.000100: sched_switch: b:8 [120] S ==> a\x1b[31m:7 [120]\n"
    with pytest.warns(tk.FilterWarning, match=r"it has .*a\\x1b\[31m") as caught:
        tk.read(text).filter(comm="nobody")
    assert all(str(w.message).isprintable() for w in caught)


@pytest.mark.parametrize("pattern", ["spin*", "/^spin/", re.compile("spin")])
def test_filter_by_name(trace: tk.Trace, pattern: str | re.Pattern[str]) -> None:
    part = trace.filter(comm=pattern)
    assert set(part.tasks["comm"]) == {f"spin{i:02}" for i in range(16)}
    # Also what they did before they got that name.
    assert part.slices.equals(trace.slices.filter(pl.col("utid").is_in(part.tasks["utid"].implode())))
    assert set(part.tasks["comm_first"]) == {"wl"}
    assert set(part.slices["comm"]) == set(part.tasks["comm"]), "they got it in their first slice"
    tids = part.tasks["tid"].implode()
    named = pl.any_horizontal(
        [pl.col(c).is_in(tids).fill_null(False) for c in ("tid", "next_tid", "ctx_tid")]
    )
    assert part.events.equals(trace.events.filter(named))
    assert part.runqueue.equals(trace.runqueue), "a queue belongs to its CPU"
    assert json.loads(part.metadata["options"])["filter"]["comm"]


def test_filters_add_up_and_alternatives_do_not(trace: tk.Trace) -> None:
    both = trace.filter(comm=["spin00", "spin01"])
    assert set(both.tasks["comm"]) == {"spin00", "spin01"}
    tid = both.tasks.filter(pl.col("comm") == "spin00")["tid"].item()
    assert set(trace.filter(comm="spin0*", tid=tid).tasks["comm"]) == {"spin00"}
    with pytest.warns(tk.FilterWarning, match="comm spin01: no task of the trace fits; it has spin00$"):
        assert trace.filter(comm="spin00").filter(comm="spin01").slices.height == 0
    with pytest.warns(tk.FilterWarning, match="comm nobody: no task of the trace fits; it has"):
        assert trace.filter(comm="nobody").slices.height == 0
    with pytest.warns(tk.FilterWarning, match="cpu 99: the trace has no such CPU; it has 0"):
        assert trace.filter(cpu=99).slices.height == 0
    assert trace.filter(cpu=0).slices.equals(trace.slices)


def test_a_filter_that_nothing_meets_warns_and_names_what_there_is() -> None:
    run = tk.simulate("policy: fifo\nWorker: (R1 S1)*3\nReader: R5\nOther: R1")
    for conditions, said in (
        ({"comm": "Raeder"}, "comm Raeder: no task of the trace fits; it has Reader, Other, Worker"),
        ({"comm": re.compile("(?!x)y")}, r"comm /\(\?!x\)y/: no task"),
        ({"comm": ["Reader", "Wroker"]}, "comm Wroker: no task of the trace fits; it has Worker, Other"),
        ({"exclude": "Wroker"}, "exclude Wroker: no task of the trace fits; it has Worker"),
        ({"comm": (name for name in ["X"])}, "comm X: no task"),
        ({"pid": 999_999}, "pid 999999: no task"),
        ({"comm": "Reader", "exclude": "R*"}, r"comm Reader exclude R\*: no task"),
        ({"start": "9s"}, "nothing lies between start and end; the trace lasts"),
        ({"end": 0}, "nothing lies between start and end"),
    ):
        with pytest.warns(tk.FilterWarning, match=said) as caught:
            run.filter(**conditions)  # type: ignore[arg-type]
        assert [Path(w.filename) for w in caught] == [Path(__file__)], said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.filter(comm=["Reader", "W*"], exclude="Other", cpu=range(4), start="1ms", end="99s")
        tk.simulate("A: R5", "fifo").filter(comm="A").filter(comm="A")


def test_a_window_keeps_whole_slices_and_cuts_states(trace: tk.Trace) -> None:
    assert trace.start_ns is not None
    low, high = trace.start_ns + 1_000_000_000, trace.start_ns + 1_500_000_000
    part = trace.filter(start="1s", end="1.5s")
    assert (part.start_ns, part.end_ns) == (low, high)
    assert part.slices.equals(trace.slices.filter(pl.col("ts_ns").is_between(low, high, closed="left")))
    for _, life in part.states.group_by("utid"):
        assert life["ts_ns"].min() >= low  # type: ignore[operator]
        assert (life["ts_ns"] + life["dur_ns"]).max() <= high  # type: ignore[operator]
    # Every task that was there all the time has states for all of the window.
    whole = part.states.group_by("utid").agg(pl.col("dur_ns").sum())["dur_ns"]
    assert whole.max() == high - low
    first = part.runqueue.row(0, named=True)
    before = trace.runqueue.filter(pl.col("ts_ns") <= low).row(-1, named=True)
    assert first["ts_ns"] == low
    assert (first["nr_running"], first["nr_waiting"]) == (before["nr_running"], before["nr_waiting"])


@pytest.mark.parametrize("window", [{"end": "100s"}, {"start": "@0s"}, {"start": "@0s", "end": "100s"}])
def test_a_window_that_is_wider_than_the_trace_adds_no_time(trace: tk.Trace, window: dict[str, str]) -> None:
    part = trace.filter(**window)  # type: ignore[arg-type]
    assert (part.start_ns, part.end_ns) == (trace.start_ns, trace.end_ns)
    assert part.queue_lengths().equals(trace.queue_lengths())
    assert part.response().equals(trace.response())


def test_a_window_makes_no_more_of_the_tables_than_it_needs(demo: Path) -> None:
    end = "100ms"
    trace, made = tk.read(demo, cache=None), tk.read(demo, cache=None)
    for name in made.tables:
        made.table(name)
    part, other = trace.filter(end=end), made.filter(end=end)
    for name in part.tables:
        assert part.table(name).equals(other.table(name)), name
    assert part.metadata == other.metadata
    # Of these a frame was made of the part alone.
    assert {name for name, held in trace._tables.items() if isinstance(held, pl.DataFrame)}.isdisjoint(
        {"events", "slices", "states"}
    )


def test_the_columns_of_a_frame_have_the_same_chunks(demo: Path) -> None:
    """Where they differ, polars copies a whole table for one of its columns."""
    reader = _core.Reader(os.fspath(demo), None, {}, derive=[])
    batches = []
    while (batch := reader.read(1000)) is not None:
        batches.append(batch)
    events = to_frame(_core.concat("events", batches, {}))
    assert set(events.n_chunks("all")) == {len(batches)}
    assert len(batches) > 3
    assert events.equals(tk.read(demo, cache=None).events)


def test_the_part_of_some_tasks_lasts_as_long_as_the_trace(trace: tk.Trace) -> None:
    part = trace.filter(comm="rcu_preempt")
    assert part.events["ts_ns"].max() < trace.end_ns  # type: ignore[operator]
    assert (part.start_ns, part.end_ns) == (trace.start_ns, trace.end_ns)
    assert part.filter(start="1s").start_ns == trace.filter(start="1s").start_ns, "from the same moment on"
    # B is woken at 10 ms, which is its last record, and waits until the end.
    starved = tk.simulate("policy: fifo\nA: R100\nB: S10 R1\n").filter(end="50ms").filter(comm="B")
    assert tk.analysis.response.samples(starved)["response_ns"].to_list() == [40_000_000]


def test_a_window_beside_the_trace_lasts_no_time(trace: tk.Trace) -> None:
    with pytest.warns(tk.FilterWarning):
        behind = trace.filter(start="1000s")
    assert (behind.start_ns, behind.end_ns) == (trace.end_ns, trace.end_ns)
    assert behind.slices.height == 0


def test_a_number_that_two_tasks_have_had_stands_for_the_chosen_one(tmp_path: Path) -> None:
    """alpha ends, init makes another task of the same number, which becomes beta."""
    lines = [
        "<idle>-0 [000] d..2 1.000100: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 "
        "prev_state=R ==> next_comm=alpha next_pid=100 next_prio=120",
        "alpha-100 [000] d..2 1.001100: sched_switch: prev_comm=alpha prev_pid=100 prev_prio=120 "
        "prev_state=X ==> next_comm=init next_pid=1 next_prio=120",
        "init-1 [000] d..2 1.002000: sched_process_fork: comm=init pid=1 child_comm=init child_pid=100",
        "init-1 [000] d..2 1.002100: sched_wakeup_new: comm=init pid=100 prio=120 target_cpu=000",
        "init-1 [000] d..2 1.003000: sched_switch: prev_comm=init prev_pid=1 prev_prio=120 "
        "prev_state=S ==> next_comm=init next_pid=100 next_prio=120",
        "beta-100 [000] d..2 1.003500: sched_process_exec: filename=/bin/beta pid=100 old_pid=100",
        "beta-100 [000] d..2 1.004000: sched_switch: prev_comm=beta prev_pid=100 prev_prio=120 "
        "prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
    ]
    text = tmp_path / "reuse.txt"
    text.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
    reused = tk.read(text)
    assert reused.tasks.filter(tid=100)["comm"].to_list() == ["alpha", "beta"]
    kinds = {name: reused.filter(comm=name).events["kind"].to_list() for name in ("alpha", "beta")}
    assert kinds == {
        "alpha": ["switch", "switch"],
        "beta": ["fork", "wakeup_new", "switch", "exec", "switch"],
    }
    assert reused.filter(comm="*a").events.height == reused.events.height, "both"
    late = reused.filter(start="@1.0035s")
    assert "alpha" not in late.tasks["comm"].to_list(), "it had ended before the window"


def test_times_of_a_window_in_all_forms(trace: tk.Trace) -> None:
    assert trace.start_ns is not None
    low = trace.start_ns + 10**9
    seconds = f"@{low // 10**9}.{low % 10**9:09}s"
    for start in (low, "1s", "1000ms", seconds):
        assert trace.filter(start=start).start_ns == low
    with pytest.raises(tk.FilterError, match="time with a unit"):
        trace.filter(start="1")
    with pytest.raises(tk.FilterError, match="window is empty"):
        trace.filter(start="2s", end="1s")
    with pytest.raises(tk.FilterError, match="no regular expression"):
        trace.filter(comm="/(/")


@given(st.integers(0, 10**15), st.sampled_from(["ns", "us", "ms", "s"]))
def test_durations_read_back(ns: int, unit: str) -> None:
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    assert (
        parse_duration(f"{ns // scale}.{ns % scale:0{len(str(scale)) - 1}}{unit}" if scale > 1 else f"{ns}ns")
        == ns
    )
    assert resolve_time(f"@{ns}ns", 5) == ns
    assert resolve_time(f"{ns}ns", 5) == ns + 5


@given(st.integers(-(10**14), 10**14))
def test_a_time_as_people_read_it_is_within_its_digits(ns: int) -> None:
    shown = format_ns(ns)
    assert abs(parse_duration(shown) - ns) <= abs(ns) * 0.005 + 1
    assert not shown.startswith(("1000 ", "-1000 ")) or shown.endswith(" s")


def test_pandas_keeps_integers_and_metadata(trace: tk.Trace) -> None:
    frame = trace.to_pandas("slices")
    assert isinstance(frame, pd.DataFrame)
    assert frame["wake_ts_ns"].dtype == pd.Int64Dtype()
    assert frame["wake_ts_ns"].isna().sum() == trace.slices["wake_ts_ns"].null_count()
    assert frame["dur_ns"].sum() == trace.slices["dur_ns"].sum()
    assert frame["comm"].dtype == "category"
    assert frame.attrs["source.format"] == "trace-dat"


def test_arrow_both_ways(trace: tk.Trace) -> None:
    table = pa.table(trace)
    assert table.num_rows == trace.events.height
    assert table.schema.metadata[b"tracekit.table"] == b"events"
    assert table.schema.metadata[b"kernel"] == trace.metadata["kernel"].encode()
    assert pl.DataFrame(table)["ts_ns"].equals(trace.events["ts_ns"])


def test_derived_tables_come_back_from_events_of_any_library(trace: tk.Trace) -> None:
    from tracekit import _core

    events = trace.events
    plain = events.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    narrow = events.with_columns(pl.col("seq").cast(pl.Int64), pl.col("tid", "next_tid").cast(pl.Int32))
    for given_events in (events, plain, narrow, events.to_arrow(), trace.to_arrow()):
        derived = _core.derive(given_events, trace.metadata)
        for name in ("slices", "states", "runqueue", "tasks", "cpus"):
            assert typed(pl.DataFrame(derived[name]), name).equals(trace.table(name)), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.drop("kind"), "needs a column `kind`"),
        (lambda e: e.with_columns(kind=pl.lit("swich")), "`swich`, which is none of its values"),
        (lambda e: e.with_columns(ts_ns=pl.lit(None, dtype=pl.Int64)), "null in row 0"),
        (lambda e: e.with_columns(cpu=pl.lit(1 << 40)), "does not convert to"),
        (lambda e: e.with_columns(tid=pl.lit("x")), "does not convert to"),
    ],
)
def test_events_that_are_none_are_refused(trace: tk.Trace, change: object, message: str) -> None:
    from tracekit import _core

    with pytest.raises(ValueError, match=message):
        _core.derive(change(trace.events.head(5)), {})  # type: ignore[operator]
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        _core.derive([1, 2], {})  # type: ignore[arg-type]


def test_repr_says_what_was_lost_first() -> None:
    shown = repr(evil("x.dat")).splitlines()
    assert shown[0].startswith("<Trace x.dat: ")
    assert shown[1] == "  ! lost-events x 3: 3 records lost near x.dat"


def test_html_escapes_every_name() -> None:
    page = evil("<script>alert('x')</script>&")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.index("lost-events") < page.index("<table>")


def test_repr_of_a_trace_without_rows() -> None:
    empty = Trace({}, {}, "empty")
    assert "empty" in repr(empty)
    assert empty.start_ns is None
    assert empty.filter(comm="x", start=5).slices.height == 0


def test_damages_name_every_cause_of_a_sum() -> None:
    rows = [
        ("error", "unparsed", 1, "line 7 is no record"),
        ("error", "unparsed", 1, "line 9 is no record"),
        ("error", "unparsed", 1, "the date is missing"),
        ("error", "unparsed", 30, "further `unparsed` records, not listed one by one"),
        ("info", "reordered", 5, "sorted"),
    ]
    columns = ["severity", "code", "count", "message"]
    assert damages(pl.DataFrame(rows, schema=columns, orient="row")) == [
        "unparsed x 2: line 7 is no record",
        "unparsed x 31: the date is missing",
    ]
