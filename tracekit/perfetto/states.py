"""Task states between tracekit and Perfetto.

Perfetto holds what Linux writes: bits in a switch record, letters in its tables.  Which bit means
what depends on the kernel; files that tracekit writes use the numbers of Linux 4.14 and later, and name
such a kernel.
"""

from __future__ import annotations

# The bit above the preemption flag has no meaning in any kernel: the trace processor gives NULL for it
# and counts it in `task_state_invalid`, which is how "the source did not say" survives the trip.
NOT_TOLD = 0x4000

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
    "unknown": NOT_TOLD,
    "unknown_off": NOT_TOLD,
}

# First letter of Perfetto's end_state -> state.
LETTERS: dict[str, str] = {
    "S": "sleeping",
    "D": "blocked",
    "T": "stopped",
    "t": "traced",
    "X": "dead",
    "x": "dead",
    "Z": "zombie",
    "P": "parked",
    "I": "idle_kthread",
    "K": "blocked",
    "W": "blocked",
    "N": "sleeping",
}


def state_of(letters: str | None) -> str | None:
    """Give tracekit's word for an `end_state` of Perfetto, None when it has none."""
    if not letters:
        return None
    if letters.endswith("+"):
        return "preempted"
    if letters[0] == "R":
        return "preempted"
    return LETTERS.get(letters[0], "unknown")
