"""One run in several forms: identity replays of the same figures, or a warning that names what the
poorer form lacks."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit as tk
from tracekit import _core
from tracekit._frames import to_frame
from tracekit.whatif.calibration import calibrate
from tracekit.whatif.contexts import recognise

FORMS = {
    "all events": None,
    "switches and wakings": ["switch", "waking", "fork", "exit"],
    "without interrupt flags": None,
}


def form(trace: tk.Trace, name: str) -> tk.Trace:
    """The trace as another recording of the same run would show it."""
    events = trace.events
    kinds = FORMS[name]
    if kinds is not None:
        events = events.filter(pl.col("kind").cast(pl.String).is_in(kinds))
    if name == "without interrupt flags":
        events = events.with_columns(pl.lit(None, dtype=events["irq_flags"].dtype).alias("irq_flags"))
    tables = {n: to_frame(t) for n, t in _core.derive(events, trace.metadata).items()}
    return tk.Trace(tables | {"events": events}, trace.metadata, name)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_run_gives_its_figures_or_says_what_it_lacks(trace: tk.Trace, name: str) -> None:
    asked = tk.replay(trace, "cfs")
    other = tk.replay(form(trace, name), "cfs")
    main = [calibrate(trace, replay).filter(metric="main")["replayed"].item() for replay in (asked, other)]
    told = [m for m in other.diagnostics["message"] if "no record shows why" in m]
    context = recognise(form(trace, name)).sentence()
    assert abs(main[1] / main[0] - 1) < 0.02 or told or context, main
