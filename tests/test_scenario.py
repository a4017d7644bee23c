"""Overrides of task attributes, as text and as TOML."""

from types import SimpleNamespace

import polars as pl
import pytest

from tracekit.errors import ReplayError
from tracekit.scenario import Override, load, overrides_of, parse_set, resolve

TRACE = SimpleNamespace(
    slices=pl.DataFrame({"tid": [11, 14], "comm": ["between", "sh"]}),
    tasks=pl.DataFrame(
        {
            "tid": [0, 11, 12, 13, 14],
            "pid": [0, 11, 11, 13, 14],
            "comm": ["swapper/0", "A0", "A1", "batch", "sh"],
            "comm_first": ["swapper/0", "wl", "wl", "wl", None],
            "is_idle": [True, False, False, False, False],
        }
    ),
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


def test_ten_lines_of_toml_say_the_aix_experiment(tmp_path):
    file = tmp_path / "staggered.toml"
    file.write_text(
        'policy = "aix"\n[[task]]\ncomm = "A*"\nprio = 45\n'
        '[[task]]\ncomm_regex = "^[DEF]$"\npolicy = "rr"\nprio = 48\nforeground = true\n'
    )
    scenario = load(file)
    assert scenario.policy == "aix"
    assert scenario.loop is None
    assert scenario.overrides == (
        Override("comm", "A*", (("prio", "45"),)),
        Override("comm_regex", "^[DEF]$", (("policy", "rr"), ("prio", "48"), ("foreground", "on"))),
    )


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
