//! When a task was on a CPU: from time to CPU time and back.

use crate::history::{Life, What};
use crate::task::Ns;

/// The stays of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    /// Begin, end, CPU time before.
    stays: Vec<(Ns, Ns, Ns)>,
}

impl Track {
    pub fn of(life: &Life, end: Ns) -> Self {
        let mut stays = Vec::new();
        let (mut on, mut sum) = (None, 0);
        for act in &life.acts {
            match act.what {
                What::On { .. } => on = Some(act.at),
                What::Off(_) => {
                    if let Some(from) = on.take() {
                        stays.push((from, act.at, sum));
                        sum += act.at - from;
                    }
                }
                _ => {}
            }
        }
        if let Some(from) = on {
            stays.push((from, end.max(from), sum));
        }
        Track { stays }
    }

    /// CPU time used until `at`.
    pub fn pos(&self, at: Ns) -> Ns {
        let i = self.stays.partition_point(|s| s.0 <= at);
        match i.checked_sub(1).map(|i| self.stays[i]) {
            Some((from, to, before)) => before + (at.min(to) - from),
            None => 0,
        }
    }

    /// When so much CPU time was used; at the end of a stay, the begin of the next.
    pub fn time(&self, pos: Ns) -> Ns {
        let i = self.stays.partition_point(|s| s.2 <= pos);
        match i.checked_sub(1).map(|i| self.stays[i]) {
            Some((from, to, before)) => (from + pos - before).min(to),
            None => self.stays.first().map_or(0, |s| s.0),
        }
    }

    /// CPU time at which the task first left its CPU behind `pos`, where that is at most `within` later.
    pub fn pause_within(&self, pos: Ns, within: Ns) -> Option<Ns> {
        let i = self.stays.partition_point(|s| s.2 <= pos);
        self.stays.get(i).map(|s| s.2).filter(|p| *p <= pos + within)
    }
}
