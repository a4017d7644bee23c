"""Replay captured CPU-scheduler traces under other scheduling policies, offline, with an error bar.

>>> import tracekit as tk
>>> trace = tk.read("boot.dat")  # doctest: +SKIP
>>> tk.analysis.slices.summary(trace.slices, by="comm")  # doctest: +SKIP

Everything that is public stands in ``tracekit.__all__``. Parts are loaded when they are first used,
so that importing tracekit is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit import analysis, perfetto, plot, report, whatif
    from tracekit._core import __version__ as __version__
    from tracekit.errors import (
        FilterError,
        FilterWarning,
        InternalError,
        OutputError,
        ParseError,
        Position,
        ReplayError,
        TracekitError,
    )
    from tracekit.io import convert, read, scan, survey
    from tracekit.perfetto import sql
    from tracekit.registry import costs, formats, policies
    from tracekit.trace import Trace
    from tracekit.whatif import (
        Comparison,
        Programs,
        Replay,
        calibrate,
        compare,
        generate,
        replay,
        simulate,
    )
    from tracekit.whatif.policy import CompiledPolicy, Policy

__all__ = [
    "Comparison",
    "CompiledPolicy",
    "FilterError",
    "FilterWarning",
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
    "calibrate",
    "compare",
    "convert",
    "costs",
    "explain",
    "formats",
    "generate",
    "perfetto",
    "plot",
    "policies",
    "read",
    "replay",
    "report",
    "scan",
    "simulate",
    "sql",
    "survey",
    "whatif",
]

_HOMES = {
    "Comparison": "whatif",
    "CompiledPolicy": "whatif.policy",
    "Policy": "whatif.policy",
    "__version__": "_core",
    "analysis": "analysis",
    "explain": "explain",
    "plot": "plot",
    "report": "report",
    "whatif": "whatif",
    "FilterError": "errors",
    "FilterWarning": "errors",
    "InternalError": "errors",
    "OutputError": "errors",
    "ParseError": "errors",
    "Position": "errors",
    "Programs": "whatif",
    "Replay": "whatif",
    "calibrate": "whatif",
    "compare": "whatif",
    "generate": "whatif",
    "replay": "whatif",
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
    "survey": "io",
    "simulate": "whatif",
}


__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted(__all__)
