"""What the shell offers after the tab key: files, policies and parameters, formats, recipes, topics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string
from click.types import StringParamType

from tracekit import registry

__all__ = ["FORMAT", "POLICY_NAME", "RECIPE", "SYSTEM", "Word", "attach"]


class Bash(BashComplete):
    """bash cuts words at ``:`` and ``=``, which stand in policies: `rr:quantum=10ms` is five words to it.

    So the line as it was typed is split here, and of each answer only what follows the last such
    sign is given back.
    """

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    response=$(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_BREAKS="$COMP_WORDBREAKS" \
%(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        elif [[ $type == plain ]]; then
            [[ $value == *: || $value == *= ]] && compopt -o nospace
            COMPREPLY+=("$value")
        fi
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Split the line; the word that is being typed may be empty."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        typed = (
            incomplete.partition("=")[2] if incomplete.startswith("-") and "=" in incomplete else incomplete
        )
        breaks = os.environ.get("COMP_BREAKS", "")
        self._cut = max((typed.rfind(c) + 1 for c in ":=" if c in breaks), default=0)
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Leave out what bash takes for words before the one that it completes."""
        return f"{item.type},{item.value[self._cut :]}"


add_completion_class(Bash)


def _starting(names: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name, help=text) for name, text in names if name.startswith(incomplete)]


class Word(StringParamType):
    """A text of which a function knows the beginnings; what is given is checked by the command itself."""

    def __init__(self, names: Callable[[click.Context, str], Iterable[tuple[str, str]]]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those of the texts that begin so."""
        return _starting(self._names(ctx, incomplete), incomplete)


class Place(StringParamType):
    """The name of a file or folder; the shell completes it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type=self._kind)]


def _policies(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Names of policies; after the colon parameters, and values that are words."""
    name, colon, rest = incomplete.partition(":")
    known = {p["name"]: p for p in registry.policies()}
    if not colon or name not in known:
        yield from ((p["name"], p["title"]) for p in known.values())
        return
    *before, last = rest.split(",")
    head = f"{name}:" + "".join(f"{part}," for part in before)
    given = {part.partition("=")[0] for part in before}
    key, equals, _ = last.partition("=")
    for param in known[name]["params"]:
        # Parameters that take one of some words name them as their unit: `on or off`.
        words = param["unit"].split(" or ")
        if not equals and param["name"] not in given:
            yield f"{head}{param['name']}=", param["doc"]
        elif equals and param["name"] == key and len(words) > 1:
            yield from ((f"{head}{key}={word}", "") for word in words)


def _recipes(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    from tracekit import recipes

    return ((r.name, r.title) for r in recipes.list())


def _systems(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    from tracekit import recipes

    return ((system, "") for system in dict.fromkeys(s for r in recipes.list() for s in r.systems))


FILE, FOLDER = Place("file"), Place("dir")
POLICY = Word(_policies)
POLICY_NAME = Word(lambda _, __: ((p["name"], p["title"]) for p in registry.policies()))
FORMAT = Word(lambda _, __: ((f["name"], f["title"]) for f in registry.formats()))
RECIPE, SYSTEM = Word(_recipes), Word(_systems)

BY_METAVAR: dict[str, StringParamType] = {
    "TRACE": FILE, "[TRACE]": FILE, "TRACE...": FILE, "[FILE]": FILE, "FILE": FILE, "DIR": FOLDER, "POLICY": POLICY
}  # fmt: skip


def attach(command: click.Command) -> None:
    """Let every parameter of a command, and of those below it, complete what its metavar says that it is."""
    for param in command.params:
        kind = BY_METAVAR.get(param.metavar or "")
        if kind is not None and param.type is click.STRING:
            param.type = kind
    if isinstance(command, click.Group):
        for below in command.commands.values():
            attach(below)
