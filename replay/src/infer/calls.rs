//! Messages that the calls by which tasks read and write show.
//!
//! Where `sys_enter_read`, `sys_exit_read` and those of writing are recorded, nothing has to be
//! guessed: a write is a message, a read that returns takes the first that wait. Which file of one
//! task is which of another, the wakeups show that are made within a write and end a sleep within a
//! read. A number that never shows so is the file that all others know by it, since tasks of a
//! group have inherited their files; threads of one process share them. Pipes and connections are
//! first in, first out. A request is what a server took last; what comes back to whoever wrote it
//! is an answer.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::flow::Flow;
use super::network::{Network, Station};
use super::sets::Sets;
use super::{Mark, Message};
use crate::history::{By, Call, EventKind, History, Off, TaskHistory, TaskIndex};
use crate::task::Ns;

/// A file of a task, as it reads from it or writes to it.
type End = (TaskIndex, Option<i64>, bool);

/// Which ends belong to one file.
#[derive(Default)]
struct Files {
    number: HashMap<End, usize>,
    sets: Sets,
}

impl Files {
    fn of(&mut self, end: End) -> usize {
        let number = *self.number.entry(end).or_insert_with(|| self.sets.add());
        self.sets.first(number)
    }

    fn join(&mut self, one: End, other: End) {
        let (a, b) = (self.of(one), self.of(other));
        self.sets.join(a, b);
    }
}

/// Position of the call in which the task is at `at`.
fn call_at(task: &TaskHistory, at: Ns) -> Option<usize> {
    let i = task.calls.partition_point(|c| c.from <= at).checked_sub(1)?;
    (at <= task.calls[i].to).then_some(i)
}

/// What the calls of the tasks of `net` show; none where they were not recorded. Stations get numbers
/// from `first` on. Reads of what nobody wrote, and wakeups among the tasks that no write makes, are
/// counted as unmatched.
pub(super) fn calls(net: &Network, history: &History, first: usize) -> Option<(Network, Flow)> {
    let members: BTreeSet<TaskIndex> = net.members().into_iter().collect();
    let task = |id: TaskIndex| &history.tasks[id as usize];
    if members.iter().all(|m| task(*m).calls.is_empty()) {
        return None;
    }
    let flow = Flow { recorded: true, marks: vec![Vec::new(); history.tasks.len()], ..Flow::default() };
    let mut found = Found { flow, ..Found::default() };
    for other in &history.tasks {
        for event in &other.events {
            let EventKind::Post { wake } = event.kind else { continue };
            let wakee = history.wakee[wake as usize];
            if !members.contains(&wakee) {
                continue;
            }
            // Whoever reads and leaves something wakes the next reader: that is no message.
            let (by, of) = (call_at(other, event.at), call_at(task(wakee), event.at));
            if by.is_some_and(|i| other.calls[i].reads) {
                continue;
            }
            match (by, of.filter(|j| task(wakee).calls[*j].reads)) {
                (Some(i), Some(j)) => {
                    let (from, to) = (other.calls[i].file, task(wakee).calls[j].file);
                    found.files.join((other.id, from, false), (wakee, to, true));
                    let before = found.wakes.insert((other.id, i), wake);
                    found.flow.unmatched += usize::from(before.is_some());
                }
                _ => found.flow.unmatched += usize::from(members.contains(&other.id)),
            }
        }
    }
    found.inherit(&members, history);
    found.follow(&members, history, &net.server);
    Some(found.network(net, &members, first))
}

/// A message on its way: its number, and the bytes of it that nobody has read.
type Waiting = VecDeque<(u32, i64)>;

/// What was found.
#[derive(Default)]
struct Found {
    files: Files,
    /// Wakeup within each write, by task and position.
    wakes: HashMap<(TaskIndex, usize), u32>,
    flow: Flow,
    /// File of each message.
    file: Vec<usize>,
    /// Per reader and file: messages taken, and those of them that were answers.
    taken: BTreeMap<(TaskIndex, usize), (usize, usize)>,
}

impl Found {
    /// Joins ends that no wakeup shows to the one file that tasks know by this number.
    fn inherit(&mut self, members: &BTreeSet<TaskIndex>, history: &History) {
        let mut known: BTreeMap<(i64, bool), BTreeSet<usize>> = BTreeMap::new();
        let mut of_process: BTreeMap<(i64, i64, bool), End> = BTreeMap::new();
        let mut ends: Vec<End> = self.files.number.keys().copied().collect();
        ends.sort_unstable();
        for end in ends {
            let (task, Some(file), reads) = end else { continue };
            let root = self.files.of(end);
            known.entry((file, reads)).or_default().insert(root);
            if let Some(pid) = history.tasks[task as usize].pid {
                let shared = *of_process.entry((pid, file, reads)).or_insert(end);
                self.files.join(shared, end);
            }
        }
        let tasks = members.iter().map(|m| &history.tasks[*m as usize]);
        let own = tasks.flat_map(|l| l.calls.iter().map(|c| (l.id, c.file, c.reads)));
        for end in own.collect::<BTreeSet<End>>() {
            let (task, Some(file), reads) = end else { continue };
            if self.files.number.contains_key(&end) {
                continue;
            }
            let pid = history.tasks[task as usize].pid;
            if let Some(shared) = pid.and_then(|pid| of_process.get(&(pid, file, reads))) {
                self.files.join(*shared, end);
            } else if let Some(&root) = known.get(&(file, reads)).filter(|r| r.len() == 1).and_then(|r| r.first()) {
                self.files.number.insert(end, root);
            }
        }
    }

    /// Follows the messages in the order of time: a write from its begin, a read at its end.
    fn follow(&mut self, members: &BTreeSet<TaskIndex>, history: &History, server: &[bool]) {
        let mut events: Vec<(Ns, TaskIndex, usize)> = Vec::new();
        for task in &history.tasks {
            for (i, call) in task.calls.iter().enumerate().filter(|c| c.1.bytes > 0 && c.1.to != Ns::MAX) {
                let known = self.files.number.contains_key(&(task.id, call.file, call.reads));
                if known && (members.contains(&task.id) || !call.reads) {
                    events.push((if call.reads { call.to } else { call.from }, task.id, i));
                }
            }
        }
        events.sort_unstable();
        let mut waiting: BTreeMap<usize, Waiting> = BTreeMap::new();
        let mut request: HashMap<TaskIndex, u32> = HashMap::new();
        let mut requests = 0;
        let mut wrote: HashMap<TaskIndex, Ns> = HashMap::new();
        for (at, id, i) in events {
            let task = &history.tasks[id as usize];
            let call = task.calls[i];
            let file = self.files.of((id, call.file, call.reads));
            let queue = waiting.entry(file).or_default();
            if call.reads {
                let when = began(task, call);
                let taken = take(queue, call.bytes);
                self.flow.unmatched += usize::from(taken.is_none());
                for message in taken.unwrap_or_default() {
                    let about = self.flow.messages[message as usize].request;
                    let counts = self.taken.entry((id, file)).or_default();
                    counts.0 += 1;
                    counts.1 += usize::from(about.is_some() && request.get(&id).copied() == about);
                    about.map(|r| request.insert(id, r));
                    self.flow.messages[message as usize].taken = true;
                    self.flow.marks[id as usize].push((when, Mark::Take(message)));
                }
                continue;
            }
            // What a timer begins is a request of its own, but in the middle of a service.
            let before = wrote.insert(id, at).unwrap_or(Ns::MIN);
            let fresh = !server[id as usize] && timer_went_off(task, before, at);
            let about = match request.get(&id) {
                Some(about) if !fresh => *about,
                _ => {
                    requests += 1;
                    requests - 1
                }
            };
            request.insert(id, about);
            let message = self.flow.messages.len() as u32;
            self.flow.messages.push(Message { request: Some(about), ..Message::default() });
            self.file.push(file);
            queue.push_back((message, call.bytes));
            match self.wakes.get(&(id, i)) {
                Some(wake) => {
                    self.flow.of_wake.insert(*wake, message);
                }
                None => {
                    self.flow.unobserved += 1;
                    self.flow.marks[id as usize].push((at, Mark::Send(message)));
                }
            }
        }
        self.flow.marks.iter_mut().for_each(|marks| marks.sort_by_key(|m| m.0));
    }

    /// The stations: whoever reads a file with others, or from one only, receives from it; other files
    /// are a task's own.
    fn network(mut self, net: &Network, members: &BTreeSet<TaskIndex>, first: usize) -> (Network, Flow) {
        let mut readers: BTreeMap<usize, BTreeSet<TaskIndex>> = BTreeMap::new();
        for (task, file) in self.taken.keys() {
            readers.entry(*file).or_default().insert(*task);
        }
        let mut work: BTreeMap<TaskIndex, usize> = BTreeMap::new();
        for &task in members.iter().filter(|m| net.server[**m as usize]) {
            let own = self.taken.range((task, 0)..=(task, usize::MAX));
            // Requests, rather than answers; shared, rather than alone; most messages.
            let best = own.filter(|(_, n)| n.1 * 10 < n.0 * 9).max_by_key(|((_, file), n)| (readers[file].len(), n.0));
            best.map(|((_, file), _)| work.insert(task, *file));
        }
        // A file that somebody reads besides its own work is no queue.
        let all_serve = |file: &usize| readers[file].iter().all(|r| work.get(r) == Some(file));
        let queues: BTreeSet<usize> = work.values().copied().filter(all_serve).collect();
        let number: BTreeMap<usize, usize> = queues.iter().enumerate().map(|(i, f)| (*f, first + i)).collect();
        let mut other = Network { stations: vec![Station::default(); first + number.len()], ..net.clone() };
        for &task in members {
            let station = work.get(&task).and_then(|file| number.get(file)).copied();
            other.server[task as usize] = station.is_some();
            let station = station.unwrap_or_else(|| {
                other.stations.push(Station::default());
                other.stations.len() - 1
            });
            other.stations[station].members.push(task);
            other.station[task as usize] = Some(station);
        }
        for (message, file) in self.flow.messages.iter_mut().zip(&self.file) {
            message.station = number.get(file).copied();
        }
        (other, self.flow)
    }
}

/// Reads `bytes`: the messages that are through with it; none where so much does not wait.
fn take(queue: &mut Waiting, mut bytes: i64) -> Option<Vec<u32>> {
    let mut through = Vec::new();
    while bytes > 0 {
        let (message, left) = queue.front_mut()?;
        let now = bytes.min(*left);
        (*left, bytes) = (*left - now, bytes - now);
        if *left == 0 {
            through.push(*message);
            queue.pop_front();
        }
    }
    Some(through)
}

/// When a read began to have what it took: as it went on behind the sleep in it, or as it ended.
fn began(task: &TaskHistory, call: Call) -> Ns {
    let before = &task.events[..task.events.partition_point(|a| a.at <= call.to)];
    let within = before.iter().rev().take_while(|a| a.at >= call.from);
    let slept = within.clone().any(|a| matches!(a.kind, EventKind::Off(Off::Slept { .. }) | EventKind::Woken { .. }));
    let on = within.clone().find(|a| matches!(a.kind, EventKind::On { .. }));
    on.filter(|_| slept).map_or(call.to, |a| a.at)
}

/// True when something else than a task woke `task` behind `since`, up to `at`.
fn timer_went_off(task: &TaskHistory, since: Ns, at: Ns) -> bool {
    let upto = |at: Ns| task.events.partition_point(|a| a.at <= at);
    let timer = |kind| matches!(kind, EventKind::Woken { by, .. } if !matches!(by, By::Task { .. }));
    task.events[upto(since)..upto(at)].iter().any(|a| timer(a.kind))
}
