"""What exporters read of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl

__all__ = ["Tables"]


class Tables(Protocol):
    """A trace or a replay, as far as exporters know it."""

    @property
    def slices(self) -> pl.DataFrame:
        """Stays on CPUs, by start time."""

    @property
    def events(self) -> pl.DataFrame:
        """Records, by time."""

    @property
    def tasks(self) -> pl.DataFrame:
        """Tasks."""

    @property
    def runqueue(self) -> pl.DataFrame:
        """Run-queue lengths, by time."""

    @property
    def losses(self) -> pl.DataFrame:
        """Where records were lost."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """What is known of the trace as a whole."""
