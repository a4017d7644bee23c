//! Documentation and constructor of `ule`.

use super::{Ule, Version};
use crate::params::{Param, Unit};
use crate::policies::PolicyInfo;
use crate::queue::TaskMap;

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "ule",
    title: "FreeBSD ULE, of December 2004 and of about 2022",
    idea: "Each CPU has its own queues. A score from time run and time asleep says which threads \
           are interactive; they always run first; the others take turns. Nothing is done for \
           sleeping threads, so the cost of a decision does not grow with their number.",
    formula: "score = 50 + (50 - slept / (run / 50)) where run > slept, run / (slept / 50) where \
              less; interactive below 30. 2004: priority = 160 + score * 64 / 100 + nice; \
              interactive threads go to the array that runs now, others to the next one; slice 1/7 \
              s, the shorter the nicer (1/100 s at 19), counted in statistics ticks. History of 5 \
              s. Four priorities share a queue. 2022: interactive 120 + score; others 172 + CPU \
              share in 1/32 + nice, in a calendar of 64 slots that turns with the statistics clock; \
              slice stathz / 10 ticks (94 ms) shared by the waiting threads, at least a sixth. \
              History of 5 s. CPU share over 10 s, noted at switches and statistics ticks in whole \
              clock ticks. A sleeper wakes with priority 152 at worst, and has its own again when \
              it runs; a running thread's new priority counts from when it leaves the CPU. CPUs \
              (2022): a waking thread goes to its last CPU where that idles and it left it less \
              than two ticks ago, else to the least loaded CPU where it would be the best, else to \
              the least loaded one, but to the waker's CPU where it would be the best there and the \
              load is at most one higher. On another CPU only an interactive thread preempts one \
              that is not. An idle CPU takes the second thread of the CPU with the highest load. \
              Every half to one and a half seconds each CPU with two threads or more gives one to \
              the least loaded. Fork: the child takes its parent's history, shortened to half a \
              second. Exit: the parent's run time grows by the child's.",
    tie_break: "Within a queue of four priorities or a slot in order of arrival. A thread that \
                leaves the CPU goes to the tail, whether its slice is over or a better thread woke; \
                one that an interrupt thread displaced (2022: a wakeup by a device) goes to the \
                head of the array that runs now.",
    not_modelled: "2004: transfers between CPUs every one to two seconds (an idle CPU takes a \
                   thread from the CPU with the highest load). 2022: topology other than CPUs that \
                   share one cache; random numbers but for the interval of balancing (among equal \
                   loads the first CPU is taken). Priority lending; kernel priorities while in the \
                   kernel, but for those of sleepers in 2022.",
    sources: "FreeBSD sys/kern/sched_ule.c of December 2004 and of about 2022, kern_switch.c, kern_synch.c.",
    params: &[
        Param {
            name: "version",
            unit: Unit::Choice(&["2004", "2022"]),
            default: "2022",
            range: None,
            doc: "Which year's rules.",
        },
        Param {
            name: "stathz",
            unit: Unit::Count,
            default: "128",
            range: Some(("10", "10000")),
            doc: "Statistics clock ticks a second.",
        },
    ],
    rt_above: true,
    deadline_above: false,
    reads: &["nice"],
    build: |p| {
        Ok(Box::new(Ule {
            version: if p.int("version") == 0 { Version::V2004 } else { Version::V2022 },
            stathz: p.int("stathz"),
            hz: 1000,
            of: TaskMap::new(),
            rq: Vec::new(),
            load: Vec::new(),
            nice_count: Vec::new(),
            many: super::Many::default(),
        }))
    },
};
