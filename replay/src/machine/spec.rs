//! The machine that a workload runs on, as its caller describes it.

use crate::cost::Costs;
use crate::speeds::Speeds;
use crate::switch_costs::SwitchCostChange;
use crate::task::{CpuSet, Ns, NEVER};

/// When sleeps end on timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerMode {
    /// At the time asked for, or up to the slack later.
    #[default]
    High,
    /// At the first tick after the time asked for.
    Tick,
}

/// The machine on which a workload runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Number of CPUs.
    pub cpus: usize,
    /// Clock ticks a second.
    pub hz: i64,
    /// Time of the first tick of each CPU; CPUs beyond the end take the last entry, an empty list is phase 0.
    pub tick_phase: Vec<Ns>,
    /// When sleeps end.
    pub timers: TimerMode,
    /// False: a run step in the kernel is not preempted before its end.
    pub preempt_kernel: bool,
    /// How fast its CPUs are; what scheduling costs is the same on all.
    pub speeds: Speeds,
    /// CPUs with a scheduling domain: Linux balances tasks among them.
    pub balanced: CpuSet,
    /// What scheduling costs.
    pub costs: Costs,
    /// By how much switches cost more or less than the recorded ones.
    pub switch_costs: Option<SwitchCostChange>,
    /// The end; [`NEVER`] runs until nothing is left to do.
    pub until: Ns,
    /// Essential tasks do not end the run before this time.
    pub at_least: Ns,
    /// What a policy draws its kernel's random numbers from.
    pub seed: u64,
    /// False keeps no records, only counts.
    pub log: bool,
    /// A run that makes more records ends with an error, before it takes all memory.
    pub most_records: usize,
}

impl Machine {
    /// The records of a workload that was written down take no more than 1.6 GB.
    pub const MOST_RECORDS: usize = 1 << 26;
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            cpus: 1,
            hz: 1000,
            tick_phase: Vec::new(),
            timers: TimerMode::High,
            preempt_kernel: true,
            speeds: Speeds::default(),
            balanced: CpuSet::all(),
            costs: Costs::default(),
            switch_costs: None,
            until: NEVER,
            at_least: 0,
            seed: 0,
            log: true,
            most_records: Machine::MOST_RECORDS,
        }
    }
}
