"""Names of tasks that mean harm, in what a spreadsheet, a terminal and a browser get to see."""

from __future__ import annotations

import json

import polars as pl
import pytest

from tracekit.harmless import escaped, for_csv, printable


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3+cmd|' /C x'", "'-2+3+cmd|' /C x'"),
        ("+1|x", "'+1|x"),
        ("\t=1", "'\\t=1"),
        ("-bash", "-bash"),
        ("kworker/0:1", "kworker/0:1"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("a\nb", "a\\nb"),
        ("a\u202eb", "a\\u202eb"),
        ("Grüße 漢字", "Grüße 漢字"),
    ],
)
def test_cells_of_csv(name: str, safe: str) -> None:
    frame = pl.DataFrame({"comm": pl.Series([name, None, "spin"], dtype=pl.Categorical), "n": [1, 2, 3]})
    out = for_csv(frame)
    assert out["comm"].cast(pl.String).to_list() == [safe, None, "spin"]
    assert out["n"].equals(frame["n"])


def test_json_keeps_its_meaning() -> None:
    value = {"comm": "a\x9b31m\u2028\u202eb\x1b"}
    text = escaped(json.dumps(value, ensure_ascii=False))
    assert not any(c in text for c in "\x9b\u2028\u202e\x1b")
    assert json.loads(text) == value


def test_terminal() -> None:
    assert printable("a\x1b]0;x\x07\r\n") == "a\\x1b]0;x\\x07\\r\\n"
