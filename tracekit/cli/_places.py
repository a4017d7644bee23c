"""`--json [FILE]`, `--csv [FILE]`: whether the next word is the option's file or the command's argument."""

from __future__ import annotations

from collections.abc import Sequence

import click

__all__ = ["explicit"]

_FORMS = ("--json", "--csv")


def explicit(command: click.Command, context: click.Context, args: Sequence[str]) -> list[str]:
    """Write the place behind each `--json` and `--csv` out, as `--json=FILE` or `--json=-`.

    A word that ends in .json (.csv) is the file. Any other word is an argument of the command,
    unless the command has one too many of them then: `slices --json boot.dat` reads boot.dat,
    `slices boot.dat --json out` writes out.

    Parameters
    ----------
    command
        The command that gets the arguments.
    context
        Its parent's context.
    args
        What follows the command's name.

    Returns
    -------
    list of str
        The arguments for click's parser.
    """
    done: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*done, word, *rest]
        if word not in _FORMS or not _has(command, word):
            done.append(word)
            continue
        following = rest[0] if rest and not (rest[0].startswith("-") and rest[0] != "-") else None
        if following is not None and (
            following.lower().endswith(f".{word[2:]}")
            or _too_many(command, context, [*done, f"{word}=-", *rest])
        ):
            done.append(f"{word}={rest.pop(0)}")
        else:
            done.append(f"{word}=-")
    return done


def _has(command: click.Command, option: str) -> bool:
    return isinstance(command, click.Group) or any(option in p.opts for p in command.params)


def _too_many(command: click.Command, context: click.Context, args: list[str]) -> bool:
    """Whether arguments are left over that no parameter takes."""
    if isinstance(command, click.Group):
        return False
    trial = click.Context(command, parent=context, info_name=command.name)
    try:
        _, left, _ = command.make_parser(trial).parse_args(args)
    except click.UsageError:
        return False
    return bool(left)
