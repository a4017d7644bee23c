"""Write the pages under docs/reference/ from the registries, so that they cannot disagree with the code.

Run by ``make docs``; ``python docs/generate.py --check`` only tells whether a page is out of date
(exit status 1).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import rendered

from tracekit import _core, registry
from tracekit.cli import main as cli
from tracekit.cli.help import TOPICS, topic
from tracekit.registry import attributes

HERE = Path(__file__).parent
NOTICE = "<!-- written by docs/generate.py from the registries: change those, not this page -->\n\n"


def cell(text: object) -> str:
    """Text as it may stand in a Markdown table; links are told by the code that they begin with."""
    plain = str(text).strip().replace("|", "\\|").replace("\n", " ")
    return plain if plain.startswith("[`") else plain.replace("[", "\\[")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def schema_page() -> str:
    """Every table with every column, then metadata keys and vocabularies."""
    parts = [
        NOTICE,
        "# Tables and columns\n\nTimes are int64 nanoseconds. NULL means that the source did not say.\n",
    ]
    for t in _core.tables():
        rows = [(f"`{c['name']}`", c["type"], c["null"] or "never", c["doc"]) for c in t["columns"]]
        parts.append(
            f"\n## {t['name']}\n\n{t['doc'].strip()}\n\n{table(('column', 'type', 'null when', 'meaning'), rows)}"
        )
    for name, title in (("kinds", "Kinds of events"), ("states", "States")):
        rows = [(f"`{k['name']}`", k["doc"]) for k in _core.vocabularies()[name]]
        parts.append(f"\n## {title}\n\n{table((name[:-1], 'meaning'), rows)}")
    for name, title in (
        ("irq_flags", "Bits of irq_flags"),
        ("quality", "Bits of quality"),
        ("flags", "Bits of flags"),
    ):
        rows = [(k["bit"], f"`{k['name']}`", k["doc"]) for k in _core.vocabularies()[name]]
        parts.append(f"\n## {title}\n\n{table(('bit', 'name', 'meaning'), rows)}")
    keys = [(f"`{k['name']}`", k["doc"]) for k in _core.metadata_keys()]
    parts.append(
        "\n## Metadata\n\nString pairs in the Arrow schema and the Parquet footer.\n\n"
        + table(("key", "holds"), keys)
    )
    return "".join(parts)


def diagnostics_page() -> str:
    """Every diagnostic code."""
    rows = [(f"`{c['code']}`", c["severity"], c["doc"]) for c in _core.diagnostic_codes()]
    return (
        NOTICE
        + "# Diagnostics\n\nEvery record that was skipped, repaired, inferred or lost becomes a row of `trace.diagnostics`.\n\n"
        + table(("code", "severity", "meaning"), rows)
    )


def formats_page() -> str:
    """Every format with its card."""
    formats = registry.formats()
    rows = [
        (
            f"[`{f['name']}`](#{f['name']})",
            f["title"],
            f["resolution"],
            f["confidence"],
            "yes" if f["streams"] else "no",
        )
        for f in formats
    ]
    parts = [
        NOTICE,
        "# Formats\n\nThe format is recognised by the first bytes, never by the file name; gzip, zstd and xz wrappers are read through.\n\n",
        table(("format", "what it is", "resolution", "verified on", "streams"), rows),
    ]
    marks = {True: "yes", False: ""}
    filled = [
        (f"[`{f['name']}`](#{f['name']})", f["kinds"], *(marks[v] for v in registry.fills(f).values()))
        for f in formats
    ]
    parts.append(
        "\n## What each fills\n\nThe card of a format says under which condition.\n\n"
        + table(("format", "kinds of records", *registry.FILLS), filled)
    )
    for f in formats:
        card = [
            (title, f[key])
            for key, title in (
                ("produced_by", "produced by"),
                ("kinds", "kinds of records"),
                ("provides", "provides"),
                ("resolution", "time resolution"),
                ("clock", "clock"),
                ("confidence", "verified on"),
                ("notes", "notes"),
            )
            if f[key]
        ]
        parts.append(f"\n## {f['name']}\n\n{f['title']}\n\n{table(('', ''), card)}")
    return "".join(parts)


def differential() -> str:
    """What `make differential` measured last: which schedules are equal to those of independent models."""
    rows = json.loads((HERE / "differential.json").read_text())
    held = {row["policy"].split(":")[0] for row in rows}
    others = [f"`{p['name']}`" for p in _core.policies() if p["name"] not in held]
    missing = f" No model stands for {', '.join(others)}." if others else ""
    return (
        "\n## Held against independent models\n\nModels that share nothing with tracekit, written from the source that"
        " is named, run random workloads, on one CPU where no number is given. Whole schedules are compared to the"
        " nanosecond. `make differential`"
        f" measures this table; a few workloads of each row run with the tests.{missing}\n\n"
        + table(
            ("policy", "model written from", "workloads", "equal"),
            [
                (f"`{row['policy']}` ({row['name']})", row["source"], row["workloads"], row["equal"])
                for row in rows
            ],
        )
    )


def policies_page() -> str:
    """Every policy with its idea, formula, parameters and sources."""
    policies = _core.policies()
    parts = [
        NOTICE,
        "# Policies\n\nA policy is written `name:param=value,param=value`, times with a unit (`ms`, `us`, `ns`, `s`).\n\n",
        table(("policy", "idea"), [(f"[`{p['name']}`](#{p['name']})", p["title"]) for p in policies]),
    ]
    for p in policies:
        parts.append(f"\n## {p['name']}\n\n{p['title']}\n")
        if p["aliases"]:
            parts.append(f"\n**Also called.** {', '.join(p['aliases'])}\n")
        for key, title in (
            ("idea", "Idea"),
            ("formula", "Formula"),
            ("tie_break", "Ties"),
            ("not_modelled", "Not modelled"),
        ):
            if p[key]:
                parts.append(f"\n**{title}.** {p[key].strip()}\n")
        looked_at = ", ".join(f"`{a}`" for a in attributes(p)).replace(
            " (under fifo and rr)`", "` (under fifo and rr)"
        )
        parts.append(f"\n**Attributes of tasks that it looks at.** {looked_at}\n")
        if p["params"]:
            rows = [(f"`{x['name']}`", x["unit"], x["default"], x["range"], x["doc"]) for x in p["params"]]
            parts.append("\n" + table(("parameter", "unit", "default", "range", "meaning"), rows))
        parts.append(f"\n**Sources.** {p['sources'].strip()}\n")
    parts.append(differential())
    costs = [(f"`{c['name']}`", c["doc"]) for c in _core.costs()]
    parts.append(
        "\n## Costs\n\nWhat scheduling itself takes, apart from any policy: `--cost KEY=TIME`, the table `[cost]` of a scenario file, `costs=` in"
        " Python, the line `costs:` of a workload. Replays of traces take what was measured in the trace where nothing is given.\n\n"
        + table(("cost", "of what"), costs)
    )
    return "".join(parts)


def commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Help texts of a command and all below it."""
    context = click.Context(command, info_name=path, terminal_width=100, max_content_width=100)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            if sub is not None and not sub.hidden:
                yield from commands(sub, f"{path} {name}")


def cli_page() -> str:
    """The help text of every command."""
    parts = [NOTICE, "# Command line\n"]
    for path, text in commands(cli, "tracekit"):
        parts.append(f"\n## {path}\n\n```text\n{text.rstrip()}\n```\n")
    return "".join(parts)


def topics_page() -> str:
    """The help topics, as `tracekit help TOPIC` prints them."""
    texts = [topic(name).replace("# ", "## ", 1) for name in TOPICS]
    return NOTICE + "# Help topics\n\nEach is what `tracekit help TOPIC` prints.\n\n" + "\n".join(texts)


PAGES = {
    "schema.md": schema_page,
    "diagnostics.md": diagnostics_page,
    "formats.md": formats_page,
    "policies.md": policies_page,
    "cli.md": cli_page,
    "topics.md": topics_page,
    "recipes.md": rendered.recipes_page,
    "changelog.md": rendered.changelog_page,
    "notebooks.md": rendered.notebooks_page,
}


def main() -> int:
    """Write or check all pages; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a page is out of date")
    parser.add_argument(
        "--run", action="store_true", help="run notebooks and draw the gallery, which takes minutes"
    )
    asked = parser.parse_args()
    check = asked.check
    stale = []
    pages = dict(PAGES)
    if not check:
        # What is run here depends on nothing but the project, but takes too long to be made twice.
        pages["gallery.md"] = partial(rendered.gallery_page, asked.run)
        for path in rendered.notebooks():
            pages[f"notebook-{path.stem}.md"] = partial(rendered.notebook_page, path, asked.run)
    for name, make in pages.items():
        path, text = HERE / "reference" / name, make()
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(str(path.relative_to(HERE.parent)))
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    if stale:
        print(f"out of date: {', '.join(stale)}; run python docs/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
