//! The shapes that make up nearly all records of a scheduler trace, read without a loop over fields.
//!
//! A shape is a set of columns with 32-bit thread numbers and `char[16]` names. Whether an event
//! has one is found when its format is compiled; a record that is too short for it is left to the
//! general way.

use super::decode::Move;
use super::format::{Content, Int, Text};
use super::mapping::To;
use crate::binary::bytes::{u32_at, uint};
use crate::binary::tasks::Tasks;
use crate::text::log::{Stamp, Who};
use crate::text::stage::{Names, Stage};
use tracekit_schema::{Kind, State, StrId, Strings};

/// A field that the event lacks.
const ABSENT: usize = usize::MAX;

/// A name of at most 16 bytes.
#[derive(Clone, Copy, Debug)]
enum Name {
    /// `char[16]` at this offset.
    Array(usize),
    /// `__data_loc char[]` at this offset.
    DataLoc(usize),
}

/// A task and a few numbers.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    kind: Kind,
    comm: Name,
    tid: usize,
    prio: usize,
    target_cpu: usize,
    orig_cpu: usize,
    value: Option<Int>,
    value2: Option<Int>,
    /// Of a switch.
    next: Option<Next>,
    usual: Option<Usual>,
}

/// What follows `char comm[16]; pid_t pid` in records that lie as kernels have laid them out since
/// 2.6.3x: at offsets that are known when this is compiled, under one check of the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usual {
    /// `int prio; long state`, and name, number and priority of who enters.
    Switch,
    /// `int prio; int target_cpu`.
    Wakeup,
    /// `int prio; int orig_cpu; int dest_cpu`.
    Migrate,
    /// `u64 value`.
    Number,
    /// `u64 value; u64 value2`.
    Numbers,
}

/// What only a switch has.
#[derive(Clone, Copy, Debug)]
struct Next {
    comm: Name,
    tid: usize,
    prio: usize,
    state: Int,
}

impl Shape {
    /// The shape of an event with these fields, when it has one.
    pub fn of(kind: Kind, moves: &[Move]) -> Option<Self> {
        let from = |to: To| moves.iter().find(|m| m.to == to).map(|m| m.from);
        let name = |to: To| match from(to) {
            Some(Content::Text(Text::Array { at, len: 16 })) => Some(Name::Array(at)),
            Some(Content::Text(Text::DataLoc { at })) => Some(Name::DataLoc(at)),
            _ => None,
        };
        let int = |to: To| match from(to) {
            Some(Content::Int(int)) => Some(int),
            _ => None,
        };
        let word = |to: To| match from(to) {
            Some(Content::Int(Int { at, size: 4, signed: true })) => Some(at),
            None => Some(ABSENT),
            _ => None,
        };
        let known =
            [To::Comm, To::Tid, To::Prio, To::TargetCpu, To::OrigCpu, To::Value, To::Value2, To::State, To::NextComm];
        let also = [To::NextTid, To::NextPrio];
        if moves.iter().any(|m| !known.contains(&m.to) && !also.contains(&m.to)) {
            return None;
        }
        let next = match kind {
            Kind::Switch => Some(Next {
                comm: name(To::NextComm)?,
                tid: word(To::NextTid).filter(|at| *at != ABSENT)?,
                prio: word(To::NextPrio).filter(|at| *at != ABSENT)?,
                state: int(To::State)?,
            }),
            _ => None,
        };
        let mut shape = Shape {
            kind,
            comm: name(To::Comm)?,
            tid: word(To::Tid).filter(|at| *at != ABSENT)?,
            prio: word(To::Prio)?,
            target_cpu: word(To::TargetCpu)?,
            orig_cpu: word(To::OrigCpu)?,
            value: int(To::Value),
            value2: int(To::Value2),
            next,
            usual: None,
        };
        shape.usual = shape.usual();
        Some(shape)
    }

    fn usual(&self) -> Option<Usual> {
        const COMM: usize = 8;
        const TID: usize = 24;
        const PRIO: usize = 28;
        if !(matches!(self.comm, Name::Array(COMM)) && self.tid == TID) {
            return None;
        }
        let long = |int: Option<Int>| int.map(|i| (i.at, i.size));
        let numbers = (long(self.value), long(self.value2));
        match (self.prio, self.orig_cpu, self.target_cpu, numbers, &self.next) {
            (PRIO, ABSENT, ABSENT, (None, None), Some(next)) => {
                let name = matches!(next.comm, Name::Array(40));
                let rest = (long(Some(next.state)), next.tid, next.prio) == (Some((32, 8)), 56, 60);
                (name && rest).then_some(Usual::Switch)
            }
            (PRIO, ABSENT, 32, (None, None), None) => Some(Usual::Wakeup),
            (PRIO, 32, 36, (None, None), None) => Some(Usual::Migrate),
            (ABSENT, ABSENT, ABSENT, (Some((32, 8)), None), None) => Some(Usual::Number),
            (ABSENT, ABSENT, ABSENT, (Some((32, 8)), Some((40, 8))), None) => Some(Usual::Numbers),
            _ => None,
        }
    }

    /// Adds the row of a task record to `stage`, which has room; `None`, with nothing added, when
    /// the record is too short or has no name or no number.
    ///
    /// With `PIDS` the tasks' processes are looked up too.
    #[inline(always)]
    pub fn stage<const PIDS: bool>(
        &self,
        record: &[u8],
        be: bool,
        stamp: &Stamp,
        to: (&mut Stage, &mut Strings),
        tasks: &Tasks,
        states: impl FnOnce(i64, &mut Strings) -> (State, StrId),
    ) -> Option<()> {
        let (stage, strings) = to;
        let process = |tid: i64| match stamp.who {
            _ if !PIDS => None,
            Who { tid: Some(current), pid, .. } if current == tid => pid,
            _ => tasks.get(tid).pid(),
        };
        if let Some(usual) = self.usual {
            let (comm, tid, prio) = task(record, be)?;
            let comm = stage.names.intern(tid, comm, strings);
            let fields = record.get(32..)?;
            let word = |at: usize| u32_at(fields, at, be).map(|v| v as i32);
            let long = |at: usize| uint(fields, at, 8, be).map(|v| v as i64);
            match usual {
                Usual::Switch => {
                    let (next_comm, next_tid, next_prio) = task(fields, be)?;
                    let state = states(long(0)?, strings);
                    let next = (next_tid, stage.names.intern(next_tid, next_comm, strings), next_prio);
                    let row = stage.push(stamp, stamp.quality, self.kind, tid, comm).prio(prio);
                    row.switch(state, next).pids(process(tid), process(next_tid));
                }
                Usual::Wakeup => {
                    let target = word(0)?;
                    let row = stage.push(stamp, stamp.quality, self.kind, tid, comm).prio(prio);
                    row.target_cpu(target).pids(process(tid), None);
                }
                Usual::Migrate => {
                    let (orig, target) = (word(0)?, word(4)?);
                    let row = stage.push(stamp, stamp.quality, self.kind, tid, comm).prio(prio);
                    row.orig_cpu(orig).target_cpu(target).pids(process(tid), None);
                }
                Usual::Number => {
                    let value = long(0)?;
                    let row = stage.push(stamp, stamp.quality, self.kind, tid, comm);
                    row.value(Some(value)).pids(process(tid), None);
                }
                Usual::Numbers => {
                    let (value, value2) = (long(0)?, long(8)?);
                    let row = stage.push(stamp, stamp.quality, self.kind, tid, comm);
                    row.value(Some(value)).value2(Some(value2)).pids(process(tid), None);
                }
            }
            return Some(());
        }
        let word = |at: usize| u32_at(record, at, be).map(|v| v as i32);
        let task = |at: usize| word(at).filter(|tid| *tid >= 0).map(i64::from);
        let tid = task(self.tid)?;
        let comm = name(record, self.comm, be, tid, (&mut stage.names, strings))?;
        let prio = if self.prio == ABSENT { None } else { Some(word(self.prio)?) };
        if let Some(next) = &self.next {
            let (next_tid, next_prio) = (task(next.tid)?, word(next.prio)?);
            let next_comm = name(record, next.comm, be, next_tid, (&mut stage.names, strings))?;
            let state = states(next.state.get(record, be)?, strings);
            // Nothing may fail once the row is there.
            let prio = prio?;
            let row = stage.push(stamp, stamp.quality, self.kind, tid, comm).prio(prio);
            row.switch(state, (next_tid, next_comm, next_prio)).pids(process(tid), process(next_tid));
            return Some(());
        }
        let number = |from: Option<Int>| match from {
            None => Some(None),
            Some(int) => int.get(record, be).map(Some),
        };
        let (value, value2) = (number(self.value)?, number(self.value2)?);
        let target = if self.target_cpu == ABSENT { None } else { Some(word(self.target_cpu)?) };
        let orig = if self.orig_cpu == ABSENT { None } else { Some(word(self.orig_cpu)?) };
        let mut row = stage.push(stamp, stamp.quality, self.kind, tid, comm).value(value).value2(value2);
        row = row.pids(process(tid), None);
        if let Some(prio) = prio {
            row = row.prio(prio);
        }
        if let Some(cpu) = target {
            row = row.target_cpu(cpu);
        }
        if let Some(cpu) = orig {
            row.orig_cpu(cpu);
        }
        Some(())
    }
}

/// Name, number and the word behind them of the task that stands behind eight bytes of `fields`.
/// `None` when they are not there, or have no name or no number.
#[inline(always)]
fn task(fields: &[u8], be: bool) -> Option<(u128, i64, i32)> {
    let fields = fields.first_chunk::<32>()?;
    let comm = u128::from_le_bytes(*fields[8..].first_chunk::<16>()?);
    let (tid, word) = (u32_at(fields, 24, be)? as i32, u32_at(fields, 28, be)? as i32);
    (comm as u8 != 0 && tid >= 0).then_some((comm, i64::from(tid), word))
}

/// The name of thread `tid`; `None` when it is empty, does not lie in the record or is longer than names are.
#[inline(always)]
fn name(record: &[u8], from: Name, be: bool, tid: i64, to: (&mut Names, &mut Strings)) -> Option<StrId> {
    let word = match from {
        Name::Array(at) => *record.get(at..)?.first_chunk::<16>()?,
        Name::DataLoc(at) => {
            let place = u32_at(record, at, be)? as usize;
            let (at, len) = (place & 0xffff, place >> 16);
            if len > 16 {
                return None;
            }
            match record.get(at..at + 16).and_then(|b| b.first_chunk::<16>()) {
                // The terminating NUL is part of the text, so what follows it is cut off.
                Some(word) if word[..len].contains(&0) => *word,
                _ => padded(record.get(at..at + len)?),
            }
        }
    };
    (word[0] != 0).then(|| to.0.intern(tid, u128::from_le_bytes(word), to.1))
}

fn padded(text: &[u8]) -> [u8; 16] {
    let mut word = [0; 16];
    word[..text.len()].copy_from_slice(text);
    word
}
