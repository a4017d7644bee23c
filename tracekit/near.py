"""Which name a wrong one may have meant, for errors."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """What an error says behind a wrong name.

    Parameters
    ----------
    word
        The wrong name.
    known
        Names that there are.
    otherwise
        What to say where none is near.

    Examples
    --------
    >>> print("unknown metric 'slcie'" + did_you_mean("slcie", ["slice", "response"]))
    unknown metric 'slcie'; did you mean 'slice'?
    """
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else otherwise
