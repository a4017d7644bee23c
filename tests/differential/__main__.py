"""Hold random workloads of every policy against its model, print a table, and write it for the documents.

python -m tests.differential --count 200 -o docs/differential.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .cases import ROWS


def run(name: str, count: int) -> dict[str, str | int]:
    """A row of the table."""
    began = time.process_time()
    policy, source, differs = ROWS[name]
    wrong = {seed: found for seed in range(count) if (found := differs(seed))}
    for seed, found in list(wrong.items())[:1]:
        print(f"{name}, workload {seed}: {found}", file=sys.stderr)
    row = {"name": name, "policy": policy, "source": source, "workloads": count, "equal": count - len(wrong)}
    print(
        f"{name:24} {row['equal']} of {count} equal, {time.process_time() - began:.0f} s of CPU time",
        flush=True,
    )
    return row


def main() -> int:
    """0 where all schedules are equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200, help="workloads of each policy")
    parser.add_argument("-o", "--output", type=Path, help="where the table goes, as JSON")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("names", nargs="*", help="rows to run, all where none is named")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in ROWS]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; expected one of: {', '.join(ROWS)}")
    if asked.names and asked.output:
        parser.error("the table of the documents has all rows: give no names with -o")
    names = asked.names or list(ROWS)
    with ProcessPoolExecutor(asked.jobs) as pool:
        rows = list(pool.map(run, names, [asked.count] * len(names)))
    if asked.output:
        temporary = asked.output.with_suffix(".tmp")
        temporary.write_text(json.dumps(rows, indent=1) + "\n")
        temporary.replace(asked.output)
    return int(any(row["equal"] != row["workloads"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
