"""Who does the recorded work sooner than it was recorded, and replays that last longer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.whatif.comparison import Comparison
from tracekit.whatif.pace import longer, sooner

#: Two tasks that take turns beside two hogs, until the end of the recording cuts them off.
TEXT = "policy: rr:quantum=5ms\nuntil: 1000\nWork: (R3 P(a) W(b))*\nBack: (W(a) R1 P(b))*\nHogA: R∞\nHogB: R∞"


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(TEXT, tmp_path_factory.mktemp("pace"))


def recorded(text: str, folder: Path, names: Sequence[str] = ("Work", "Back", "Hog*")) -> Path:
    """A run as a capture shows it, that is without the text that it is of."""
    tk.simulate(text).filter(comm=list(names)).write(folder / "loop.parquet")
    return folder / "loop.parquet"


@pytest.fixture(scope="module")
def compared(cut_off: Path) -> Comparison:
    return tk.compare(
        cut_off,
        scenario={"/^(Work|Back)$/": {"policy": "fifo", "prio": 5}},
        identity="rr:quantum=5ms",
    )


def test_a_loop_that_gets_more_is_done_sooner(compared: Comparison, cut_off: Path) -> None:
    ((label, found),) = compared.sooner.items()
    assert label == "/^(Work|Back)$/: policy=fifo,prio=5"
    one, other = found
    assert (one.group, other.group) == ("Work", "Back")
    # They have the CPU to themselves now, from the first round to the last.
    work = tk.read(cut_off).slices.filter(pl.col("comm").cast(pl.String).is_in(["Work", "Back"]))
    assert one.replayed_ns == pytest.approx(0.95 * work["dur_ns"].sum(), rel=0.02)
    assert one.recorded_ns > 900e6
    assert one.sentence.startswith("Work has done its recorded work after 1")
    assert "as fast): a real run goes on" in one.sentence


def test_who_has_no_time_in_a_replay_does_nothing_sooner(tmp_path: Path) -> None:
    """An excerpt whose only switch lies between far records: replays give one task no CPU time."""
    lines = [
        "  sh-26  [001]  425.078164: sched_wakeup: comm=sh pid=26 prio=120 success=1 target_cpu=001",
        "  events/0-9  [000]  638.042792: sched_switch: events/0:9 [120] S ==> kondemand/0:13 [120]",
        "  cat-14  [001]  794.947181: kfree: ptr=(null)",
    ]
    path = tmp_path / "excerpt.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    result = CliRunner().invoke(main, ["compare", "--quick", "--policy", "eevdf", str(path)])
    assert result.exit_code == 0, result.output


def test_rows_of_less_work_are_taken_with_care(compared: Comparison) -> None:
    why = "the recorded work of Work is done sooner, and a real run does more"
    told = compared.table.filter(pl.col("trust_why").str.contains(why))
    assert not told.filter(trust="trusted").height
    rest = compared.table.filter(~pl.col("trust_why").str.contains(why))
    assert set(rest["group"]) == {"Work", "Back"}, "their own times are of all their work"
    assert "total" not in set(rest["statistic"])
    assert {"Work", "Back", "HogA", None} <= set(told["group"])


def test_nobody_is_sooner_in_the_same_replay_nor_where_the_work_ended(cut_off: Path, tmp_path: Path) -> None:
    trace = tk.read(cut_off)
    same = tk.replay(trace, "rr:quantum=5ms")
    assert sooner(trace, same, "group") == []
    # Where the identity replay is as much sooner, that is said.
    favoured = tk.replay(trace, "rr:quantum=5ms", scenario={"/^(Work|Back)$/": {"policy": "fifo", "prio": 5}})
    one, other = (sooner(trace, favoured, "group", identity)[0] for identity in (same, favoured))
    assert "identity" not in one.sentence
    assert one.recorded_ns * 0.9 < one.identity_ns <= one.recorded_ns * 1.1
    assert other.identity_ns == other.replayed_ns
    assert " in the identity replay, where nothing is changed)" in other.sentence
    assert Comparison(trace, same, {"a recording": trace}).sooner == {}, "only replays have the recorded work"
    ended = tk.read(recorded(TEXT.replace("))*", "))*9"), tmp_path))
    faster = tk.replay(ended, "rr:quantum=5ms", scenario={"/^(Work|Back)$/": {"policy": "fifo", "prio": 5}})
    last = [t.slices.filter(pl.col("comm").cast(pl.String) == "Work")["ts_ns"].max() for t in (ended, faster)]
    assert last[1] < 0.5 * last[0]
    assert sooner(ended, faster, "group") == [], "it ended, and was not cut off"


def test_the_command_and_the_page_say_so(cut_off: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = [
        "compare",
        str(cut_off),
        "--identity",
        "rr:quantum=5ms",
        "--set",
        "/^(Work|Back)$/: policy=fifo,prio=5",
    ]
    done = CliRunner().invoke(main, [*asked, "-q", "-o", str(page)], prog_name="tracekit")
    assert done.exit_code == 0, done.output
    assert "Work has done its recorded work after" in " ".join(done.output.split())
    assert "Work has done its recorded work after" in page.read_text()


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs that end, each on a CPU of its own, and a task that only the clock wakes."""
    text = "policy: rr:quantum=5ms\ncpus: 2\nuntil: 250\nJobA: R200\nJobB: R200\nTimed: (R1 S4)*"
    place = tmp_path_factory.mktemp("longer") / "jobs.parquet"
    tk.simulate(text).filter(comm=["Job*", "Timed"]).write(place)
    return place


def test_totals_of_a_replay_that_lasts_longer_are_taken_with_care(slowed: Path) -> None:
    compared = tk.compare(slowed, cpus=1, identity="rr:quantum=5ms")
    ((label, found),) = compared.longer.items()
    assert label == "1 CPU"
    # Both jobs, and what runs beside them.
    assert found.recorded_ns == pytest.approx(250e6, rel=0.02)
    assert found.replayed_ns == pytest.approx(400e6 + 40e6, rel=0.02)
    total = pl.col("statistic") == "total"
    table = compared.table.filter(pl.col("trust") != "do not use")
    assert (
        table.filter(total)["trust_why"].str.contains("the replay lasts 439 ms, the recording 250 ms").all()
    )
    assert not table.filter(~total)["trust_why"].str.contains("the replay lasts").any()
    same = tk.compare(slowed, "rr:quantum=5ms", identity="rr:quantum=5ms")
    assert same.longer == {}
    trace = tk.read(slowed)
    assert longer(trace, trace) is None


def test_the_command_and_the_page_say_that_a_replay_lasts_longer(slowed: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ["compare", str(slowed), "--identity", "rr:quantum=5ms", "--cpus", "1", "-q", "-o", str(page)]
    done = CliRunner().invoke(main, asked, prog_name="tracekit")
    assert done.exit_code == 0, done.output
    said = (
        "the replay lasts 439 ms, the recording 250 ms, since work that ended in the recording takes longer"
    )
    assert said in " ".join(done.output.split())
    assert said in " ".join(page.read_text().split())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CPU that never idles: endless work beside a task that comes and goes."""
    text = "policy: rr:quantum=5ms\nuntil: 500\nHog: R∞\nA: (R2 S6)*\nB: (R2 S6)*"
    return recorded(text, tmp_path_factory.mktemp("idler"), ("Hog", "A", "B"))


def test_rows_of_a_replay_whose_cpus_idle_more_are_taken_with_care(full: Path) -> None:
    compared = tk.compare(full, cpus=3, identity="rr:quantum=5ms")
    ((label, found),) = compared.idler.items()
    assert label == "3 CPUs"
    assert found.recorded == pytest.approx(0, abs=0.02)
    # Of three CPUs the endless one has one, the two others a quarter of one each at most.
    assert found.replayed == pytest.approx(0.5, abs=0.05)
    trust = compared.table.filter(pl.col("trust") != "do not use")
    assert trust.height
    assert set(trust["trust"]) == {"with care"}
    alone = trust.filter(pl.col("trust_why").str.starts_with("CPUs idle for 5"))
    assert alone.height
    same = tk.compare(full, "rr:quantum=4ms", identity="rr:quantum=5ms")
    assert same.idler == {}
    assert not same.table["trust_why"].str.contains("CPUs idle").any()


def test_the_command_says_that_cpus_idle_more(full: Path) -> None:
    asked = ["compare", str(full), "--identity", "rr:quantum=5ms", "--cpus", "3", "-q"]
    done = CliRunner().invoke(main, asked, prog_name="tracekit")
    assert done.exit_code == 0, done.output
    assert "of the recording: how idle CPUs wake" in " ".join(done.output.split())
