"""Overrides of task attributes, as text and as TOML."""

import re
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.errors import ReplayError
from tracekit.registry import attributes
from tracekit.whatif.reservations import reservations
from tracekit.whatif.scenario import Override, load, overrides_of, parse_set, resolve

TRACE = tk.Trace(
    {
        "slices": pl.DataFrame({"tid": [11, 14], "comm": ["between", "sh"]}),
        "tasks": pl.DataFrame(
            {
                "tid": [0, 11, 12, 13, 14],
                "pid": [0, 11, 11, 13, 14],
                "comm": ["swapper/0", "A0", "A1", "batch", "sh"],
                "comm_first": ["swapper/0", "wl", "wl", "wl", None],
                "is_idle": [True, False, False, False, False],
            }
        ),
    }
)


@pytest.mark.parametrize(
    ("text", "tids"),
    [
        ("comm=A*: prio=45", [11, 12]),
        ("comm~^A[0-9]: policy=fifo,prio=45", [11, 12]),
        ("comm=wl: nice=5", [11, 12, 13]),
        ("tid=13: nice=19", [13]),
        ("pid=11:nice=1", [11, 12]),
        ("*: policy=batch", [11, 12, 13, 14]),
        ("A*:nice=3", [11, 12]),
        ("/^A1$/:nice=3", [12]),
        ("between: nice=3", [11]),
    ],
)
def test_a_selector_names_threads(text, tids):
    override = parse_set(text)
    assert [t for t, _ in resolve([override], TRACE)] == [tids]
    assert parse_set(str(override)) == override


def test_the_name_of_a_group_has_no_blanks_or_slashes_around_it():
    override = parse_set("group: /b: \x85weight=300ta=50ms\x85/: nice=19")
    assert override.value == "b: \x85weight=300ta=50ms"
    assert parse_set(str(override)) == override


def test_settings_keep_their_order_and_text():
    assert parse_set("comm=a: policy=fifo, prio=45").settings == (("policy", "fifo"), ("prio", "45"))
    assert parse_set("comm~x:y: cpus=0-3").value == "x:y"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nice=5", "expected `selector: attribute=value`"),
        ("name=A: nice=5", "expected comm=GLOB"),
        (": nice=5", "expected comm=GLOB"),
        ("comm=A: nice", "expected attribute=value"),
        ("comm=A: ", "expected attributes after the colon"),
        ("tid=x: nice=5", "expected a number"),
        ("comm~[: nice=5", "no regular expression"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_expected(text, says):
    with pytest.raises(ReplayError, match=says.replace("(", r"\(")):
        parse_set(text)


def test_a_selector_without_tasks_names_those_that_there_are():
    with pytest.raises(
        ReplayError, match="no task of this trace fits; it has A0, A1, batch, between, sh, wl"
    ):
        resolve([parse_set("comm=Z*: nice=5")], TRACE)
    with pytest.raises(ReplayError, match="it has batch, A0, A1, between"):
        resolve([parse_set("Batch: nice=5")], TRACE)


def test_a_name_that_holds_what_is_special_in_a_glob_is_itself():
    names = ["job[1]", "job1", "(sd-pam)", "nice:hog[2]"]
    tasks = pl.DataFrame({"tid": [1, 2, 3, 4], "pid": [1, 2, 3, 4], "comm": names, "comm_first": names})
    trace = tk.Trace(
        {"slices": pl.DataFrame({"tid": [1], "comm": names[:1]}), "tasks": tasks.with_columns(is_idle=False)}
    )
    for text, tids in (
        # As a glob it is `job1`, too.
        ("job[1]: nice=3", [1, 2]),
        ("comm=nice:hog[2]: nice=3", [4]),
        ("nice:hog[2]: nice=3", [4]),
        ("(sd-pam): nice=3", [3]),
        ("job*: nice=3", [1, 2]),
    ):
        assert [t for t, _ in resolve([parse_set(text)], trace)] == [tids], text


STAGGERED = """\
# Processes A at 45, B at 46, C at 47, D, E and F at 48.
policy = "aix:timeslice=1"
loop = "dependency"
task = [
    { comm = "A", prio = 45 },
    { comm = "B", prio = 46 },
    { comm = "C", prio = 47 },
    { comm_regex = "^[DEF]$", policy = "rr", prio = 48 },
]
"""


def test_ten_lines_of_toml_say_the_aix_experiment(tmp_path):
    file = tmp_path / "staggered.toml"
    file.write_text(STAGGERED)
    assert len(STAGGERED.splitlines()) <= 10
    scenario = load(file)
    assert scenario.policy == "aix:timeslice=1"
    assert scenario.overrides == (
        *(Override("comm", c, (("prio", str(p)),)) for c, p in (("A", 45), ("B", 46), ("C", 47))),
        Override("comm_regex", "^[DEF]$", (("policy", "rr"), ("prio", "48"))),
    )


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """Six tasks that sleep until 10 ms and run for 40 ms, in turns, as a file."""
    lines = [f"{name} start=0: S10 R40 S200 R1" for name in "FEDCBA"]
    file = tmp_path_factory.mktemp("six") / "six.parquet"
    tk.simulate("\n".join(["policy: rr:quantum=5ms", "hz: 100", *lines])).write(file)
    return file


def slices(run, end_ms):
    """Who ran from when to when, in ms, one row a slice."""
    rows = run.slices.sort("ts_ns").filter(pl.col("ts_ns") < end_ms * 1_000_000)
    out = []
    for comm, ts, dur in rows.select(pl.col("comm").cast(pl.String), "ts_ns", "dur_ns").rows():
        if out and out[-1][0] == comm and out[-1][2] == ts // 1_000_000:
            out[-1][2] = (ts + dur) // 1_000_000
        else:
            out.append([comm, ts // 1_000_000, (ts + dur) // 1_000_000])
    return [tuple(row) for row in out]


def test_the_file_makes_the_replay_strict_and_rotates_the_last_three(six, tmp_path):
    """A, then B, then C run through; D, E and F take turns of a tick, in the order in which they woke."""
    file, out = tmp_path / "staggered.toml", tmp_path / "out.parquet"
    file.write_text(STAGGERED)
    args = ["replay", six, "--scenario", file, "--no-overheads", "--hz", "100", "-o", out]
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == 0, done.output
    run = tk.read(out)
    assert run.metadata["replay.policy"].startswith("aix:")
    got = slices(run, 200)
    assert got[:3] == [("A", 10, 50), ("B", 50, 90), ("C", 90, 130)]
    turns = [name for name, _, _ in got[3:9]]
    assert turns == ["F", "E", "D", "F", "E", "D"]
    assert all(to - since == 10 for _, since, to in got[3:9])


def test_set_on_the_command_line_changes_the_tasks_of_a_pattern(six, tmp_path):
    out = tmp_path / "out.parquet"
    base = ["replay", str(six), "--policy", "aix", "--no-overheads", "--hz", "100", "-o", str(out)]
    done = CliRunner().invoke(main, [*base, "--set", "comm~^[AB]: policy=fifo,prio=45"])
    assert done.exit_code == 0, done.output
    got = slices(tk.read(out), 90)
    assert got == [("B", 10, 50), ("A", 50, 90)] or got == [("A", 10, 50), ("B", 50, 90)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("comm~^A[0-9]: policy=fifo,prio=45", "no task of this trace fits; it has A, B, C, D, E, F"),
        ("comm~^A[: prio=45", "no regular expression"),
        ("comm~^A: policy=fofo", "policy=fofo: expected one of other, batch, idle, fifo, rr, deadline"),
        ("comm~^A: prio=999", "prio=999: expected a whole number from 0 to 255"),
        (
            "comm~^A: priority=4",
            "no task attribute priority; did you mean prio? Valid are policy, nice, prio",
        ),
        ("comm~^A: affinity=0", "; did you mean cpus?"),
        ("comm~^A: bogus=0", "cpus, group\n"),
        ("A", "expected `selector: attribute=value`"),
    ],
)
def test_errors_of_set_on_the_command_line(six, text, says):
    done = CliRunner().invoke(main, ["replay", str(six), "--policy", "aix", "--set", text])
    assert done.exit_code == 2
    assert says in done.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("polcy = 'x'", "unknown key 'polcy'"),
        ("[[task]]\ncomm = 'a'\ntid = 3\nnice = 1", "expected one of"),
        ("[[task]]\ncomm = 'a'", "at least one attribute"),
        ("[task]\ncomm = 'a'", "two brackets"),
        ("= 3", "no TOML"),
    ],
)
def test_a_file_that_means_nothing_is_refused(tmp_path, text, says):
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(ReplayError, match=says):
        load(file)


def test_a_mapping_says_the_same_as_texts():
    assert overrides_of({"A*": {"nice": 5, "foreground": True}, "/^b/": {"policy": "fifo"}}) == [
        Override("comm", "A*", (("nice", "5"), ("foreground", "on"))),
        Override("comm_regex", "^b", (("policy", "fifo"),)),
    ]


HOGS = "policy: eevdf\nhz: 1000\nA: R∞\nB*2: R∞\nuntil: 300\n"


@pytest.mark.parametrize(
    ("policy", "text", "status", "says"),
    [
        ("eevdf", "A: tickets=5", 2, "eevdf does not look at the tickets of a task under other"),
        ("eevdf", "A: policy=batch,prio=10", 2, "eevdf does not look at the prio of a task under batch"),
        ("eevdf", "A: policy=fifo,prio=200", 2, "prio=200: expected 1 to 99 under fifo and rr"),
        ("eevdf", "A: policy=deadline", 2, "EINVAL, sched_setattr(2)"),
        ("o1", "A: deadline=1ms/5ms/5ms", 4, "SCHED_DEADLINE is not modelled under o1"),
    ],
)
def test_what_nothing_looks_at_is_refused_by_name(tmp_path, policy, text, status, says):
    path = tmp_path / "hogs.parquet"
    tk.simulate(HOGS).filter(comm=["A", "B*"]).write(path)
    done = CliRunner().invoke(main, ["replay", str(path), "--policy", policy, "--set", text])
    assert done.exit_code == status, done.output
    assert says in " ".join(done.output.split())


def test_attributes_of_a_policy_are_listed_with_those_of_the_classes_above():
    known = {p["name"]: attributes(p) for p in tk.policies()}
    assert known["eevdf"] == [
        *("policy", "nice", "slice", "group", "prio (under fifo and rr)", "deadline", "cpus")
    ]
    assert known["ule"] == ["policy", "nice", "prio (under fifo and rr)", "cpus"]
    assert "upri" in known["solaris-ts"]
    shown = CliRunner().invoke(main, ["policies", "show", "stride"])
    assert "tickets, prio (under fifo and rr), deadline, cpus" in shown.output


def share(trace, comm):
    """Part of one CPU's time that the tasks of a name had."""
    ran = trace.slices.filter(pl.col("comm").cast(pl.String) == comm)["dur_ns"].sum()
    return ran / (trace.end_ns - trace.start_ns)


def test_a_reservation_is_served_above_real_time():
    path = tk.simulate(HOGS).filter(comm=["A", "B*"])
    sets = [parse_set("A: deadline=2ms/10ms/10ms"), parse_set("B*: policy=fifo,prio=50")]
    run = tk.replay(path, "eevdf", scenario=sets)
    assert share(run, "A") == pytest.approx(0.2, abs=0.01)
    assert run.tasks.filter(comm="A")["prio_min"].item() == -1


def test_what_a_recorded_task_reserved_is_learned_from_when_it_was_throttled(tmp_path):
    path = tmp_path / "reserved.parquet"
    text = HOGS.replace("A:", "A deadline=2ms/10ms/10ms:") + "T deadline=1ms/5ms/5ms: (R0.1 S4)*\n"
    tk.simulate(text).filter(comm=["A", "B*", "T"]).write(path)
    trace = tk.read(path)
    ((tids, ((key, times),)),) = reservations(trace)
    assert tids == trace.tasks.filter(comm="A")["tid"].to_list()
    assert key == "deadline"
    runtime, deadline, period = (int(ns.removesuffix("ns")) for ns in times.split("/"))
    assert runtime == pytest.approx(2e6, rel=0.02)
    assert deadline == period == pytest.approx(1e7, rel=0.001)
    run = tk.replay(trace, "eevdf")
    assert share(run, "A") == pytest.approx(0.2, abs=0.01)
    said = " ".join(run.diagnostics["message"].cast(pl.String))
    assert "reservation of A: " in said
    assert "no record shows what SCHED_DEADLINE reserves for T" in said


def test_texts_are_overrides(trace: tk.Trace) -> None:
    """They ended with an AttributeError: a text is how the command line says it."""
    made = overrides_of({"spin*": {"nice": 5}, "waker*": {"policy": "fifo", "prio": 10}})
    assert overrides_of(["spin*: nice=5", parse_set("waker*: policy=fifo,prio=10")]) == made
    assert overrides_of("spin*: nice=5") == made[:1]
    text, mapping = (
        tk.compare(trace, runs=1, scenario=given).table for given in ("spin*: nice=5", {"spin*": {"nice": 5}})
    )
    assert text.equals(mapping)


@pytest.mark.parametrize(
    ("scenario", "found"),
    [
        ({"spin*": 5}, "expected attributes, such as {'nice': 5}, found 5"),
        ([3], "expected changes, such as 'spin*: nice=5', found 3"),
        ("spin* nice=5", "expected `selector: attribute=value`"),
    ],
)
def test_what_is_no_override_is_named(scenario: Any, found: str) -> None:
    with pytest.raises(ReplayError, match=re.escape(found)):
        overrides_of(scenario)


@pytest.mark.parametrize("runs", [0, -3])
def test_a_comparison_runs_once_at_least(trace: tk.Trace, runs: int) -> None:
    with pytest.raises(ReplayError, match=f"runs: expected a whole number above 0, found {runs}"):
        tk.compare(trace, "fifo", runs=runs)
