"""One run in several forms: identity replays of the same figures, or a warning that names what the
poorer form lacks."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit as tk
from tracekit import _core
from tracekit._frames import to_frame
from tracekit.whatif.calibration import calibrate
from validation.forms import FLAGLESS, KINDS, SAME, lacks, reduced


@pytest.mark.parametrize("name", [*KINDS, FLAGLESS])
def test_every_form_of_a_run_gives_its_figures_or_says_what_it_lacks(trace: tk.Trace, name: str) -> None:
    poorer = reduced(trace, name)
    whole, other = tk.replay(trace, "cfs"), tk.replay(poorer, "cfs")
    main = [calibrate(trace, replay).filter(metric="main")["replayed"].item() for replay in (whole, other)]
    assert lacks(trace, whole) == ""
    assert "clock ticks" in lacks(poorer, other)
    assert abs(main[1] / main[0] - 1) < SAME or lacks(poorer, other), main


def test_times_of_whole_microseconds_are_told(trace: tk.Trace) -> None:
    events = trace.events.with_columns(pl.col("ts_ns") // 1000 * 1000)
    tables = {n: to_frame(t) for n, t in _core.derive(events, trace.metadata).items()}
    coarse = tk.Trace(tables | {"events": events}, trace.metadata, "coarse")
    assert "whole microseconds" in lacks(coarse, tk.replay(coarse, "cfs"))
