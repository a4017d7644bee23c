"""ftrace text, `perf script` and LTTng text: the tracepoints of Linux, printed by three tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracekit.export.layouts.records import HARDIRQ, SOFTIRQ, Record, Thread

__all__ = ["KINDS", "LTTNG_KINDS", "ftrace", "lttng", "perf_script"]

#: What has a tracepoint.
LTTNG_KINDS = frozenset(
    ("switch", "waking", "wakeup", "wakeup_new", "migrate", "fork", "exec", "exit", "prio", "enqueue")
)
KINDS = LTTNG_KINDS | {"marker"}

#: States as `sched_switch` prints them.
_STATES = {
    "preempted": "R+",
    "yielding": "R",
    "runnable": "R",
    "sleeping": "S",
    "blocked": "D",
    "stopped": "T",
    "traced": "t",
    "dead": "X",
    "zombie": "Z",
    "parked": "P",
    "idle_kthread": "I",
    "waiting_lock": "D",
}
#: The same as LTTng prints them: the kernel's number and its name.
_NUMBERS = {
    "R+": (2048, "TASK_STATE_MAX"),
    "R": (0, "TASK_RUNNING"),
    "S": (1, "TASK_INTERRUPTIBLE"),
    "D": (2, "TASK_UNINTERRUPTIBLE"),
    "T": (4, "TASK_STOPPED"),
    "t": (8, "TASK_TRACED"),
    "Z": (32, "EXIT_ZOMBIE"),
    "X": (64, "TASK_DEAD"),
    "P": (512, "TASK_PARKED"),
    "I": (1026, "TASK_IDLE"),
}


def _name(thread: Thread, cpu: int) -> str:
    return f"swapper/{cpu}" if thread.idle else thread.comm


def _prio(thread: Thread) -> int:
    return 120 if thread.prio is None else thread.prio


def _about(r: Record) -> str:
    return f"comm={_name(r.subject, r.cpu)} pid={r.subject.tid} prio={_prio(r.subject)}"


def _payload(r: Record) -> tuple[str, str]:
    """Tracepoint, and what it prints."""
    s, n = r.subject, r.entering
    match r.kind:
        case "switch":
            state = "R" if s.idle else _STATES.get(r.state or "", "R")
            left = f"prev_comm={_name(s, r.cpu)} prev_pid={s.tid} prev_prio={_prio(s)} prev_state={state}"
            return (
                "sched_switch",
                f"{left} ==> next_comm={_name(n, r.cpu)} next_pid={n.tid} next_prio={_prio(n)}",
            )
        case "waking" | "wakeup" | "wakeup_new" | "enqueue":
            # A task that was there from the start was woken by something that was not traced.
            name = "wakeup" if r.kind == "enqueue" else r.kind
            target = r.cpu if r.target_cpu is None else r.target_cpu
            return f"sched_{name}", f"{_about(r)} target_cpu={target:03}"
        case "migrate":
            return "sched_migrate_task", f"{_about(r)} orig_cpu={r.orig_cpu} dest_cpu={r.target_cpu}"
        case "fork":
            parent = f"comm={_name(r.current, r.cpu)} pid={r.current.tid}"
            return "sched_process_fork", f"{parent} child_comm={s.comm} child_pid={s.tid}"
        case "exec":
            return "sched_process_exec", f"filename={r.name or s.comm} pid={s.tid} old_pid={s.tid}"
        case "exit":
            return "sched_process_exit", _about(r)
        case "prio":
            new = _prio(s) if r.value is None else r.value
            return "sched_pi_setprio", f"comm={s.comm} pid={s.tid} oldprio={_prio(s)} newprio={new}"
        case _:
            return "tracing_mark_write", r.name or ""


def _irq(r: Record) -> int:
    """Interrupt flags; what was there from the start came in an interrupt."""
    return HARDIRQ if r.kind == "enqueue" else r.irq


def ftrace(found: Iterable[Record], cpus: int) -> Iterator[str]:
    """Text as of ``/sys/kernel/tracing/trace``, with the ns that `trace-cmd report -t` prints."""
    yield f"# tracer: nop\n#\n# entries-in-buffer/entries-written: 0/0   #P:{cpus}\n#\n"
    yield "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n#              | |         |   |||||     |         |\n"
    for r in found:
        irq = _irq(r)
        both = irq & HARDIRQ and irq & SOFTIRQ
        context = "H" if both else "h" if irq & HARDIRQ else "s" if irq & SOFTIRQ else "."
        who = "<idle>-0" if r.current.idle else f"{r.current.comm}-{r.current.tid}"
        event, text = _payload(r)
        yield f"{who:>23} [{r.cpu:03}] d.{context}2. {_seconds(r.ts_ns)}: {event}: {text}\n"


def perf_script(found: Iterable[Record], cpus: int) -> Iterator[str]:
    """Text as of ``perf script --ns -F comm,pid,tid,cpu,time,event,trace``."""
    for r in found:
        who = Thread(0, 0, "swapper") if r.current.idle else r.current
        event, text = _payload(r)
        head = f"{who.comm:>16} {who.pid:>5}/{who.tid:<5} [{r.cpu:03}] {_seconds(r.ts_ns):>16}:"
        yield f"{head} {'sched:' + event:>25}: {text}\n"


def _seconds(ns: int) -> str:
    return f"{ns // 1_000_000_000}.{ns % 1_000_000_000:09}"


def lttng(found: Iterable[Record], cpus: int) -> Iterator[str]:
    """Text as of babeltrace2 with the contexts procname, pid and tid."""
    before: int | None = None
    for r in found:
        delta = "+?.?????????" if before is None else f"+{_seconds(r.ts_ns - before)}"
        before = r.ts_ns
        who = _quoted(_name(r.current, r.cpu))
        context = f"{{ procname = {who}, pid = {r.current.pid}, tid = {r.current.tid} }}"
        event, fields = _fields(r)
        yield (
            f"[{_seconds(r.ts_ns)}] ({delta}) host {event}: {{ cpu_id = {r.cpu} }}, {context}, {{ {fields} }}\n"
        )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _fields(r: Record) -> tuple[str, str]:
    """Event of LTTng, and its fields; priorities less 100."""
    s, n = r.subject, r.entering
    about = f"comm = {_quoted(_name(s, r.cpu))}, tid = {s.tid}, prio = {_prio(s) - 100}"
    match r.kind:
        case "switch":
            number, name = _NUMBERS["R" if s.idle else _STATES.get(r.state or "", "R")]
            return "sched_switch", (
                f"prev_comm = {_quoted(_name(s, r.cpu))}, prev_tid = {s.tid}, prev_prio = {_prio(s) - 100}, "
                f'prev_state = ( "{name}" : container = {number} ), '
                f"next_comm = {_quoted(_name(n, r.cpu))}, next_tid = {n.tid}, next_prio = {_prio(n) - 100}"
            )
        case "waking" | "wakeup" | "wakeup_new" | "enqueue":
            name = "wakeup" if r.kind == "enqueue" else r.kind
            target = r.cpu if r.target_cpu is None else r.target_cpu
            return f"sched_{name}", f"{about}, target_cpu = {target}"
        case "migrate":
            return "sched_migrate_task", f"{about}, orig_cpu = {r.orig_cpu}, dest_cpu = {r.target_cpu}"
        case "fork":
            p = r.current
            return "sched_process_fork", (
                f"parent_comm = {_quoted(_name(p, r.cpu))}, parent_tid = {p.tid}, parent_pid = {p.pid}, "
                f"child_comm = {_quoted(s.comm)}, child_tid = {s.tid}, child_pid = {s.pid}"
            )
        case "exec":
            return (
                "sched_process_exec",
                f"filename = {_quoted(r.name or s.comm)}, tid = {s.tid}, old_tid = {s.tid}",
            )
        case "exit":
            return "sched_process_exit", about
        case _:
            new = _prio(s) if r.value is None else r.value
            return "sched_pi_setprio", (
                f"comm = {_quoted(s.comm)}, tid = {s.tid}, oldprio = {_prio(s) - 100}, newprio = {new - 100}"
            )
