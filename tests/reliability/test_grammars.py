"""Texts of the command line and of settings files that are damaged: read, or refused with a reason.

`tools/fuzz_grammars.py` does the same for as long as one likes; what it found stands here.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import fuzz_grammars  # noqa: E402

TARGETS = fuzz_grammars.targets()
NINES = "9" * 5000

#: What was found, once each: an exception of Python's own, a wrong answer, or minutes and gigabytes.
FOUND = {
    "a goal beyond any number": ("goal", f"response.p95(db) < {NINES}ms"),
    "a goal that is no number": ("goal", "cpu(batch) > nan%"),
    "a limit beyond any number": ("fail-if", f"db: response p99 > {NINES} * baseline"),
    "a thread beyond any number": ("set", f"tid={NINES}: nice=19"),
    "a repetition beyond any number": ("set", "comm~a{1,4294967295}: nice=1"),
    "3,000 brackets in an expression": ("set", f"/{'(' * 3000}/: nice=1"),
    "a grid beyond any number": ("grid", f"rr:quantum=1ms..{NINES}ms/7log"),
    "a grid without end": ("grid-set", "*: weight={" + ",".join(map(str, range(2000))) + "},nice={"
                           + ",".join(map(str, range(2000))) + "}"),
    "a grid with a count beyond any number": ("grid-set", f"*: weight=1..1024/{NINES}log"),
    "a time beyond 64 bits": ("filter-time", "@99999999999999999999s;"),
    "CPUs without end": ("filter-cpu", ",".join(["0-1048575"] * 100)),
    "a CPU beyond 64 bits": ("filter-cpu", "18446744073709551616"),
    "a settings file with a number beyond any": ("scenario", f"[[task]]\ntid = {NINES}\nnice = 1\n"),
    "a settings file of brackets": ("scenario", f"x = {'[' * 3000}"),
    "a machine with a number beyond any": ("machine", f"schema = {NINES}\n"),
    "a machine of brackets": ("machine", f"schema = 1\nx = {'[' * 3000}"),
    "a map with a row that is cut": ("group-map", "pid\tcomm\tgroup\tcpu_weight\tcpu_max\n7\tspin\tweb\n"),
    "a map with digits that are none": ("group-map", "pid\tcomm\tgroup\tcpu_weight\tcpu_max\n7\ta\tb\t1²\tmax 1\n"),
    "a map with a number beyond any": ("group-map", f"pid\tcomm\tgroup\tcpu_weight\tcpu_max\n7\ta\tb\t1\t{NINES} 1\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused_with_a_reason(name: str) -> None:
    target, text = FOUND[name]
    with pytest.raises(TARGETS[target].refused) as raised:
        TARGETS[target].read(text)
    assert str(raised.value)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_texts_are_read_or_refused(name: str) -> None:
    target, draw = TARGETS[name], random.Random(name)
    for seed in target.seeds:
        target.read(seed)
    for _ in range(200):
        text = fuzz_grammars.damage(draw.choice(target.seeds), draw.choice(target.seeds), draw)
        assert fuzz_grammars.tried(target, text)[1] is None, text


def test_an_expression_that_explodes_elsewhere_is_linear_in_the_name() -> None:
    from tracekit.filters import holding

    assert holding("(a|a)*$x", ["a" * 1_000_000]) == set()
    assert holding("(a+)+$", ["a" * 100_000 + "b", "aa"]) == {"aa"}
