"""Hold every row of a sample of pairs against reality.

The aims judge one mean a pair. Here every row that `tracekit compare` would print for a pair
(capture A, replayed under what changed in B) is held against the same row of capture B. The rows
are stored; the model errors by class of metric and change are fitted to them, and the page gets its
section on coverage. Every interval is judged with a model error that was fitted without the
workload it is judged on.
"""

from __future__ import annotations

import math
import random
import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

import tracekit as tk
from tracekit import analysis, registry
from tracekit.analysis.compare import IDENTITY
from tracekit.errors import TracekitError
from tracekit.whatif import row_error
from tracekit.whatif.basis import unmeasured_cpus
from tracekit.whatif.calibration import judge, keeps_phase
from tracekit.whatif.comparison import Comparison
from tracekit.whatif.fidelity import Fidelity, fidelity
from tracekit.whatif.intervals import Perturbation, kernel_share
from tracekit.whatif.known import known_of
from tracekit.whatif.predictions import Repeated
from validation import lab, predict
from validation.metrics import subject

__all__ = ["as_toml", "fitted", "judged", "pair_rows", "sample", "section", "shares"]

KEYS = ["scope", "group", "metric", "statistic"]
#: A prediction is close when it is off by no more than this.
CLOSE = 0.10
#: Fewest rows of a class whose coverage is judged.
ENOUGH = 30
MARK = "\n## Coverage by class\n"


def sample(
    pairs: Sequence[lab.Pair], captures: Mapping[str, lab.Capture], n: int, seed: int
) -> list[lab.Pair]:
    """Draw pairs by workload and kind in turn, so that each has its share.

    Parameters
    ----------
    pairs, captures
        All of them; only pairs of one-CPU guests are drawn, and none of the same thing twice.
    n
        How many; all when there are fewer.
    seed
        Of the order.
    """
    by: dict[tuple[str, str], list[lab.Pair]] = defaultdict(list)
    for pair in pairs:
        both = [captures[pair.a], captures[pair.b]]
        if pair.kind != "repeat" and all(c.exact for c in both):
            by[both[0].workload, pair.kind].append(pair)
    draw = random.Random(seed)
    for rows in by.values():
        draw.shuffle(rows)
    turns = [by[key] for key in sorted(by)]
    found: list[lab.Pair] = []
    while len(found) < n and any(turns):
        found += [rows.pop() for rows in turns if rows]
    return found[:n]


def _metrics(trace: tk.Trace) -> pl.DataFrame:
    return analysis.compare.metrics(trace.slices, trace.runqueue, trace.states, trace.end_ns)


def pair_rows(
    a: lab.Capture, targets: Sequence[tuple[lab.Pair, lab.Capture]]
) -> tuple[list[pl.DataFrame], list[str], dict[str, Any]]:
    """Predict every row of each target from capture A, and its main metric, from the same replays.

    Returns
    -------
    tuple
        The table of `Comparison` of each target with `real` and `n_real`, `a`, `b`, `workload` and
        `pair_kind`; why others have none; and what `validation.predict.job` gives.
    """
    known = [p["name"] for p in registry.policies()]
    trace = tk.read(a.file)
    programs = tk.Programs(trace)
    itself = lab.question(a, trace, known)
    job: dict[str, Any] = {"key": a.key, "asked": {a.key: asdict(itself)}, "targets": {}}
    job["real"] = asdict(predict.figure(a.metric, trace, a))
    faithful: list[Fidelity] = []
    same = _runs(programs, a, itself, look=lambda run: faithful.append(fidelity(trace, run)))
    job["identity"] = asdict(same.outcome)
    job["calibration"] = judge(faithful).to_dicts()
    job["kernel_share"] = kernel_share(subject(a.metric, programs.demands))
    context = replace(known_of(programs, trace, "group", {}, {}), plain=keeps_phase(faithful))
    frames, notes = [], []
    for pair, target in targets:
        asked = lab.question(target, trace, known)
        job["asked"][pair.b] = asdict(asked)
        try:
            costs = predict.switch_costs(programs, a, itself, asked)
            found = same if asked == itself else _runs(programs, a, asked, costs)
        except TracekitError as error:
            notes.append(f"{pair.a} to {pair.b}: {error}")
            job["targets"][pair.b] = asdict(predict.Outcome(None, why=str(error)))
            continue
        job["targets"][pair.b] = asdict(found.outcome)
        if pair.kind == "repeat":
            continue
        changed = {key for _, sets in asked.sets for key, _ in sets} if asked.sets != itself.sets else set()
        other = asked.cpus is not None and asked.cpus != a.cpus
        kind = row_error.change_class(itself.policy, asked.policy, other, changed, a.cpus > 1)
        repeated = replace(
            context,
            figures={IDENTITY: same.values, "B": found.values},
            changes={"B": kind},
            unmodelled={"B": asked.unmodelled},
            unmeasured={"B": why} if (why := unmeasured_cpus(trace, found.plain)) else {},
        )
        table = _judged(trace, same.plain, found.plain, repeated)
        real = _metrics(tk.read(target.file)).select(*KEYS, real="value", n_real="n")
        frames.append(
            table.join(real, on=KEYS, how="left", nulls_equal=True).with_columns(
                a=pl.lit(pair.a), b=pl.lit(pair.b), workload=pl.lit(a.workload), pair_kind=pl.lit(pair.kind)
            )
        )
    return frames, notes, job


@dataclass(frozen=True)
class _Runs:
    """The repetitions of a question: the plain replay, the metrics of all, the main metric."""

    plain: tk.Trace
    values: list[tuple[Perturbation, pl.DataFrame]]
    outcome: predict.Outcome


def _runs(
    programs: tk.Programs,
    a: lab.Capture,
    asked: lab.Question,
    costs: Any = None,
    look: Callable[[tk.Trace], object] | None = None,
) -> _Runs:
    plain: tk.Trace | None = None
    values, main = [], []
    for perturbation in programs.perturbations():
        try:
            run = predict.run(programs, asked, perturbation, costs)
        except TracekitError:
            if plain is None:
                raise
            continue
        plain = plain or run
        if look is not None:
            look(run)
        values.append((perturbation, _metrics(run)))
        main.append((perturbation, predict.figure(a.metric, run, a)))
    assert plain is not None, "no repetition"
    return _Runs(plain, values, predict.together(main))


def _judged(trace: tk.Trace, same: tk.Trace, plain: tk.Trace, found: Repeated) -> pl.DataFrame:
    # A wide model error for all: what is stored is the measured part, the fit gives the rest.
    wide = {
        (c, m): row_error.RowError(c, m, 1.0, 1.0, 1, 1)
        for c in row_error.CHANGES
        for m in row_error.METRIC_CLASSES
    }
    return Comparison(trace, same, {"B": plain}, repeated=replace(found, errors=wide)).table


def _usable(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with an interval and a real value."""
    return rows.filter(pl.col("low").is_not_null(), pl.col("real") > 0, pl.col("n_real").fill_null(20) >= 20)


def _measured(row: Mapping[str, Any]) -> tuple[float, float]:
    """What the trace says of the error of a row, without and of the sample, on the side of the real value."""
    sides = [(row[f"sampling_{side}_pct"] or 0.0) / 100 for side in ("low", "high")]
    own = math.sqrt(max(0.0, (row["measured_pct"] / 100) ** 2 - max(sides) ** 2))
    return own, sides[row["real"] > row["predicted"]]


def fitted(rows: pl.DataFrame, without: str | None = None) -> dict[tuple[str, str], row_error.RowError]:
    """Fit the model errors, to all workloads but one."""
    cases: dict[tuple[str, str], list[row_error.Case]] = defaultdict(list)
    for r in _usable(rows).filter(pl.col("workload") != (without or "")).iter_rows(named=True):
        own, sampling = _measured(r)
        error = abs(math.log(r["real"] / r["predicted"]))
        case = row_error.Case(r["workload"], error, math.hypot(own, sampling), r["kernel_share"], sampling)
        cases[r["change_class"], r["metric_class"]].append(case)
    return row_error.fit(cases)


def judged(rows: pl.DataFrame, known: row_error.Table | None = None) -> pl.DataFrame:
    """Give each row the interval that a fit without its workload makes, and whether it holds.

    Parameters
    ----------
    rows
        Rows of `pair_rows`.
    known
        Model errors to be used for all rows in place of the fits.

    Returns
    -------
    pl.DataFrame
        The rows that were predicted and are real, with `validated_out` (Boolean, the class was
        measured in other workloads), `inside` (Boolean; null without an interval), `close`
        (Boolean, off by at most 10 %) and `mark` (String, the trust that the row has with that
        interval).
    """
    tables = {w: known or fitted(rows, w) for w in rows["workload"].unique().to_list()}
    out = []
    for r in rows.filter(pl.col("real").is_not_null(), pl.col("predicted").is_not_null()).iter_rows(
        named=True
    ):
        table = tables[r["workload"]]
        key = r["change_class"], r["metric_class"], r["kernel_share"]
        width, n = row_error.width_of(table, *key)
        inside = None
        if r["low"] is not None and width is not None and r["real"] > 0:
            own, sampling = _measured(r)
            scaled = row_error.sampling_scale(table, r["metric_class"]) * sampling
            half = math.hypot(own, scaled, width, (r["switch_pct"] or 0.0) / 100)
            inside = abs(math.log(r["real"] / r["predicted"])) <= half
        close = abs(r["predicted"] - r["real"]) <= CLOSE * abs(r["real"])
        mark = r["trust"]
        if mark == "trusted" and (not n or width is None):
            mark = "with care"
        out.append({**r, "validated_out": n > 0, "inside": inside, "close": close, "mark": mark})
    types: dict[str, Any] = {
        "validated_out": pl.Boolean, "inside": pl.Boolean, "close": pl.Boolean, "mark": pl.String
    }  # fmt: skip
    return pl.DataFrame(out, schema={**rows.schema, **types})


def shares(found: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Coverage by class: rows, share without an interval, share of real values inside, and close."""
    real = found.filter(pl.col("n_real").fill_null(20) >= 20, pl.col("metric_class") != "")
    return (
        real.group_by(keys)
        .agg(
            pl.len().alias("rows"),
            pl.col("a").n_unique().alias("captures"),
            pl.col("inside").null_count().alias("without"),
            pl.col("inside").mean().alias("covered"),
            pl.col("close").mean().alias("close"),
            (pl.col("close") | pl.col("inside").fill_null(False)).mean().alias("right"),
        )
        .sort(keys)
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _table(frame: pl.DataFrame, keys: Sequence[str]) -> str:
    head = [*keys, "rows", "captures", "without interval", "covered (90 %)", "within 10 %", "either"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in frame.iter_rows(named=True):
        cells = [*(str(r[k]) for k in keys), str(r["rows"]), str(r["captures"])]
        cells += [_percent(r["without"] / r["rows"]), _percent(r["covered"]), _percent(r["close"])]
        lines.append("| " + " | ".join([*cells, _percent(r["right"])]) + " |")
    return "\n".join(lines) + "\n"


def _absent(found: pl.DataFrame) -> str:
    have = set(found["change_class"].to_list())
    return ", ".join(c for c in row_error.CHANGES if c not in have) or "none"


def section(found: pl.DataFrame, pairs: int, wanted: int, notes: Sequence[str]) -> str:
    """The section of the page."""
    named = {"change_class": "change", "metric_class": "metric", "mark": "trust"}
    text = (
        f"Every row that `compare` prints, of {pairs} pairs of guests, drawn by workload and kind in turn (there are "
        f"{wanted} on one CPU), against the same row of the real capture. The model error of each row is fitted to "
        "the *other* workloads. *Without interval*: the sampling error could not be known, or no other workload has "
        "the class. Rows with fewer than 20 samples in the real capture are left out. "
        f"Not validated, since no pair is of that kind: {_absent(found)}."
    )
    parts = [MARK, "\n", textwrap.fill(text, 100, break_on_hyphens=False), "\n\n"]
    for title, keys in (
        ("By class of metric", ["metric_class"]),
        ("By class of change", ["change_class"]),
        ("By both", ["change_class", "metric_class"]),
        ("By trust", ["mark"]),
    ):
        frame = shares(found, keys).rename({k: named[k] for k in keys})
        parts.append(f"### {title}\n\n{_table(frame, [named[k] for k in keys])}\n")
    if notes:
        parts.append("Pairs without a prediction:\n\n" + "".join(f"- {n}\n" for n in notes))
    return "".join(parts).rstrip() + "\n"


def as_toml(rows: pl.DataFrame) -> str:
    """The model errors by class as they ship, fitted to all rows."""
    names = ", ".join(sorted(set(rows["workload"].to_list())))
    source = (
        "What rows of comparisons miss beyond what their own terms say, by class of change and of metric: conformal\n"
        f"90 % quantiles over {rows.select('a', 'b').unique().height} real pairs of the lab's guests (workloads: {names}).\n"
        "Written by `make validate`; see docs/definitions.md."
    )
    return row_error.to_toml(fitted(rows), source)
