"""Recordings with `sched_wakeup` alone say that their waits begin later than those with `sched_waking`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.explain import diff
from tracekit.whatif.recorded import wakes_late

from .conftest import Run

WORK = "cpus: 1\nuntil: 400\nA: (R1 S2)*100\nB: (R3 S1)*60"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One schedule, recorded with both records of a wakeup, and without one of them."""
    folder = tmp_path_factory.mktemp("wakeups")
    tk.generate(tk.simulate(WORK, "cfs"), folder / "both.txt", "ftrace")
    lines = (folder / "both.txt").read_text().splitlines(keepends=True)
    for name, leave_out in (("waking", "sched_wakeup:"), ("wakeup", "sched_waking:")):
        (folder / f"{name}.txt").write_text("".join(line for line in lines if leave_out not in line))
    return {name: folder / f"{name}.txt" for name in ("both", "waking", "wakeup")}


def test_only_a_recording_without_waking_begins_late(texts: dict[str, Path]) -> None:
    late = {name: wakes_late(tk.read(file)) for name, file in texts.items()}
    assert late["both"] is None
    assert late["waking"] is None
    assert late["wakeup"] is not None
    assert "no sched_waking is recorded" in late["wakeup"]
    # Both are one moment in a run of a policy.
    assert wakes_late(tk.simulate(WORK, "cfs")) is None


@pytest.mark.parametrize("command", [["latency"], ["latency", "--from", "0s"], ["response"]])
def test_the_commands_that_show_waits_say_so(
    command: list[str], texts: dict[str, Path], tracekit: Run
) -> None:
    for name, said in (("waking", False), ("wakeup", True)):
        done = tracekit(*command, texts[name], "--json")
        assert ("no sched_waking is recorded" in done.stderr) is said
        assert ("wakeups" in json.loads(done.stdout)) is said
    done = tracekit("latency", texts["wakeup"], "--cause", "preemption")
    assert "sched_waking" not in done.stderr, "these waits begin with a switch"


def test_doctor_says_what_to_record(texts: dict[str, Path], tracekit: Run) -> None:
    for name, said in (("waking", False), ("wakeup", True)):
        out = tracekit("doctor", texts[name]).stdout
        assert ("after a sleep from sched_wakeup on" in out) is said
        assert ("sched_waking: when the waker decided" in out) is said


def test_two_captures_that_count_from_different_records_are_not_alike(texts: dict[str, Path]) -> None:
    one, two = tk.read(texts["waking"]), tk.read(texts["wakeup"])

    def unlike(a: tk.Trace, b: tk.Trace) -> list[str]:
        return [w for w in diff(a, b).warnings if "sched_waking" in w]

    assert unlike(one, one) == unlike(two, two) == []
    assert unlike(one, two)[0].startswith("B without sched_waking")
    assert unlike(two, one)[0].startswith("A without sched_waking")


def test_a_comparison_says_so(texts: dict[str, Path]) -> None:
    for name, said in (("waking", False), ("wakeup", True)):
        compared = tk.compare(tk.read(texts[name]), ["fifo"], runs=1)
        notes = compared.to_dict()["not_recorded"]
        assert any("no sched_waking is recorded" in note for note in notes) is said
