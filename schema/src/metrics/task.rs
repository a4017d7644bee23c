//! What one task did, row by row: its slices, its waits for a CPU, its responses.

use super::bag::Bag;
use super::kept::{Kept, Piece, Sample};
use crate::tables::flag;
use crate::{State, StrId};

/// What made a task wait for a CPU, in this order; the last are waits of which nothing says it.
pub const CAUSES: [&str; 5] = ["wakeup", "preemption", "yield", "first", ""];
const WAKEUP: usize = 0;
const PREEMPTION: usize = 1;
const YIELD: usize = 2;
const FIRST: usize = 3;
const UNKNOWN: usize = 4;

const DAMAGED: u16 = flag::CROSSES_LOSS | flag::INFERRED_END;
const OPEN: u16 = flag::OPEN_START | flag::OPEN_END;

/// A row of `slices`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Slice {
    pub ts: i64,
    pub dur: i64,
    pub tid: i64,
    pub comm: Option<StrId>,
    pub end_state: Option<State>,
    pub involuntary: Option<bool>,
    pub wake: Option<i64>,
    pub delay: Option<i64>,
    pub flags: u16,
}

/// A row of `states`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Stretch {
    pub ts: i64,
    pub dur: i64,
    pub tid: i64,
    pub comm: Option<StrId>,
    pub state: State,
    pub flags: u16,
}

/// Waits of one cause.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Those that ended.
    pub complete: Bag,
    /// Those that had not.
    pub censored: Vec<i64>,
    /// The longest that ended, and when.
    pub longest: Option<(i64, i64)>,
    /// Those within which records were lost or a clock was corrected.
    pub unreliable: u32,
}

/// What is known of a thread of a task.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Its slices, and those that are open or unreliable.
    pub slices: u32,
    /// Slices cut by an end of the trace.
    pub open: u32,
    /// Slices across a loss, or with an inferred end.
    pub unreliable: u32,
    /// Lengths of the others.
    pub lengths: Bag,
    /// Time on CPUs.
    pub run: i64,
    /// Involuntary switches.
    pub forced: u32,
    /// Switches out of a CPU.
    pub switches: u32,
    /// Waits by cause.
    pub waits: [Waits; CAUSES.len()],
    /// Responses that ended.
    pub responses: Bag,
    /// Responses without an end: when they began, and until when they are known to have lasted, if
    /// not to the end.
    pub unfinished: Vec<(i64, Option<i64>)>,
    /// Responses of which start or end is not known.
    pub excluded: u32,
    /// All of it with its time, where that is asked for.
    pub kept: Option<Box<Kept>>,
}

/// Slices that answer one wakeup.
#[derive(Clone, Copy, Debug)]
struct Chain {
    tid: i64,
    comm: Option<StrId>,
    wake: Option<i64>,
    end: i64,
    open: bool,
    on: Option<bool>,
    /// Known until here before records were lost in it, and the time of the slice in which they were.
    before: Option<i64>,
    loss: Option<i64>,
}

/// States in a row in which the task is ready to run, or in which it is not.
#[derive(Clone, Copy, Debug)]
struct Ready {
    ready: bool,
    first: Stretch,
    before: Option<State>,
    until: i64,
    open: bool,
    unreliable: bool,
    last: State,
}

/// A task while its rows come.
#[derive(Clone, Debug, Default)]
pub struct TaskStats {
    /// Last name of its slices, of its waits, of its responses.
    pub names: [Option<StrId>; 3],
    /// By thread.
    pub parts: Vec<(i64, Part)>,
    /// Of the response whose name counts: its start or end.
    named_at: Option<i64>,
    left: Option<(Option<bool>, Option<State>)>,
    chain: Option<Chain>,
    ready: Option<Ready>,
    open_waits: Vec<Ready>,
    /// Are samples kept with their times?
    keeps: bool,
}

fn is_ready(state: State) -> bool {
    matches!(state, State::Runnable | State::Preempted | State::Yielding)
}

/// Did the task stay ready to run when it left its CPU? None where the source does not say.
fn goes_on(slice: &Slice) -> Option<bool> {
    if slice.flags & flag::OPEN_END != 0 {
        return None;
    }
    match slice.end_state {
        None | Some(State::Unknown | State::UnknownOff) => slice.involuntary,
        Some(state) => Some(state == State::Running || is_ready(state)),
    }
}

impl TaskStats {
    /// Without a row so far; `keeps` keeps samples with their times.
    pub fn new(keeps: bool) -> Self {
        TaskStats { keeps, ..TaskStats::default() }
    }

    /// What is known of a thread; most tasks have one.
    fn part(&mut self, tid: i64) -> &mut Part {
        let at = self.parts.iter().position(|p| p.0 == tid).unwrap_or_else(|| {
            let kept = self.keeps.then(Box::default);
            self.parts.push((tid, Part { kept, ..Part::default() }));
            self.parts.len() - 1
        });
        &mut self.parts[at].1
    }

    /// The next slice; `stop` is the end of the trace where it is known.
    pub fn slice(&mut self, s: &Slice, stop: Option<i64>) {
        self.names[0] = s.comm.or(self.names[0]);
        let part = self.part(s.tid);
        part.slices += 1;
        if let Some(kept) = &mut part.kept {
            let whole = s.flags & (OPEN | DAMAGED) == 0;
            kept.pieces.push(Piece { at: s.ts, dur: s.dur, involuntary: s.involuntary, whole });
        }
        part.run += s.dur;
        if let Some(forced) = s.involuntary {
            part.switches += 1;
            part.forced += u32::from(forced);
        }
        if s.flags & OPEN != 0 {
            part.open += 1;
        } else if s.flags & DAMAGED != 0 {
            part.unreliable += 1;
        } else {
            part.lengths.push(s.dur);
        }
        if let Some(delay) = s.delay {
            self.wait(s, delay);
        }
        self.respond(s, stop);
        self.left = Some((s.involuntary, s.end_state));
    }

    fn wait(&mut self, s: &Slice, delay: i64) {
        let cause = match (self.left, s.wake) {
            (None, _) => FIRST,
            (Some(_), Some(_)) => WAKEUP,
            (Some((_, Some(State::Yielding))), None) => YIELD,
            (Some((Some(true), _)), None) => PREEMPTION,
            _ => UNKNOWN,
        };
        self.names[1] = s.comm.or(self.names[1]);
        let part = self.part(s.tid);
        if let Some(kept) = &mut part.kept {
            kept.wait(Sample { at: s.ts, value: delay, censored: false }, cause == WAKEUP);
        }
        let waits = &mut part.waits[cause];
        waits.complete.push(delay);
        waits.unreliable += u32::from(s.flags & flag::CLAMPED != 0);
        if waits.longest.is_none_or(|(most, at)| delay > most || (delay == most && s.ts < at)) {
            waits.longest = Some((delay, s.ts));
        }
    }

    fn respond(&mut self, s: &Slice, stop: Option<i64>) {
        let damaged = s.flags & DAMAGED != 0;
        let end = s.ts + s.dur;
        let begins = s.wake.is_some() || self.chain.is_none_or(|c| c.on != Some(true));
        if begins {
            if let Some(chain) = self.chain.take() {
                self.answered(&chain, false, stop);
            }
        }
        let chain = self.chain.get_or_insert(Chain {
            tid: s.tid,
            comm: None,
            wake: s.wake,
            end,
            open: false,
            on: None,
            before: None,
            loss: None,
        });
        (chain.comm, chain.end, chain.open, chain.on) = (s.comm, end, s.flags & flag::OPEN_END != 0, goes_on(s));
        if chain.loss.is_none() {
            if damaged {
                chain.loss = Some(s.ts);
            } else {
                chain.before = chain.before.max(Some(end));
            }
        }
    }

    /// A response is over.
    fn answered(&mut self, c: &Chain, last_of_task: bool, stop: Option<i64>) {
        let beyond = stop.is_some_and(|stop| c.end > stop);
        let complete = c.wake.is_some()
            && c.loss.is_none()
            && !(c.open || (c.on == Some(true) && last_of_task) || beyond)
            && c.on == Some(false);
        self.name_response(c.comm, c.wake.or(complete.then_some(c.end)));
        let part = self.part(c.tid);
        match (c.wake, c.loss) {
            (None, _) => part.excluded += 1,
            // A slice with an inferred end, or that a loss cuts, is known to its start.
            (Some(wake), Some(loss)) => {
                part.unfinished.push((wake, Some(c.before.unwrap_or(i64::MIN).max(loss).max(wake))));
            }
            (Some(wake), None) if complete => {
                part.responses.push(c.end - wake);
                if let Some(kept) = &mut part.kept {
                    kept.responses.push(Sample { at: wake, value: c.end - wake, censored: false });
                }
            }
            (Some(wake), None) if c.open || (c.on == Some(true) && last_of_task) || beyond => {
                part.unfinished.push((wake, None));
            }
            _ => part.excluded += 1,
        }
    }

    /// Of all responses, the one that began last names them.
    fn name_response(&mut self, comm: Option<StrId>, at: Option<i64>) {
        if comm.is_some() && at >= self.named_at {
            (self.names[2], self.named_at) = (comm, at);
        }
    }

    /// The next state.
    pub fn state(&mut self, s: &Stretch) {
        let (ready, until) = (is_ready(s.state), s.ts + s.dur);
        let (open, unreliable) = (s.flags & flag::OPEN_END != 0, s.flags & flag::CROSSES_LOSS != 0);
        match &mut self.ready {
            Some(r) if r.ready == ready => {
                (r.until, r.open, r.last) = (until, open, s.state);
                r.unreliable |= unreliable;
            }
            was => {
                let before = was.map(|r| r.last);
                let next = Ready { ready, first: *s, before, until, open, unreliable, last: s.state };
                if let Some(over) = was.replace(next) {
                    self.keep_open(over);
                }
            }
        }
    }

    fn keep_open(&mut self, r: Ready) {
        if r.ready && r.open && r.first.flags & flag::OPEN_START == 0 {
            self.open_waits.push(r);
        }
    }

    /// There are no more rows; the trace ends at `stop`.
    pub fn finish(&mut self, stop: i64) {
        if let Some(chain) = self.chain.take() {
            self.answered(&chain, true, Some(stop));
        }
        if let Some(last) = self.ready.take() {
            self.keep_open(last);
        }
        for w in std::mem::take(&mut self.open_waits) {
            let cause = match (w.before, w.first.state) {
                (None, _) => FIRST,
                (Some(State::Running), State::Yielding) => YIELD,
                (Some(State::Running), _) => PREEMPTION,
                (Some(State::Unknown), _) => UNKNOWN,
                _ => WAKEUP,
            };
            let (since, comm) = (w.first.ts, w.first.comm);
            self.names[1] = comm.or(self.names[1]);
            let answers = !matches!(w.before, Some(State::Running | State::Unknown));
            if answers {
                self.name_response(comm, Some(since));
            }
            let part = self.part(w.first.tid);
            if let Some(kept) = &mut part.kept {
                kept.wait(Sample { at: w.until, value: w.until - since, censored: true }, cause == WAKEUP);
            }
            part.waits[cause].censored.push(w.until - since);
            part.waits[cause].unreliable += u32::from(w.unreliable);
            // Nothing is known of a wait once records were lost in it.
            if answers {
                part.unfinished.push((since, w.unreliable.then_some(since)));
            }
        }
    }

    /// Samples that are held one by one.
    pub fn held(&self) -> usize {
        let of =
            |p: &Part| p.lengths.held() + p.responses.held() + p.waits.iter().map(|w| w.complete.held()).sum::<usize>();
        self.parts.iter().map(|p| of(&p.1)).sum()
    }

    /// Keeps counts of rounded values in place of samples.
    pub fn round(&mut self) {
        for (_, part) in &mut self.parts {
            part.lengths.round();
            part.responses.round();
            part.waits.iter_mut().for_each(|w| w.complete.round());
        }
    }
}
