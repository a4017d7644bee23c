//! A trace as the replay reads it, of which programs are made.

use pyo3::prelude::*;

use tracekit_replay::calibrate::limits::{Limits, CONSTANTS};
use tracekit_replay::rates::StatedCpu;
use tracekit_replay::reconstruct::{LoopMode, Options, Placement};
use tracekit_schema::{DeriveOptions, Metadata};

use crate::errors::{give_back, replay_error};
use crate::parts::Batches;
use crate::signals::interruptible;

/// A CPU: number, capacity, highest frequency in kHz, its frequency is fixed, no scheduling domain.
type StatedCpuRow = (i32, Option<i64>, Option<i64>, bool, bool);

/// What became of each task of a trace, what the machine costs, and which messages no wakeup shows: made
/// once, for programs under any recorded policy and placement.
#[pyclass(module = "tracekit._core", frozen)]
pub struct Reading(pub tracekit_replay::reconstruct::Reading);

#[pymethods]
impl Reading {
    /// Reads `events`. `loop` is one of `dependency`, `open`, `closed`; `hz` the clock ticks a second,
    /// as found in the trace when not given; `exact_timers` says that the recorded system's timers have
    /// no slack; `system` is the recorded one, by which idle threads are recognised; `endless` are
    /// threads that would have gone on. `vary` names a constant of the reading to double, or a rule to
    /// leave out (`constants` lists them). `cpus` are what the machine beside the trace states of CPUs:
    /// number, capacity, highest frequency (kHz), whether its frequency does not follow its load, and
    /// whether it has no scheduling domain.
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (events, r#loop="dependency", hz=None, exact_timers=false, system=None, endless=None, vary=None, cpus=None))]
    fn new(
        py: Python<'_>,
        events: &Bound<'_, PyAny>,
        r#loop: &str,
        hz: Option<i64>,
        exact_timers: bool,
        system: Option<&str>,
        endless: Option<Vec<i64>>,
        vary: Option<&str>,
        cpus: Option<Vec<StatedCpuRow>>,
    ) -> PyResult<Self> {
        let mode =
            LoopMode::NAMES.iter().find(|(name, _)| *name == r#loop).map(|(_, mode)| *mode).ok_or_else(|| {
                let names: Vec<_> = LoopMode::NAMES.iter().map(|(name, _)| *name).collect();
                replay_error(py, &format!("no loop is called {}; there are {}", r#loop, names.join(", ")))
            })?;
        let parts = Batches::of(py, events)?;
        let mut meta = Metadata::default();
        if let Some(system) = system {
            meta.set("os", system);
        }
        let endless = endless.unwrap_or_default();
        let of = |(cpu, capacity, max_khz, fixed, isolated)| StatedCpu { cpu, capacity, max_khz, fixed, isolated };
        let cpus = cpus.unwrap_or_default().into_iter().map(of).collect();
        let limits = vary.map(|name| varied(py, name)).transpose()?;
        let idle = DeriveOptions::for_trace(&meta).idle;
        let read = interruptible(py, |cancel| {
            let (placement, cancel) = (Placement::default(), cancel.clone());
            let options = Options { mode, hz, exact_timers, idle, endless, limits, placement, cpus, cancel };
            tracekit_replay::reconstruct::Reading::of(&parts, &options)
        })?;
        let rows = parts.rows();
        drop(parts);
        give_back(rows);
        Ok(Reading(read))
    }
}

/// The constants of the reading with one of them doubled, or without one rule.
fn varied(py: Python<'_>, name: &str) -> PyResult<Limits> {
    Limits::varied(name).ok_or_else(|| {
        let names: Vec<&str> = CONSTANTS.iter().map(|c| c.0).collect();
        replay_error(py, &format!("no constant is called '{name}'; there are {}", names.join(", ")))
    })
}

/// Constants and rules of the reading: name and source.
#[pyfunction]
pub fn constants() -> Vec<(&'static str, &'static str)> {
    CONSTANTS.to_vec()
}
