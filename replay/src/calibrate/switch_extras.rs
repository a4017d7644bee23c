//! What a switch takes longer because of what it has to do besides: fractions of a microsecond, which
//! decide whether two tasks that sleep equally long stay in phase.
//!
//! A timer is set before the switch is recorded, so sleeps of equal length look shorter between the
//! records when more work lies between the two.

use std::collections::BTreeMap;

use super::{Estimate, Overheads, ENOUGH};
use crate::history::{By, EventKind, History, Off, SwitchExtras, TaskHistory, TaskIndex};
use crate::task::{Ns, NEVER};

/// Sleeps and bursts that differ by no more have the same length.
const CONSTANT: Ns = 3_000;

/// A sleep that an interrupt ended.
struct TimerSleep {
    from: Ns,
    to: Ns,
    task: TaskIndex,
    event: usize,
    cpu: i32,
}

/// Finds the sleeps whose timer was the next to fire when they began: no tick and no timer that was
/// set before came first.
pub(super) fn mark_first(history: &mut History) {
    let mut sleeps: Vec<TimerSleep> = history.tasks.iter().flat_map(timer_sleeps).collect();
    sleeps.sort_by_key(|s| s.from);
    let mut ticks: BTreeMap<i32, Vec<Ns>> = BTreeMap::new();
    for (at, cpu) in &history.ticks {
        ticks.entry(*cpu).or_default().push(*at);
    }
    let mut pending: BTreeMap<i32, BTreeMap<Ns, TaskIndex>> = BTreeMap::new();
    for sleep in sleeps {
        let waiting = pending.entry(sleep.cpu).or_default();
        *waiting = waiting.split_off(&sleep.from);
        let ticks = ticks.get(&sleep.cpu).map_or(&[][..], Vec::as_slice);
        let tick = ticks.get(ticks.partition_point(|t| *t <= sleep.from)).copied().unwrap_or(NEVER);
        let timer = waiting.keys().next().copied().unwrap_or(NEVER);
        if sleep.to < tick.min(timer) {
            if let EventKind::Off(Off::Slept { extras, .. }) =
                &mut history.tasks[sleep.task as usize].events[sleep.event].kind
            {
                extras.first = true;
            }
        }
        waiting.insert(sleep.to, sleep.task);
    }
}

/// The sleeps of a task that a hardware interrupt ended.
fn timer_sleeps(task: &TaskHistory) -> Vec<TimerSleep> {
    let mut found = Vec::new();
    let (mut from, mut cpu) = (None, task.cpu);
    for (event, a) in task.events.iter().enumerate() {
        match a.kind {
            EventKind::On { cpu: on, .. } => cpu = on,
            EventKind::Off(Off::Slept { deep: false, .. }) => from = Some((a.at, event)),
            EventKind::Woken { by: By::Hardirq { .. }, .. } => {
                found.extend(from.take().map(|(from, event)| TimerSleep { from, to: a.at, task: task.id, event, cpu }));
            }
            EventKind::Woken { .. } => from = None,
            _ => {}
        }
    }
    found
}

/// The middle of `values`, and how many; nothing where they are few or vary.
fn constant(mut values: Vec<Ns>) -> Option<Estimate> {
    values.sort_unstable();
    let n = values.len();
    let same = n >= ENOUGH && values[n * 9 / 10] - values[n / 10] <= CONSTANT;
    same.then(|| Estimate { ns: values[n / 2], n })
}

/// Mean of `parts`, each with its weight.
fn mean(parts: &[(Ns, usize)]) -> Estimate {
    let n: usize = parts.iter().map(|p| p.1).sum();
    let sum: Ns = parts.iter().map(|p| p.0 * p.1 as Ns).sum();
    Estimate { ns: if n == 0 { 0 } else { (sum / n as Ns).max(0) }, n }
}

/// What it takes longer from the setting of a timer to the switch record, from equal sleeps of one
/// task that differ in one thing.
pub(super) fn exit_costs(history: &History, found: &mut Overheads) {
    let mut groups: Vec<BTreeMap<SwitchExtras, Estimate>> = Vec::new();
    for task in &history.tasks {
        let mut by_extras: BTreeMap<SwitchExtras, Vec<Ns>> = BTreeMap::new();
        let mut from = None;
        for event in &task.events {
            match event.kind {
                EventKind::Off(Off::Slept { deep: false, extras, .. }) => from = Some((event.at, extras)),
                EventKind::Woken { by: By::Hardirq { lead }, .. } => {
                    if let Some((at, extras)) = from.take().filter(|_| lead) {
                        by_extras.entry(extras).or_default().push(event.at - at);
                    }
                }
                EventKind::Woken { .. } => from = None,
                _ => {}
            }
        }
        groups.push(by_extras.into_iter().filter_map(|(extras, sleeps)| Some((extras, constant(sleeps)?))).collect());
    }
    let cost = |with: fn(SwitchExtras) -> Option<SwitchExtras>| {
        let mut parts = Vec::new();
        for by_extras in &groups {
            for (extras, plain) in by_extras {
                let Some(other) = with(*extras).and_then(|w| by_extras.get(&w)) else { continue };
                let less = plain.ns - other.ns;
                if less.abs() <= CONSTANT {
                    parts.push((less, plain.n.min(other.n)));
                }
            }
        }
        mean(&parts)
    };
    found.lower_class = cost(|w| (!w.lower).then_some(SwitchExtras { lower: true, ..w }));
    found.timer_first = cost(|w| (!w.first).then_some(SwitchExtras { first: true, ..w }));
}
