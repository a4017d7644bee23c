"""The JSON of the commands keeps to its published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from tracekit.cli import main
from tracekit.cli._output import SCHEMA

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "fixtures/demo/slice-default.dat")
PUBLISHED = json.loads((ROOT / "docs/json-schema.json").read_text())

COMMANDS = [
    *([c, DEMO, "--top", "3"] for c in ("slices", "latency", "response", "runqueue", "where")),
    *(["why", DEMO, "--comm", "waker*", "--show", s, "--top", "3"] for s in ("summary", "worst", "chains")),
    ["why", DEMO, "--show", "matrix"],
    ["info", DEMO],
    ["check", DEMO],
    ["diff", DEMO, DEMO, "--fail-if", "spin: slice > 2 * baseline"],
    ["slices", DEMO, "--fail-if", "spin: slice > 1s"],
    ["compare", DEMO, "--policy", "rr", "--quick", "--fail-if", "spin: slice > 9 * baseline"],
    ["replay", DEMO, "--policy", "rr"],
    ["infer", DEMO],
    ["calibrate", DEMO],
    ["doctor", DEMO],
    ["timeline", DEMO],
    ["sweep", DEMO, "--policy", "rr", "--runs", "1", "--metric", "slice.mean(spin)"],
    ["solve", DEMO, "--goal", "slice.mean(spin) < 1s", "--depth", "1"],
    ["policies", "show", "rr"],
    ["recipes", "perf"],
]


def test_the_schema_is_one_and_has_the_version() -> None:
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    assert PUBLISHED["$id"] == PUBLISHED["properties"]["schema"]["const"] == SCHEMA
    assert SCHEMA in (ROOT / "tracekit/cli/topics/output.md").read_text()


@pytest.mark.parametrize("args", COMMANDS, ids=lambda a: "-".join(x for x in a if x != DEMO)[:40])
def test_output_keeps_to_the_schema(args: list[str]) -> None:
    done = CliRunner().invoke(main, [*args, "--json"])
    assert done.exit_code in (0, 5), done.output
    answer = json.loads(done.stdout, parse_constant=pytest.fail)
    jsonschema.validate(answer, PUBLISHED)
    assert [f["rank"] for f in answer["findings"]] == list(range(1, len(answer["findings"]) + 1))


@pytest.mark.parametrize(
    "args",
    [["formats"], ["policies"], ["policies", "costs"], ["recipes"], ["doctor"], ["sql", DEMO, "select 1"]],
)
def test_lists_are_plain_as_the_help_says(args: list[str]) -> None:
    said = (ROOT / "tracekit/cli/topics/output.md").read_text()
    assert f"`{args[0]}`" in said.split("A plain list is what")[1].split(".")[0]
    assert isinstance(json.loads(CliRunner().invoke(main, [*args, "--json"]).stdout), list)


def test_why_has_findings_and_a_wrong_answer_is_refused() -> None:
    done = CliRunner().invoke(main, ["why", DEMO, "--comm", "waker*", "--json"])
    answer = json.loads(done.stdout)
    assert answer["findings"][0]["culprit"] == "spin"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answer, "findings": answer["findings"] * 21}, PUBLISHED)
