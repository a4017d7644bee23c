"""Each named form of a policy is one of its own: two of them give different schedules."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import tracekit as tk
from tracekit.registry import policies

from .engine import SECOND, draw, text_of, threads

#: Parameters that name a form, and the least number of forms that are expected.
FORMS = {("goodness", "version"): 4, ("cfs", "form"): 4, ("eevdf", "version"): 4, ("ule", "version"): 2}


def forms(policy: str, name: str) -> list[str]:
    """All values but short ones that stand for a longer one, as 2.4 for 2.4.17."""
    params = next(p for p in policies() if p["name"] == policy)["params"]
    values = next(p for p in params if p["name"] == name)["unit"].split(" or ")
    return [v for v in values if not any(other.startswith(v + ".") for other in values)]


def schedules(policy: str) -> list[list[tuple[object, ...]]]:
    found = []
    for seed, kind in ((s, kind) for kind in (draw, threads) for s in range(8)):
        tasks = kind(random.Random(seed), 6, (0, 0, 5, 19, -5), True)
        slices = tk.simulate(
            text_of(tasks, policy, 3 * SECOND, 1000 if "goodness" not in policy else 100)
        ).slices
        found.append(slices.select("ts_ns", "dur_ns", "tid").rows())
    return found


@pytest.mark.parametrize(("policy", "name"), FORMS)
def test_each_form_has_schedules_of_its_own(policy: str, name: str) -> None:
    names = forms(policy, name)
    assert len(names) >= FORMS[policy, name]
    own = {form: schedules(f"{policy}:{name}={form}") for form in names}
    assert [pair for pair in combinations(names, 2) if own[pair[0]] == own[pair[1]]] == []


def test_a_short_name_stands_for_an_exact_version() -> None:
    for short, exact in (("2.0", "2.0.40"), ("2.2", "2.2.1"), ("2.4", "2.4.17")):
        assert schedules(f"goodness:version={short}") == schedules(f"goodness:version={exact}")
