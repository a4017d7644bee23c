"""`tracekit help`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

import click

from tracekit.cli import _complete
from tracekit.near import did_you_mean

__all__ = ["TOPICS", "about", "command", "topic"]

#: Topics, in the order in which they are listed; the first line of each text says what it is about.
TOPICS = (
    "formats",
    "filters",
    "metrics",
    "policies",
    "loops",
    "scenarios",
    "gate",
    "uncertainty",
    "calibration",
    "perfetto",
    "python",
    "extras",
    "recipes",
    "output",
)


def topic(name: str) -> str:
    """Text of a topic, in Markdown."""
    return (resources.files("tracekit.cli") / "topics" / f"{name}.md").read_text(encoding="utf-8")


def parts(text: str) -> Iterator[tuple[str, int | None]]:
    """Split a topic into paragraphs, items of lists and lines as they are.

    Each with how far its further lines are indented; None for a line as it is: an example, or an empty one.
    """
    held, hang = "", 0
    for line in text.splitlines():
        item = re.match(r"(\* |\d+\. )", line)
        plain = not line or line.startswith("    ")
        if held and (plain or item):
            yield held, hang
            held = ""
        if plain:
            yield line, None
        elif held:
            held += " " + line.strip()
        else:
            held, hang = line, len(item[0]) if item else 0
    if held:
        yield held, hang


def about(name: str) -> str:
    """What a topic is about, in a line."""
    return topic(name).partition("\n")[0].partition(": ")[2]


def _completions(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Topics, and commands that are no topics."""
    yield from ((name, about(name)) for name in TOPICS)
    group = context.find_root().command
    if isinstance(group, click.Group):
        yield from (
            (name, c.get_short_help_str()) for name, c in group.commands.items() if name not in TOPICS
        )


@click.command(
    "help",
    epilog="""\b
Examples:
  tracekit help topics
  tracekit help policies
  tracekit help compare           the same as tracekit compare --help
""",
)
@click.argument("name", metavar="[TOPIC]", required=False, type=_complete.Word(_completions))
@click.pass_context
def command(context: click.Context, name: str | None) -> None:
    """Explain a topic or a command.

    Without TOPIC, or with `topics`, list the topics.
    """
    from tracekit.cli._output import paragraph
    from tracekit.cli._table import terminal_width

    root = context.find_root()
    group = root.command
    commands = group.commands if isinstance(group, click.Group) else {}
    if name is None or name == "topics":
        paragraph("Topics, each for `tracekit help TOPIC`:")
        for one in TOPICS:
            paragraph(f"  {one:<12} {about(one)}")
        paragraph("")
        paragraph(f"Commands, each with --help: {', '.join(commands)}")
    elif name in TOPICS:
        text = topic(name).removeprefix("# ")
        if terminal_width() is None:
            click.echo(text, nl=False)
            return
        for part, hang in parts(text):
            if hang is None:
                print(part)
            else:
                paragraph(part, hang)
    elif name in commands:
        found = commands[name]
        inner = click.Context(found, info_name=name, parent=root, **found.context_settings)
        click.echo(found.get_help(inner))
    else:
        raise click.BadParameter(
            f"no topic or command is called {name!r}{did_you_mean(name, [*TOPICS, *commands], '.')} "
            f"Topics are {', '.join(TOPICS)}",
            param_hint="TOPIC",
        )
