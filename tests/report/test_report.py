from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from tracekit import plot
from tracekit.registry import check_policy
from tracekit.report import page
from tracekit.trace import Trace
from tracekit.whatif import Comparison, infer
from tracekit.words import metric_name

EVIL = ["<script>alert(1)</script>", "$x_{1}$ $", '"&<b>', "</script><!--", "{{ 7*7 }}", "\x07bell"]
VOID = {"wbr", "meta", "br", "link", "img", "input", "hr"}


def made(
    names: list[str],
    run_ns: int,
    name: str = "t.dat",
    jitter: int = 0,
    meta: dict[str, str] | None = None,
    turns: int = 40,
) -> Trace:
    """A trace in which tasks take turns: each is woken, preempted once, and blocks."""
    slices, queue, events, tasks = [], [(0, 0, 0, 0, 0)], [], []
    now = 1_000
    for i in range(turns * len(names)):
        tid = i % len(names) + 1
        run = run_ns + jitter * (i % 7)
        wake = now - 2_000 - 10 * (i % 11) if i else now - 100
        common = {"cpu": 0, "utid": tid, "tid": tid, "comm": names[tid - 1], "flags": 0}
        slices.append(
            {**common, "ts_ns": now, "dur_ns": run, "end_state": "preempted", "involuntary": True}
            | {"wake_ts_ns": wake, "run_delay_ns": now - wake}
        )
        slices.append(
            {**common, "ts_ns": now + 2 * run, "dur_ns": run, "end_state": "sleeping", "involuntary": False}
            | {"run_delay_ns": run}
        )
        queue += [
            (now, 0, 1, 1, 0),
            (now + run, 0, 0, 1, 0),
            (now + 2 * run, 0, 1, 0, 0),
            (now + 3 * run, 0, 0, 0, 0),
        ]
        events += [
            (now, "switch"),
            (now + run, "switch"),
            (now + 2 * run, "switch"),
            (now + 3 * run, "switch"),
        ]
        now += 4 * run
    for tid, comm in enumerate(names, 1):
        tasks.append({"utid": tid, "tid": tid, "comm": comm, "is_idle": False})
    frames = {
        "slices": pl.DataFrame(slices, infer_schema_length=None),
        "runqueue": pl.DataFrame(
            queue, schema=["ts_ns", "cpu", "nr_running", "nr_waiting", "flags"], orient="row"
        ),
        "events": pl.DataFrame(events, schema=["ts_ns", "kind"], orient="row").with_columns(
            pl.lit(0).alias("cpu")
        ),
        "tasks": pl.DataFrame(tasks),
    }
    from tracekit._frames import typed

    return Trace(
        {k: typed(v, k) for k, v in frames.items()}, {"source.format": "trace-dat", **(meta or {})}, name
    )


def comparison(
    names: list[str], labels: tuple[str, ...] = ("rr:quantum=10ms",), title: str = "t.dat"
) -> Comparison:
    identity = made(names, 10_300, meta={"replay.policy": "cfs:version=6.1", "replay.loop": "dependency"})
    others = {
        label: made(names, 20_000 + 5_000 * i, meta={"replay.policy": label})
        for i, label in enumerate(labels)
    }
    return Comparison(made(names, 10_000, title, 3), identity, others, "the kernel is <6.1>")


class Reader(HTMLParser):
    """Collects tags, attributes and text, and fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.embedded = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.embedded += data
        elif self.open and self.open[-1] != "style":
            self.texts.append(" ".join(data.split()))


@pytest.fixture(scope="module")
def evil() -> tuple[Comparison, str]:
    found = comparison(EVIL, (EVIL[1], EVIL[0]), EVIL[3])
    return found, found.to_html()


def test_names_of_tasks_are_text_and_nothing_else(evil: tuple[Comparison, str]) -> None:
    reader = Reader(evil[1])
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("script") == 3
    assert "b" in tags, "the page itself uses bold text"
    allowed = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "section",
        "footer",
        "script",
    }
    allowed |= {
        "p",
        "h1",
        "h2",
        "h3",
        "bdi",
        "code",
        "b",
        "i",
        "small",
        "br",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "div",
    }
    allowed |= {
        "wbr",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "figure",
        "figcaption",
    }
    allowed |= {"svg", "g", "path", "defs", "use", "text", "tspan", "clippath", "rect"} | {
        "a",
        "span",
        "canvas",
        "label",
        "select",
        "option",
        "button",
    }
    assert set(tags) <= allowed
    for name in EVIL[:5]:
        assert name in reader.texts, "the name stands there as it is"
    assert not any(key.startswith("on") for _, attrs in reader.tags for key in attrs)


def test_names_are_escaped_in_figures_too(evil: tuple[Comparison, str]) -> None:
    figures = re.findall(r"<svg.*?</svg>", evil[1], re.S)
    assert len(figures) == 8
    assert any("$x_{1}$ $" in f for f in figures)
    assert any("&lt;script&gt;alert(1)&lt;/script&gt;" in f for f in figures)
    assert not any("<script" in f for f in figures)


def test_the_page_loads_nothing(evil: tuple[Comparison, str]) -> None:
    text = evil[1]
    # Only a click opens Perfetto; the script is the page's own.
    plain = text.replace("https://ui.perfetto.dev", "").replace(
        re.findall("<script>.*?</script>", text, re.S)[0], ""
    )
    assert not re.search(r"https?://|//[a-z]+\.|@import|<link|<iframe|<img|src=", plain)
    assert not re.search(r"fetch\(|XMLHttp|WebSocket|import\(|importScripts|new Image|src\s*=", text)
    for tag, attrs in Reader(text).tags:
        for key in ("href", "xlink:href", "src", "action", "data"):
            assert (attrs.get(key) or "#").startswith("#"), (tag, key)
    assert all(ref.startswith("#") for ref in re.findall(r"url\(([^)]*)\)", text))
    assert "default-src 'none'" in text


def test_identifiers_are_unique_and_known(evil: tuple[Comparison, str]) -> None:
    tags = Reader(evil[1]).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = {
        v
        for _, attrs in tags
        for v in re.findall(r"#([\w-]+)", f"{attrs.get('href')} {attrs.get('clip-path')}")
    }
    assert used
    assert used <= set(ids)


def test_the_embedded_data_is_the_data(evil: tuple[Comparison, str]) -> None:
    found, text = evil
    embedded = re.findall(r'id="tracekit-comparison">(.*?)</script>', text, re.S)[0]
    assert not re.search("[<>&]", embedded)
    assert json.loads(embedded) == json.loads(found.to_json())


def test_the_same_comparison_gives_the_same_page() -> None:
    assert comparison(["a1", "b1"]).to_html() == comparison(["a1", "b1"]).to_html()


def test_every_figure_says_how_to_read_it() -> None:
    text = comparison(["a1", "b1"]).to_html()
    assert text.count("<figure ") == text.count("<summary>How to read it</summary>") == 8
    assert plot.how_to_read(plot.cdf)[:60] in text


def test_losses_of_one_kind_are_folded() -> None:
    found = comparison(["a1"])
    rows = [
        ("error", "switch-mismatch", 1, None, None, None, None, f"thread {n} leaves", None) for n in range(9)
    ]
    rows.append(("loss", "lost-events", 5, None, None, None, None, "a buffer was full", None))
    found.trace._tables["diagnostics"] = pl.DataFrame(
        rows, schema=found.trace.diagnostics.schema, orient="row"
    )
    text = found.to_html()
    folded = text.index("<summary>8 more of switch-mismatch</summary>")
    assert text.index("thread 0 leaves") < folded < text.index("thread 1 leaves")
    assert text.index("thread 8 leaves") < text.index("a buffer was full")


def test_losses_come_first_and_notes_are_folded() -> None:
    found = comparison(["a1"])
    rows = [
        ("info", "reordered", 1, None, None, None, None, "sorted", None),
        ("loss", "lost-events", 1234, None, None, 0, 5, "records were <lost>", "use a larger buffer"),
    ]
    schema = found.trace.diagnostics.schema
    found.trace._tables["diagnostics"] = pl.DataFrame(rows, schema=schema, orient="row")
    holes = [(0, 1_000, 33_000, 1234, "overwrite")]
    found.trace._tables["losses"] = pl.DataFrame(holes, schema=found.trace.losses.schema, orient="row")
    text = found.to_html()
    assert "1,234 records lost on CPU 0, in 2 % of the time" in text
    assert "records were &lt;lost&gt;" in text
    assert "(1,234 times)" in text
    assert text.index("What was lost</h2>") < text.index('class="lead"')
    assert "1 note of the parser" in text
    assert "What was lost</h2>" not in comparison(["a1"]).to_html()


def test_small_effects_are_marked_not_resolved() -> None:
    names = ["a1", "b1"]
    identity = made(names, 11_000, meta={"replay.policy": "cfs"})
    found = Comparison(
        made(names, 10_000), identity, {"little": made(names, 11_500), "much": made(names, 15_000)}
    )
    rows = found.table.filter(
        (pl.col("metric") == "slice") & (pl.col("statistic") == "mean") & (pl.col("scope") == "all")
    )
    assert dict(rows.select("policy", "verdict").iter_rows()) == {
        "little": "not resolved",
        "much": "resolved",
    }
    row = rows.filter(pl.col("policy") == "much").row(0, named=True)
    assert (row["recorded"], row["identity"], row["predicted"]) == (10_000, 11_000, 15_000)
    assert row["identity_error_pct"] == pytest.approx(10)
    assert row["change_pct"] == pytest.approx(100 * 4 / 11)
    text = " ".join(Reader(found.to_html()).texts)
    assert "not resolved" in text
    assert "+36.4 %" in text
    assert "+10.0 %" in text, "the identity error stands beside each prediction"


def test_summary_has_the_main_groups_and_the_system() -> None:
    found = comparison(["spin01", "spin02", "waker1"])
    assert found.main_groups == ["spin", "waker"]
    summary = found.summary
    assert summary["scope"].to_list()[0] == "system"
    assert set(summary["group"].drop_nulls()) == {"spin", "waker"}
    assert summary["group"].drop_nulls().to_list() == sorted(summary["group"].drop_nulls().to_list())


def test_calibration_and_distances_by_hand() -> None:
    found = comparison(["a1"])
    row = found.calibration.filter((pl.col("metric") == "cpu_time") & (pl.col("scope") == "all")).row(
        0, named=True
    )
    recorded = int(found.trace.slices["dur_ns"].sum())
    assert row["recorded"] == recorded
    assert row["error_pct"] == pytest.approx(
        100 * (found.identity.slices["dur_ns"].sum() - recorded) / recorded
    )
    ks = found.distances.filter(pl.col("metric") == "slice").select("label", "group", "ks").rows()
    assert ks == [("identity replay", "a", 1.0), ("rr:quantum=10ms", "a", 1.0)]


def test_intervals_hold_their_figure() -> None:
    rows = comparison(["a1", "b1"]).intervals.filter(pl.col("lo").is_not_null())
    assert rows.height > 4
    assert (rows["lo"] <= rows["value"]).all()
    assert (rows["value"] <= rows["hi"]).all()


def test_json_is_complete_and_has_no_nan(tmp_path: Path) -> None:
    found = comparison(["a1"])
    found.to_json(tmp_path / "r.json")
    data = json.loads((tmp_path / "r.json").read_text(), parse_constant=lambda c: pytest.fail(c))
    assert data["tracekit.report"] == 1
    assert data["identity"] == {
        "policy": "cfs:version=6.1",
        "loop": "dependency",
        "reason": "the kernel is <6.1>",
    }
    assert data["policies"] == [{"label": "rr:quantum=10ms", "policy": "rr:quantum=10ms", "loop": None}]
    assert data["trace"]["switches"] == 160
    shares: dict[Any, float] = {}
    for row in data["runqueue"]["recorded"]:
        shares[row["scope"]] = shares.get(row["scope"], 0) + row["share"]
    assert shares == {"system": pytest.approx(1), "cpu": pytest.approx(1)}


def test_a_failed_report_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.html"
    target.write_text("old")

    def fail(_: Comparison) -> str:
        raise RuntimeError("no")

    monkeypatch.setattr(page, "render", fail)
    with pytest.raises(RuntimeError):
        comparison(["a1"]).to_html(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_empty_trace_gives_a_page() -> None:
    text = Comparison(Trace({}, {}, "empty"), Trace({}, {}), {"p": Trace({}, {})}).to_html()
    assert "too few samples" in text
    assert text.count("<svg") == 6
    Reader(text)


def test_labels_of_the_comparison_itself_are_taken() -> None:
    with pytest.raises(ValueError, match="is taken"):
        Comparison(made(["a"], 100), made(["a"], 100), {"recorded": made(["a"], 100)})


@pytest.mark.parametrize(
    ("kernel", "known", "policy", "because"),
    [
        ("6.1.0-50-cloud-amd64", {"cfs", "eevdf"}, "cfs:form=6.1", "schedules with CFS"),
        ("6.5.13", {"cfs", "eevdf"}, "cfs:form=6.1", "schedules with CFS"),
        ("6.6.0-rc1", {"cfs", "eevdf"}, "eevdf:version=6.6", "schedules with EEVDF"),
        ("6.12.9", {"cfs", "eevdf"}, "eevdf:version=6.12", "schedules with EEVDF"),
        ("6.12.95+deb12", {"cfs", "eevdf"}, "eevdf:version=6.12,yield=forfeit", "schedules with EEVDF"),
        ("6.12.95+deb12", {"cfs", "rr"}, "cfs", "cfs stands in"),
        ("2.6.32-754.el6", {"cfs"}, "cfs:form=2.6.32", "schedules with CFS"),
        ("2.6.29.4", {"cfs"}, "cfs:form=2.6.29", "schedules with CFS"),
        ("2.6.27.48", {"cfs"}, "cfs:form=2.6.27", "schedules with CFS"),
        ("2.6.18-8.el5", {"cfs", "o1"}, "o1", r"O\(1\)"),
        ("2.4.37", {"goodness"}, "goodness:version=2.4", "goodness"),
        ("2.4.37", {"rr"}, "rr", "rr stands in"),
        ("", {"cfs"}, "cfs", "a guess"),
    ],
)
def test_identity_policy_follows_the_kernel(kernel: str, known: set[str], policy: str, because: str) -> None:
    got, why = infer({"os": "linux", "kernel": kernel}, known)
    assert got == policy
    assert re.search(because, why)
    assert kernel in why


def test_identity_policy_of_other_sources() -> None:
    assert infer({"os": "freebsd", "kernel": "13.2"}, {"cfs", "ule"})[0] == "ule"
    assert infer({"os": "aix", "kernel": "7.2"}, {"cfs"})[0] == "cfs"
    assert infer({"replay.policy": "rr:quantum=5ms", "kernel": "6.1"}, {"cfs"})[0] == "rr:quantum=5ms"


def test_every_identity_policy_can_be_replayed() -> None:
    known = [p["name"] for p in tk.policies()]
    for kernel in ("2.0.30", "2.2.1", "2.4.17", "2.6.18", "2.6.29", "2.6.32", "3.10", "6.1", "6.6", "6.18"):
        policy, _ = infer({"os": "linux", "kernel": kernel}, known)
        assert check_policy(policy)
    for system in ("solaris", "illumos", "freebsd", "aix", "windows", "darwin", ""):
        policy, _ = infer({"os": system, "kernel": "10"}, known)
        assert check_policy(policy)


def test_the_answer_comes_before_the_method() -> None:
    text = comparison(["spin1", "waker1"], ("rr:quantum=10ms", "fifo")).to_html()
    sentence = text.index("rr:quantum=10ms changes")
    picture = text.index("Predicted against recorded")
    order = [sentence, text.index('class="cards"'), picture, text.index("Who ran when</h2>")]
    order += [text.index("<summary>All metrics"), text.index("How the replays were made")]
    assert order == sorted(order)
    # Method, checks and words are folded.
    head = text[: text.index("<summary>All metrics")]
    assert "Kolmogorov" not in head


def test_the_script_is_the_one_that_the_policy_names(evil: tuple[Comparison, str]) -> None:
    import base64
    import hashlib

    scripts = re.findall(r"<script>(.*?)</script>", evil[1], re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in evil[1]
    assert "innerHTML" not in scripts[0]
    assert "insertAdjacentHTML" not in scripts[0]


def test_curves_are_known_to_the_page() -> None:
    text = comparison(["spin1", "waker1"]).to_html()
    figures = [attrs for tag, attrs in Reader(text).tags if tag == "figure"]
    found = [json.loads(attrs["data-axes"] or "") for attrs in figures]
    assert len(found) == 8
    curves = [c for axes in found for ax in axes for c in ax.get("curves", [])]
    assert {c["name"] for c in curves} == {"recorded", "identity replay", "rr:quantum=10ms"}
    assert all(len(c["x"]) == len(c["y"]) <= 300 for c in curves)
    rows = [row for axes in found for ax in axes for row in ax.get("rows", [])]
    assert any("spin: run delay, mean\nrecorded" in row for row in rows)


def test_the_timeline_holds_the_slices() -> None:
    from tracekit.report.timeline import timeline_data

    found = comparison(["spin1", "waker1"])
    data = timeline_data(found)
    recorded = data["traces"][0]
    rows = found.trace.slices.sort("ts_ns")
    assert sum(recorded["ts"]) == rows["ts_ns"][-1] - (found.trace.start_ns or 0)
    assert recorded["dur"] == rows["dur_ns"].to_list()
    assert [data["tasks"][i][0] for i in recorded["task"]] == rows["comm"].cast(pl.String).to_list()
    assert data["groups"] == ["spin", "waker"]
    assert 0 <= data["view"][0] < data["view"][1] <= data["span"]


def test_the_interval_under_a_recorded_value_has_its_unit() -> None:
    found = comparison(["a1", "b1"])
    lines = [line for group in page._groups(found) for line in group.lines]
    counts = [line for line in lines if line.label == "involuntary switches" and line.interval]
    times = [line for line in lines if line.label.startswith("slice") and line.interval]
    assert counts
    assert times
    assert not [line.interval for line in counts if re.search("[a-z]s", line.interval)]
    assert all(re.search(" (ns|us|ms|s)$", line.interval) for line in times)


def test_a_check_that_passes_by_a_fixed_allowance_alone_says_so() -> None:
    names = ["a1", "b1"] * 2
    far = made(names, 14_000, meta={"replay.policy": "cfs"})
    found = Comparison(made(names, 10_000), far, {"p": made(names, 14_000)})
    rows = found.fidelity.filter(pl.col("only_by").is_not_null())
    assert set(rows["only_by"]) == {"400 us"}
    assert set(rows["metric"]) >= {"slice_p50"}
    assert found.to_html().count(", only by a fixed allowance of 400 us") == rows.height
    same = Comparison(made(names, 10_000), made(names, 10_000), {"p": made(names, 14_000)})
    assert "only by a fixed allowance" not in same.to_html()


def test_a_recorded_value_that_is_a_lower_bound_is_marked_as_one() -> None:
    trace = tk.read(
        b"policy: rr:quantum=20ms\nuntil: 2000\nDb: (R1 S15)*\nHog1: R\xe2\x88\x9e\nHog2: R\xe2\x88\x9e"
    )
    found = tk.compare(trace, ["rr:quantum=5ms"], runs=1)
    rows = {
        (row["group"], metric_name(row["metric"], row["statistic"])): bool(row["recorded_is_bound"])
        for row in found.table.filter(scope="group").iter_rows(named=True)
    }
    shown = {
        (group.name, line.label): line.recorded.startswith("\u2265 ")
        for group in page._groups(found)
        for line in group.lines
    }
    marked = {key: mark for key, mark in shown.items() if key in rows}
    assert True in marked.values()
    assert marked == {key: rows[key] for key in marked}
    assert "A value behind &ge; is a lower bound" in found.to_html()
