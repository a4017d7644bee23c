//! What the machine costs and when it ticks, as this trace measures it: an optional stage behind
//! [`calibrate`].
//!
//! [`history`](crate::history) says what is measured, [`watch`] takes the samples from what each
//! CPU does, [`tick`] finds the clock. "What does a switch cost" is answered here.

pub mod limits;
pub(crate) mod speed;
pub mod tick;
pub(crate) mod watch;

use std::collections::BTreeMap;

use crate::cost::Costs;
use crate::history::{History, Sample, TaskIndex};
use crate::task::Ns;

pub use limits::Limits;
pub use tick::TickSource;

/// An estimate and how many samples it rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Median, ns.
    pub ns: Ns,
    /// Samples.
    pub n: usize,
}

/// Everything estimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overheads {
    /// From the kernel's clock at a switch to the switch record.
    pub record: Estimate,
    /// From a switch record to an interrupt that waited for it.
    pub irqs_on: Estimate,
    /// From the only wakeup of an interrupt to the reschedule.
    pub interrupt: Estimate,
    /// From the last of several wakeups of an interrupt to the reschedule.
    pub interrupt_last: Estimate,
    /// From the last wakeup of an interrupt to the interrupted work going on, and what it took before.
    pub interrupt_return: Estimate,
    /// What more it takes to the reschedule on a CPU that had not switched for long.
    pub interrupt_cache_cold: Estimate,
    /// From a task's wakeup of another, which preempts it, to the reschedule.
    pub wakeup_tail: Estimate,
    /// From the wakeup of an idle CPU to the reschedule.
    pub idle_exit: Estimate,
    /// From a wakeup made by another CPU, which preempts what runs, to the reschedule.
    pub remote_wakeup: Estimate,
    /// The same of a CPU that is idle.
    pub remote_idle: Estimate,
    /// Between two wakeups of one interrupt.
    pub next_wakeup: Estimate,
    /// From the record of a fork to the record that the child is queued: the kernel reads the clock
    /// of its place in between, right behind the first.
    pub fork_clock: Estimate,
    /// From a tick to the reschedule.
    pub tick_resched: Estimate,
    /// From a tick to the first timer that rides on it.
    pub tick_wakeup: Estimate,
    /// A tick that leads to no reschedule, from bursts of equal work with and without one.
    pub tick: Estimate,
    /// From the clock of a tick to its record, relative to that of a wakeup.
    pub tick_lag: Ns,
    /// Shortest slice: no switch costs more.
    pub shortest_slice: Estimate,
    /// A switch, until the new task's own work begins.
    pub switch: Ns,
    /// By how much a cost varies from one time to the next: median deviation from the median, of
    /// all costs measured.
    pub jitter: Estimate,
    /// Ticks a second.
    pub hz: i64,
    /// Time of the first tick from the start of the trace, for each CPU.
    pub phase: Vec<Ns>,
    /// How the tick was found.
    pub tick_source: TickSource,
    /// How far apart records of one cause may lie.
    pub limits: Limits,
}

impl Overheads {
    /// The costs for the engine.
    pub fn costs(&self) -> Costs {
        Costs {
            switch: self.switch,
            record: self.record.ns,
            irq_entry: self.irqs_on.ns / 2,
            irqs_off: self.record.ns + self.irqs_on.ns,
            tick: self.tick.ns,
            tick_resched: self.tick_resched.ns,
            tick_wakeup: self.tick_wakeup.ns,
            interrupt: self.interrupt.ns,
            interrupt_last: self.interrupt_last.ns,
            interrupt_return: self.interrupt_return.ns,
            interrupt_cache_cold: self.interrupt_cache_cold.ns,
            idle_exit: self.idle_exit.ns,
            remote_wakeup: self.remote_wakeup.ns,
            remote_idle: self.remote_idle.ns,
            next_wakeup: self.next_wakeup.ns,
            fork_clock: self.fork_clock.ns,
            ..Costs::default()
        }
    }

    /// When the kernel decided on the switch that was recorded at `at`.
    pub(crate) fn decided(&self, at: Ns) -> Ns {
        at - self.record.ns
    }
}

fn median(mut values: Vec<Ns>) -> Estimate {
    let n = values.len();
    if n == 0 {
        return Estimate::default();
    }
    values.sort_unstable();
    Estimate { ns: values[n / 2], n }
}

/// Estimates costs and ticks. `hz` is what the trace or the caller states.
pub fn calibrate(history: &History, hz: Option<i64>, limits: Limits) -> Overheads {
    let of =
        |pick: fn(&Sample) -> Option<Ns>| median(history.samples.iter().filter_map(pick).filter(|v| *v >= 0).collect());
    let record = of(|s| if let Sample::Record(v) = s { Some(*v) } else { None });
    let to_switch = of(|s| if let Sample::TickToSwitch(v) = s { Some(*v) } else { None });
    let record = if record.n > 0 { record } else { to_switch };
    let less = |e: Estimate| Estimate { ns: (e.ns - record.ns).max(0), n: e.n };
    // Nothing is like it: where it was rarely seen, it takes no time.
    let remote = |e: Estimate| if e.n >= ENOUGH { less(e) } else { Estimate { ns: 0, n: e.n } };
    let mut slices: Vec<Ns> =
        history.samples.iter().filter_map(|s| if let Sample::Slice(v) = s { Some(*v) } else { None }).collect();
    slices.sort_unstable();
    let shortest_slice = Estimate { ns: slices.get(slices.len() / 100).copied().unwrap_or(0), n: slices.len() };
    // The record is made within the switch; a little of it comes after. No slice is shorter than a switch.
    let switch = (record.ns + record.ns / 4).min(shortest_slice.ns);
    let mut found = Overheads {
        limits,
        record: Estimate { ns: record.ns.min(switch), n: record.n },
        wakeup_tail: less(of(|s| if let Sample::WakeToSwitch(v) = s { Some(*v) } else { None })),
        idle_exit: less(of(|s| if let Sample::IdleToSwitch(v) = s { Some(*v) } else { None })),
        remote_wakeup: remote(of(|s| if let Sample::RemoteToSwitch(v) = s { Some(*v) } else { None })),
        remote_idle: remote(of(|s| if let Sample::RemoteIdleToSwitch(v) = s { Some(*v) } else { None })),
        next_wakeup: of(|s| if let Sample::IrqStep(v) = s { Some(*v) } else { None }),
        fork_clock: of(|s| if let Sample::ForkToNew(v) = s { Some(*v) } else { None }),
        tick_resched: of(|s| if let Sample::TickToReschedule(v) = s { Some(*v) } else { None }),
        tick_lag: if to_switch.n > 0 { record.ns - to_switch.ns } else { 0 },
        shortest_slice,
        switch,
        ..Overheads::default()
    };
    // An interrupt that came during the switch is served as soon as any can be.
    let after = || history.samples.iter().filter_map(|s| if let Sample::SwitchToIrq(v) = s { Some(*v) } else { None });
    if let Some(soonest) = after().min().filter(|v| *v <= record.ns) {
        found.irqs_on = median(after().filter(|v| v - soonest <= soonest / 4).collect());
    }
    let alone = less(of(|s| if let Sample::IrqToSwitch(v) = s { Some(*v) } else { None }));
    let last = less(of(|s| if let Sample::LastIrqToSwitch(v) = s { Some(*v) } else { None }));
    let cache_cold = less(of(|s| if let Sample::CacheColdIrqToSwitch(v) = s { Some(*v) } else { None }));
    // What is rarely seen is taken for as long as what is like it.
    found.interrupt = [alone, last, cache_cold].into_iter().find(|e| e.n >= ENOUGH).unwrap_or(alone);
    found.interrupt_last = if last.n >= ENOUGH { last } else { found.interrupt };
    if limits.holds("cache_cold") && cache_cold.n >= ENOUGH {
        found.interrupt_cache_cold = Estimate { ns: (cache_cold.ns - found.interrupt.ns).max(0), n: cache_cold.n };
    }
    if let Some((wakeup, lag)) = tick_wakeup(history) {
        found.tick_wakeup = wakeup;
        // Both were dated by the same clock: nothing lies nearer.
        found.tick_lag = lag;
    }
    (found.tick, found.interrupt_return) = interrupt_costs(history, &found);
    found.jitter = jitter(history);
    stand_in(&mut found);
    tick::find_tick(history, hz, &mut found);
    found
}

/// What was not seen is taken from what is most like it.
fn stand_in(found: &mut Overheads) {
    let like = [found.interrupt, found.wakeup_tail, found.idle_exit];
    let like = like.into_iter().find(|e| e.n > 0).unwrap_or_default();
    let missing = [&mut found.interrupt, &mut found.interrupt_last, &mut found.wakeup_tail, &mut found.idle_exit];
    for missing in missing.into_iter().chain([&mut found.next_wakeup]) {
        if missing.n == 0 {
            missing.ns = like.ns;
        }
    }
    if found.remote_idle.n < ENOUGH {
        // The interrupt is the same; to leave idle may take longer.
        found.remote_idle.ns = found.remote_wakeup.ns;
    }
    if found.interrupt_cache_cold.n == 0 && found.limits.holds("cache_cold") {
        found.interrupt_cache_cold.ns = found.interrupt.ns * found.limits.of("cache_cold_share", 5) / 100;
    }
    if found.tick.n == 0 {
        found.tick.ns = found.tick_resched.ns + found.tick_resched.ns / 2;
    }
    if found.tick_resched.n == 0 {
        found.tick_resched.ns = found.tick.ns * 2 / 3;
    }
    if found.tick_wakeup.n == 0 {
        found.tick_wakeup.ns = found.tick_resched.ns;
    }
    if found.interrupt_return.n == 0 {
        // As much longer as a tick is that leads to no switch.
        found.interrupt_return.ns = found.interrupt.ns + (found.tick.ns - found.tick_resched.ns).max(0);
    }
}

/// Median deviation of the costs of interrupts and switches from the median of their kind.
fn jitter(history: &History) -> Estimate {
    let mut kinds: [Vec<Ns>; 4] = Default::default();
    for sample in &history.samples {
        match *sample {
            Sample::Record(v) => kinds[0].push(v),
            Sample::IrqToSwitch(v) | Sample::LastIrqToSwitch(v) => kinds[1].push(v),
            Sample::WakeToSwitch(v) => kinds[2].push(v),
            Sample::TickToSwitch(v) => kinds[3].push(v),
            _ => {}
        }
    }
    let mut off = Vec::new();
    for kind in kinds {
        let middle = median(kind.clone()).ns;
        off.extend(kind.into_iter().map(|v| (v - middle).abs()));
    }
    median(off)
}

/// Samples of a kind that an estimate needs to be used beside another.
pub(crate) const ENOUGH: usize = 10;

/// From a tick to the wakeup that rides on it, and how much earlier the clock of the tick was read
/// than its record was made.
fn tick_wakeup(history: &History) -> Option<(Estimate, Ns)> {
    let samples = || {
        history.samples.iter().filter_map(|s| match *s {
            Sample::TickToWakeup { records, charged } => Some((records, charged)),
            _ => None,
        })
    };
    // A timer interrupt soon after the tick's own takes much longer.
    let soonest = samples().map(|s| s.1).min()?;
    let rode = || samples().filter(|s| s.1 <= 2 * soonest);
    let lag = median(rode().map(|(records, charged)| (charged - records).max(0)).collect());
    Some((median(rode().map(|s| s.1).collect()), lag.ns))
}

/// What interrupts take from the work they interrupt: a tick, and a wakeup that leads to no switch.
/// Both are differences of a task's bursts with and without one, over tasks whose bursts hardly
/// vary.
fn interrupt_costs(history: &History, found: &Overheads) -> (Estimate, Estimate) {
    let mut by_task: BTreeMap<TaskIndex, [Vec<Ns>; 4]> = BTreeMap::new();
    for sample in &history.samples {
        if let Sample::Burst { task, ticks: ticks @ 0..=1, wakes: wakes @ 0..=1, ns } = *sample {
            by_task.entry(task).or_default()[(ticks + 2 * wakes) as usize].push(ns);
        }
    }
    let (mut ticks, mut wakeups) = (Vec::new(), Vec::new());
    for [mut plain, ticked, woke, both] in by_task.into_values() {
        plain.sort_unstable();
        let n = plain.len();
        if n < ENOUGH {
            continue;
        }
        let (low, middle, high) = (plain[n / 10], plain[n / 2], plain[n * 9 / 10]);
        if high - low > middle / 10 {
            continue;
        }
        let more = |v: Vec<Ns>, than: Ns| v.into_iter().map(move |ns| ns - than).filter(|d| *d > 0);
        if ticked.len() >= 3 {
            ticks.extend(more(ticked, middle));
        }
        wakeups.extend(more(woke, middle));
        wakeups.extend(more(both, middle + found.tick_wakeup.ns));
    }
    // Long bursts meet more interrupts: the lower quartile is less biased than the median.
    wakeups.sort_unstable();
    let n = wakeups.len();
    let wakeup = if n < 3 { Estimate::default() } else { Estimate { ns: wakeups[n / 4], n } };
    (median(ticks), wakeup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_cost_what_bursts_with_them_take_more() {
        let burst = |ticks, wakes, ns| Sample::Burst { task: 3, ticks, wakes, ns };
        let mut history = History::default();
        history.samples.extend((0..20).map(|i| burst(0, 0, 30_000 + i % 2 * 100)));
        history.samples.extend([burst(1, 0, 36_000), burst(1, 0, 36_100), burst(1, 0, 36_200)]);
        // The last was long for another reason, which is why it met a wakeup.
        history.samples.extend([burst(0, 1, 40_000), burst(1, 1, 45_000), burst(1, 1, 45_200), burst(0, 1, 70_000)]);
        history.samples.push(Sample::TickToWakeup { records: 3_000, charged: 5_000 });
        history.samples.push(Sample::TickToWakeup { records: 40_000, charged: 42_000 });
        let (wakeup, lag) = tick_wakeup(&history).expect("a sample");
        assert_eq!((wakeup, lag), (Estimate { ns: 5_000, n: 1 }, 2_000));
        let (tick, wakeup) = interrupt_costs(&history, &Overheads { tick_wakeup: wakeup, ..Overheads::default() });
        assert_eq!((tick, wakeup), (Estimate { ns: 6_000, n: 3 }, Estimate { ns: 9_900, n: 4 }));
    }
}
