"""`tracekit export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._options import Input, input_options, output_place
from tracekit.cli._replaying import asked, costs_together, progress_bar, replay_options, together

if TYPE_CHECKING:
    from tracekit.trace import Trace


@click.command(
    "export",
    epilog="""\b
Examples:
  tracekit export boot.dat --perfetto boot.pftrace
  tracekit export boot.dat --perfetto both.pftrace --replay cfs --replay rr
  tracekit export perf.data --perfetto a.pftrace --chrome-json a.json
  tracekit export boot.dat --lisa boot.lisa
""",
)
@input_options()
@click.option(
    "--perfetto", metavar="FILE", callback=output_place, help="Write a Perfetto trace, for ui.perfetto.dev."
)
@click.option(
    "--chrome-json",
    metavar="FILE",
    callback=output_place,
    help="Write Chrome JSON, for chrome://tracing and others.",
)
@click.option(
    "--lisa",
    metavar="DIR",
    callback=output_place,
    help="Write LISA's folder of Parquet files, one per Linux event.",
)
@click.option(
    "--replay",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="Add a replay under this policy, to see recorded and predicted schedules one above the other: machine 1, "
    "machine 2, ... in the order given. Not for --lisa. See `tracekit policies`.",
)
@replay_options
def command(
    source: Input,
    perfetto: str | None,
    chrome_json: str | None,
    lisa: str | None,
    policies: tuple[str, ...],
    **settings: Any,
) -> None:
    """Write a trace in other tools' formats.

    A file appears when it is complete.
    """
    from tracekit.registry import check_policy

    if not (perfetto or chrome_json or lisa):
        raise click.UsageError("nothing to write: give --perfetto, --chrome-json or --lisa")
    if policies and not (perfetto or chrome_json):
        raise click.UsageError(
            "--replay goes with --perfetto and --chrome-json; LISA's files hold one schedule"
        )
    for policy in policies:
        check_policy(policy)
    trace = source.whole.read()
    replays = _replays(source, trace, policies, settings)
    trace, *runs = source.of_replays(trace, *(run for _, run in replays))
    replays = [(policy, run) for (policy, _), run in zip(replays, runs, strict=True)]
    if perfetto:
        from tracekit.perfetto import write_perfetto

        done = write_perfetto(trace, perfetto, replays)
        _say(
            source, perfetto, f"{done.slices} slices, {done.wakings} wakeups, {done.counters} counter values"
        )
    if chrome_json:
        from tracekit.export import write_chrome_json

        _say(source, chrome_json, f"{write_chrome_json(trace, chrome_json, replays)} events")
    if lisa:
        from tracekit.export import write_lisa

        written = write_lisa(trace, lisa)
        _say(source, lisa, f"{sum(written.rows.values())} rows of {len(written.rows)} events")
        if written.left_out and not source.quiet:
            kinds = ", ".join(f"{n} {kind}" for kind, n in written.left_out.items())
            print(f"warning: records without a Linux event were left out: {kinds}", file=sys.stderr)


def _replays(
    source: Input, trace: Trace, policies: tuple[str, ...], settings: dict[str, Any]
) -> list[tuple[str, Trace]]:
    import tracekit as tk

    replays: list[tuple[str, Trace]] = []
    if not policies:
        return replays
    overrides, scenario = settings.pop("overrides"), settings.pop("scenario")
    settings["costs"] = costs_together(scenario, settings["costs"])
    _, loop = asked(policies, settings.pop("loop"), scenario)
    programs = tk.Programs(
        trace, loop, settings.pop("hz"), settings.pop("endless"), settings.pop("placement")
    )
    for policy in policies:
        with progress_bar(f"{policy} on {trace.name}", trace, source.quiet) as progress:
            run = programs.run(policy, progress=progress, scenario=together(scenario, overrides), **settings)
        source.warn(run)
        replays.append((policy, run))
    return replays


def _say(source: Input, path: str, what: str) -> None:
    from tracekit.units import format_size

    if sys.stderr.isatty() and not source.quiet:
        file = Path(path)
        size = f", {format_size(file.stat().st_size)}" if file.is_file() else ""
        click.echo(f"wrote {path}: {what}{size}", err=True)
