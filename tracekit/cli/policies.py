"""`tracekit policies`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import click

from tracekit import registry
from tracekit.cli import _complete
from tracekit.cli._options import output_options
from tracekit.near import did_you_mean

EXAMPLES = """\b
Examples:
  tracekit policies
  tracekit policies show cfs
  tracekit policies costs                     what switches and ticks can cost
  tracekit policies check rr:quantum=10ms     writes all parameters out
  tracekit policies check linux-6.12          what a kernel schedules with
"""


@click.group("policies", invoke_without_command=True, epilog=EXAMPLES)
@output_options(csv=False)
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the policies to replay a trace under.

    A policy is written NAME or NAME:PARAM=VALUE,PARAM=VALUE, times with their unit: cfs:latency=6ms.
    linux-VERSION stands for the scheduler of that kernel: linux-6.12 for eevdf:version=6.12.
    """
    from tracekit.cli._output import emit_json, table

    if context.invoked_subcommand is not None:
        return
    if as_json and emit_json(registry.policies()):
        return
    table([{"name": p["name"], "idea": p["title"]} for p in registry.policies()], ["name", "idea"])


@command.command("show")
@click.argument("name", type=_complete.POLICY_NAME)
@output_options(csv=False)
def show(name: str, as_json: bool) -> None:
    """Print the idea, formula, parameters and sources of a policy."""
    from tracekit.cli._output import definitions, emit_json, paragraph

    policies = {p["name"]: p for p in registry.policies()}
    called = policies | {alias: p for p in policies.values() for alias in p["aliases"]}
    if name.startswith("linux-"):
        name = registry.check_policy(name)
    found = called.get(name.partition(":")[0])
    if found is None:
        hint = did_you_mean(name, called, ".")
        raise click.BadParameter(f"no policy is called {name!r}{hint} There are {', '.join(policies)}")
    if as_json and emit_json(found):
        return
    paragraph(f"{found['name']}: {found['title']}")
    print()
    _section("Also called", ", ".join(found["aliases"]))
    _section("Idea", found["idea"])
    _section("Formula", found["formula"])
    _section("Ties", found["tie_break"])
    if found["rt_above"]:
        _section("Real time", "SCHED_FIFO and SCHED_RR tasks run in a class above this policy.")
    if found["deadline_above"]:
        _section("Reservations", "SCHED_DEADLINE tasks run in a class above that.")
    _section("Attributes of tasks that it looks at", ", ".join(registry.attributes(found)))
    if found["params"]:
        print("Parameters")
        definitions([(f"  {p['name']}", _values(p), p["doc"]) for p in found["params"]])
        print()
    _section("Not modelled", found["not_modelled"])
    _section("Sources", found["sources"])


@command.command("costs")
@output_options(csv=False)
def costs(as_json: bool) -> None:
    """List what scheduling itself can cost, apart from any policy.

    A cost is given as --cost KEY=TIME, in a scenario file under [cost], or in the line `costs:` of
    a workload.
    """
    from tracekit.cli._output import definitions, emit_json

    if as_json and emit_json(registry.costs()):
        return
    definitions([(c["name"], "", c["doc"]) for c in registry.costs()])


@command.command("check")
@click.argument("policy", metavar="POLICY")
def check(policy: str) -> None:
    """Check a policy string, and print it with all its parameters."""
    click.echo(registry.check_policy(policy))


def _values(param: Mapping[str, object]) -> str:
    """Default of a parameter, and what else it may be."""
    may_be = ", ".join(str(param[key]) for key in ("unit", "range") if param[key])
    return f"{param['default']} ({may_be})" if may_be else str(param["default"])


def _section(title: str, text: str) -> None:
    if not text.strip():
        return
    print(title)
    for line in text.strip().splitlines():
        print(textwrap.fill(line.strip(), 98, initial_indent="  ", subsequent_indent="  "))
    print()
