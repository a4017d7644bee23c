"""Threads that share a queue: who takes what, and until when."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from validation.answers import late

#: Threads that take requests from a queue under a lock, and another one that collects what comes of them,
#: for which both take a second lock.
COLLECTED = """
policy: eevdf
cpus: 2
hz: 250
until: 3000
queue web: wakes=signal
Source: (S~exp({gap}) P(requests))*
Dispatcher: (W(requests) R0.02 M(web: R~uniform(0.5,2.5) L(second) P(done) K0.02 G(second)))*
Thread*{threads}: (A(web))*
Main: (W(done) L(second) R0.005 G(second))*
Hog*2: R∞
"""


@pytest.mark.parametrize(("gap", "threads"), [(1.5, 4), (3, 8)])
def test_who_collects_what_a_pool_did_goes_on_waiting(tmp_path: Path, gap: float, threads: int) -> None:
    """It wakes threads of the pool, which wait for its lock, but feeds them nothing: the pool wakes it more
    often than others do. Whichever thread does the work, it waits for that one.
    """
    tk.generate(COLLECTED.format(gap=gap, threads=threads), tmp_path / "pool.txt", "ftrace")
    recorded = tk.read(tmp_path / "pool.txt")
    programs = tk.Programs(recorded)
    said = programs.inferred.filter(name="unexplained messages")["how"].to_list()
    assert any("take its work as it comes" in how for how in said)

    def slept(trace: tk.Trace) -> int:
        return trace.slices.filter(pl.col("comm").cast(pl.String) == "Main", pl.col("sleep_ns") > 0).height

    assert slept(recorded) / 2 < slept(programs.run("eevdf")) <= slept(recorded)


@pytest.mark.parametrize(
    "name", ["server-default", "server-hogsnice19", "server-workfifo", "server-hogsidle"]
)
def test_what_waits_is_taken_until_the_server_ends(testdata: Path, name: str) -> None:
    """Workers on a fast CPU take more requests than when they were recorded, and go on then: all of them end
    with the server, behind the last request, however many they got.
    """
    recorded = tk.read(testdata / "lab2" / "6.12-2cpu" / f"{name}.dat")
    programs = tk.Programs(recorded)
    said = programs.inferred.filter(name="unexplained messages")["how"].to_list()
    assert any("take its work as it comes" in how for how in said)
    for perturbation in programs.perturbations()[:3]:
        replay = programs.run("eevdf", perturbation=perturbation)
        ends = replay.slices.select(
            pl.col("comm").cast(pl.String), (pl.col("ts_ns") + pl.col("dur_ns")).alias("end")
        )
        last = ends.filter(pl.col("comm") == "gen0")["end"].max()
        workers = (
            ends.filter(pl.col("comm").str.starts_with("work")).group_by("comm").agg(pl.col("end").max())
        )
        assert workers.height == 8
        assert workers["end"].min() >= last


def _wakes(trace: tk.Trace, waker: str, woken: str) -> pl.DataFrame:
    names = pl.col("comm", "ctx_comm").cast(pl.String)
    rows = trace.events.filter(pl.col("kind") == "wakeup").with_columns(names)
    return rows.filter(pl.col("ctx_comm").str.contains(waker), pl.col("comm").str.contains(woken))


@pytest.mark.parametrize(
    "name",
    [
        "6.1-2cpu/server-default",
        "6.1-4cpu/server-default",
        "6.12-2cpu/server-default",
        # It waits eight times only.
        "6.1-2cpu/w1-server-default",
    ],
)
def test_a_dispatcher_waits_for_workers_that_it_woke(testdata: Path, name: str) -> None:
    """It wakes workers by a condition variable, which waits until those that were woken before have run."""
    recorded = tk.read(testdata / "lab2" / f"{name}.dat")
    replay = tk.replay(recorded)
    ended = [_wakes(t, "^work", "^disp0$").height for t in (recorded, replay)]
    assert ended[0] / 2 <= ended[1] <= ended[0] * 2


@pytest.mark.parametrize("name", ["6.1-2cpu", "6.1-4cpu"])
def test_who_wakes_one_task_only_draws_it_to_its_cpu(testdata: Path, name: str) -> None:
    recorded = tk.read(testdata / "lab2" / name / "server-default.dat")
    for trace in (recorded, tk.replay(recorded)):
        wakes = _wakes(trace, "^gen0$", "^disp0$")
        assert wakes.filter(pl.col("cpu") == pl.col("target_cpu")).height > 0.6 * wakes.height


@pytest.mark.parametrize("name", ["default-batch", "default-batch-boot2", "batchnice19"])
def test_who_passes_on_unseen_what_it_read_waits_for_an_answer_of_its_own(testdata: Path, name: str) -> None:
    """Clients of a busy server send it most of their messages unseen, so that its answers end first
    sleeps, too. Each of 150 searches is 20 messages."""
    recorded = tk.read(testdata / "lab2" / "6.12-2cpu" / f"callpipe-{name}.dat")
    found = tk.Programs(recorded).inferred.filter(name="unobserved messages")
    assert found.height == 1
    assert abs(found["n"][0] - 150 * 20) <= 30


@pytest.mark.parametrize("name", ["6.12-2cpu/callpipe-default-batch", "7.3-2cpu/callpipe-default-batch"])
def test_an_answer_is_to_the_request_of_whoever_gets_it(testdata: Path, name: str) -> None:
    """A client has one search on its way: the answer that it gets comes when the server has done the last
    work for that one, though the messages of twelve searches overtake each other unseen.
    """
    recorded = tk.read(testdata / "lab2" / f"{name}.dat")
    policy = "linux-7.3.4" if name.startswith("7.3") else "eevdf"
    few, every = late(tk.Programs(recorded).run(policy))
    assert every >= 140
    assert few <= 15


@pytest.mark.parametrize("name", ["default-batch", "default-batch-rep2"])
def test_a_source_draws_the_reader_of_its_pipe(testdata: Path, name: str) -> None:
    """A writer to a pipe is about to sleep, so that its CPU counts as free of it: most of the clients that
    it wakes come to its CPU, in the recording and in replays.
    """
    recorded = tk.read(testdata / "lab2" / "6.12-2cpu" / f"sys-callpipe-{name}.dat")
    programs = tk.Programs(recorded)
    replays = [programs.run("eevdf", perturbation=p) for p in programs.perturbations()[:4]]
    here = pl.col("cpu") == pl.col("target_cpu")
    shares = [_wakes(t, "^gen0$", "^A").select(here.mean()).item() for t in (recorded, *replays)]
    assert shares[0] > 0.7
    assert sum(shares[1:]) / 4 > 0.6
