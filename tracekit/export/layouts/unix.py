"""Texts of AIX (`trcrpt`), FreeBSD (KTR) and tracekit's own DTrace scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracekit.export.layouts.records import Record, Thread

__all__ = ["DTRACE_KINDS", "KTR_KINDS", "TRCRPT_KINDS", "dtrace", "ktr", "trcrpt"]

DTRACE_KINDS = frozenset(("switch", "wakeup", "wakeup_new", "enqueue", "fork", "exec", "exit", "prio"))
KTR_KINDS = frozenset(("switch", "wakeup", "wakeup_new", "enqueue", "prio"))
TRCRPT_KINDS = frozenset(("switch", "wakeup", "wakeup_new", "enqueue", "fork", "exec", "exit", "prio"))

#: States in which a thread that leaves a CPU is ready.
READY = ("preempted", "yielding", "runnable", "running")
_ENDED = ("dead", "zombie")


def _prio(thread: Thread, otherwise: int) -> int:
    return otherwise if thread.prio is None else thread.prio


def dtrace(found: Iterable[Record], cpus: int) -> Iterator[str]:
    """Text as tracekit's script for FreeBSD prints it: one record a line, threads by number."""
    last = None
    for r in found:
        if last is None:
            yield _dtrace_header(r.ts_ns)
        for event, subject, x, y, z in _probes(r):
            who, whom = _dtrace_thread(r.current, r.cpu), _dtrace_thread(subject, r.cpu)
            names = f"{_dtrace_name(r.current, r.cpu)}\t{_dtrace_name(subject, r.cpu)}"
            yield f"T1\t{r.ts_ns}\t{r.cpu}\t{event}\t{who}\t{whom}\t{x}\t{y}\t{z}\t{names}\n"
        last = r.ts_ns
    if last is None:
        yield _dtrace_header(last := 0)
    yield f"#TKE\t{last}\t{last}\n"


def _dtrace_header(start_ns: int) -> str:
    """Version, system, when the script began (no wall clock), how threads are distinguished; probes."""
    return f"#TKD\t1\tfreebsd\t{start_ns}\t0\ttid\n#TKP\toff,enq,wak,pre,sur,pri,lwc,exe,xit\n"


def _dtrace_name(thread: Thread | None, cpu: int) -> str:
    return "-" if thread is None else f"idle: cpu{cpu}" if thread.idle else thread.comm.replace("\t", " ")


def _dtrace_thread(thread: Thread | None, cpu: int) -> str:
    if thread is None:
        return "-\t-\t-\t-"
    if thread.idle:
        return f"11\t{100_003 + cpu}\t-\t255"
    return f"{thread.pid}\t{thread.tid}\t-\t{_prio(thread, 120)}"


def _probes(r: Record) -> Iterator[tuple[str, Thread | None, object, object, str]]:
    """Probe, whom it is about, and the three columns x, y, z."""
    match r.kind:
        case "switch":
            if r.state == "preempted":
                yield "pre", None, "-", "-", "-"
            elif r.state == "yielding":
                yield "sur", None, "-", "-", "-"
            flags = int(r.subject.idle) + 2 * int(r.entering.idle)
            # (td_state + 1) * 256 + td_inhibitors: inactive, inhibited by sleep, lock or swapping, running.
            state = 0x300
            if r.state in _ENDED:
                state = 0x100
            elif r.state == "waiting_lock":
                state = 0x208
            elif r.state in ("blocked", "stopped", "traced"):
                state = 0x204 if r.state == "blocked" else 0x201
            elif r.state not in READY and r.state is not None:
                state = 0x202
            yield "off", r.entering, flags, 0x300 if r.subject.idle else state, "-"
        case "wakeup" | "wakeup_new":
            yield "wak", r.subject, "-", "-", "-"
        case "enqueue":
            yield "enq", r.subject, -1 if r.target_cpu is None else r.target_cpu, 0, "-"
        case "fork":
            yield "lwc", r.subject, "-", "-", "-"
        case "exec":
            yield "exe", None, "-", "-", r.name or r.subject.comm
        case "exit":
            yield "xit", None, 1, "-", "-"
        case _:
            yield "pri", r.subject, _prio(r.subject, 120) if r.value is None else r.value, "-", "-"


def ktr(found: Iterable[Record], cpus: int) -> Iterator[str]:
    """Text as of FreeBSD's ``schedgraph.d``: oldest first, ns."""
    for r in found:
        for payload in _graph(r):
            yield f"{r.cpu} {r.ts_ns} KTRGRAPH group:{payload}\n"


def _ktr_id(thread: Thread, cpu: int) -> str:
    if thread.idle:
        return f'"proc/idle: cpu{cpu} tid {100_003 + cpu}"'
    return f'"proc/{thread.comm} tid {thread.tid}"'


def _graph(r: Record) -> Iterator[str]:
    """Payloads of a record; a switch is two."""
    who, whom = _ktr_id(r.current, r.cpu), _ktr_id(r.subject, r.cpu)
    prio = 255 if r.subject.idle else _prio(r.subject, 120)
    match r.kind:
        case "switch":
            word = "sleep"
            if r.subject.idle:
                word = "idle"
            elif r.state in READY or r.state is None:
                word = "yielding"
            elif r.state in _ENDED:
                word = "thread exit"
            elif r.state == "waiting_lock":
                word = "blocked"
            elif r.state in ("blocked", "stopped", "traced"):
                word = "swapped" if r.state == "blocked" else "suspended"
            yield f'"thread", id:{whom}, state:"{word}", attributes: prio:{prio}'
            entering = 255 if r.entering.idle else _prio(r.entering, 120)
            yield f'"thread", id:{_ktr_id(r.entering, r.cpu)}, state:"running", attributes: prio:{entering}'
        case "wakeup" | "wakeup_new":
            yield f'"thread", id:{who}, point:"wokeup", attributes: linkedto:{whom}'
        case "enqueue":
            yield f'"thread", id:{whom}, state:"runq add", attributes: prio:{prio}, linkedto:{who}'
        case _:
            new = prio if r.value is None else r.value
            yield f'"thread", id:{whom}, point:"prio", attributes: prio:{prio}, new prio:{new}, linkedto:{who}'


_HEADER = (
    "ID   PROCESS NAME     CPU PID       TID        I ELAPSED_SEC     DELTA_MSEC   "
    "APPL    SYSCALL KERNEL  INTERRUPT\n"
)


def trcrpt(found: Iterable[Record], cpus: int) -> Iterator[str]:
    """A report as of ``trcrpt -O timestamp=0,exec=on,pid=on,tid=on,cpuid=on``."""
    yield "Thu Jan  1 00:00:00 1970\nSystem: AIX generated Node: 1\nMachine: 000000000000\nBuffering: Kernel Heap\n"
    yield f"trace -a -j 106,10C,11F,134,135,139,460,461,462,46B -o trace.raw\n\n{_HEADER}"
    start: int | None = None
    last = 0
    for r in found:
        start = r.ts_ns if start is None else start
        for hook, level, text in _hooks(r):
            elapsed = r.ts_ns - start
            delta, last = elapsed - last, elapsed
            who = _aix(r.current, r.cpu)
            at = f"{elapsed // 1_000_000_000}.{elapsed % 1_000_000_000:09}"
            line = f"{hook:<5}{who.comm[:16]:<17}{r.cpu:<4}{who.pid:<10}{who.tid:<11}  {at:>14}  "
            line += f"{f'{delta // 1_000_000}.{delta % 1_000_000:06}':>10} "
            yield f"{line:<{_HEADER.index('APPL')}}{' ' * 8 * level}{text}\n"


def _aix(thread: Thread, cpu: int) -> Thread:
    return Thread(517 + 256 * cpu, 516 + 256 * cpu, "wait", 255) if thread.idle else thread


def _hooks(r: Record) -> Iterator[tuple[str, int, str]]:
    """Hook, column of its level, and text."""
    s, n = _aix(r.subject, r.cpu), _aix(r.entering, r.cpu)
    prio = _prio(s, 60)
    match r.kind:
        case "switch":
            if r.state in _ENDED:
                # Behind its exit record a thread would be taken for ended, also where it is
                # preempted once more.
                yield "135", 1, "exit: wait_status=0 lock_status=0"
            elif not r.subject.idle and r.state not in READY and r.state is not None:
                if r.state == "waiting_lock":
                    yield "46D", 2, f"wait on lock: pid={s.pid} tid={s.tid} lock=0"
                else:
                    yield "462", 2, f"e_block_thread: tid={s.tid} anchor=0 t_flags=0 lr=0"
            tail = f"pid={n.pid} tid={n.tid} priority={_prio(n, 60)} old_tid={s.tid} old_priority={prio} CPUID={r.cpu}"
            idle = r.entering.idle
            yield (
                "10C" if idle else "106",
                2,
                f"dispatch: {'idle process' if idle else f'cmd={n.comm}'} {tail}",
            )
        case "wakeup" | "wakeup_new":
            yield "461", 3 if r.irq else 2, f"e_clear_wait: tid={s.tid} anchor=0 result=0 lr=0"
        case "enqueue":
            queue = r.cpu if r.target_cpu is None else r.target_cpu
            yield "11F", 2, f"setrq: cmd={s.comm} pid={s.pid} tid={s.tid} priority={prio} policy=0 rq={queue}"
        case "fork":
            yield "139", 2, f"fork: pid={s.pid} tid={s.tid}"
        case "exec":
            yield "134", 1, f"exec: cmd={r.name or s.comm} pid={s.pid} tid={s.tid}"
        case "exit":
            yield "135", 1, "exit: wait_status=0 lock_status=0"
        case _:
            yield (
                "46B",
                1,
                f"thread_setsched: pid={s.pid} tid={s.tid} priority={prio if r.value is None else r.value} policy=0",
            )
