//! What a run has of each metric by which a replay is judged, and how far two runs are apart in it.
//!
//! A run is a recording or a replay of it, as the tables `slices` and `runqueue`.

use std::collections::{BTreeMap, HashMap};

use tracekit_schema::metrics::Grouping;
use tracekit_schema::table::Table as _;
use tracekit_schema::tables::{flag, Runqueue, Slices};
use tracekit_schema::{State, StrId, Strings};

use crate::agreement::{agreement, Agreement, Stretch};
use crate::distance;

/// Shares of the time on CPUs are compared second by second.
const SECOND: i64 = 1_000_000_000;
/// Stands for a task without a number, and for tasks without a name: no number is below 0.
const NONE: i64 = -1;

/// One run.
#[derive(Debug, Default)]
pub struct Side {
    /// Slices that count.
    pub slices: usize,
    /// Rows of the run queue.
    pub queue_rows: usize,
    /// How often tasks left a CPU: ready to run, by a yield (which is ready to run), at all.
    pub left: [u64; 3],
    /// Time on CPUs.
    pub ran: i64,
    /// Run delays, in order.
    pub delays: Vec<i64>,
    /// Slices that an involuntary switch ended, in order of their length.
    pub lengths: Vec<i64>,
    /// Time at each length of the system's run queue.
    pub queue: BTreeMap<i64, i64>,
    /// Who ran where: without a CPU where none is known.
    ran_on: Vec<(Option<i64>, Stretch)>,
    /// Time on CPUs by task.
    by_task: Times,
    /// Names of the groups that these are of.
    names: Vec<String>,
    /// When each task ended that did.
    ends: BTreeMap<i64, i64>,
}

/// How far two runs are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Apart {
    /// Largest gap between the shares of a task in the time on CPUs.
    pub share: f64,
    /// The same of a group within a second; none of less than a second.
    pub share_by_second: Option<f64>,
    /// Distance of the run delays.
    pub delays: Option<f64>,
    /// Distance of the lengths of slices.
    pub lengths: Option<f64>,
    /// What both have on each CPU.
    pub agreement: Agreement,
    /// Slices whose CPU is known.
    pub placed: [usize; 2],
    /// When the task ended in both that ended last in the first; how many ended in the first, and in both.
    pub last_end: Option<([i64; 2], [usize; 2])>,
}

impl Side {
    /// Of a run that lasts until `end`. Only slices that end by `edge` count.
    pub fn new(slices: &Slices, runqueue: &Runqueue, strings: &Strings, edge: Option<i64>, end: Option<i64>) -> Side {
        let mut side = Side { queue_rows: runqueue.len(), queue: lengths(runqueue, end), ..Side::default() };
        // The last name of each task, and the number of the group that it is of.
        let mut called: Vec<Option<StrId>> = Vec::new();
        let mut tasks = Vec::with_capacity(slices.len());
        for row in 0..slices.len() {
            let (ts, dur) = (slices.ts_ns.get(row).unwrap_or(0), slices.dur_ns.get(row).unwrap_or(0));
            let (to, tid, state) = (ts + dur, slices.tid.get(row), slices.end_state.get(row));
            if let (Some(tid), true) = (tid, state.is_some_and(State::is_end)) {
                let end = side.ends.entry(tid).or_insert(to);
                *end = to.max(*end);
            }
            if edge.is_some_and(|edge| to > edge) {
                continue;
            }
            // It was preempted, or yielded.
            let ready = state.is_some_and(State::is_runnable) || slices.involuntary.get(row) == Some(true);
            if state.is_some() {
                side.left[0] += u64::from(ready);
                side.left[1] += u64::from(state == Some(State::Yielding));
                side.left[2] += 1;
            }
            let open = slices.flags.get(row).unwrap_or(0) & (flag::OPEN_START | flag::OPEN_END) != 0;
            if ready && !open {
                side.lengths.push(dur);
            }
            side.delays.extend(slices.run_delay_ns.get(row));
            side.slices += 1;
            side.ran += dur;
            let utid = slices.utid.get(row).unwrap_or(0) as usize;
            called.resize(called.len().max(utid + 1), None);
            called[utid] = slices.comm.get(row).or(called[utid]);
            tasks.push(utid);
            *side.by_task.entry((0, tid.unwrap_or(NONE))).or_default() += dur;
            let cpu = slices.cpu.get(row).map(i64::from);
            let on = Stretch { cpu: cpu.unwrap_or(NONE), from: ts, to, task: tid.unwrap_or(NONE), group: NONE };
            side.ran_on.push((cpu, on));
        }
        side.delays.sort_unstable();
        side.lengths.sort_unstable();
        side.name(&tasks, &called, strings);
        side
    }

    /// Numbers the groups of these tasks, one for each slice.
    fn name(&mut self, tasks: &[usize], called: &[Option<StrId>], strings: &Strings) {
        let mut numbers: HashMap<String, i64> = HashMap::new();
        let mut number = |comm: &Option<StrId>| {
            let Some(name) = Grouping::Group.name(*comm, NONE, strings) else { return NONE };
            *numbers.entry(name).or_insert_with_key(|name| {
                self.names.push(name.clone());
                self.names.len() as i64 - 1
            })
        };
        let groups: Vec<i64> = called.iter().map(&mut number).collect();
        for (utid, (_, on)) in tasks.iter().zip(&mut self.ran_on) {
            on.group = groups[*utid];
        }
    }

    /// How far `other` is from this one between `start` and `stop`. Times that differ by no more than
    /// `resolution` are alike.
    pub fn apart(&self, other: &Side, start: i64, stop: i64, resolution: f64) -> Apart {
        let number: HashMap<&str, i64> = self.names.iter().zip(0..).map(|(name, n)| (name.as_str(), n)).collect();
        // Groups that only the other has get numbers behind those of this one.
        let mut next = self.names.len() as i64;
        let mut new = || {
            next += 1;
            next - 1
        };
        let theirs: Vec<i64> =
            other.names.iter().map(|name| number.get(name.as_str()).copied().unwrap_or_else(&mut new)).collect();
        let same = |on: &Stretch| Stretch { group: theirs.get(on.group as usize).copied().unwrap_or(NONE), ..*on };
        let both: [Vec<(Option<i64>, Stretch)>; 2] =
            [self.ran_on.clone(), other.ran_on.iter().map(|(cpu, on)| (*cpu, same(on))).collect()];
        let seconds = (stop - start) / SECOND;
        let share_by_second = (seconds > 0).then(|| {
            let of = both.each_ref().map(|side| by_second(side, start, seconds));
            largest(&of[0], &of[1], |ns, all| ns as f64 / all as f64)
        });
        let floats = |times: &[i64]| times.iter().map(|ns| *ns as f64).collect::<Vec<f64>>();
        let far = |one: &[i64], other: &[i64]| distance::ks(floats(one), floats(other), resolution);
        let placed = both.map(|side| -> Vec<Stretch> {
            side.into_iter().filter_map(|(cpu, on)| cpu.is_some().then_some(on)).collect()
        });
        Apart {
            // By the inverse, as a column is divided by one number: so is the last digit in reports.
            share: largest(&self.by_task, &other.by_task, |ns, all| ns as f64 * (1.0 / all as f64)),
            share_by_second,
            delays: far(&self.delays, &other.delays),
            lengths: far(&self.lengths, &other.lengths),
            placed: placed.each_ref().map(Vec::len),
            agreement: agreement(placed, start, stop),
            last_end: self.last_end(other),
        }
    }

    fn last_end(&self, other: &Side) -> Option<([i64; 2], [usize; 2])> {
        let both = || self.ends.iter().filter_map(|(tid, end)| Some([*end, *other.ends.get(tid)?]));
        let last = both().max_by_key(|ends| ends[0])?;
        Some((last, [self.ends.len(), both().count()]))
    }
}

/// Time by second, and by task or group.
type Times = BTreeMap<(i64, i64), i64>;

/// Largest gap between the shares of two runs in the time of a second; `share` is what a time is of all.
fn largest(one: &Times, other: &Times, share: fn(i64, i64) -> f64) -> f64 {
    let all = [one, other].map(|times| {
        let mut all: BTreeMap<i64, i64> = BTreeMap::new();
        times.iter().for_each(|(key, ns)| *all.entry(key.0).or_default() += ns);
        all
    });
    let part = |side: usize, key: &(i64, i64)| {
        let ns = [one, other][side].get(key)?;
        Some(share(*ns, (*all[side].get(&key.0)?).max(1)))
    };
    let gap = |key| (part(0, key).unwrap_or(0.0) - part(1, key).unwrap_or(0.0)).abs();
    one.keys().chain(other.keys()).map(gap).fold(0.0, f64::max)
}

/// Time of each group in each of so many full seconds since `start`.
fn by_second(side: &[(Option<i64>, Stretch)], start: i64, seconds: i64) -> Times {
    let mut found = Times::new();
    for (_, on) in side {
        let (from, to) = (on.from - start, on.to - start);
        let last = (to - 1).max(from).div_euclid(SECOND).min(seconds - 1);
        for second in from.div_euclid(SECOND).max(0)..=last {
            let ns = to.min((second + 1) * SECOND) - from.max(second * SECOND);
            *found.entry((second, on.group)).or_default() += ns;
        }
    }
    found
}

/// Time at each length of the system's run queue, from rows in time order; without that in which nobody knows
/// what ran on one of its CPUs.
fn lengths(runqueue: &Runqueue, end: Option<i64>) -> BTreeMap<i64, i64> {
    let mut rows: Vec<usize> = (0..runqueue.len()).collect();
    rows.sort_by_key(|row| runqueue.ts_ns.get(*row));
    let mut found: BTreeMap<i64, i64> = BTreeMap::new();
    // Of each queue; their sum.
    let mut queues: BTreeMap<Option<i32>, (i64, i64)> = BTreeMap::new();
    let (mut length, mut unknown, mut since) = (0, 0, None);
    let mut pass = |since: Option<i64>, until: i64, length: i64, unknown: i64| {
        if let Some(ns) = since.map(|since| until - since).filter(|ns| *ns > 0 && unknown == 0) {
            *found.entry(length).or_default() += ns;
        }
    };
    for row in rows {
        let ts = runqueue.ts_ns.get(row).unwrap_or(0);
        pass(since, ts, length, unknown);
        let tasks = runqueue.nr_running.get(row).unwrap_or(0) + runqueue.nr_waiting.get(row).unwrap_or(0);
        let lost = runqueue.flags.get(row).unwrap_or(0) & flag::CROSSES_LOSS != 0;
        let now = (i64::from(tasks), i64::from(lost));
        let was = queues.insert(runqueue.cpu.get(row), now).unwrap_or_default();
        (length, unknown) = (length + now.0 - was.0, unknown + now.1 - was.1);
        since = Some(ts);
    }
    if let Some(last) = since {
        pass(since, end.map_or(last, |end| end.max(last)), length, unknown);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// A slice: CPU, task, name, begin and length in ms, state at its end.
    type Row<'a> = (i32, i64, &'a str, i64, i64, State);

    fn side(rows: &[Row], edge: Option<i64>) -> Side {
        let (mut slices, mut strings) = (Slices::default(), Strings::new());
        for (cpu, tid, name, from, dur, state) in rows {
            let mut row = slices.push();
            row.cpu(*cpu).utid(*tid as u32).tid(*tid).comm(strings.intern(name.as_bytes()));
            row.ts_ns(from * MS).dur_ns(dur * MS).end_state(*state).run_delay_ns(dur * 10).flags(0);
        }
        Side::new(&slices, &Runqueue::default(), &strings, edge, None)
    }

    #[test]
    fn a_run_is_not_apart_from_itself() {
        let one = side(&[(0, 1, "a1", 0, 700, State::Runnable), (1, 2, "b", 0, 600, State::Sleeping)], None);
        let apart = one.apart(&one, 0, 2000 * MS, 1.0);
        assert_eq!((apart.share, apart.share_by_second), (0.0, Some(0.0)));
        assert_eq!((apart.delays, apart.lengths, apart.last_end), (Some(0.0), Some(0.0), None));
        assert_eq!((apart.agreement.task, apart.agreement.cpus), (4000 * MS, 2));
        assert_eq!((one.left, one.ran, &one.lengths[..]), ([1, 0, 2], 1300 * MS, &[700 * MS][..]));
    }

    #[test]
    fn shares_are_of_tasks_over_all_and_of_groups_by_the_second() {
        // a1 and a2 change places: groups have the same. In the second second of the other b has all.
        let rows = [(0, 1, "a1", 0, 500, State::Runnable), (0, 2, "a2", 500, 500, State::Runnable)];
        let half = [(0, 1, "a1", 1000, 500, State::Runnable), (0, 3, "b", 1500, 500, State::Runnable)];
        let swapped = [(0, 2, "a2", 0, 500, State::Runnable), (0, 1, "a1", 500, 500, State::Runnable)];
        let whole = [(0, 3, "b", 1000, 1000, State::Runnable)];
        let (one, other) = (side(&[rows, half].concat(), None), side(&[&swapped[..], &whole].concat(), None));
        let apart = one.apart(&other, 0, 2000 * MS, 1.0);
        // Of 2 s: 1 has 1 s and 0.5 s, 2 has 0.5 s in both, 3 has 0.5 s and 1 s.
        assert_eq!((apart.share, apart.share_by_second), (0.25, Some(0.5)));
        // Of less than a second nothing is said; the second that was begun does not count.
        assert_eq!(one.apart(&other, 0, 999 * MS, 1.0).share_by_second, None);
        assert_eq!(one.apart(&other, 0, 1999 * MS, 1.0).share_by_second, Some(0.0));
        // The groups of the first second are the same, the tasks are not.
        let both = one.apart(&other, 0, 1000 * MS, 1.0).agreement;
        assert_eq!((both.task, both.group), (0, 1000 * MS));
    }

    #[test]
    fn what_ends_behind_the_edge_does_not_count_but_ends_a_task() {
        let rows =
            [(0, 1, "a", 0, 10, State::Sleeping), (0, 1, "a", 20, 10, State::Dead), (0, 2, "b", 30, 5, State::Zombie)];
        let (all, cut) = (side(&rows, None), side(&rows, Some(29 * MS)));
        assert_eq!((all.slices, cut.slices, cut.delays.len()), (3, 1, 1));
        let later = side(&[(0, 1, "a", 0, 50, State::Dead)], None);
        assert_eq!(cut.apart(&later, 0, 100, 1.0).last_end, Some(([30 * MS, 50 * MS], [2, 1])));
    }

    #[test]
    fn a_queue_counts_while_it_is_known() {
        let mut queue = Runqueue::default();
        for (ts, cpu, running, waiting, flags) in
            [(0, 0, 1, 1, 0), (10, 1, 1, 0, 0), (30, 0, 0, 0, flag::CROSSES_LOSS), (40, 0, 1, 0, 0), (40, 0, 1, 3, 0)]
        {
            queue.push().ts_ns(ts).cpu(cpu).nr_running(running).nr_waiting(waiting).flags(flags);
        }
        assert_eq!(lengths(&queue, Some(100)), BTreeMap::from([(2, 10), (3, 20), (5, 60)]));
        assert_eq!(lengths(&queue, None), BTreeMap::from([(2, 10), (3, 20)]));
        assert_eq!(lengths(&Runqueue::default(), Some(100)), BTreeMap::new());
    }
}
