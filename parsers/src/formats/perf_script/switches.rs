//! Context switches that perf records itself, as `perf script --show-switch-events` prints them:
//!
//! ```text
//!     a 7 [000] 1.5: PERF_RECORD_SWITCH_CPU_WIDE OUT preempt  next pid/tid:  8/9
//!     b 9 [000] 1.6: PERF_RECORD_SWITCH_CPU_WIDE IN           prev pid/tid:  7/7
//!     a 7 [000] 1.5: PERF_RECORD_SWITCH OUT
//! ```

use std::collections::HashMap;

use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, State};

use crate::text::log::{Stamp, Who};
use crate::text::scan;

/// What the last `sched_switch` of a CPU stated and no switch record has repeated yet.
#[derive(Clone, Copy, Debug, Default)]
struct Sides {
    left: Option<i64>,
    came: Option<i64>,
}

/// What is known of switches.
#[derive(Debug, Default)]
pub struct Switches {
    /// Some line was of `sched_switch`.
    sampled: bool,
    /// Since the first switch record, what stands beside it.
    beside: Option<HashMap<Option<i32>, Sides>>,
}

impl Switches {
    /// Does the text have switch records?
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.beside.is_some()
    }

    /// A line of `sched_switch`, which says who leaves and who comes.
    pub fn sample(&mut self, cpu: Option<i32>, left: Option<i64>, came: Option<i64>) {
        self.sampled = true;
        if let Some(beside) = &mut self.beside {
            beside.insert(cpu, Sides { left, came });
        }
    }

    /// Sets `row` from a switch record; `None` where `sched_switch` has stated the same, or it is no
    /// such record.
    pub fn record(
        &mut self,
        wide: bool,
        rest: &[u8],
        stamp: &Stamp,
        quick: bool,
        row: &mut EventRow<'_>,
    ) -> Option<Kind> {
        let Who { tid, pid, comm } = stamp.who;
        let (way, rest) = scan::word(rest);
        let out = match way {
            b"OUT" => true,
            b"IN" => false,
            _ => return None,
        };
        let seen = self.sampled || quick;
        let first = self.beside.is_none();
        let sides = self.beside.get_or_insert_with(HashMap::new).entry(stamp.cpu).or_default();
        let side = if out { &mut sides.left } else { &mut sides.came };
        let repeated = tid.is_some() && *side == tid || first && seen;
        *side = None;
        if repeated {
            return None;
        }
        if out {
            let preempted = memchr::memmem::find(rest, b"preempt").is_some();
            row.tid(tid).pid(pid).comm(comm);
            row.state(if preempted { State::Preempted } else { State::UnknownOff });
            if let Some((pid, tid)) = other(rest) {
                row.next_pid(pid).next_tid(tid);
            }
            return Some(Kind::Switch);
        }
        if wide {
            // The other side's record said it all.
            row.tid(tid).pid(pid).comm(comm);
            return Some(Kind::Resume);
        }
        row.next_tid(tid).next_pid(pid).next_comm(comm);
        Some(Kind::Switch)
    }
}

/// Process and thread of the other side: `next pid/tid:  8/9`.
fn other(text: &[u8]) -> Option<(i64, i64)> {
    const KEY: &[u8] = b"pid/tid:";
    let at = memchr::memmem::find(text, KEY)?;
    let numbers = scan::trim(&text[at + KEY.len()..]);
    let slash = memchr::memchr(b'/', numbers)?;
    let (pid, tid) = (scan::i64(&numbers[..slash])?, scan::i64(&numbers[slash + 1..])?);
    (pid >= 0 && tid >= 0).then_some((pid, tid))
}
