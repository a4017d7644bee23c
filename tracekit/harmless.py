"""Text from a trace, such as the name of a task, where it could do harm: terminals, spreadsheets, JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

__all__ = ["escaped", "for_csv", "printable"]

_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
#: Where a spreadsheet would see a formula. `-bash` is the name of a login shell and none.
_FORMULA = r"^(?:[=@\t\r]|[+\-][\w.]*[^\w.\-/: ])"
_UNPRINTABLE = r"[\p{Cc}\x{2028}\x{2029}\x{202a}-\x{202e}\x{2066}-\x{2069}]"


def printable(text: str) -> str:
    r"""`text` as it may go to a terminal: control characters written out.

    Examples
    --------
    >>> print(printable("spin" + chr(27) + "[31m"))
    spin\x1b[31m
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped(json_text: str) -> str:
    """JSON in which control characters are escaped that JSON itself lets stand, and terminals obey."""
    return _CONTROL.sub(lambda m: f"\\u{ord(m[0]):04x}", json_text)


def for_csv(frame: pl.DataFrame) -> pl.DataFrame:
    r"""The table as it may go to a spreadsheet or a terminal.

    Parameters
    ----------
    frame
        Any table.

    Returns
    -------
    polars.DataFrame
        Texts that a spreadsheet would take for a formula have an apostrophe before them; control
        characters are written out (``\x1b``). All else is as it was.
    """
    import polars as pl

    changed = []
    for name, dtype in frame.schema.items():
        if dtype not in (pl.String, pl.Categorical) and not isinstance(dtype, pl.Enum):
            continue
        words = frame[name].cast(pl.String).unique().drop_nulls()
        bad = words.filter(words.str.contains(_FORMULA) | words.str.contains(_UNPRINTABLE))
        if bad.len():
            new = [_safe(word) for word in bad]
            column = pl.col(name).cast(pl.String).replace(bad.to_list(), new)
            changed.append(column.alias(name))
    return frame.with_columns(changed)


def _safe(word: str) -> str:
    return ("'" if re.match(_FORMULA, word) else "") + printable(word)
