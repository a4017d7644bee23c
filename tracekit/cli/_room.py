"""Address space where `ulimit -v` limits it: what a command needs before it reads anything."""

from __future__ import annotations

__all__ = ["check_room", "room"]

GIB = 1 << 30
#: Commands that load no library of tables; they make do with what there is.
FRUGAL = frozenset(("cache", "completion", "convert", "formats", "generate", "help", "policies", "recipes"))
#: Commands that read tables and replay nothing.
TABLES = frozenset(
    ("export", "info", "latency", "response", "runqueue", "slices", "sql", "timeline", "where")
)
#: Address space of a command of `TABLES`, and of one that replays: what `slices` and `compare` of the
#: demonstration's capture take at most (VmPeak: 993 and 1,484 MiB on two CPUs), rounded up. With less, the
#: libraries behind them abort, or wait for a thread that never starts.
READS, REPLAYS = GIB, 3 * GIB // 2


def room() -> int | None:
    """Bytes of address space that this process may have; `None` without a limit."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def check_room(command: str) -> None:
    """Refuse a command for which there is too little.

    Raises
    ------
    MemoryError
        That says what is needed and what there is.
    """
    there = room()
    if there is None or command in FRUGAL:
        return
    needed = READS if command in TABLES else REPLAYS
    if there < needed:
        raise MemoryError(
            f"{command} needs {needed / GIB:g} GiB of address space, `ulimit -v` gives {there / GIB:.2g}"
        )
