//! Who shares CPU time with whom: how far what tasks got differs from what fair sharing gives them,
//! if they are shared out by groups.
//!
//! Fair schedulers follow generalised processor sharing (Parekh and Gallager, IEEE/ACM Transactions
//! on Networking 1, 1993): of those that are queued on a CPU each has its share at every moment, by
//! weight. With groups it is the groups that share first. A group has its weight once, on all CPUs
//! together, and on each a part by what it has queued there (Linux, kernel/sched/fair.c,
//! `calc_group_shares`); what it has queued elsewhere counts as its mean of a window here.
//!
//! [`Shares`] holds a recording as that needs it; `partition` finds the groups.

use std::collections::HashMap;

/// Weight of a group, and of a task of nice 0 (Linux, `NICE_0_LOAD`).
const GROUP: f64 = 1024.0;

/// A slice of a task of a fair class, with the wait before it.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Where it ran; it is taken to have waited there as well. Several CPUs that are taken for one have one
    /// number.
    pub cpu: usize,
    /// Tasks that are in one group in any case count as one unit.
    pub unit: usize,
    /// A number for the task.
    pub task: usize,
    /// As the kernel weighs its nice value, 1024 for 0.
    pub weight: u32,
    /// Since when it waited.
    pub ready_ns: i64,
    /// When it began to run.
    pub start_ns: i64,
    /// When it stopped.
    pub end_ns: i64,
}

/// A stretch in which the same units were queued on a CPU with the same weights, summed over a window.
#[derive(Debug)]
struct Step {
    cpu: usize,
    window: usize,
    ns: f64,
    /// The units, in `Shares::queued`.
    from: usize,
    to: usize,
}

/// What was queued when, and what each unit got.
#[derive(Debug)]
pub struct Shares {
    cpus: usize,
    units: usize,
    windows: usize,
    steps: Vec<Step>,
    /// Units and weights of all steps.
    queued: Vec<(usize, f64)>,
    /// CPU time by window and unit, ns.
    got: Vec<f64>,
    /// Mean weight queued, by window, CPU and unit.
    mean: Vec<f64>,
    total: f64,
}

/// What one evaluation needs, kept from call to call.
#[derive(Debug, Default)]
pub struct Scratch {
    due: Vec<f64>,
    elsewhere: Vec<f64>,
    weight: Vec<f64>,
    share: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    End,
    Ready,
    Start,
}

impl Shares {
    /// Takes the slices of a recording in order of start, in windows of equal length.
    pub fn new(bursts: &[Burst], units: usize, windows: usize) -> Shares {
        let cpus = bursts.iter().map(|s| s.cpu + 1).max().unwrap_or(0);
        let begin = bursts.iter().map(|s| s.ready_ns).min().unwrap_or(0);
        let end = bursts.iter().map(|s| s.end_ns).max().unwrap_or(0);
        let windows = windows.max(1);
        let window_ns = (end.saturating_sub(begin) as f64 / windows as f64).max(1.0);
        let mut walk = Walk {
            at: vec![begin; cpus],
            queued: vec![vec![0; units]; cpus],
            running: vec![Vec::new(); cpus],
            place: HashMap::new(),
        };
        let mut made = Shares {
            cpus,
            units,
            windows,
            steps: Vec::new(),
            queued: Vec::new(),
            got: vec![0.0; windows * units],
            mean: vec![0.0; windows * cpus * units],
            total: 0.0,
        };
        let mut known: HashMap<Vec<u64>, usize> = HashMap::new();
        for (at, edge, index) in edges(bursts) {
            let burst = &bursts[index];
            let before = walk.place.get(&burst.task).map(|(cpu, _)| *cpu);
            for cpu in [Some(burst.cpu), before.filter(|cpu| *cpu != burst.cpu)].into_iter().flatten() {
                made.pass(&mut walk, cpu, at, (begin, window_ns), &mut known);
            }
            walk.take(burst, edge);
        }
        for mean in &mut made.mean {
            *mean /= window_ns;
        }
        made
    }

    /// Counts what was queued on a CPU up to now.
    fn pass(
        &mut self,
        walk: &mut Walk,
        cpu: usize,
        at: i64,
        (begin, window_ns): (i64, f64),
        known: &mut HashMap<Vec<u64>, usize>,
    ) {
        let ns = at.saturating_sub(walk.at[cpu]) as f64;
        if ns <= 0.0 {
            return;
        }
        let window = ((walk.at[cpu].saturating_sub(begin) as f64 / window_ns) as usize).min(self.windows - 1);
        walk.at[cpu] = at;
        let queued = &walk.queued[cpu];
        let mean = (window * self.cpus + cpu) * self.units;
        for (unit, weight) in queued.iter().enumerate().filter(|(_, w)| **w > 0) {
            self.mean[mean + unit] += *weight as f64 * ns;
        }
        let running = &walk.running[cpu];
        if running.is_empty() {
            return;
        }
        for (_, unit) in running {
            self.got[window * self.units + unit] += ns;
        }
        let ns = ns * running.len() as f64;
        self.total += ns;
        let mut key = vec![cpu as u64, window as u64];
        key.extend(queued.iter().enumerate().filter(|(_, w)| **w > 0).flat_map(|(u, w)| [u as u64, *w as u64]));
        let step = *known.entry(key).or_insert_with(|| {
            let from = self.queued.len();
            self.queued.extend(queued.iter().enumerate().filter(|(_, w)| **w > 0).map(|(u, w)| (u, *w as f64)));
            self.steps.push(Step { cpu, window, ns: 0.0, from, to: self.queued.len() });
            self.steps.len() - 1
        });
        self.steps[step].ns += ns;
    }

    /// Number of units.
    pub fn units(&self) -> usize {
        self.units
    }

    /// What one evaluation costs, about.
    pub fn work(&self) -> usize {
        self.queued.len() + self.windows * self.cpus * self.units
    }

    /// Share of the CPU time that units got and were not due, if these are their groups.
    ///
    /// A unit without a group shares as its tasks. Groups are numbered from 0.
    pub fn misplaced(&self, groups: &[Option<usize>], scratch: &mut Scratch) -> f64 {
        let count = groups.iter().flatten().max().map_or(0, |g| g + 1);
        let Scratch { due, elsewhere, weight, share } = scratch;
        for (list, len) in [
            (&mut *due, self.windows * self.units),
            (&mut *elsewhere, self.windows * self.cpus * count),
            (&mut *weight, count),
            (&mut *share, count),
        ] {
            list.clear();
            list.resize(len, 0.0);
        }
        for window in 0..self.windows {
            for cpu in 0..self.cpus {
                for (unit, group) in groups.iter().enumerate() {
                    let Some(group) = group else { continue };
                    let mean = self.mean[(window * self.cpus + cpu) * self.units + unit];
                    for other in (0..self.cpus).filter(|other| *other != cpu) {
                        elsewhere[(window * self.cpus + other) * count + group] += mean;
                    }
                }
            }
        }
        for step in &self.steps {
            let queued = &self.queued[step.from..step.to];
            weight.fill(0.0);
            let mut whole = 0.0;
            for (unit, w) in queued {
                match groups[*unit] {
                    Some(group) => weight[group] += w,
                    None => whole += w,
                }
            }
            let others = &elsewhere[(step.window * self.cpus + step.cpu) * count..][..count];
            for group in (0..count).filter(|g| weight[*g] > 0.0) {
                share[group] = GROUP * weight[group] / (weight[group] + others[group]);
                whole += share[group];
            }
            for (unit, w) in queued {
                let part = groups[*unit].map_or(*w, |group| share[group] * w / weight[group]);
                due[step.window * self.units + unit] += step.ns * part / whole;
            }
        }
        let off: f64 = self.got.iter().zip(due.iter()).map(|(got, due)| (got - due).abs()).sum();
        if self.total > 0.0 {
            off / self.total / 2.0
        } else {
            0.0
        }
    }
}

/// Begin and end of each wait and slice, in order.
fn edges(bursts: &[Burst]) -> Vec<(i64, Edge, usize)> {
    let edge = |(index, burst): (usize, &Burst)| {
        [(burst.ready_ns, Edge::Ready, index), (burst.start_ns, Edge::Start, index), (burst.end_ns, Edge::End, index)]
    };
    let mut edges: Vec<_> = bursts.iter().enumerate().flat_map(edge).collect();
    edges.sort_unstable();
    edges
}

/// Where everybody is.
struct Walk {
    at: Vec<i64>,
    /// Weight queued, by CPU and unit.
    queued: Vec<Vec<i64>>,
    /// Tasks and units that run.
    running: Vec<Vec<(usize, usize)>>,
    /// CPU and weight of each task that is queued.
    place: HashMap<usize, (usize, i64)>,
}

impl Walk {
    fn take(&mut self, burst: &Burst, edge: Edge) {
        let cpu = burst.cpu;
        let weight = i64::from(burst.weight);
        if edge == Edge::End {
            self.running[cpu].retain(|(task, _)| *task != burst.task);
            if let Some((before, weight)) = self.place.remove(&burst.task) {
                self.queued[before][burst.unit] -= weight;
            }
            return;
        }
        if let Some((before, weight)) = self.place.insert(burst.task, (cpu, weight)) {
            self.queued[before][burst.unit] -= weight;
        }
        self.queued[cpu][burst.unit] += weight;
        if edge == Edge::Start {
            self.running[cpu].push((burst.task, burst.unit));
        }
    }
}
