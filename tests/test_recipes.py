"""Recipes: each is there, says what it is for, and its output is what the parser named reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tracekit as tk
from tracekit import recipes, registry
from tracekit.cli import main

ALL = [(r.name, system) for r in recipes.list() for system in r.systems]
DTRACE = [system for name, system in ALL if name == "dtrace"]


def run(*args: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in args], prog_name="tracekit")
    assert result.exit_code == status, (result.output, result.exception)
    return result


@pytest.mark.parametrize(("name", "system"), ALL)
def test_recipes_say_what_needs_which_events(name: str, system: str) -> None:
    text = recipes.show(name, system)
    assert text.endswith("\n")
    assert "tracekit info" in text
    assert ("What needs which" in text) or ("What it records" in text)
    assert all(len(line.expandtabs(8)) <= 140 for line in text.splitlines())


def test_recipes_name_formats_that_exist() -> None:
    known = {f["name"] for f in registry.formats()}
    for recipe in recipes.list():
        assert recipe.format in known | {recipes.MACHINE_FORMAT}, recipe.name


def test_wrong_names_are_told() -> None:
    with pytest.raises(ValueError, match="There are perf"):
        recipes.show("nothing")
    with pytest.raises(ValueError, match="illumos, freebsd, macos"):
        recipes.show("dtrace")
    with pytest.raises(ValueError, match="there is one for linux"):
        recipes.show("perf", "aix")
    assert recipes.show("dtrace", "Solaris") == recipes.show("dtrace", "illumos")


#: Made-up values of printf's conversions.
MADE = {"%d": "7", "%x": "fe00", "%c": "S", "%s": "sh"}


def printed_lines(script: str) -> list[str]:
    """What each printf of a script would print, with made-up values: one line a printf."""
    code = re.sub(r"/\*.*?\*/", "", script, flags=re.DOTALL)
    lines = []
    for text, arguments in re.findall(r'printf\("((?:[^"\\]|\\.)*)"(?:,(.*?))?\);', code, flags=re.DOTALL):
        conversions = re.findall(r"%[dsxc]", text)
        depth, count = 0, 1 if arguments.strip() else 0
        for c in arguments:
            depth += c in "(["
            depth -= c in ")]"
            count += c == "," and depth == 0
        assert len(conversions) == count, text
        line = text.replace("\\t", "\t").replace("\\n", "")
        lines.append(re.sub(r"%[dsxc]", lambda m: MADE[m[0]], line))
    return lines


@pytest.mark.parametrize("system", DTRACE)
def test_dtrace_scripts_print_what_the_parser_reads(system: str, tmp_path: Path) -> None:
    script = recipes.show("dtrace", system)
    lines = printed_lines(script)
    records = [line for line in lines if line.startswith("T1")]
    assert all(line.count("\t") == 16 for line in records)
    asked = next(line for line in lines if line.startswith("#TKP")).split("\t")[1].split(",")
    printed = {line.split("\t")[3] for line in records}
    assert printed == set(asked)
    path = tmp_path / "trace.tkd"
    path.write_text("\n".join(lines) + "\n")
    trace = tk.read(path)
    assert trace.metadata["source.format"] == "dtrace-tkd"
    assert trace.metadata["parse.unparsed"] == "0"
    assert json.loads(trace.metadata["events.recorded"]) == asked
    kinds = set(trace.events["kind"].cast(str))
    assert {"switch", "resume", "wakeup", "fork", "exec", "exit"} <= kinds
    assert trace.events.filter(trace.events["kind"].cast(str) == "other").height <= 1  # surrender


#: What a shell runs: all but the DTrace scripts.
SHELL = [(name, system) for name, system in ALL if name != "dtrace"]


@pytest.mark.parametrize(("name", "system"), SHELL)
def test_commands_are_valid_shell(name: str, system: str) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    text = recipes.show(name, system)
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in text.splitlines() if line and not line.startswith("#")]
    checker = shutil.which("shellcheck")
    if checker is not None:
        done = subprocess.run([checker, "-s", "sh", "-"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_command_lists_prints_and_writes(tmp_path: Path) -> None:
    listing = run("recipes").output
    assert "illumos, freebsd, macos" in listing
    assert {r["name"] for r in json.loads(run("recipes", "--json").output)} == {
        r.name for r in recipes.list()
    }
    assert run("recipes", "aix").output == recipes.show("aix")
    target = tmp_path / "tkd.d"
    assert run("recipes", "dtrace", "--os", "macos", "-o", target).output == ""
    assert target.read_text() == recipes.show("dtrace", "macos")
    error = run("recipes", "dtrace", status=2).output
    assert "differs by operating system" in error
    assert json.loads(run("recipes", "perf", "--json").output)["text"] == recipes.show("perf")
