//! The shapes that make up nearly all records of a scheduler trace, read without a loop over fields.
//!
//! A shape is a set of columns with 32-bit thread numbers and `char[16]` names. Whether an event has one is found when
//! its format is compiled; a record that is too short for it is left to the general way.

use super::decode::{Decoded, Move};
use super::format::{Content, Int, Text};
use super::mapping::To;
use crate::bytes::u32_at;
use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, StrId, Strings};

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
    comm: Name,
    tid: usize,
    prio: usize,
    target_cpu: usize,
    orig_cpu: usize,
    value: Option<Int>,
    value2: Option<Int>,
    /// Of a switch.
    next: Option<Next>,
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
                prio: word(To::NextPrio)?,
                state: int(To::State)?,
            }),
            _ => None,
        };
        Some(Shape {
            comm: name(To::Comm)?,
            tid: word(To::Tid).filter(|at| *at != ABSENT)?,
            prio: word(To::Prio)?,
            target_cpu: word(To::TargetCpu)?,
            orig_cpu: word(To::OrigCpu)?,
            value: int(To::Value),
            value2: int(To::Value2),
            next,
        })
    }

    /// Sets the columns of a task record and returns the state of a switch; `None`, with some columns set to what they
    /// would be anyway, when the record is too short.
    #[inline(always)]
    pub fn fill(
        &self,
        record: &[u8],
        be: bool,
        done: &mut Decoded,
        row: &mut EventRow<'_>,
        strings: &mut Strings,
    ) -> Option<Option<i64>> {
        let tid = i64::from(u32_at(record, self.tid, be)? as i32);
        done.tid = (tid >= 0).then_some(tid);
        row.tid(done.tid);
        row.comm(name(record, self.comm, be, strings)?);
        if self.prio != ABSENT {
            row.prio(u32_at(record, self.prio, be)? as i32);
        }
        let mut state = None;
        if let Some(next) = &self.next {
            let tid = i64::from(u32_at(record, next.tid, be)? as i32);
            done.next_tid = (tid >= 0).then_some(tid);
            row.next_tid(done.next_tid);
            row.next_comm(name(record, next.comm, be, strings)?);
            if next.prio != ABSENT {
                row.next_prio(u32_at(record, next.prio, be)? as i32);
            }
            state = Some(next.state.get(record, be)?);
        } else {
            if self.target_cpu != ABSENT {
                row.target_cpu(u32_at(record, self.target_cpu, be)? as i32);
            }
            if self.orig_cpu != ABSENT {
                row.orig_cpu(u32_at(record, self.orig_cpu, be)? as i32);
            }
            if let Some(value) = self.value {
                row.value(value.get(record, be)?);
            }
            if let Some(value2) = self.value2 {
                row.value2(value2.get(record, be)?);
            }
        }
        Some(state)
    }
}

/// A name, `Some(None)` when it is empty; `None` when it does not lie in the record or is longer than names are.
#[inline(always)]
fn name(record: &[u8], from: Name, be: bool, strings: &mut Strings) -> Option<Option<StrId>> {
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
    Some((word[0] != 0).then(|| strings.intern_padded(word)))
}

fn padded(text: &[u8]) -> [u8; 16] {
    let mut word = [0; 16];
    word[..text.len()].copy_from_slice(text);
    word
}
