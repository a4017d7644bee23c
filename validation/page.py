"""The page `docs/validation.md`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from validation.summary import Group, Row, group, model_errors

__all__ = ["write"]

HEAD = """\
<!-- written by `make validate`; do not edit -->

# Predictions against reality

Each pair is a real capture A and a real capture B of the same workload; of all pairs a sample is
drawn, workloads and kinds in turn. Capture A is replayed under what changed in B (policy, tunables,
kernel) and the result is held against capture B. One-CPU guests on virtual time come first;
captures of two CPUs and of a real machine, whose timing is disturbed by others, are listed apart.
All metrics come from the tables of the traces by one function for A, B and the replay; only the
searches of callpipe are followed, in a replay that knows the unobserved messages, from arrival to
reply by these (those that it cannot distinguish, at most a tenth, are left out).

* *no change* is the predictor that says: B will be as A. A prediction is worth something where it
  is better than that.
* *real change* is B against A; *direction* is judged where it exceeds 10 %.
* *not resolved*: the predicted change is smaller than the error of the identity replay of A, than what
  perturbations do to it, or than 0.5 %.
* *refused*: the trace does not hold what the metric needs; *failed*: the replay itself came to no end.
* Every prediction is repeated nine times, with runs and timers changed by what the machine's costs
  vary by, and with the tick at other phases; the prediction is the median of those with the tick in
  its place. *Bimodal*: the repetitions have two values.
* What switches take in another kernel or scheduling class comes from the *other* workloads only
  (`validation/switch_costs.toml`).
* The interval is the one that `tracekit compare` prints: prediction * exp(-+ w), w² = (1.645 s)² +
  b² + e² + c² + (d q)², with s the standard deviation over the repetitions, b the bootstrap
  interval, e the error of the identity replay of A, c and d the model error of this kind of change
  and q the share of kernel work. Here c and d are fitted to the *other* workloads only, so that the
  share of pairs that lie in the interval is out of sample.
* Shares of a table are of the pairs that were predicted; under *Aims*, refused and failed pairs
  count as misses.

The lab's own knowledge is used for the question only: which task a workload's argument gives which
policy (`validation/lab.py`). The replay itself sees the events of capture A and the table of
switches above, nothing else. Run it with `make validate`, or for some pairs only `python -m
validation.run testdata/lab --pairs PAIRS --only REGEX`. A run that was stopped goes on where it was
(`out/validation`).
"""


def _pct(value: float | None, sign: bool = False) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{100 * value:+.1f} %" if sign else f"{100 * value:.1f} %"


def _share(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.0f} %"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cells) + " |" for cells in body]
    return "\n".join(lines) + "\n"


_GROUP_HEAD = (
    "pairs", "predicted", "refused", "failed", "median error", "within 5 %", "within 10 %", "direction",
    "in interval", "no change: median", "no change: within 10 %",
)  # fmt: skip


def _group_cells(g: Group) -> list[str]:
    return [
        str(g.n), str(g.predicted), str(g.refused), str(g.failed), _pct(g.median), _share(g.within_5),
        _share(g.within_10), _share(g.direction), _share(g.covered), _pct(g.no_change_median), _share(g.no_change_10),
    ]  # fmt: skip


def _grouped(rows: Sequence[Row], keys: Sequence[str], key: Callable[[Row], tuple[str, ...]]) -> str:
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(key(row), []).append(row)
    return _table(
        (*keys, *_GROUP_HEAD), ([*k, *_group_cells(group(part))] for k, part in sorted(parts.items()))
    )


def _aims(targets: Sequence[Mapping[str, Any]]) -> str:
    body = (
        [
            t["aim"],
            ("at most " if t["most"] else "at least ") + _pct(t["wanted"]),
            _pct(t["found"]),
            str(t["n"]),
            _pct(t["no_change"]),
            "holds" if t["holds"] else "**missed**",
        ]
        for t in targets
    )
    return _table(("aim (one-CPU guests)", "wanted", "found", "n", "no change", ""), body)


def _identities(items: Sequence[Mapping[str, Any]]) -> str:
    def cells(i: Mapping[str, Any]) -> list[str]:
        failed = [m for m, r in i["results"].items() if r == "fail"]
        value = i["why"] if i["identity"] is None else _figure(i["identity"])
        return [
            i["key"],
            i["metric"],
            _figure(i["real"]),
            value,
            _pct(i["main_error"], True),
            ", ".join(failed) or "none",
            i["cause"],
        ]

    head = (
        "capture", "metric", "recorded", "replayed", "error", "metrics of `calibrate` that fail",
        "why the metric is off by more than 5 %, or the switches",
    )  # fmt: skip
    return _table(head, map(cells, items))


def _note(r: Row) -> str:
    two = "" if r.bimodal is None else f"bimodal: {_figure(r.bimodal[0])} or {_figure(r.bimodal[1])}"
    return "; ".join(filter(None, (two, r.note))).replace("|", "\\|")


def _model_errors(rows: Sequence[Row]) -> str:
    """The fitted terms, with all workloads and with each left out."""

    def line(name: str, without: str | None) -> Iterable[list[str]]:
        for kind, found in model_errors(rows, without).items():
            held = [r.covered for r in rows if r.workload == without and r.change_kind == kind and r.exact]
            known = [h for h in held if h is not None]
            share = _share(sum(known) / len(known)) if known else "-"
            yield [name, kind, str(found.n), _pct(found.base), _pct(found.kernel), share, str(len(known))]

    body = [*line("none (shipped)", None)]
    for workload in sorted({r.workload for r in rows}):
        body += line(workload, workload)
    head = ("left out", "kind of change", "pairs", "base c", "per kernel work d", "in interval", "n")
    return _table(head, body)


def _pairs(rows: Sequence[Row]) -> str:
    def cells(r: Row) -> list[str]:
        span = "-" if r.low is None or r.high is None else f"{_figure(r.low)} to {_figure(r.high)}"
        return [
            r.pair.a, r.pair.b, r.pair.metric, _figure(r.real_a), _figure(r.real_b), _figure(r.identity),
            _figure(r.predicted), span, _pct(r.change, True), _pct(r.error, True), _pct(r.no_change_error, True),
            r.verdict, _note(r),
        ]  # fmt: skip

    head = (
        "A", "B", "metric", "real A", "real B", "identity of A", "predicted B", "90 % interval", "real change",
        "error", "error of no change", "verdict", "note",
    )  # fmt: skip
    return _table(head, map(cells, rows))


def _misses(rows: Sequence[Row], causes: Callable[[Row], str], most: int = 25) -> str:
    missed = [r for r in rows if r.error is not None and abs(r.error) > 0.10]
    missed.sort(key=lambda r: -abs(r.error or 0))
    body = (
        [
            r.pair.a,
            r.pair.b,
            _pct(r.change, True),
            _pct(r.error, True),
            _pct(r.no_change_error, True),
            "yes" if r.covered else "no",
            causes(r) or "not found yet",
        ]
        for r in missed[:most]
    )
    text = f"{len(missed)} of {len(rows)} pairs are off by more than 10 %; the {min(most, len(missed))} worst:\n\n"
    return text + _table(
        ("A", "B", "real change", "error", "error of no change", "in interval", "cause"), body
    )


def write(
    rows: Sequence[Row],
    identities: Sequence[Mapping[str, Any]],
    targets: Sequence[Mapping[str, Any]],
    checks: Sequence[tuple[str, int, float, float]],
    causes: Callable[[Row], str],
) -> str:
    """The whole page as text.

    Parameters
    ----------
    rows
        All pairs.
    identities
        A mapping for each capture: `key`, `metric`, `real`, `identity`, `main_error`, `results`,
        `why`, `exact`, `cause` (of a miss).
    targets
        From `validation.summary.targets`.
    checks
        How well the functions that measure agree with what the workload logged: figure, captures,
        median and largest difference.
    causes
        The known cause of a miss, or nothing.
    """
    exact = [r for r in rows if r.exact]
    rest = [r for r in rows if not r.exact]
    own = [i for i in identities if i["exact"]]
    others = [i for i in identities if not i["exact"]]
    kinds = sorted({r.pair.kind for r in rows})
    changing = [r for r in exact if abs(r.change) > 0.10]
    parts = [
        HEAD,
        "\n## Aims\n\n" + _aims(targets),
        "\n## By kind of pair\n\n" + _grouped(exact, ("kind",), lambda r: (r.pair.kind,)),
        "\nOnly pairs whose metric really changes by more than 10 %:\n\n"
        + _grouped(changing, ("kind",), lambda r: (r.pair.kind,)),
        "\n## By workload and kernel\n\n"
        + _grouped(exact, ("kind", "workload", "kernel"), lambda r: (r.pair.kind, r.workload, r.kernels)),
        "\n## Model error\n\nWhat predictions miss beyond their own terms, fitted with each workload left out;\n"
        "*in interval* is for the workload that was left out, repeats of the same thing included. The first\n"
        "two lines ship with the package.\n\n" + _model_errors(exact),
        "\n## The floor\n\nTwo captures of the same thing; no prediction can be closer than that.\n\n"
        + _table(
            ("A", "B", "metric", "A", "B", "difference"),
            (
                [
                    r.pair.a,
                    r.pair.b,
                    r.pair.metric,
                    _figure(r.real_a),
                    _figure(r.real_b),
                    _pct(r.change, True),
                ]
                for r in rows
                if r.pair.kind == "repeat"
            ),
        ),
        "\n## Are the metrics measured right?\n\nFrom the tables of the recordings, against what the workload itself "
        "logged:\n\n"
        + _table(
            ("metric", "captures", "median difference", "largest difference"),
            ([f"`{m}`", str(n), _pct(median, False), _pct(worst)] for m, n, median, worst in checks),
        ),
        "\n## Misses\n\n" + _misses(exact, causes),
        "\n## Identity replays: one-CPU guests\n\n" + _identities(own),
        "\n## Identity replays: two CPUs, and a real machine\n\n" + _identities(others),
    ]
    for kind in kinds:
        parts.append(f"\n## Every pair: {kind}\n\n" + _pairs([r for r in exact if r.pair.kind == kind]))
    if rest:
        parts.append("\n## Every pair of the others\n\n" + _pairs(rest))
    return "".join(parts)
