"""The words of the field in what users read, and lines of prose that fit a screen."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from tracekit.cli import main

ROOT = Path(__file__).parent.parent
#: Longest line of prose.
LONGEST = 110

#: What was said before the field's words were used, and what is said now.
LEFT = {
    r"\bmade to leave\b": "preempted",
    r"\bcould have gone on\b": "involuntary switch",
    r"\bhidden messages?\b": "unobserved messages",
    r"\bbistable\b": "bimodal",
    r"\bhangs? by\b": "sensitivity",
    r"\bsmall changes of the machine\b": "perturbations",
    r"\bshak(?:e|en|es|ing)\b": "perturbation",
    r"\bmisfits?\b": "unexpected line",
    r"\bnewborn\b": "forked",
    r"\bkernel share\b": "share of kernel time",
    r"\bcharge boundary\b": "run-queue clock to tracepoint offset",
    r"\bin step\b|\bfalls? in step\b": "phase-locked",
    r"\bwhich figures?\b|\ball figures\b|\bmain figures?\b|\beach figure\b|\bevery figure\b": "metric",
    r"\btells? (?:of|its|the format|nothing)\b": "says, records",
    r"\bdoes not tell\b|\bdid not tell\b|\bnobody can tell\b": "does not say",
    r"\bis no range\b": "invalid range",
    r"\bas wide as four things\b": "combines four error terms",
    r"\b(?:one|a|each) life of a\b|\beach life\b": "task, use of a thread number",
    r"\buninterrupted stay\b": "on-CPU interval",
    r"\b(?:a|each|the|this|long|longest|mean|median|second) stay\b": "slice",
    r"\b(?:two|long|several|many) stays\b": "slices",
    r"\bhidden\b": "unobserved",
    r"\btold apart\b|\bcannot tell apart\b|\b(?:is|are|was|not|never) told\b|\bunless told\b": "distinguish, state, report",
    r"\btells the two\b|\bnothing tells\b": "distinguishes, says",
    r"\bserves? (?:whom|the queue)\b": "receives",
}


def helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=path)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from helps(below, f"{path} {name}")


def documents() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"]
    for pattern in ("docs/*.md", "docs/guide/*.md", "docs/how-to/*.md", "tracekit/cli/topics/*.md"):
        found += sorted(ROOT.glob(pattern))
    assert len(found) > 25
    return found


def read_by_users() -> Iterator[tuple[str, str]]:
    yield from helps(main, "tracekit")
    for path in documents():
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        yield str(path.relative_to(ROOT)), text


@pytest.mark.parametrize("pattern", LEFT)
def test_the_words_of_the_field_are_used(pattern: str) -> None:
    for where, text in read_by_users():
        plain = re.sub(r"`[^`\n]*`", "", " ".join(text.split()))
        found = re.search(pattern, plain, re.IGNORECASE)
        assert found is None, f"{where}: {found and found[0]!r}; use: {LEFT[pattern]}"


def sources(*patterns: str) -> list[Path]:
    """Files of the project; not what was built or copied beside them."""
    beside = {"target", "testdata", "out", "build", "dist"}
    found = {p for pattern in patterns for p in ROOT.glob(pattern)}
    return sorted(
        p
        for p in found
        if not beside.intersection(p.relative_to(ROOT).parts)
        and not any(part.startswith(".") for part in p.relative_to(ROOT).parts)
    )


def prose(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines of Markdown that are neither code, nor a row of a table, nor a picture."""
    fence = before = False
    for number, line in enumerate(lines, 1):
        fence ^= line.lstrip().startswith("```")
        # An indented line is code behind an empty one, and behind other code.
        code = line.startswith("    ") and before
        before = code or not line.strip()
        if not (fence or code or line.lstrip().startswith(("|", "![", "<", ">>>", "...", "==="))):
            yield number, line


def too_long(text: str) -> bool:
    # A word that is longer, such as a link, cannot be broken.
    return len(text) > max(LONGEST, max((len(word) for word in text.split()), default=0) + 2)


def test_lines_of_documents_fit() -> None:
    found = sources("*.md", "docs/*.md", "docs/*/*.md", "fixtures/**/*.md", "tracekit/**/*.md", "bench/*.md")
    assert len(found) > 50
    # Pages under docs/reference are made by `make docs`.
    for path in [p for p in found if p.parent != ROOT / "docs" / "reference"]:
        for number, line in prose(path.read_text().splitlines()):
            assert not too_long(line), f"{path}:{number}"


@pytest.mark.parametrize("folder", ["tracekit", "tests", "validation", "bench", "tools", "docs"])
def test_lines_of_comments_and_docstrings_fit(folder: str) -> None:
    found = sources(f"{folder}/**/*.py", f"{folder}/**/*.pyi")
    assert found
    for path in found:
        text = path.read_text()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
                assert not too_long(token.line.rstrip()), f"{path}:{token.start[0]}"
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, documented) and ast.get_docstring(node) is not None:
                first, last = node.body[0].lineno, node.body[0].end_lineno
                for number, line in prose(text.splitlines()[first - 1 : last]):
                    assert not too_long(line), f"{path}:{first + number - 1}"


#: A string of Rust, raw or not, a comment, or a character; a lifetime is none of these.
RUST = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |b?c?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)
    |b?"(?P<text>(?:\\.|[^"\\])*)"
    |'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'])'""",
    re.DOTALL | re.VERBOSE,
)


def rust_strings(text: str) -> Iterator[tuple[int, str]]:
    """Strings of a source of Rust before its tests, each with its line; lines that go on are joined."""
    for found in RUST.finditer(text.partition("#[cfg(test)]")[0]):
        if found["text"] is not None:
            said = re.sub(r"\\\n\s*", "", found["text"])
            yield text.count("\n", 0, found.start()) + 1, said


def rust_sources() -> list[Path]:
    found = sources(
        "schema/**/*.rs",
        "parsers/**/*.rs",
        "replay/**/*.rs",
        "statistics/**/*.rs",
        "tracekit/_bindings/**/*.rs",
    )
    assert len(found) > 200
    return found


@pytest.mark.parametrize("crate", ["schema", "parsers", "replay", "statistics", "_bindings"])
def test_lines_of_comments_in_rust_fit(crate: str) -> None:
    for path in [p for p in rust_sources() if crate in p.relative_to(ROOT).parts]:
        lines = [
            (number, marks, line)
            for number, line in enumerate(path.read_text().splitlines(), 1)
            for marks in [re.match(r"\s*(//[/!]?)(?: |$)", line)]
            if marks
        ]
        # What stands in one comment is Markdown: its tables and code are left as they are.
        within = [line[m.end(1) :].removeprefix(" ") for _, m, line in lines]
        for at, _ in prose(within):
            number, _, line = lines[at - 1]
            assert not too_long(line), f"{path}:{number}"


def test_lines_of_prose_in_strings_of_rust_fit() -> None:
    for path in rust_sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            # Lines of a long text end so; other lines of code are rustfmt's.
            if line.endswith(" \\"):
                assert not too_long(line), f"{path}:{number}"


#: Words of Rust's messages and descriptions; documents may use some of them in another sense.
LEFT_IN_RUST = LEFT | {
    r"\bfigures\b": "metrics, values",
    r"\btells?\b|\btold\b": "says, records, states",
    r"\bhidden\b": "unobserved",
    r"\bdoubtful\b": "unreliable",
    r"\b(?:long|several|many|one|a) stays?\b|\bstays on a CPU\b": "slice",
    r"\bserves?\b": "receive",
}


@pytest.mark.parametrize("pattern", LEFT_IN_RUST)
def test_the_words_of_the_field_are_used_in_rust(pattern: str) -> None:
    for path in rust_sources():
        if {"tests", "examples", "benches"}.intersection(path.parts) or path.name in ("tests.rs", "props.rs"):
            continue
        for number, said in rust_strings(path.read_text()):
            if said.count(" ") >= 2:
                found = re.search(pattern, re.sub(r"`[^`\n]*`", "", said), re.IGNORECASE)
                assert found is None, f"{path}:{number}: {found and found[0]!r}; use: {LEFT_IN_RUST[pattern]}"


#: Parts of names in code, by what they were: `first_told` and `FirstTold` have the parts first and told.
LEFT_IN_NAMES = {
    "bistable": "bimodal",
    "debt": "pending read",
    "debts": "pending reads",
    "doubtful": "unreliable",
    "foreign": "external",
    "newborn": "forked",
    "shake": "perturbation",
    "shakes": "perturbations",
    "shaken": "perturbed",
    "stay": "slice, burst",
    "told": "stated, recorded, report",
    "unmask": "irqs_on",
    "untold": "unrecorded",
}
#: Analyses of Python show the lives of processes.
LEFT_IN_NAMES_OF_RUST = LEFT_IN_NAMES | {"act": "event", "acts": "events", "life": "task", "lives": "tasks"}


def name_parts(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def code_names(path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix == ".rs":
        return set(re.findall(r"[A-Za-z_]\w*", RUST.sub(" ", text.partition("#[cfg(test)]")[0])))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_names_in_code_are_the_words_of_the_field() -> None:
    own = [p for p in rust_sources() if "src" in p.parts and p.name not in ("tests.rs", "props.rs")]
    own += [
        p
        for p in sources("tracekit/**/*.py", "tracekit/*.pyi", "validation/*.py")
        if "studies" not in p.parts
    ]
    for path in own:
        left = LEFT_IN_NAMES_OF_RUST if path.suffix == ".rs" else LEFT_IN_NAMES
        for name in code_names(path) - {"HALF_LIFE"}:
            for part in name_parts(name):
                assert part not in left, f"{path.relative_to(ROOT)}: {name}; use: {left[part]}"


def test_parts_of_names_are_found() -> None:
    assert (
        name_parts("first_told") == name_parts("FirstTold") == name_parts("FIRST_TOLD") == ["first", "told"]
    )


def test_strings_of_rust_are_found() -> None:
    text = """fn f<'a>(c: char) { if c == '"' { say("one \\
        two", r#"three"#, "\\"four"); } // "five"\n} #[cfg(test)] mod t { "six" }"""
    assert [said for _, said in rust_strings(text)] == ["one two", '\\"four']


@pytest.mark.parametrize("name", ["Cargo.toml", "pyproject.toml", "setup.cfg", "mkdocs.yml", "Makefile"])
def test_lines_of_comments_in_settings_fit(name: str) -> None:
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        assert not line.startswith("#") or not too_long(line), f"{name}:{number}"


def test_a_line_that_is_too_long_is_found() -> None:
    text = ["short", "a " * 60, "", "    " + "code " * 30, "```", "b " * 60, "```", "| " + "cell | " * 30]
    assert [number for number, line in prose(text) if too_long(line)] == [2]
    assert not too_long("- https://" + "x" * 120)
