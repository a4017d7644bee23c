"""Task states between tracekit and Perfetto.

Perfetto holds what Linux writes: bits in a switch record, letters in its tables.  Which bit means
what depends on the kernel; files that tracekit writes use the numbers of Linux 4.14 and later, and name
such a kernel.
"""

from __future__ import annotations

# The bit above the preemption flag has no meaning in any kernel: the trace processor gives NULL for it
# and counts it in `task_state_invalid`, which is how "the source did not say" survives the trip.
NOT_STATED = 0x4000

# State of the leaving task -> prev_state bits of Linux 4.14 and later.
STATE_BITS: dict[str, int] = {
    "running": 0x00,
    "runnable": 0x00,
    "yielding": 0x00,
    "sleeping": 0x01,
    "blocked": 0x02,
    "waiting_lock": 0x02,
    "stopped": 0x04,
    "capped": 0x04,
    "traced": 0x08,
    "dead": 0x10,
    "zombie": 0x20,
    "parked": 0x40,
    "idle_kthread": 0x80,
    "preempted": 0x100,
    "unknown": NOT_STATED,
    "unknown_off": NOT_STATED,
}

# Letters of Perfetto's end_state, in the order in which they decide where several are set.
_LETTERS: dict[str, str] = {
    "Z": "zombie",
    "X": "dead",
    "x": "dead",
    "I": "idle_kthread",
    "D": "blocked",
    "S": "sleeping",
    "T": "stopped",
    "t": "traced",
    "P": "parked",
    "R": "runnable",
    "K": "blocked",
}


def state_of(letters: str) -> str:
    """Give tracekit's word for an `end_state` of Perfetto (`S`, `R+`, `D|K`)."""
    if letters.endswith("+"):
        return "preempted"
    parts = letters.replace("|", "")
    if "D" in parts and "N" in parts:
        # A kernel thread that waits without counting as load.
        return "idle_kthread"
    return next((state for letter, state in _LETTERS.items() if letter in parts), "unknown")
