"""Hard bounds under losses: the truth lies inside, whatever was taken out."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.analysis import bounds
from tracekit.analysis.completion import missing
from tracekit.cli import main
from tracekit.errors import TracekitError
from tracekit.explain import bound, what_holds

from .lossy import KINDS, clean, lose, made, missed, part, taken_out, truth

#: Trials of each kind and trace; `make bounds` asks for 125, which are 1,000 in all.
TRIALS = int(os.environ.get("TRACEKIT_BOUNDS", "3"))


@pytest.fixture(scope="module")
def traces(root: Path) -> dict[str, tk.Trace]:
    return dict(clean(root))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["one CPU", "two CPUs"])
def test_the_truth_lies_inside(traces: dict[str, tk.Trace], which: str, kind: str) -> None:
    whole = traces[which]
    rng = np.random.default_rng(KINDS.index(kind))
    refused = 0
    for trial in range(TRIALS):
        gone = taken_out(rng, whole.events, kind)
        if not gone.any():
            continue
        lossy = lose(whole, gone)
        found = lossy.bounds()
        assert missed(truth(whole, lossy), found).rows() == [], f"trial {trial}, {gone.sum()} records lost"
        (row,) = found.filter(scope="all", metric="slice", statistic="p95").to_dicts()
        # A task that changes CPUs while both lose records may contradict one of them before its loss is told.
        assert row["upper"] is not None or "switch-" in row["reason"], f"trial {trial}"
        refused += row["upper"] is None
    assert refused <= TRIALS // 100


def test_bounds_that_do_not_know_of_half_the_losses_fail(traces: dict[str, tk.Trace]) -> None:
    rng = np.random.default_rng(0)
    whole = traces["two CPUs"]
    failed = 0
    for _ in range(8):
        lossy = lose(whole, rng.random(whole.events.height) < 0.1, 0.5, rng)
        # The reading notices some of it, and would refuse; here the bounds are held against the
        # markers alone.
        silent = missing(
            lossy.losses,
            lossy.diagnostics.clear(),
            lossy.cpus,
            lossy.events,
            {},
            whole.start_ns or 0,
            whole.end_ns or 0,
        )
        found = bounds.table(silent, lossy.slices, lossy.states, lossy.runqueue)
        failed += bool(missed(truth(whole, lossy), found).height)
    assert failed >= 6


def test_nothing_lost_nothing_to_bound(traces: dict[str, tk.Trace]) -> None:
    assert all(t.missing().whole and t.bounds().is_empty() for t in traces.values())


def test_unmarked_damage_is_refused(traces: dict[str, tk.Trace]) -> None:
    whole = traces["one CPU"]
    switches = whole.events["kind"].cast(pl.String) == "switch"
    gone = switches & (pl.int_range(len(switches), eager=True) == 300 + int(switches[300:].arg_max() or 0))
    broken = made(whole, whole.events.filter(~gone))
    found = broken.bounds()
    assert "switch-" in (broken.missing().refused or ""), "a contradiction, or inferred from run time"
    assert found["lower"].null_count() == found["upper"].null_count() == found.height > 0
    assert found["reason"].str.contains("does not say so").all()


def test_an_unknown_number_of_records_leaves_no_upper_bound_on_counts(traces: dict[str, tk.Trace]) -> None:
    whole = traces["one CPU"]
    lossy = lose(whole, np.arange(whole.events.height) == 200)
    unknown = tk.Trace(
        {
            **{k: lossy.table(k) for k in lossy.tables},
            "losses": lossy.losses.with_columns(count=pl.lit(None, pl.Int64)),
        },
        lossy.metadata,
    )
    rows = {
        (r["metric"], r["statistic"]): r for r in unknown.bounds().filter(scope="all").iter_rows(named=True)
    }
    switches = rows["switches", "total"]
    assert switches["lower"] > 0
    assert switches["upper"] is None
    assert switches["reason"] == "nobody knows how many records were lost"
    # Time is bounded all the same: no more than the hole can have been run.
    real = truth(whole, lossy).filter(scope="all", metric="cpu_time")["value"].item()
    cpu = rows["cpu_time", "total"]
    assert cpu["lower"] <= real <= cpu["upper"] <= 1.01 * real
    assert rows["slice", "p95"]["upper"] is not None


def test_a_cpu_that_was_not_recorded(traces: dict[str, tk.Trace]) -> None:
    whole = traces["two CPUs"]
    one = made(whole, whole.events.filter(pl.col("cpu") == 0))
    assert set(one.missing().windows) == {1}
    found = one.bounds()
    assert missed(truth(whole, one), found).rows() == []
    rows = {(r["metric"], r["statistic"]): r for r in found.filter(scope="all").iter_rows(named=True)}
    waits = rows["run_delay", "mean"]
    assert (waits["lower"], waits["upper"]) == (None, None)
    assert waits["reason"] == "nobody knows how many records were lost"
    assert rows["cpu_time", "total"]["upper"] is not None


def _snapshot(begin: int, kept: str) -> tk.Trace:
    """What `cat trace` gives of two full ring buffers: that of CPU 1 reaches back to `begin` us."""
    rows = []
    for at in range(0, 1000, 10):
        for cpu, (a, b) in enumerate(((10, 11), (20, 21))):
            who, to = (a, b) if at % 20 else (b, a)
            text = f"sched_switch: t:{who} [120] R ==> t:{to} [120]"
            if cpu == 0 or at >= begin:
                rows.append(f"t-{who} [00{cpu}] d..2. 5.{at + cpu:06d}: {text}")
    head = f"# tracer: nop\n#\n# entries-in-buffer/entries-written: {kept}   #P:2\n#\n"
    return tk.read((head + "\n".join(rows) + "\n").encode())


def test_what_ring_buffers_overwrote_is_older_than_what_they_kept() -> None:
    trace = _snapshot(500, "150/100150")
    (window,) = (w for ws in trace.missing().windows.values() for w in ws)
    assert (window.cpu, window.lo, window.hi) == (1, 5_000_000_000, 5_000_501_000)
    assert window.records == 100_000
    (cause,) = trace.causes().filter(code="overwritten").to_dicts()
    assert cause["time_share"] == pytest.approx(501 / 991 / 2)
    assert cause["advice"].startswith("from @5.000501000s on")
    known = trace.bounds().filter(scope="all", metric="slice", statistic="max").row(0, named=True)
    assert (known["lower"], known["upper"]) == (10_000, 501_000)
    assert trace.filter(start="@5.000501s").missing().windows == {}
    # Both CPUs begin together: what was lost came before the trace.
    assert _snapshot(0, "200/100200").filter(start="@5.000001s").missing().windows == {}


def test_switches_alone_bound_wakeup_latency(traces: dict[str, tk.Trace]) -> None:
    whole = traces["one CPU"]
    kinds = whole.events["kind"].cast(pl.String)
    only = made(whole, whole.events.filter(kinds == "switch"))
    # Both begin with the same record, so that both are as long.
    first = int((kinds == "switch").arg_max() or 0)
    whole = part(whole, first, whole.events.height)
    found = only.bounds()
    assert not only.missing().wakeups
    exact = found.filter(scope="all", metric="slice")
    assert exact["lower"].equals(exact["upper"].rename("lower"))
    real = truth(whole, only).filter(scope="all", metric="run_delay")
    assert missed(real, found).rows() == []
    assert found.filter(scope="all", metric="run_delay", statistic="p50")["upper"].item() > 0


def test_the_tail_of_one_cpu_is_unknown_to_the_end(traces: dict[str, tk.Trace]) -> None:
    whole = traces["two CPUs"]
    own = np.flatnonzero((whole.events["cpu"] == 1).to_numpy())
    gone = np.zeros(whole.events.height, dtype=bool)
    gone[own[len(own) // 2 :]] = True
    gone[-1] = False
    lossy = lose(whole, gone)
    assert missed(truth(whole, lossy), lossy.bounds()).rows() == []


def test_sentences_and_cells_say_what_holds(traces: dict[str, tk.Trace]) -> None:
    lossy = lose(traces["one CPU"], np.arange(traces["one CPU"].events.height) == 333)
    said = what_holds(lossy.missing(), lossy.bounds("all"))
    assert said[0].startswith("1 record was lost. Whatever was in them, known to 5 %: slice mean")
    assert any(s.startswith("At least: ") and "response time" in s for s in said)
    assert what_holds(traces["one CPU"].missing(), traces["one CPU"].bounds()) == []
    cpus = traces["two CPUs"].events["cpu"].to_numpy()
    gone = lose(traces["two CPUs"], cpus == 1)
    unsaid = gone.losses.clear(), gone.diagnostics.clear()
    silent = missing(*unsaid, gone.cpus, gone.events, {}, gone.start_ns or 0, gone.end_ns or 0)
    assert silent.silent == (1,)
    said = what_holds(silent, gone.bounds("all"))
    assert said[0].startswith("CPU 1 has no record, though tasks were sent there. Whatever is missing, known")
    row = {"metric": "slice", "statistic": "p50"}
    cells = [(1e6, 2e6), (1e6, None), (0.0, 2e6), (None, None), (5.0, 5.0), (1.0, 1e9)]
    assert [bound({**row, "lower": a, "upper": b}) for a, b in cells] == [
        "1 to 2 ms", "at least 1 ms", "at most 2 ms", "no bound", "5 ns", "at least 1 ns"
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["slices", "latency", "response", "runqueue"])
def test_bounds_stand_below_the_metrics(command: str, root: Path) -> None:
    capture = str(root / "fixtures" / "perf-data" / "lost-records" / "input.data")
    text = CliRunner().invoke(main, [command, capture, "--quiet"]).stdout
    head, _, below = text.partition("Whatever was in them, the metrics lie within:")
    assert head.splitlines()
    assert "max" in below
    assert re.search(r"\d( [mu]s)? to \d|at least \d", below)
    rows = json.loads(CliRunner().invoke(main, [command, capture, "--quiet", "--json"]).stdout)["bounds"]
    assert all(r["lower"] is None or r["upper"] is None or r["lower"] <= r["upper"] for r in rows)


def test_what_is_missing_is_named_above_the_bounds(root: Path, tmp_path: Path) -> None:
    def said(command: str, path: Path) -> str:
        return CliRunner().invoke(main, [command, str(path), "--quiet"]).stdout

    lost = root / "fixtures" / "perf-data" / "lost-records" / "input.data"
    assert re.search(
        r"^\d+ records? (was|were) lost.* Whatever was in them, the metrics", said("slices", lost), re.M
    )
    # Without wakeups the lengths of slices are known.
    line = "t{0}-{0} [000] {2}.0: sched_switch: {0}:{0} [120] S ==> {1}:{1} [120]\n"
    path = tmp_path / "switches.txt"
    path.write_text("".join(line.format(1 + i % 2, 2 - i % 2, i) for i in range(9)))
    assert "Wakeups were not recorded. Whatever was in them, the metrics lie" in said("runqueue", path)
    text = said("slices", path)
    assert text.startswith("group")
    assert "the metrics lie" not in text


def test_every_marker_of_every_format_bounds_or_refuses(root: Path) -> None:
    """Fixtures of all formats: bounds are in order, and a bound that is not there has its reason."""
    seen: dict[str, set[str]] = {"bounded": set(), "refused": set()}
    for place in sorted((root / "fixtures").glob("*/*/input*")):
        if place.suffix == ".toml":
            continue
        try:
            found = tk.read(place, cache=None)
        except TracekitError:
            continue
        gaps, rows = found.missing(), found.bounds()
        assert gaps.whole == rows.is_empty() or not found.slices.height, place
        if gaps.whole:
            continue
        seen["refused" if gaps.refused else "bounded"].add(place.parent.parent.name)
        assert rows.filter(pl.col("lower") > pl.col("upper")).is_empty(), place
        assert rows.filter(pl.col("upper").is_null() & pl.col("reason").is_null()).is_empty(), place
        assert what_holds(gaps, rows), place
    formats = {
        "ctf",
        "dtrace-tkd",
        "ktr",
        "lttng-text",
        "perf-data",
        "schedviz",
        "systrace-html",
        "trace-dat",
        "trcrpt",
    }
    assert formats <= seen["bounded"]
    assert {"ftrace-text", "perf-timehist", "dtrace-text", "curt"} <= seen["refused"]
