"""The words of the field in what users read, and lines of prose that fit a screen."""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tracekit.cli import main

ROOT = Path(__file__).parent.parent
#: Written by a command from measurements, with tables of many columns.
GENERATED = {"validation.md"}
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
        found += sorted(p for p in ROOT.glob(pattern) if p.name not in GENERATED)
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


def test_lines_of_documents_fit() -> None:
    for path in documents():
        fence = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence ^= line.startswith("```")
            prose = not (fence or line.startswith(("|", "    ", "![", "<")))
            # A word that is longer, such as a link, cannot be broken.
            longest = max((len(word) for word in line.split()), default=0)
            assert not prose or len(line) <= max(LONGEST, longest + 2), f"{path}:{number}"


@pytest.mark.parametrize("package", ["cli", "report", "plot"])
def test_lines_of_comments_and_docstrings_fit(package: str) -> None:
    for path in sorted((ROOT / "tracekit" / package).rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            comment = token.type == tokenize.COMMENT and "# type:" not in token.string
            docstring = token.type == tokenize.STRING and token.string.lstrip("rf").startswith('"""')
            if comment or docstring:
                for line in token.string.splitlines():
                    assert len(line) + token.start[1] * comment <= LONGEST, f"{path}: {line[:60]}"
