"""Every public name has an example in its docstring, and every example is executed."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import tracekit as tk

#: What needs something that is not part of the package: a trace processor.
NOT_EXECUTED = {"sql"}
NAMES = [name for name in tk.__all__ if not inspect.ismodule(getattr(tk, name)) and not name.startswith("__")]


@pytest.mark.parametrize("name", NAMES)
def test_its_example_runs(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    thing = getattr(tk, name)
    text = inspect.getdoc(thing) or ""
    assert ">>>" in text, f"{name} has no example"
    found = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    executed = [e for e in found.examples if not e.options.get(doctest.SKIP)]
    assert len(executed) == len(found.examples) or name in NOT_EXECUTED
    said: list[str] = []
    result = doctest.DocTestRunner().run(found, out=said.append)
    assert result.failed == 0, "".join(said)
