//! What a task did from one thing that shows to the next: from a wakeup or a message to a message
//! or a sleep.

use super::network::Network;
use super::track::Track;
use crate::history::{By, EventKind, First, History, Off, TaskIndex};
use crate::task::Ns;

/// How a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// With a message of the network.
    Message,
    /// With a timer: with a request of its own.
    Fresh,
    /// With a wakeup by a task that is not of the network.
    Outside,
    /// Right behind another message, as part of the same work.
    Same,
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With this wakeup.
    Post(u32),
    /// With a sleep; true: until a message to its own queue.
    Sleep(bool),
}

/// Work between two things that show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub task: TaskIndex,
    pub begin: Begin,
    /// The message with which it begins comes from the task's own queue.
    pub own: bool,
    /// It begins with a wakeup, not behind a message.
    pub woken: bool,
    /// It wakes another of its pool right after it has read: there was one message more.
    pub passes: bool,
    pub end: End,
    pub from: Ns,
    pub to: Ns,
    /// CPU time of the task at both ends.
    pub start: Ns,
    pub stop: Ns,
}

/// A sleep of a task of the network; `reply`: until a message to its own queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asleep {
    pub task: TaskIndex,
    pub from: Ns,
    pub to: Ns,
    pub reply: bool,
}

/// A segment that has begun.
#[derive(Clone, Copy)]
struct Open {
    from: Ns,
    start: Ns,
    begin: Begin,
    own: bool,
    passes: bool,
    /// The message before it, where it begins with one.
    behind: Option<Ns>,
}

/// Makes the segments of one task.
struct Cutter<'a> {
    net: &'a Network,
    history: &'a History,
    track: &'a Track,
    task: TaskIndex,
    own: usize,
    tail: Ns,
    open: Option<Open>,
    found: Vec<Segment>,
    sleeps: Vec<Asleep>,
}

impl Cutter<'_> {
    fn close(&mut self, to: Ns, end: End) {
        let Some(open) = self.open.take() else { return };
        let stop = self.track.pos(to);
        let works = match (end, open.begin) {
            (End::Post(_), _) => true,
            // A source was woken to send.
            (End::Sleep(_), Begin::Fresh) if open.behind.is_none() && !self.net.server[self.task as usize] => true,
            (End::Sleep(_), Begin::Message | Begin::Fresh) => stop - open.start > self.net.short,
            _ => false,
        };
        if works {
            let Open { from, start, begin, own, passes, .. } = open;
            let (task, from, start) = (self.task, from.min(to), start.min(stop));
            self.found.push(Segment {
                task,
                begin,
                own,
                woken: open.behind.is_none(),
                passes,
                end,
                from,
                to,
                start,
                stop,
            });
        }
    }

    fn post(&mut self, at: Ns, wake: u32) {
        let to = self.net.station[self.history.wakee[wake as usize] as usize];
        let pos = self.track.pos(at);
        if let (true, Some(open)) = (to == Some(self.own), &mut self.open) {
            let read = open.behind.unwrap_or(open.start);
            open.passes |= pos - read <= self.net.short;
        }
        let Some(to) = to.filter(|to| *to != self.own && self.net.stations[self.own].targets.contains_key(to)) else {
            return;
        };
        let server = self.net.server[self.task as usize];
        if let Some(open) = &mut self.open {
            // Two messages in one go belong to one piece of work.
            if open.behind.is_some_and(|b| pos - b <= self.net.short) && server {
                open.begin = Begin::Same;
            }
        }
        self.close(at, End::Post(wake));
        let calls = self.net.stations[self.own].calls.contains(&to);
        let begin = if server || calls { Begin::Message } else { Begin::Fresh };
        // Where the message preempts its sender, the sender reads after that.
        let start = self.track.pause_within(pos, self.net.short).unwrap_or(pos + self.tail.max(1));
        let from = self.track.time(start);
        self.open = Some(Open { from, start, begin, own: calls, passes: false, behind: Some(pos) });
    }

    /// A sleep that began at `at` and that `by` ended; how the next segment begins, where one
    /// begins.
    fn slept(&mut self, at: Ns, to: Ns, by: By) -> Option<(Begin, bool)> {
        let (station, outside) = match by {
            By::Task { waker, .. } => (self.net.station[waker as usize], true),
            _ => (None, false),
        };
        if !outside && self.net.server[self.task as usize] && self.open.is_some() {
            // It slept in the middle of its work.
            return None;
        }
        let reply = station.is_some_and(|s| self.net.answers(s, self.task));
        self.close(at, End::Sleep(reply));
        self.sleeps.push(Asleep { task: self.task, from: at, to, reply });
        let begin = match (station, outside) {
            (Some(_), _) => Begin::Message,
            (None, true) => Begin::Outside,
            (None, false) => Begin::Fresh,
        };
        Some((begin, reply))
    }
}

/// The segments of all tasks of the network. `tail` is the rest of the system call behind a wakeup.
pub(super) fn segments(history: &History, tracks: &[Track], net: &Network, tail: Ns) -> (Vec<Segment>, Vec<Asleep>) {
    let (mut all, mut sleeps) = (Vec::new(), Vec::new());
    for task in &history.tasks {
        let Some(own) = net.station[task.id as usize] else { continue };
        let track = &tracks[task.id as usize];
        let mut cut =
            Cutter { net, history, track, task: task.id, own, tail, open: None, found: Vec::new(), sleeps: Vec::new() };
        // It may have slept since before the trace, or be in the middle of work: that work may end
        // with a message as any other.
        let at_work = matches!(task.first, First::Running | First::Runnable);
        let (mut woken, mut slept) =
            (at_work.then_some((Begin::Outside, false)), (task.first == First::Asleep).then_some(0));
        for event in &task.events {
            match event.kind {
                EventKind::On { .. } => {
                    if let Some((begin, own)) = woken.take() {
                        let start = track.pos(event.at);
                        cut.open = Some(Open { from: event.at, start, begin, own, passes: false, behind: None });
                    }
                }
                EventKind::Post { wake } => cut.post(event.at, wake),
                EventKind::Off(Off::Slept { .. }) => slept = Some(event.at),
                EventKind::Woken { by, .. } => {
                    if let Some(at) = slept.take() {
                        woken = cut.slept(at, event.at, by);
                    }
                }
                EventKind::Exiting => {
                    if cut.open.is_some_and(|o| o.begin == Begin::Fresh && o.behind.is_some()) {
                        cut.open = None;
                    }
                    cut.close(event.at, End::Sleep(false));
                    break;
                }
                _ => {}
            }
        }
        if let Some(at) = slept {
            cut.close(at, End::Sleep(false));
        }
        all.append(&mut cut.found);
        sleeps.append(&mut cut.sleeps);
    }
    (all, sleeps)
}
