"""Policies of one's own: the same round robin in Rust, Python, C and numba gives the same schedule."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import tracekit as tk
from tracekit.errors import ReplayError
from tracekit.whatif.policy import ABI_VERSION, CompiledPolicy

WORKLOAD = "A: R5 S3 R4\nB: R3\nC start=1: (R1 S2)*6\nuntil: 40\n"
QUANTUM = 2_000_000


def schedule(run):
    return run.slices.select("ts_ns", "dur_ns", "tid").rows()


class RoundRobin(tk.Policy):
    def __init__(self):
        self.queue = []
        self.left = {}

    def enqueue(self, task, cpu, why):
        self.queue.append(task)

    def dequeue(self, task, cpu):
        self.queue.remove(task)

    def dispatch(self, cpu):
        return self.queue.pop(0) if self.queue else None

    def running(self, task, cpu, switched):
        self.machine.set_slice(cpu, QUANTUM)


@pytest.fixture(scope="module")
def expected():
    return schedule(tk.simulate(WORKLOAD, policy="rr:quantum=2ms"))


def test_a_python_class_schedules_as_rust_does(expected):
    assert schedule(tk.simulate(WORKLOAD, policy=RoundRobin())) == expected


C_SOURCE = r"""
#include <stdint.h>
#include <string.h>
#define N 64
static int64_t queue[N]; static int64_t head, tail;
static int64_t init(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg) { head = tail = 0; return 0; }
static int64_t enqueue(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg) { queue[tail++ % N] = task; return 0; }
static int64_t dequeue(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg) {
    int64_t to = head;
    for (int64_t i = head; i < tail; i++) if (queue[i % N] != task) queue[to++ % N] = queue[i % N];
    tail = to; return 0; }
static int64_t dispatch(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg) { return head < tail ? queue[head++ % N] : -1; }
static int64_t running(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg) { return 2000000; }
typedef int64_t (*hook)(void *, int64_t, int64_t, int64_t, int64_t);
struct interface { uint64_t version, size; void *state;
    hook init, init_task, enqueue, dequeue, dispatch, wakeup_preempt, running, stopping, tick, expired, select_cpu, set_params; };
struct interface tracekit_policy = { VERSION, sizeof(struct interface), 0,
    init, 0, enqueue, dequeue, dispatch, 0, running, 0, 0, 0, 0, 0 };
"""


def build(tmp_path, version):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "rr.c", tmp_path / f"rr{version}.so"
    source.write_text(C_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", f"-DVERSION={version}", "-o", library, source], check=True)
    return library


def test_a_shared_object_schedules_as_rust_does(tmp_path, expected):
    policy = CompiledPolicy.load(build(tmp_path, ABI_VERSION))
    assert schedule(tk.simulate(WORKLOAD, policy=policy)) == expected


def test_another_version_of_the_interface_is_refused_with_both(tmp_path):
    policy = CompiledPolicy.load(build(tmp_path, 7))
    with pytest.raises(ReplayError, match=r"version 7 .* version 1"):
        tk.simulate(WORKLOAD, policy=policy)


def test_numba_functions_schedule_as_rust_does(expected):
    numba = pytest.importorskip("numba")
    hook = numba.types.int64(*[numba.types.CPointer(numba.types.int64)] + [numba.types.int64] * 4)
    size = 64
    state = np.zeros(2 + size, dtype=np.int64)

    @numba.cfunc(hook)
    def enqueue(state, now, cpu, task, arg):
        state[2 + state[1] % size] = task
        state[1] += 1
        return 0

    @numba.cfunc(hook)
    def dequeue(state, now, cpu, task, arg):
        to = state[0]
        for i in range(state[0], state[1]):
            if state[2 + i % size] != task:
                state[2 + to % size] = state[2 + i % size]
                to += 1
        state[1] = to
        return 0

    @numba.cfunc(hook)
    def dispatch(state, now, cpu, task, arg):
        if state[0] == state[1]:
            return -1
        state[0] += 1
        return state[2 + (state[0] - 1) % size]

    @numba.cfunc(hook)
    def running(state, now, cpu, task, arg):
        return 2_000_000

    policy = CompiledPolicy(state, enqueue=enqueue, dequeue=dequeue, dispatch=dispatch, running=running)
    assert schedule(tk.simulate(WORKLOAD, policy=policy)) == expected


class Broken(RoundRobin):
    def dispatch(self, cpu):
        return "first"


class Raising(RoundRobin):
    def enqueue(self, task, cpu, why):
        raise ValueError("no room")


class Stranger(RoundRobin):
    def dispatch(self, cpu):
        return 99


class Fraction(RoundRobin):
    def dispatch(self, cpu):
        return 1.5


class Nowhere(RoundRobin):
    def select_cpu(self, task, why):
        return None


class Beyond(RoundRobin):
    def select_cpu(self, task, why):
        return 99


class Elsewhere(RoundRobin):
    def running(self, task, cpu, switched):
        self.machine.set_slice(77, QUANTUM)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Broken, "hook `dispatch` of policy Broken returned 'first': expected the number of a task, or None"),
        (Raising, "hook `enqueue` of policy Raising raised ValueError: no room"),
        (Stranger, "dispatch chose task 99, which does not exist"),
        (Fraction, "hook `dispatch` of policy Fraction returned 1.5: expected the number of a task, or None"),
        (Nowhere, "hook `select_cpu` of policy Nowhere returned None: expected the number of a CPU"),
        (Beyond, "select_cpu chose CPU 99 of 1"),
        (Elsewhere, "hook `running` of policy Elsewhere raised RuntimeError: no CPU 77; there are 1"),
    ],
)
def test_bad_hooks_are_named(policy, says):
    with pytest.raises(ReplayError) as error:
        tk.simulate(WORKLOAD, policy=policy())
    assert says in str(error.value)


def test_missing_hooks_are_named():
    class Nothing(tk.Policy):
        pass

    with pytest.raises(ReplayError, match="no hook `enqueue`"):
        tk.simulate(WORKLOAD, policy=Nothing())
    hook = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)(lambda *_: 0)
    with pytest.raises(ReplayError, match="no hook `dequeue`"):
        tk.simulate(WORKLOAD, policy=CompiledPolicy(enqueue=hook))
    with pytest.raises(ReplayError, match="no hook pick"):
        CompiledPolicy(pick=hook)


def test_the_machine_is_out_of_reach_outside_hooks():
    policy = RoundRobin()
    tk.simulate(WORKLOAD, policy=policy)
    with pytest.raises(RuntimeError, match="only while a hook"):
        _ = policy.machine.now_ns
