//! What is known of each CPU: who has it, and how its time adds up.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::{Index, IndexMut};

use super::tasks::{Mix, Wake};
use super::Who;
use crate::tables::flag;
use crate::StrId;

/// One CPU.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub cpu: i32,
    /// The key of its idle thread, where that has a number of its own.
    pub idle_utid: Option<u32>,
    pub idle_comm: Option<StrId>,
    pub first: Option<i64>,
    /// Time of the record before the one being read, backward steps ignored.
    pub last: i64,
    pub nr_events: u64,
    pub nr_switches: u64,
    /// Records lost; `None` once a loss of unknown size happened.
    pub nr_lost: Option<u64>,
    pub max_backstep: i64,
    /// Who has it; `None` while unknown.
    pub cur: Option<Who>,
    /// Since when: time before it is accounted for.
    pub since: i64,
    /// While `cur` is unknown: since when no switch can have happened unseen.
    pub known_from: i64,
    /// Flag of a slice that begins at `known_from`.
    pub start_flag: u16,
    /// The thread that records name as current, before any switch was seen.
    pub proposed: Option<(i64, Option<StrId>)>,
    /// The task that left by half a switch, or was found elsewhere before its own switch.
    pub left: Option<u32>,
    /// The task that had it and entered another CPU, and when: no switch has said so far that it left.
    pub ousted: Option<(u32, i64)>,
    /// Of a recording of some tasks: who came in the last switch, and when.
    pub came: Option<(u32, i64)>,
    /// Its last record, apart from those of the idle thread, is a switch from idle to a task.
    pub switching: bool,
    /// The idle thread woke somebody then, and this was the time of the record before.
    pub idled: Option<i64>,
    /// Of a recording of some CPUs: the task that its last record woke on a CPU that was not recorded.
    pub sent: Option<(u32, Wake)>,
    /// Its last switch from one thread to another: when, from whom, to whom.
    pub switched: Option<(i64, i64, i64)>,
    /// When the last task left it for the idle thread.
    pub idle_since: Option<i64>,
    pub busy: i64,
    pub idle: i64,
    pub unknown: i64,
    pub idle_periods: u64,
}

impl Cpu {
    fn new(cpu: i32) -> Self {
        Cpu {
            cpu,
            idle_utid: None,
            idle_comm: None,
            first: None,
            last: i64::MIN,
            nr_events: 0,
            nr_switches: 0,
            nr_lost: Some(0),
            max_backstep: 0,
            cur: None,
            since: 0,
            known_from: 0,
            start_flag: flag::OPEN_START,
            proposed: None,
            left: None,
            ousted: None,
            came: None,
            switching: false,
            idled: None,
            sent: None,
            switched: None,
            idle_since: None,
            busy: 0,
            idle: 0,
            unknown: 0,
            idle_periods: 0,
        }
    }

    /// No record shows a switch on it or that it idled: who had it is known from other records, and
    /// only while there are any.
    pub fn only_glimpsed(&self) -> bool {
        self.nr_switches == 0 && self.idle_periods == 0
    }

    /// Adds the time up to `ts` to what the CPU was doing, and says at which time that leaves it:
    /// never before the last.
    #[inline]
    pub fn account(&mut self, ts: i64) -> i64 {
        let ts = ts.max(self.since);
        let spent = ts.saturating_sub(self.since);
        match self.cur {
            Some(Who::Task(_)) => self.busy = self.busy.saturating_add(spent),
            Some(Who::Idle) => self.idle = self.idle.saturating_add(spent),
            None => self.unknown = self.unknown.saturating_add(spent),
        }
        self.since = ts;
        ts
    }

    /// Nobody is known to have it from `ts` on.
    pub fn forget(&mut self, ts: i64, start_flag: u16) {
        self.cur = None;
        self.known_from = ts;
        self.start_flag = start_flag;
        (self.left, self.came, self.sent) = (None, None, None);
        (self.switching, self.idled) = (false, None);
    }
}

/// CPU numbers below this are looked up in a plain array.
const DIRECT: usize = 4096;

/// All CPUs, in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct CpuMap {
    pub all: Vec<Cpu>,
    /// Slot + 1 by CPU number, 0 for none.
    low: Vec<u32>,
    high: HashMap<i32, usize, BuildHasherDefault<Mix>>,
}

impl CpuMap {
    /// The slot of a CPU, made when it is new.
    #[inline]
    pub fn slot(&mut self, cpu: i32) -> usize {
        if let Some(slot) = self.low.get(cpu as usize).and_then(|s| s.checked_sub(1)) {
            return slot as usize;
        }
        self.add(cpu)
    }

    fn add(&mut self, cpu: i32) -> usize {
        let slot = self.all.len();
        match usize::try_from(cpu) {
            Ok(at) if at < DIRECT => {
                if self.low.len() <= at {
                    self.low.resize(at + 1, 0);
                }
                self.low[at] = slot as u32 + 1;
            }
            _ => {
                if let Some(&slot) = self.high.get(&cpu) {
                    return slot;
                }
                self.high.insert(cpu, slot);
            }
        }
        self.all.push(Cpu::new(cpu));
        slot
    }

    /// Counts a record of this CPU; is it the first?
    #[inline]
    pub fn record(&mut self, slot: usize, ts: i64) -> bool {
        let cpu = &mut self.all[slot];
        cpu.nr_events += 1;
        let first = cpu.first.is_none();
        if first {
            (cpu.first, cpu.last, cpu.since, cpu.known_from) = (Some(ts), ts, ts, ts);
        } else if ts < cpu.last {
            cpu.max_backstep = cpu.max_backstep.max(cpu.last.saturating_sub(ts));
        }
        first
    }
}

impl Index<usize> for CpuMap {
    type Output = Cpu;
    #[inline]
    fn index(&self, slot: usize) -> &Cpu {
        &self.all[slot]
    }
}

impl IndexMut<usize> for CpuMap {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Cpu {
        &mut self.all[slot]
    }
}
