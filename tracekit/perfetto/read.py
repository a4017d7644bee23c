"""Reads Perfetto traces: protobuf files, compressed or not, and Android bug reports that hold one.

Produced by
    ``perfetto``, ``record_android_trace``, the Perfetto UI, `adb bugreport`, and tracekit's own export.
Read by
    Perfetto's trace processor (see `tracekit.perfetto.engine` for which one); it sorts, joins clocks and
    knows every version of the format.
Clock
    Its trace time, most often ``boot``; ns.
Kept
    Scheduling records with their CPU, threads, priorities, states and wakers, life of tasks,
    interrupts, idle states, frequencies, system calls. With a trace processor that keeps no raw
    records, switches and wakeups only.
Dropped
    Slices, counters, logs, heap profiles and other machines of the same file: `tracekit.sql` reads them.
Losses
    What the trace processor's ``stats`` table counts: data loss becomes ``lost-events``, an import error
    ``partly-parsed``.
Traps
    A record's process is the one that the trace processor found in ``/proc`` during the trace, so a
    thread that lived shortly may have none.
"""

from __future__ import annotations

import json
import lzma
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from tracekit import _core
from tracekit._frames import table_schema, typed
from tracekit.errors import ParseError
from tracekit.perfetto import raw
from tracekit.perfetto.engine import EngineOptions, QueryError, Session, open_session
from tracekit.perfetto.failure import EngineError
from tracekit.perfetto.sniffing import XZ, ZIP, first_bytes, traces_in_zip
from tracekit.perfetto.stats import check
from tracekit.perfetto.tables import read_tables
from tracekit.trace import Trace

FORMAT = "perfetto"
CLOCKS = {1: "realtime", 3: "mono", 5: "mono_raw", 6: "boot"}


def read_perfetto(
    source: str | bytes,
    name: str,
    options: EngineOptions | None = None,
    report: Callable[[int], None] | None = None,
    known: Mapping[str, str] | None = None,
) -> Trace:
    """Read a Perfetto trace.

    Parameters
    ----------
    source
        Path, or the bytes of the file.
    name
        What to call the trace.
    options
        Which trace processor.
    report
        Called with the number of events read so far.
    known
        Goes into the metadata.

    Returns
    -------
    Trace
        All tables; `diagnostics` holds what the trace processor counted as lost or not understood.
    """
    label = "bytes" if isinstance(source, bytes) else source
    try:
        with as_file(source) as (path, member), open_session(path, options, raw=True) as session:
            return _trace(session, name, member, report or (lambda _: None), known or {})
    except EngineError as error:
        code = "unsupported" if "pip install" in str(error) else "damaged"
        raise ParseError(f"{label}: {error}", FORMAT, code) from error
    except QueryError as error:
        raise ParseError(f"{label}: the trace processor refused: {error}", FORMAT, "unsupported") from error
    except OSError as error:
        raise ParseError(f"{label}: {error.strerror or error}", FORMAT, "io") from error


@contextmanager
def as_file(source: str | bytes) -> Iterator[tuple[Path, str]]:
    """Give a file that the trace processor can read.

    With the name of the member, if it came from a zip.
    """
    head = source[:6] if isinstance(source, bytes) else first_bytes(source, 6)
    if isinstance(source, str) and not head.startswith((ZIP, XZ)):
        yield Path(source), ""
        return
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        path = Path(folder) / "trace.pftrace"
        member = ""
        if isinstance(source, bytes):
            path.write_bytes(source)
        if head.startswith(ZIP):
            archive = path if isinstance(source, bytes) else Path(source)
            members = traces_in_zip(str(archive))
            if not members:
                raise ParseError(f"{source!r}: no Perfetto trace in this zip", FORMAT, "unknown-format")
            member = members[0]
            with zipfile.ZipFile(archive) as opened:
                path = Path(opened.extract(member, folder))
        elif head.startswith(XZ):
            packed = path.with_suffix(".xz") if isinstance(source, bytes) else Path(source)
            if isinstance(source, bytes):
                path.rename(packed)
            with lzma.open(packed) as stream, path.open("wb") as plain:
                while chunk := stream.read(1 << 20):
                    plain.write(chunk)
        yield path, member


def _trace(
    session: Session, name: str, member: str, report: Callable[[int], None], known: Mapping[str, str]
) -> Trace:
    cpus = _cpus(session)
    listed = ",".join(str(ucpu) for ucpu in cpus["ucpu"].to_list())
    found = raw.counts(session, listed)
    if found.get("sched_switch"):
        events = raw.read_records(session, found, listed, report)
        recorded = sorted(found)
    else:
        events = read_tables(session, listed)
        recorded = ["sched_switch", "sched_waking"]
        report(len(events))
    if not len(events):
        raise ParseError(
            f"{name}: a Perfetto trace without scheduling records; record `linux.ftrace` with "
            "sched/sched_switch and sched/sched_waking",
            FORMAT,
            "no-scheduler-events",
        )
    frame = _complete(events, session, cpus)
    metadata = {**known, **_metadata(session, cpus, recorded, member)}
    tables: dict[str, _core.Table | pl.DataFrame] = {"events": frame}
    tables |= _core.derive(frame, metadata)
    problems, losses = check(session, frame["ts_ns"].min(), frame["ts_ns"].max())
    problems = pl.concat([problems, _left_out(session, found, listed), _frame(tables["diagnostics"])])
    metadata["loss.known"] = "false" if len(losses) else "true"
    return Trace({**tables, "diagnostics": problems, "losses": losses}, metadata, name)


def _frame(table: _core.Table | pl.DataFrame) -> pl.DataFrame:
    return table if isinstance(table, pl.DataFrame) else typed(pl.DataFrame(table), "diagnostics")


def _cpus(session: Session) -> pl.DataFrame:
    """Give the CPUs of the machine that the trace belongs to.

    `ucpu` in the trace processor, and their number.
    """
    columns = session.query("select * from cpu limit 1").columns
    machine = "coalesce(machine_id, 0)" if "machine_id" in columns else "0"
    return session.query(
        f"select ucpu, coalesce(cpu, ucpu) cpu from cpu where {machine} = (select min({machine}) from cpu)"
    )


def _complete(events: pl.DataFrame, session: Session, cpus: pl.DataFrame) -> pl.DataFrame:
    """Add CPU numbers, the running thread and processes, and give the columns of `events` their types."""
    threads = session.query(
        "select t.utid, t.tid, t.name, p.pid from thread t left join process p using (upid)"
    ).with_columns(pl.col("pid").cast(pl.Int64), pl.col("name").cast(pl.String).replace("", None))
    owner = threads.select(utid=pl.col("utid"), running=pl.col("tid"), ctx_pid=pl.col("pid"))
    # A number that was used by several processes says nothing about which.
    single = (
        threads.group_by("tid")
        .agg(
            pl.when(pl.col(c).drop_nulls().n_unique() == 1).then(pl.col(c).drop_nulls().first()).alias(c)
            for c in ("pid", "name")
        )
        .rename({"name": "known"})
    )
    events = events.with_columns(pl.col("ucpu", "utid").cast(pl.Int64))
    absent = {"ctx_tid": pl.Int64, "next_tid": pl.Int64, "comm": pl.String, "next_comm": pl.String}
    events = events.with_columns(
        pl.lit(None, dtype).alias(column) for column, dtype in absent.items() if column not in events.columns
    )

    def add(rows: pl.DataFrame, more: pl.DataFrame, on: str) -> pl.DataFrame:
        return rows.join(more, on=on, how="left", maintain_order="left")

    events = add(events, cpus.rename({"cpu": "cpu_number"}), "ucpu")
    events = add(events, owner, "utid")
    events = add(events, single, "tid")
    entering = {"tid": "next_tid", "pid": "next_pid", "known": "next_known"}
    events = add(events, single.rename(entering), "next_tid").with_columns(
        cpu="cpu_number",
        ctx_tid=pl.coalesce("ctx_tid", "running"),
        # Some recorders leave names out of the records and have them from `/proc`.
        comm=pl.coalesce("comm", "known"),
        next_comm=pl.coalesce("next_comm", "next_known"),
        quality=pl.lit(0, pl.UInt16),
    )
    leaves = pl.col("kind") == "switch"
    return typed(
        events.with_columns(
            # The leaving thread is the running one.
            ctx_tid=pl.when(leaves).then(pl.col("tid")).otherwise(pl.col("ctx_tid")),
            ctx_pid=pl.when(leaves).then(pl.col("pid")).otherwise(pl.col("ctx_pid")),
        ),
        "events",
    )


def _metadata(session: Session, cpus: pl.DataFrame, recorded: list[str], member: str) -> dict[str, str]:
    rows = session.query("select name, str_value, int_value from metadata")
    texts = {n: s for n, s, _ in rows.rows() if s}
    numbers = {n: int(i) for n, _, i in rows.rows() if i is not None}
    clock = CLOCKS.get(numbers.get("trace_time_clock_id", 6), "boot")
    metadata = {
        "tracekit.schema": "1",
        "tracekit.version": _core.__version__,
        "source.format": FORMAT,
        "source.variant": "; ".join(
            w for w in (member, session.version().partition(" (")[0], session.engine) if w
        ),
        "os": "linux",
        "nr_cpus": str(len(cpus)),
        "clock.name": clock,
        "clock.synchronised": "true",
        "prio.scale": "linux",
        "events.recorded": json.dumps(recorded),
    }
    for key, entry in (("kernel", "system_release"), ("arch", "system_machine")):
        if entry in texts:
            metadata[key] = texts[entry]
    offset = session.query(
        "select r.clock_value - c.ts offset_ns from clock_snapshot r join clock_snapshot c using (snapshot_id) "
        "where r.clock_name = 'REALTIME' and c.clock_name = 'BOOTTIME' limit 1"
    )
    if len(offset):
        metadata["clock.epoch_offset_ns"] = str(offset.item())
    return metadata


def _left_out(session: Session, found: dict[str, int], cpus: str) -> pl.DataFrame:
    """Tell what the trace holds and the tables do not."""
    rows: list[dict[str, object]] = []
    for name, count in sorted(found.items()):
        if name not in raw.RECORDS:
            message = f"records called {name} have no kind and were left out"
            rows.append({"severity": "info", "code": "unknown-event", "count": count, "message": message})
    other = session.query(f"select count(*) n from sched where ucpu not in ({cpus})").item()
    if other:
        rows.append(
            {
                "severity": "info",
                "code": "unsupported",
                "count": other,
                "message": "the file holds the schedules of other machines, which were left out",
                "advice": "tracekit.sql reads all of them",
            }
        )
    return pl.DataFrame(rows, schema=table_schema("diagnostics"))
