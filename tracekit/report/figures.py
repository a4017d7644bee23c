"""Figures as parts of a page: SVG without identifiers, styles or addresses that leak into it."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

from markupsafe import Markup
from matplotlib.figure import Figure

from tracekit.plot import _style, style

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
#: Colours of figures, which the page's style sheet redefines in the dark.
_VARIABLES = {
    _style.INK: "ink",
    _style.MUTED: "muted",
    _style.GRID: "grid",
    _style.PAPER: "paper",
    **{colour: f"c{i}" for i, colour in enumerate(_style.COLOURS)},
}
_COLOUR = re.compile("|".join(_VARIABLES))
_DECIMALS = re.compile(r"(\d+\.\d{2})\d+")


def inline_svg(figure: Figure, key: str, label: str) -> Markup:
    """Turn a figure into an SVG element that can stand in a page among others.

    Parameters
    ----------
    figure
        The figure.
    key
        Prefix of its identifiers, unique within the page.
    label
        What it shows, for those who cannot see it.

    Returns
    -------
    markupsafe.Markup
        The `svg` element. Text of the figure is escaped. It refers to nothing outside of itself,
        its colours are variables (`var(--ink)`), and the same figure gives the same text.
    """
    out = io.StringIO()
    with style():
        figure.savefig(
            out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    root = ET.fromstring(out.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    names: dict[str, str] = {}
    for element in root.iter():
        if "id" in element.attrib:
            names[element.attrib["id"]] = f"{key}-{len(names)}"
    for element in root.iter():
        _rewrite(element, names)
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    root.set("style", f"max-width: {figure.get_figwidth() * 108:.0f}px")
    root.set("role", "img")
    root.set("aria-label", label)
    return Markup(ET.tostring(root, encoding="unicode"))


def _rewrite(element: ET.Element, names: dict[str, str]) -> None:
    """Bring one element into HTML's SVG: no name spaces, own identifiers, colours as variables."""
    element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
    element.tail = None if not (element.tail or "").strip() else element.tail
    if element.tag not in ("text", "tspan", "title"):
        element.text = None
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, names[value])
        elif name == _LINK:
            del element.attrib[name]
            element.set("href", "#" + names[value.removeprefix("#")])
        elif "url(#" in value:
            element.set(name, re.sub(r"url\(#([^)]*)\)", lambda m: f"url(#{names[m[1]]})", value))
        elif name == "style":
            element.set(name, _COLOUR.sub(lambda m: f"var(--{_VARIABLES[m[0]]})", value))
        elif name in ("d", "transform", "x", "y"):
            element.set(name, _DECIMALS.sub(r"\1", " ".join(value.split())))
    # Identifiers that nothing refers to say what matplotlib calls the part: of no use in a page.
    if element.tag == "g":
        element.attrib.pop("id", None)
