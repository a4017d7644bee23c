//! Documentation and constructor of `goodness`.

use super::ready::Ready;
use super::{Goodness, Stats, Version};
use crate::params::{Param, Unit};
use crate::policies::PolicyInfo;
use crate::queue::TaskMap;

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "goodness",
    title: "Linux 2.0, 2.2 and 2.4: the best `goodness` on one list",
    idea: "Each task has a counter of ticks left. One list holds all runnable tasks; every \
           schedule() walks it and takes the task with the greatest goodness, which is mainly its \
           counter. When all counters are used up, all tasks of the system get new ones, and \
           sleepers keep half of what they had: that is the bonus for interactive tasks.",
    formula: "2.0: goodness = counter, +1 for the task that ran, + penalty on SMP for a task whose \
              last CPU asks; real time 1000 + priority. Best goodness 0: counter = counter / 2 + \
              priority for every task, and the first of the list runs without a second walk. Tick: \
              counter - 1, below 0 a reschedule (a counter of 20 lasts 21 ticks). Wakeup: tail of \
              the list, preempts when counter > current's + 3. Yield: tail, counter = 0. Fork \
              halves the counter between parent and child. 2.2: + priority, +1 for the same address \
              space; new tasks at the head; a yield scores 0 once. 2.4: + 20 - nice, +1 for the \
              address space of the task that ran, itself included; refill (20 - nice) / 4 + 1; \
              walks again after the recalculation; a wakeup preempts when its goodness is greater; \
              the exit gives the child's counter back to the parent. 2.4.3 considers the task that \
              ran first.",
    tie_break: "Equal goodness: the task nearest to the head of the list; in 2.4.3 the task that \
        ran, where it may go on.",
    not_modelled: "The kernel lock and non-preemptible system calls (mark run steps `K` and use a \
                   non-preemptible machine); 2.2's choice of CPU by cache flush time, and 2.4's of \
                   the CPU where the difference in goodness is largest (a wakeup goes to an idle \
                   CPU, else to the last one, and is tested against what runs there). The kernel's \
                   walk over the list and its recalculation cost simulated time (costs `scan` and \
                   `recalc`), but are not made here: the tasks are kept in order of goodness, and \
                   counters are brought up to date when they are looked at. Only tasks that may not \
                   use every CPU are walked over.",
    sources: "Linux 2.0.40, 2.2.1 and 2.4.17 kernel/sched.c and kernel/fork.c; for 2.4.3 the \
        context of patches against it (label still_running in schedule()).",
    params: &[
        Param {
            name: "version",
            unit: Unit::Choice(&["2.0", "2.2", "2.4", "2.0.40", "2.2.1", "2.4.3", "2.4.17"]),
            default: "2.0",
            range: None,
            doc: "Kernel whose rules apply. 2.0 is 2.0.40, 2.2 is 2.2.1, 2.4 is 2.4.17; 2.4.3 \
                stands for the early 2.4.",
        },
        Param {
            name: "penalty",
            unit: Unit::Count,
            default: "20",
            range: Some(("0", "100")),
            doc: "Bonus of a task on the CPU on which it ran last, with several CPUs \
                (PROC_CHANGE_PENALTY; 20 in 2.0.40, 15 in 2.2 and 2.4 on i386).",
        },
    ],
    rt_above: false,
    deadline_above: false,
    reads: &["policy", "nice", "rt_prio", "process", "kernel"],
    build: |p| {
        Ok(Box::new(Goodness {
            version: [Version::V20, Version::V22, Version::V24][[0, 1, 2, 0, 1, 2, 2][p.int("version") as usize]],
            prev_first: p.int("version") == 5,
            penalty: p.int("penalty"),
            of: TaskMap::new(),
            ready: Ready::default(),
            length: 0,
            places: (0, 0),
            epoch: 0,
            prev: Vec::new(),
            prev_process: Vec::new(),
            stats: Stats::default(),
        }))
    },
};
