"""Policies of one's own: a Python class, or compiled code behind a C interface.

Both are passed to `tracekit.replay` in place of a policy string. Beside what it does itself, a hook of a Python class costs about 0.15 us more than one in Rust;
a compiled hook (numba, C) costs the same as one in Rust, as far as 15 ns can be told (measured by ``python bench/callbacks.py``, which ``make bench`` runs).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import ReplayError

if TYPE_CHECKING:
    from tracekit._core import Machine

__all__ = ["ABI_VERSION", "HOOKS", "CompiledPolicy", "LoadedPolicy", "Policy"]

#: Version of the interface of compiled policies.
ABI_VERSION = 1

#: Hooks of a compiled policy, in the order of the struct. Each is
#: ``int64 hook(void *state, int64 now_ns, int64 cpu, int64 task, int64 arg)``.
HOOKS = (
    "init",
    "init_task",
    "enqueue",
    "dequeue",
    "dispatch",
    "wakeup_preempt",
    "running",
    "stopping",
    "tick",
    "expired",
    "select_cpu",
    "set_params",
)


class Policy:
    """Base of policies written in Python: define the hooks that the scheduler has.

    Needed are ``enqueue(task, cpu, why)``, ``dequeue(task, cpu)`` and ``dispatch(cpu)``, which returns the task to run next or
    `None` and takes it out of the queue. Tasks are numbers from 0. ``why`` is ``initial``, ``new``, ``wakeup``, ``preempted``,
    ``yielded``, ``moved`` or ``joined``. Optional:

    ======================================  =====================================================================
    ``init()``                              the replay begins
    ``init_task(task, parent)``             a task comes into being; ``parent`` is a task or `None`
    ``exit_task(task)``                     it has ended
    ``select_cpu(task, why)``               the CPU for a task that wakes (``wakeup``, ``new``, ``exec``)
    ``wakeup_preempt(task, cpu, curr, why)``  a task was queued where ``curr`` runs
    ``running(task, cpu, switched)``        it starts to run; ``self.machine.set_slice(cpu, ns)`` belongs here
    ``stopping(task, cpu, why)``            it stops: ``preempted``, ``yielded``, ``slept``, ``exited``, ``left``
    ``quiescent(task, cpu, why)``           it is no longer runnable
    ``tick(task, cpu)``                     a clock tick while it runs
    ``expired(task, cpu)``                  its slice is over (default: a reschedule)
    ``timer(token)``                        a timer set by ``self.machine.timer_at`` fires
    ``second()``                            once a second
    ``yield_(task, cpu)``                   it yields
    ``set_params(task)``                    its nice value or priority changed
    ======================================  =====================================================================

    ``self.machine`` tells time and state while a hook runs (``now_ns``, ``tick_ns``, ``nr_cpus``, ``curr(cpu)``, ``nice(task)``, ...) and takes
    requests: ``resched(cpu)``, ``set_slice(cpu, ns)``, ``timer_at(at_ns, token)``.

    Real-time tasks of a capture run above the policy, as they do on Linux.

    A hook that raises, or returns what makes no sense, ends the replay with a `ReplayError` that names the hook.

    Examples
    --------
    >>> class Lifo(Policy):
    ...     def __init__(self):
    ...         self.stack = []
    ...
    ...     def enqueue(self, task, cpu, why):
    ...         self.stack.append(task)
    ...
    ...     def dequeue(self, task, cpu):
    ...         self.stack.remove(task)
    ...
    ...     def dispatch(self, cpu):
    ...         return self.stack.pop() if self.stack else None
    """

    machine: Machine


class _Interface(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("state", ctypes.c_void_p),
        *((hook, ctypes.c_void_p) for hook in HOOKS),
    ]


def _address(hook: str, function: Any) -> int:
    if isinstance(function, int):
        return function
    found = getattr(function, "address", None)  # numba's cfunc
    if isinstance(found, int):
        return found
    try:
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    except (ctypes.ArgumentError, TypeError):
        wanted = "a numba cfunc, a ctypes function or an address"
        raise ReplayError(f"hook {hook}: expected {wanted}, found {function!r}") from None


class CompiledPolicy:
    """A policy of compiled functions.

    Parameters
    ----------
    state
        What every hook gets as its first argument: an object with the buffer interface (a numpy array), an address, or
        `None`. It is kept alive with the policy.
    name
        Name in metadata and messages.
    **hooks
        Functions by the names of `HOOKS`: numba ``cfunc`` objects, ctypes functions, or addresses. ``enqueue``, ``dequeue`` and
        ``dispatch`` are needed.

    Raises
    ------
    ReplayError
        For a hook that does not exist, or something that is no function.

    Notes
    -----
    All hooks have the signature ``int64 hook(void *state, int64 now_ns, int64 cpu, int64 task, int64 arg)``:

    ``init``: cpu = number of CPUs, task = number of tasks, arg = tick in ns. ``init_task``: arg = nice. ``enqueue``: arg = 0 initial,
    1 new, 2 wakeup, 3 preempted, 4 yielded, 5 moved, 6 joined. ``dispatch``: returns a task or -1. ``wakeup_preempt``: arg = the running task;
    1 preempts. ``running``: returns a slice in ns, 0 for none. ``stopping``: arg = 0 preempted, 1 yielded, 2 slept, 3 exited, 4 left.
    ``tick``, ``expired``: 1 asks for a reschedule. ``select_cpu``: returns a CPU. ``set_params``: arg = nice.
    """

    def __init__(
        self, state: Any = None, name: str = "compiled", **hooks: Callable[..., Any] | int | Any
    ) -> None:
        unknown = set(hooks) - set(HOOKS)
        if unknown:
            raise ReplayError(f"no hook {sorted(unknown)[0]}; there are {', '.join(HOOKS)}")
        self.name = name
        self._kept = (state, hooks)
        self._struct = _Interface(version=ABI_VERSION, size=ctypes.sizeof(_Interface))
        self._struct.state = self._state_address(state)
        for hook, function in hooks.items():
            setattr(self._struct, hook, _address(hook, function))

    @staticmethod
    def _state_address(state: Any) -> int | None:
        if state is None or isinstance(state, int):
            return state
        interface = getattr(state, "__array_interface__", None)
        if interface is not None:
            return int(interface["data"][0])
        return ctypes.addressof((ctypes.c_char * len(memoryview(state).cast("B"))).from_buffer(state))

    @property
    def address(self) -> int:
        """Address of the struct that the replay engine reads."""
        return ctypes.addressof(self._struct)

    @classmethod
    def load(cls, path: str | Path, symbol: str = "tracekit_policy") -> LoadedPolicy:
        """Take a policy from a shared object.

        Parameters
        ----------
        path
            The shared object.
        symbol
            A variable of the struct's type.

        Returns
        -------
        LoadedPolicy
            To be passed to `tracekit.replay`.

        Raises
        ------
        ReplayError
            When the object cannot be loaded or lacks the symbol.
        """
        try:
            library = ctypes.CDLL(str(Path(path).resolve()))
            struct = _Interface.in_dll(library, symbol)
        except (OSError, ValueError) as error:
            raise ReplayError(f"{path}: {error}") from None
        return LoadedPolicy(library, struct, Path(path).stem)


class LoadedPolicy:
    """A policy of a shared object, made by `CompiledPolicy.load`."""

    def __init__(self, library: ctypes.CDLL, struct: ctypes.Structure, name: str) -> None:
        self.name = name
        self._library = library
        self._struct = struct

    @property
    def address(self) -> int:
        """Address of the struct that the replay engine reads."""
        return ctypes.addressof(self._struct)
