"""Validation on disk: what was replayed is not replayed again, a budget ends a run, and one page has both."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk
from validation import execs, lab, run, store, unseen

PAIRS = "dir\tcapture_a\tcapture_b\tkind\tmetric\ta_value\tb_value\n"


@pytest.fixture
def folder(tmp_path: Path, demo: Path) -> Path:
    """Two captures of one workload that are the same, and their pairs."""
    place = tmp_path / "lab" / "6.1"
    place.mkdir(parents=True)
    tk.read(demo).filter(end="400ms").write(tmp_path / "short.parquet")
    for name, setup in (("x", ""), ("y", "feat NO_WAKEUP_PREEMPTION")):
        (place / f"{name}.dat").symlink_to(tmp_path / "short.parquet")
        words = f"kernel=6.1.0-50\nworkload=slice dur=3000 spinners=16\nsetup={setup}\n"
        (place / f"{name}.env").write_text(words)
    rows = "6.1\tx\ty\tpolicy\tmean_slice_us\t893\t3900\n6.1\ty\tx\tpolicy\tmean_slice_us\t3900\t893\n"
    (tmp_path / "pairs.tsv").write_text(PAIRS + rows)
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    fixed = ["--pairs", str(folder / "pairs.tsv"), "--store", str(folder / "store"), "-j", "1"]
    return [str(folder / "lab"), *fixed, "-o", str(folder / "page.md"), *more]


def test_a_budget_ends_a_run_and_the_next_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(arguments(folder, "--budget", "0.0001")) == 0
    assert "1 captures left; the same command goes on from here" in capsys.readouterr().err
    (first,) = (folder / "store").glob("*.json")
    made = first.stat().st_mtime_ns
    assert run.main(arguments(folder)) == 0
    assert "1 of 1" in capsys.readouterr().err
    assert len(list((folder / "store").glob("*.parquet"))) == 2
    assert first.stat().st_mtime_ns == made, "what was replayed stays"
    text = (folder / "page.md").read_text()
    assert text.index("## Aims") < text.index("## Coverage by class")
    assert "no pair is of that kind: other scheduler, CPUs changed" in " ".join(text.split())


def test_results_of_other_code_are_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = lab.captures(folder / "lab")
    pairs = lab.pairs(folder / "pairs.tsv")
    drawn, tasks = run._tasks(pairs, captures, 10, "")
    assert len(drawn) == len(tasks) == 2
    held = folder / "store"
    held.mkdir()
    (held / "6.1__x.json").write_text(
        '{"digest": "old", "job": {"targets": {"6.1/y": {}}}, "notes": [], "rows": false}'
    )
    assert store.load(tasks, held, store.digest())[0] == {}
    assert set(store.load(tasks, held, "old")[0]) == {"6.1/x"}


def test_code_that_changes_during_a_run_does_not_lose_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter(["first", "second"])
    monkeypatch.setattr(store, "digest", lambda: next(codes))
    monkeypatch.setattr(store, "_known", lambda place, task, code: held if code == "first" else None)
    held = {"digest": "first", "job": {"key": "6.1/x"}, "notes": [], "rows": False}
    seen: list[str] = []
    monkeypatch.setattr(run.summary, "rows", lambda pairs, captures, done: seen.extend(done) or [])
    monkeypatch.setattr(run, "_identities", lambda captures, done: [])
    monkeypatch.setattr(run, "_checks", lambda pairs, done: [])
    monkeypatch.setattr(run.summary, "targets", lambda rows, identities: [])
    monkeypatch.setattr(run.page, "write", lambda *given: "")
    monkeypatch.setattr(run, "_data", lambda *given: "")
    assert run.main(arguments(folder)) == 0
    assert sorted(seen) == ["6.1/x", "6.1/y"]


def test_shipped_intervals_are_held_against_captures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(folder / "lab"), "--pairs", str(folder / "pairs.tsv"), "-j", "1"]
    assert unseen.main(given) == 0
    rows = [line.split("┆") for line in capsys.readouterr().out.splitlines() if line.startswith("│ 6.1/")]
    assert [row[0].strip("│ ") for row in rows] == ["6.1/x", "6.1/y"]
    for row in rows:
        n, without, covered = int(row[1]), int(row[3]), float(row[4])
        # B is the same capture: where nothing changes all rows hold, where preemption is off some do not.
        assert n > 20
        assert 0 < without < n
        assert 0 < covered <= 1
    (folder / "pairs.tsv").write_text(PAIRS)
    assert unseen.main(given) == 2


def test_use_of_a_cpu_is_half_forgotten_in_32_ms() -> None:
    past = execs.Past([0, 1000], [(True, True, 1, 0.0), (False, False, 1, 0.5)], end=execs.HALF_LIFE_NS * 3)
    running = past.at(999)
    asleep = past.at(1000 + execs.HALF_LIFE_NS)
    assert running is not None
    assert asleep is not None
    assert running[0] == pytest.approx(1 - 0.5 ** (999 / execs.HALF_LIFE_NS))
    assert running[1:] == (1, True)
    assert asleep == (pytest.approx(0.25), 1, False)
    assert past.at(-1) is None
    assert past.at(execs.HALF_LIFE_NS * 3 + 1) is None
