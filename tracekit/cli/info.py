"""`tracekit info`."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._options import Input, input_options, output_options
from tracekit.units import format_count, format_cpus, format_moment, format_ns, format_size

if TYPE_CHECKING:
    from tracekit.machine import Machine
    from tracekit.trace import Trace

#: CPUs and cgroups of the machine that the text lists.
MACHINE_ROWS = 32

TASK_COLUMNS = ["comm", "tid", "pid", "run_ns", "nr_slices", "nr_involuntary", "nr_voluntary"]
#: What a filter adds to the options that were given.
OF_FILTERS = ("left_out", "span", "tids")
CPU_COLUMNS = ["cpu", "nr_events", "nr_switches", "nr_lost", "busy_ns", "idle_ns", "unknown_ns"]


@click.command(
    "info",
    epilog="""\b
Examples:
  tracekit info boot.dat
  tracekit info boot.dat --from 1s --to 2s --top 5
  tracekit info boot.dat --json | jq .metadata
""",
)
@input_options()
@click.option(
    "--top", type=click.IntRange(min=0), default=10, show_default=True, help="How many tasks to list."
)
@click.option("-v", "--verbose", is_flag=True, help="Show all metadata as they are.")
@output_options(csv=False)
def command(source: Input, top: int, verbose: bool, as_json: bool) -> None:
    """Show what a trace is, and what was lost.

    Where it comes from, what was skipped or inferred, its records by kind, its CPUs, its busiest tasks.
    """
    from tracekit.cli._output import emit_json
    from tracekit.io.one_pass import HEAD_EVENTS

    # Warnings are part of the output here, with all details.
    known = source.survey(head=HEAD_EVENTS)
    trace = source.narrow(_read(source)) if known is None else known
    if as_json:
        emit_json(_facts(trace, top))
    else:
        _print(trace, top, verbose)


def _read(source: Input) -> Trace:
    from tracekit.io import read

    return read(source.path, source.format, progress=not source.quiet, cache=None, **source.options)


def _not_recorded(trace: Trace) -> str | None:
    """What the trace does not say of its wakeups; of a large trace, by its first events."""
    from tracekit.io.one_pass import HEAD_EVENTS, Survey
    from tracekit.whatif.contexts import recognise

    if not isinstance(trace, Survey):
        return recognise(trace).sentence()
    said = recognise(trace.head).sentence()
    return said and f"{said} (counted in the first {format_count(HEAD_EVENTS)} records)"


def _part(trace: Trace) -> str | None:
    """What the recording is of, where it is not of everything."""
    from tracekit.whatif.recorded import part

    found = part(trace)
    return None if found is None else f"{found.sentence}. To have the rest, {found.advice}"


def _tasks(trace: Trace, top: int) -> list[dict[str, Any]]:
    import polars as pl

    tasks = trace.tasks.filter(~pl.col("is_idle")).sort("run_ns", "utid", descending=[True, False])
    if "tasks.recorded" in trace.metadata:
        # Of most slices nobody recorded when they began: what ended them is counted, their time is not known.
        ends = pl.col("nr_involuntary") + pl.col("nr_voluntary")
        known = (pl.col("nr_slices") > 0) & (pl.col("nr_slices") >= ends)
        tasks = tasks.with_columns(pl.when(known).then(pl.col("run_ns")).alias("run_ns"))
        order = [pl.col("run_ns"), ends]
        tasks = tasks.sort(order, descending=True, nulls_last=True, maintain_order=True)
    return tasks.head(top).select(TASK_COLUMNS).to_dicts()


def _facts(trace: Trace, top: int) -> dict[str, Any]:
    from tracekit.cli._output import about

    return {
        **about(trace),
        "machine": None if trace.machine is None else _machine(trace.machine),
        "recorded_part": _part(trace),
        "causes": trace.causes().to_dicts(),
        "not_recorded": _not_recorded(trace),
        "diagnostics": trace.diagnostics.to_dicts(),
        "losses": trace.losses.to_dicts(),
        "what_holds": _what_holds(trace),
        "rows": trace.counts,
        "kinds": trace.kinds.to_dicts(),
        "cpus": trace.cpus.to_dicts(),
        "tasks": _tasks(trace, top),
    }


def _machine(machine: Machine) -> dict[str, Any]:
    """What the machine's file says, for JSON."""
    facts = {f.name: getattr(machine, f.name) for f in fields(machine) if f.name != "text"}
    tables = {name: facts.pop(name).to_dicts() for name in ("cpus", "cgroups", "tasks")}
    written = facts.pop("written")
    return {"written": None if written is None else written.isoformat(), **facts, **tables}


def _print_machine(machine: Machine) -> None:
    """What the machine's file says, shortly."""
    from tracekit.cli._output import paragraph, table

    bound = len(machine.affinities())
    print()
    paragraph(f"The machine beside the trace{f', written {machine.written}' if machine.written else ''}:")
    hz = "not known" if machine.hz is None else f"{machine.hz} ({machine.hz_from or 'given'})"
    kernel = " ".join(filter(None, (machine.os, machine.release, machine.arch)))
    off = sorted(f"NO_{k}" for k, on in machine.features.items() if not on)
    for name, value in {
        "kernel": f"{kernel}, preemption {machine.preempt or 'not known'}",
        "HZ": hz,
        "features": " ".join(sorted(k for k, on in machine.features.items() if on) + off) or "not known",
        "tunables": ", ".join(f"{k} {v}" for k, v in machine.tunables.items()) or "not known",
        "arguments": machine.arguments,
        "tasks": f"{machine.tasks.height}, {bound} of them bound to some of the CPUs",
    }.items():
        if value:
            paragraph(f"  {name:<22}{value}", hang=22)
    for what in machine.unread:
        paragraph(f"  {'not read':<22}{what}", hang=22)
    for frame in (machine.cpus, machine.cgroups):
        if frame.height:
            rows = [{k: _shown(v) for k, v in r.items()} for r in frame.head(MACHINE_ROWS).to_dicts()]
            table(rows, [c for c in frame.columns if frame[c].null_count() < frame.height])
            if frame.height > MACHINE_ROWS:
                paragraph(f"  and {frame.height - MACHINE_ROWS} more; --json has all")


def _shown(value: Any) -> Any:
    """A list of CPUs as the kernel prints it."""
    return format_cpus(value) if isinstance(value, list) else value


def _print_causes(trace: Trace) -> None:
    """What was lost, damaged, inferred or not recorded, by cause."""
    from tracekit.cli._output import paragraph

    causes = trace.causes().to_dicts()
    if causes:
        print()
        paragraph("Lost, damaged or inferred:")
    for cause in causes:
        severity = "" if cause["severity"] == "info" else f" ({cause['severity']})"
        more = f", and {format_count(cause['messages'] - 1)} like it" if cause["messages"] > 1 else ""
        paragraph(f"  {format_count(cause['count'])} x {cause['code']}{severity}: {cause['message']}{more}")
        if extent := _extent(cause):
            paragraph(f"      {extent}")
        if cause["advice"]:
            paragraph(f"      {cause['advice']}")
    if said := _not_recorded(trace):
        print()
        paragraph("Not recorded:")
        paragraph(f"  {said}")
    print()


def _what_holds(trace: Trace) -> list[str]:
    """What can still be trusted where records were lost."""
    import polars as pl

    from tracekit.explain import what_holds
    from tracekit.io.one_pass import Survey

    missing = trace.missing()
    if missing.whole or not trace.counts["slices"]:
        return []
    if not isinstance(trace, Survey):
        return what_holds(missing, trace.bounds("all"))
    if missing.refused is not None:
        return what_holds(missing, pl.DataFrame())
    return ["bounds under losses are given for a part of a trace this large: choose it with --from and --to"]


def _print_what_holds(trace: Trace) -> None:
    """The same as text."""
    from tracekit.cli._output import paragraph

    if sentences := _what_holds(trace):
        paragraph("What can still be trusted, of all tasks together:")
        for sentence in sentences:
            paragraph(f"  {sentence}")
        print()


def _extent(cause: dict[str, Any]) -> str:
    """How much of the trace a cause touches, and from when to when, as `--from` takes it."""
    parts = []
    if cause["time_share"] is not None:
        parts.append(f"{100 * cause['time_share']:.3g} % of the CPUs' time")
    if cause["record_share"] is not None and cause["severity"] != "info":
        parts.append(f"{100 * cause['record_share']:.3g} % of the records")
    first, last = cause["first_ts_ns"], cause["last_ts_ns"]
    if first is not None:
        until = "" if last is None or last == first else f" to {format_moment(last)}"
        parts.append(
            f"{'from' if until else 'first at' if cause['count'] > 1 else 'at'} {format_moment(first)}{until}"
        )
    elif (line := cause["first_line"]) is not None:
        parts.append(f"{'first at' if cause['count'] > 1 else 'at'} line {line}")
    return ", ".join(parts)


def _lost(trace: Trace) -> str:
    """How many records were lost, as far as the source counts."""
    meta = trace.metadata
    if meta.get("loss.known") == "false":
        counted = int(trace.losses["count"].sum() or 0)
        more = f"at least {format_count(counted)}: so many the source counts"
        return f"{more}, and others are missing" if counted else "an unknown number"
    lost = meta.get("loss.total")
    if lost is None:
        return "not stated"
    return "none, as the source counts" if lost == "0" else format_count(int(lost))


def _origin(meta: dict[str, str], lost: str) -> dict[str, str]:
    """Where a trace comes from, in words; `--verbose` and `--json` have every key as it is."""
    files = [
        f"{f['name']} ({format_size(f['size'])})"
        for f in json.loads(meta.get("source.files", "[]"))
        if f.get("size")
    ]
    clock = [meta.get("clock.name", "not named")]
    if "clock.resolution_ns" in meta:
        clock.append(f"resolution {format_ns(int(meta['clock.resolution_ns']))}")
    if meta.get("clock.unit") == "ticks":
        clock.append(
            "in ticks" + (f" of {meta['clock.hz']} a second" if "clock.hz" in meta else " of unknown length")
        )
    if meta.get("clock.synchronised") in ("true", "false"):
        clock.append("CPUs agree" if meta["clock.synchronised"] == "true" else "CPUs may disagree")
    read = f"{format_count(int(meta['parse.lines']))} read" if meta.get("parse.lines", "").isdigit() else ""
    if meta.get("parse.unparsed", "0") not in ("", "0"):
        read += f", {format_count(int(meta['parse.unparsed']))} not understood"
    events = json.loads(meta.get("events.recorded", "[]"))
    given = json.loads(meta.get("options", "{}"))
    given |= given.pop("filter", {})
    shown = {
        "file": ", ".join(files),
        "format": " ".join(filter(None, (meta.get("source.format"), meta.get("source.variant")))),
        "host": meta.get("host", "").replace("(none)", ""),
        "clock": ", ".join(clock),
        "lines or records": read,
        "lost": lost,
        "events recorded": ", ".join(events),
        "replayed under": meta.get("replay.policy", ""),
        "options": ", ".join(f"{k}={_listed(v)}" for k, v in given.items() if k not in OF_FILTERS),
    }
    return {k: v for k, v in shown.items() if v}


def _listed(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _print(trace: Trace, top: int, verbose: bool) -> None:
    from tracekit.cli._output import paragraph, table

    for line in repr(trace).splitlines()[:1]:
        paragraph(f"Trace {line.strip('<>').partition(' ')[2]}")
    if said := _part(trace):
        paragraph(said[0].upper() + said[1:])
    _print_causes(trace)
    _print_what_holds(trace)
    if verbose:
        rows = sorted((k, v) for k, v in trace.metadata.items() if k != "machine")
    else:
        rows = list(_origin(trace.metadata, _lost(trace)).items())
    for key, value in rows:
        paragraph(f"  {key:<22}{value}", hang=22)
    if trace.machine is not None:
        _print_machine(trace.machine)
    if trace.losses.height:
        print(f"\n{format_count(trace.losses.height)} losses:")
        table(trace.losses.head(top or 10).to_dicts(), trace.losses.columns)
    if trace.counts["events"]:
        print(f"\n{format_count(trace.counts['events'])} records:")
        table(trace.kinds.to_dicts(), ["kind", "count"])
    if trace.cpus.height:
        print("\nCPUs:")
        table(trace.cpus.to_dicts(), CPU_COLUMNS)
    busiest = _tasks(trace, top)
    if busiest:
        import polars as pl

        number = trace.tasks.filter(~pl.col("is_idle")).height
        print(f"\n{format_count(number)} tasks, busiest first:")
        table(busiest, TASK_COLUMNS)
    for name in ("histograms", "summaries"):
        frame = trace.table(name)
        if frame.height:
            print(f"\n{name} that the tool printed:")
            table(frame.to_dicts(), [c for c in frame.columns if frame[c].null_count() < frame.height])
