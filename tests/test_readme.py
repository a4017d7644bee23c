"""The example of the README is what the command prints, line by line.

Where the model errors were fitted anew (`make validate`), ``python tests/test_readme.py`` writes
the new output into it.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def example() -> tuple[str, str, str, str]:
    """The text before the output of the example, its command, the output, and the text after."""
    text = README.read_text()
    found = re.search(r"^    \$ (tracekit compare .*)\n((?:    .*\n|\n)*)", text, re.M)
    assert found is not None, "no example in the README"
    body = "\n".join(line[4:] for line in found[2].rstrip().splitlines())
    end = found.start(2) + len(found[2].rstrip())
    return text[: found.start(2)], found[1], body, text[end:]


def printed(command: str) -> str:
    words = command.split()
    code = "from tracekit.cli import main; main(prog_name='tracekit')"
    done = subprocess.run(
        [sys.executable, "-c", code, *words[1:]],
        cwd=README.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.rstrip()


def test_the_example_is_what_is_printed() -> None:
    _, command, shown, _ = example()
    lines, wanted = printed(command).splitlines(), shown.splitlines()
    assert len(lines) > 10
    for line, want in zip(lines, wanted, strict=True):
        assert line == want


def test_the_python_example_prints_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(README.parent)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    assert out.getvalue().splitlines() == re.findall(r"^# (.*)", code, re.M)


def update() -> None:
    """Write what the command prints into the README."""
    before, command, _, after = example()
    lines = [f"    {line}".rstrip() for line in printed(command).splitlines()]
    README.write_text(before + "\n".join(lines) + after)


if __name__ == "__main__":
    update()
