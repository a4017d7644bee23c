"""Tasks that answer each other through sockets are refused by name, unless one of them pauses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.whatif.basis import unrecorded
from tracekit.whatif.fitness import fitness
from tracekit.whatif.loops import loops
from tracekit.whatif.scenario import parse_set

US = 1_000


class Text:
    """ftrace text of one CPU."""

    def __init__(self) -> None:
        self.now, self.on, self.lines = 1_000_000_000, "hog-4", ["# tracer: nop\n#\n"]

    def say(self, flags: str, event: str) -> None:
        comm, tid = self.on.rsplit("-", 1)
        self.lines.append(f"{comm:>16}-{tid}  [000] {flags} {self.now / 1e9:.6f}: {event}\n")

    def wake(self, who: str, flags: str) -> None:
        comm, tid = who.rsplit("-", 1)
        self.say(flags, f"sched_waking: comm={comm} pid={tid} prio=120 target_cpu=000")

    def run(self, who: str, length: int, state: str = "R") -> None:
        """Puts `who` on the CPU for so long; who was there leaves in `state`."""
        (x, p), (y, n) = self.on.rsplit("-", 1), who.rsplit("-", 1)
        left = f"prev_comm={x} prev_pid={p} prev_prio=120 prev_state={state}"
        self.say("d..2.", f"sched_switch: {left} ==> next_comm={y} next_pid={n} next_prio=120")
        self.on, self.now = who, self.now + length


def asking(path: Path, pause: bool, rounds: int = 300) -> tk.Trace:
    """A client and a server beside a hog; with `pause` a timer wakes the client before it asks again."""
    dice, text = random.Random(3), Text()
    for _ in range(rounds):
        text.run("client-7", 80 * US)
        text.wake("server-8", "d.s3.")
        text.now += 20 * US
        text.run("hog-4", dice.randrange(200, 900) * US, "S")
        text.run("server-8", 150 * US)
        text.wake("client-7", "d.s3.")
        text.now += 20 * US
        if pause:
            text.run("client-7", 30 * US, "S")
        text.run("hog-4", dice.randrange(200, 900) * US, "S")
        if pause:
            text.wake("client-7", "d.h3.")
    path.write_text("".join(text.lines))
    return tk.read(path)


@pytest.mark.parametrize("pause", [False, True])
def test_a_loop_through_sockets_is_refused_and_a_client_that_pauses_is_not(
    tmp_path: Path, pause: bool
) -> None:
    trace = asking(tmp_path / "asking.txt", pause)
    found = loops(trace, "group")
    assert (found is None) == pause
    compared = tk.compare(trace, "cfs", identity="cfs", scenario=[parse_set("hog: nice=19")], runs=3)
    missing = [check.found for check in fitness(trace).checks if check.what == "model"]
    assert missing == ([] if pause else ["none of answers through sockets without a pause"])
    assert any("answer each other" in said for said in unrecorded(compared.identity)) != pause
    changed = compared.table.filter(group="client", metric="run_delay", statistic="mean").row(0, named=True)
    assert changed["predicted"] != changed["identity"]
    rows = compared.table.filter(scope="group")
    own = rows.filter(rows["group"].is_in(["client", "server"]))
    said = own["trust_why"].str.starts_with(
        "not modelled: answers through sockets, for which alone client, server"
    )
    assert said.any() != pause
    assert said.all() != pause
    if not pause:
        assert set(own["trust"]) == {"do not use"}
        assert set(rows.filter(group="hog")["trust"]) <= {"with care", "do not use"}
    first = tk.compare(
        trace, "cfs", identity="cfs", scenario=[parse_set("client: policy=fifo,prio=9")], runs=3
    )
    others = first.table.filter(group="hog")["trust_why"].str.contains("what client, server leave to others")
    assert (others.any(), others.all()) == (not pause, not pause)
    same = tk.compare(trace, "cfs", identity="cfs", runs=3).table
    assert not same["trust_why"].str.contains("through sockets").any()
