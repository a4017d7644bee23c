//! Programs with less work in them than was recorded: a task that computes faster, work that is left out.

use std::collections::BTreeMap;

use crate::program::Step;
use crate::reconstruct::Recon;
use crate::task::{Ns, NEVER};

/// Less work of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Less {
    /// All of its work takes this part of the time, in 1/1000.
    Faster {
        /// Thread.
        tid: i64,
        /// What remains.
        permille: u32,
    },
    /// What it did at a moment takes so much less.
    Shorter {
        /// Thread.
        tid: i64,
        /// Trace time.
        at: Ns,
        /// By how much.
        ns: Ns,
    },
}

/// Where a stretch of work is: a step of a task, or of a request handler.
type Place = (bool, usize, usize);

impl Recon {
    /// The same programs with less work. Gives the time that was taken out, work without an end left alone.
    ///
    /// The work at a moment is the last stretch that began by then; 1 ns of it stays, so that a loop
    /// still takes time.
    pub fn shorten(&mut self, less: &[Less]) -> Ns {
        let places = self.places(less);
        let mut taken = 0;
        for less in less {
            match *less {
                Less::Faster { tid, permille } => {
                    for (_, place) in places.get(&tid).into_iter().flatten() {
                        taken += self.work_at(*place).map_or(0, |ns| {
                            let left = ((i128::from(*ns) * i128::from(permille) / 1000) as Ns).max(1).min(*ns);
                            std::mem::replace(ns, left) - left
                        });
                    }
                }
                Less::Shorter { tid, at, ns } => {
                    let Some(own) = places.get(&tid) else { continue };
                    let after = own.partition_point(|(begun, _)| *begun <= at - self.start);
                    let Some((_, place)) = after.checked_sub(1).map(|i| own[i]) else { continue };
                    taken += self.work_at(place).map_or(0, |work| {
                        let less = ns.clamp(0, (*work - 1).max(0));
                        *work -= less;
                        less
                    });
                }
            }
        }
        taken
    }

    /// The stretches of work of the threads in question, by when they began.
    fn places(&self, less: &[Less]) -> BTreeMap<i64, Vec<(Ns, Place)>> {
        let mut found: BTreeMap<i64, Vec<(Ns, Place)>> = less
            .iter()
            .map(|less| match *less {
                Less::Faster { tid, .. } | Less::Shorter { tid, .. } => (tid, Vec::new()),
            })
            .collect();
        let is_work = |step: &Step| matches!(step, Step::Run { .. } | Step::RunKernel { .. });
        for (t, (program, notes)) in self.work.tasks.iter().zip(&self.notes).enumerate() {
            let Some(own) = found.get_mut(&program.tid) else { continue };
            let steps = program.steps.iter().zip(notes).enumerate();
            own.extend(steps.filter(|(_, (step, _))| is_work(step)).map(|(i, (_, note))| (note.at, (false, t, i))));
        }
        for (j, (steps, (doer, notes))) in self.work.handlers.iter().zip(&self.handlers).enumerate() {
            let Some(own) = self.work.tasks.get(*doer as usize).and_then(|p| found.get_mut(&p.tid)) else { continue };
            let steps = steps.iter().zip(notes).enumerate();
            own.extend(steps.filter(|(_, (step, _))| is_work(step)).map(|(i, (_, note))| (note.at, (true, j, i))));
        }
        found.values_mut().for_each(|own| own.sort_by_key(|(at, _)| *at));
        found
    }

    /// The length of a stretch of work; none for work without an end.
    fn work_at(&mut self, (handler, body, step): Place) -> Option<&mut Ns> {
        let steps = if handler { &mut self.work.handlers[body] } else { &mut self.work.tasks[body].steps };
        match &mut steps[step] {
            Step::Run { ns } | Step::RunKernel { ns } if *ns < NEVER => Some(ns),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Program, Workload};
    use crate::reconstruct::Note;

    fn recon() -> Recon {
        let run = |ns| Step::Run { ns };
        let task = Program::new("a", 7, vec![run(100), Step::Yield, run(50), run(NEVER)]);
        let notes = [0, 100, 200, 300].map(|at| Note { at, ..Note::default() }).to_vec();
        Recon {
            work: Workload { tasks: vec![task], handlers: vec![vec![run(40)]], ..Workload::default() },
            notes: vec![notes],
            handlers: vec![(0, vec![Note { at: 120, ..Note::default() }])],
            start: 1000,
            ..Recon::default()
        }
    }

    fn left(recon: &Recon) -> Vec<Ns> {
        let steps = recon.work.tasks[0].steps.iter().chain(&recon.work.handlers[0]);
        steps.filter_map(|s| if let Step::Run { ns } = *s { Some(ns) } else { None }).collect()
    }

    #[test]
    fn a_faster_task_does_all_its_work_in_less_time_but_for_what_has_no_end() {
        let mut recon = recon();
        assert_eq!(recon.shorten(&[Less::Faster { tid: 7, permille: 500 }]), 95);
        assert_eq!(left(&recon), [50, 25, NEVER, 20]);
    }

    #[test]
    fn work_is_taken_from_where_it_was_recorded_and_no_more_than_there_is() {
        let mut recon = recon();
        let shorter = |at, ns| Less::Shorter { tid: 7, at, ns };
        // In the first burst; in the handler, twice; before anything; in the endless one.
        let less = [shorter(1050, 30), shorter(1130, 30), shorter(1140, 30), shorter(900, 5), shorter(1400, 9)];
        assert_eq!(recon.shorten(&less), 69);
        assert_eq!(left(&recon), [70, 50, NEVER, 1]);
        assert_eq!(recon.shorten(&[Less::Shorter { tid: 8, at: 1050, ns: 5 }]), 0);
    }
}
