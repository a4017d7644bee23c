"""The option `--fail-if`, and the exit status it gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tracekit.explain import Condition, Judged
    from tracekit.trace import Trace

#: Where the context of a command keeps its verdicts.
KEPT = "tracekit.judged"
#: Where it keeps an exit status that is known before anything is printed.
DECIDED = "tracekit.status"


def decided(status: int) -> int:
    """Keep the exit status of the command for the case that whoever reads what it prints goes away."""
    click.get_current_context().meta[DECIDED] = status
    return status


def gate_option(baseline: bool = False) -> Callable[[Any], Any]:
    """The option `--fail-if`; passes conditions as `fail_if`.

    Parameters
    ----------
    baseline
        Whether conditions can relate to a baseline.
    """

    def read(context: click.Context, param: click.Parameter, given: Sequence[str]) -> list[Condition]:
        # Judging takes longer to import than most commands take.
        if not given:
            return []
        from tracekit.explain import parse_condition

        return [parse_condition(text, baseline) for text in given]

    example = "'db: response p99 > 1.10 * baseline'" if baseline else "'waker: wakeup latency p95 > 1ms'"
    help = f"End with status 3 if this holds, 5 if the interval does not decide: {example}. See `tracekit help gate`."
    return click.option("--fail-if", "fail_if", multiple=True, metavar="CONDITION", callback=read, help=help)


def gate(conditions: Sequence[Condition], trace: Trace, by: str) -> list[Judged]:
    """Judge conditions on one trace."""
    if not conditions:
        return []
    from tracekit.explain import judge

    return kept([judge(one, [trace], by) for one in conditions])


def kept(judged: list[Judged]) -> list[Judged]:
    """Keep verdicts for the case that whoever reads the table goes away, see `say`."""
    click.get_current_context().meta[KEPT] = judged
    return judged


def extra_of(judged: Sequence[Judged]) -> dict[str, Any]:
    """What JSON holds of a gate."""
    if not judged:
        return {}
    order = {"fail": 0, "cannot tell": 1, "pass": 2}
    worst = sorted(judged, key=lambda j: order[j.verdict])[:20]
    findings = [{"rank": i, "kind": "gate", **j.as_dict()} for i, j in enumerate(worst, 1)]
    return {"gate": [j.as_dict() for j in judged], "findings": findings}


def ended(judged: Sequence[Judged]) -> int:
    """Say the verdicts on standard error behind the table, and give the exit status."""
    if judged:
        # Here it can still be known that nobody reads it.
        sys.stdout.flush()
    return say(judged)


def say(judged: Sequence[Judged]) -> int:
    """Say verdicts on standard error, and give the exit status."""
    if not judged:
        return 0
    from tracekit.cli._output import printable
    from tracekit.explain import gate_status

    # Where nobody reads this either (`2>&1 | head`), the status is still the answer.
    with suppress(BrokenPipeError):
        for one in judged:
            print(printable(one.sentence), file=sys.stderr)
    return gate_status(judged)
