"""Replay a sample of the lab, hold it against reality, write the page.

Run by ``python -m validation.run FOLDER --pairs TABLE``.

Pairs are drawn by workload and kind in turn. Each capture is replayed once for both: the main
metric of its pairs (the aims), and every row that `compare` prints (coverage by class). Results are
kept in a folder, and a run that was stopped goes on there.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tracekit.export.files import replacing
from validation import coverage, lab, page, store, summary

HERE = Path(__file__).parent


def _identities(captures: dict[str, lab.Capture], done: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    causes = tomllib.loads((HERE / "causes.toml").read_text()).get("identity", [])
    for key, result in sorted(done.items()):
        real, own = result["real"], result["identity"]
        both = real["value"] is not None and own["value"] is not None
        results = {r["metric"]: r["result"] for r in result["calibration"]}
        missed = (both and abs(own["value"] / real["value"] - 1) > 0.05) or results.get("switches") == "fail"
        known = (str(e["text"]) for e in causes if re.search(e["key"], key))
        found.append(
            {
                "key": key,
                "metric": captures[key].metric,
                "exact": captures[key].exact,
                "real": real["value"],
                "identity": own["value"],
                "main_error": own["value"] / real["value"] - 1 if both else None,
                "why": own["why"] or real["why"],
                "results": results,
                "cause": next(known, "not found yet") if missed else "",
            }
        )
    return found


def _checks(
    pairs: Sequence[lab.Pair], done: dict[str, dict[str, Any]]
) -> list[tuple[str, int, float, float]]:
    """How far the figures from the tables are from what the workload logged."""
    logged = {p.a: (p.metric, p.a_value) for p in pairs} | {p.b: (p.metric, p.b_value) for p in pairs}
    gaps: dict[str, list[float]] = {}
    for key, (metric, value) in logged.items():
        real = done[key]["real"]["value"] if key in done else None
        if real is not None:
            gaps.setdefault(metric, []).append(abs(real / value - 1))
    return [(m, len(g), statistics.median(g), max(g)) for m, g in sorted(gaps.items())]


def _causes() -> Callable[[summary.Row], str]:
    """The causes of misses that were found, from `causes.toml`: first that fits."""
    entries = tomllib.loads((HERE / "causes.toml").read_text()).get("cause", [])

    def cause(row: summary.Row) -> str:
        for entry in entries:
            if (
                re.search(entry.get("a", ""), row.pair.a)
                and re.search(entry.get("b", ""), row.pair.b)
                and re.search(entry.get("kind", ""), row.pair.kind)
            ):
                return str(entry["text"])
        return ""

    return cause


def _fitted(rows: Sequence[summary.Row]) -> str:
    """The table of model errors that ships with the package."""
    lines = [
        "# What predictions miss beyond what their own terms say, from real pairs: written by `make validate` from the lab's",
        "# one-CPU guests (Linux 5.10, 6.1, 6.12; workloads: "
        + ", ".join(sorted({r.workload for r in rows if r.measured is not None}))
        + ").",
        "# base, kernel: conformal quantiles, see docs/definitions.md; pairs: how many they rest on.",
    ]
    for kind, found in summary.model_errors(rows).items():
        lines += [
            "",
            f'[kind."{kind}"]',
            f"base = {found.base:.4f}",
            f"kernel = {found.kernel:.4f}",
            f"pairs = {found.n}",
        ]
    return "\n".join(lines) + "\n"


def _tasks(
    pairs: Sequence[lab.Pair], captures: Mapping[str, lab.Capture], sample: int, only: str
) -> tuple[list[lab.Pair], list[store.Task]]:
    """The pairs that are drawn, and what is to be replayed, in the order of the draw."""
    fit = [p for p in pairs if re.search(only, f"{p.a} {p.b}") and p.a in captures and p.b in captures]
    first = {(p.a, p.b): p for p in reversed(fit)}
    drawn = coverage.sample(list(dict.fromkeys(first[p.a, p.b] for p in fit)), captures, sample, 1)
    by: dict[str, list[lab.Pair]] = {}
    for pair in drawn:
        by.setdefault(pair.a, []).append(pair)
    return drawn, [(captures[a], tuple((p, captures[p.b]) for p in found)) for a, found in by.items()]


def _interleaved(one: Sequence[store.Task], several: Sequence[store.Task]) -> list[store.Task]:
    """Tasks of several CPUs spread over the others, so that a run that is cut short has both."""
    out: list[store.Task] = []
    step = max(1, len(one) // max(1, len(several)))
    rest = list(several)
    for i, task in enumerate(one):
        out.append(task)
        if i % step == step - 1 and rest:
            out.append(rest.pop(0))
    return out + rest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m validation.run", description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked captures of one-CPU guests")
    parser.add_argument("--pairs", type=Path, required=True, help="the table of their pairs")
    parser.add_argument("--several", type=Path, metavar="FOLDER", help="captures of several CPUs")
    parser.add_argument("--several-pairs", type=Path, metavar="TABLE", help="the table of their pairs")
    parser.add_argument("-o", "--output", type=Path, help="page to write, with a .json beside it")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="only pairs of which A, a space and B fit"
    )
    parser.add_argument(
        "--sample", type=int, default=SAMPLE, metavar="N",
        help="N pairs, workloads and kinds in turn, and N / 4 of several CPUs",
    )  # fmt: skip
    parser.add_argument(
        "--budget",
        type=float,
        default=BUDGET,
        metavar="MINUTES",
        help="CPU time after which no replay begins",
    )
    parser.add_argument("--store", type=Path, default=Path("out/validation"), help="folder for results")
    parser.add_argument(
        "--fit", type=Path, metavar="FILE", help="write the model errors of main metrics, as TOML"
    )
    parser.add_argument(
        "--fit-rows", type=Path, metavar="FILE", help="write the model errors by class, as TOML"
    )
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    return parser


#: Pairs that are drawn by default, and CPU minutes: a run ends within 40, what is
#: written afterwards included.
SAMPLE, BUDGET = 320, 34.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 0 also where aims are missed: the page says which."""
    given = _parser().parse_args(argv)
    captures = lab.captures(given.folder)
    every = lab.pairs(given.pairs)
    drawn, tasks = _tasks(every, captures, given.sample, given.only)
    if not drawn:
        print(f"validation: no pair of captures below {given.folder} fits --only", file=sys.stderr)
        return 2
    more: list[lab.Pair] = []
    if given.several is not None and given.several_pairs is not None:
        others = {
            k: c for k, c in lab.captures(given.several).items() if c.workload not in SLOW and c.cpus > 1
        }
        # What a pair of one CPU cannot validate.
        more, several = _tasks(lab.pairs(given.several_pairs), others, max(1, given.sample // 4), given.only)
        tasks = _interleaved(tasks, several)
    code = store.digest()
    left = store.collect(tasks, given.store, given.jobs, 60 * given.budget, code)
    done, found, notes = store.load(tasks, given.store, code)
    if left:
        print(f"validation: {left} captures left; the same command goes on from here", file=sys.stderr)
    pairs = [p for p in drawn if p.a in done]
    rows = summary.rows(pairs, captures, done)
    identities = _identities(captures, {k: d for k, d in done.items() if k in captures})
    if given.fit is not None:
        _write(given.fit, _fitted(rows))
    aims = summary.targets(rows, [i for i in identities if i["exact"]])
    text = page.write(rows, identities, aims, _checks(pairs, done), _causes())
    if found is not None:
        judged = coverage.judged(found)
        ended = len(pairs) + sum(p.a in done for p in more)
        text = text.rstrip() + "\n" + coverage.section(judged, ended, len(every), notes)
        if given.fit_rows is not None:
            _write(given.fit_rows, coverage.as_toml(found))
    if given.output is None:
        print(text)
        return 0
    _write(given.output, text)
    _write(given.output.with_suffix(".json"), _data(rows, identities, aims, done))
    for aim in aims:
        print(
            f"{'holds ' if aim['holds'] else 'missed'}  {100 * aim['found']:5.1f} %  n = {aim['n']:<4} {aim['aim']}"
        )
    return 0


#: Workloads that take over a minute a pair on several CPUs: six tasks that wake each other in rounds.
SLOW = ("callpipe",)


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def _data(
    rows: Sequence[summary.Row],
    identities: Sequence[dict[str, Any]],
    aims: Sequence[dict[str, Any]],
    done: Mapping[str, dict[str, Any]],
) -> str:
    data = {
        "aims": aims,
        "identities": identities,
        "pairs": [
            {
                **asdict(r),
                "change": r.change,
                "error": r.error,
                "no_change_error": r.no_change_error,
                "covered": r.covered,
            }
            for r in rows
        ],
        # Task attributes are left out: `validation.lab.question` makes them from the workload's command line.
        "questions": {
            a: {b: {"policy": q["policy"], "rt": q["rt"]} for b, q in sorted(d["asked"].items())}
            for a, d in sorted(done.items())
        },
    }
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
