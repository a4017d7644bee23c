"""The site: it builds as `make docs` builds it, and a broken link fails the build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytest.importorskip("mkdocs", reason="pip install 'tracekit[docs]'")
pytest.importorskip("mkdocstrings", reason="pip install 'tracekit[docs]'")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents, with the generated pages, in a folder of their own."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("reference"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("tracekit", "notebooks", "CHANGELOG.md"):
        (folder / name).symlink_to(ROOT / name)
    done = run(folder, "docs/generate.py")
    assert done.returncode == 0, done.stderr
    return folder


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [sys.executable, *args], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site with the options that the Makefile has."""
    found = re.search(r"/mkdocs (build .*) --site-dir", (ROOT / "Makefile").read_text())
    assert found is not None
    return run(folder, "-m", "mkdocs", *found[1].split())


def test_the_site_builds_with_every_page(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(copy / "docs").with_suffix("").as_posix() for p in (copy / "docs").rglob("*.md")}
    assert {"reference/cli", "reference/topics", "reference/policies", "reference/formats"} <= pages
    for page in pages - {"index"}:
        assert (copy / "site" / page / "index.html").is_file(), page
    reference = (copy / "site" / "api" / "tracekit" / "index.html").read_text()
    assert "tracekit.read" in reference
    assert "Returns" in reference
    # The functions that one begins with come first.
    order = [reference.index(f'id="tracekit.{name}"') for name in START]
    assert order == sorted(order)
    assert run(copy, "docs/generate.py", "--check").returncode == 0


START = ("io.reading.read", "whatif.comparing.compare", "whatif.run.replay", "trace.Trace")


def test_four_questions_are_two_clicks_from_home() -> None:
    home = (ROOT / "docs" / "index.md").read_text()
    for page, words in {
        "capture.md": "tracekit recipes",
        "guide/diff.md": "tracekit diff",
        "guide/why.md": "tracekit why",
        "how-to/add-policy.md": "tk.Policy",
    }.items():
        assert f"]({page})" in home
        assert words in (ROOT / "docs" / page).read_text()


BROKEN = {
    "[a](guide/absent.md)": "guide/absent.md",
    "[a](definitions.md#absent)": "does not contain an anchor '#absent'",
    "[tracekit.absent][]": "cross-reference target 'tracekit.absent'",
}


def test_broken_links_fail_the_build(copy: Path) -> None:
    page = copy / "docs" / "index.md"
    whole = page.read_text()
    page.write_text("\n".join([whole, *BROKEN, ""]))
    try:
        done = build(copy)
    finally:
        page.write_text(whole)
    assert done.returncode != 0
    for said in BROKEN.values():
        assert said in done.stderr
    assert "Aborted with 3 warnings in strict mode" in done.stdout


def test_the_page_on_several_cpus_has_its_causes_as_they_are_written(root: Path) -> None:
    causes = (root / "validation" / "several-causes.md").read_text().strip()
    assert len(causes) > 10_000
    # The next writing of the page would lose what was put into the page alone.
    assert causes in (root / "docs" / "validation-several.md").read_text()
