//! What is known of each task, and the map from thread numbers to tasks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Index, IndexMut};

use super::IdleRule;
use crate::{State, StrId};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Only named by records without a time.
    #[default]
    Unseen,
    /// Nobody knows.
    Unknown,
    /// Forked, never woken.
    New,
    /// On a CPU.
    Running,
    /// Waiting for a CPU.
    Ready,
    /// Off the CPU and not ready.
    Off,
    /// It will not run again.
    Dead,
}

/// Where a waiting task is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: it does not wait.
    #[default]
    None,
    /// On the queue of the CPU in this slot.
    On(usize),
    /// On a queue that nobody knows.
    Unplaced,
}

/// A record that made a task runnable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub ts: i64,
    pub waker: Option<u32>,
    pub cpu: Option<i32>,
    pub slot: Option<usize>,
    pub irq: Option<u16>,
    pub in_irq: bool,
}

/// What is known of a slice when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    pub ts: i64,
    pub seq: Option<u64>,
    pub prio: Option<i32>,
    pub wake: Option<Wake>,
    pub run_delay: Option<i64>,
    pub sleep: Option<(i64, bool)>,
    pub prev_cpu: Option<i32>,
    pub flags: u16,
    /// It came to run from a sleep of this length (and kind) and no record woke it.
    pub unwoken: Option<(i64, bool)>,
}

/// A sleep that ended, kept until the task moves on because its reason may be recorded after the wakeup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slept {
    pub from: i64,
    pub to: i64,
    pub state: State,
    pub reason: Option<StrId>,
    pub flags: u16,
}

/// What a task said about its own leaving before the switch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hint {
    pub state: Option<State>,
    pub reason: Option<StrId>,
    pub yielded: bool,
    /// It was put on a queue while it still ran.
    pub queued: Option<Place>,
}

/// One task.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub tid: i64,
    pub phase: Phase,
    /// What the current interval of `states` will say.
    pub state: State,
    /// When it began.
    pub since: i64,
    /// It is not the first interval.
    pub turned: bool,
    /// Its flags so far.
    pub flags: u16,
    /// Slot of the CPU on which it runs, ran last, or waits; `None` when unknown.
    pub slot: Option<usize>,
    pub place: Place,
    /// The source itself put it there.
    pub enqueued: bool,
    /// Wakeup since it last ran.
    pub wake: Option<Wake>,
    /// Wakeup that came while it ran.
    pub early: Option<Wake>,
    /// Length of the sleep before the wakeup, and whether it was uninterruptible.
    pub sleep: Option<(i64, bool)>,
    pub open: Open,
    pub slept: Option<Slept>,
    pub reason: Option<StrId>,
    pub hint: Hint,
    pub ran_on: Option<i32>,

    pub pid: Option<i64>,
    pub comm: Option<StrId>,
    pub comm_first: Option<StrId>,
    pub exec_path: Option<StrId>,
    pub prio: Option<i32>,
    pub prio_min: Option<i32>,
    pub prio_max: Option<i32>,
    pub parent: Option<u32>,
    pub idle: bool,
    pub idle_cpu: Option<i32>,
    /// The rule for idle threads was not applied yet.
    pub unchecked: bool,
    /// Nothing but its fork was seen.
    pub fresh: bool,
    pub exited: bool,
    pub first_ts: i64,
    pub last_ts: i64,
    pub start_ts: Option<i64>,
    pub end_ts: Option<i64>,
    pub run_ns: i64,
    pub nr_slices: u64,
    pub nr_involuntary: u64,
    pub nr_voluntary: u64,
}

impl Task {
    pub fn set_prio(&mut self, prio: i32) {
        if self.prio != Some(prio) {
            self.prio = Some(prio);
            self.prio_min = Some(self.prio_min.map_or(prio, |p| p.min(prio)));
            self.prio_max = Some(self.prio_max.map_or(prio, |p| p.max(prio)));
        }
    }

    pub fn set_comm(&mut self, comm: Option<StrId>) {
        self.comm = comm;
        self.comm_first = self.comm_first.or(comm);
    }

    /// A record with a time names it.
    #[inline]
    pub fn seen(&mut self, ts: i64) {
        if self.phase == Phase::Unseen {
            self.phase = Phase::Unknown;
            (self.state, self.since, self.first_ts, self.last_ts) = (State::Unknown, ts, ts, ts);
        }
    }
}

/// Thread numbers below this are looked up in a plain array: it is the largest `pid_max` of Linux.
const DIRECT: i64 = 1 << 22;

/// All tasks by key, and the keys of thread numbers.
#[derive(Debug)]
pub(super) struct TaskMap {
    pub all: Vec<Task>,
    /// Keys below this belong to the idle tasks of CPUs.
    reserved: usize,
    /// Key + 1 by thread number, 0 for none.
    low: Vec<u32>,
    /// Keys of other thread numbers (thread addresses, mostly).
    high: HashMap<i64, u32, BuildHasherDefault<Mix>>,
    unchecked: bool,
}

impl TaskMap {
    pub fn new(nr_cpus: u32, idle: IdleRule) -> Self {
        let all = (0..nr_cpus).map(|cpu| Task { idle: true, idle_cpu: Some(cpu as i32), ..Task::default() }).collect();
        TaskMap {
            all,
            reserved: nr_cpus as usize,
            low: Vec::new(),
            high: HashMap::default(),
            unchecked: idle != IdleRule::ThreadZero,
        }
    }

    /// The task that now has this thread number.
    #[inline]
    pub fn get(&mut self, tid: i64) -> Option<u32> {
        let utid = if (0..DIRECT).contains(&tid) {
            self.low.get(tid as usize)?.checked_sub(1)?
        } else {
            *self.high.get(&tid)?
        };
        Some(utid)
    }

    /// A new task, first named at `ts`.
    pub fn create(&mut self, tid: i64, ts: i64) -> u32 {
        let utid = self.create_unseen(tid);
        self[utid].seen(ts);
        utid
    }

    /// A new task of which only the number is known.
    pub fn create_unseen(&mut self, tid: i64) -> u32 {
        let utid = u32::try_from(self.all.len()).expect("under 4 Gi tasks");
        self.all.push(Task { tid, unchecked: self.unchecked, ..Task::default() });
        self.bind(tid, utid);
        utid
    }

    /// Lets `tid` name `utid`.
    pub fn bind(&mut self, tid: i64, utid: u32) {
        if (0..DIRECT).contains(&tid) {
            let at = tid as usize;
            if self.low.len() <= at {
                self.low.resize(at + 1, 0);
            }
            self.low[at] = utid + 1;
        } else {
            self.high.insert(tid, utid);
        }
    }

    /// Lets `tid` name nobody.
    pub fn unbind(&mut self, tid: i64) {
        if (0..DIRECT).contains(&tid) {
            if let Some(utid) = self.low.get_mut(tid as usize) {
                *utid = 0;
            }
        } else {
            self.high.remove(&tid);
        }
    }

    /// Key of the idle task of `cpu`, made when it has none.
    pub fn idle_of(&mut self, cpu: i32) -> u32 {
        if let Ok(at) = usize::try_from(cpu) {
            if at < self.reserved {
                return at as u32;
            }
        }
        let utid = u32::try_from(self.all.len()).expect("under 4 Gi tasks");
        self.all.push(Task { idle: true, idle_cpu: Some(cpu), ..Task::default() });
        utid
    }
}

impl Index<u32> for TaskMap {
    type Output = Task;
    #[inline]
    fn index(&self, utid: u32) -> &Task {
        &self.all[utid as usize]
    }
}

impl IndexMut<u32> for TaskMap {
    #[inline]
    fn index_mut(&mut self, utid: u32) -> &mut Task {
        &mut self.all[utid as usize]
    }
}

/// Spreads integer keys; no seed, so that runs are alike.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }
    fn write_i64(&mut self, n: i64) {
        self.write_u64(n as u64);
    }
    fn write_i32(&mut self, n: i32) {
        self.write_u64(n as u64);
    }
}
