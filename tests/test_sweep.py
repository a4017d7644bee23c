"""Sweeps: the same table however they run, and whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.errors import OutputError, ReplayError
from tracekit.whatif.grid import Options, cells
from tracekit.whatif.solve import solve
from tracekit.whatif.sweep import Sweep, sweep

Run = Callable[..., subprocess.CompletedProcess[str]]

QUANTA = "stride:quantum=1ms..4ms/3"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three busy tasks and one that sleeps, 200 ms of one CPU."""
    path = tmp_path_factory.mktemp("sweep") / "small.parquet"
    text = "policy: rr:quantum=2ms\nuntil: 200\nA1: (R7 S3)*\nA2: (R5 S9)*\nB: (R1 S8)*\nC: R∞"
    tk.simulate(text).write(path)
    return path


@pytest.fixture(scope="module")
def plain(file: Path) -> Sweep:
    with ThreadPoolExecutor(1) as executor:
        return sweep(file, QUANTA, ["C: nice={0,5}"], executor=executor)


def test_every_cell_is_a_comparison(file: Path, plain: Sweep) -> None:
    assert plain.axes == ["quantum", "C: nice"]
    assert plain.table["cell"].unique().sort().to_list() == list(range(6))
    one = tk.compare(tk.read(file), ["stride:quantum=1ms"], scenario={"C": {"nice": 5}}, runs=3)
    shared = ["scope", "group", "metric", "statistic", "predicted", "low", "high", "verdict"]
    cell = plain.table.filter(pl.col("axis:quantum") == "1ms", pl.col("axis:C: nice") == "5")
    assert cell.select(shared).equals(one.table.select(shared))
    assert cell["policy"].unique().to_list() == ["stride:quantum=1ms"]


def test_shorter_quanta_give_shorter_slices(plain: Sweep) -> None:
    wide = plain.pivot("slice(C)")
    assert wide["quantum"].to_list() == ["1ms", "2.5ms", "4ms"]
    column = wide["C: nice=0"].to_list()
    assert column == sorted(column)
    assert column[0] < column[-1]
    with pytest.raises(ReplayError, match="The groups are A, B, C"):
        plain.pivot("slice(nobody)")


def test_the_front_is_what_no_other_cell_beats(plain: Sweep) -> None:
    goals = [("response.mean(B)", True), ("involuntary_switches(C)", True)]
    front = plain.front(goals)
    both = [
        plain.values(s).select("cell", "value").rename({"value": str(i)}) for i, (s, _) in enumerate(goals)
    ]
    rows = both[0].join(both[1], on="cell").drop("cell").rows()
    expected = {r for r in rows if not any(o[0] <= r[0] and o[1] <= r[1] and o != r for o in rows)}
    assert set(front.select(pl.nth(-2), pl.nth(-1)).rows()) == expected


def test_a_cell_without_a_replay_is_a_row_with_its_error(file: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        found = sweep(file, "rr:quantum={2ms,4ms}", ["C: policy={nonsense,fifo}"], executor=executor, runs=1)
    assert found.failed["axis:C: policy"].to_list() == ["nonsense"] * 2
    assert "nonsense" in found.failed["error"][0]
    assert repr(found).endswith(", 2 of them without a result>")
    assert found.values("slice(C)")["C: policy"].to_list() == ["fifo"] * 2


def test_cells_that_fail_alike_are_one_warning(file: Path, tracekit: Run) -> None:
    asked = ["--policy", "rr:quantum={2ms,4ms}", "--set", "C: policy={nonsense,fifo}"]
    done = tracekit("sweep", file, *asked, "--runs", "1", "--metric", "slice(C)", "-q")
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert said.startswith("warning: 2 cells, cell 0 the first: ")
    assert "nonsense" in said


def test_random_and_halving_run_fewer_cells(file: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        drawn = sweep(file, "rr:quantum=1ms..9ms/9", search="random:4", seed=1, runs=1, executor=executor)
        assert drawn.table["cell"].n_unique() == 4
        halved = sweep(file, "rr:quantum=1ms..9ms/9", search="halving:slice(C)", executor=executor)
    runs = dict(
        halved.table.select("cell", "runs").unique().group_by("cell").agg(pl.col("runs").max()).rows()
    )
    assert sorted(runs.values()) == [1] * 6 + [3] * 2 + [9]
    # The shortest quantum has the shortest slices.
    assert runs[0] == 9
    for wrong in ("halving", "random:x", "best", "halving:nothing"):
        with pytest.raises(ReplayError):
            sweep(file, "rr", search=wrong)


def test_options_can_be_given_by_name(file: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        found = sweep(file, "rr", executor=executor, options={"by": "all", "cpus": 2})
        same = sweep(file, "rr", executor=executor, options=Options(by="all", cpus=2))
    assert found.table.equals(same.table)
    with pytest.raises(TypeError, match="options: unknown groupby; expected identity, by, loop"):
        sweep(file, "rr", options={"groupby": "comm"})
    with pytest.raises(TypeError, match=r"expected Options, or a mapping of identity, .*; found str"):
        sweep(file, "rr", options="by=comm")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options: unknown groupby"):
        solve(file, "response.p95(B) < 5ms", options={"groupby": "comm"})


def test_an_output_is_a_parquet_file_in_a_folder_that_is_there(file: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"ends in \.parquet"):
        sweep(file, "rr", output=tmp_path / "x.csv")
    with pytest.raises(OutputError, match="no folder"):
        sweep(file, "rr", output=tmp_path / "none" / "x.parquet")
    with pytest.raises(OutputError, match="no such file"):
        sweep(tmp_path / "missing.dat", "rr", output=tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_a_finished_sweep_is_extended(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "s.parquet"
    asked: list[tuple[int, int]] = []
    with ThreadPoolExecutor(1) as executor:
        sweep(file, "rr:quantum={1ms,2ms}", output=place, runs=1, executor=executor)
        more = sweep(
            file,
            "rr:quantum={1ms,2ms,3ms}",
            output=place,
            runs=1,
            executor=executor,
            progress=lambda done, total: asked.append((done, total)),
        )
        fresh = sweep(file, "rr:quantum={1ms,2ms,3ms}", runs=1, executor=executor)
    assert asked[0] == (2, 3)
    assert more.table.equals(fresh.table)
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_a_killed_sweep_goes_on_where_it_stopped(file: Path, tmp_path: Path, root: Path) -> None:
    place, grid = tmp_path / "s.parquet", "rr:quantum=1ms..40ms/40"
    command = [sys.executable, "-m", "tracekit", "sweep", str(file), "--policy", grid, "-o", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen([*command, "--jobs", "1"], env=environment, start_new_session=True) as process:
        kept = tmp_path / "s.parquet.cells"
        deadline = time.monotonic() + 100
        while len(list(kept.glob("[0-9a-f]*.arrows"))) < 4 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    before = {p.name: p.stat().st_mtime_ns for p in kept.glob("[0-9a-f]*.arrows")}
    assert 4 <= len(before) < 40
    assert not place.exists()
    asked: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as executor:
        again = sweep(
            file, grid, output=place, executor=executor, progress=lambda *counts: asked.append(counts)
        )
        fresh = sweep(file, grid, executor=executor)
    assert asked[0] == (len(before), 40)
    assert again.table.equals(fresh.table)
    assert again.table.select("cell", "scope", "group", "metric", "statistic").is_unique().all()
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_a_worker_that_dies_loses_nothing(file: Path, plain: Sweep) -> None:
    from tracekit.whatif.sweep import Options, Runner
    from tracekit.whatif.workers import Workers

    grid = cells([QUANTA], ["C: nice={0,5}"])
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if done == 1 and not killed:
            assert workers._pool is not None
            killed.append(next(iter(workers._pool._processes)))
            os.kill(killed[0], signal.SIGKILL)

    with Workers(2) as workers:
        runner = Runner([file], file.parent / "cells", Options(), workers)
        found = runner.run(grid, 3, kill)
    assert killed
    assert len(found) == 6
    assert all("metric" in rows.columns for rows in found.values())
    assert sorted(r["predicted"].sum() for r in found.values()) == sorted(
        part["predicted"].sum() for part in plain.table.partition_by("cell")
    )


def test_a_trace_without_the_statistic_is_named(file: Path, tmp_path: Path, tracekit: Run) -> None:
    """It was left out without a word, and the table did not say of which trace the rest was."""
    other = tmp_path / "other.parquet"
    tk.simulate("policy: rr\nZ: (R2 S1)*30\nY: R20").write(other)
    done = tracekit("sweep", file, other, "--policy", "rr", "--runs", "1", "--metric", "slice.mean(B)")
    assert done.returncode == 0, done.stderr
    assert "other.parquet has no slice.mean(B)" in done.stdout.splitlines()
    assert f"{file.name} has no" not in done.stdout


def test_ctrl_c_never_reaches_a_worker() -> None:
    """A terminal sends it to all: it printed a traceback of each worker that was about to begin."""
    from tracekit.whatif.workers import Workers

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with Workers(1) as workers:
        # What is blocked now was blocked when the worker began, before it ran a line.
        blocked = workers.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT in blocked
    assert signal.SIGTERM not in blocked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_workers_serve_one_sweep_after_another(file: Path, plain: Sweep) -> None:
    from tracekit.whatif.workers import Workers

    with Workers(2) as workers:
        found = [sweep(file, QUANTA, executor=workers, runs=1) for _ in range(2)]
        workers.shutdown(wait=False)
        assert workers.submit(len, "three").result() == 5
    assert found[0].table.equals(found[1].table)
    assert found[0].table["cell"].n_unique() > 1


@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_of_workers_is_left_behind_them(stopped: bool) -> None:
    """What ends beside Python's own end raced with it, and a stopped command showed a traceback."""
    from tracekit.whatif.workers import Workers

    before = set(threading.enumerate())
    with contextlib.suppress(SystemExit), Workers(2) as workers:
        workers.submit(time.sleep, 60 if stopped else 0.1)
        if stopped:
            raise SystemExit(143)
    assert set(threading.enumerate()) == before
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("given", ["a file", "standard input"])
def test_a_script_needs_no_main_guard(given: str, file: Path, tmp_path: Path, root: Path) -> None:
    """Workers ran it again, died of that, and every cell had failed for want of memory."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "from tracekit.whatif.sweep import sweep\n"
        f"print(sweep({str(file)!r}, 'rr:quantum={{2ms,4ms}}', runs=1, jobs=2).failed.height)\n"
    )
    done = subprocess.run(
        [sys.executable, script if given == "a file" else "-"],
        input=None if given == "a file" else script.read_text(),
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.split(), done.stderr) == (["once", "0"], "")


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"])
def test_workers_calculate_in_one_thread(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from tracekit.whatif.workers import Workers

    for given, expected in ((None, "1"), ("3", "3")):
        if given is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, given)
        with Workers(1) as workers:
            assert workers.submit(os.getenv, name).result() == expected
        assert os.environ.get(name) == given


def test_a_dask_worker_that_dies_loses_nothing(file: Path, plain: Sweep, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="pip install 'tracekit[dask]'")
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill(done: int, total: int) -> None:
            if done == 1 and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        found = sweep(
            file,
            QUANTA,
            ["C: nice={0,5}"],
            output=tmp_path / "d.parquet",
            executor=client.get_executor(),
            progress=kill,
        )
    assert killed
    assert found.table.equals(plain.table)


def test_the_command_prints_a_pivot_and_draws(tracekit: Run, file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    args = ["sweep", file, "--policy", QUANTA, "--metric", "slice(C)", "--runs", "1", "--plot", picture]
    run = tracekit(*args)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].startswith("slice(C) by quantum; recorded ")
    assert [line.split()[0] for line in run.stdout.splitlines()[2:5]] == ["1", "2.5", "4"]
    assert "each cell ran once: no intervals" in run.stdout
    assert picture.stat().st_size > 5000
    both = tracekit(*args[:-2], "--metric", "response.p95(B)", "--plot", picture, "--json")
    assert both.returncode == 0, both.stderr
    assert '"response.p95(B)"' in both.stdout
    for wrong, said in (
        (["--policy", "rr"], "name a --metric"),
        (["--policy", "rr:quantum=1..2", "--metric", "slice"], "FIRST..LAST/COUNT"),
        (["--policy", "rr", "--metric", "slcie"], "did you mean 'slice'"),
        (
            ["--policy", "rr", "--runs", "1", "--metric", "slice.mean(Bb)"],
            "did you mean 'B'? The groups are A",
        ),
        (["--policy", "rr", "--metric", "slice", "--dask", "tcp://127.0.0.1:1"], "no scheduler answers"),
    ):
        bad = tracekit("sweep", file, *wrong)
        assert bad.returncode == 2
        assert said in bad.stderr, bad.stderr


def test_a_sweep_without_policies_is_of_that_of_each_recording(
    file: Path, tmp_path: Path, tracekit: Run
) -> None:
    own = {"one": "stride:quantum=3ms", "two": "eevdf:version=6.18"}
    files = [tmp_path / f"{name}.parquet" for name in own]
    for place, policy in zip(files, own.values(), strict=True):
        tk.simulate(f"policy: {policy}\nuntil: 200\nA1: (R7 S3)*\nC: R∞").write(place)
    found = sweep(files, sets=["C: nice={0,5}"], runs=1, jobs=1)
    assert not found.failed.height
    assert not found.left_to_default
    for place, policy in zip(files, own.values(), strict=True):
        named = sweep(place, policy, ["C: nice={0,5}"], runs=1, jobs=1).table
        assert named["predicted"].equals(found.table.filter(trace=place.name)["predicted"])
    bare = tracekit("sweep", file, "--metric", "slice(C)")
    assert bare.returncode == 2
    assert "give a --policy, or a --set" in bare.stderr


def test_a_sweep_says_what_it_leaves_to_defaults(tmp_path: Path, tracekit: Run) -> None:
    file = tmp_path / "t.parquet"
    tk.simulate("policy: eevdf:version=6.18\nuntil: 200\nA*3: (R5 S3)*").write(file)
    asked = ["sweep", file, "--runs", "1", "--metric", "slice(A)", "--policy"]
    done = tracekit(*asked, "eevdf:base_slice=1ms..3ms/3")
    (said,) = [line for line in done.stderr.splitlines() if "nothing else was asked for" in line]
    assert "has version=6.12, and the recording version=6.18" in said
    assert said.endswith("; 2 more cells of eevdf likewise")
    kept = tracekit(*asked, "eevdf:version=6.18,base_slice=1ms..3ms/3")
    assert kept.returncode == 0
    assert "nothing else was asked for" not in kept.stderr


def test_each_value_has_the_marks_that_a_comparison_gives_it(file: Path, tracekit: Run) -> None:
    asked = ["--policy", "rr:quantum={2ms,9ms}", "--metric", "slice(C)", "--metric", "switches(?*)"]
    done = tracekit("sweep", file, *asked)
    found = sweep(file, asked[1], jobs=1)
    marks = {"not resolved": "=", "with care": "?", "do not use": "!"}
    rows = found.values("slice(C)").to_dicts()
    expected = ["".join(marks.get(row[k], "") for k in ("verdict", "trust")) for row in rows]
    assert "=" in expected[0]
    assert "=" not in expected[1]
    lines = done.stdout.splitlines()
    assert [line.split()[4:] for line in lines[2:4]] == [[e] if e else [] for e in expected]
    assert "= not resolved" in done.stdout
    trust = found.pivot("slice(C)", "trust")
    assert trust["value"].to_list() == [row["trust"] for row in rows]


@pytest.mark.parametrize("found", ["no Parquet file", "a table without the column cell", "a directory"])
def test_what_no_sweep_wrote_is_neither_read_nor_replaced(found: str, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    if found == "a directory":
        path.mkdir()
    elif found == "no Parquet file":
        path.write_bytes(b"notes")
    else:
        pl.DataFrame({"a": [1]}).write_parquet(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(OutputError, match=f"out.parquet: expected .*, found {found}"):
        sweep("A: R5\nB: R3", "rr", output=path, jobs=1)
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]
    assert before is None or path.read_bytes() == before
