//! What became of the groups of tasks that send each other messages.

use crate::history::TaskIndex;

/// What became of a group of tasks that send each other messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So few messages are unobserved that recorded causes say the same.
    Plain,
    /// Nearly everything is explained: the replay uses it.
    Explained,
    /// Too much stays unexplained, or the search came to the end of its budget; but some of its tasks
    /// form pools, whose members take what is there, each wakeup one piece of work.
    Pooled,
    /// The same, but some of its tasks keep several others at work, whose answers show: the replay uses
    /// those.
    Hub,
    /// Too much stays unexplained, or the search came to the end of its budget; but its tasks pass data on
    /// through buffers that hold so much: the replay fills and empties these.
    Buffered,
    /// The same, but several of its tasks put things into a buffer out of which one takes them.
    Gathered,
    /// Its tasks only wait for each other where they run side by side: they share a lock, and wait for it in
    /// a replay where they do.
    Locked,
    /// Its tasks wait until the last of them has come: in a replay whoever is the last there wakes the
    /// others.
    Barrier,
    /// Too much stays unexplained: each wakeup keeps its recorded cause.
    Unexplained,
    /// The search came to the end of its budget: each wakeup keeps its recorded cause.
    TooLarge,
    /// Explained, but the recorded run is replayed less well with it than without: each wakeup
    /// keeps its recorded cause.
    Worse,
}

impl Outcome {
    /// Messages cannot be followed, nor what its tasks pass on: only pools of them may be known.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Outcome::Pooled | Outcome::Unexplained | Outcome::TooLarge)
    }
}

/// A group of tasks that send each other messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its tasks: positions in [`Workload::tasks`].
    pub tasks: Vec<u32>,
    /// Messages, those of them that no wakeup shows, and those read and never written, written and
    /// never read, or written too late.
    pub messages: usize,
    /// Unobserved ones.
    pub unobserved: usize,
    /// Unexplained ones.
    pub unexplained: usize,
    /// What became of it.
    pub outcome: Outcome,
    /// The calls by which its tasks read and write were recorded, and show its messages.
    pub recorded: bool,
}

/// What is known about unobserved messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unobserved {
    /// Messages, and those of them that no wakeup shows.
    pub messages: usize,
    /// Unobserved ones.
    pub unobserved: usize,
    /// Messages read and never written, written and never read, or written too late.
    pub unexplained: usize,
    /// The replay uses all that matter: nearly everything is explained.
    pub resolved: bool,
    /// The groups of tasks, each of which is explained or keeps its recorded causes.
    pub groups: Vec<Group>,
    /// Steps that the search took; never more than a fixed number.
    pub spent: usize,
}

/// A group whose messages were not searched for.
pub(super) fn unsearched(tasks: Vec<TaskIndex>, outcome: Outcome) -> Group {
    Group { tasks, messages: 0, unobserved: 0, unexplained: 0, outcome, recorded: false }
}
