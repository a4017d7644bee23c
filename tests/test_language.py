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
    for path in found:
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


@pytest.mark.parametrize("name", ["Cargo.toml", "pyproject.toml", "setup.cfg", "mkdocs.yml", "Makefile"])
def test_lines_of_comments_in_settings_fit(name: str) -> None:
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        assert not line.startswith("#") or not too_long(line), f"{name}:{number}"


def test_a_line_that_is_too_long_is_found() -> None:
    text = ["short", "a " * 60, "", "    " + "code " * 30, "```", "b " * 60, "```", "| " + "cell | " * 30]
    assert [number for number, line in prose(text) if too_long(line)] == [2]
    assert not too_long("- https://" + "x" * 120)
