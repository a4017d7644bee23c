//! FreeBSD's ULE, as of December 2004 and of about 2022. See [`INFO`].

mod info;
mod queues;
mod smp;

pub use info::INFO;

use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::TaskMap;
use crate::task::{Attrs, Cpu, Ns, TaskId};
use queues::{Place, Queues};
use smp::{Many, IDLE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V2004,
    V2022,
}

/// History of a thread, in ticks scaled by 1024.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    nice: i64,
    run: i64,
    slept: i64,
    /// 2004: counts down; 2022: counts up.
    slice: i64,
    /// What counts on the queues, and what it becomes when the thread is back in user mode.
    pri: i64,
    user_pri: i64,
    asleep_since: Option<Ns>,
    /// An interrupt thread displaced it.
    to_head: bool,
    /// 2022: ticks of CPU time in the window, in 1/1024, and when it began and was last touched.
    ticks: i64,
    first_tick: i64,
    last_tick: i64,
    /// 2022: the clock tick in which it last left a CPU.
    left_tick: i64,
}

/// State of the policy.
pub struct Ule {
    version: Version,
    stathz: i64,
    hz: i64,
    of: TaskMap<Thread>,
    rq: Vec<Queues>,
    /// Time-share threads (2004) or all threads (2022) on each CPU.
    load: Vec<i64>,
    nice_count: Vec<[i64; 41]>,
    many: Many,
}

/// Score below which a thread is interactive.
const INTERACTIVE: i64 = 30;
/// Priorities of 2004: time sharing 160 to 223.
const OLD_MIN: i64 = 160;
/// Priorities of 2022: interactive 120 to 151, batch 152 to 223 with nice 0 at 172 to 203.
const NEW_INTERACTIVE: i64 = 120;
const NEW_BATCH: i64 = 152;
/// Seconds of the window of CPU use, and what it may be longer before it is cut.
const WINDOW: i64 = 10;

/// Run queue of a priority: each of the 64 holds four (RQ_PPQ), which are served in order of arrival.
fn queue_of(pri: i64) -> usize {
    (pri / 4) as usize
}

/// ULE's interactivity score: 0 sleeps all the time, 50 half, 100 never.
pub(super) fn score(version: Version, run: i64, slept: i64) -> i64 {
    // As the threshold is below half, one comparison answers for all that ran as long as they slept.
    if version == Version::V2022 && run >= slept {
        return 50;
    }
    match run.cmp(&slept) {
        std::cmp::Ordering::Greater => 50 + (50 - slept / (run / 50).max(1)),
        std::cmp::Ordering::Less => run / (slept / 50).max(1),
        std::cmp::Ordering::Equal => 0,
    }
}

impl Ule {
    fn history_max(&self) -> i64 {
        (5 * self.hz) << 10
    }

    fn tick_incr(&self) -> i64 {
        match self.version {
            Version::V2004 => (self.hz / self.stathz).max(1) << 10,
            Version::V2022 => (self.hz << 10) / self.stathz,
        }
    }

    fn score_of(&self, t: TaskId) -> i64 {
        let th = &self.of[t];
        score(self.version, th.run, th.slept)
    }

    fn interactive(&self, t: TaskId) -> bool {
        let nice = if self.version == Version::V2022 { self.of[t].nice } else { 0 };
        (self.score_of(t) + nice).max(0) < INTERACTIVE
    }

    fn set_pri(&mut self, t: TaskId) {
        let score = self.score_of(t);
        let hz = self.hz;
        let version = self.version;
        let th = &mut self.of[t];
        th.user_pri = match version {
            Version::V2004 => (OLD_MIN + score * 64 / 100 + th.nice).clamp(OLD_MIN, 223),
            Version::V2022 => {
                let s = (score + th.nice).max(0);
                if s < INTERACTIVE {
                    NEW_INTERACTIVE + s
                } else {
                    let window = (th.last_tick - th.first_tick).max(hz);
                    let cpu = (th.ticks >> 10) / ((window + 31) / 32).max(1);
                    NEW_BATCH + 20 + cpu.min(31) + th.nice
                }
            }
        };
        // 2022: the priority on the queues follows when the thread leaves the kernel.
        if version == Version::V2004 {
            th.pri = th.user_pri;
        }
    }

    /// Keeps the history short enough to follow a change of behaviour.
    fn trim(&mut self, t: TaskId) {
        let max = self.history_max();
        let version = self.version;
        let th = &mut self.of[t];
        let sum = th.run + th.slept;
        if sum < max {
            return;
        }
        if version == Version::V2022 && sum > 2 * max {
            if th.run > th.slept {
                (th.run, th.slept) = (max, 1);
            } else {
                (th.run, th.slept) = (1, max);
            }
        } else if sum > max / 5 * 6 {
            th.run /= 2;
            th.slept /= 2;
        } else {
            th.run = th.run / 5 * 4;
            th.slept = th.slept / 5 * 4;
        }
    }

    /// A child takes its parent's history, shortened so that it soon has one of its own.
    fn shorten(&mut self, t: TaskId) {
        let limit = (self.hz / 2) << 10;
        let th = &mut self.of[t];
        let ratio = (th.run + th.slept) / limit;
        if th.run + th.slept > limit && ratio > 0 {
            th.run /= ratio;
            th.slept /= ratio;
        }
    }

    /// 2022: least slice, statistics ticks.
    fn slice_min(&self) -> i64 {
        (self.slice_base() / 6).max(1)
    }

    /// 2022: the longest slice, statistics ticks.
    fn slice_base(&self) -> i64 {
        (self.stathz / 10).max(1)
    }

    fn slice_max(&self) -> i64 {
        (self.hz / 7).max(1)
    }

    /// 2004: by distance to the least nice thread of the CPU. 2022: the number of ticks that others wait for.
    fn full_slice(&self, cpu: Cpu, t: TaskId) -> i64 {
        if self.version == Version::V2022 {
            let base = self.slice_base();
            let others = self.load[cpu] - 1;
            return match others {
                n if n <= 1 => base,
                n if n >= 6 => self.slice_min(),
                n => (base / n).max(1),
            };
        }
        let (min, max) = ((self.hz / 100).max(1), self.slice_max());
        if self.interactive(t) || self.load[cpu] == 0 {
            return max;
        }
        let least = self.nice_count[cpu].iter().position(|n| *n > 0).map_or(0, |i| i as i64 - 20);
        let d = self.of[t].nice - least;
        match d {
            d if d <= 0 => max,
            d if d <= 19 => max - d * (max - min + 1) / 19,
            _ if self.of[t].nice == 0 => min,
            _ => 0,
        }
    }

    fn count(&mut self, cpu: Cpu, t: TaskId, by: i64) {
        self.load[cpu] += by;
        self.nice_count[cpu][(self.of[t].nice + 20) as usize] += by;
    }

    fn place(&self, t: TaskId, cpu: Cpu, front: bool) -> Place {
        let th = &self.of[t];
        match self.version {
            Version::V2004 => Place::Array { next: !self.interactive(t), level: queue_of(th.pri) },
            Version::V2022 if th.pri < NEW_BATCH => Place::Realtime { level: queue_of(th.pri) },
            Version::V2022 => self.rq[cpu].calendar((64 * (th.pri - NEW_BATCH) / 72) as usize, front),
        }
    }

    fn put(&mut self, cpu: Cpu, t: TaskId, front: bool) {
        let place = self.place(t, cpu, front);
        self.rq[cpu].put(place, t, front);
    }

    /// 2022: brings the window of CPU use up to date; `ran`: the thread ran since it was last touched.
    fn note_ticks(&mut self, k: &Kernel, t: TaskId, ran: bool) {
        if self.version == Version::V2004 {
            return;
        }
        let now = k.now() / (1_000_000_000 / self.hz);
        let window = WINDOW * self.hz;
        let th = &mut self.of[t];
        if now - th.last_tick >= window {
            th.ticks = 0;
            th.first_tick = now - window;
        } else if now - th.first_tick >= window + self.hz {
            th.ticks = th.ticks / (th.last_tick - th.first_tick).max(1) * (th.last_tick - (now - window));
            th.first_tick = now - window;
        }
        if ran {
            th.ticks += (now - th.last_tick) << 10;
        }
        th.last_tick = now;
    }

    fn stat_tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let incr = self.tick_incr();
        self.note_ticks(k, t, true);
        self.of[t].run += incr;
        self.trim(t);
        if self.version == Version::V2022 {
            self.rq[cpu].advance();
            self.set_pri(t);
            self.of[t].slice += 1;
            if self.of[t].slice < self.full_slice(cpu, t) {
                return;
            }
            self.of[t].slice = 0;
        } else {
            self.of[t].slice -= 1;
            if self.of[t].slice > 0 {
                return;
            }
            self.set_pri(t);
            self.of[t].slice = self.full_slice(cpu, t);
        }
        self.of[t].to_head = false;
        k.resched(cpu);
    }

    /// 2004: the best of the array that is served; a thread without a slice is given one, and waits
    /// in the next array.
    fn choose_old(&mut self, cpu: Cpu) -> Option<TaskId> {
        loop {
            let t = self.rq[cpu].take(|_| true)?;
            if self.of[t].slice > 0 {
                return Some(t);
            }
            self.of[t].slice = self.full_slice(cpu, t);
            let level = queue_of(self.of[t].pri);
            self.rq[cpu].put(Place::Array { next: true, level }, t, false);
        }
    }
}

impl Policy for Ule {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.hz = k.hz();
        self.rq = vec![Queues::new(); k.nr_cpus()];
        self.load = vec![0; k.nr_cpus()];
        self.nice_count = vec![[0; 41]; k.nr_cpus()];
        self.init_many(k);
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let nice = i64::from(k.task(t).attrs.nice);
        let now = k.now() / (1_000_000_000 / self.hz);
        let th = Thread { nice, first_tick: now, last_tick: now, ..Thread::default() };
        *self.of.ensure(t) = th;
        if let Some(birth) = birth {
            let p = self.of[birth.parent];
            (self.of[t].run, self.of[t].slept) = (p.run, p.slept);
            self.shorten(t);
            let incr = self.tick_incr();
            self.of[birth.parent].run += incr;
            self.trim(birth.parent);
        }
        self.set_pri(t);
        self.of[t].pri = self.of[t].user_pri;
        self.of[t].slice = match (self.version, birth) {
            (Version::V2004, Some(_)) => 1,
            (Version::V2004, None) => self.slice_max(),
            (Version::V2022, Some(b)) => (self.full_slice(k.task(b.parent).cpu, t) - self.slice_min()).max(0),
            (Version::V2022, None) => 0,
        };
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        if let Some(parent) = k.task(t).parent {
            self.of[parent].run += self.of[t].run;
            self.trim(parent);
            self.set_pri(parent);
        }
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        if self.balances() {
            return self.pick_cpu(k, t, why);
        }
        k.idle_or_last(t)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        if let Enqueue::Wakeup(_) = why {
            let since = self.of[t].asleep_since.take().unwrap_or(k.now());
            let tick = 1_000_000_000 / self.hz;
            let ticks = k.now() / tick - since / tick;
            let max = self.history_max();
            if ticks << 10 >= max && self.version == Version::V2004 {
                (self.of[t].slept, self.of[t].run) = (max, 1);
            } else if ticks > 0 {
                self.of[t].slept += ticks << 10;
                self.trim(t);
                self.note_ticks(k, t, false);
            }
            self.set_pri(t);
        }
        let put_back = matches!(why, Enqueue::Preempted | Enqueue::Yielded);
        if !put_back {
            self.count(cpu, t, 1);
        }
        if matches!(why, Enqueue::Wakeup(_)) {
            self.of[t].slice = if self.version == Version::V2004 { self.full_slice(cpu, t) } else { 0 };
        }
        let th = &mut self.of[t];
        let head = std::mem::take(&mut th.to_head) && why == Enqueue::Preempted;
        if put_back && !head {
            th.pri = th.user_pri;
        }
        if !put_back {
            let pri = th.pri;
            self.many.low[cpu] = self.many.low[cpu].min(pri);
        }
        self.put(cpu, t, head);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        if self.balances() && cpu != self.many.here {
            if !self.many.asked[cpu] && self.preempts_remote(self.of[t].pri, self.of[curr].pri) {
                self.many.asked[cpu] = true;
                self.of[curr].to_head = true;
                k.resched(cpu);
            }
            return;
        }
        let better = self.of[t].pri < self.of[curr].pri;
        // 2004: only threads of the current array preempt; another CPU is interrupted for
        // interactive threads only (2022).
        let may = match self.version {
            Version::V2004 => self.interactive(t),
            Version::V2022 => true,
        };
        if better && may {
            // An interrupt thread displaces at once; all else sends the thread away as it returns
            // to user mode.
            self.of[curr].to_head = self.version == Version::V2022 && why == Enqueue::Wakeup(Wake::Io);
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.rq[cpu].remove(t);
        self.count(cpu, t, -1);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let own = match self.version {
            Version::V2004 => self.choose_old(cpu),
            Version::V2022 => self.rq[cpu].take(|_| true),
        };
        self.many.asked[cpu] = false;
        if let Some(t) = own {
            self.many.low[cpu] = self.of[t].pri;
            return own;
        }
        if self.balances() {
            let stolen = self.try_steal(k, cpu);
            self.many.low[cpu] = stolen.map_or(IDLE, |t| self.of[t].pri);
            return stolen;
        }
        let mut from: Vec<Cpu> = (0..self.rq.len()).filter(|&c| c != cpu && !self.rq[c].is_empty()).collect();
        from.sort_by_key(|&c| (-self.load[c], c));
        let (source, t) = from.into_iter().find_map(|c| self.rq[c].take(|t| k.allowed(t, cpu)).map(|t| (c, t)))?;
        self.count(source, t, -1);
        self.count(cpu, t, 1);
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.note_ticks(k, t, false);
        if self.of[t].pri != self.of[t].user_pri {
            self.of[t].pri = self.of[t].user_pri;
            self.note_low(k, cpu);
        }
        let period = 1_000_000_000 / self.stathz;
        k.set_slice(cpu, period - k.now().rem_euclid(period));
    }

    /// The statistics clock has its own rate, so it comes as a timer of the running thread.
    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.stat_tick(k, cpu, t);
        k.set_slice(cpu, 1_000_000_000 / self.stathz);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.note_ticks(k, t, true);
        self.of[t].left_tick = k.now() / (1_000_000_000 / self.hz);
        match why {
            Stop::Slept => {
                let boost = if self.version == Version::V2022 { NEW_BATCH } else { i64::MAX };
                let th = &mut self.of[t];
                th.asleep_since = Some(k.now());
                th.to_head = false;
                th.pri = th.pri.min(boost);
                self.count(cpu, t, -1);
            }
            Stop::Exited | Stop::SwitchedFrom => self.count(cpu, t, -1),
            Stop::Preempted | Stop::Yielded => {}
        }
    }

    fn timer(&mut self, k: &mut Kernel, _token: u64) {
        self.balance(k);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {
        let cpu = k.task(t).cpu;
        let counted = !matches!(k.task(t).state, crate::task::TaskState::Sleeping(_));
        let queued = self.rq[cpu].remove(t);
        if counted {
            self.nice_count[cpu][(i64::from(old.nice) + 20) as usize] -= 1;
        }
        self.of[t].nice = i64::from(k.task(t).attrs.nice);
        if counted {
            self.nice_count[cpu][(self.of[t].nice + 20) as usize] += 1;
        }
        self.set_pri(t);
        if queued {
            self.put(cpu, t, false);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let th = self.of.get(t)?;
        match key {
            "priority" => Some(th.pri as f64),
            "score" => Some(self.score_of(t) as f64),
            "slice" => Some(th.slice as f64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_the_published_ones() {
        let s = |run: i64, slept: i64| score(Version::V2004, run << 10, slept << 10);
        assert_eq!([s(100, 900), s(300, 700), s(900, 100), s(1000, 0), s(500, 500)], [5, 21, 95, 100, 0]);
        assert_eq!(score(Version::V2022, 500 << 10, 500 << 10), 50);
    }

    /// A policy of December 2004 at 1000 HZ with two threads: 0 ran and slept for these times, in
    /// ms; 1 did nothing.
    fn old(run: i64, slept: i64) -> Ule {
        let mut of = TaskMap::new();
        *of.ensure(TaskId(0)) = Thread { run: run << 10, slept: slept << 10, ..Thread::default() };
        of.ensure(TaskId(1));
        let version = Version::V2004;
        let many = Many::default();
        Ule { version, stathz: 128, hz: 1000, of, rq: Vec::new(), load: Vec::new(), nice_count: Vec::new(), many }
    }

    #[test]
    fn a_child_takes_half_a_second_of_its_parents_history() {
        let mut ule = old(1000, 4000);
        ule.shorten(TaskId(0));
        assert_eq!((ule.of[TaskId(0)].run >> 10, ule.of[TaskId(0)].slept >> 10), (100, 400));
        assert_eq!(ule.score_of(TaskId(0)), 12);
        let mut ule = old(180, 720);
        ule.shorten(TaskId(0));
        assert_eq!((ule.of[TaskId(0)].run >> 10, ule.of[TaskId(0)].slept >> 10), (180, 720));
    }

    /// A shell that reaps children which ran for a second each stops being interactive with the third.
    #[test]
    fn the_run_time_of_children_makes_their_parent_a_batch_thread() {
        let mut ule = old(100, 4900);
        ule.trim(TaskId(0));
        let shell = TaskId(0);
        let mut seen = Vec::new();
        for _ in 0..4 {
            ule.of[shell].run += 1000 << 10;
            ule.trim(shell);
            let th = ule.of[shell];
            seen.push((th.run >> 10, th.slept >> 10, ule.score_of(shell)));
        }
        assert_eq!(seen, [(864, 3136, 13), (1491, 2508, 29), (2491, 2508, 49), (2792, 2007, 65)]);
    }
}
