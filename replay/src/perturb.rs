//! Perturbation: timing jitter, to see how sensitive a replay is to small changes.

use crate::draws::Draws;
use crate::program::{Pause, Step, Workload};
use crate::task::{Ns, NEVER};
use crate::Owner;

/// Changes every run and every expiry of a timer, those of request handlers included, by up to
/// `most` ns, evenly distributed and reproducible.
pub(crate) fn jitter(work: &mut Workload, most: Ns, seed: u64) {
    let tasks = work.tasks.len();
    for (owner, steps) in work.bodies_mut() {
        // A sequence of its own for each body: a step more in one leaves the others as they are.
        let number = match owner {
            Owner::Task(t) => t,
            Owner::Handler(j) => tasks + j,
        };
        let mut draws = Draws::new(seed.wrapping_add((number as u64) << 32));
        // How far the last expiry of the periodic timer is from where it was: it keeps its grid.
        let mut off = 0;
        for step in steps {
            match step {
                Step::Run { ns } if *ns != NEVER && *ns > 0 => *ns = (*ns + draws.around(most)).max(1),
                Step::Pause { pause: Pause::Timer { ns, slack }, .. } => {
                    // What cannot begin earlier ends earlier.
                    let moved = *ns + draws.around(most);
                    *ns = moved.max(0);
                    *slack = (i64::from(*slack) + moved.min(0)).max(0) as u32;
                }
                Step::Pause { pause: Pause::Period { ns, .. }, .. } => {
                    let moved = draws.around(most);
                    *ns = (*ns + moved - std::mem::replace(&mut off, moved)).max(1);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{HandlerId, Program, QueueId};
    use crate::task::Sleep;

    #[test]
    fn jitter_reaches_programs_and_handlers_alike() {
        let run = Step::Run { ns: 500_000 };
        let receive = Step::Receive { queue: QueueId(0), sleep: Sleep::Interruptible };
        let send = |handler| Step::Send { queue: QueueId(0), handler: HandlerId(handler) };
        let sender = Program::new("sender", 1, vec![run, send(0), run, send(1)]);
        let server = Program::new("server", 2, vec![receive, Step::Goto { step: 0 }]);
        let handlers = vec![vec![run], vec![run]];
        let mut work = Workload { tasks: vec![sender, server], queues: 1, handlers, ..Workload::default() };
        let before = work.clone();
        jitter(&mut work, 50_000, 3);
        let lengths = |work: &Workload| -> Vec<Ns> {
            let all = work.bodies().flat_map(|(_, steps)| steps.to_vec());
            all.filter_map(|s| if let Step::Run { ns } = s { Some(ns) } else { None }).collect()
        };
        let mut seen = lengths(&work);
        assert!(seen.iter().all(|ns| (450_000..=550_000).contains(ns)));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4, "every run of a program or a job has a length of its own");
        let mut again = before.clone();
        jitter(&mut again, 50_000, 3);
        assert_eq!(work, again);
        assert_ne!(lengths(&work), lengths(&before));
    }
}
