"""TOML that a user wrote."""

from __future__ import annotations

import tomllib
from typing import Any

__all__ = ["read_toml"]


def read_toml(text: str) -> dict[str, Any]:
    """What a TOML text holds.

    Raises
    ------
    ValueError
        When it is no TOML; also where the standard library's reader ends otherwise: in numbers of
        over 4,300 digits, and in brackets that are nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None
