"""Policies of one's own: the same round robin in Rust, Python, C and numba gives the same schedule."""

import ctypes
import shutil
import subprocess

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tracekit.errors import ReplayError
from tracekit.whatif.policy import ABI_VERSION, HOOK_TABLE, HOOKS, CompiledPolicy, c_header

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
#include "tracekit_policy.h"
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
struct tracekit_interface tracekit_policy = { .version = VERSION, .size = sizeof(struct tracekit_interface),
    .init = init, .enqueue = enqueue, .dequeue = dequeue, .dispatch = dispatch, .running = running };
"""


#: A queue for each CPU. A task that wakes while its CPU is busy goes to an idle one, which is asked
#: to look; a timer moves what waits beside an idle CPU.
BALANCER = r"""
#include "tracekit_policy.h"
#define N 64
#define ASK(call, a, b) tracekit_policy.machine->call(tracekit_policy.machine, a, b)
#define HOOK(name) static int64_t name(void *s, int64_t now, int64_t cpu, int64_t task, int64_t arg)
extern struct tracekit_interface tracekit_policy;
static int64_t queue[8][N], count[8];
static void take(int64_t cpu, int64_t i) { while (++i < count[cpu]) queue[cpu][i - 1] = queue[cpu][i]; count[cpu]--; }
HOOK(init) { for (int c = 0; c < 8; c++) count[c] = 0; ASK(timer_at, 1000000, 7); return 0; }
HOOK(select_cpu) { return 0; }
HOOK(enqueue) { queue[cpu][count[cpu]++] = task; return 0; }
HOOK(dequeue) { for (int64_t i = 0; i < count[cpu]; i++) if (queue[cpu][i] == task) take(cpu, i); return 0; }
HOOK(dispatch) { if (!count[cpu]) return -1; int64_t t = queue[cpu][0]; take(cpu, 0); return t; }
HOOK(timer) {
    for (int64_t to = 0; to < ASK(nr_cpus, 0, 0); to++)
        if (ASK(is_idle, to, 0))
            for (int64_t i = 0; i < count[0]; i++)
                if (ASK(allowed, queue[0][i], to)) {
                    int64_t t = queue[0][i]; take(0, i); queue[to][count[to]++] = t;
                    ASK(migrate, t, to); ASK(resched, to, 0); break;
                }
    ASK(timer_at, now + 1000000, arg); return 0; }
struct tracekit_interface tracekit_policy = { .version = VERSION, .size = sizeof(struct tracekit_interface), .init = init,
    .select_cpu = select_cpu, .enqueue = enqueue, .dequeue = dequeue, .dispatch = dispatch, .timer = timer };
"""


def build(tmp_path, version, text=C_SOURCE):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "rr.c", tmp_path / f"rr{version}.so"
    source.write_text(text)
    (tmp_path / "tracekit_policy.h").write_text(c_header())
    subprocess.run([compiler, "-shared", "-fPIC", f"-DVERSION={version}", "-o", library, source], check=True)
    return library


def test_a_shared_object_schedules_as_rust_does(tmp_path, expected):
    policy = CompiledPolicy.load(build(tmp_path, ABI_VERSION))
    assert schedule(tk.simulate(WORKLOAD, policy=policy)) == expected


def test_another_version_of_the_interface_is_refused_with_both(tmp_path):
    policy = CompiledPolicy.load(build(tmp_path, 7))
    with pytest.raises(ReplayError, match=r"version 7 .* version 2"):
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


def test_a_compiled_policy_balances_two_cpus(tmp_path):
    policy = CompiledPolicy.load(build(tmp_path, ABI_VERSION, BALANCER))
    run = tk.simulate("cpus: 2\nuntil: 40\nA: R10\nB: R10\nC cpus=0: R10", policy=policy)
    ran = dict(run.slices.group_by("cpu").agg(pl.col("dur_ns").sum()).iter_rows())
    assert ran == {0: 20_000_000, 1: 10_000_000}
    moved = run.events.filter(pl.col("kind").cast(pl.String) == "migrate")
    assert moved.select("tid", "orig_cpu", "target_cpu", "ts_ns").rows() == [(2, 0, 1, 1_000_000)]


def test_what_a_compiled_policy_asks_of_no_cpu_is_named(tmp_path):
    text = BALANCER.replace("ASK(is_idle, to, 0)", "ASK(is_idle, to + 9, 0)")
    policy = CompiledPolicy.load(build(tmp_path, ABI_VERSION, text))
    with pytest.raises(
        ReplayError, match="a hook of the compiled policy called is_idle: no CPU 9; there are 2"
    ):
        tk.simulate("cpus: 2\nA: R10\nB: R10", policy=policy)


def test_every_face_has_every_hook():
    documented = tk.Policy.__doc__
    header = c_header()
    for hook, *_ in HOOK_TABLE:
        assert f"``{hook}(" in documented, hook
        assert f"tracekit_hook {hook};" in header, hook
    assert len(HOOKS) == len(set(HOOKS)) == 23


class Misspelt(RoundRobin):
    def enqeue(self, task, cpu, why): ...

    def slice_expire(self, task, cpu): ...


class Old(RoundRobin):
    def expired(self, task, cpu): ...


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Misspelt, "`slice_expire`; did you mean `slice_expired`"),
        (Old, "`expired`; did you mean `slice_expired`"),
    ],
)
def test_a_misspelt_hook_is_named_with_the_one_that_was_meant(policy, says):
    with pytest.raises(ReplayError) as error:
        tk.simulate(WORKLOAD, policy=policy())
    assert says in str(error.value)
    hook = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)(lambda *_: 0)
    with pytest.raises(ReplayError, match="no hook dispach; did you mean 'dispatch'"):
        CompiledPolicy(enqueue=hook, dequeue=hook, dispach=hook)


class Losing(RoundRobin):
    """Task 1 is never given out."""

    def enqueue(self, task, cpu, why):
        if task != 1:
            super().enqueue(task, cpu, why)


class NoSlice(RoundRobin):
    length = -5

    def running(self, task, cpu, switched):
        self.machine.set_slice(cpu, self.length)


class EmptySlice(NoSlice):
    length = 0


@pytest.mark.parametrize(
    ("policy", "text", "says"),
    [
        (
            Losing,
            "A: R5\nB: R3",
            "task 1 (B) has been ready since 0.000000 s on CPU 0, which has been idle since 0.005000 s",
        ),
        (
            Losing,
            "until: 60000\nA: R5\nB start=2: R3",
            "at 2000000000 ns: task 1 (B) has been ready since 0.002000 s",
        ),
        (NoSlice, "A: R5\nB: R3", "a slice of -5 ns on CPU 0 for task 0 (A): expected more than 0"),
        (EmptySlice, "A: R5\nB: R3", "a slice of 0 ns on CPU 0 for task 0 (A): expected more than 0"),
    ],
)
def test_what_no_schedule_can_be_is_named_with_time_and_task(policy, text, says):
    with pytest.raises(ReplayError) as error:
        tk.simulate(text, policy=policy())
    assert says in str(error.value)


def test_starvation_is_told_with_time_and_task():
    class First(RoundRobin):
        def dispatch(self, cpu):
            self.queue.sort()
            return super().dispatch(cpu)

    run = tk.simulate("until: 3000\nA: R2500\nB start=100: R3", policy=First())
    told = run.diagnostics.filter(pl.col("code").cast(pl.String) == "starvation")["message"].to_list()
    assert told == [
        "starvation: task 1 (B) was ready at 0.100000 s and did not run for 2.400 s, the longest of 1 waits of a second or more"
    ]
    fair = tk.simulate("until: 3000\nA: R2500\nB start=100: R3", policy=RoundRobin())
    assert "starvation" not in fair.diagnostics["code"].cast(pl.String).to_list()


def test_an_error_of_a_policy_object_that_was_used_before_says_so():
    policy = RoundRobin()
    tk.simulate("until: 1\nA: R5\nB: R5", policy=policy)
    assert policy.queue
    with pytest.raises(ReplayError, match="was used in an earlier run and may still hold tasks"):
        tk.simulate("A start=1: R5\nB: R5", policy=policy)


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
    with pytest.raises(ReplayError, match="no hook shuffle; there are init"):
        CompiledPolicy(shuffle=hook)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (3, "expected a name, such as 'cfs', or a policy of one's own (tracekit.Policy), found 3"),
        (["cfs"], "found ['cfs']"),
        (tk.Policy, "expected an instance, found the class Policy; make one: Policy()"),
    ],
)
def test_what_is_no_policy_is_named(policy, says, demo):
    for run in (lambda: tk.simulate(WORKLOAD, policy=policy), lambda: tk.replay(demo, policy)):
        with pytest.raises(ReplayError) as error:
            run()
        assert says in str(error.value)


@pytest.mark.parametrize(
    ("policies", "says"),
    [(None, "found None"), (3, "found 3"), ([RoundRobin()], "tracekit.replay runs one's own")],
)
def test_a_comparison_takes_names(policies, says, demo):
    with pytest.raises(ReplayError) as error:
        tk.compare(demo, policies)
    assert str(error.value).startswith("policies: expected names, such as 'cfs', found ")
    assert says in str(error.value)


def test_the_machine_is_out_of_reach_outside_hooks():
    policy = RoundRobin()
    tk.simulate(WORKLOAD, policy=policy)
    with pytest.raises(RuntimeError, match="only while a hook"):
        _ = policy.machine.now_ns
