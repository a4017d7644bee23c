"""What the trace processor lost or did not understand: its ``stats`` table, looked at after each load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit._frames import table_schema

if TYPE_CHECKING:
    from tracekit.perfetto.engine import Session

__all__ = ["check"]


def check(session: Session, first_ns: Any, last_ns: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn the trace processor's counts of lost and misunderstood data into diagnostics and losses.

    Parameters
    ----------
    session
        A trace processor with a trace in it.
    first_ns, last_ns
        First and last record: when something was lost is not recorded, so it may be anywhere between.

    Returns
    -------
    tuple of polars.DataFrame
        Rows of ``diagnostics`` and of ``losses``.
    """
    stats = session.query(
        "select name, severity, source, idx, value, description from stats "
        "where severity != 'info' and value > 0 order by name, idx"
    )
    rows: list[dict[str, object]] = []
    losses: list[dict[str, object]] = []
    for name, severity, _, index, value, text in stats.rows():
        if name == "task_state_invalid":
            # Files that tracekit writes use such a number for a state that nobody stated.
            code, ours = "missing-events", "info"
        elif name.startswith("config_"):
            # A warning about how it was recorded; what it may have cost is counted elsewhere.
            code, ours = "missing-events", "info"
        elif severity == "data_loss":
            code, ours = "lost-events", "loss"
        else:
            code, ours = "partly-parsed", "error"
        per_cpu = index if name.startswith("ftrace_cpu") else None
        rows.append(
            {
                "severity": ours,
                "code": code,
                "count": value,
                "cpu": per_cpu,
                "message": f"Perfetto counts {name}" + (f": {text}" if text else ""),
                "advice": "larger buffers lose less" if ours == "loss" else None,
            }
        )
        if ours == "loss":
            losses.append(
                {
                    "cpu": per_cpu,
                    "ts_from_ns": first_ns,
                    "ts_to_ns": last_ns,
                    "count": value if "overrun" in name else None,
                    "cause": "overwrite" if "overrun" in name else "drops",
                }
            )
    return (
        pl.DataFrame(rows, schema=table_schema("diagnostics")),
        pl.DataFrame(losses, schema=table_schema("losses")),
    )
