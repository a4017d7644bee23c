//! Samples with their times: what the error of a statistic is computed from.

use super::queue::Step;
use super::survey::{By, Named, Survey};

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// By what samples are in order: the start of a slice, the end of a wait, the wakeup of a response.
    pub at: i64,
    /// In ns.
    pub value: i64,
    /// Does it last longer than seen?
    pub censored: bool,
}

/// A slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When it begins.
    pub at: i64,
    /// In ns.
    pub dur: i64,
    /// Was the task made to leave? None where it did not leave, or nobody knows.
    pub involuntary: Option<bool>,
    /// Is its length known?
    pub whole: bool,
}

/// What is kept of a thread.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub(super) pieces: Vec<Piece>,
    /// Waits, those that follow a wakeup, and the others.
    waits: [Vec<Sample>; 2],
    pub(super) responses: Vec<Sample>,
}

impl Kept {
    pub(super) fn wait(&mut self, sample: Sample, woken: bool) {
        self.waits[usize::from(!woken)].push(sample);
    }
}

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Lengths of slices.
    Slice,
    /// Waits for a CPU.
    RunDelay,
    /// Those that follow a wakeup.
    WakeupLatency,
    /// Response times.
    Response,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 4] = [Metric::Slice, Metric::RunDelay, Metric::WakeupLatency, Metric::Response];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Slice => "slice",
            Metric::RunDelay => "run_delay",
            Metric::WakeupLatency => "wakeup_latency",
            Metric::Response => "response",
        }
    }
}

/// A group and what is kept of its tasks, each with its task, in time order.
pub type Group<T> = (Option<String>, Vec<(u32, T)>);

impl Survey {
    /// With all samples and their times, see [`Survey::samples`], [`Survey::pieces`] and [`Survey::steps`].
    pub fn keeping(mut self) -> Self {
        self.keeps = true;
        self.queues.keep();
        self
    }

    /// The samples of a metric by group; none unless they are kept.
    pub fn samples(&self, by: &By<'_>, metric: Metric) -> Vec<Group<Sample>> {
        let named = match metric {
            Metric::Slice => Named::Slices,
            Metric::RunDelay | Metric::WakeupLatency => Named::Waits,
            Metric::Response => Named::Responses,
        };
        let stop = self.stop();
        self.sorted(
            by,
            named,
            |s: &Sample| s.at,
            |kept, part, out| match metric {
                Metric::Slice => {
                    let whole = kept.pieces.iter().filter(|p| p.whole);
                    out.extend(whole.map(|p| Sample { at: p.at, value: p.dur, censored: false }));
                }
                Metric::RunDelay => out.extend(kept.waits.iter().flatten()),
                Metric::WakeupLatency => out.extend(&kept.waits[0]),
                Metric::Response => {
                    out.extend(&kept.responses);
                    out.extend(part.unfinished.iter().map(|&(at, until)| {
                        let value = until.unwrap_or(stop).min(stop) - at;
                        Sample { at, value, censored: true }
                    }));
                }
            },
        )
    }

    /// The slices by group; none unless they are kept.
    pub fn pieces(&self, by: &By<'_>) -> Vec<Group<Piece>> {
        self.sorted(by, Named::Slices, |p: &Piece| p.at, |kept, _, out| out.extend(&kept.pieces))
    }

    /// How many were runnable in the whole system, from step to step; none unless they are kept.
    pub fn steps(&self) -> &[Step] {
        self.queues.steps()
    }
}
