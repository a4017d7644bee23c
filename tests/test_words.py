"""Values, changes and intervals in words."""

from __future__ import annotations

import pytest

from tracekit import words


@pytest.mark.parametrize(
    ("low", "high", "unit", "text"),
    [
        (3_430_000, 4_540_000, "ns", "3.43 to 4.54 ms"),
        (925_000, 1_020_000, "ns", "925 us to 1.02 ms"),
        (16.6, 16.7, "1", "16.6 to 16.7"),
        (None, 5.0, "ns", ""),
        (0.0, 1e60, "ns", "unbounded"),
        (1.0, 1e5, "ns", "unbounded"),
    ],
)
def test_intervals(low: float | None, high: float | None, unit: str, text: str) -> None:
    assert words.span(low, high, unit) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (29.64, "+29.6 %"),
        (-0.01, "0.0 %"),
        (326.3, "+326 %"),
        (6360, "x 64.6"),
        (1.8e6, "x 18,001"),
        (None, "-"),
    ],
)
def test_changes(change: float | None, text: str) -> None:
    assert words.percent(change) == text


def test_names() -> None:
    assert words.metric_name("run_delay", "p95") == "run delay, p95"
    assert words.metric_name("involuntary_switches", "total") == "involuntary switches"
    assert words.group_name({"scope": "group", "group": None}) == "(no name)"
