"""How to capture a scheduler trace on each operating system: commands and scripts, ready to run.

>>> from tracekit import recipes
>>> [r.name for r in recipes.list()][:2]
['perf', 'trace-cmd']
>>> print(recipes.show("dtrace", os="freebsd").splitlines()[0])
#!/usr/sbin/dtrace -s

Each recipe says which metrics need which events. The DTrace scripts print tracekit's own line protocol, which
``dtrace-tkd`` reads exactly; the others produce what the named tool always produces.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from importlib import resources

from tracekit.near import did_you_mean

__all__ = ["Recipe", "list", "show"]


@dataclass(frozen=True)
class Recipe:
    """A way to capture a trace.

    Attributes
    ----------
    name : str
        Name, as :func:`show` takes it.
    title : str
        A line about it.
    format : str
        Format of what it records, as ``tracekit formats`` lists it.
    files : dict of str to str
        File of the recipe by operating system.
    """

    name: str
    title: str
    format: str
    files: dict[str, str]

    @property
    def systems(self) -> tuple[str, ...]:
        """Operating systems for which there is a recipe."""
        return tuple(self.files)


#: The script that writes down the machine, and what it gives.
MACHINE, MACHINE_FORMAT = "machine.sh", "machine.toml"

RECIPES = (
    Recipe("perf", "perf record with all scheduler events", "perf-data", {"linux": "perf.txt"}),
    Recipe(
        "trace-cmd", "trace-cmd record with all scheduler events", "trace-dat", {"linux": "trace-cmd.txt"}
    ),
    Recipe("tracefs", "the kernel's own files, no tool needed", "ftrace-text", {"linux": "tracefs.sh"}),
    Recipe("machine", "what the machine is, beside any Linux trace", MACHINE_FORMAT, {"linux": MACHINE}),
    Recipe("lttng", "LTTng kernel tracing, printed by babeltrace2", "lttng-text", {"linux": "lttng.txt"}),
    Recipe("android", "atrace over adb", "ftrace-text", {"android": "android.txt"}),
    Recipe(
        "dtrace",
        "DTrace script with tracekit's line protocol",
        "dtrace-tkd",
        {"illumos": "tkd-illumos.d", "freebsd": "tkd-freebsd.d", "macos": "tkd-macos.d"},
    ),
    Recipe("ktr", "kernel trace buffer with exact queue lengths", "ktr", {"freebsd": "ktr.txt"}),
    Recipe("aix", "AIX trace, formatted by trcrpt", "trcrpt", {"aix": "aix.txt"}),
)

#: Other names of operating systems.
ALIASES = {"solaris": "illumos", "darwin": "macos", "osx": "macos"}


def list() -> builtins.list[Recipe]:
    """Every recipe.

    Returns
    -------
    list of Recipe
        In the order in which ``tracekit recipes`` shows them.
    """
    return [*RECIPES]


def show(name: str, os: str | None = None) -> str:
    """Return the text of a recipe: commands with comments, or a script.

    Parameters
    ----------
    name : str
        Name of a recipe, see :func:`list`.
    os : str, optional
        Operating system, for recipes that differ: ``illumos``, ``freebsd`` or ``macos`` for ``dtrace``.

    Returns
    -------
    str
        The text, ending in a line end.

    Raises
    ------
    ValueError
        If there is no such recipe, none for that system, or the system must be named.
    """
    found = {r.name: r for r in RECIPES}.get(name)
    if found is None:
        names = [r.name for r in RECIPES]
        raise ValueError(
            f"no recipe is called {name!r}{did_you_mean(name, names, '.')} There are {', '.join(names)}"
        )
    system = ALIASES.get(os.lower(), os.lower()) if os else None
    if system is None and len(found.files) > 1:
        raise ValueError(
            f"recipe {name!r} differs by operating system; name one of {', '.join(found.systems)}"
        )
    file = found.files[found.systems[0]] if system is None else found.files.get(system)
    if file is None:
        raise ValueError(f"no recipe {name!r} for {os!r}; there is one for {', '.join(found.systems)}")
    # A recipe that runs machine.sh brings it along: one text to paste, nothing else to fetch.
    lines = _file(file).splitlines(keepends=True)
    return "".join(_embedded(line.removeprefix(_HERE)) if line.startswith(_HERE) else line for line in lines)


#: Stands in a recipe, with the name of the trace, where the script is written out.
_HERE = "#@machine.sh "


def _embedded(name: str) -> str:
    """The lines that run machine.sh for the trace `name`."""
    return f"sh -s {name.strip()} <<'END_OF_MACHINE'\n{_file(MACHINE)}END_OF_MACHINE\n"


def _file(name: str) -> str:
    return (resources.files(__name__) / "files" / name).read_text(encoding="utf-8")
