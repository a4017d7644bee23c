"""Clocks that count ticks: their rate comes from the file, from the clock or from the caller."""

from __future__ import annotations

from pathlib import Path

import tracekit as tk

DATS = Path(__file__).parents[1] / "fixtures" / "trace-dat"


def test_the_caller_gives_the_rate_of_a_trace_dat() -> None:
    path = DATS / "v6-tsc-unknown-rate" / "input.dat"
    ticks = tk.read(path)
    assert ticks.metadata["clock.unit"] == "ticks"
    told = tk.read(path, clock_hz=250_000_000)
    assert told.metadata["clock.unit"] == "ns"
    assert told.diagnostics.filter(code="clock-unit").is_empty()
    assert told.events["ts_ns"].to_list() == [4 * ts for ts in ticks.events["ts_ns"]]


def test_the_clock_uptime_counts_hundredths_of_a_second() -> None:
    raw = tk.read(DATS / "v6-tsc-unknown-rate" / "input.dat").events["ts_ns"]
    read = tk.read(DATS / "v6-uptime" / "input.dat")
    assert read.events["ts_ns"].to_list() == [10_000_000 * ts for ts in raw]
    found = read.diagnostics.filter(code="clock-unit")
    assert "steps of 10 ms" in found["message"][0]
    for hz, step in ((1_000, "1 ms"), (40_000, "25 us"), (10**9, "1 ns"), (10**10, "less than 1 ns")):
        said = tk.read(DATS / "v6-uptime" / "input.dat", clock_hz=hz).diagnostics.filter(code="clock-unit")
        assert f"steps of {step}:" in said["message"][0]
