"""The notebooks are executed, and are stored without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tracekit import studies

FOLDER = Path(__file__).parent.parent / "notebooks"
NUMBERED = sorted(FOLDER.glob("*.ipynb"))
STUDIES = sorted((FOLDER / "studies").glob("*.ipynb"))
NOTEBOOKS = [*NUMBERED, *STUDIES]


def test_notebooks_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:2]) for path in NUMBERED] == list(range(1, len(NUMBERED) + 1))
    assert NUMBERED


def test_each_study_has_an_article_of_its_name() -> None:
    assert [path.stem for path in STUDIES] == sorted(studies.NAMES)
    for path in STUDIES:
        cells = nbformat.read(path, as_version=4).cells
        # It begins with a question, asks what would have been, shows a real capture, and ends with
        # its limits.
        assert "?" in cells[0].source, path.stem
        text = "".join(c.source for c in cells)
        for part in ("## What if?", "## Limits", "../../fixtures/", "tk.replay(", "assert "):
            assert part in text, (path.stem, part)


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
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel is a process of its own: it shall find the same tracekit, installed or not.
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(p for p in (str(FOLDER.parent), os.environ.get("PYTHONPATH")) if p)
    )
    # The studies are run at a tenth of their size.
    monkeypatch.setenv("TRACEKIT_STUDY_SCALE", "0.1")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    outputs = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    assert any("image/png" in o.get("data", {}) for o in outputs), "figures are shown"
    assert not any(o.output_type == "stream" and o.name == "stderr" for o in outputs)
