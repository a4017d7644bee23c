//! What scheduling itself costs, apart from any policy. All default to nothing.

use crate::near;
use crate::params;
use crate::task::Ns;

/// Cost of making a task, as a function of the processes alive: how a free process number is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkCost {
    /// The recorded demand of the parent holds it already.
    #[default]
    AsRecorded,
    /// `base` and `each` for every task alive: the list of processes is walked to see that a number is free.
    List {
        /// Fixed part.
        base: Ns,
        /// Per live task.
        each: Ns,
    },
    /// `base`, whatever is alive: a bitmap of numbers, and a hash to find processes.
    Bitmap {
        /// All of it.
        base: Ns,
    },
    /// `base`, and when the table is full `each` for every entry moved to one of twice the size: a
    /// table whose free entries are chained. It begins with [`PID_TABLE`] entries, or as many
    /// doublings as the tasks alive at the first fork need.
    Table {
        /// Fixed part.
        base: Ns,
        /// Per entry moved.
        each: Ns,
    },
}

/// Entries of a process table that nobody has made grow.
pub const PID_TABLE: usize = 64;

impl ForkCost {
    /// Reads `list:BASE/EACH`, `bitmap:BASE`, `table:BASE/EACH`, or a time, which is the same as `bitmap:`.
    pub fn parse(text: &str) -> Option<Self> {
        let (model, times) = text.split_once(':').unwrap_or(("bitmap", text));
        let mut times = times.split('/').map(|t| params::duration(t.trim()).filter(|t| *t >= 0));
        let base = times.next()??;
        let each = match times.next() {
            None => None,
            Some(each) => Some(each?),
        };
        if times.next().is_some() {
            return None;
        }
        match (model.trim(), each) {
            ("list", Some(each)) => Some(ForkCost::List { base, each }),
            ("table", Some(each)) => Some(ForkCost::Table { base, each }),
            ("bitmap", None) => Some(ForkCost::Bitmap { base }),
            _ => None,
        }
    }

    /// The cost of a fork beside `live` tasks; `table` is the size of the process table so far, 0
    /// before the first fork.
    pub(crate) fn of(self, live: usize, table: &mut usize) -> Ns {
        match self {
            ForkCost::AsRecorded => 0,
            ForkCost::Bitmap { base } => base,
            ForkCost::List { base, each } => base + each * live as Ns,
            ForkCost::Table { base, each } => {
                if *table == 0 {
                    *table = PID_TABLE.max(live.next_power_of_two());
                }
                if live < *table {
                    return base;
                }
                let moved = *table;
                *table *= 2;
                base + each * moved as Ns
            }
        }
    }
}

/// A CPU without a switch for this long is cache-cold.
pub const CACHE_COLD_AFTER: Ns = 900_000;

/// The part of a cost of cache-cold CPUs that is due after `ran` on it: what turns cold does so at
/// some time within [`CACHE_COLD_AFTER`].
pub(crate) fn cache_cold_share(cost: Ns, ran: Ns) -> Ns {
    cost * ran.min(CACHE_COLD_AFTER) / CACHE_COLD_AFTER
}

/// Costs of the machine and kernel, in ns of CPU time taken from whoever runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From the decision to switch until the new task's own work begins.
    pub switch: Ns,
    /// Part of `switch` after which the switch is recorded.
    pub record: Ns,
    /// From the decision to switch until interrupts that came meanwhile are served.
    pub irqs_off: Ns,
    /// Added to `switch` where it takes the CPU from a task that had it for [`CACHE_COLD_AFTER`].
    pub switch_cache_cold: Ns,
    /// Added to all three when the timer of the sleep that begins is the next to fire on the CPU.
    pub timer_first: Ns,
    /// Added to `switch` behind a task that sleeps or ends.
    pub switch_block: Ns,
    /// Added to all three when a task sleeps or ends and the next one is of a lower scheduling class.
    pub lower_class: Ns,
    /// From an interrupt to what it does first: work that would end in between is interrupted.
    pub irq_entry: Ns,
    /// A clock tick, until the interrupted work goes on.
    pub tick: Ns,
    /// A clock tick, until the reschedule that it asks for.
    pub tick_resched: Ns,
    /// A clock tick, until the first timer that rides on it fires.
    pub tick_wakeup: Ns,
    /// From the only wakeup made in an interrupt until the CPU switches.
    pub interrupt: Ns,
    /// The same from the last of several, or from one made behind a tick.
    pub interrupt_last: Ns,
    /// The same, until the interrupted work goes on, and what the interrupt took before that wakeup.
    pub interrupt_return: Ns,
    /// Added to `interrupt` when the CPU had not switched for [`CACHE_COLD_AFTER`]: what was not used
    /// lately takes longer.
    pub interrupt_cache_cold: Ns,
    /// The same as `interrupt` when the CPU was idle.
    pub idle_exit: Ns,
    /// From a wakeup made by another CPU, which preempts what runs, to the reschedule: what an interrupt
    /// between CPUs takes. What runs goes on meanwhile.
    pub remote_wakeup: Ns,
    /// The same of a CPU that is idle.
    pub remote_idle: Ns,
    /// From one wakeup made in an interrupt to the next one in the same interrupt.
    pub next_wakeup: Ns,
    /// From the clock by which a new task is queued to the moment at which it is seen to be.
    pub fork_clock: Ns,
    /// A wakeup made by a task, added to its demand.
    pub wakeup: Ns,
    /// Per task that the policy says it looked at when choosing
    /// ([`Kernel::scanned`](crate::policy::Kernel::scanned)).
    pub scan: Ns,
    /// Per task that gets a new counter when all are used up (the recalculation loop of Linux 2.0 to 2.4).
    pub recalc: Ns,
    /// Per task that the policy says it walked over in its 1 Hz work.
    pub second: Ns,
    /// A fork.
    pub fork: ForkCost,
}

/// Names of the costs, what each means, and how it is written where that is not one time.
pub const COST_KEYS: &[(&str, &str)] = &[
    ("switch", "a switch to another task, until its own work begins"),
    ("record", "part of `switch` after which the switch is recorded"),
    ("irqs_off", "from the decision to switch until interrupts that came meanwhile are served; `record` sets it too"),
    ("switch_cache_cold", "added to a switch that takes the CPU from a task which had it for 0.9 ms"),
    (
        "timer_first",
        "added to a switch, before it is recorded, when a sleep begins whose timer is \
        the next to fire: the clock is set anew",
    ),
    ("switch_block", "added to a switch behind a task that sleeps or ends"),
    (
        "lower_class",
        "added to a switch, before it is recorded, when a task sleeps or ends and the \
        next one is of a lower scheduling class",
    ),
    ("irq_entry", "from an interrupt to what it does first: work that would end in between is interrupted"),
    ("tick", "a clock tick (a kernel that reschedules at its end included)"),
    ("tick_wakeup", "a clock tick, until the first timer that rides on it fires; `tick` sets it too"),
    ("interrupt", "the rest of an interrupt behind the wakeup that it makes"),
    (
        "interrupt_last",
        "in place of `interrupt` behind the last of several wakeups and behind a \
        tick; `interrupt` sets it too",
    ),
    ("interrupt_return", "in place of `interrupt` where no switch follows; `interrupt` sets it too"),
    ("interrupt_cache_cold", "added to `interrupt` when the CPU had not switched for 0.9 ms"),
    ("idle_exit", "in place of `interrupt` on an idle CPU"),
    (
        "remote_wakeup",
        "from a wakeup, or another call for a reschedule, that comes from another CPU until the CPU \
        heeds it (an interrupt between CPUs)",
    ),
    ("remote_idle", "the same of a CPU that is idle"),
    ("next_wakeup", "from one wakeup to the next in one interrupt"),
    ("wakeup", "a wakeup made by a task"),
    ("scan", "each runnable task that the scheduler looks at to choose one (goodness, bfs)"),
    ("recalc", "each process whose counter is recalculated when all are used up (goodness)"),
    ("second", "each process that the scheduler's work once a second walks over (4bsd, aix, solaris-ts, nt4)"),
    (
        "fork",
        "a fork: list:BASE/EACH (each process alive is looked at), bitmap:BASE, \
        table:BASE/EACH (each entry is moved when the table is full)",
    ),
];

impl Costs {
    /// All that are not 0, as [`Self::set`] takes them, in an order in which none undoes another.
    pub fn listed(&self) -> Vec<(&'static str, String)> {
        let fields = [
            ("switch", self.switch),
            ("record", self.record),
            ("irqs_off", self.irqs_off),
            ("switch_cache_cold", self.switch_cache_cold),
            ("timer_first", self.timer_first),
            ("switch_block", self.switch_block),
            ("lower_class", self.lower_class),
            ("irq_entry", self.irq_entry),
            ("tick", self.tick),
            ("tick_wakeup", self.tick_wakeup),
            ("interrupt", self.interrupt),
            ("interrupt_last", self.interrupt_last),
            ("interrupt_return", self.interrupt_return),
            ("interrupt_cache_cold", self.interrupt_cache_cold),
            ("idle_exit", self.idle_exit),
            ("remote_wakeup", self.remote_wakeup),
            ("remote_idle", self.remote_idle),
            ("next_wakeup", self.next_wakeup),
            ("wakeup", self.wakeup),
            ("scan", self.scan),
            ("recalc", self.recalc),
            ("second", self.second),
        ];
        let times = fields.into_iter().filter(|(_, ns)| *ns > 0).map(|(key, ns)| (key, format!("{ns}ns")));
        let fork = match self.fork {
            ForkCost::AsRecorded => None,
            ForkCost::List { base, each } => Some(format!("list:{base}ns/{each}ns")),
            ForkCost::Bitmap { base } => Some(format!("bitmap:{base}ns")),
            ForkCost::Table { base, each } => Some(format!("table:{base}ns/{each}ns")),
        };
        times.chain(fork.map(|fork| ("fork", fork))).collect()
    }

    /// Sets one cost from text; the error says what would have been valid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key == "fork" {
            let expected = "list:BASE/EACH, bitmap:BASE or table:BASE/EACH with times such as 2us/50ns";
            self.fork = ForkCost::parse(value).ok_or_else(|| format!("cost fork={value}: expected {expected}"))?;
            return Ok(());
        }
        let place = match key {
            "switch" => &mut self.switch,
            "record" => &mut self.record,
            "irqs_off" => &mut self.irqs_off,
            "switch_cache_cold" => &mut self.switch_cache_cold,
            "timer_first" => &mut self.timer_first,
            "switch_block" => &mut self.switch_block,
            "lower_class" => &mut self.lower_class,
            "irq_entry" => &mut self.irq_entry,
            "tick" => &mut self.tick,
            "tick_wakeup" => &mut self.tick_wakeup,
            "interrupt" => &mut self.interrupt,
            "interrupt_last" => &mut self.interrupt_last,
            "interrupt_return" => &mut self.interrupt_return,
            "interrupt_cache_cold" => &mut self.interrupt_cache_cold,
            "idle_exit" => &mut self.idle_exit,
            "remote_wakeup" => &mut self.remote_wakeup,
            "remote_idle" => &mut self.remote_idle,
            "next_wakeup" => &mut self.next_wakeup,
            "wakeup" => &mut self.wakeup,
            "scan" => &mut self.scan,
            "recalc" => &mut self.recalc,
            "second" => &mut self.second,
            _ => {
                let keys: Vec<&str> = COST_KEYS.iter().map(|k| k.0).collect();
                return Err(format!("no cost {key}; {}", near::valid(near::nearest(key, &keys), &keys)));
            }
        };
        let expected = || format!("cost {key}={value}: expected a time such as 3us");
        *place = params::duration(value).filter(|v| *v >= 0).ok_or_else(expected)?;
        match key {
            "tick" => (self.tick_resched, self.tick_wakeup) = (self.tick, self.tick),
            "record" => self.irqs_off = self.record,
            "interrupt" => (self.interrupt_return, self.interrupt_last) = (self.interrupt, self.interrupt),
            _ => {}
        }
        Ok(())
    }
}
