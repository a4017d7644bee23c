//! When a task was on a CPU: from time to work and back. Work is CPU time, in time of a CPU of middling
//! speed where the CPUs are not equally fast.

use crate::history::{EventKind, History, Off, Slice, TaskHistory};
use crate::speeds::Speeds;
use crate::task::{Cpu, Ns};

/// The slices of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    /// Begin, end, work before, CPU.
    slices: Vec<(Ns, Ns, Ns, Cpu)>,
    speeds: Speeds,
}

impl Track {
    pub fn of(task: &TaskHistory, end: Ns, speeds: &Speeds) -> Self {
        let mut slices = Vec::new();
        let mut sum = 0;
        for Slice { on, to, cpu, .. } in task.slices(end) {
            let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
            slices.push((on, to, sum, cpu));
            sum += speeds.work(cpu, on, to);
        }
        Track { slices, speeds: speeds.clone() }
    }

    /// From when to when it was on a CPU.
    pub fn slices(&self) -> impl Iterator<Item = (Ns, Ns)> + '_ {
        self.slices.iter().map(|s| (s.0, s.1))
    }

    /// Work done until `at`.
    pub fn pos(&self, at: Ns) -> Ns {
        let i = self.slices.partition_point(|s| s.0 <= at);
        match i.checked_sub(1).map(|i| self.slices[i]) {
            Some((from, to, before, cpu)) => before + self.speeds.work(cpu, from, at.min(to)),
            None => 0,
        }
    }

    /// When so much work was done; at the end of a slice, the begin of the next.
    pub fn time(&self, pos: Ns) -> Ns {
        let i = self.slices.partition_point(|s| s.2 <= pos);
        match i.checked_sub(1).map(|i| self.slices[i]) {
            Some((from, to, before, cpu)) => (from + self.speeds.time(cpu, from, pos - before)).min(to),
            None => self.slices.first().map_or(0, |s| s.0),
        }
    }

    /// Work at which the task first left its CPU behind `pos`, where that is at most `within` later.
    pub fn pause_within(&self, pos: Ns, within: Ns) -> Option<Ns> {
        let i = self.slices.partition_point(|s| s.2 <= pos);
        self.slices.get(i).map(|s| s.2).filter(|p| *p <= pos + within)
    }
}

/// Work from a message to the sleep behind it, where nothing is done in between: twice what the
/// tenth of them takes.
pub(super) fn short(history: &History, tracks: &[Track], inside: &[bool]) -> Ns {
    let mut all = Vec::new();
    for task in history.tasks.iter().filter(|l| inside[l.id as usize]) {
        let mut last: Option<Ns> = None;
        for event in &task.events {
            match event.kind {
                EventKind::Post { wake } if inside[history.wakee[wake as usize] as usize] => last = Some(event.at),
                EventKind::Off(Off::Slept { .. }) => {
                    let track = &tracks[task.id as usize];
                    all.extend(last.take().map(|l| track.pos(event.at) - track.pos(l)));
                }
                _ => {}
            }
        }
    }
    all.sort_unstable();
    all.get(all.len() / 10).map_or(0, |s| 2 * *s)
}
