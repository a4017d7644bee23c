"""`tracekit help`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import click

from tracekit.cli import _complete

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
        click.echo(topic(name).removeprefix("# "), nl=False)
    elif name in commands:
        found = commands[name]
        inner = click.Context(found, info_name=name, parent=root, **found.context_settings)
        click.echo(found.get_help(inner))
    else:
        raise click.BadParameter(
            f"no topic or command is called {name!r}; topics are {', '.join(TOPICS)}", param_hint="TOPIC"
        )
