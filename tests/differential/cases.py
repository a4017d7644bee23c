"""Which policies are held against which models, on which workloads."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import tracekit as tk

from . import models as m
from . import models_bsd as bsd
from . import models_linux as linux
from . import models_others as others
from . import models_rt as rt
from . import smp
from .engine import SECOND, Case, difference, long_sleeps, real_time, reserved, some_idle, threads

NICES = (0, 0, 0, 5, 10, 19, -5, -20)

CASES = {
    "rr": Case("rr:quantum=10ms", m.RoundRobin, "textbook"),
    "mlfq": Case(
        "mlfq:quanta=10ms/20ms/40ms,boost=0s", m.Feedback, "Three Easy Pieces, chapter 8", until=SECOND - 1000
    ),
    "goodness 2.0.40": Case(
        "goodness:version=2.0.40", m.Goodness, "Linux 2.0.40", 100, nices=NICES, until=6 * SECOND
    ),
    "goodness 2.2.1": Case(
        "goodness:version=2.2.1", m.Goodness22, "Linux 2.2.1", 100, nices=NICES, until=6 * SECOND
    ),
    "goodness 2.4.17": Case(
        "goodness:version=2.4.17", m.Goodness24, "Linux 2.4.17", 100, nices=NICES, until=6 * SECOND
    ),
    "goodness 2.4.3": Case(
        "goodness:version=2.4.3",
        m.Goodness243,
        "patches against Linux 2.4.3",
        100,
        nices=NICES,
        until=6 * SECOND,
        draw=threads,
    ),
    "goodness 2.4.17, threads": Case(
        "goodness:version=2.4.17",
        m.Goodness24,
        "Linux 2.4.17",
        100,
        nices=NICES,
        until=6 * SECOND,
        draw=threads,
    ),
    "o1": Case("o1", m.O1, "Linux 2.6.20", nices=NICES),
    "4bsd": Case(
        "4bsd:stathz=97",
        bsd.Bsd4,
        "FreeBSD of 2024, sched_4bsd.c and kern_synch.c",
        100,
        97,
        (0, 0, 0, 5, 10, 19, -5),
        until=9 * SECOND,
    ),
    "4bsd, long sleeps": Case(
        "4bsd:stathz=97",
        bsd.Bsd4,
        "FreeBSD of 2024, sched_4bsd.c and kern_synch.c",
        100,
        97,
        until=60 * SECOND,
        most=5,
        draw=long_sleeps,
    ),
    "ule 2022": Case(
        "ule:version=2022,stathz=97",
        bsd.Ule,
        "FreeBSD of 2022, sched_ule.c",
        1000,
        97,
        (0, 0, 0, 5, 10, 19, -5, -20),
        until=9 * SECOND,
    ),
    "ule 2022, long sleeps": Case(
        "ule:version=2022,stathz=97",
        bsd.Ule,
        "FreeBSD of 2022, sched_ule.c",
        1000,
        97,
        until=60 * SECOND,
        most=5,
        draw=long_sleeps,
    ),
    "ule 2004": Case(
        "ule:version=2004,stathz=97",
        bsd.Ule2004,
        "FreeBSD of December 2004, sched_ule.c",
        1000,
        97,
        (0, 0, 0, 5, 10, 19, -5, -20),
        until=9 * SECOND,
    ),
    "ule 2004, long sleeps": Case(
        "ule:version=2004,stathz=97",
        bsd.Ule2004,
        "FreeBSD of December 2004, sched_ule.c",
        1000,
        97,
        until=60 * SECOND,
        most=5,
        draw=long_sleeps,
    ),
    "solaris-ts": Case(
        "solaris-ts",
        m.SolarisTs,
        "OpenSolaris, ts.c",
        100,
        nices=(0, 0, 5, 10, 19, -5),
        until=9 * SECOND,
    ),
    "aix": Case(
        "aix:formula=old",
        m.Aix,
        "performance guide; no public source",
        100,
        nices=(0, 0, 5, 10, 19, -5),
        until=9 * SECOND,
    ),
    "eevdf 6.12": Case(
        "eevdf:version=6.12,base_slice=700us",
        linux.Eevdf,
        "Linux 6.12.117",
        nices=NICES,
        until=1500 * 1_000_000,
        most=6,
        draw=some_idle,
    ),
    "rt": Case("rt", rt.RealTime, "Linux 6.1.192", 1000, until=5 * SECOND, draw=real_time),
    "deadline": Case("deadline", rt.Deadline, "Linux 6.12.117", 1000, most=6, draw=reserved),
    "bfs": Case("bfs", linux.Bfs, "BFS 0.480", 1000, nices=NICES, draw=some_idle),
    "fifo": Case("fifo", others.FirstCome, "textbook"),
    "srpt": Case("srpt", others.ShortestRemaining, "Schrage 1968"),
    "srpt, shortest job first": Case("srpt:preempt=off", others.ShortestJob, "textbook"),
    "scx-simple": Case("scx-simple", others.ScxSimple, "Linux 6.12.117", 1000, nices=NICES, until=6 * SECOND),
    "nt4": Case(
        "nt4", others.Nt4, "published descriptions; no public source", 100, nices=NICES, until=9 * SECOND
    ),
    "cfs 6.1": Case("cfs", linux.Cfs, "Linux 6.1.192", nices=NICES, until=1500 * 1_000_000),
}


def quanta(text: str, quantum_ns: int) -> list[str]:
    """Names of who ran, one for each quantum."""
    slices = tk.simulate(text).slices
    return [
        str(name)
        for name, ns in zip(slices["comm"], slices["dur_ns"], strict=True)
        for _ in range(round(ns / quantum_ns))
    ]


def stride_differs(seed: int) -> str | None:
    """Waldspurger and Weihl 1995: the least pass is next, and passes grow by strides of 2^20 over tickets."""
    rnd = random.Random(seed)
    tickets = {chr(65 + i): rnd.randint(1, 200) for i in range(rnd.randint(2, 7))}
    lines = "\n".join(f"{name} tickets={n}: R∞" for name, n in tickets.items())
    text = f"policy: stride:quantum=10ms\n{lines}\nuntil: 4000"
    stride = {name: (1 << 20) // n for name, n in tickets.items()}
    passes, expected = dict(stride), []
    for _ in range(390):
        name = min(passes, key=lambda n: (passes[n], n))
        expected.append(name)
        passes[name] += stride[name]
    return None if quanta(text, 10_000_000)[:390] == expected else text


def lottery_differs(seed: int) -> str | None:
    """Waldspurger and Weihl 1994: the minimal standard generator, and the first client whose sum
    exceeds the draw."""
    tickets = {"A": 10, "B": 30, "C": 60}
    lines = "\n".join(f"{name} tickets={n}: R∞" for name, n in tickets.items())
    text = f"policy: lottery:quantum=10ms,seed={seed + 1}\n{lines}\nuntil: 5000"
    state, clients, expected = seed + 1, list(tickets), []
    for _ in range(480):
        state = 16807 * state % (2**31 - 1)
        left = state % sum(tickets.values())
        for name in clients:
            if left < tickets[name]:
                break
            left -= tickets[name]
        # The winner goes behind the others.
        clients.remove(name)
        clients.append(name)
        expected.append(name)
    return None if quanta(text, 10_000_000)[:480] == expected else text


#: Of each row of the table: the policy as it is written, what the model was written from, and what
#: tells how the schedules of one random workload differ.
ROWS: dict[str, tuple[str, str, Callable[[int], str | None]]] = (
    {name: (case.policy, case.source, partial(difference, case)) for name, case in CASES.items()}
    | {
        name: (f"{case.policy} cpus={case.cpus}", case.source, partial(smp.difference, case))
        for name, case in smp.CASES.items()
    }
    | {
        "stride": ("stride:quantum=10ms", "Waldspurger and Weihl 1995", stride_differs),
        "lottery": ("lottery:quantum=10ms", "Waldspurger and Weihl 1994", lottery_differs),
    }
)
