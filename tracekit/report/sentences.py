"""Sentences of the terminal as parts of a page."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

__all__ = ["worded"]


def worded(sentence: str) -> Markup:
    """Give a sentence as HTML: what stands between backticks in a terminal is code on a page.

    Examples
    --------
    >>> worded("3 < 4 are marked `do not use`")
    Markup('3 &lt; 4 are marked <code>do not use</code>')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))
