"""The main metric of each workload of the lab, from the tables of a trace or a replay alone.

The same function measures capture A, capture B and the replay. What the workload itself logged is
used to check these functions (`validation.run` prints that check), never to compute them. Searches and
requests can only be estimated from a recording; a replay that knows them says when each was sent and done.
Of recorded requests `validation.several` takes what the workload logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from tracekit.analysis import response
from tracekit.trace import Trace

__all__ = ["METRICS", "Figure", "Refused", "measure", "subject"]


class Refused(Exception):
    """The figure cannot be had from this trace; the text says which events a new capture needs."""


@dataclass(frozen=True)
class Figure:
    """A measured figure.

    Attributes
    ----------
    value
        In the unit that the name of the metric ends with.
    n
        Samples behind it.
    note
        What had to be assumed; empty when nothing was.
    samples
        What it is the mean of, in time order, where it is a mean of what varies.
    """

    value: float
    n: int
    note: str = ""
    samples: tuple[float, ...] = ()


def _of(table: pl.DataFrame, names: str) -> pl.DataFrame:
    """Rows of the tasks whose name fits the regular expression."""
    return table.filter(pl.col("comm").cast(pl.String).str.contains(names))


def _mean(values: list[float] | pl.Series, unit_ns: float, what: str, note: str = "") -> Figure:
    known = [v for v in values if v is not None]
    if not known:
        raise Refused(f"the trace holds no {what}")
    return Figure(sum(known) / len(known) / unit_ns, len(known), note, tuple(known))


def mean_slice(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """CPU time of the spinners per involuntary switch, us."""
    rows = _of(trace.slices, r"^spin\d")
    switches = rows.filter(pl.col("involuntary")).height
    if switches == 0:
        raise Refused("no spinner was preempted in the time of the trace: a longer capture is needed")
    slices = rows.filter(pl.col("involuntary")).sort("ts_ns")["dur_ns"]
    return Figure(int(rows["dur_ns"].sum()) / switches / 1e3, switches, samples=tuple(slices))


def mean_fork(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Mean time from one fork of the forker to its next, us; the workload does nothing else."""
    forks = trace.events.filter(pl.col("kind") == "fork")
    of = forks.group_by("ctx_tid").agg(pl.col("ts_ns").sort(), pl.len().alias("n")).sort("n")
    if of.height == 0:
        raise Refused("the trace holds no fork events: a capture with sched_process_fork is needed")
    times = of["ts_ns"].to_list()[-1]
    # Sleepers and hogs are made by the same task before the measured part; the last `n` forks are
    # the measured ones.
    wanted = int(arguments.get("n", 300))
    if len(times) < wanted:
        raise Refused(f"only {len(times)} of {wanted} forks happened in the time of the run")
    times = times[-wanted:]
    return _mean([b - a for a, b in pairwise(times)], 1e3, "fork")


#: Tasks that sleep and answer, of all workloads that have them.
ANSWERING = r"^(inter|g\dint)\d"


def mean_response(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Mean time from the wakeup of an interactive task until it sleeps again, us."""
    rows = response.samples(trace.slices, trace.states, trace.end_ns)
    rows = _of(rows, ANSWERING).filter(pl.col("status") == "complete").sort("utid", "wake_ts_ns")
    # The first is the way from the fork to the gate, the second from the gate to the first sleep.
    born = trace.events.filter(pl.col("kind") == "wakeup_new")["ts_ns"].max()
    rows = rows.filter(pl.col("wake_ts_ns") > born)
    rows = rows.filter(pl.col("wake_ts_ns") > pl.col("wake_ts_ns").min().over("utid")).sort("wake_ts_ns")
    return _mean(rows["response_ns"], 1e3, "response of an interactive task")


def yield_time(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Time from the opening of the gate until the last task has ended, per yield, us."""
    rows = _of(trace.slices, r"^yield\d")
    gate = rows.filter(pl.col("wake_ts_ns").is_not_null())
    start = gate.group_by("utid").agg(pl.col("wake_ts_ns").max())["wake_ts_ns"].min()
    if start is None:
        raise Refused("no wakeup of the yielding tasks is in the trace")
    end = (rows["ts_ns"] + rows["dur_ns"]).max()
    yields = int(arguments.get("np", 40)) * int(arguments.get("iters", 200))
    return Figure((end - start) / yields / 1e3, yields)


@dataclass
class _Burst:
    """What a task did from one wakeup until it slept."""

    wake: int
    waker: str
    end: int
    run: int
    parts: list[tuple[int, int]]


def _bursts(trace: Trace, names: str) -> dict[int, list[_Burst]]:
    comm = dict(trace.tasks.select("utid", pl.col("comm").cast(pl.String)).iter_rows())
    found: dict[int, list[_Burst]] = {}
    columns = ("utid", "ts_ns", "dur_ns", "wake_ts_ns", "waker_utid")
    for utid, ts, dur, wake, waker in _of(trace.slices, names).select(columns).sort("ts_ns").iter_rows():
        bursts = found.setdefault(utid, [])
        if wake is not None or not bursts:
            bursts.append(_Burst(wake if wake is not None else ts, comm.get(waker) or "", 0, 0, []))
        burst = bursts[-1]
        burst.end = ts + dur
        burst.run += dur
        burst.parts.append((ts, dur))
    return found


def _at(burst: _Burst, run: float) -> int:
    """When the burst had run for so long."""
    for ts, dur in burst.parts:
        if run <= dur:
            return int(ts + run)
        run -= dur
    return burst.end


UNOBSERVED = (
    "messages were taken from pipes without a wakeup, so that {what}; a capture with the read and write system calls "
    "(sys_enter_read, sys_exit_read, sys_enter_write, sys_exit_write) shows them"
)


def _arrivals(trace: Trace, wanted: int, lost: float = 0.02) -> tuple[list[int], int]:
    """When the generator was woken by its timer, and how many arrivals had to be assumed."""
    own = [s for bursts in _bursts(trace, r"^gen0$").values() for s in bursts]
    # Its birth and the gate are wakeups by its parent.
    timed = [(s.wake, s.run) for s in own if not s.waker.startswith("wl")][-wanted:]
    times = [wake for wake, _ in timed]
    missing = wanted - len(timed)
    if missing > max(2, wanted * lost):
        raise Refused(UNOBSERVED.format(what=f"{missing} of {wanted} arrivals cannot be seen"))
    # Two arrivals closer together than one write takes wake the generator once: its longest bursts,
    # but for the last, at the end of which it exits.
    times += [wake for wake, _ in sorted(timed[:-1], key=lambda s: -s[1])[:missing]]
    return sorted(times), missing


def _replies(trace: Trace) -> tuple[list[int], int]:
    """When searches were answered, and how many of these moments had to be assumed."""
    wakes: dict[str, list[int]] = {}
    for bursts in _bursts(trace, r"^E0$").values():
        for burst in bursts:
            wakes.setdefault(burst.waker, []).append(burst.wake)
    comm = dict(trace.tasks.select("utid", pl.col("comm").cast(pl.String)).iter_rows())
    replies: list[int] = []
    assumed = 0
    servers = _bursts(trace, r"^A\d")
    runs = sorted(s.run for bursts in servers.values() for s in bursts)
    # Woken for a search that another has taken, a server runs for some us, not for some ms.
    served = runs[len(runs) // 2] / 2 if runs else 0.0
    for utid, bursts in servers.items():
        of_e = wakes.get(comm[utid], [])
        for burst, after in zip(bursts, [*bursts[1:], None], strict=True):
            seen = [t for t in of_e if burst.wake < t <= burst.end]
            replies += seen
            if not seen and after is not None and burst.waker == after.waker == "gen0" and burst.run > served:
                # B had answered before the server looked: a whole search in one burst.
                replies.append(burst.end)
                assumed += 1
            if seen or not burst.waker.startswith("B"):
                continue
            # Woken by B: the second half of a search. When B wakes it again, the first half of
            # another followed.
            if after is not None and after.waker.startswith("B"):
                replies.append(_at(burst, burst.run / 2))
                assumed += 1
            else:
                replies.append(burst.end)
    return sorted(replies), assumed


#: A response so many times as long as the median is of a search that was mixed up with another;
#: least share of searches that must be followed to their reply.
FAR = 8
FOLLOWED = 0.9


@dataclass
class _Reported:
    """Arrivals and replies that a replay reports, and response times of searches that can be followed."""

    arrivals: list[int]
    replies: list[int]
    times: list[int]


def _reported(trace: Trace) -> _Reported:
    """Searches as a replay reports them; nothing for a recording."""
    names = [pl.col(c).cast(pl.String).alias(c) for c in ("ctx_comm", "comm")]
    sent = trace.events.filter((pl.col("kind") == "other") & (pl.col("name").cast(pl.String) == "message"))
    sent = sent.select("ts_ns", *names, request="value").sort("ts_ns")
    arrived = sent.filter(pl.col("ctx_comm") == "gen0")
    replied = sent.filter(pl.col("ctx_comm").str.contains(r"^A\d") & (pl.col("comm") == "E0"))
    found = _Reported(arrived["ts_ns"].to_list(), replied["ts_ns"].to_list(), [])
    arrived, replied = (x.filter(pl.col("request").is_not_null()) for x in (arrived, replied))
    arrived = arrived.group_by("request").agg(pl.col("ts_ns").min())
    # A request that is answered twice was taken for another.
    replied = replied.group_by("request").agg(pl.col("ts_ns").max().alias("reply_ns"), pl.len())
    replied = replied.filter(pl.col("len") == 1)
    both = arrived.join(replied, on="request").with_columns(time=pl.col("reply_ns") - pl.col("ts_ns"))
    found.times = both.filter(pl.col("time") > 0).sort("ts_ns")["time"].to_list()
    return found


def _early(arrivals: list[int], replies: list[int]) -> int:
    """Replies that come before so many searches have arrived, of as many as arrive."""
    return sum(r < a for r, a in zip(replies, arrivals, strict=True))


def mean_search(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Mean time from the arrival of a search until its reply, ms.

    The figure is the sum of all replies less the sum of all arrivals, over their number: which
    belongs to which does not matter, but both must be complete, and no reply may come before so
    many searches have arrived. Where they are not complete in a replay that knows messages, it says
    which reply belongs to which arrival; searches that it cannot distinguish are left out and counted in
    the note.
    """
    wanted = int(arguments.get("n", 600))
    reported = _reported(trace)
    complete = len(reported.arrivals) == len(reported.replies) == wanted
    if complete and not _early(reported.arrivals, reported.replies):
        mean = (sum(reported.replies) - sum(reported.arrivals)) / wanted / 1e6
        return Figure(mean, wanted, samples=tuple(reported.times))
    times = reported.times
    if times:
        # So far beyond the others, its messages were taken for those of another search.
        longest = FAR * sorted(times)[len(times) // 2]
        times = [t for t in times if t <= longest]
        if len(times) < wanted * FOLLOWED:
            what = f"only {len(times)} of {wanted} searches can be followed to their reply"
            raise Refused(UNOBSERVED.format(what=what))
        note = (
            ""
            if len(times) == wanted
            else f"{wanted - len(times)} searches cannot be followed to their reply"
        )
        return _mean(times, 1e6, "search", note)
    arrivals, missing = _arrivals(trace, wanted)
    replies, assumed = _replies(trace)
    if len(replies) != wanted:
        raise Refused(UNOBSERVED.format(what=f"{len(replies)} replies to {wanted} searches are found"))
    if early := _early(arrivals, replies):
        raise Refused(UNOBSERVED.format(what=f"{early} replies would come before their search has arrived"))
    note = "" if assumed + missing == 0 else f"{assumed} replies and {missing} arrivals placed within a burst"
    return Figure((sum(replies) - sum(arrivals)) / wanted / 1e6, wanted, note)


def _busy_periods(bursts: list[_Burst]) -> list[tuple[int, int]]:
    """Times in which somebody of a server is awake, from one moment with nothing to do to the next."""
    found: list[tuple[int, int]] = []
    for burst in sorted(bursts, key=lambda s: s.wake):
        if found and burst.wake <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], burst.end)
        else:
            found.append((burst.wake, burst.end))
    return found


def _requests_done(bursts: list[_Burst], n: int) -> list[int]:
    """When `n` requests were done.

    One at the end of each of the workers' `bursts`, the others evenly within the longest.
    """
    if not bursts:
        return []
    each = [1] * len(bursts)
    for _ in range(n - len(bursts)):
        best = max(range(len(bursts)), key=lambda i: bursts[i].run / (each[i] + 0.5))
        each[best] += 1
    kept = sorted(range(len(bursts)), key=lambda i: -bursts[i].run)[:n]
    return [_at(bursts[i], bursts[i].run * (j + 1) / each[i]) for i in kept for j in range(each[i])]


def _served(trace: Trace) -> pl.DataFrame:
    """What workers took in a replay: when it was sent and when it was done; empty for a recording."""
    kept = trace.events.filter(pl.col("kind") == "other").with_columns(pl.col("name", "comm").cast(pl.String))
    # A replay that is done early begins again: the first time counts.
    kept = kept.unique(("name", "value2"), keep="first", maintain_order=True)
    sent = kept.filter(pl.col("name") == "message").select("value2", sent_ns="ts_ns")
    done = kept.filter(pl.col("name") == "served", pl.col("comm").str.contains(r"^work\d"))
    return done.select("value2", done_ns="ts_ns").join(sent, on="value2")


def _passed_on(trace: Trace, arrivals: list[int], sent: list[int]) -> float:
    """Mean time from the arrival of a request until the dispatcher sends it on, ns.

    Those that arrive and those that are sent in one time in which the dispatcher or the generator is awake
    belong together; where they are not as many, since a message was not seen, their means are compared.
    """
    bursts = [s for found in _bursts(trace, r"^(disp0|gen0)$").values() for s in found]
    total, n = 0.0, 0
    for begin, end in _busy_periods(bursts):
        here, there = ([t - begin for t in of if begin <= t <= end] for of in (arrivals, sent))
        if here and there:
            total += len(here) * (sum(there) / len(there)) - sum(here)
            n += len(here)
    return total / max(n, 1)


def mean_request(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Mean time from the arrival of a request at the server until its worker has done it, us.

    Which request a worker takes is not in the trace. As many are done as arrive between two moments
    at which the whole server sleeps; within such a busy period a worker that is awake has done one
    when it falls asleep, and one more for each time that its CPU time holds another. The mean is
    the sum of all ends less the sum of all arrivals, over their number. A replay that knows which
    messages the workers took says when each was done.
    """
    wanted = int(arguments.get("n", 300))
    arrivals, missing = _arrivals(trace, wanted, 0.15)
    served = _served(trace)
    if served.height:
        n = min(served.height, wanted)
        if n < wanted * FOLLOWED:
            raise Refused(f"only {n} of {wanted} requests are done in the time of the run")
        took = (served["done_ns"] - served["sent_ns"]).to_list()
        return Figure(
            (sum(took) / len(took) + _passed_on(trace, arrivals, served["sent_ns"].to_list())) / 1e3, n
        )
    # Woken for a request that another has taken, a worker runs for some us.
    least = 0.4e3 * float(arguments.get("svc", 2000))
    workers = [s for found in _bursts(trace, r"^work\d").values() for s in found]
    others = [s for found in _bursts(trace, r"^(disp0|gen0)$").values() for s in found]
    busy = [s for s in workers if s.run >= least]
    total, n = 0, 0
    for begin, end in _busy_periods(workers + others):
        here = [t for t in arrivals if begin <= t <= end]
        done = _requests_done([s for s in busy if begin <= s.wake <= end], len(here))
        if len(done) == len(here):
            total += sum(done) - sum(here)
            n += len(here)
    if n < wanted * FOLLOWED:
        raise Refused(f"only {n} of {wanted} requests are done in the time of the run")
    note = "" if n == wanted and not missing else f"{wanted - n + missing} requests cannot be followed"
    return Figure(total / n / 1e3, n, note)


def group_share(trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Share of group 0 in the CPU time of all groups, while all of their tasks exist."""
    rows = _of(trace.slices, r"^g\d(hog|int)\d")
    begin = (
        rows.filter(pl.col("wake_ts_ns").is_not_null())
        .group_by("utid")
        .agg(pl.col("ts_ns").max())["ts_ns"]
        .max()
    )
    ends = rows.group_by("utid").agg((pl.col("ts_ns") + pl.col("dur_ns")).max().alias("end"))["end"].min()
    if begin is None or ends is None or not begin < ends:
        raise Refused("no tasks of groups are in the trace")
    inside = rows.filter(pl.col("ts_ns") >= begin, pl.col("ts_ns") < ends)
    both = inside.group_by(pl.col("comm").cast(pl.String).str.slice(0, 2).alias("group")).agg(
        pl.col("dur_ns").sum()
    )
    share = dict(both.iter_rows())
    total = sum(share.values())
    if not total:
        raise Refused("no task of a group runs in the time of the trace")
    return Figure(share.get("g0", 0) / total, inside.height)


METRICS: dict[str, Callable[[Trace, Mapping[str, str]], Figure]] = {
    "mean_slice_us": mean_slice,
    "mean_fork_us": mean_fork,
    "mean_response_us": mean_response,
    "mean_response_ms": mean_search,
    "yield_us": yield_time,
    "mean_request_us": mean_request,
    "group0_share": group_share,
}


#: Whose demand each figure is made of.
SUBJECTS = {
    "mean_slice_us": r"^spin\d",
    "mean_fork_us": r"^(forker|exe|wlchild)$",
    "mean_response_us": ANSWERING,
    "mean_request_us": r"^(work\d|disp0|gen0)",
    "group0_share": r"^g\d(hog|int)\d",
    "mean_response_ms": r"^[A-F]\d",
    "yield_us": r"^yield\d",
}


def subject(metric: str, program: pl.DataFrame) -> pl.DataFrame:
    """Rows of the table `program` of the tasks that a figure is about."""
    return _of(program, SUBJECTS[metric])


def measure(metric: str, trace: Trace, arguments: Mapping[str, str]) -> Figure:
    """Measure a figure.

    Parameters
    ----------
    metric
        A key of `METRICS`.
    trace
        Recorded or replayed.
    arguments
        Those of the workload; only its size is used.

    Returns
    -------
    Figure
        The figure.

    Raises
    ------
    Refused
        When the trace does not hold what is needed.
    """
    return METRICS[metric](trace, arguments)
