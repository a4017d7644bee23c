//! Programs of tasks whose messages are known: work that belongs to a message becomes a request handler,
//! run by whoever takes the message.

use super::build::Builder;
use super::draft::Draft;
use super::{Class, Evidence, Note};
use crate::history::{By, TaskHistory, TaskIndex};
use crate::infer::{Attempt, Mark, Message, Messages};
use crate::program::{BarrierId, Buffer, BufferId, HandlerId, LockId, QueueId, SemId, Step};
use crate::task::{Ns, Sleep, TaskId};

/// Where the work for a message begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    step: usize,
    handler: HandlerId,
    /// It is not from the network: it ends the task.
    last: bool,
}

/// When each task first took a message that others could take.
pub(super) fn receives_from(messages: &Messages) -> Vec<Option<Ns>> {
    let of_queue = |message: u32| messages.sent.get(message as usize).is_some_and(|m| m.station.is_some());
    let first = |m: &&(Ns, Mark)| matches!(m.1, Mark::Take(message) if of_queue(message));
    messages.marks.iter().map(|marks| marks.iter().find(first).map(|m| m.0)).collect()
}

impl Builder<'_> {
    /// What `task` did that no record says, up to `until`: messages, units of buffers, attempts at
    /// locks; `last` is the latest moment at which the task still does something.
    pub(super) fn marks_until(&mut self, task: &TaskHistory, until: Ns, last: Ns, d: &mut Draft) {
        while let Some(&(at, mark)) = self.messages.marks[task.id as usize].get(d.marked).filter(|m| m.0 <= until) {
            d.marked += 1;
            let at = at.min(last);
            d.work_until(at, at);
            match mark {
                Mark::Send(message) => self.sends(message, at, None, d),
                Mark::Take(message) => self.takes(message, at, d),
                Mark::Put(id) => self.at_buffer(id, Step::Put { buffer: BufferId(id) }, |b| Some(b.to), at, d),
                Mark::Get(id) => self.at_buffer(
                    id,
                    Step::Take { buffer: BufferId(id) },
                    |b| b.from.first().copied().filter(|_| b.from.len() == 1),
                    at,
                    d,
                ),
                Mark::Attempt(Attempt { lock, rest, alone, shows, .. }) => {
                    d.flush(at);
                    let evidence = if shows { Evidence::Task } else { Evidence::Unobserved };
                    let step = Step::Contend { lock: LockId(lock), ns: rest, ready: alone };
                    d.add(step, Note::at(at).because(evidence));
                }
                Mark::Barrier(barrier) => {
                    d.flush(at);
                    d.add(Step::Barrier { barrier: BarrierId(barrier) }, Note::at(at).because(Evidence::Task));
                }
            }
        }
    }

    /// A unit goes into a buffer or comes out of it.
    fn at_buffer(&self, id: u32, step: Step, other: fn(&Buffer) -> Option<TaskId>, at: Ns, d: &mut Draft) {
        d.flush(at);
        let other = other(&self.messages.buffers[id as usize]);
        let partner = other.map(|other| self.history.tasks[other.index()].tid);
        d.add(step, Note { partner, ..Note::at(at).because(Evidence::Unobserved) });
    }

    /// True for the wakeup of one that waited at a buffer or a lock.
    pub(super) fn woken_at_limit(&mut self, by: By) -> bool {
        let known = matches!(by, By::Task { wake, .. } if self.messages.explained.contains(&wake));
        self.classes[Class::Dependency as usize] += u64::from(known);
        known
    }

    /// The step for sending a message, where somebody reads it.
    fn sends(&mut self, message: u32, at: Ns, partner: Option<i64>, d: &mut Draft) {
        let Message { station, taken, recorded, .. } = self.messages.sent[message as usize];
        if !taken {
            return;
        }
        d.flush(at);
        let evidence = if partner.is_some() || recorded { Evidence::Recorded } else { Evidence::Unobserved };
        let note = Note { at, partner, evidence };
        let step = match station {
            Some(queue) => Step::Send { queue: QueueId(queue as u32), handler: HandlerId(message) },
            None => Step::Post { sem: self.sem_of_message(message), sync: true },
        };
        d.add(step, note);
    }

    fn takes(&mut self, message: u32, at: Ns, d: &mut Draft) {
        d.flush(at);
        match self.messages.sent[message as usize].station {
            Some(_) => d.cuts.push(Cut { step: d.steps.len(), handler: HandlerId(message), last: false }),
            None => {
                let sem = self.sem_of_message(message);
                d.add(Step::Wait { sem, sleep: Sleep::Interruptible }, Note::at(at).because(Evidence::Task));
            }
        }
    }

    fn sem_of_message(&mut self, message: u32) -> SemId {
        if let Some(sem) = self.sem_of_message.get(&message) {
            return *sem;
        }
        let sem = self.new_sem();
        self.sem_of_message.insert(message, sem);
        sem
    }

    /// A wakeup by `task` of a task that messages wake; false when it is like any other.
    pub(super) fn posts_message(&mut self, task: &TaskHistory, wake: u32, at: Ns, d: &mut Draft) -> bool {
        let wakee = self.history.wakee[wake as usize];
        if !self.messages.inside[wakee as usize] {
            return false;
        }
        if let Some(&message) = self.messages.of_wake.get(&wake) {
            let partner = self.history.tasks[wakee as usize].tid;
            self.sends(message, at, Some(partner), d);
            return true;
        }
        if self.messages.inside[task.id as usize] {
            // A message passed on within a pool: the engine does that by itself.
            return true;
        }
        let Some((queue, handler)) = self.last_handler(wakee, wake) else { return false };
        d.flush(at);
        let partner = self.history.tasks[wakee as usize].tid;
        d.add(Step::Send { queue, handler }, Note::at(at).with(partner));
        true
    }

    /// Somebody outside wakes a task that receives: where it has taken messages before, this is
    /// one more. What follows is its work.
    fn last_handler(&mut self, wakee: TaskIndex, wake: u32) -> Option<(QueueId, HandlerId)> {
        let queue = QueueId(self.messages.receives[wakee as usize]?);
        let at = *self.messages.woken_at.get(&wake)?;
        (self.receives_from[wakee as usize]? < at).then(|| {
            let next = HandlerId(self.handlers.len() as u32);
            let handler = *self.handler_of_wake.entry(wake).or_insert(next);
            if handler == next {
                self.handlers.push((wakee, Vec::new(), Vec::new()));
            }
            (queue, handler)
        })
    }

    /// True for a wakeup about a message of the network.
    pub(super) fn is_message(&self, task: &TaskHistory, by: By) -> bool {
        let inside = |l: TaskIndex| self.messages.inside[l as usize];
        let known = |wake| self.messages.of_wake.contains_key(&wake);
        matches!(by, By::Task { waker, wake } if inside(task.id) && (inside(waker) || known(wake)))
    }

    /// The wakeup of a task whose messages are known; false when it is like any other.
    pub(super) fn woken_by_message(&mut self, task: &TaskHistory, by: By, d: &mut Draft) -> bool {
        let By::Task { waker, wake } = by else { return false };
        if !self.messages.inside[task.id as usize] {
            return false;
        }
        let outside = !self.messages.inside[waker as usize];
        if outside && !self.messages.of_wake.contains_key(&wake) {
            let Some((_, handler)) = self.last_handler(task.id, wake) else { return false };
            d.cuts.push(Cut { step: d.steps.len(), handler, last: true });
        }
        self.classes[Class::Dependency as usize] += 1;
        true
    }

    /// Turns the work behind each message into a request handler; what is left receives from the queue. A
    /// task that reads it by itself ends behind as many messages as it got. One of several takes what
    /// comes, and how many that are depends on the others: its end belongs to the last message that it got,
    /// and ends whoever takes that.
    pub(super) fn make_handlers(&mut self, task: &TaskHistory, d: &mut Draft) {
        let (Some(queue), Some(first)) = (self.messages.receives[task.id as usize], d.cuts.first()) else { return };
        let shared = self.readers[queue as usize] > 1;
        let queue = QueueId(queue);
        let first = first.step;
        let killed = shared || d.cuts.last().is_some_and(|c| c.last);
        let exits = d.steps.iter().position(|s| matches!(s, Step::Exiting | Step::Exit)).filter(|_| !killed);
        let end = exits.unwrap_or(d.steps.len()).max(first);
        let cuts = std::mem::take(&mut d.cuts);
        for (i, cut) in cuts.iter().enumerate() {
            let to = cuts.get(i + 1).map_or(end, |c| c.step).clamp(cut.step.min(end), end);
            let range = cut.step.min(end)..to;
            // Attributes are those of a task, not of a message.
            let lasting = |i: &usize| !matches!(d.steps[*i], Step::SetAttrs { .. });
            let handler = &mut self.handlers[cut.handler.0 as usize];
            *handler = (
                task.id,
                range.clone().filter(lasting).map(|i| d.steps[i]).collect(),
                range.filter(lasting).map(|i| d.notes[i]).collect(),
            );
        }
        let behind: Vec<(Step, Note)> = (end..d.steps.len()).map(|i| (d.steps[i], d.notes[i])).collect();
        d.steps.truncate(first);
        d.notes.truncate(first);
        let note = Note::at(d.begun).because(Evidence::Task);
        let receive = Step::Receive { queue, sleep: Sleep::Interruptible };
        if exits.is_some() {
            for _ in &cuts {
                d.add(receive, note);
            }
            for (step, note) in behind {
                d.add(step, note);
            }
        } else {
            let step = d.steps.len() as u32;
            d.add(receive, note);
            d.add(Step::Goto { step }, note.because(Evidence::Looped));
        }
    }
}
