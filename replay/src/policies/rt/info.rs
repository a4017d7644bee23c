//! Documentation and constructor of `rt`.

use super::server::Reservation;
use super::{balance, Bits, Rt, TaskMap};
use crate::params::{Param, Unit};
use crate::policies::PolicyInfo;

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "rt",
    title: "POSIX SCHED_FIFO and SCHED_RR by priority, with push and pull",
    idea: "100 FIFO lists per CPU, one per priority, 99 best. A better task preempts at once. \
           SCHED_RR tasks of one priority take turns by a slice counted in ticks. This is the class \
           that runs above every Linux policy; named by itself it schedules everybody, time-sharing \
           tasks in a single list below priority 1.",
    formula: "next = head of the best non-empty list. Woken and new: tail. Preempted: head. \
              Yield: tail. RR: each tick takes one tick off the slice; at 0 it is refilled \
              and, when others wait in the list, the task goes to the tail. The slice is not \
              refilled by sleep or preemption. Throttling per CPU: when the class has run more \
              than `runtime` within `period`, it is not chosen until the period ends; then the \
              time used falls by `runtime`. From 6.12 on there is no throttle but a fair \
              server per CPU: starving tasks of other classes run first for `server_runtime` \
              in each `server_period`. Several CPUs: each counts as the best of its real-time \
              tasks, below priority 1 without one. A task wakes on its last CPU; where that \
              runs one as good, on the CPU that counts least, if less than itself (of several \
              its own, then the waker's, then in turn). A CPU that begins to run such a task \
              pushes those that wait there to lower CPUs, best first. A CPU whose task sleeps, \
              and that has none as good, pulls: by interrupts that make others push once it \
              has switched (push_ipi), or at once.",
    tie_break: "Order of arrival in the list. Equal priority does not preempt, but where the running \
                task can move to a lower CPU and the waking one cannot.",
    not_modelled: "Priority inheritance, tasks whose migration is disabled, groups of \
                   real-time tasks, runtime sharing between CPUs (RT_RUNTIME_SHARE), capacities, \
                   the time that pushing takes. The fair server starts at the next tick or \
                   dispatch behind the arrival of somebody to be served, and has no server for \
                   sched_ext beside it.",
    sources: "Linux 6.1.192 and 6.12.117 kernel/sched/{rt,cpupri,deadline,features}, \
              include/linux/sched/rt.h; Debian's changelogs of linux 6.1 and 6.12 (RT_PUSH_IPI: off by \
              default from 6.1.178 and 6.12.96 on); features of a running 7.3.4; POSIX.1 on SCHED_FIFO \
              and SCHED_RR.",
    params: &[
        Param {
            name: "version",
            unit: Unit::Choice(&["6.1", "6.12", "7.3"]),
            default: "6.1",
            range: None,
            doc: "Kernel whose defaults apply.",
        },
        Param {
            name: "push_ipi",
            unit: Unit::Switch,
            default: "6.1:on 6.12:on 7.3:off",
            range: None,
            doc: "A CPU that wants tasks asks the others by interrupt to push (RT_PUSH_IPI; off by \
                  default from 6.1.178 and 6.12.96 on, but for PREEMPT_RT); off: it takes them \
                  itself.",
        },
        Param {
            name: "slice",
            unit: Unit::Time,
            default: "100ms",
            range: Some(("1us", "100s")),
            doc: "Slice of SCHED_RR (`sched_rr_timeslice_ms`), rounded up to whole ticks.",
        },
        Param {
            name: "runtime",
            unit: Unit::Time,
            default: "950ms",
            range: Some(("0ns", "1000s")),
            doc: "Longest the class may run within a period (`sched_rt_runtime_us`).",
        },
        Param {
            name: "period",
            unit: Unit::Time,
            default: "1s",
            range: Some(("1us", "1000s")),
            doc: "Period of the throttle (`sched_rt_period_us`).",
        },
        Param {
            name: "throttle",
            unit: Unit::Switch,
            default: "6.1:on 6.12:off 7.3:off",
            range: None,
            doc: "Off: no limit (runtime -1, or a kernel with a fair server).",
        },
        Param {
            name: "fair_server",
            unit: Unit::Switch,
            default: "6.1:off 6.12:on 7.3:on",
            range: None,
            doc: "Starving tasks of other classes are served.",
        },
        Param {
            name: "server_runtime",
            unit: Unit::Time,
            default: "50ms",
            range: Some(("1us", "4s")),
            doc: "How long in each period (`/sys/kernel/debug/sched/fair_server/cpu*/runtime`).",
        },
        Param {
            name: "server_period",
            unit: Unit::Time,
            default: "1s",
            range: Some(("100us", "4s")),
            doc: "Period of the server (`/sys/kernel/debug/sched/fair_server/cpu*/period`).",
        },
    ],
    rt_above: false,
    deadline_above: false,
    reads: &["policy", "rt_prio"],
    build: |p| {
        if p.int("runtime") > p.int("period") {
            return Err("runtime must not be longer than period".into());
        }
        let reservation = Reservation { runtime: p.int("server_runtime"), period: p.int("server_period") };
        if reservation.runtime > reservation.period {
            return Err("server_runtime must not be longer than server_period".into());
        }
        Ok(Box::new(Rt {
            slice: p.int("slice"),
            runtime: p.int("runtime"),
            period: p.int("period"),
            throttle: p.on("throttle") && p.int("runtime") < p.int("period"),
            push_ipi: p.on("push_ipi"),
            reservation: p.on("fair_server").then_some(reservation),
            slice_ticks: 1,
            cpus: Vec::new(),
            overloaded: Bits::default(),
            round: balance::Round::default(),
            tasks: TaskMap::new(),
        }))
    },
};
