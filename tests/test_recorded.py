"""What a recording is of, where only its records show it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.explain import check
from tracekit.whatif.not_modelled import NotModelledError
from tracekit.whatif.recorded import part, refuse_part

LINE = "{comm} {tid} [{cpu:03}] {ts:.6f}: sched:{event}: {rest}\n"


def switch(ts: float, cpu: int, old: int, new: int) -> str:
    names = {0: f"swapper/{cpu}"}
    a, b = names.get(old, f"t{old}"), names.get(new, f"t{new}")
    rest = f"prev_comm={a} prev_pid={old} prev_prio=120 prev_state=S ==> next_comm={b} next_pid={new} next_prio=120"
    return LINE.format(comm=a.split("/")[0], tid=old, cpu=cpu, ts=ts, event="sched_switch", rest=rest)


def waking(ts: float, cpu: int, by: int, tid: int, target: int) -> str:
    rest = f"comm=t{tid} pid={tid} prio=120 target_cpu={target:03}"
    return LINE.format(comm=f"t{by}", tid=by, cpu=cpu, ts=ts, event="sched_waking", rest=rest)


def test_wakeups_name_a_cpu_without_records() -> None:
    text = "".join(
        switch(i, 1, 1, 2) + waking(i + 0.2, 1, 2, 3, 0) + switch(i + 0.5, 1, 2, 1) for i in range(6)
    )
    trace = tk.read(text.encode())
    found = part(trace)
    assert found is not None
    assert (found.cpus, found.of, found.derived, found.alone) == ((1,), 2, False, False)
    assert found.sentence.startswith("only CPU 1 of 2 was recorded: ")
    with pytest.raises(NotModelledError, match="only CPU 1 of 2 was"):
        refuse_part(trace)
    # A part of a trace is not a recording of a part.
    whole = tk.read(
        (text + "".join(switch(i + 0.3, 0, 0, 3) + switch(i + 0.4, 0, 3, 0) for i in range(6))).encode()
    )
    assert part(whole) is None
    assert part(whole.filter(cpu=1)) is None


def test_idle_tasks_that_never_leave() -> None:
    text = "".join(switch(i, 0, 1, 0) + waking(i + 0.2, 0, 2, 1, 0) for i in range(8))
    found = part(tk.read(text.encode()))
    assert found is not None
    assert found.tasks is not None
    assert "run-queue lengths are not known" in found.sentence


def test_a_recording_of_some_tasks_on_a_busy_machine() -> None:
    text = "".join(switch(i, 0, 1, 2 + i % 4) + waking(i + 0.2, 0, 2, 1, 0) for i in range(8))
    found = part(tk.read(text.encode()))
    assert found is not None
    assert found.what == "only some tasks (8 of 8 switches lead to threads from which none leads away)"


def test_switches_from_idle_that_perf_left_out_are_no_recording_of_some_tasks() -> None:
    text = ""
    for second in range(8):
        text += "".join(switch(second + n / 100, 0, 1 + n % 2, 2 - n % 2) for n in range(30))
        text += switch(second + 0.3, 0, 1, 0) + waking(second + 0.4, 0, 2, 1, 0)
    assert part(tk.read(text.encode())) is None


def test_cpus_between_which_nothing_goes_on_can_be_replayed() -> None:
    text = "".join(
        switch(i, 1, 0, 1) + switch(i + 0.5, 1, 1, 0) + waking(i + 0.7, 1, 0, 1, 1) for i in range(6)
    )
    read = tk.read(text.encode())
    trace = read.with_metadata({**read.metadata, "cpus.recorded": "1", "nr_cpus": "2"})
    found = part(trace)
    assert found is not None
    assert found.alone
    refuse_part(trace)


def test_differences_of_times_are_refused() -> None:
    text = "".join(switch(0.000001 * (7 * i % 5), 0, 1 + i % 2, 2 - i % 2) for i in range(20))
    with pytest.raises(tk.ParseError, match="times since the line before"):
        tk.read(text.encode())


def of_some_tasks(path: Path) -> Path:
    """A recording of tasks 1 and 2 of one CPU, which others have meanwhile."""
    text = "".join(
        switch(0.01 * i, 0, 1, 2) + waking(0.01 * i + 0.002, 0, 2, 1, 0) + switch(0.01 * i + 0.003, 0, 2, 0)
        for i in range(20)
    )
    path.write_text(text)
    assert (found := part(tk.read(path))) is not None
    assert found.tasks is not None
    # The tables know it, too: only behind another recorded task it is known when a slice began.
    assert set(tk.read(path).slices["dur_ns"]) == {3_000_000}
    return path


def test_rules_about_what_was_not_recorded_are_not_checked(tmp_path: Path) -> None:
    found = check(tk.read(of_some_tasks(tmp_path / "some.txt")))
    assert found.ok, found.sentence
    rows = {row["rule"]: (row["result"], row["says"]) for row in found.summary.iter_rows(named=True)}
    assert {rows[rule][0] for rule in ("one-cpu", "switch-chain", "sleep-wakeup")} == {"not checked"}
    assert rows["one-cpu"][1].startswith("only some tasks (")
    assert rows["time-order"][0] == "kept"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("solve {} --goal cpu(t)>1%", 4, "nothing models what was not recorded (only some tasks"),
        (
            "sweep {} --policy rr:quantum={{1ms,2ms}} --metric cpu(t) --jobs 1",
            2,
            "no cell has a result: nothing",
        ),
        ("timeline {}", 0, ", . idle, ? not recorded"),
    ],
)
def test_commands_say_that_only_some_tasks_were_recorded(
    words: str, status: int, said: str, tmp_path: Path
) -> None:
    path = os.fspath(of_some_tasks(tmp_path / "some.txt"))
    done = CliRunner().invoke(main, words.format(path).split())
    assert done.exit_code == status, done.output
    assert said in done.output
    if not status:
        line = next(text for text in done.output.splitlines() if text.startswith("CPU 0"))
        assert "." not in line
