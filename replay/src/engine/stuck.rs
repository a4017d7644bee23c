//! Tasks that wait for each other for ever.
//!
//! A recording ends, so that whatever tasks waited for in it came. Where a replay has them wait in a circle,
//! or for tasks that have nothing more to give, its program is not theirs: a wakeup was taken for what it
//! was not. Such tasks are those that no task that goes on can help: not by its next steps, nor by those of
//! the tasks that these steps help, and so on.

use super::Engine;
use crate::program::{Start, Step};
use crate::task::{Ns, TaskId, TaskState};

/// A task that waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The task.
    pub task: TaskId,
    /// Since when; not known of one that busy-waits or was never made.
    pub since: Option<Ns>,
    /// Its next step, of its program or of a request handler.
    pub step: usize,
    /// The request handler.
    pub handler: Option<u32>,
}

/// What a task waits for that another one has to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Gives a unit to a semaphore.
    Post(usize),
    /// Waits on a semaphore.
    Waiter(usize),
    /// Puts a message into a queue.
    Send(usize),
    /// Does anything: it takes out of a buffer what others put in.
    Goes(usize),
    /// Puts something into a buffer, or ends.
    Put(usize),
    /// Comes to a barrier.
    Barrier(usize),
    /// Makes it.
    Fork,
}

/// What is known so far of tasks that go on, and of what they give.
struct Going {
    tasks: Vec<bool>,
    posted: Vec<bool>,
    waited: Vec<bool>,
    sent: Vec<bool>,
    put: Vec<bool>,
    forked: Vec<bool>,
    /// Who is still to come to each barrier.
    absent: Vec<Vec<usize>>,
    /// Queues that one of them reads, and the request handlers that wait in those that none does.
    read: Vec<bool>,
    unread: Vec<Vec<usize>>,
    handled: Vec<bool>,
}

impl Engine {
    /// The tasks that wait for ever.
    pub(super) fn stuck(&self) -> Vec<Stuck> {
        let (n, sems, queues) = (self.k.tasks.len(), self.units.len(), self.queues.len());
        let needs: Vec<Option<Need>> = (0..n).map(|t| self.need(TaskId(t as u32))).collect();
        let dead = |t: usize| self.k.tasks[t].state == TaskState::Dead;
        if needs.iter().all(Option::is_none) {
            return Vec::new();
        }
        let mut going = Going {
            tasks: vec![false; n],
            posted: vec![false; sems],
            waited: vec![false; sems],
            sent: vec![false; queues],
            put: vec![false; self.k.work.buffers.len()],
            forked: vec![false; n],
            absent: self.k.work.barriers.iter().enumerate().map(|(i, all)| self.absent(i, all)).collect(),
            read: vec![false; queues],
            unread: self.queues.iter().map(|q| q.messages.iter().map(|h| *h as usize).collect()).collect(),
            handled: vec![false; self.k.work.handlers.len()],
        };
        let mut puts: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (buffer, of) in self.k.work.buffers.iter().enumerate() {
            of.from.iter().for_each(|t| puts[t.index()].push(buffer));
        }
        loop {
            let helped = |t: &usize| !going.tasks[*t] && !dead(*t) && going.help(*t, needs[*t]);
            let more: Vec<usize> = (0..n).filter(helped).collect();
            if more.is_empty() {
                break;
            }
            for t in more {
                going.tasks[t] = true;
                puts[t].iter().for_each(|buffer| going.put[*buffer] = true);
                self.go_on(t, &mut going);
            }
        }
        // Whoever has nothing more to do has done all that was recorded: its last sleep did not end there.
        let more = |t: usize| {
            let task = &self.k.tasks[t];
            // What it would do next may be loaded already.
            task.left > 0 || task.handler.is_some() || (task.pc as usize) < task.steps.len()
        };
        let stuck = (0..n).filter(|t| !going.tasks[*t] && !dead(*t) && more(*t));
        let found = |t: usize| {
            let task = &self.k.tasks[t];
            let since = matches!(task.state, TaskState::Sleeping(_)).then_some(task.since);
            let step = task.pc as usize - usize::from(task.left > 0 && task.pc > 0);
            Stuck { task: TaskId(t as u32), since, step, handler: task.handler.map(|h| h.0) }
        };
        stuck.map(found).collect()
    }

    /// What `t` waits for that another task has to do.
    fn need(&self, t: TaskId) -> Option<Need> {
        let task = &self.k.tasks[t.index()];
        let (buffers, b) = (&self.k.work.buffers, &self.levels);
        let sleeping = || {
            let post = self.waiters.list_of(t).map(Need::Post);
            let waiter = || self.spinners.list_of(t).map(Need::Waiter);
            let send = || self.readers.list_of(t).or_else(|| self.conditions.queue_of(t)).map(Need::Send);
            let put = || b.taker(t).map(Need::Put);
            let take = || b.putter(t).map(|i| Need::Goes(buffers[i].to.index()));
            let meet = || self.barriers.of_waiter(t).map(Need::Barrier);
            post.or_else(waiter).or_else(send).or_else(put).or_else(take).or_else(meet)
        };
        match task.state {
            TaskState::Sleeping(_) => sleeping(),
            TaskState::New if self.k.work.tasks[t.index()].start == Start::Forked => Some(Need::Fork),
            TaskState::Runnable | TaskState::Running if task.spun > 0 => {
                match self.k.steps_of(t).get(task.pc as usize) {
                    Some(Step::Spin { sem, turns: u32::MAX, .. }) => Some(Need::Waiter(sem.0 as usize)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Those of `all` who come to a barrier that are not there yet.
    fn absent(&self, barrier: usize, all: &[TaskId]) -> Vec<usize> {
        let dead = |t: TaskId| self.k.tasks[t.index()].state == TaskState::Dead;
        let absent = all.iter().filter(|t| self.barriers.of_waiter(**t) != Some(barrier) && !dead(**t));
        absent.map(|t| t.index()).collect()
    }

    /// Notes what `t` gives, which goes on.
    fn go_on(&self, t: usize, going: &mut Going) {
        let task = &self.k.tasks[t];
        let mut next: Vec<&[Step]> = vec![rest(self.k.steps_of(TaskId(t as u32)), task.pc)];
        next.extend(task.handler.map(|(_, back)| rest(&task.steps, back)));
        while let Some(steps) = next.pop() {
            for step in steps {
                let queue = match *step {
                    Step::Post { sem, .. } => {
                        going.posted[sem.0 as usize] = true;
                        continue;
                    }
                    Step::Wait { sem, .. } => {
                        going.waited[sem.0 as usize] = true;
                        continue;
                    }
                    Step::Fork { child, .. } => {
                        going.forked[child.index()] = true;
                        continue;
                    }
                    Step::Send { queue, handler } => {
                        going.sent[queue.0 as usize] = true;
                        going.unread[queue.0 as usize].push(handler.0 as usize);
                        queue.0 as usize
                    }
                    Step::Receive { queue, .. } => {
                        going.read[queue.0 as usize] = true;
                        queue.0 as usize
                    }
                    _ => continue,
                };
                if !going.read[queue] {
                    continue;
                }
                for handler in std::mem::take(&mut going.unread[queue]) {
                    if !std::mem::replace(&mut going.handled[handler], true) {
                        next.push(&self.k.work.handlers[handler]);
                    }
                }
            }
        }
    }
}

impl Going {
    /// True where a task that waits for this will get it.
    fn help(&self, t: usize, need: Option<Need>) -> bool {
        match need {
            None => true,
            Some(Need::Post(sem)) => self.posted[sem],
            Some(Need::Waiter(sem)) => self.waited[sem],
            Some(Need::Send(queue)) => self.sent[queue],
            Some(Need::Goes(other)) => self.tasks[other],
            Some(Need::Put(buffer)) => self.put[buffer],
            Some(Need::Barrier(barrier)) => self.absent[barrier].iter().all(|t| self.tasks[*t]),
            Some(Need::Fork) => self.forked[t],
        }
    }
}

/// The steps that may come from `pc` on.
fn rest(steps: &[Step], pc: u32) -> &[Step] {
    let (mut from, mut known) = (pc as usize, steps.len());
    // A loop goes back.
    while from < known {
        let back = steps[from..known].iter().filter_map(|s| match *s {
            Step::Goto { step } | Step::LoopUntil { step, .. } => Some(step as usize),
            _ => None,
        });
        (from, known) = (back.min().map_or(from, |b| b.min(from)), from);
    }
    &steps[from.min(steps.len())..]
}
