//! What users read about messages that no wakeup shows.

use super::{Group, Outcome, Unobserved};
use crate::program::{Buffer, Workload};
use crate::task::TaskId;

/// Names of tasks in a sentence, at most.
const NAMED: usize = 3;

impl Unobserved {
    /// What becomes of the unobserved messages, as a sentence; none where nothing is unobserved.
    pub fn report(&self, work: &Workload) -> Option<String> {
        let of = |outcomes: &[Outcome]| -> Vec<&Group> {
            self.groups.iter().filter(|g| outcomes.contains(&g.outcome)).collect()
        };
        let sum = |groups: &[&Group], what: fn(&Group) -> usize| groups.iter().map(|g| what(g)).sum::<usize>();
        let mut sentences = Vec::new();
        for (recorded, whence) in [
            (true, "the recorded read and write calls show them"),
            (false, "they are inferred from what the tasks did"),
        ] {
            let mut explained = of(&[Outcome::Explained, Outcome::Hub]);
            explained.retain(|g| g.recorded == recorded);
            if sum(&explained, |g| g.unobserved) > 0 {
                sentences.push(format!(
                    "{} of {} messages were sent to a task that was awake; {whence}",
                    sum(&explained, |g| g.unobserved),
                    sum(&explained, |g| g.messages)
                ));
            }
        }
        let names = |groups: &[&Group]| -> String {
            let names: Vec<String> = groups.iter().take(NAMED).map(|g| group_name(g, work)).collect();
            names.join("; ")
        };
        let rooms = |groups: &[&Group]| -> String {
            let of = |b: &&Buffer| groups.iter().any(|g| g.tasks.contains(&b.to.0));
            let found: Vec<String> = work.buffers.iter().filter(of).take(NAMED).map(|b| room(b, work)).collect();
            found.join(", ")
        };
        let pooled = of(&[Outcome::Pooled]);
        if !pooled.is_empty() {
            sentences.push(format!(
                "messages between {} cannot be followed one by one (locks wake tasks as well); \
                 those that share a queue take its work as it comes, and as many requests as \
                 arrived; waits for a lock come about where the recording shows a condition variable, \
                 and are left out elsewhere",
                names(&pooled)
            ));
        }
        let buffered = of(&[Outcome::Buffered]);
        if !buffered.is_empty() {
            sentences.push(format!(
                "messages between {} cannot be followed one by one: a replay fills and empties the buffers \
                 between them, in units of the least that one wakes the other for ({})",
                names(&buffered),
                rooms(&buffered)
            ));
        }
        let gathered = of(&[Outcome::Gathered]);
        if !gathered.is_empty() {
            sentences.push(format!(
                "messages between {} cannot be followed one by one: many of them put into a buffer what \
                 one takes out, in units of its shortest bursts; nothing shows who put in what it found \
                 there, and a replay has it from those who ran meanwhile ({})",
                names(&gathered),
                rooms(&gathered)
            ));
        }
        let locked = of(&[Outcome::Locked]);
        if !locked.is_empty() {
            sentences.push(format!(
                "{} wait for each other only where they run side by side, as at a lock: a replay lets them \
                 wait where they do there, as often in an equal time",
                names(&locked)
            ));
        }
        let barred = of(&[Outcome::Barrier]);
        if !barred.is_empty() {
            sentences.push(format!(
                "{} wait until the last of them has come, as at a barrier: in a replay whoever comes last \
                 there wakes the others",
                names(&barred)
            ));
        }
        let kept = of(&[Outcome::Unexplained, Outcome::TooLarge, Outcome::Worse]);
        if !kept.is_empty() {
            let more = if kept.len() > NAMED { format!(" and {} more", kept.len() - NAMED) } else { String::new() };
            let why = match kept.iter().filter(|g| g.outcome == Outcome::TooLarge).count() {
                _ if kept.iter().all(|g| g.outcome == Outcome::Worse) => {
                    "the recorded run is replayed less well with their explanation than without".into()
                }
                0 => format!("{} stay unexplained", sum(&kept, |g| g.unexplained)),
                n if n == kept.len() => "the search for them came to its bound".into(),
                _ => format!("{} stay unexplained or the search came to its bound", sum(&kept, |g| g.unexplained)),
            };
            sentences.push(format!(
                "unobserved messages between {}{more} (about {} sent to a task that was awake; \
                 {why}), so each wakeup there keeps its own cause: under a policy that orders work \
                 otherwise, work may come before its cause; a capture with sys_enter_read, \
                 sys_exit_read, sys_enter_write and sys_exit_write shows them",
                names(&kept),
                sum(&kept, |g| g.unobserved)
            ));
        }
        (!sentences.is_empty()).then(|| sentences.join(". "))
    }
}

/// How much a buffer holds.
fn room(buffer: &Buffer, work: &Workload) -> String {
    let name = |t: TaskId| work.tasks.get(t.index()).map_or("?", |task| task.comm.as_str());
    let more = if buffer.from.len() > 1 { format!(" and {} more", buffer.from.len() - 1) } else { String::new() };
    let room = if buffer.capacity == u32::MAX { "any number".into() } else { buffer.capacity.to_string() };
    format!("{}{more} to {}: room for {room}", name(buffer.from[0]), name(buffer.to))
}

/// The first names of a group's tasks.
fn group_name(group: &Group, work: &Workload) -> String {
    let mut names: Vec<&str> = Vec::new();
    for task in group.tasks.iter().filter_map(|t| work.tasks.get(*t as usize)) {
        if !names.contains(&task.comm.as_str()) {
            names.push(&task.comm);
        }
    }
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more > 0 { format!(", ... ({more} more)") } else { String::new() };
    format!("{}{more}", names.join(", "))
}
