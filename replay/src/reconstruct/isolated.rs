//! CPUs without a scheduling domain: nothing balances tasks onto them.
//!
//! `isolcpus=` takes CPUs out of the scheduling domains and out of the affinity that every task
//! inherits; a cpuset partition of type `isolated` does the same while the system runs. Only
//! tasks that were bound to such a CPU run there (Linux: Documentation/admin-guide/kernel-
//! parameters.txt, `isolcpus`; Documentation/admin-guide/cgroup-v2.rst,
//! `cpuset.cpus.partition`). What the trace does not state of a task's affinity follows from
//! where it ran.

use std::collections::BTreeSet;

use super::{Inferred, Recon};
use crate::history::History;
use crate::program::Workload;
use crate::task::{Cpu, CpuSet};

/// CPUs without a scheduling domain, by position, and what that means for each task.
#[derive(Clone, Debug, Default)]
pub struct Isolated {
    /// Which CPUs.
    pub cpus: Vec<Cpu>,
    /// For each task, the isolated CPUs on which it ran, and whether it ran on a single CPU.
    own: Vec<(Vec<Cpu>, bool)>,
    /// Tasks that ran on an isolated CPU and on others: no record says who moved them when.
    pub moved: Vec<usize>,
}

impl Isolated {
    /// What `history` says of the tasks where these CPUs are isolated.
    pub(super) fn of(history: &History, cpus: Vec<Cpu>) -> Self {
        let mut found = Isolated { cpus, ..Isolated::default() };
        if found.cpus.is_empty() {
            return found;
        }
        for (i, task) in history.tasks.iter().enumerate() {
            let on = task.events.iter().filter_map(|a| a.kind.cpu());
            let ran: BTreeSet<Cpu> = on.map(|cpu| cpu as Cpu).collect();
            let own: Vec<Cpu> = ran.iter().copied().filter(|c| found.cpus.contains(c)).collect();
            if !own.is_empty() && ran.len() > 1 {
                found.moved.push(i);
            }
            found.own.push((own, ran.len() == 1));
        }
        found
    }

    /// The CPUs that balancing looks at, of so many.
    pub fn balanced(&self, cpus: usize) -> CpuSet {
        if self.cpus.is_empty() {
            return CpuSet::all();
        }
        CpuSet::of(&(0..cpus).filter(|c| !self.cpus.contains(c)).collect::<Vec<_>>())
    }

    /// Keeps tasks off the isolated CPUs on which they never ran, and those that ran on one alone there.
    /// Who may only use isolated CPUs was bound to them.
    pub fn keep_off(&self, cpus: usize, work: &mut Workload) {
        for (program, (own, alone)) in work.tasks.iter_mut().zip(&self.own).filter(|_| !self.cpus.is_empty()) {
            for attrs in std::iter::once(&mut program.first).chain(&mut program.attrs) {
                let may = |c: &Cpu| attrs.affinity.contains(*c);
                let kept: Vec<Cpu> = match own[..] {
                    [only] if *alone && may(&only) => vec![only],
                    _ => (0..cpus).filter(|c| may(c) && (own.contains(c) || !self.cpus.contains(c))).collect(),
                };
                if !kept.is_empty() && kept.len() < (0..cpus).filter(may).count() {
                    attrs.affinity = CpuSet::of(&kept);
                }
            }
        }
    }
}

impl Recon {
    /// The isolated CPUs as a row; nothing where there are none.
    pub(super) fn isolation(&self) -> Option<Inferred> {
        let cpus: Vec<String> = self.isolated.cpus.iter().map(|c| self.cpus[*c].to_string()).collect();
        let moved = match self.isolated.moved.len() {
            0 => String::new(),
            n => format!("; not modelled: who moves the {n} tasks that ran on one of them and on other CPUs"),
        };
        let how = format!(
            "CPU {}, as the machine beside the trace says: without a scheduling domain, only tasks that ran \
             there alone are bound to it, and nothing balances others onto it{moved}",
            cpus.join(", ")
        );
        let value = Some(cpus.len() as f64);
        (!cpus.is_empty()).then_some(Inferred { name: "isolated CPUs", value, unit: "1", n: None, how })
    }
}
