"""`tracekit infer`."""

from __future__ import annotations

import click

from tracekit.cli._gate import decided
from tracekit.cli._options import Input, input_options, output_options


@click.command(
    "infer",
    epilog="""\b
Examples:
  tracekit infer boot.dat
  tracekit infer boot.dat --policy eevdf:version=6.12
  tracekit infer boot.dat --json
""",
)
@input_options(filters=False)
@click.option(
    "--policy",
    metavar="POLICY",
    help="The policy whose parameters are wanted; by default what the kernel of TRACE uses, or "
    "what explains best a TRACE that names no kernel.",
)
@output_options(csv=False)
def command(source: Input, policy: str | None, as_json: bool) -> int:
    """Learn the scheduler's parameters and groups from a trace.

    Replays TRACE with many values of each parameter and prints which explain best what was
    recorded, all values that do about as well (the 90 % set), and how much no stock policy
    explains. Groups of tasks that share CPU time as one (sessions, containers) are printed where no
    machine.toml says them and what tasks got shows them. Exit status 1 when nothing can be said.
    """
    from dataclasses import asdict

    from tracekit.cli._output import about, emit_json, paragraph
    from tracekit.cli._replaying import caution, progress_bar
    from tracekit.whatif.learn import infer_parameters, lines

    trace = source.read()
    caution(trace, source.quiet)
    with progress_bar(f"replaying {trace.name}", trace, source.quiet) as progress:
        found = infer_parameters(trace, family=policy, progress=progress)
    status = decided(1 if found.refused else 0)
    facts = asdict(found)
    facts["rows"] = facts.pop("findings")
    if as_json and emit_json({"trace": about(trace), "stock": found.stock, **facts}):
        return status
    for line in lines(found):
        paragraph(line)
    return status
