"""Packages whose names are loaded when they are first used, so that importing tracekit is quick."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["later", "lazy"]


class _Later:
    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        self.__dict__[attribute] = value
        return value


def later(name: str) -> Any:
    """Stand for a module that is loaded when something of it is first used.

    For modules that take long to load and are not always needed: pyarrow and polars take twice as
    long as Python itself.

    Parameters
    ----------
    name
        Full name of the module.
    """
    return _Later(name)


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the module-level ``__getattr__`` of a package (PEP 562).

    Parameters
    ----------
    package
        Full name of the package.
    homes
        Public name to the module of the package that has it; a name that is its own home is a module.

    Returns
    -------
    Callable
        Loads what a name stands for. It raises AttributeError for any other name.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{home}")
        value = module if home == name else getattr(module, name)
        setattr(importlib.import_module(package), name, value)
        return value

    return load
