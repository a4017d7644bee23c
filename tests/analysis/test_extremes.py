"""Extremes of a statistic against every completion, tried one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis import _common as c
from tracekit.analysis import extremes
from tracekit.analysis.extremes import Partial

values = st.integers(0, 6)
spans = st.tuples(values, values).map(lambda p: (min(p), max(p)))


def completions(
    exact: list[int],
    must: list[tuple[int, int]],
    may: list[tuple[int, int]],
    unobserved: int,
    each: int,
    total: int,
) -> Iterator[list[int]]:
    """Every way to fill in whole numbers."""
    sure = [range(lo, hi + 1) for lo, hi in must]
    optional = [[None, *range(lo, hi + 1)] for lo, hi in may]
    for first in itertools.product(*sure):
        for second in itertools.product(*optional):
            for number in range(unobserved + 1):
                for third in itertools.combinations_with_replacement(range(each + 1), number):
                    if sum(third) <= total:
                        yield [*exact, *first, *(v for v in second if v is not None), *third]


@given(
    exact=st.lists(values, max_size=4),
    must=st.lists(spans, max_size=2),
    may=st.lists(spans, max_size=2),
    unobserved=st.integers(0, 2),
    each=st.integers(0, 6),
    total=st.integers(0, 9),
    q=st.sampled_from([0.3, 0.5, 0.75, 0.95]),
)
def test_no_completion_lies_outside_and_quantiles_are_reached(
    exact: list[int],
    must: list[tuple[int, int]],
    may: list[tuple[int, int]],
    unobserved: int,
    each: int,
    total: int,
    q: float,
) -> None:
    sample = Partial(
        np.array(exact, dtype=float),
        *(np.array([p[i] for p in ps], dtype=float) for ps in (must, may) for i in (0, 1)),
        unobserved=unobserved,
        each=each,
        total=total,
    )
    found = [sorted(x) for x in completions(exact, must, may, unobserved, each, total) if x]
    if not found:
        return
    means = [sum(x) / len(x) for x in found]
    low, high = extremes.mean(sample)
    assert low <= min(means) + 1e-9
    assert high >= max(means) - 1e-9
    quantiles = [x[c.rank_of(q, len(x))] for x in found]
    assert extremes.quantile(sample, q) == (min(quantiles), max(quantiles))
    low, high = extremes.largest(sample)
    assert low <= min(max(x) for x in found)
    assert high >= max(max(x) for x in found)


def test_unobserved_values_of_unknown_number() -> None:
    sample = Partial(np.array([10.0] * 90 + [50.0] * 10), unobserved=math.inf, each=40.0, total=100.0)
    low, high = extremes.quantile(sample, 0.5)
    assert (low, high) == (0.0, 10.0)
    assert extremes.mean(sample)[0] == 0.0
    # Two values of 40 and one of 20 hold all the unobserved time, and are the fewest that do.
    assert extremes.mean(sample)[1] == (900 + 500 + 100) / 103


def test_no_upper_end_no_upper_bound() -> None:
    sample = Partial(np.array([1.0, 2.0, 3.0]), np.array([1.0]), np.array([math.inf]))
    assert extremes.quantile(sample, 0.5) == (1.0, 2.0)
    assert extremes.quantile(sample, 0.99) == (3.0, math.inf)
    assert extremes.mean(sample) == (7 / 4, math.inf)
