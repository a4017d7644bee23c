from __future__ import annotations

import inspect
import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tracekit as tk
from tracekit import plot
from tracekit.analysis import latency, response, runqueue, slices
from tracekit.plot import _style

EVIL = ["<script>alert(1)</script>", "$x_{1}$ $", '"&<b>', "_hidden", "\x07bell", "\u202eabc"]


def trace(names: list[str], scale: int = 1) -> pl.DataFrame:
    """Tasks that take turns: woken, preempted once, done."""
    rows = []
    now = 1_000_000
    for i in range(120):
        tid = i % len(names) + 1
        run = scale * (20_000 + 7_000 * (i % 5))
        common = {"cpu": 0, "utid": tid, "tid": tid, "comm": names[tid - 1], "flags": 0}
        rows.append(
            {**common, "ts_ns": now, "dur_ns": run, "end_state": "preempted", "involuntary": True}
            | {"wake_ts_ns": now - 3_000 - 100 * i, "run_delay_ns": 3_000 + 100 * i}
        )
        rows.append(
            {**common, "ts_ns": now + 2 * run, "dur_ns": run, "end_state": "sleeping", "involuntary": False}
            | {"wake_ts_ns": None, "run_delay_ns": run}
        )
        now += 4 * run
    schema = {
        "comm": pl.Categorical,
        "end_state": pl.Categorical,
        "cpu": pl.Int32,
        "utid": pl.UInt32,
        "flags": pl.UInt16,
    }
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)


def queue(top: int) -> pl.DataFrame:
    rows = [(1_000 * i, 0, int(i % 3 > 0), i % top, 0) for i in range(400)]
    schema = {
        "ts_ns": pl.Int64,
        "cpu": pl.Int32,
        "nr_running": pl.Int32,
        "nr_waiting": pl.Int32,
        "flags": pl.UInt16,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def texts(fig: Figure) -> list[str]:
    fig.canvas.draw()
    return [t.get_text() for t in fig.findobj(mpl.text.Text) if t.get_text()]


def svg_texts(fig: Figure) -> str:
    out = io.BytesIO()
    with plot.style():
        fig.savefig(out, format="svg")
    root = ET.fromstring(out.getvalue())
    return "\n".join("".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text"))


def every_figure(names: list[str], labels: list[str], title: str) -> list[Figure]:
    tables = {label: trace(names, i + 1) for i, label in enumerate(labels)}
    queues = {label: queue(5 + i) for i, label in enumerate(labels)}
    return [
        plot.histogram({k: slices.histogram(t) for k, t in tables.items()}, name=title),
        plot.histogram(slices.histogram(tables[labels[0]]), name=title, weight="time"),
        plot.cdf({k: response.cdf(t, by="comm") for k, t in tables.items()}, name=title),
        plot.cdf(
            {k: latency.cdf(t, by="comm") for k, t in tables.items()},
            groups=[names[0]],
            name=title,
            tail=True,
        ),
        plot.queue_distribution({k: runqueue.distribution(q) for k, q in queues.items()}, name=title),
        plot.queue_over_time({k: runqueue.over_time(q) for k, q in queues.items()}, name=title),
        plot.timeline(tables, name=title, dur_ns=1_000_000),
    ]


def test_names_are_drawn_as_they_are_and_never_as_formulas() -> None:
    for fig in every_figure(EVIL[:3], [_style.RECORDED, _style.IDENTITY, EVIL[1]], EVIL[0]):
        assert not any(t.get_parse_math() for t in fig.findobj(mpl.text.Text))
        assert EVIL[0] in svg_texts(fig)


def test_every_name_survives_drawing() -> None:
    fig = plot.cdf(response.cdf(trace(EVIL), by="comm"))
    shown = svg_texts(fig)
    for name in EVIL[:4]:
        assert name in shown
    assert "\ufffdbell" in shown, "control characters are shown as such"
    assert "\u202e" not in shown, "text does not change its direction"


def test_a_legend_names_every_trace_and_its_samples() -> None:
    labels = [_style.RECORDED, _style.IDENTITY, "rr:quantum=10ms"]
    hist, _, _, tail, dist, over, line = every_figure(["a1", "b1"], labels, "boot.dat")
    assert "recorded (n = 240)" in texts(hist)
    assert "rr:quantum=10ms (n = 120)" in texts(tail), "one group: its own samples"
    assert any(t.startswith("identity replay (mean ") for t in texts(dist))
    assert {"recorded", "rr:quantum=10ms"} <= set(texts(over))
    assert "recorded, CPU 0" in texts(line)
    for fig in (hist, tail, dist, over, line):
        assert any("boot.dat" in t for t in texts(fig))


def test_a_distribution_of_nothing_has_no_count_and_no_name() -> None:
    curve = response.cdf(trace(["a"]).head(0))
    assert curve.is_empty()
    assert set(texts(plot.cdf(curve))) == {"Response time", "no samples"}
    assert set(texts(plot.cdf(curve, groups=["b"]))) == {"Response time", "no samples", "b"}


def test_a_logarithmic_axis_of_shares_is_labelled_down_to_the_rarest() -> None:
    curve = pl.DataFrame({"group": "t", "value_ns": range(1000, 6000), "n_events": 1, "n_censored": 0})
    curve = curve.with_columns(cdf=(pl.col("value_ns") - 999) / 5000)
    (axes,) = plot.cdf(curve, tail=True).axes
    shown = [axes.yaxis.get_major_formatter()(t) for t in axes.get_yticks()]
    assert shown == ["0.1 %", "1 %", "10 %", "100 %"], "0.02 % is the last step"
    (axes,) = plot.cdf(curve.head(40).with_columns(cdf=pl.int_range(1, 41) / 40), tail=True).axes
    assert list(axes.get_yticks()) == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1])


def test_recorded_and_identity_have_fixed_looks_and_policies_differ() -> None:
    labels = [_style.RECORDED, _style.IDENTITY, *[f"p{i}" for i in range(12)]]
    looks = _style.looks(labels)
    assert looks[_style.RECORDED]["color"] == _style.INK
    seen = {(look["color"], str(look["linestyle"])) for look in looks.values()}
    assert len(seen) == len(labels)


def test_the_curve_passes_through_its_samples() -> None:
    curve = pl.DataFrame(
        {"group": ["g"] * 3, "value_ns": [0, 1_000, 9_000], "n_events": [1, 2, 1], "n_censored": [0, 0, 0]}
    ).with_columns(pl.Series("cdf", [0.25, 0.75, 1.0]))
    fig = plot.cdf(curve)
    ax: Axes = fig.axes[0]
    x, y = (np.asarray(v) for v in ax.lines[0].get_data())
    assert y[0] == 0.25, "samples of 0 ns are the level at the left edge"
    assert y[np.flatnonzero(x == 1_000)[0]] == 0.75
    assert y[-1] == 1.0
    assert ax.get_xscale() == "log"


def test_curves_have_their_band_and_bars_their_interval(demo: Path) -> None:
    real = tk.read(demo)
    curve = latency.cdf(real).filter(pl.col("group") == "waker")
    (band,) = plot.cdf(curve).axes[0].collections
    inside = band.get_paths()[0].vertices
    at = curve.filter(pl.col("cdf") >= 0.5).row(0, named=True)
    near = inside[np.isclose(inside[:, 0], at["value_ns"])]
    assert near[:, 1].min() == pytest.approx(at["cdf_low"], abs=0.05)
    assert near[:, 1].max() == pytest.approx(at["cdf_high"], abs=0.05)
    assert not plot.cdf(curve.drop("cdf_low", "cdf_high")).axes[0].collections
    shares = runqueue.distribution(real)
    lines = plot.queue_distribution(shares).axes[0].collections
    drawn = sum(len(line.get_segments()) for line in lines)
    assert drawn == shares.filter(scope="system")["share_low"].count() > 0


def test_long_curves_are_thinned_without_losing_their_shape() -> None:
    n = 200_000
    values = np.sort(np.random.default_rng(1).lognormal(12, 1, n)).astype(np.int64)
    frame = pl.DataFrame({"group": ["g"] * n, "value_ns": values, "n_events": [1] * n, "n_censored": [0] * n})
    fig = plot.cdf(frame.with_columns(pl.Series("cdf", np.arange(1, n + 1) / n)))
    x, y = (np.asarray(v) for v in fig.axes[0].lines[0].get_data())
    assert len(x) < 3_000
    at = np.searchsorted(values, x[1:-1], side="right") / n
    assert np.abs(at - y[1:-1]).max() < 0.002


def test_histogram_bars_are_the_shares() -> None:
    table = slices.histogram(trace(["a"]), bins_per_decade=5)
    fig = plot.histogram(table)
    stairs = fig.axes[0].patches[0]
    values, edges, _ = stairs.get_data()  # type: ignore[attr-defined]
    assert sum(values) == pytest.approx(1)
    assert list(edges[1:]) == table["hi_ns"].to_list()


def test_a_histogram_of_one_group_names_it() -> None:
    found = texts(plot.histogram(slices.histogram(trace(["a"]), by="comm"), name="boot.dat"))
    assert {"a", "Length of slice, by number, boot.dat"} <= set(found)


@pytest.mark.parametrize("rest", [[20_000, 300_000], []])
def test_samples_of_no_length_stand_left_of_the_time_axis(rest: list[int]) -> None:
    data = pl.DataFrame({"utid": 1, "tid": 1, "comm": "a", "v": [0] * 3 + rest})
    fig = plot.histogram(slices.histogram(data, value="v", all_rows=True, by="comm"))
    ax = fig.axes[0]
    fig.canvas.draw()
    marks = dict(zip(ax.get_xticks(), (t.get_text() for t in ax.get_xticklabels()), strict=True))
    (zero,) = (place for place, text in marks.items() if text == "0")
    assert zero == min(marks)
    values, edges, _ = ax.patches[-1].get_data()  # type: ignore[attr-defined]
    assert list(values) == [3 / (3 + len(rest))]
    assert edges[0] < zero < edges[1]
    # What has a length begins its axis with its own bins, and has most of the width.
    left, right = ax.get_xlim()
    first = 15_849 if rest else 100
    assert edges[1] < first
    assert np.log(right / first) / np.log(right / left) > 0.85


@pytest.mark.parametrize(("top", "bars"), [(5, True), (300, False)])
def test_queue_bars_are_the_shares(top: int, bars: bool) -> None:
    shares = runqueue.distribution(queue(top)).filter(pl.col("scope") == "system").sort("length")
    fig = plot.queue_distribution(runqueue.distribution(queue(top)), cpu=0 if bars else None)
    if bars:
        heights = [p.get_height() for p in fig.axes[0].patches]
        assert heights == pytest.approx(shares["share"].to_list())
    else:
        values, _, _ = fig.axes[0].patches[0].get_data()  # type: ignore[attr-defined]
        assert sum(values) == pytest.approx(1)


def test_timeline_draws_each_slice_of_the_window_cut_to_it() -> None:
    table = trace(["a1", "b1"])
    fig = plot.timeline(table, start_ns=1_010_000, dur_ns=100_000)
    boxes = [p for c in fig.axes[0].collections for p in c.get_paths()]
    inside = table.filter((pl.col("ts_ns") < 1_110_000) & (pl.col("ts_ns") + pl.col("dur_ns") > 1_010_000))
    assert len(boxes) == inside.height
    spans = sorted((float(b.get_extents().x0), float(b.get_extents().x1)) for b in boxes)
    assert spans[0] == (0.0, 10_000.0)
    assert all(0 <= lo < hi <= 100_000 for lo, hi in spans)


def test_queues_over_time_have_one_scale() -> None:
    long, short = (runqueue.over_time(queue(3), end, 10) for end in (9_000_000, 4_000_000))
    fig = plot.queue_over_time({"recorded": short, "rr": long})
    right = {ax.get_xlim()[1] for ax in fig.axes}
    spans = [int(t["ts_ns"][-1] + t["dur_ns"][-1] - t["ts_ns"][0]) for t in (long, short)]
    assert spans[0] > spans[1]
    assert right == {spans[0]}


DEMO = Path(__file__).parents[2] / "fixtures/demo/slice-default.dat"
LONG = "a recording of the night before the release, taken again on Monday.data"


@pytest.mark.parametrize(
    "draw",
    [
        lambda name: plot.histogram(slices.histogram(trace(["a"])), name=name),
        lambda name: plot.histogram(slices.histogram(trace(list("abcdefgh")), by="comm"), name=name),
        lambda name: plot.cdf(response.cdf(trace(["a"]).clear()), name=name),
        lambda name: plot.queue_distribution(runqueue.distribution(queue(3)), name=name),
        lambda name: plot.queue_over_time(runqueue.over_time(queue(3)), name=name),
        lambda name: plot.timeline(trace(["a"]), name=name),
        lambda name: plot.predictions(tk.compare(DEMO, "rr", runs=1).table, name=name),
    ],
)
def test_a_long_name_is_cut_and_the_title_is_not(draw: Callable[[str], Figure]) -> None:
    fig = draw(LONG)
    fig.canvas.draw()
    title = fig.get_suptitle()
    assert ", a rec" in title
    assert "..." in title
    (drawn,) = [t for t in fig.texts if t.get_text() == title]
    assert drawn.get_window_extent().x1 <= fig.bbox.x1


def test_nothing_to_show_is_said() -> None:
    none = trace(["a"]).clear()
    assert "no samples of known length" in texts(plot.histogram(slices.histogram(none)))
    assert "no samples" in texts(plot.cdf(response.cdf(none)))
    assert "no run-queue lengths" in texts(plot.queue_distribution(runqueue.distribution(queue(3).clear())))
    assert "no run-queue lengths" in texts(plot.queue_over_time(runqueue.over_time(queue(3).clear())))
    lost = queue(3).with_columns(flags=pl.lit(runqueue.c.CROSSES_LOSS, pl.UInt16))
    assert "no run-queue lengths" in texts(plot.queue_over_time(runqueue.over_time(lost)))
    assert "no slices in this window" in texts(plot.timeline(none))


@pytest.mark.parametrize(
    ("lo", "hi", "wanted"),
    [
        (1e3, 1e9, "1 ms"),
        (2e4, 9e4, "50 us"),
        (5e5, 2e7, "3 ms"),
        (1e2, 1e12, "10 us"),
        (1e6, 1.7e6, "1.6 ms"),
    ],
)
def test_time_axes_have_round_labels(lo: float, hi: float, wanted: str) -> None:
    _, (ax,) = _style.new_figure(4, 3)
    _style.time_axis(ax, lo, hi, "t")
    shown = [t.get_text() for t in ax.get_xticklabels()]
    assert wanted in shown
    assert 2 <= len(shown) <= 8


def test_every_plot_says_how_to_read_it() -> None:
    functions = [getattr(plot, n) for n in plot.__all__ if n.islower() and n not in ("how_to_read", "style")]
    assert len(functions) >= 5
    for function in functions:
        text = plot.how_to_read(function)
        assert len(text) > 150, function
        assert "  " not in text
        assert text in " ".join((inspect.getdoc(function) or "").split())

    def silent() -> None:
        """No such section."""

    assert plot.how_to_read(silent) == ""


def test_plots_leave_matplotlib_as_it_was() -> None:
    before = dict(mpl.rcParams)
    every_figure(["a"], ["x"], "t")
    assert dict(mpl.rcParams) == before


def test_notebooks_show_figures_without_magic() -> None:
    png = plot.histogram(slices.histogram(trace(["a"])))._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")


def test_of_too_many_predictions_those_that_change_are_drawn(demo: Path) -> None:
    table = tk.compare(demo, "cfs:wakeup_preemption=off", runs=3).table
    table = table.filter(pl.col("recorded") > 0, pl.col("predicted") > 0)
    resolved = table.filter(verdict="resolved")
    rows = pl.concat([table.filter(pl.col("verdict") != "resolved"), resolved.tail(3)])
    assert len(rows) > 19
    ax = plot.predictions(rows, "demo").axes[0]
    drawn = [label.get_text() for label in ax.get_yticklabels()]
    alone = plot.predictions(resolved.tail(3)).axes[0]
    assert len(drawn) == 16
    assert drawn[-3:] == [label.get_text() for label in alone.get_yticklabels()]
    title = ax.figure.get_suptitle()  # type: ignore[union-attr]
    assert title == f"Predicted against recorded, demo (16 of {len(rows)})"


def test_the_legend_says_what_hollow_dots_are(demo: Path) -> None:
    table = tk.compare(demo, "cfs:wakeup_preemption=off", runs=3).summary.filter(pl.col("predicted") > 0)
    clear = table.with_columns(verdict=pl.lit("resolved"), trust=pl.lit("trusted"))
    assert not {"not resolved", "do not use"} & set(texts(plot.predictions(clear)))
    vague = clear.with_columns(verdict=pl.lit("not resolved"))
    assert "not resolved" in texts(plot.predictions(vague))
    refused = vague.with_columns(trust=pl.lit("do not use"))
    assert {"not resolved", "do not use"} & set(texts(plot.predictions(refused))) == {"do not use"}


def test_predictions_that_are_not_to_be_used_are_drawn_as_such(demo: Path) -> None:
    table = tk.compare(demo, "cfs:wakeup_preemption=off", runs=3).summary.filter(pl.col("predicted") > 0)
    first = table.with_row_index().select(pl.col("index") == 0).to_series()
    far = pl.when(first).then(pl.col("predicted") * 1e6).otherwise(pl.col("predicted"))
    trust = pl.when(first).then(pl.lit("do not use")).otherwise(pl.lit("trusted"))
    rows = table.with_columns(predicted=far, low=pl.col("low").fill_null(far / 2), trust=trust)
    ax = plot.predictions(rows, "demo").axes[0]
    dots = [line for line in ax.get_lines() if line.get_marker() in "o>"]
    assert len(dots) == rows.height
    grey = [line for line in dots if line.get_markeredgecolor() == dots[0].get_markeredgecolor()]
    assert (grey, dots[0].get_markersize() < dots[1].get_markersize()) == ([dots[0]], True)
    # The axis makes no room for it: an arrow within it says that there is something.
    assert dots[0].get_marker() == ">"
    assert ax.get_xlim()[1] / 1.1 < dots[0].get_xdata()[0] < ax.get_xlim()[1] < 1e4  # type: ignore[index]
    assert {line.get_marker() for line in dots[1:]} == {"o"}
    names = [text.get_text() for text in ax.figure.legends[0].get_texts()]  # type: ignore[union-attr]
    assert names[-1] == "do not use"
    alone = plot.predictions(table.with_columns(trust=pl.lit("trusted"))).axes[0]
    assert "do not use" not in [t.get_text() for t in alone.figure.legends[0].get_texts()]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.58, 4.0, [0.7, 1, 2, 3]), (0.3, 1.6, [0.3, 0.5, 0.7, 1]), (0.66, 1.5, [0.67, 0.8, 1, 1.25, 1.5])],
)
def test_factors_have_ticks_over_the_whole_axis(low: float, high: float, ticks: list[float]) -> None:
    """Of an axis from 0.58 to 4 the last tick was at 2."""
    from tracekit.plot.predictions import _factor_axis

    ax = Figure().subplots()
    _factor_axis(ax, low, high)
    assert list(ax.get_xticks()) == ticks


def test_titles_say_how_many_groups_have_no_panel() -> None:
    data = trace([f"task{i}" for i in range(9)])
    curves, bins = response.cdf(data, by="comm"), slices.histogram(data, by="comm")
    for draw, table in ((plot.cdf, curves), (plot.histogram, bins)):
        title = draw(table).get_suptitle()  # type: ignore[attr-defined]
        assert title.endswith(" (3 more groups not shown)")
        chosen = draw(table, groups=["task0", "task1"]).get_suptitle()  # type: ignore[attr-defined]
        assert "not shown" not in chosen
