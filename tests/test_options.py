"""Options of parsers: a slip is refused with the nearest name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.io.options import OPTIONS

ROOT = Path(__file__).parents[1]


#: What the reader of Perfetto files takes; it is written in Python.
PERFETTO = ("offline", "perfetto_addr", "perfetto_bin")
#: What the reader of workload texts takes; likewise.
WORKLOAD = ("policy", "seed")


def test_the_list_is_that_of_the_parsers() -> None:
    taken = {"clock", "clock_hz", "pattern"}
    for file in (ROOT / "parsers" / "src").rglob("*.rs"):
        taken |= set(re.findall(r'extra\s*\.(?:get|contains_key)\("([a-z_]+)"\)', file.read_text()))
    assert taken == {o for o in OPTIONS if o not in (*PERFETTO, *WORKLOAD)}


def test_a_slip_is_refused_with_the_nearest_name(demo: Path) -> None:
    with pytest.raises(tk.errors.ParseError, match="unknown option 'clok'; did you mean 'clock'") as raised:
        tk.read(demo, clok="mono")
    assert raised.value.code == "option"
    with pytest.raises(tk.errors.ParseError, match="unknown option 'bogus'; expected one of careful, clock"):
        tk.scan(demo, bogus=1)
    done = CliRunner().invoke(main, ["response", str(demo), "-O", "clok=mono"], prog_name="tracekit")
    assert done.exit_code == 2
    assert "did you mean 'clock'?" in done.output
    assert tk.read(demo, clock="mono").events.height > 0
