"""What a hook of a policy of one's own costs.

The same round robin in Rust, as a Python class, and compiled from C or by numba.

The CPU time of a run less that of the same run under the policy in Rust, over the number of hooks
called. A C compiler or numba that is absent is named and left out.
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tracekit as tk
from tracekit.whatif.policy import ABI_VERSION, HOOKS, CompiledPolicy

QUANTUM = 100_000
WORKLOAD = "A*64: R200\n"


class RoundRobin(tk.Policy):
    """Round robin with a queue for all CPUs."""

    def __init__(self) -> None:
        self.queue: collections.deque[int] = collections.deque()

    def enqueue(self, task: int, cpu: int, why: str) -> None:
        """Put it at the tail."""
        self.queue.append(task)

    def dequeue(self, task: int, cpu: int) -> None:
        """Take it out."""
        self.queue.remove(task)

    def dispatch(self, cpu: int) -> int | None:
        """Take the head."""
        return self.queue.popleft() if self.queue else None

    def running(self, task: int, cpu: int, switched: bool) -> None:
        """Set its quantum."""
        self.machine.set_slice(cpu, QUANTUM)


class Counted(RoundRobin):
    """The same, counting its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks = 0

    def enqueue(self, task: int, cpu: int, why: str) -> None:
        """Put it at the tail."""
        self.hooks += 1
        super().enqueue(task, cpu, why)

    def dispatch(self, cpu: int) -> int | None:
        """Take the head."""
        self.hooks += 1
        return super().dispatch(cpu)

    def running(self, task: int, cpu: int, switched: bool) -> None:
        """Set its quantum."""
        self.hooks += 1
        super().running(task, cpu, switched)


C_SOURCE = r"""
#include <stdint.h>
#define N 4096
static int64_t queue[N], head, tail;
typedef int64_t (*hook)(void *, int64_t, int64_t, int64_t, int64_t);
#define HOOK(name) static int64_t name(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg)
HOOK(init) { head = tail = 0; return 0; }
HOOK(enqueue) { queue[tail++ % N] = task; return 0; }
HOOK(dequeue) { int64_t to = head;
    for (int64_t i = head; i < tail; i++) if (queue[i % N] != task) queue[to++ % N] = queue[i % N];
    tail = to; return 0; }
HOOK(dispatch) { return head < tail ? queue[head++ % N] : -1; }
HOOK(running) { return QUANTUM; }
struct { uint64_t version, size; void *state, *machine; hook hooks[NHOOKS]; } tracekit_policy =
    { VERSION, sizeof tracekit_policy, 0, 0, { INIT } };
"""


def c_policy(folder: Path) -> Any:
    """The policy as a shared object; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("skipped C: no compiler", file=sys.stderr)
        return None
    own = ("init", "enqueue", "dequeue", "dispatch", "running")
    table = ", ".join(hook if hook in own else "0" for hook in HOOKS)
    source, library = folder / "rr.c", folder / "rr.so"
    source.write_text(C_SOURCE.replace("INIT", table))
    flags = [f"-DVERSION={ABI_VERSION}", f"-DQUANTUM={QUANTUM}", f"-DNHOOKS={len(HOOKS)}"]
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return CompiledPolicy.load(library)


def numba_policy() -> Any:
    """The policy by numba; None without it."""
    try:
        import numba
    except ImportError:
        print("skipped numba: not installed", file=sys.stderr)
        return None
    i64 = numba.types.int64
    signature = i64(numba.types.CPointer(i64), i64, i64, i64, i64)  # type: ignore[no-untyped-call]
    size = 4096
    state = np.zeros(2 + size, dtype=np.int64)

    @numba.cfunc(signature)
    def enqueue(s, now, cpu, task, arg):  # type: ignore[no-untyped-def]
        s[2 + s[1] % size] = task
        s[1] += 1
        return 0

    @numba.cfunc(signature)
    def dequeue(s, now, cpu, task, arg):  # type: ignore[no-untyped-def]
        return 0

    @numba.cfunc(signature)
    def dispatch(s, now, cpu, task, arg):  # type: ignore[no-untyped-def]
        if s[0] == s[1]:
            return -1
        s[0] += 1
        return s[2 + (s[0] - 1) % size]

    @numba.cfunc(signature)
    def running(s, now, cpu, task, arg):  # type: ignore[no-untyped-def]
        return QUANTUM

    return CompiledPolicy(state, enqueue=enqueue, dequeue=dequeue, dispatch=dispatch, running=running)


def cpu_seconds(make: Callable[[], Any], rounds: int) -> float:
    """The best CPU time of so many runs."""
    best = float("inf")
    for _ in range(rounds):
        policy = make()
        start = time.process_time()
        tk.simulate(WORKLOAD, policy=policy)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Measure, and print a line for each language, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--rounds", type=int, default=5, help="best of so many (default 5)")
    args = parser.parse_args()
    counted = Counted()
    tk.simulate(WORKLOAD, policy=counted)
    rust = cpu_seconds(lambda: f"rr:quantum={QUANTUM}ns,queue=global", args.rounds)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        c = c_policy(Path(folder))
        numba = numba_policy()
        makers: dict[str, Callable[[], Any] | None] = {
            "Python": RoundRobin,
            "C": (lambda: c) if c is not None else None,
            "numba": numba_policy if numba is not None else None,
        }
        for language, make in makers.items():
            if make is None:
                continue
            spent = cpu_seconds(make, args.rounds) - rust
            rows.append(
                {"language": language, "hooks": counted.hooks, "ns_per_hook": spent / counted.hooks * 1e9}
            )
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['language']:8} {row['ns_per_hook']:8.0f} ns a hook more than Rust ({row['hooks']} hooks)"
        )


if __name__ == "__main__":
    main()
