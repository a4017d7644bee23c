"""Every promise of docs/reliability.md names a test that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path


def test_every_fault_has_its_test(root: Path) -> None:
    page, _, seen = (root / "docs" / "reliability.md").read_text().partition("## Seen to fail")
    assert seen.count("\n| ") >= 5
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| fault", "| property"))]
    assert len(rows) >= 30
    named: set[tuple[str, str]] = set()
    for row in rows:
        found = re.findall(r"`([\w/.]+\.py)::(\w+)`", row)
        assert found or "](definitions.md)" in row, row
        named.update(found)
    for file, test in sorted(named):
        path = root / file if "/" in file else Path(__file__).parent / file
        names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
        assert test in names, f"{file} has no {test}"
    own = {
        (path.name, node.name)
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and path.name != Path(__file__).name
    }  # fmt: skip
    assert own <= named
