"""Wakeups that a timer made, in traces that do not say where a wakeup was made.

Text such as that of ``perf script`` has no interrupt flags: a timer's wakeup looks as if whoever
ran had made it. A replay that believes so ties the sleeper to a task that knows nothing of it.
`recognise` finds them by three signs, the first two of a task as a whole, each held against what a task
that wakes another would show, the third of one wakeup:

* the *sleep* is fixed: its lengths scatter little, and at least `RATIO` times less than the CPU
  time that the supposed waker had used since it woke itself (a task that wakes another does so at a
  point of its own program);
* the *waker is whoever runs*: sleeps differ, but each task is the waker as often as it had that CPU
  while the sleeper slept (chi-squared test, or a difference that is no large effect), and the CPU
  time it had used scatters `RATIO` times more than the sleep.

* the *sleep* is *round*: as long as somebody asked for, a multiple of `ROUND`, and a timer's slack, as
  at least half of the sleeps of this task are.

A sleep that is shorter than a timer's slack is no timer's, and a sleep in which one task had the CPU
says nothing: it is the waker by either account.

Where flags are recorded, they say of a message to a socket of the same machine (loopback) that a
softirq made the wakeup: the kernel delivers it in one, within the sender's own call. `delivered`
finds the tasks whose softirq wakeups come while certain tasks run and not whoever runs, idle
included, as those of a network card do.

Measured on captures with interrupt flags, read once with and once without them: see
``tests/test_contexts.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit import _core
from tracekit._irq import HARDIRQ, SOFTIRQ
from tracekit._lazy import later
from tracekit.units import format_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.trace import Trace
else:
    np = later("numpy")

__all__ = ["Contexts", "Messages", "delivered", "messages", "recognise", "softly"]

#: Fewest wakeups of a task from which anything is concluded: quartiles and the chi-squared test need some.
LEAST = 20
#: How many times more the supposed waker's own CPU time must scatter than the sleep. Between 2 and
#: 6 the captures of the tests give the same answer.
RATIO = 4.0
#: A sleep is fixed when the distance of its quartiles is at most this share of its median: timer
#: slack (50 us unless asked otherwise, prctl(2)) is that much of 500 us.
FIXED = 0.1
#: Slack of timers, ns, unless a task asks for another: no sleep on one is shorter (prctl(2)).
#: Without it, and with sleeps in which one task alone had the CPU, 15 % of the wakeups that were
#: recognised in 15 captures of a loaded machine, flags hidden, were an interrupt's; with both 94 %.
#: In 161 captures of the lab it is 99 % either way, of 92 and 88 % of the interrupts' wakeups.
SLACK = 50_000
#: The waker is whoever runs unless the test says otherwise at this level, and the difference is a
#: large effect: a long trace shows also that whoever the sleeper has just woken runs first.
LEVEL = 0.01
#: Cohen's w (square root of chi-squared over the number) from which an effect is large (J. Cohen,
#: Statistical power analysis for the behavioral sciences, 1988, section 7.2). Tasks that others
#: wake have 2 to 10. With the flags of 82 captures hidden, and without `SLACK`: of 46,488 wakeups
#: by interrupts 76 % were recognised without it and 92 % with it, of those recognised 99.5 and
#: 99.6 % were one; at 1 some servers of a pipe are taken for sleepers, 97 %.
EFFECT = 0.5
#: Classes with a smaller expectation than this are put together (the usual rule for the chi-squared
#: test), and so are all wakers beyond the most frequent.
EXPECTED, WAKERS = 5.0, 16

#: People ask for sleeps of whole multiples of this, ns (`sleep 0.1`, a poll of every second). A sleep of
#: twice that and more is one if it is longer by no more than `LATE` or shorter by no more than `EARLY`:
#: the timer is set before the task leaves its CPU, and fires up to its slack too late, and an
#: interrupt takes its time. By chance 1.7 % of all sleeps are so. In 40 fresh recordings of a machine
#: under load and 50 captures of the lab and of others, with flags: of 10,270 such sleeps that an
#: interrupt ended 75 %, of 9,076 that a task ended 2.6 %. Of what is recognised there with flags
#: hidden 508 of 526 are an interrupt's; with twice `LATE` 635 of 666, with half of `ROUND` 510 of 539.
ROUND, EARLY, LATE = 10_000_000, 20_000, 150_000

#: Threads of the kernel that softirqs wake for its own work; they have no sockets.
KERNEL = re.compile(r"kworker|ksoftirqd|rcu|kdamond|kswapd|kcompactd|jbd2")

#: Records that say who woke whom, in the order in which one is chosen.
_KINDS = ("waking", "wakeup", "enqueue")


_ROUNDS = {"tid": pl.Int64, "ts_ns": pl.Int64}


@dataclass(frozen=True)
class Contexts:
    """What a trace says, and what it does not, of the context of its wakeups.

    Attributes
    ----------
    stated : bool
        The source says of its wakeups whether an interrupt made them; then nothing is inferred.
    wakeups : int
        Wakeups credited to a running task.
    timers : polars.DataFrame
        Tasks that were recognised: ``tid`` (Int64), ``comm`` (String), ``n`` (UInt32, wakeups),
        ``sleep_ns`` (Float64, median), ``sign`` (String: ``fixed sleep``, ``waker is whoever
        runs`` or, where only some of its wakeups were, ``round sleep``). Empty when `stated`.
    linux : bool
        The trace is from Linux, where other formats state it.
    rounds : polars.DataFrame
        Wakeups of the tasks with the last sign that were recognised: ``tid`` and ``ts_ns`` (Int64).
    """

    stated: bool
    wakeups: int
    timers: pl.DataFrame
    linux: bool = True
    rounds: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_ROUNDS))

    @property
    def recognised(self) -> int:
        """Wakeups of the tasks in `timers`."""
        return int(self.timers["n"].sum())

    def apply(self, events: pl.DataFrame) -> pl.DataFrame:
        """Events in which the recognised wakeups are marked as made in an interrupt.

        Parameters
        ----------
        events
            Table `events` of the trace.
        """
        if self.timers.height == 0:
            return events
        always = self.timers.filter(pl.col("sign") != "round sleep")["tid"].to_list()
        once = pl.struct("tid", "ts_ns").is_in(self.rounds.to_struct().implode())
        woken = pl.col("kind").cast(pl.String).is_in(_KINDS) & (pl.col("tid").is_in(always) | once)
        flags = (
            pl.when(woken)
            .then(pl.lit(HARDIRQ, dtype=events.schema["irq_flags"]))
            .otherwise(pl.col("irq_flags"))
        )
        return events.with_columns(flags.alias("irq_flags"))

    def sentence(self) -> str | None:
        """What the trace does not say of its wakeups; None when it says all."""
        if self.stated or self.wakeups == 0:
            return None
        share = 100 * self.recognised / self.wakeups
        return (
            f"this trace does not say which wakeups interrupts made: {self.wakeups} are credited to whoever ran, "
            f"{self.recognised} of them ({share:.0f} %) were recognised as a timer's; others may be, too"
            + (". A trace.dat or perf.data of the same run says it" if self.linux else "")
        )


_TIMERS = {"tid": pl.Int64, "comm": pl.String, "n": pl.UInt32, "sleep_ns": pl.Float64, "sign": pl.String}


def recognise(trace: Trace) -> Contexts:
    """Find the tasks of a trace that a timer wakes, where the trace does not say so.

    Parameters
    ----------
    trace
        A trace; nothing is inferred when its wakeups have interrupt flags.

    Returns
    -------
    Contexts
        What is stated, and which tasks were recognised.
    """
    return trace.once("contexts", lambda: _recognise(trace))


def _recognise(trace: Trace) -> Contexts:
    events = trace.columns("events", "kind", "irq_flags", "ctx_tid")
    kinds = set(events["kind"].unique().cast(pl.String).to_list()) if events.height else set()
    kind = next((k for k in _KINDS if k in kinds), None)
    nothing = pl.DataFrame(schema=_TIMERS)
    linux = trace.metadata.get("os", "linux") == "linux"
    if kind is None:
        return Contexts(True, 0, nothing, linux)
    made = events.filter(pl.col("kind") == kind)
    stated = made["irq_flags"].null_count() < made.height
    by_task = pl.col("ctx_tid") > 0
    credited = made.filter(by_task)
    if stated or credited.height == 0:
        return Contexts(stated, credited.height, nothing, linux)
    who = trace.columns("events", "kind", "ts_ns", "tid", "cpu", "ctx_tid")
    wakes = _wakes(trace, who.filter(pl.col("kind") == kind, by_task))
    rows = []
    runs: _Runs | None = None
    for (tid,), group in wakes.group_by("tid", maintain_order=True):
        sleep = group["sleep_ns"].to_numpy().astype(float)
        own = group["own_ns"].to_numpy().astype(float)
        if (
            group.height < LEAST
            or float(np.median(sleep)) < SLACK
            or _spread(own) < RATIO * max(_spread(sleep), 1.0)
        ):
            continue
        median = float(np.median(sleep))
        sign = "fixed sleep" if _spread(sleep) <= FIXED * median else None
        if sign is None:
            runs = _Runs(trace.slices) if runs is None else runs
            sign = "waker is whoever runs" if _whoever_runs(group, runs) else None
        if sign is not None:
            rows.append((tid, group["comm"][-1], group.height, median, sign))
    timers = pl.DataFrame(rows, schema=_TIMERS, orient="row")
    whole = (pl.col("sleep_ns") + EARLY) % ROUND <= EARLY + LATE
    whole &= pl.col("sleep_ns") >= 2 * ROUND - EARLY
    others = wakes.join(timers, on="tid", how="anti")
    asked = others.filter(2 * whole.sum().over("tid") >= pl.len().over("tid"), whole)
    of = asked.group_by("tid", maintain_order=True).agg(
        pl.col("comm").last(), n=pl.len(), sleep_ns=pl.col("sleep_ns").median(), sign=pl.lit("round sleep")
    )
    timers = pl.concat([timers, of.select(pl.col(name).cast(kind) for name, kind in _TIMERS.items())])
    return Contexts(False, credited.height, timers, linux, asked.select("tid", ts_ns="wake_ts_ns"))


@dataclass(frozen=True)
class Messages:
    """Wakeups by messages through sockets of the same machine.

    Attributes
    ----------
    kind : str
        Kind of the records that say who woke whom.
    tids : tuple of int
        Who is woken so.
    n : int
        How many of all `of` wakeups are.
    of : int
        All wakeups.
    names : dict
        Thread to name, of all tasks.
    """

    kind: str
    tids: tuple[int, ...]
    n: int
    of: int
    names: dict[int, str | None]


def messages(trace: Trace) -> Messages | None:
    """Find the tasks that messages through sockets of the same machine wake.

    Parameters
    ----------
    trace
        The recorded trace.

    Returns
    -------
    Messages or None
        None where less than a hundredth of the wakeups are such, flags do not show it, or a workload
        text says itself why sleeps end.
    """
    return trace.once("messages", lambda: _messages(trace))


def _messages(trace: Trace) -> Messages | None:
    kinds = trace.columns("events", "kind")["kind"].unique().cast(pl.String).to_list()
    kind = next((k for k in _KINDS if k in kinds), None)
    if kind is None or "workload" in trace.metadata:
        return None
    events = trace.columns("events", "kind", "irq_flags", "tid", "ts_ns", "cpu", "ctx_tid")
    made = events.filter(pl.col("kind") == kind)
    # A disk's softirq comes while others run, too; who waits for it cannot be interrupted.
    disk = trace.slices.filter("blocked").select("tid", pl.col("wake_ts_ns").alias("ts_ns"))
    soft = made.filter(softly()).join(disk, on=["tid", "ts_ns"], how="anti")
    often = soft.group_by("tid").len().filter(pl.col("len") >= LEAST)
    if 100 * int(often["len"].sum()) < made.height:
        return None
    names = dict(trace.tasks.select("tid", pl.col("comm").cast(pl.String)).iter_rows())
    counts = {t: n for t, n in often.iter_rows() if not KERNEL.match(names.get(t) or "")}
    slept = trace.slices.filter(pl.col("sleep_ns") > 0, pl.col("tid").is_in(list(counts)))
    waker = pl.col("ctx_tid").fill_null(0).alias("waker")
    who = soft.select("tid", pl.col("ts_ns").alias("wake_ts_ns"), "cpu", waker)
    wakes = slept.select("tid", "wake_ts_ns", "sleep_ns").join(
        who.unique(["tid", "wake_ts_ns"], keep="first"), on=["tid", "wake_ts_ns"]
    )
    runs = _Runs(trace.slices)
    found = [int(tid) for (tid,), group in wakes.group_by("tid", maintain_order=True) if _sent(group, runs)]
    n = sum(counts[t] for t in found)
    return Messages(kind, tuple(found), n, made.height, names) if 100 * n >= made.height else None


def softly() -> pl.Expr:
    """Whether a softirq made a record, and no hardware interrupt."""
    flags = pl.col("irq_flags").fill_null(0)
    return (flags & SOFTIRQ != 0) & (flags & HARDIRQ == 0)


def delivered(trace: Trace) -> str | None:
    """Say which tasks are woken by messages through sockets of the same machine.

    A replay takes their sleeps for a device's.

    Parameters
    ----------
    trace
        The recorded trace.

    Returns
    -------
    str or None
        A sentence; None where `messages` finds nothing.
    """
    found = messages(trace)
    if found is None:
        return None
    called = format_names(sorted({found.names.get(t) or f"thread {t}" for t in found.tids}))
    return (
        f"{found.n} wakeups ({100 * found.n / found.of:.0f} %) of {called} came in softirqs of those who "
        "ran, as messages through sockets of the same machine do: a replay takes these sleeps for a device's and keeps "
        "their length, so that under another policy they do not follow their senders"
    )


def _sent(group: pl.DataFrame, runs: _Runs) -> bool:
    """Whether certain tasks wake the one of `group`, and not whoever runs."""
    observed, expected = _wakers(group, runs, idle=True)
    n = sum(observed.values())
    # No task runs on a CPU that idles, so that none sends from there.
    return n >= LEAST and observed.get(0, 0.0) <= LEVEL * n and not _agrees(observed, expected, fewest=2)


def _spread(values: NDArray[np.float64]) -> float:
    low, high = np.percentile(values, [25, 75])
    return float(high - low)


def _wakes(trace: Trace, credited: pl.DataFrame) -> pl.DataFrame:
    """One row per wakeup out of a sleep that a running task is credited with.

    ``tid``, ``comm``, ``wake_ts_ns``, ``cpu`` and ``waker`` (the thread that ran there),
    ``sleep_ns``, ``own_ns``: CPU time that the waker had used since it last woke itself, or since
    the trace began.
    """
    slices = trace.slices
    slept = slices.filter(pl.col("sleep_ns").is_not_null() & (pl.col("sleep_ns") > 0))
    woken = slept.select("tid", pl.col("comm").cast(pl.String), "wake_ts_ns", "sleep_ns")
    who = credited.select("tid", pl.col("ts_ns").alias("wake_ts_ns"), "cpu", pl.col("ctx_tid").alias("waker"))
    wakes = woken.join(who.unique(["tid", "wake_ts_ns"], keep="first"), on=["tid", "wake_ts_ns"])
    before = pl.col("dur_ns").cum_sum().over("tid") - pl.col("dur_ns")
    used = (
        slices.sort("ts_ns")
        .select("tid", "ts_ns", "sleep_ns", before.alias("before"))
        .with_columns(
            pl.when(pl.col("sleep_ns").is_not_null())
            .then("before")
            .forward_fill()
            .over("tid")
            .fill_null(0)
            .alias("woke")
        )
        .select(
            pl.col("tid").alias("waker"),
            "ts_ns",
            (pl.col("before") - pl.col("woke") - pl.col("ts_ns")).alias("own"),
        )
    )
    joined = wakes.sort("wake_ts_ns").join_asof(
        used, left_on="wake_ts_ns", right_on="ts_ns", by="waker", strategy="backward", check_sortedness=False
    )
    own = (pl.col("own") + pl.col("wake_ts_ns")).alias("own_ns")
    return joined.with_columns(own).drop_nulls("own_ns")


class _Runs:
    """CPU time of each thread on each CPU, up to any moment."""

    def __init__(self, slices: pl.DataFrame) -> None:
        self._of: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = {}
        self.tids: dict[int, list[int]] = {}
        rows = slices.select("cpu", "tid", "ts_ns", "dur_ns").drop_nulls().sort("ts_ns")
        for key, group in rows.group_by("cpu", "tid", maintain_order=True):
            cpu, tid = int(key[0]), int(key[1])
            length = group["dur_ns"].to_numpy()
            self._of[cpu, tid] = group["ts_ns"].to_numpy(), np.concatenate([[0], np.cumsum(length)]), length
            self.tids.setdefault(cpu, []).append(tid)

    def between(
        self, cpu: int, tid: int, low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """CPU time of a thread on a CPU in each interval."""
        return (self._until(cpu, tid, high) - self._until(cpu, tid, low)).astype(float)

    def _until(self, cpu: int, tid: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
        begin, total, length = self._of[cpu, tid]
        last = np.maximum(np.searchsorted(begin, at, side="right") - 1, 0)
        inside = np.clip(at - begin[last], 0, length[last])
        found: NDArray[np.int64] = total[last] + inside
        return found


def _whoever_runs(group: pl.DataFrame, runs: _Runs) -> bool:
    """Whether the wakers of a task are those who had the CPU.

    As often as they had it while the task slept.
    """
    observed, expected = _wakers(group, runs)
    return sum(observed.values()) >= LEAST and _agrees(observed, expected)


def _wakers(
    group: pl.DataFrame, runs: _Runs, idle: bool = False
) -> tuple[dict[int, float], dict[int, float]]:
    """How often each task woke the one of `group`, and would have, were it whoever runs.

    Sleeps in which one had the CPU alone are left out. With `idle`, an idle CPU (0) is one of them.
    """
    observed: dict[int, float] = {}
    expected: dict[int, float] = {}
    for (cpu,), part in group.group_by("cpu", maintain_order=True):
        tids = runs.tids.get(int(cpu), []) if cpu is not None else []
        frequent = [t for t, _ in _most(part["waker"].to_list(), WAKERS)]
        high = part["wake_ts_ns"].to_numpy()
        low = high - part["sleep_ns"].to_numpy()
        busy = {t: runs.between(int(cpu), t, low, high) for t in tids}
        if idle:
            busy[0] = np.maximum(high - low - sum(busy.values(), np.zeros(part.height)), 0.0)
            frequent.append(0)
        if not busy:
            continue
        total = sum(busy.values(), np.zeros(part.height))
        most = np.max(np.stack(list(busy.values())), axis=0)
        seen = (total > 0) & (most < total)
        for tid, time in busy.items():
            name = tid if tid in frequent else -1
            expected[name] = expected.get(name, 0.0) + float((time[seen] / total[seen]).sum())
        for tid in part.filter(pl.Series(seen))["waker"].to_list():
            name = tid if tid in frequent else -1
            observed[name] = observed.get(name, 0.0) + 1.0
    return observed, expected


def _most(values: Iterable[int], number: int) -> list[tuple[int, int]]:
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))[:number]


def _agrees(observed: dict[int, float], expected: dict[int, float], fewest: int = 3) -> bool:
    """Chi-squared test with small classes put together.

    False when fewer than `fewest` classes are left.
    """
    large = [k for k, v in expected.items() if v >= EXPECTED and k != -1]
    rest = [k for k in {*observed, *expected} if k not in large]
    classes = [(observed.get(k, 0.0), expected[k]) for k in large]
    classes.append((sum(observed.get(k, 0.0) for k in rest), sum(expected.get(k, 0.0) for k in rest)))
    # A class that nothing was expected in, and something was found in, is a waker of its own.
    if classes[-1][1] < 1.0:
        if classes[-1][0] > EXPECTED:
            return False
        classes.pop()
    if len(classes) < fewest:
        return False
    distance = sum((o - e) ** 2 / e for o, e in classes)
    small = distance < EFFECT**2 * sum(o for o, _ in classes)
    return small or _core.chi_square_tail(len(classes) - 1, distance) > LEVEL
