"""Options and arguments that take one of a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.near import did_you_mean

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    # No generic class before click 8.2.
    _Choice = click.Choice


class Choice(_Choice):
    """One of some words; another one is refused with the nearest, where one is near."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the word, or say which it may have been meant to be."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            words = [str(word) for word in self.choices]
            near = did_you_mean(str(value).lower(), words)
            if not near:
                raise
            self.fail(f"no such word {str(value)!r}{near} There are {', '.join(words)}", param, ctx)
