"""What would have been: replays of a trace under other policies, and how far to trust them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit.whatif.check import calibrate
    from tracekit.whatif.comparing import compare
    from tracekit.whatif.comparison import Comparison
    from tracekit.whatif.generating import generate
    from tracekit.whatif.kernels import infer
    from tracekit.whatif.run import Programs, Replay, replay, simulate

__all__ = [
    "Comparison",
    "Programs",
    "Replay",
    "calibrate",
    "compare",
    "generate",
    "infer",
    "replay",
    "simulate",
]

_HOMES = {
    "Comparison": "comparison",
    "Programs": "run",
    "generate": "generating",
    "Replay": "run",
    "calibrate": "check",
    "compare": "comparing",
    "infer": "kernels",
    "replay": "run",
    "simulate": "run",
}

__getattr__ = lazy(__name__, _HOMES)
