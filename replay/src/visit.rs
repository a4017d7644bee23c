//! One way through all steps of a workload, those of request handlers included: whoever changes, counts or
//! prints steps goes this way.

use crate::program::{Step, Workload};

/// Whose steps they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The program of the task at this position.
    Task(usize),
    /// The handler at this position: whichever task takes the message runs it.
    Handler(usize),
}

impl Workload {
    /// The steps of every task, then those of every request handler.
    pub fn bodies(&self) -> impl Iterator<Item = (Owner, &[Step])> {
        let tasks = self.tasks.iter().enumerate().map(|(t, program)| (Owner::Task(t), program.steps.as_slice()));
        tasks.chain(self.handlers.iter().enumerate().map(|(j, steps)| (Owner::Handler(j), steps.as_slice())))
    }

    /// The same, to be changed. Positions must stay: other steps jump to them.
    pub fn bodies_mut(&mut self) -> impl Iterator<Item = (Owner, &mut [Step])> {
        let tasks = self.tasks.iter_mut().enumerate();
        let tasks = tasks.map(|(t, program)| (Owner::Task(t), program.steps.as_mut_slice()));
        tasks.chain(self.handlers.iter_mut().enumerate().map(|(j, steps)| (Owner::Handler(j), steps.as_mut_slice())))
    }

    /// The first task that receives from each queue, and the position of the step with which it does.
    pub fn receivers(&self) -> Vec<Option<(usize, usize)>> {
        let mut found = vec![None; self.queues as usize];
        for (owner, steps) in self.bodies() {
            let Owner::Task(t) = owner else { continue };
            for (i, step) in steps.iter().enumerate() {
                if let Step::Receive { queue, .. } = step {
                    found[queue.0 as usize].get_or_insert((t, i));
                }
            }
        }
        found
    }

    /// The task that runs each request handler, and the step with which it receives the request: the first
    /// that receives from the queue into which that is sent. None where nobody sends or receives it.
    pub fn doers(&self) -> Vec<Option<(usize, usize)>> {
        let receivers = self.receivers();
        let mut found = vec![None; self.handlers.len()];
        for (_, steps) in self.bodies() {
            for step in steps {
                if let Step::Send { queue, handler } = step {
                    found[handler.0 as usize] = receivers[queue.0 as usize];
                }
            }
        }
        found
    }
}
