"""Policies of one's own: a Python class, or compiled code behind a C interface.

Both are passed to `tracekit.replay` in place of a policy string. Beside what it does itself, a hook
of a Python class costs about 0.15 us more than one in Rust; a compiled hook (numba, C) costs the
same as one in Rust, as far as 15 ns can be resolved (measured by ``python bench/callbacks.py``, which
``make bench`` runs).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit import _core
from tracekit.errors import ReplayError
from tracekit.near import did_you_mean

if TYPE_CHECKING:
    from tracekit._core import Machine

__all__ = ["ABI_VERSION", "HOOKS", "HOOK_TABLE", "CompiledPolicy", "LoadedPolicy", "Policy", "c_header"]

#: Version of the interface of compiled policies.
ABI_VERSION: int = _core.POLICY_VERSION

#: Every hook: name, what the compiled form takes and gives, when it is called. One table makes the
#: Rust, Python and C faces.
HOOK_TABLE = tuple(_core.hooks())

#: Names of the hooks, in the order of the struct of a compiled policy. Each is
#: ``int64 hook(void *state, int64 now_ns, int64 cpu, int64 task, int64 arg)``.
HOOKS = tuple(row[0] for row in HOOK_TABLE)


def check_policy(policy: object) -> None:
    """Refuse what is no policy, before anything is done for it.

    Parameters
    ----------
    policy
        Its name, or a policy of one's own: any object with one of the hooks that are needed.

    Raises
    ------
    ReplayError
        It is a class, or has none of them.
    """
    if isinstance(policy, str | Policy | CompiledPolicy | LoadedPolicy):
        return
    if isinstance(policy, type):
        name = policy.__name__
        raise ReplayError(f"policy: expected an instance, found the class {name}; make one: {name}()")
    if not any(hasattr(policy, hook) for hook in ("enqueue", "dequeue", "dispatch")):
        raise ReplayError(
            f"policy: expected a name, such as 'cfs', or a policy of one's own (tracekit.Policy), found {policy!r:.60}"
        )


class Policy:
    r"""Base of policies written in Python: define the hooks that the scheduler has.

    Needed are ``enqueue(task, cpu, why)``, ``dequeue(task, cpu)`` and ``dispatch(cpu)``, which
    returns the task to run next or `None` and takes it out of the queue. Tasks are numbers from 0.
    ``why`` is ``initial``, ``fork``, ``wakeup``, ``preempted``, ``yielded``, ``migrated`` or
    ``switched_to``. Optional:

    ======================================  ==========================================================
    ``init()``                              the replay begins
    ``init_task(task, parent)``             a task comes into being; ``parent`` is a task or `None`
    ``fork_return(task, child)``            it returns from making ``child``, which has been queued
    ``exec(task)``                          it executes another program
    ``exiting(task, cpu)``                  it begins to exit, and will run for a little longer
    ``exit_task(task)``                     it has ended
    ``enable(task)``, ``disable(task)``     it comes from another scheduling class, or goes to one
    ``select_cpu(task, why)``               the CPU for a task (``wakeup``, ``fork``, ``exec``)
    ``runnable(task, cpu)``                 it becomes runnable; ``enqueue`` follows
    ``wakeup_preempt(task, cpu, curr, why)``  a task was queued where ``curr`` runs
    ``running(task, cpu, switched)``        it starts to run; ``self.machine.set_slice(cpu, ns)``
                                            belongs here
    ``stopping(task, cpu, why)``            it stops: ``preempted``, ``yielded``, ``slept``,
                                            ``exited``, ``switched_from``
    ``quiescent(task, cpu, why)``           it is no longer runnable
    ``tick(task, cpu)``                     a clock tick while it runs
    ``slice_expired(task, cpu)``            its slice is over (default: a reschedule)
    ``timer(token)``                        a timer set by ``self.machine.timer_at`` fires
    ``update_1hz()``                        once a second
    ``yield_(task, cpu)``                   it yields
    ``set_params(task)``                    its nice value or priority changed
    ======================================  ==========================================================

    ``self.machine`` states time and state while a hook runs (``now_ns``, ``tick_ns``, ``nr_cpus``,
    ``curr(cpu)``, ``nice(task)``, ``cpu_of(task)``, ...) and takes requests: ``resched(cpu)``,
    ``set_slice(cpu, ns)``, ``timer_at(at_ns, token)``, ``migrate(task, cpu)``.

    Real-time tasks of a capture run above the policy, as they do on Linux.

    A hook that raises, or returns what makes no sense, ends the replay with a `ReplayError` that
    names the hook; what was raised is its cause. So do a method whose name is nearly that of a
    hook, a slice that is not above 0, and a task that is ready for a second on a CPU that is idle:
    the policy has lost it. A task that waits for a second or more beside others is a diagnostic
    (``starvation``).

    Examples
    --------
    >>> import tracekit as tk
    >>> class Lifo(tk.Policy):
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
    >>> tk.simulate("A: R5\nB: R3", Lifo()).slices["comm"].to_list()
    ['B', 'A']
    """

    machine: Machine


def c_header() -> str:
    """The header that a policy in C includes: `Path("tracekit_policy.h").write_text(c_header())`.

    Returns
    -------
    str
        C source: the struct of hooks, the struct of calls, and what each takes and gives.
    """
    hooks = "\n".join(
        f"    /* {doc}{'; ' + takes if takes else ''}{'; returns ' + gives if gives else ''} */\n    tracekit_hook {name};"
        for name, takes, gives, doc in HOOK_TABLE
    )
    calls = "\n".join(
        f"    /* {'; '.join(part for part in (takes, 'returns ' + gives) if part)} */\n    tracekit_call {name};"
        for name, takes, gives in _core.calls()
    )
    return _HEADER.format(version=ABI_VERSION, hooks=hooks, calls=calls)


_HEADER = """\
/* Policies for tracekit in C: define `struct tracekit_interface tracekit_policy`, compile a shared object, and load it with
   tracekit.CompiledPolicy.load. Made from tracekit's table of hooks. */
#ifndef TRACEKIT_POLICY_H
#define TRACEKIT_POLICY_H
#include <stdint.h>

#define TRACEKIT_POLICY_VERSION {version}

struct tracekit_machine;
typedef int64_t (*tracekit_hook)(void *state, int64_t now_ns, int64_t cpu, int64_t task, int64_t arg);
typedef int64_t (*tracekit_call)(const struct tracekit_machine *machine, int64_t a, int64_t b);

/* What a hook may ask of the machine, and request from it. */
struct tracekit_machine {{
    uint64_t version, size;
    void *kernel;
{calls}
}};

/* The policy: hooks that it does not have are 0. `machine` is set while a hook runs. */
struct tracekit_interface {{
    uint64_t version, size;
    void *state;
    const struct tracekit_machine *machine;
{hooks}
}};
#endif
"""


class _Interface(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("state", ctypes.c_void_p),
        ("machine", ctypes.c_void_p),
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
    r"""A policy of compiled functions.

    Parameters
    ----------
    state
        What every hook gets as its first argument: an object with the buffer interface (a numpy
        array), an address, or `None`. It is kept alive with the policy.
    name
        Name in metadata and messages.
    **hooks
        Functions by the names of `HOOKS`: numba ``cfunc`` objects, ctypes functions, or addresses.
        ``enqueue``, ``dequeue`` and ``dispatch`` are needed.

    Raises
    ------
    ReplayError
        For a hook that does not exist, or something that is no function.

    Notes
    -----
    All hooks have the signature ``int64 hook(void *state, int64 now_ns, int64 cpu, int64 task,
    int64 arg)``; `HOOK_TABLE` states what ``arg`` is and what the result means, hook by hook. While
    a hook runs, the field ``machine`` of the struct points to functions that answer questions and
    take requests: reschedule any CPU, set slices and timers, read affinity, move queued tasks.
    `c_header` gives both structs as C.

    Examples
    --------
    >>> import ctypes
    >>> import tracekit as tk
    >>> hook = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)
    >>> queue = []
    >>> @hook
    ... def enqueue(state, now_ns, cpu, task, arg):
    ...     queue.append(task)
    ...     return 0
    >>> @hook
    ... def dequeue(state, now_ns, cpu, task, arg):
    ...     queue.remove(task)
    ...     return 0
    >>> @hook
    ... def dispatch(state, now_ns, cpu, task, arg):
    ...     return queue.pop(0) if queue else -1
    >>> mine = tk.CompiledPolicy(enqueue=enqueue, dequeue=dequeue, dispatch=dispatch)
    >>> tk.simulate("A: R5\nB: R3", mine).slices["dur_ns"].to_list()
    [5000000, 3000000]
    """

    def __init__(
        self, state: Any = None, name: str = "compiled", **hooks: Callable[..., Any] | int | Any
    ) -> None:
        unknown = set(hooks) - set(HOOKS)
        if unknown:
            wrong = sorted(unknown)[0]
            raise ReplayError(
                f"no hook {wrong}" + did_you_mean(wrong, HOOKS, f"; there are {', '.join(HOOKS)}")
            )
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
