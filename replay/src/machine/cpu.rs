//! The state of a CPU.

use crate::cost::{Costs, CACHE_COLD_AFTER};
use crate::engine::timer_heap::Timers;
use crate::reasons::Stop;
use crate::task::{Ns, TaskId};

/// A CPU as policies may read it.
#[derive(Clone, Debug)]
pub(crate) struct CpuState {
    pub curr: Option<TaskId>,
    pub need_resched: bool,
    /// A reschedule is due when the CPU next returns to its task.
    pub lazy: bool,
    /// True while the idle task is on the CPU (not while a switch to another task is due).
    pub idle: bool,
    /// Since when it has been idle, where it is.
    pub idle_since: Ns,
    /// Runnable and running tasks.
    pub nr: u32,
    /// Clock of accounts, and whether the next reschedule takes it as it is.
    pub clock: Ns,
    pub keep_clock: bool,
    /// From when on the current task's own demand is served.
    pub run_from: Ns,
    /// When the current task was put on the CPU.
    pub on_since: Ns,
    /// An interrupt or a switch goes on until then.
    pub busy_until: Ns,
    /// Interrupts are off until then.
    pub masked_until: Ns,
    pub tick_phase: Ns,
    /// Who left last, for the switch record; and how.
    pub leaving: Option<(TaskId, Stop)>,
    /// The task that an interrupt has just woken, where it asked for a choice of a task.
    pub irq_woke: Option<TaskId>,
    /// Cost that the policy reported and that is to be charged at the next switch.
    pub owed: Ns,
    /// True while the segment slot of the CPU holds the end of the current task's run step.
    pub serving: bool,
    pub yielded: bool,
    /// When it last switched.
    pub switched_at: Ns,
    /// When a task last fell asleep or ended on it.
    pub blocked_at: Ns,
    /// The timer of the sleep that has just begun is the next to fire.
    pub timer_first: bool,
    /// When the interrupt going on came, where it has done something already: a wakeup or a tick.
    pub irq_entry: Option<Ns>,
    /// The timers of tasks that fell asleep on it.
    pub timers: Timers,
}

impl CpuState {
    /// What a switch takes longer, before it is recorded, because the task that leaves sleeps or ends:
    /// `first`, where the timer that it has set is the next to fire.
    #[inline]
    pub fn more_to_leave(&mut self, sleeps: bool, first: Ns) -> Ns {
        if std::mem::take(&mut self.timer_first) && sleeps {
            first
        } else {
            0
        }
    }

    /// An interrupt has just woken `t`: notes it where a choice of a task follows from that.
    #[inline(always)]
    pub fn note_preemption(&mut self, t: TaskId) {
        self.irq_woke = self.need_resched.then_some(t);
    }

    /// What an interrupt takes behind its last wakeup; `idle`, where nothing ran.
    #[inline(always)]
    pub fn wakeup_cost(&mut self, costs: &Costs, now: Ns, idle: bool) -> Ns {
        let first = self.irq_entry.take().is_none();
        if idle {
            return costs.idle_exit;
        }
        if !self.need_resched {
            return costs.interrupt_return;
        }
        if !first {
            return costs.interrupt_last;
        }
        let cache_cold = now - self.switched_at >= CACHE_COLD_AFTER;
        costs.interrupt + if cache_cold { costs.interrupt_cache_cold } else { 0 }
    }
}
