"""Replay captured CPU-scheduler traces under other scheduling policies, offline, with an error bar.

>>> import tracekit as tk
>>> trace = tk.read("boot.dat")  # doctest: +SKIP
>>> tk.analysis.slices.summary(trace.slices, by="comm")  # doctest: +SKIP

Everything that is public stands in ``tracekit.__all__``. Parts are loaded when they are first used, so that importing
tracekit is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit import analysis, perfetto, plot, report
    from tracekit._core import __version__ as __version__
    from tracekit._replay import Programs, Replay, compare, replay, simulate
    from tracekit.errors import (
        FilterError,
        InternalError,
        OutputError,
        ParseError,
        Position,
        ReplayError,
        TracekitError,
    )
    from tracekit.io import convert, read, scan
    from tracekit.perfetto import sql
    from tracekit.policy import CompiledPolicy, Policy
    from tracekit.registry import costs, formats, policies
    from tracekit.report import Comparison
    from tracekit.trace import Trace

__all__ = [
    "Comparison",
    "CompiledPolicy",
    "FilterError",
    "InternalError",
    "OutputError",
    "ParseError",
    "Policy",
    "Position",
    "Programs",
    "Replay",
    "ReplayError",
    "Trace",
    "TracekitError",
    "__version__",
    "analysis",
    "compare",
    "convert",
    "costs",
    "formats",
    "perfetto",
    "plot",
    "policies",
    "read",
    "replay",
    "report",
    "scan",
    "simulate",
    "sql",
]

_HOMES = {
    "Comparison": "report",
    "CompiledPolicy": "policy",
    "Policy": "policy",
    "__version__": "_core",
    "analysis": "analysis",
    "plot": "plot",
    "report": "report",
    "FilterError": "errors",
    "InternalError": "errors",
    "OutputError": "errors",
    "ParseError": "errors",
    "Position": "errors",
    "Programs": "_replay",
    "Replay": "_replay",
    "compare": "_replay",
    "replay": "_replay",
    "ReplayError": "errors",
    "TracekitError": "errors",
    "Trace": "trace",
    "perfetto": "perfetto",
    "sql": "perfetto",
    "convert": "io",
    "formats": "registry",
    "costs": "registry",
    "policies": "registry",
    "read": "io",
    "scan": "io",
    "simulate": "_replay",
}


def __getattr__(name: str) -> Any:
    """Load what `name` stands for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
    module = importlib.import_module(f"tracekit.{home}")
    value = module if home == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted(__all__)
