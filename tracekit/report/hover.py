"""What a page has to know of a picture to show values under the pointer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch
from numpy.typing import ArrayLike

from tracekit.plot import _style

__all__ = ["axes_of", "rows_of"]

#: Points of a curve that the page holds.
_MAX_POINTS = 300


def axes_of(figure: Figure, labels: Sequence[str], *, time: bool, percent: bool = True) -> str:
    """Describe the axes of a drawn figure.

    Parameters
    ----------
    figure
        A figure that was saved as SVG, so that its layout is known.
    labels
        Labels of the traces; curves are distinguished by the colours that these have.
    time
        The x axis is a time in ns.
    percent
        The y axis is a share.

    Returns
    -------
    str
        JSON: for each of the axes its box in the picture, its range, and its curves.
    """
    names = {look["color"]: label for label, look in _style.looks(labels).items()}
    found = []
    for ax in figure.axes:
        curves = _curves(ax, names)
        if curves:
            kind = {"time": time, "percent": percent, "log": ax.get_xscale() == "log"}
            found.append({"box": _box(figure, ax), "x": list(ax.get_xlim()), "curves": curves, **kind})
    return json.dumps(found, separators=(",", ":"), allow_nan=False)


def rows_of(figure: Figure, texts: Sequence[str]) -> str:
    """Describe a figure whose lines are rows, each with a text of its own."""
    if not texts:
        return "[]"
    found = {"box": _box(figure, figure.axes[0]), "rows": list(texts)}
    return json.dumps([found], separators=(",", ":"))


def _box(figure: Figure, ax: Axes) -> list[float]:
    """Left, top, right and bottom in points of the SVG."""
    width, height = figure.get_figwidth() * 72, figure.get_figheight() * 72
    place = ax.get_position()
    box = (place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height)
    return [round(float(v), 1) for v in box]


def _curves(ax: Axes, names: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in ax.lines:
        if isinstance(line, Line2D) and len(np.asarray(line.get_xdata())) > 2:
            found.append(_curve(names, line.get_color(), line.get_xdata(), line.get_ydata()))
    bars: dict[str, list[tuple[float, float]]] = {}
    for patch in ax.patches:
        if isinstance(patch, StepPatch) and not patch.get_fill():
            values, edges, _ = patch.get_data()
            found.append(_curve(names, patch.get_edgecolor(), edges[:-1], values))
        elif isinstance(patch, Rectangle):
            middle = patch.get_x() + patch.get_width() / 2
            bars.setdefault(to_hex(patch.get_facecolor()), []).append(
                (round(middle) - 0.5, patch.get_height())
            )
    for colour, points in bars.items():
        found.append(_curve(names, colour, *zip(*sorted(points), strict=True)))
    return found


def _curve(names: dict[str, str], colour: Any, x: ArrayLike, y: ArrayLike) -> dict[str, Any]:
    xs, ys = np.asarray(x, dtype=float), np.nan_to_num(np.asarray(y, dtype=float))
    if len(xs) > _MAX_POINTS:
        kept = np.unique(np.linspace(0, len(xs) - 1, _MAX_POINTS).astype(int))
        xs, ys = xs[kept], ys[kept]
    numbers = [[float(f"{v:.5g}") for v in values] for values in (xs, ys)]
    return {"name": names.get(to_hex(colour), ""), "x": numbers[0], "y": numbers[1]}
