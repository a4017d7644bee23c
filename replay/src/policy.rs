//! The [`Policy`] trait: what a scheduler is to the engine. [`Kernel`] is what the engine is to a scheduler.
//!
//! Hook names are those of sched_ext where it has one. The life of a task, in hooks:
//!
//! ```text
//! init_task -> [select_cpu -> runnable -> enqueue -> wakeup_preempt] -> dispatch -> running
//!           running: tick, slice_expired, yield_, set_params
//!           leaves its CPU but goes on:  stopping(Preempted | Yielded) -> enqueue(Preempted | Yielded)
//!           falls asleep or ends:        stopping(Slept | Exited) -> quiescent [-> exit_task]
//!           queued and taken away:       dequeue
//! ```
//!
//! A policy owns its queues. The task that runs is in no queue: `dispatch` takes a task out,
//! `enqueue` puts one in. At one instant things happen in the order of the module
//! [`crate::engine`].

use crate::program::Fork;
use crate::task::{Attrs, Cpu, TaskId};

pub use crate::machine::Kernel;
pub use crate::reasons::{Birth, Dequeue, Enqueue, Select, Stop, Wake};

/// Hands the table of hooks to a macro: name, what it gets besides the state and the time, what it
/// gives, what it is for. The faces of the trait for Python and for compiled code are made from
/// this table, and a test holds it against the trait.
#[macro_export]
macro_rules! policy_hooks {
    ($with:ident) => {
        $with! {
            init, "cpu = number of CPUs, task = number of tasks there will be, arg = tick in ns", "",
                "the replay begins";
            init_task, "arg = the task that makes it, -1 for none", "",
                "a task comes into being";
            fork_return, "task = the parent, arg = the child", "",
                "the parent returns from making a child, which has been queued";
            exec, "", "", "it executes another program";
            exiting, "", "", "it begins to exit, and will run for a little longer";
            exit_task, "", "", "it has ended";
            enable, "", "", "it enters the policy's care from another scheduling class";
            disable, "", "", "it leaves the policy's care for another scheduling class";
            select_cpu, "cpu = its last one, arg = 0 wakeup, 1 fork, 2 exec", "a CPU; -1: its last CPU if idle, else an idle one",
                "the CPU for a task that wakes, is new, or executes a program";
            runnable, "", "", "it becomes runnable; enqueue follows";
            enqueue, "arg = 0 initial, 1 fork, 2 wakeup, 3 preempted, 4 yielded, 5 migrated, 6 switched_to", "",
                "it is runnable and does not run: put it into a queue";
            wakeup_preempt, "arg = the running task", "1 preempts it",
                "a task was queued where another runs";
            dequeue, "arg = 0 migrated, 1 switched_from", "", "it is queued: take it out";
            dispatch, "task = -1", "the task to run next, taken out of its queue, or -1",
                "the CPU needs a task";
            running, "arg = 1 when it was not already on the CPU", "a slice in ns, 0 for none",
                "it starts to run; set its slice here";
            stopping, "arg = 0 preempted, 1 yielded, 2 slept, 3 exited, 4 switched_from", "",
                "it stops running: charge it here";
            quiescent, "arg = 2 slept, 3 exited", "", "it is no longer runnable";
            tick, "", "1 asks for a reschedule", "a clock tick while it runs";
            slice_expired, "", "1 asks for a reschedule; without this hook an expired slice always does",
                "its slice is over while it runs";
            timer, "cpu = -1, task = -1, arg = the token", "", "a timer that the policy set fires";
            update_1hz, "cpu = -1, task = -1", "", "once a second";
            yield_, "", "", "it yields; stopping, enqueue and dispatch follow";
            set_params, "arg = its nice value", "", "its nice value or priority changed";
        }
    };
}

/// A row of [`HOOKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookInfo {
    /// Name, in every face.
    pub name: &'static str,
    /// Arguments of the compiled form, where they are not just the CPU and the task.
    pub takes: &'static str,
    /// Result of the compiled form; nothing for 0.
    pub gives: &'static str,
    /// When it is called.
    pub doc: &'static str,
}

macro_rules! table {
    ($($name:ident, $takes:literal, $gives:literal, $doc:literal;)*) => {
        /// Every hook, in the order of the compiled form.
        pub const HOOKS: &[HookInfo] =
            &[$(HookInfo { name: stringify!($name), takes: $takes, gives: $gives, doc: $doc },)*];
    };
}
policy_hooks!(table);

/// Hooks that every policy needs.
pub const NEEDED_HOOKS: [&str; 3] = ["enqueue", "dequeue", "dispatch"];

/// A scheduling policy.
///
/// Only `enqueue`, `dequeue` and `dispatch` have no default. Time is in ns. [`Kernel::clock`] is
/// the clock for accounts; [`Kernel::now`] the time of the simulation. A hook that finds something
/// it cannot accept calls [`Kernel::fail`].
#[allow(unused_variables)]
pub trait Policy {
    /// The replay begins. CPUs, HZ and costs are known; there are no tasks yet.
    fn init(&mut self, k: &mut Kernel) {}

    /// `t` comes into being: `birth` is `None` for tasks that were there before. It is not runnable yet.
    /// Called for tasks of all classes of the stack, so that storage can be made.
    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {}

    /// The parent returns from making `child`, which has been put on a queue.
    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, child: TaskId, how: Fork) {}

    /// `t`, which runs, executes another program.
    fn exec(&mut self, k: &mut Kernel, t: TaskId) {}

    /// `t`, which runs, has begun to exit and will run for a little longer.
    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// `t` has ended. Its parent, when still alive, is [`Task::parent`].
    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {}

    /// `t` enters this policy's care from another class of the stack (`enqueue(SwitchedTo)` or
    /// `running` follows).
    fn enable(&mut self, k: &mut Kernel, t: TaskId) {}

    /// `t` leaves this policy's care for another class of the stack.
    fn disable(&mut self, k: &mut Kernel, t: TaskId) {}

    /// The CPU on whose queue `t` goes. Must be one that `t` may use.
    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        match why {
            Select::Wakeup(_) => k.idle_or_last(t),
            Select::Fork | Select::Exec => k.least_loaded(t),
        }
    }

    /// `t` becomes runnable (wakes, or is new); `enqueue` follows.
    fn runnable(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// Puts `t`, which is runnable and does not run, on the queue of `cpu`.
    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue);

    /// `t` was put on the queue of `cpu`, where `curr` of the same class runs: ask for
    /// [`Kernel::resched`] if `t` is to preempt it. Not called after `enqueue(Preempted |
    /// Yielded)`. Classes preempt lower classes by themselves.
    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {}

    /// Takes `t`, which is queued on `cpu`, out.
    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Dequeue);

    /// Chooses the task that `cpu` runs next and takes it out of its queue; `None` when there is none.
    /// May choose from another CPU's queue: the engine moves the task.
    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId>;

    /// `t` starts to run; `switched` is false when it ran before and was chosen again.
    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {}

    /// `t` stops running. Charge it here.
    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {}

    /// `t` is no longer runnable: it sleeps or has ended.
    fn quiescent(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {}

    /// False when [`Self::tick`] does nothing: the engine may then pass over ticks at which nothing
    /// else happens.
    fn wants_ticks(&self) -> bool {
        true
    }

    /// True when [`Self::dispatch`] leaves nothing behind that matters while no task ever comes into
    /// the care of this policy: the engine then does not ask it for tasks of a class that has none.
    fn rests_without_tasks(&self) -> bool {
        false
    }

    /// A clock tick while `t` runs.
    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// The slice of `t` that was set by [`Kernel::set_slice`] is over while it runs.
    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        k.resched(cpu);
    }

    /// A timer that was set by [`Kernel::timer_at`] fires.
    fn timer(&mut self, k: &mut Kernel, token: u64) {}

    /// Once a second.
    fn update_1hz(&mut self, k: &mut Kernel) {}

    /// `t`, which runs, yields; `stopping(Yielded)`, `enqueue(Yielded)` and `dispatch` follow.
    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// The attributes of `t` changed from `old` to those in its [`Task`].
    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {}

    /// The value of something the policy keeps of `t`, for literate specs (`vruntime`, `counter`,
    /// `priority`).
    fn inspect(&self, k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        None
    }

    /// What the policy counted (recalculations, boosts), for literate specs and reports.
    fn counters(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hook of the trait that is in no row would be missing in Python and C.
    #[test]
    fn the_table_has_every_hook_of_the_trait() {
        let source = include_str!("policy.rs");
        let body = source.split("pub trait Policy {").nth(1).and_then(|s| s.split("\n}\n").next()).unwrap_or_default();
        let hooks = body.lines().filter_map(|l| l.trim().strip_prefix("fn ")?.split('(').next());
        let asked = ["wants_ticks", "rests_without_tasks", "inspect", "counters"];
        let mut of_trait: Vec<&str> = hooks.filter(|h| !asked.contains(h)).collect();
        let mut of_table: Vec<&str> = HOOKS.iter().map(|h| h.name).collect();
        of_trait.sort_unstable();
        of_table.sort_unstable();
        assert_eq!(of_trait, of_table);
        assert!(NEEDED_HOOKS.iter().all(|h| of_table.contains(h)));
    }
}
