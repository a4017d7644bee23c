//! Documentation of CFS and its parameters.

use super::Cfs;
use crate::params::{Param, Unit};
use crate::policies::PolicyInfo;

const fn switch(name: &'static str, default: &'static str, doc: &'static str) -> Param {
    Param { name, unit: Unit::Switch, default, range: None, doc }
}

const fn time(
    name: &'static str,
    default: &'static str,
    range: (&'static str, &'static str),
    doc: &'static str,
) -> Param {
    Param { name, unit: Unit::Time, default, range: Some(range), doc }
}

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "cfs",
    title: "Linux CFS, completely fair (2.6.27, 2.6.29, 2.6.32, 6.1)",
    idea: "Each task has a virtual time that advances as it runs, slower for heavier (lower nice) \
           tasks. The task with the least virtual time runs next; it gets a slice proportional to \
           its weight out of a period that is stretched when many tasks are runnable. A task that \
           slept is placed a little behind the others, so that it preempts them at wakeup; that \
           bonus, and the granularity below which wakeups do not preempt, decide how long slices \
           really are.",
    formula: "v += ran * 1024 / w. min_v = max(min_v, min(v of running, v of leftmost)). period(n) \
              = latency for n <= latency/min_granularity, else n * min_granularity. slice = period \
              * w / sum of w (6.1: at least min_granularity). Wakeup: v = max(v, min_v - credit), \
              credit = latency (2.6.29: * 1024 / w; gentle: half). New: v = min_v + slice * 1024 / \
              w. Preempts at wakeup when v(running) - v(woken) > granularity, which is 2.6.29: \
              wakeup_granularity, in virtual time of a running task above nice 0; 2.6.32: \
              min(wakeup_granularity, 2 * avg_wakeup * n - ran), in virtual time of the woken; 6.1: \
              wakeup_granularity in virtual time of the woken. Tick: reschedule when ran > slice; \
              2.6.32 and 6.1 also when ran >= min_granularity and v(running) - v(leftmost) > slice. \
              Buddies: the task that preempted (next), then the one it preempted (last), go first \
              where that is not unfair by more than the granularity.",
    tie_break: "Equal virtual time: the task queued first.",
    not_modelled: "Groups in 2.6.29 and 2.6.32. 6.1 balances as the kernel does on CPUs that all \
                   share one cache, or share none; threads of a core, NUMA, capacities and energy \
                   are left out, and bursts of quota. 2.6.27 to 2.6.32 balance in a reduced form: \
                   load is the sum of weights; a waker's CPU pulls by weight, then an idle CPU is \
                   looked for; idle CPUs take the longest-waiting task of the busiest; every 64 ms \
                   busy CPUs even out. 2.6.27 is 2.6.29 without LAST_BUDDY, which came with 2.6.28; \
                   its own file was not read. 2.6.30 and 2.6.31 lie between 2.6.29 and 2.6.32; 3.x \
                   to 6.5 are close to 6.1.",
    sources: "Linux 2.6.29.4 and 2.6.32.9 kernel/sched_fair.c, sched_features.h; Linux 6.1.192 \
              kernel/sched/fair.c, features.h, core.c (sched_move_task, skipped clock update); \
              checked against captures of 6.1.",
    params: &[
        Param {
            name: "form",
            unit: Unit::Choice(&["2.6.27", "2.6.29", "2.6.32", "6.1"]),
            default: "6.1",
            range: None,
            doc: "Kernel whose rules apply; sets the defaults of the others.",
        },
        time(
            "latency",
            "2.6.27:20ms 2.6.29:20ms 2.6.32:5ms 6.1:6ms",
            ("1us", "10s"),
            "Period in which every runnable task runs once.",
        ),
        time(
            "min_granularity",
            "2.6.27:4ms 2.6.29:4ms 2.6.32:1ms 6.1:0.75ms",
            ("1us", "10s"),
            "Share of a task when many are runnable.",
        ),
        time("idle_min_granularity", "0.75ms", ("1us", "10s"), "6.1: least slice of SCHED_IDLE tasks."),
        time(
            "wakeup_granularity",
            "2.6.27:5ms 2.6.29:5ms 2.6.32:1ms 6.1:1ms",
            ("0ns", "10s"),
            "How far the running task must be ahead of a woken one to be preempted.",
        ),
        Param {
            name: "scaling",
            unit: Unit::Choice(&["none", "log", "linear"]),
            default: "log",
            range: None,
            doc: "How the times above grow with the number of CPUs: log is 1 + floor(log2 n), of at \
                  most 8 CPUs but in 2.6.29. A kernel shows and takes its tunables after that.",
        },
        switch(
            "balance",
            "on",
            "6.1: CPUs balance their loads, wakeups look for idle CPUs; off, as \
            a negative control: tasks stay where they are.",
        ),
        switch(
            "shared_cache",
            "on",
            "6.1: the CPUs share a cache, in which wakeups look for an \
            idle one; off: each CPU has its own.",
        ),
        switch(
            "newidle_random",
            "on",
            "6.1: a CPU that goes idle looks for work as often as it finds some, by \
            chance (NI_RANDOM: Debian's 6.1.176 and 6.12.95 have it, 5.10.223 has not); off: each time.",
        ),
        switch("wakeup_preemption", "on", "Woken tasks may preempt (WAKEUP_PREEMPTION)."),
        switch(
            "fair_sleepers",
            "on",
            "Woken tasks get a credit for their sleep (NEW_FAIR_SLEEPERS; \
            always on in 6.1).",
        ),
        switch(
            "gentle_fair_sleepers",
            "2.6.27:off 2.6.29:off 2.6.32:on 6.1:on",
            "Half that credit (GENTLE_FAIR_SLEEPERS).",
        ),
        switch(
            "normalized_sleepers",
            "2.6.27:on 2.6.29:on 2.6.32:off 6.1:off",
            "The credit is in \
            virtual time of the task (NORMALIZED_SLEEPER).",
        ),
        switch("start_debit", "on", "New tasks start one slice behind (START_DEBIT)."),
        switch("child_runs_first", "2.6.27:on 2.6.29:on 2.6.32:off 6.1:off", "A new task runs before its parent."),
        switch(
            "next_buddy",
            "off",
            "2.6.32, 6.1: prefer the task that woke last even when it did \
            not preempt (NEXT_BUDDY).",
        ),
        switch(
            "last_buddy",
            "2.6.27:off 2.6.29:on 2.6.32:on 6.1:on",
            "Prefer the task that was \
            preempted by a wakeup (LAST_BUDDY).",
        ),
        switch(
            "adaptive_granularity",
            "2.6.27:off 2.6.29:off 2.6.32:on 6.1:off",
            "2.6.32: \
            granularity from the task's own wakeup rate (ADAPTIVE_GRAN).",
        ),
        switch(
            "base_slice",
            "2.6.27:off 2.6.29:off 2.6.32:off 6.1:on",
            "6.1: slices are at least min_granularity (BASE_SLICE).",
        ),
        switch("compat_yield", "off", "2.6.29, 2.6.32: a yield goes behind all others (sched_compat_yield)."),
        switch(
            "exit_requeue",
            "2.6.27:off 2.6.29:off 2.6.32:off 6.1:on",
            "A task that exits is taken off and put back on its queue, whereby the queue's minimum \
            jumps to the next task.",
        ),
        Param {
            name: "arithmetic",
            unit: Unit::Choice(&["division", "kernel"]),
            default: "2.6.27:division 2.6.29:division 2.6.32:division 6.1:kernel",
            range: None,
            doc: "Plain division, or the kernel's multiplications by rounded inverses (2.6.29's \
                slices are 0.05 % shorter by them).",
        },
        time(
            "migration_cost",
            "0.5ms",
            ("0ns", "1s"),
            "A task that ran this recently is not moved \
            by periodic balancing.",
        ),
    ],
    rt_above: true,
    deadline_above: true,
    reads: &["policy", "nice", "group"],
    build: |p| Ok(Box::new(Cfs::new(p))),
};
