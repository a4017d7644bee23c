"""Which groups of tasks a comparison shows and counts: those that a change is made to come first."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.whatif import headline, left_out, shown, trust
from tracekit.whatif.scenario import parse_set
from tracekit.whatif.shown import Focus, focus_of
from tracekit.whatif.sweep import sweep

if TYPE_CHECKING:
    from tracekit.whatif import Comparison

#: Five hogs of falling CPU time, and two tasks that need little of it and are woken behind them.
TEXT = "policy: eevdf\nuntil: 1500\nHogA: R∞\nHogB: R∞\nHogC: R∞\nMidA: (R6 S8)*\nMidB: (R5 S8)*\n"
TEXT += "Small: (R0.2 S7)*\nOther: (R0.1 S9)*\n"


def names(*sets: str) -> tuple[str | None, ...]:
    return focus_of(tk.read(TEXT), "group", [parse_set(text) for text in sets]).changed


def test_what_is_set_of_tasks_is_what_a_comparison_is_about() -> None:
    assert names("Small: nice=5") == ("Small",)
    assert names("Other: nice=5", "HogA: nice=5") == ("HogA", "Other"), "by CPU time"
    assert names("/^Mid/: slice=1ms") == ("MidA", "MidB")
    assert names("*: nice=1", "Small: nice=5") == ("Small",), "what is set of all says nothing"
    assert names("*: nice=1") == names("cpu:0: capacity=512") == names() == ()
    tid = tk.read(TEXT).tasks.filter(comm="Other")["tid"].item()
    assert names(f"tid={tid}: nice=-5") == ("Other",)
    trace = tk.read(TEXT)
    assert focus_of(trace, "tid", [parse_set("Small: nice=5")]).changed[0] == f"Small:{_tid(trace, 'Small')}"
    assert focus_of(trace, "all", [parse_set("Small: nice=5")]) == Focus()


def _tid(trace: tk.Trace, comm: str) -> int:
    return int(trace.tasks.filter(comm=comm)["tid"].item())


def test_what_is_set_of_a_control_group_is_set_of_the_tasks_in_it() -> None:
    sets = ("Small: group=web/db", "Other: group=webby", "group:web: weight=300")
    assert names(*sets) == ("Small", "Other"), "both are put into groups"
    trace = tk.read(TEXT)
    found = list(shown._set_threads(trace, [parse_set(text) for text in sets]))
    assert found == [{_tid(trace, "Small")}, {_tid(trace, "Other")}, {_tid(trace, "Small")}]


def test_groups_with_little_cpu_time_are_shown_when_the_change_is_theirs() -> None:
    cut = pl.DataFrame({"group": ["a", "b", "c", "d", "e", None], "n": [99, 99, 9, 99, 99, 3]})
    assert shown.main_groups(cut, Focus()) == ["a", "b", "d", "e"]
    assert shown.main_groups(cut, Focus((None,))) == [None, "a", "b", "d"], "however few its slices"
    assert shown.main_groups(cut, Focus(("b", "e", None))) == ["b", "e", None, "a", "d"], (
        "two others, at least"
    )


@pytest.fixture(scope="module")
def nice() -> Comparison:
    return tk.compare(TEXT, scenario={"Small": {"nice": 15}}, runs=5, jobs=1)


def test_the_changed_tasks_are_counted_and_come_first(nice: Comparison) -> None:
    assert nice.main_groups[0] == "Small"
    assert nice.main_groups[1:] == tk.compare(TEXT, "eevdf", runs=1).main_groups[:3]
    rows = nice.summary.filter(group="Small")
    assert rows.filter(metric="run_delay")["change_pct"].item() > 100
    (finding,) = headline.findings(nice)
    assert finding.largest[0].group == "Small"
    assert "; most of all Small " in finding.sentence
    assert nice.to_dict()["changed"] == ["Small"]


def test_few_samples_of_a_changed_task_are_shown_and_of_another_are_not() -> None:
    text = "policy: eevdf\nuntil: 600\nHog: R∞\nBusy: (R3 S7)*\nRare: (R1 S100)*\nSeldom: (R1 S100)*"
    found = tk.compare(text, scenario={"Rare": {"nice": 5}}, runs=2, jobs=1)
    assert set(found.summary["group"].drop_nulls()) == {"Rare", "Hog", "Busy"}
    assert found.table.filter(group="Rare", metric="run_delay", statistic="mean")["n_recorded"].item() < 20


def test_the_command_shows_the_changed_tasks(tmp_path: Path) -> None:
    place = tmp_path / "trace.wl"
    place.write_text(TEXT)
    asked = ["compare", str(place), "--set", "Small: nice=15", "--runs", "3", "-q"]
    text = CliRunner().invoke(main, [*asked, "-o", str(tmp_path / "page.html")]).stdout
    assert [line.split()[0] for line in text.splitlines() if "run delay, mean" in line][:2] == [
        "Small",
        "HogA",
    ]
    page = (tmp_path / "page.html").read_text()
    assert page.index("<bdi>Small</bdi>: ") < page.index("HogA"), "the first card"
    assert json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)["changed"] == ["Small"]


def test_what_is_changed_beside_a_policy_is_said_with_it(tmp_path: Path) -> None:
    place, page = tmp_path / "trace.wl", tmp_path / "page.html"
    place.write_text(TEXT)
    asked = ["compare", str(place), "--set", "Small: nice=15", "--cpus", "2", "--quick", "-q"]
    alone = CliRunner().invoke(main, asked).stdout
    assert alone.startswith("Small: nice=15; 2 CPUs changes ")
    several = [*asked, "--policy", "eevdf", "--policy", "linux-6.1", "-o", str(page)]
    text = CliRunner().invoke(main, several).stdout
    for policy in ("eevdf", "linux-6.1"):
        said = f"{policy} with Small: nice=15; 2 CPUs changes "
        assert said in text
        assert said in page.read_text()
    assert (
        json.loads(CliRunner().invoke(main, [*several, "--json"]).stdout)["beside"]
        == "Small: nice=15; 2 CPUs"
    )
    assert tk.compare(TEXT, "eevdf", runs=1).to_dict()["beside"] == ""


def a_row(group: str, predicted: float, **other: object) -> dict:
    row = {
        **{"policy": "p", "scope": "group", "group": group, "metric": "run_delay", "statistic": "mean"},
        **{"unit": "ns", "recorded": 1e6, "identity": 1e6, "predicted": predicted, "low": 1.0, "high": 2.0},
        **{"n_recorded": 50, "n_predicted": 50, "verdict": "resolved", "trust": trust.CARE, "trust_why": ""},
        **{"change_pct": 100 * (predicted / 1e6 - 1), "no_interval": None, "inside": None},
    }
    return row | other


def says(rows: list[dict], changed: tuple[str | None, ...], main_groups: list[str]) -> headline.Finding:
    table = pl.DataFrame(rows, infer_schema_length=None)
    focus = Focus(changed)
    made = SimpleNamespace(
        **{"replays": ["p"], "table": table, "repetitions": 9, "focus": focus, "main_groups": main_groups},
        **{"beside": ""},
        summary=shown.main_rows(table, main_groups, focus),
    )
    (finding,) = headline.findings(cast("Comparison", made))
    return finding


def test_the_sentence_says_what_the_change_does_to_its_own_tasks() -> None:
    big, little = a_row("big", 3e6), a_row("db", 1.2e6)
    both = says([big, little], ("db",), ["db", "big"])
    assert both.sentence == (
        "p changes 2 of 2 metrics; of db most db run delay, mean, from 1 ms to 1.2 ms (+20.0 %); "
        "most of all big run delay, mean, from 1 ms to 3 ms (+200 %)."
    )
    assert [one.group for one in both.largest] == ["db", "big"]
    missed = says([big, a_row("db", 1.2e6, verdict="not resolved")], ("db",), ["db", "big"])
    assert missed.sentence.startswith(
        "p changes 1 of 2 metrics, none of them of db; most of all big run delay"
    )
    assert says([big, little], ("big",), ["db", "big"]).sentence.startswith(
        "p changes 2 of 2 metrics; most of all big"
    )


def test_large_changes_of_groups_that_are_not_shown_are_named() -> None:
    rows = [
        a_row("hog", 1e6, verdict="not resolved"),
        a_row("db", 0.5e6),
        a_row("web", 9e6),
        a_row("web", 30e6, metric="response", statistic="p95"),
        a_row("log", 1.4e6),
        a_row("cron", 9e6, trust=trust.DO_NOT_USE),
        a_row("mail", 9e6, low=None),
        a_row("init", 9e6, n_recorded=19, n_predicted=19),
        a_row("dns", 9e6, statistic="max"),
    ]
    found = says(rows, (), ["hog"])
    assert found.sentences == [
        "p changes none of 1 main metrics by more than the error of the replay.",
        "Other tasks, which are not shown, change much: web response time, p95 (x 30), db run delay, mean (-50.0 %).",
    ]
    many = [a_row(name, 2e6 + i) for i, name in enumerate("abcde")]
    assert says(many, (), []).also.endswith("c run delay, mean (+100 %) and 2 more groups")
    assert says(many, (), list("abcde")).also == ""


def chosen(**conditions: object) -> Comparison:
    return tk.compare(TEXT, scenario={"Small": {"nice": 15}}, runs=3, jobs=1, **conditions)  # type: ignore[arg-type]


def test_filters_of_a_comparison_choose_rows_and_leave_nothing_out_of_the_replay() -> None:
    whole, part = chosen(), chosen(comm="Other")
    assert part.main_groups == ["Other"]
    assert set(part.table["scope"]) == {"system", "group"}
    assert set(part.table["group"].drop_nulls()) == {"Other"}
    keys = ["scope", "group", "metric", "statistic"]
    values = [*keys, "recorded", "identity", "predicted", "verdict", "trust"]
    both = part.table.select(values).join(whole.table.select(values), on=values, nulls_equal=True)
    assert both.height == part.table.height, "every row is that of the whole"
    assert set(part.calibration["scope"]) == {"system", "group"}
    assert part.distances["group"].unique().to_list() == ["Other"]
    assert part.to_dict()["chosen"] == ["Other"]
    assert whole.to_dict()["chosen"] is None
    assert part.fidelity.equals(whole.fidelity)


def test_chosen_tasks_of_which_the_change_is_made_to_come_first() -> None:
    assert chosen(comm=["Other", "Small"]).main_groups == ["Small", "Other"]
    assert chosen(exclude=["Hog*", "Mid*"]).main_groups == ["Small", "Other"]
    assert chosen(comm="HogA").focus.changed == ()


def test_a_group_that_holds_other_tasks_says_so() -> None:
    text = "policy: eevdf\nuntil: 400\nHog*3: R∞\nWait: (R1 S5)*"
    found = tk.compare(text, "fifo", comm="Hog1", runs=1)
    assert found.main_groups == ["Hog"]
    assert found.focus.sentence == (
        "chosen: Hog; all other tasks are replayed, too; Hog is of 3 tasks, 1 of them chosen: --by tid tells them apart"
    )
    assert "is of" not in tk.compare(text, "fifo", comm="Hog1", by="comm", runs=1).focus.sentence


def test_nothing_chosen_is_an_error() -> None:
    with pytest.raises(tk.FilterError, match=r"comm Nobody: no task of the trace fits; it has HogA, HogB"):
        tk.compare(TEXT, "fifo", comm="Nobody")
    with pytest.raises(tk.FilterError, match="by all there is one group"):
        tk.compare(TEXT, "fifo", comm="HogA", by="all")


def test_the_commands_replay_what_filters_leave_out(tmp_path: Path) -> None:
    place = tmp_path / "trace.wl"
    place.write_text(TEXT)

    def run(*args: str) -> str:
        done = CliRunner().invoke(main, [args[0], str(place), *args[1:], "-q"])
        assert done.exit_code == 0, done.output
        return done.stdout

    asked = ("--set", "Small: nice=15", "--runs", "2", "--json")
    rows = json.loads(run("compare", *asked))["comparison"]
    own = json.loads(run("compare", *asked, "--comm", "Small"))["comparison"]
    assert {r["group"] for r in own if r["scope"] == "group"} == {"Small"}
    delays = [
        [r["predicted"] for r in some if (r["group"], r["metric"]) == ("Small", "run_delay")]
        for some in (rows, own)
    ]
    assert delays[0] == delays[1]
    tid = str(_tid(tk.read(TEXT), "Small"))
    assert "chosen: Small; all other tasks are replayed, too" in run("compare", *asked[:-1], "--tid", tid)
    whole = json.loads(run("replay", "--policy", "fifo", "--json"))["rows"]
    file = tmp_path / "run.parquet"
    part = json.loads(run("replay", "--policy", "fifo", "--comm", "Small", "--json", "-o", str(file)))["rows"]
    assert part == [row for row in whole if row["group"] == "Small"]
    assert {"HogA", "Small"} <= set(tk.read(file).tasks["comm"].cast(pl.String)), "all of it is written"
    chrome = tmp_path / "chrome.json"
    run("export", "--chrome-json", str(chrome), "--replay", "fifo", "--comm", "Small")
    waits = tk.replay(TEXT, "fifo").filter(comm="Small").slices["ts_ns"].to_list()
    drawn = [e["ts"] for e in json.loads(chrome.read_text())["traceEvents"] if e.get("ph") == "X"]
    assert set(drawn) >= {ts / 1000 for ts in waits}, "the replay is that of all tasks"
    refused = CliRunner().invoke(main, ["compare", str(place), "--policy", "fifo", "--cpu", "0"])
    assert (refused.exit_code, "--cpu: a replay may put tasks on other CPUs" in refused.stderr) == (2, True)
    refused = CliRunner().invoke(main, ["why", str(place), "--exclude", "HogA", "--what-if", "1"])
    assert (refused.exit_code, "--exclude" in refused.stderr) == (2, True)


def test_a_replay_of_a_trace_that_was_filtered_warns_by_name(tmp_path: Path) -> None:
    trace = tk.simulate(TEXT)
    part = trace.filter(exclude="HogA").filter(comm=["Small", "Other", "Mid*"])
    said = "filtered out before the replay: 3 of 7 tasks, with .* % of the CPU time \\(HogA, HogB, HogC\\)"
    with pytest.warns(tk.FilterWarning, match=said) as caught:
        tk.replay(part, "eevdf")
    assert caught[0].filename == __file__, "the caller's line"
    with pytest.warns(tk.FilterWarning, match=said):
        found = tk.compare(part, "fifo", runs=2, jobs=1)
    assert found.poor is not None
    assert found.poor.endswith("; the replay lacks what they did")
    assert "trusted" not in found.table["trust"].to_list()
    assert found.table["trust_why"].str.contains("filtered out before the replay: 3 of 7 tasks").any()
    part.write(tmp_path / "part.parquet")
    done = CliRunner().invoke(
        main, ["compare", str(tmp_path / "part.parquet"), "--policy", "fifo", "--quick"]
    )
    assert done.stderr.count("warning: filtered out before the replay: 3 of 7 tasks") == 1
    assert "Filtered out before the replay: 3 of 7 tasks" in done.stdout
    assert "does not show when clock ticks come" not in done.stdout
    with pytest.warns(tk.FilterWarning, match=said):
        sweep(tmp_path / "part.parquet", ["fifo"], runs=1, jobs=1)


def test_what_leaves_nothing_out_does_not_warn() -> None:
    trace = tk.simulate("policy: fifo\ncpus: 2\nA: (R1 S1)*9\nB: R20")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tk.replay(trace.filter(comm=["A", "B"]), "fifo")
        tk.replay(trace.filter(end="10ms"), "fifo")
        assert trace.filter(comm="A").program.height > 0, "a program is no replay"
    with pytest.warns(tk.FilterWarning, match=r"filtered out before the replay: CPU 1; the replay lacks"):
        tk.replay(trace.filter(cpu=0), "fifo")
    assert left_out.said_of({"options": '{"filter": {"comm": ["A"]}}'}) == (
        "filtered out before the replay: what comm did not choose; the replay lacks what they did"
    )
    assert left_out.said_of({"options": '{"filter": {"tid": [1]}, "left_out": 7}'}) is not None
