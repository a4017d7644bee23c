"""`tracekit generate`."""

from __future__ import annotations

import sys

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import Input, input_options, output_place

#: `tracekit.whatif.generating.TARGETS`, which is not imported here to keep help quick.
TARGETS = ("ftrace", "perf-script", "lttng", "dtrace", "ktr", "trcrpt", "parquet", "workload", "rt-app")


@click.command(
    "generate",
    epilog="""\b
Examples:
  tracekit generate pool.wl -o pool.txt --as ftrace
  tracekit generate pool.wl -o pool.trc --as trcrpt --policy aix
  tracekit generate boot.dat -o boot.json --as rt-app   run it again elsewhere
  tracekit generate boot.dat -o boot.wl --as workload   its programs, as text
""",
)
@input_options()
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    callback=output_place,
    help="Where to; - for standard output.",
)
@click.option("--as", "kind", required=True, type=Choice(TARGETS), help="What to write.")
@click.option(
    "--policy",
    metavar="POLICY",
    help="Write the schedule under this policy in place of the text's own, or of the recorded one.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Draw the random times of a workload text with this seed."
)
def command(source: Input, output: str, kind: str, policy: str | None, seed: int | None) -> None:
    """Write a schedule as a tracer prints it, or its program for another machine.

    TRACE is a workload text or a trace. ftrace, perf-script, lttng, dtrace, ktr and trcrpt are text
    formats that tracekit reads; reading the file back gives the same schedule, as far as the format
    can hold it. workload and rt-app are what the tasks do, free of when they did it.
    """
    import tracekit as tk
    from tracekit.cli._output import printable
    from tracekit.export.layouts import LAYOUTS
    from tracekit.registry import check_policy
    from tracekit.units import format_count, format_size

    if policy is not None:
        check_policy(policy)
    done = tk.generate(source.read(), output, kind, policy=policy, seed=seed)
    if source.quiet:
        return
    if done.left_out:
        named = ", ".join(f"{format_count(n)} {what}" for what, n in done.left_out.items())
        click.echo(f"warning: {kind} has no place for: {printable(named)}", err=True)
    if sys.stderr.isatty():
        click.echo(f"wrote {output}: {format_count(done.lines)} lines, {format_size(done.size)}", err=True)
        if kind in LAYOUTS:
            click.echo(f"{kind} cannot hold {LAYOUTS[kind].cannot}", err=True)
