//! Tasks that busy-wait: they look for work, yield the CPU, and look again.
//!
//! A task that yields has nothing to do and does not sleep: it spins in turns, as idle threads of
//! work-stealing pools and of OpenMP do. What it is given, no record shows. But where it then wakes a
//! task, that one had handed its work over and gone to sleep for the answer. So the work that ends in
//! this wakeup begins no earlier than that sleep, and what came before it, behind the first yield, was
//! spinning: a replay spins as long as it takes, or for as many turns as the task was seen to take before
//! it went to sleep. (rayon-core's sleep module describes such threads: rounds of yields, then sleep;
//! so do OpenMP's OMP_WAIT_POLICY and KMP_BLOCKTIME.)
//!
//! The same holds for a task that others ask for something while it is busy, which wakes nobody. Where
//! their messages can be followed, that says when. Where not, a task that another one wakes at times, and
//! that wakes this one without having slept since it fell asleep, has an answer for it: it does not come
//! there before the other one sleeps.

use super::build::Builder;
use super::draft::Draft;
use super::{Evidence, Note};
use crate::history::{EventKind, History, Off, TaskHistory, TaskIndex};
use crate::infer::waits::{mutual, waits};
use crate::infer::WORTH;
use crate::program::{Step, Workload};
use crate::task::Ns;

/// A turn takes at least as long, so that one that spins alone takes no more than a thousand steps
/// of the replay in a millisecond. In five captures of busy pools on a 6.18 machine, 500, 1,000 and
/// 2,000 ns left -39, -45, -40; -17, -18, -16; -14, -13, -13; -11, -9, -10; +18, -2, +4 % of the switches.
const SHORTEST_TURN: Ns = 1_000;

/// A busy wait for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spin {
    /// When it fell asleep.
    at: Ns,
    /// Number of the wakeup that ended its sleep.
    wake: u32,
}

/// Who busy-waits, and for whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spins {
    /// Of each task, in order.
    of: Vec<Vec<Spin>>,
    /// Turns of each task before it goes to sleep, where it ever did.
    turns: Vec<u32>,
    /// The same of those that do not busy-wait: what they were asked for while they were awake.
    asked: Vec<Vec<Spin>>,
}

impl Spins {
    /// Finds the tasks that busy-wait, and for whom.
    pub fn find(history: &History) -> Self {
        let waits = waits(history);
        let mut slept = vec![None; history.wakee.len()];
        waits.values().flatten().for_each(|wait| slept[wait.wake as usize] = Some(wait.from));
        let yields = |task: &TaskHistory| task.events.iter().any(|a| a.kind == EventKind::Off(Off::Yielded));
        let spins = |task: &TaskHistory| if yields(task) { spins_of(task, &slept) } else { Vec::new() };
        let of: Vec<Vec<Spin>> = history.tasks.iter().map(spins).collect();
        let asked = |task: &TaskHistory| match of[task.id as usize].is_empty() {
            true => asked_of(task, &slept, |wake| mutual(&waits, (task.id, history.wakee[wake as usize]))),
            false => Vec::new(),
        };
        Spins {
            asked: history.tasks.iter().map(asked).collect(),
            turns: history.tasks.iter().map(|task| turns_of(task).unwrap_or(u32::MAX)).collect(),
            of,
        }
    }

    /// Nobody does.
    pub fn none(history: &History) -> Self {
        let n = history.tasks.len();
        Spins { of: vec![Vec::new(); n], turns: vec![u32::MAX; n], asked: vec![Vec::new(); n] }
    }

    /// True for a task that busy-waits.
    pub fn has(&self, task: TaskIndex) -> bool {
        !self.of[task as usize].is_empty()
    }

    /// The tasks that do.
    pub fn who(&self) -> impl Iterator<Item = TaskIndex> + '_ {
        (0..self.of.len() as TaskIndex).filter(|task| self.has(*task))
    }
}

/// The wakeups by a task that was awake from before those that it woke fell asleep: since it yielded
/// or woke somebody else, without having been woken itself. Those of its exit are no answers; a few
/// may be chance.
fn spins_of(task: &TaskHistory, slept: &[Option<Ns>]) -> Vec<Spin> {
    let mut spins = Vec::new();
    let mut awake = None;
    for event in &task.events {
        match event.kind {
            EventKind::Woken { .. } => awake = None,
            EventKind::Off(Off::Yielded) => awake = awake.or(Some(event.at)),
            EventKind::Post { wake } => {
                let meanwhile = |at: &Ns| *at <= event.at && awake.is_some_and(|since| *at > since);
                if let Some(at) = slept[wake as usize].filter(meanwhile) {
                    spins.push(Spin { at, wake });
                }
                awake = Some(event.at);
            }
            EventKind::Exiting => break,
            _ => {}
        }
    }
    if spins.len() < WORTH.0 {
        spins.clear();
    }
    spins
}

/// The wakeups by a task that was awake when those that it woke fell asleep, and did nothing for others
/// since: what they asked for woke nobody, and the answer comes no earlier than the question.
fn asked_of(task: &TaskHistory, slept: &[Option<Ns>], answers: impl Fn(u32) -> bool) -> Vec<Spin> {
    let mut asked = Vec::new();
    let mut awake = None;
    for event in &task.events {
        match event.kind {
            EventKind::Woken { .. } => awake = Some(event.at),
            EventKind::Off(Off::Slept { .. } | Off::Unknown) => awake = None,
            EventKind::Post { wake } => {
                let meanwhile = |at: &Ns| *at <= event.at && awake.is_some_and(|since| *at > since);
                if let Some(at) = slept[wake as usize].filter(meanwhile).filter(|_| answers(wake)) {
                    asked.push(Spin { at, wake });
                }
                awake = awake.map(|_| event.at);
            }
            EventKind::Exiting => break,
            _ => {}
        }
    }
    asked
}

/// The median number of yields in a row before a sleep.
fn turns_of(task: &TaskHistory) -> Option<u32> {
    let (mut turns, mut row) = (Vec::new(), 0);
    for event in &task.events {
        match event.kind {
            EventKind::Off(Off::Yielded) => row += 1,
            EventKind::Off(Off::Slept { .. }) if row > 0 => turns.push(std::mem::take(&mut row)),
            EventKind::Woken { .. } | EventKind::Post { .. } => row = 0,
            _ => {}
        }
    }
    let half = turns.len() / 2;
    (!turns.is_empty()).then(|| *turns.select_nth_unstable(half).1)
}

/// Takes out spinning for tasks that never come to wait.
pub(super) fn check(work: &mut Workload) {
    let mut waited = vec![false; work.sems.len()];
    for (_, steps) in work.bodies_mut() {
        for step in steps {
            if let Step::Wait { sem, .. } = step {
                waited[sem.0 as usize] = true;
            }
        }
    }
    for (_, steps) in work.bodies_mut() {
        for step in steps {
            if matches!(step, Step::Spin { sem, .. } if !waited[sem.0 as usize]) {
                *step = Step::Run { ns: 0 };
            }
        }
    }
}

impl Builder<'_> {
    /// Steps for those that `task` spun for from before `until` on.
    pub(super) fn spins_until(&mut self, task: TaskIndex, until: Ns, d: &mut Draft) {
        // What looks like yields of those that share a lock are its own.
        if self.messages.shares_lock(task) {
            return;
        }
        self.asked_until(task, until, d);
        let (spins, turns) = (&self.spins.of[task as usize], self.spins.turns[task as usize]);
        while let Some(&Spin { at, wake }) = spins.get(d.spun).filter(|spin| spin.at <= until) {
            d.spun += 1;
            let Some(sem) = self.sem_of_wake[wake as usize] else { continue };
            d.work_until(at, at);
            let ns = d.drop_turns(at).max(SHORTEST_TURN);
            let partner = self.history.tasks[self.history.wakee[wake as usize] as usize].tid;
            d.add(Step::Spin { sem, ns, turns }, Note::at(at).with(partner).because(Evidence::Unobserved));
        }
    }

    /// Steps for the questions that `task` got while it was awake, from before `until` on, where the
    /// messages cannot be followed: it does not answer one before it was asked.
    fn asked_until(&mut self, task: TaskIndex, until: Ns, d: &mut Draft) {
        if !self.unexplained.contains(&task) {
            return;
        }
        let asked = &self.spins.asked[task as usize];
        while let Some(&Spin { at, wake }) = asked.get(d.asked).filter(|spin| spin.at <= until) {
            d.asked += 1;
            let who = self.history.wakee[wake as usize];
            let followed = self.messages.inside[who as usize];
            let followed = followed || self.messages.explained.contains(&wake);
            let Some(sem) = self.sem_of_wake[wake as usize].filter(|_| !followed) else { continue };
            d.work_until(at, at);
            d.flush(at);
            let note = Note::at(at).with(self.history.tasks[who as usize].tid).because(Evidence::Unobserved);
            d.add(Step::Spin { sem, ns: 1, turns: 0 }, note);
        }
    }
}

impl Draft {
    /// Takes out the turns behind the first yield since the last step that does something, and gives the
    /// mean length of one.
    fn drop_turns(&mut self, at: Ns) -> Ns {
        let work = |s: &Step| match *s {
            Step::Run { ns } | Step::RunKernel { ns } => Some(ns),
            _ => None,
        };
        let does = |s: &Step| *s != Step::Yield && work(s).is_none();
        let from = self.steps.iter().rposition(does).map_or(0, |last| last + 1);
        let Some(first) = self.steps[from..].iter().position(|s| *s == Step::Yield).map(|i| from + i) else {
            self.flush(at);
            return 0;
        };
        let turns = self.steps[first..].iter().filter(|s| **s == Step::Yield).count() as Ns;
        let spent: Ns = self.steps[first..].iter().filter_map(work).sum();
        self.steps.truncate(first);
        self.notes.truncate(first);
        self.forget(at);
        spent / turns
    }
}
