"""Quantiles and tails of the core beside scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from tracekit import _core

freedom = st.integers(1, 10_000)
probability = st.floats(0.001, 0.999)


@given(df=freedom, p=probability)
def test_quantiles_are_scipys(df: int, p: float) -> None:
    assert _core.t_quantile(df, p) == pytest.approx(special.stdtrit(df, (1 + p) / 2), rel=5e-6)


@given(df=freedom, x=st.floats(0, 1e4), t=st.floats(-1e3, 1e3))
def test_tails_are_scipys(df: int, x: float, t: float) -> None:
    assert _core.chi_square_tail(df, x) == pytest.approx(special.chdtrc(df, x), rel=1e-7, abs=1e-12)
    assert _core.t_tails(df, t) == pytest.approx(2 * special.stdtr(df, -abs(t)), rel=1e-6, abs=1e-12)


def test_tails_end() -> None:
    assert _core.chi_square_tail(1, 0) == _core.t_tails(3, 0) == 1
    assert _core.t_tails(3, math.inf) == 0


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (_core.t_quantile, (0, 0.5), "degrees of freedom"),
        (_core.t_quantile, (math.inf, 0.5), "degrees of freedom"),
        (_core.t_quantile, (1, 1.0), "probability"),
        (_core.t_tails, (1, math.nan), "number"),
        (_core.chi_square_tail, (1, -1.0), "sum of squares"),
    ],
)
def test_what_has_no_answer_is_refused(call: object, arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*arguments)  # type: ignore[operator]
