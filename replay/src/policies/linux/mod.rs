//! What Linux's fair policies share: load averages, where a task wakes, and how CPUs take tasks
//! from each other.
//!
//! `cfs` and `eevdf` own one [`Balancer`] each. They tell it what becomes runnable, runs and sleeps
//! on which queue; it answers where a task should go ([`Balancer::select`]) and which queued tasks
//! a CPU should pull ([`Balancer::newidle`], [`Balancer::tick`]). The policy does the moving.
//!
//! Modelled: one scheduling domain over all CPUs, which share a cache or have one each, each CPU a
//! group of its own; select_task_rq_fair with wake_affine, wake_wide and select_idle_sibling
//! (SIS_UTIL), fork and exec balancing (at the record of the exec, where the kernel does it just
//! before), estimated utilisation (UTIL_EST), newidle, idle and busy periodic balancing by load and by
//! number of tasks, migration cost (cache-hot tasks), nr_balance_failed, the random skipping of newidle
//! balances by their success (NI_RANDOM); what a forked task is taken to use, and that what an ended
//! one used is forgotten. Tasks that are there from the beginning and asleep have averages of 0, since
//! half is forgotten in 32 ms; of others nobody knows, and they begin as a forked one does. Isolated
//! CPUs are in no domain: each stands alone. Not modelled: threads of a core, NUMA, capacities,
//! energy-aware placement, the cost of balancing itself.
//!
//! Sources: Linux 6.1.192, 6.12.117, 7.3.4 kernel/sched/{fair,pelt,topology,features}.

mod alone;
mod balance;
mod estimate;
mod groups;
mod load;
mod pelt;
mod quota;
mod runnable;
mod select;

pub use balance::Pull;
pub use groups::Groups;
pub use load::Balancer;
pub use quota::Quota;

/// Which kernel's rules balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Up to 6.5.
    Cfs,
    /// 6.6 to 7.0.
    Eevdf,
    /// 7.3: tasks that are not eligible stay unless balancing has failed before.
    Flat,
}
