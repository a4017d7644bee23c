//! Buffers between tasks, one of which takes what others put in: what they hold, and who waits at them.

use super::Engine;
use crate::policy::Wake;
use crate::program::Buffer;
use crate::queue::Lists;
use crate::task::{Cpu, Sleep, TaskId};

/// What a buffer holds.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    held: u32,
    /// Put in since a write began.
    written: u32,
    /// Taken out by a read, and not used yet.
    taken: u32,
    /// How many of those who put something in have ended.
    ended: usize,
    /// All of them have, or the one that takes it out: nobody waits any more.
    closed: bool,
}

/// All buffers of a run.
pub(super) struct Levels {
    of: Vec<Level>,
    /// Who waits for room in which buffer, and who for something in it.
    putters: Lists,
    takers: Lists,
}

impl Levels {
    /// As they are at the start.
    pub fn of(buffers: &[Buffer]) -> Self {
        let level = |b: &Buffer| Level { held: b.holds.min(b.capacity), ..Level::default() };
        let (putters, takers) = (Lists::new(buffers.len()), Lists::new(buffers.len()));
        Levels { of: buffers.iter().map(level).collect(), putters, takers }
    }

    /// The buffer that `t` waits to put something into.
    pub fn putter(&self, t: TaskId) -> Option<usize> {
        self.putters.list_of(t)
    }

    /// The buffer that `t` waits to take something out of.
    pub fn taker(&self, t: TaskId) -> Option<usize> {
        self.takers.list_of(t)
    }
}

impl Engine {
    /// `t`, which runs, puts a unit into a buffer, or sleeps where there is no room; false when it sleeps.
    pub(super) fn put(&mut self, cpu: Cpu, t: TaskId, buffer: usize) -> bool {
        let (level, of) = (&mut self.levels.of[buffer], &self.k.work.buffers[buffer]);
        if level.closed {
            return true;
        }
        let fits = level.held < of.capacity;
        level.held += u32::from(fits);
        level.written += u32::from(fits);
        if !fits || level.written >= of.write {
            level.written = 0;
            if let Some(taker) = self.levels.takers.pop_front(buffer) {
                self.wake(taker, Wake::Task { waker: t, cpu, sync: true });
            }
        }
        if !fits {
            self.k.tasks[t.index()].pc -= 1;
            self.block(cpu, t, Sleep::Interruptible);
            self.levels.putters.push_back(buffer, t);
        }
        fits
    }

    /// `t`, which runs, takes a unit out of a buffer, or sleeps where there is none; false when it sleeps.
    pub(super) fn take(&mut self, cpu: Cpu, t: TaskId, buffer: usize) -> bool {
        let level = &mut self.levels.of[buffer];
        if level.taken > 0 {
            level.taken -= 1;
            return true;
        }
        if level.held == 0 {
            if level.closed {
                return true;
            }
            self.k.tasks[t.index()].pc -= 1;
            self.block(cpu, t, Sleep::Interruptible);
            self.levels.takers.push_back(buffer, t);
            return false;
        }
        let of = &self.k.work.buffers[buffer];
        let taken = level.held.min(of.read.max(1));
        level.held -= taken;
        level.taken = taken - 1;
        let (free, room) = (of.capacity - level.held, of.room);
        if free >= room {
            while let Some(putter) = self.levels.putters.pop_front(buffer) {
                self.wake(putter, Wake::Task { waker: t, cpu, sync: true });
                if room <= 1 {
                    break;
                }
            }
        }
        true
    }

    /// Whoever waits for `t`, which has ended, at a buffer waits no more.
    pub(super) fn close_buffers(&mut self, cpu: Cpu, t: TaskId) {
        for buffer in 0..self.levels.of.len() {
            let (level, of) = (&mut self.levels.of[buffer], &self.k.work.buffers[buffer]);
            let puts = of.from.contains(&t);
            level.ended += usize::from(puts);
            if of.to != t && !(puts && level.ended == of.from.len()) {
                continue;
            }
            level.closed = true;
            while let Some(other) =
                self.levels.putters.pop_front(buffer).or_else(|| self.levels.takers.pop_front(buffer))
            {
                self.wake(other, Wake::Task { waker: t, cpu, sync: false });
            }
        }
    }
}
