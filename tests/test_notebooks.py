"""The notebooks are executed, and are stored without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_notebooks_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:2]) for path in NOTEBOOKS] == list(range(1, len(NOTEBOOKS) + 1))
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_outputs_are_stripped(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_links_between_notebooks_lead_somewhere(path: Path) -> None:
    text = "".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
    for target in [part.split(")")[0] for part in text.split("](")[1:]]:
        assert (FOLDER / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel is a process of its own: it shall find the same tracekit, installed or not.
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(p for p in (str(FOLDER.parent), os.environ.get("PYTHONPATH")) if p)
    )
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
    ).execute()
    outputs = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    assert any("image/png" in o.get("data", {}) for o in outputs), "figures are shown"
    assert not any(o.output_type == "stream" and o.name == "stderr" for o in outputs)
