"""Finds the ``machine.toml`` beside a trace, and holds it against what the trace says itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import ParseError

if TYPE_CHECKING:
    from tracekit.machine import Machine
    from tracekit.trace import Trace

__all__ = ["Beside", "beside", "check", "machine_metadata"]

#: What `tracekit.read` takes: a path, False for none, or None to look beside the trace.
Beside = str | os.PathLike[str] | bool | None

_ENDING = ".machine.toml"


def beside(source: str | bytes, given: Beside = None) -> tuple[Machine, str] | None:
    """The machine that was written down beside a trace.

    Parameters
    ----------
    source
        Path of the trace, ``-``, or its bytes.
    given
        A path; False or ``none`` for none; None or True to look beside `source`:
        ``trace.dat.machine.toml``, then ``trace.machine.toml``.

    Returns
    -------
    tuple of Machine and str, or None
        The machine and the path of its file; None when there is none.

    Raises
    ------
    ParseError
        When the file cannot be read, or is wrong, or of another version; it names the line.
    """
    path = _place(source, given)
    if path is None:
        return None
    try:
        # The name of a task is whatever bytes it chose.
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise ParseError(f"{path}: {error.strerror or error}", "machine", "io") from error
    from tracekit.machine import parse_machine

    return parse_machine(text, str(path)), str(path)


def _place(source: str | bytes, given: Beside) -> Path | None:
    if given is False or given == "none":
        return None
    if given is not None and given is not True:
        return Path(given)
    if isinstance(source, bytes) or source == "-":
        return None
    # A trace may be a folder.
    path = Path(source)
    names = [f"{path}{_ENDING}"]
    while path.suffix:
        path = path.with_suffix("")
        names.append(f"{path}{_ENDING}")
    return next((Path(n) for n in names if Path(n).is_file()), None)


def machine_metadata(metadata: Mapping[str, str], found: tuple[Machine, str] | None) -> dict[str, str]:
    """Metadata of a trace, and what its machine adds.

    Parameters
    ----------
    metadata
        What the trace says.
    found
        What `beside` found.

    Returns
    -------
    dict of str to str
        With ``machine``, the text of the file, and ``os``, ``kernel`` and ``arch`` where the trace
        does not say them.

    Raises
    ------
    ParseError
        When the trace names another kernel than the file: the file is of another machine, or old.
    """
    known = dict(metadata)
    if found is None:
        return known
    machine, path = found
    release = known.get("kernel", "").split()
    if release and machine.release is not None and release[0] != machine.release:
        _other(path, machine, "release", f"kernel {machine.release}", f"kernel {release[0]}")
    says = {"os": machine.os, "kernel": machine.release, "arch": machine.arch}
    return {k: v for k, v in says.items() if v is not None} | known | {"machine": machine.text}


def check(trace: Trace, found: tuple[Machine, str] | None) -> None:
    """Refuse a machine that has not the CPUs of the trace.

    Parameters
    ----------
    trace
        The trace.
    found
        What `beside` found.

    Raises
    ------
    ParseError
        When a record of the trace is from a CPU that the file does not name.
    """
    if found is None:
        return
    machine, path = found
    known = set(machine.cpus["cpu"].to_list())
    more = sorted(set(trace.cpus["cpu"].drop_nulls().to_list()) - known)
    if known and more:
        _other(path, machine, "cpus", f"CPUs {sorted(known)}", f"records of CPU {more[0]}")


def _other(path: str, machine: Machine, key: str, says: str, trace: str) -> None:
    line = machine.line_of(key)
    raise ParseError(
        f"{path}, line {line}: expected the machine of this trace, which has {trace}; found {says}. It is old or of another "
        "machine: remove it, or leave it out (machine=False, --machine none)",
        "machine",
        "machine",
        line=line,
    )
