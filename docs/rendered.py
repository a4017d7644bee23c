"""Pages made from other parts of the project: recipes, changelog, notebooks, gallery of plots."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from tracekit import recipes

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"


def recipes_page() -> str:
    """The text of every recipe."""
    parts = ["# Recipes\n\nWhat `tracekit recipes NAME` prints. See [Capture a trace](../capture.md).\n"]
    for recipe in recipes.list():
        systems = recipe.systems if len(recipe.systems) > 1 else (None,)
        for system in systems:
            title = f"{recipe.name}" + (f" on {system}" if system else "")
            text = recipes.show(recipe.name, system).rstrip()
            parts.append(f"\n## {title}\n\n{recipe.title}\n\n````text\n{text}\n````\n")
    return "".join(parts)


def changelog_page() -> str:
    """The changelog as it is."""
    return (ROOT / "CHANGELOG.md").read_text()


def notebooks() -> list[Path]:
    """All notebooks, in order; those of the studies are last."""
    folder = ROOT / "notebooks"
    return [*sorted(folder.glob("*.ipynb")), *sorted((folder / "studies").glob("*.ipynb"))]


def title_of(notebook: dict[str, Any]) -> str:
    """The heading of a notebook."""
    text = "".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    return next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "Notebook")


def notebooks_page() -> str:
    """The list of notebooks."""
    rows = []
    for path in notebooks():
        notebook = json.loads(path.read_text())
        rows.append(f"* [{title_of(notebook)}](notebook-{path.stem}.md)\n")
    return "# Notebooks\n\nShort articles on real captures. The files are in `notebooks/`.\n\n" + "".join(
        rows
    )


def notebook_page(path: Path, run: bool) -> str:
    """A notebook as a page.

    Parameters
    ----------
    path
        The notebook.
    run
        Execute it, and show what it gives.
    """
    notebook = json.loads(path.read_text())
    if run:
        import nbformat
        from nbclient import NotebookClient

        opened = nbformat.reads(path.read_text(), as_version=4)
        NotebookClient(opened, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
        notebook = json.loads(nbformat.writes(opened))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            # Links among notebooks lead to their pages.
            parts.append(re.sub(r"\]\((?:\./)?([\w-]+)\.ipynb\)", r"](notebook-\1.md)", source))
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [_shown(output) for output in cell.get("outputs", ())]
    return "\n\n".join(p for p in parts if p) + "\n"


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="picture of the cell above" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        return "<div>" + "".join(data["text/html"]).replace("\n", " ") + "</div>"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def gallery_page(run: bool) -> str:
    """Every plot on the shipped capture, with how to read it."""
    import tracekit as tk
    from tracekit import analysis, plot

    made: dict[str, Any] = {}
    if run:
        trace = tk.read(DEMO)
        other = tk.replay(trace, "eevdf")
        both = {"recorded": trace, "eevdf": other}
        found = tk.compare(trace, ["eevdf", "cfs:wakeup_preemption=off"])
        made = {
            "predictions": plot.predictions(found.summary, trace.name),
            "histogram": plot.histogram(
                {k: analysis.slices.histogram(t, "group", 10) for k, t in both.items()}
            ),
            "cdf": plot.cdf({k: analysis.latency.cdf(t) for k, t in both.items()}, what="run delay"),
            "queue_distribution": plot.queue_distribution(
                {k: analysis.runqueue.distribution(t) for k, t in both.items()}
            ),
            "queue_over_time": plot.queue_over_time(
                {k: analysis.runqueue.over_time(t) for k, t in both.items()}
            ),
            "timeline": plot.timeline({k: t.slices for k, t in both.items()}),
        }
    parts = ["# Gallery\n\nEvery plot of `tracekit.plot`, drawn from the shipped capture.\n"]
    for name in ("predictions", "histogram", "cdf", "queue_distribution", "queue_over_time", "timeline"):
        picture = ""
        if name in made:
            data = base64.b64encode(made[name]._repr_png_()).decode()
            picture = f'<img alt="{name}" src="data:image/png;base64,{data}">\n\n'
        parts.append(f"\n## {name}\n\n{picture}{plot.how_to_read(getattr(plot, name))}\n")
    return "".join(parts)
