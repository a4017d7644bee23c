//! Documentation and constructor of `solaris-ts`.

use super::table::Table;
use super::SolarisTs;
use crate::params::{Param, Unit};
use crate::policies::PolicyInfo;
use crate::queue::TaskMap;

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "solaris-ts",
    title: "SVR4 and Solaris time sharing, with IA, FX and RT",
    idea: "A table of 60 levels says how long a quantum is, where a thread goes when it has used \
           one up, and where it goes when it was kept waiting or slept. Hogs sink to levels with \
           long quanta; sleepers rise. A thread's priority is its level plus what the user asked \
           for (upri, from the nice value).",
    formula: "priority = clamp(cpupri + upri + boost, 0, 59); upri = -3 * nice unless given. \
              Quantum used up: cpupri = tqexp, back of the queue, and the quantum of the new level. \
              Preempted: front, and keeps its time. Wakeup and return from a trap, when dispwait > \
              maxwait: cpupri = slpret. Each second dispwait + 1; when > maxwait: queued and \
              sleeping threads cpupri = lwait. fork: the parent is treated as if its quantum were \
              over and the child runs first; vfork: nothing. RES: a quantum in the table is in \
              1/RES s, rounded up to ticks. IA: boost +10 in the foreground, else -10, and wakes to \
              the front. FX: level `prio`, fixed. RT: 100 + prio, quantum 1000 ms at 0 to 9 down to \
              100 ms at 50 to 59. SYS: 60 + prio.",
    tie_break: "Within a priority in order of arrival; a queued equal never preempts. A thread that \
        wakes in the tick in which it left a CPU goes to the front.",
    not_modelled: "The boost to kernel priorities of threads that hold resources (until Solaris 9); \
                   FSS; cache affinity of a few ticks, and the next CPU that is tried when a queue \
                   is long (a wakeup goes to the CPU that runs the least; an idle CPU takes the \
                   best waiting thread); processor sets. A return from a trap is taken to happen at \
                   each tick.",
    sources: "illumos usr/src/uts/common/disp ts.c, ts_dptbl.c, disp.c (2005 and 2019) and \
              os/fork.c; Oracle's dispadmin and kernel table manuals. The published fork experiment \
              comes out (see the tests).",
    params: &[
        Param {
            name: "res",
            unit: Unit::Count,
            default: "0",
            range: Some(("0", "1000000000")),
            doc: "Units of a quantum per second; 0: as the table says, 1000 in the default one.",
        },
        Param {
            name: "table",
            unit: Unit::Text,
            default: "default",
            range: None,
            doc: "Dispatch table as `dispadmin -g -c TS` prints it: 60 rows of ts_quantum, \
                ts_tqexp, ts_slpret, ts_maxwait, ts_lwait, separated by `;` or line ends: \
                `\"solaris-ts:table=$(dispadmin -c TS -g)\"`.",
        },
        Param {
            name: "fork_demotes",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "fork() costs the parent a level as a used-up quantum does, as Solaris has it.",
        },
    ],
    rt_above: false,
    deadline_above: false,
    reads: &["policy", "nice", "prio", "rt_prio", "upri", "class", "kernel", "foreground"],
    build: |p| {
        let table = Table::parse(p.text("table"))?;
        let res = Some(p.int("res")).filter(|r| *r > 0);
        Ok(Box::new(SolarisTs {
            levels: table.levels(res, 10_000_000),
            table,
            res,
            fork_demotes: p.on("fork_demotes"),
            of: TaskMap::new(),
            queues: Vec::new(),
            promoted: 0,
        }))
    },
};
