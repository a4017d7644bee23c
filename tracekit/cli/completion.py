"""`tracekit completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tracekit.cli._choice import Choice

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog="""\b
Examples:
  eval "$(tracekit completion bash)"       in ~/.bashrc (bash 4.4 or later)
  eval "$(tracekit completion zsh)"        in ~/.zshrc, after compinit
  tracekit completion fish > ~/.config/fish/completions/tracekit.fish
""",
)
@click.argument("shell", type=Choice(SHELLS), metavar=f"[{'|'.join(SHELLS)}]")
def command(shell: str) -> None:
    """Print a script that completes words of tracekit in a shell.

    Completes commands, options, files, policies with their parameters, formats, recipes and help topics.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click completes nothing in {shell}")
    program = click.get_current_context().find_root().command
    # Not `source`: it asks the shell for its version, which need not be installed where the script is made.
    made = kind(program, {}, "tracekit", "_TRACEKIT_COMPLETE")
    click.echo(made.source_template % made.source_vars())
