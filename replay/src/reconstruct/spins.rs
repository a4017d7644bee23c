//! Tasks that busy-wait: they look for work, yield the CPU, and look again.
//!
//! A task that yields has nothing to do and does not sleep: it spins in turns, as idle threads of
//! work-stealing pools and of OpenMP do. What it is given, no record shows. But where it then wakes a
//! task, that one had handed its work over and gone to sleep for the answer. So the work that ends in
//! this wakeup begins no earlier than that sleep, and what came before it, behind the first yield, was
//! spinning: a replay spins as long as it takes, or for as many turns as the task was seen to take before
//! it went to sleep. (rayon-core's sleep module describes such threads: rounds of yields, then sleep;
//! so do OpenMP's OMP_WAIT_POLICY and KMP_BLOCKTIME.) A turn lasts as long as the slices did that
//! ended with a yield. That a task yielded only follows from the lack of another cause for a switch, and a
//! cause may not show: of 9,119 switches of a `dd` that never yields two had none. So a few yields of many
//! slices make no busy wait.
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
/// of the replay in a millisecond.
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
    /// How long a turn of each task takes.
    turn: Vec<Ns>,
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
        let turn: Vec<Option<Ns>> = history.tasks.iter().map(turn_of).collect();
        // A few may be chance.
        let spins = |(task, turn): (&TaskHistory, &Option<Ns>)| {
            let found = turn.map(|_| asked_of(task, &slept, true, |_| true)).filter(|found| found.len() >= WORTH.0);
            found.unwrap_or_default()
        };
        let of: Vec<Vec<Spin>> = history.tasks.iter().zip(&turn).map(spins).collect();
        let asked = |task: &TaskHistory| match of[task.id as usize].is_empty() {
            true => asked_of(task, &slept, false, |wake| mutual(&waits, (task.id, history.wakee[wake as usize]))),
            false => Vec::new(),
        };
        Spins {
            asked: history.tasks.iter().map(asked).collect(),
            turn: turn.into_iter().map(Option::unwrap_or_default).collect(),
            turns: history.tasks.iter().map(|task| turns_of(task).unwrap_or(u32::MAX)).collect(),
            of,
        }
    }

    /// Nobody does.
    pub fn none(history: &History) -> Self {
        let n = history.tasks.len();
        Spins { of: vec![Vec::new(); n], turn: vec![0; n], turns: vec![u32::MAX; n], asked: vec![Vec::new(); n] }
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

/// How long a turn of a task takes, with the switch to it: the median of the slices that it ended with a
/// yield and in which it woke nobody, which would be work. None where so few slices end with a yield
/// that these may be preemptions whose cause does not show.
fn turn_of(task: &TaskHistory) -> Option<Ns> {
    let all = || task.events.iter().filter(|a| matches!(a.kind, EventKind::Off(_)));
    let (slices, yields) = (all().count(), all().filter(|a| a.kind == EventKind::Off(Off::Yielded)).count());
    let turns = task.slices(Ns::MAX).filter(|s| s.off == Off::Yielded && !s.wakes);
    let mut turns: Vec<Ns> = turns.map(|s| s.to - s.on).collect();
    let half = turns.len() / 2;
    let often = yields >= WORTH.0 && yields as f64 > WORTH.1 * slices as f64;
    often.then(|| if turns.is_empty() { 0 } else { *turns.select_nth_unstable(half).1 })
}

/// The wakeups by a task that was awake when those that it woke fell asleep, and did nothing for others
/// since: what they asked for woke nobody, and the answer comes no earlier than the question. It was awake
/// since it yielded or woke somebody else without having been woken itself, where it `spins`; else since it
/// was woken. Wakeups of its exit are no answers.
fn asked_of(task: &TaskHistory, slept: &[Option<Ns>], spins: bool, answers: impl Fn(u32) -> bool) -> Vec<Spin> {
    let mut asked = Vec::new();
    let mut awake = None;
    for event in &task.events {
        match event.kind {
            EventKind::Woken { .. } => awake = (!spins).then_some(event.at),
            EventKind::Off(Off::Yielded) if spins => awake = awake.or(Some(event.at)),
            EventKind::Off(Off::Slept { .. } | Off::Unknown) if !spins => awake = None,
            EventKind::Post { wake } => {
                let meanwhile = |at: &Ns| *at <= event.at && awake.is_some_and(|since| *at > since);
                if let Some(at) = slept[wake as usize].filter(meanwhile).filter(|_| answers(wake)) {
                    asked.push(Spin { at, wake });
                }
                awake = awake.or(spins.then_some(event.at)).map(|_| event.at);
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
        self.asked_until(task, until, d);
        let (spins, turns) = (&self.spins.of[task as usize], self.spins.turns[task as usize]);
        let ns = self.spins.turn[task as usize].max(SHORTEST_TURN);
        while let Some(&Spin { at, wake }) = spins.get(d.spun).filter(|spin| spin.at <= until) {
            d.spun += 1;
            let Some(sem) = self.sem_of_wake[wake as usize] else { continue };
            d.work_until(at, at);
            d.drop_turns(at);
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
            let note = Note::at(at).with(self.history.tasks[who as usize].tid).because(Evidence::Unobserved);
            d.does(at, Step::Spin { sem, ns: 1, turns: 0 }, note);
        }
    }
}

impl Draft {
    /// Takes out the turns behind the first yield since the last step that does something.
    fn drop_turns(&mut self, at: Ns) {
        let turn = |s: &Step| matches!(s, Step::Yield | Step::Run { .. } | Step::RunKernel { .. });
        let from = self.steps.iter().rposition(|s| !turn(s)).map_or(0, |last| last + 1);
        let Some(first) = self.steps[from..].iter().position(|s| *s == Step::Yield).map(|i| from + i) else {
            return self.flush(at);
        };
        self.steps.truncate(first);
        self.notes.truncate(first);
        self.forget(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{By, First, TaskEvent};

    /// A task with so many slices, in each of which it wakes another one that has just fallen asleep, and
    /// so many turns of 3 us that end with a yield.
    fn history(slices: i64, yields: i64) -> History {
        let (mut one, mut other) = (TaskHistory::new(0, First::Running, 0), TaskHistory::new(1, First::Running, 0));
        for i in 0..slices {
            let (at, wake) = (i * 100_000, i as u32);
            let mut add = |at, kind| one.events.push(TaskEvent { at, kind });
            add(at, EventKind::On { cpu: 0 });
            add(at + 20_000, EventKind::Post { wake });
            add(at + 30_000, EventKind::Off(Off::Preempted { interrupt: None }));
            if i < yields {
                add(at + 40_000, EventKind::On { cpu: 0 });
                add(at + 43_000, EventKind::Off(Off::Yielded));
            }
            let mut add = |at, kind| other.events.push(TaskEvent { at, kind });
            add(at + 10_000, EventKind::Off(Off::Slept { deep: false }));
            add(at + 20_000, EventKind::Woken { by: By::Task { waker: 0, wake }, cpu: 0 });
        }
        History { tasks: vec![one, other], wakee: vec![1; slices as usize], ..History::default() }
    }

    /// A switch whose cause does not show looks like a yield: two of them among 9,000 slices had made
    /// `dd` a task that busy-waits.
    #[test]
    fn a_few_yields_of_many_slices_are_no_busy_wait() {
        let has = |slices, yields| Spins::find(&history(slices, yields)).has(0);
        assert_eq!(
            [(20, 4), (20, 5), (600, 6), (600, 7)].map(|(slices, n)| has(slices, n)),
            [false, true, false, true]
        );
    }

    /// The work for which it woke somebody is no part of a turn.
    #[test]
    fn a_turn_lasts_as_long_as_the_slices_that_ended_with_a_yield() {
        let mut of = history(20, 9);
        assert_eq!(Spins::find(&of).turn[0], 3_000);
        for event in &mut of.tasks[0].events {
            if event.kind == EventKind::Off(Off::Preempted { interrupt: None }) {
                event.kind = EventKind::Off(Off::Yielded);
            }
        }
        assert_eq!(Spins::find(&of).turn[0], 3_000, "longer slices hold work");
    }
}
