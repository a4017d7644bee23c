"""What analyses take: the tables they need, or a whole trace in their place."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import polars as pl

__all__ = ["tables"]

R = TypeVar("R")


def tables(*names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a function take a trace in place of its first arguments, and any table that speaks Arrow.

    Parameters
    ----------
    names
        Attributes of a trace that are the function's first arguments, in order.

    Returns
    -------
    callable
        The decorator. A polars LazyFrame is collected; a pandas or pyarrow table, or anything else
        with ``__arrow_c_stream__`` or ``__dataframe__``, becomes a polars DataFrame without a copy
        where that is possible.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> R:
            if args and _is_trace(args[0]):
                taken = [name for name in names if name not in options]
                return function(*(getattr(args[0], name) for name in taken), *args[1:], **options)
            return function(*map(_frame, args), **{key: _frame(value) for key, value in options.items()})

        return call

    return decorate


def _is_trace(value: object) -> bool:
    """Whether it has the tables of a trace; analyses do not know the class."""
    return hasattr(value, "slices") and hasattr(value, "runqueue") and hasattr(value, "metadata")


def _frame(value: Any) -> Any:
    """A table as a polars DataFrame; anything else as it is."""
    if value is None or isinstance(value, pl.DataFrame | str | int | float | tuple | list):
        return value
    if isinstance(value, pl.LazyFrame):
        return value.collect()
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__dataframe__"):
        return pl.DataFrame(value)
    return value
