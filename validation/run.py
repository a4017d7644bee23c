"""Replay every capture of the lab, predict every pair, write the page: ``python -m validation.run FOLDER ...``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from validation import lab, page, predict, summary

HERE = Path(__file__).parent


def _work(task: tuple[lab.Capture, list[lab.Capture]]) -> dict[str, Any]:
    return predict.job(*task)


def _replay_all(
    tasks: Sequence[tuple[lab.Capture, list[lab.Capture]]], jobs: int
) -> dict[str, dict[str, Any]]:
    done = {}
    # Fresh interpreters: polars' threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        results = pool.imap_unordered(_work, tasks)
        for result in track(
            results, "replaying captures", len(tasks), console=Console(stderr=True), transient=True
        ):
            done[result["key"]] = result
    return done


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
        "# What predictions miss beyond what their own terms tell, from real pairs: written by `make validate` from the lab's",
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status is 0 also where aims are missed: the page says which."""
    parser = argparse.ArgumentParser(prog="python -m validation.run", description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked captures")
    parser.add_argument("--pairs", type=Path, required=True, help="the table of pairs")
    parser.add_argument("-o", "--output", type=Path, help="page to write, with a .json beside it")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="only pairs of which A, a space and B fit"
    )
    parser.add_argument(
        "--fit", type=Path, metavar="FILE", help="write the model errors that these pairs show, as TOML"
    )
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(argv)
    captures = lab.captures(given.folder)
    pairs = [p for p in lab.pairs(given.pairs) if re.search(given.only, f"{p.a} {p.b}")]
    absent = sorted({k for p in pairs for k in (p.a, p.b)} - set(captures))
    if absent or not pairs:
        what = f"no capture {', '.join(absent[:5])} below {given.folder}" if absent else "no pair fits --only"
        print(f"validation: {what}", file=sys.stderr)
        return 2
    wanted = {k for p in pairs for k in (p.a, p.b)} if given.only else set(captures)
    tasks = [
        (captures[k], [captures[b] for b in dict.fromkeys(p.b for p in pairs if p.a == k)])
        for k in sorted(wanted)
    ]
    # Long ones first, so that both processes end at about the same time.
    tasks.sort(key=lambda t: -t[0].file.stat().st_size * (1 + len(t[1])))
    done = _replay_all(tasks, given.jobs)
    rows = summary.rows(pairs, captures, done)
    identities = _identities(captures, done)
    if given.fit is not None:
        given.fit.write_text(_fitted(rows))
    aims = summary.targets(rows, [i for i in identities if i["exact"]])
    text = page.write(rows, identities, aims, _checks(pairs, done), _causes())
    if given.output is None:
        print(text)
        return 0
    given.output.write_text(text)
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
    given.output.with_suffix(".json").write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    for aim in aims:
        print(
            f"{'holds ' if aim['holds'] else 'missed'}  {100 * aim['found']:5.1f} %  n = {aim['n']:<4} {aim['aim']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
