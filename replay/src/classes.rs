//! Scheduling classes: policies above one another.

use crate::policy::Policy;
use crate::task::{Attrs, SchedPolicy};

/// Place of a policy in the stack: which tasks it cares for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Tasks with a reservation.
    Deadline,
    /// SCHED_FIFO and SCHED_RR tasks.
    Rt,
    /// All others; takes everybody where there is no other layer.
    Main,
}

/// The scheduling classes, best first. A better one always preempts.
pub struct Stack {
    pub(crate) layers: Vec<(Layer, Box<dyn Policy>)>,
    /// Lost and starved tasks are looked for.
    pub(crate) watched: bool,
    /// The system has SCHED_DEADLINE; its class is there only where a task asks for it.
    pub(crate) reservations: bool,
    /// What the main policy looks at, where that is known.
    pub(crate) reads: Option<Reads>,
}

/// What a policy looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Its name.
    pub(crate) policy: &'static str,
    /// The fields of [`Attrs`] that it looks at.
    pub(crate) of_main: &'static [&'static str],
}

impl Stack {
    /// One policy for everybody.
    pub fn single(policy: Box<dyn Policy>) -> Self {
        Stack { layers: vec![(Layer::Main, policy)], watched: false, reservations: false, reads: None }
    }

    /// The same, but a task that the policy loses ends the run, and one that it starves is
    /// reported: for policies that are not in the registry and its tests.
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// The same for a system that has SCHED_DEADLINE.
    pub(crate) fn with_reservations(mut self) -> Self {
        self.reservations = true;
        self
    }

    /// True where tasks of this policy have a class of their own above the main one, or would have.
    pub(crate) fn serves(&self, policy: SchedPolicy) -> bool {
        match policy {
            SchedPolicy::Deadline => self.reservations,
            SchedPolicy::Fifo | SchedPolicy::Rr => self.layers.iter().any(|l| l.0 == Layer::Rt),
            _ => false,
        }
    }

    /// Puts `policy` above those so far.
    pub fn above(mut self, layer: Layer, policy: Box<dyn Policy>) -> Self {
        self.layers.insert(0, (layer, policy));
        self
    }

    pub(crate) fn class_of(&self, attrs: &Attrs) -> u8 {
        let want = match attrs.policy {
            SchedPolicy::Deadline => Layer::Deadline,
            SchedPolicy::Fifo | SchedPolicy::Rr => Layer::Rt,
            _ => Layer::Main,
        };
        self.layers.iter().position(|l| l.0 == want).unwrap_or(self.layers.len() - 1) as u8
    }
}
