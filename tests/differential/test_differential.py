"""Whole schedules of random workloads, to the ns, against independent models. `make differential`
runs 200 of each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from . import models as m
from .cases import ROWS
from .engine import Case, difference

COUNT = int(os.environ.get("TRACEKIT_DIFFERENTIAL", "6"))
RESULTS = Path(__file__).parents[2] / "docs" / "differential.json"


@pytest.mark.parametrize("name", ROWS)
def test_schedules_equal_those_of_an_independent_model(name: str) -> None:
    wrong = [found for seed in range(COUNT) if (found := ROWS[name][2](seed))]
    assert not wrong, f"{len(wrong)} of {COUNT} differ, the first:\n{wrong[0]}"


def test_a_model_of_another_policy_is_told_apart() -> None:
    case = Case("rr:quantum=11ms", m.RoundRobin, "")
    assert all(difference(case, seed) for seed in (1, 2))


def test_the_table_of_the_documents_has_a_full_run_of_every_row() -> None:
    """`make differential` writes it; a new row, or one with another source, needs a new run."""
    rows = json.loads(RESULTS.read_text())
    known = {row["name"]: (row["policy"], row["source"]) for row in rows}
    assert known == {name: (policy, source) for name, (policy, source, _) in ROWS.items()}
    assert all(row["equal"] == row["workloads"] >= 200 for row in rows)
