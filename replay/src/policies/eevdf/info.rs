//! Documentation and constructor of `eevdf`.

use super::{Eevdf, Features, Version};
use crate::params::{Param, Unit};
use crate::policies::linux::{Balancer, Form};
use crate::policies::PolicyInfo;

const fn switch(name: &'static str, default: &'static str, doc: &'static str) -> Param {
    Param { name, unit: Unit::Switch, default, range: None, doc }
}

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "eevdf",
    title: "Linux EEVDF, earliest eligible deadline (6.6, 6.12, 6.18, 7.3)",
    idea: "Each task has a virtual time v that grows by its CPU time over its weight, and a request \
           of one slice with a virtual deadline. V is the weighted mean of all v: a task with v <= \
           V has not had more than its share and is eligible. Among the eligible tasks the one with \
           the earliest deadline runs, so a short slice buys latency and not CPU time. The lag V - \
           v of a task that sleeps is kept and given back when it wakes.",
    formula: "v += ran * 1024 / weight; when v >= deadline: deadline = v + slice * 1024 / weight, \
              and a reschedule. V = sum(weight * v) / sum(weight) over queued, running and delayed \
              tasks. Placement: v = V - lag * (W + w) / W, deadline = v + slice * 1024 / weight \
              (half for a new task in 6.12). Lag is clamped to max(2 * slice, tick), \
              from 6.18 on to the longest slice on the queue and a tick. Charged at \
              ticks, wakeups and switches only. run_to_parity: the running task goes on until its \
              deadline or until it is not eligible. 6.12: a waking task with a shorter slice may \
              cancel that, and any that wakes cancels it for a SCHED_IDLE task; a task that sleeps \
              while not eligible stays counted until a pick finds it eligible (delayed dequeue). \
              6.18: protected until v + the shortest slice on the queue; a new task preempts nobody; \
              a yield forfeits the rest of the slice; what changes its weight is placed anew, the \
              mean counting it where it runs. 7.3: a timer ends slices at their deadline \
              (hrtick), preemption of another CPU waits for its next entry into the kernel (lazy). \
              Groups: an entity a CPU, of weight shares * load here / load everywhere; 7.3: all \
              tasks on one queue, each with the product of its shares, and a group counts as \
              often as it has tasks that could run at once.",
    tie_break: "Equal deadlines: the task that was queued first; a queued task before the running one.",
    not_modelled: "Core scheduling, bursts of quotas, topology other than CPUs \
        that all share one cache or share none, capacities.",
    sources: "Linux 6.6.9, 6.12.0, 6.12.19, 6.12.117, 7.3.4 kernel/sched/fair.c, core.c and \
              features.h (6.18: only what is published of 6.18.38, else those rules of 7.3 that \
              captures of 6.18.44 agree with; reweight: the stable patches of 6.18.17 and the patch of 7.0 \
              that takes it back); Stoica and Abdel-Wahab, Earliest Eligible Virtual \
              Deadline First, 1995; captures of a 6.12.95 kernel for two rules: an expiry found in \
              a wakeup also asks for a reschedule, and SCHED_IDLE has no slice protection (6.16, \
              and stable kernels before).",
    params: &[
        Param {
            name: "version",
            unit: Unit::Choice(&["6.6", "6.12", "6.18", "7.3"]),
            default: "6.12",
            range: None,
            doc: "Kernel whose rules apply.",
        },
        Param {
            name: "base_slice",
            unit: Unit::Time,
            default: "0ns",
            range: Some(("0ns", "1s")),
            doc: "Slice of tasks that ask for none (100 us to 100 ms on Linux); 0: the kernel's \
                  default, 0.75 ms (6.6) or 0.70 ms (6.12) times 1 + log2 of at most 8 CPUs.",
        },
        switch("place_lag", "on", "A task that wakes gets back the lag with which it fell asleep."),
        switch("place_deadline_initial", "on", "The first deadline of a new task is half a slice away (6.12)."),
        switch("place_rel_deadline", "on", "A task that moves to another CPU keeps its relative deadline (6.12)."),
        switch("run_to_parity", "on", "The running task is protected until its deadline."),
        switch("preempt_short", "on", "A waking task with a shorter slice cancels that protection (6.12)."),
        switch("delay_dequeue", "on", "A task that sleeps while not eligible stays counted (6.12)."),
        switch("delay_zero", "on", "Such a task earns no positive lag asleep (6.12)."),
        switch(
            "next_buddy",
            "off",
            "The task woken last is picked when it is eligible; that does \
            not make it preempt (NEXT_BUDDY with PICK_BUDDY).",
        ),
        switch(
            "exit_requeue",
            "on",
            "A task that exits is dequeued and queued once more, which \
            brings its virtual time up to date before it wakes its parent.",
        ),
        switch("wakeup_preemption", "on", "A task that wakes may preempt the running one."),
        Param {
            name: "hrtick",
            unit: Unit::Choice(&["auto", "on", "off"]),
            default: "auto",
            range: None,
            doc: "A timer ends the slice of the running task at its deadline, between ticks \
                (HRTICK; auto: on from 7.3).",
        },
        Param {
            name: "preempt",
            unit: Unit::Choice(&["auto", "full", "lazy"]),
            default: "auto",
            range: None,
            doc: "lazy: another CPU's fair task is asked to leave no sooner than at its next \
                interrupt, system call or tick (auto: from 7.3).",
        },
        Param {
            name: "yield",
            unit: Unit::Choice(&["auto", "deadline", "forfeit"]),
            default: "auto",
            range: None,
            doc: "What a yield costs: a later deadline, or the rest of the slice as if it had been \
                used where the task is eligible (auto: from 6.18).",
        },
        Param {
            name: "reweight",
            unit: Unit::Choice(&["auto", "kept", "placed"]),
            default: "auto",
            range: None,
            doc: "A new weight, such as a group's share has whenever its load moves: the lag is kept, or                 the entity is placed as if it woke (6.13 to 6.19), so that the lag of what runs grows                 with every change and a busy group can keep others waiting for seconds (auto: 6.18).",
        },
        Param {
            name: "migration_cost",
            unit: Unit::Time,
            default: "500us",
            range: Some(("0ns", "1s")),
            doc: "A task that ran so short a while ago is cache-hot: other CPUs take it only when \
                balancing has failed.",
        },
        switch(
            "shared_cache",
            "on",
            "The CPUs share a cache, in which wakeups look for an idle \
            one; off: each CPU has its own.",
        ),
        switch(
            "balance",
            "on",
            "CPUs balance their loads and wakeups look for idle CPUs; off, as a \
            negative control: tasks stay where they are.",
        ),
        switch(
            "newidle_random",
            "on",
            "A CPU that goes idle looks for work as often as it finds some, by chance \
            (NI_RANDOM: Debian's 6.1.176 and 6.12.95 have it, 5.10.223 has not); off: each time.",
        ),
    ],
    rt_above: true,
    deadline_above: true,
    reads: &["policy", "nice", "slice", "group"],
    build: |p| {
        let base = p.int("base_slice");
        if base != 0 && base < 100_000 {
            return Err("base_slice: expected 0, or 100us to 1s".into());
        }
        let version = [Version::V66, Version::V612, Version::V618, Version::V73][p.int("version") as usize];
        // The first choice leaves it to the kernel's version, the second is not the newest.
        let auto = |name: &str, from: Version, choice: i64| match p.int(name) {
            0 => version >= from,
            chosen => chosen == choice,
        };
        let features = Features {
            version,
            place_lag: p.on("place_lag"),
            place_deadline_initial: p.on("place_deadline_initial"),
            place_rel_deadline: p.on("place_rel_deadline"),
            run_to_parity: p.on("run_to_parity"),
            preempt_short: p.on("preempt_short"),
            delay_dequeue: p.on("delay_dequeue"),
            delay_zero: p.on("delay_zero"),
            next_buddy: p.on("next_buddy"),
            exit_requeue: p.on("exit_requeue"),
            wakeup_preemption: p.on("wakeup_preemption"),
            hrtick: auto("hrtick", Version::V73, 1),
            lazy: auto("preempt", Version::V73, 2),
            forfeit: auto("yield", Version::V618, 2),
            reweight_places: match p.int("reweight") {
                0 => version == Version::V618,
                chosen => chosen == 2,
            },
        };
        let form = if version == Version::V73 { Form::Flat } else { Form::Eevdf };
        let balancer = Balancer::new(form, p.int("migration_cost"), p.on("balance"))
            .with_cache(p.on("shared_cache"))
            .with_chance(p.on("newidle_random"));
        Ok(Box::new(Eevdf::new(features, base, balancer)))
    },
};
