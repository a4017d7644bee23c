//! Runs under policies: of programs reconstructed from a trace, and of workloads written as text.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use tracekit_replay::calibrate::limits::{Limits, CONSTANTS};
use tracekit_replay::engine::Stack;
use tracekit_replay::reconstruct::{reconstruct, Class, LoopMode, Options, Recon};
use tracekit_replay::replay::{rerun, rerun_under, Override, ReplaySpec, Which};
use tracekit_replay::switch_costs::{SwitchCostChange, SwitchCosts, SWITCH_KINDS};
use tracekit_replay::workload::{run_text, run_text_under};
use tracekit_schema::{DeriveOptions, Events, Metadata, Out, Strings};

use crate::derive::{export_alone, tables_with_events};
use crate::errors::{detached, interruptible, replay_error, replay_error_from};
use crate::policy::{self, Raised};
use crate::table::{append, pieces, Table};

/// Metadata and tables by name.
type Tables<'py> = (BTreeMap<String, String>, Bound<'py, PyDict>);

/// What switches take, in the order of [`SwitchCosts::at`].
type Times = [Option<i64>; SWITCH_KINDS];

/// A group, and the attributes it gets.
type GroupSettings = (String, Vec<(String, String)>);

/// Threads, and the attributes they get.
type Settings = (Vec<i64>, Vec<(String, String)>);

/// Name, value, unit, samples, what it rests on.
type InferredRow = (&'static str, Option<f64>, &'static str, Option<u64>, String);

/// Task, thread, name, end, slack, sleep.
type JudgedRow = (u32, i64, String, &'static str, Option<i64>, Option<i64>);

/// What the tasks of a trace did, apart from when the scheduler let them: made once, run under any number of policies.
#[pyclass(module = "tracekit._core", frozen)]
pub struct Programs {
    recon: Recon,
    mode: LoopMode,
    hz: Option<i64>,
}

#[pymethods]
impl Programs {
    /// Reconstructs the programs in `events`. `loop` is one of `dependency`, `open`, `closed`; `hz` the clock ticks a
    /// second, as found in the trace when not given; `exact_timers` says that the recorded system's timers have no slack;
    /// `system` is the recorded one, by which idle threads are recognised; `endless` are
    /// threads that would have gone on. `vary` names a constant of the reading to double, or a rule to leave out
    /// (`constants` lists them).
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (events, r#loop="dependency", hz=None, exact_timers=false, system=None, endless=None, vary=None))]
    fn new(
        py: Python<'_>,
        events: &Bound<'_, PyAny>,
        r#loop: &str,
        hz: Option<i64>,
        exact_timers: bool,
        system: Option<&str>,
        endless: Option<Vec<i64>>,
        vary: Option<&str>,
    ) -> PyResult<Self> {
        let mode =
            LoopMode::NAMES.iter().find(|(name, _)| *name == r#loop).map(|(_, mode)| *mode).ok_or_else(|| {
                let names: Vec<_> = LoopMode::NAMES.iter().map(|(name, _)| *name).collect();
                replay_error(py, &format!("no loop is called {}; there are {}", r#loop, names.join(", ")))
            })?;
        let mut strings = Strings::new();
        let mut rows = Events::default();
        for piece in pieces(events)? {
            append(&mut rows, &piece?, &mut strings)?;
            strings.forget_texts();
            py.check_signals()?;
        }
        let mut meta = Metadata::default();
        if let Some(system) = system {
            meta.set("os", system);
        }
        let endless = endless.unwrap_or_default();
        let limits = vary.map(|name| varied(py, name)).transpose()?;
        let idle = DeriveOptions::for_trace(&meta).idle;
        let recon = interruptible(py, |cancel| {
            let cancel = cancel.clone();
            reconstruct(&rows, &strings, &Options { mode, hz, exact_timers, idle, endless, limits, cancel })
        })?;
        Ok(Programs { recon, mode, hz })
    }

    /// How many wakeups of each class there are: what moves them when the schedule changes.
    #[getter]
    fn wakeups(&self) -> Vec<(&'static str, u64)> {
        Class::NAMES.iter().copied().zip(self.recon.classes).collect()
    }

    /// The programs, one row per step: the table `program`.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        detached(py, || {
            let mut strings = Strings::new();
            export_alone(&self.recon.table(&mut strings), &strings)
        })
    }

    /// What was inferred about the run as a whole: name, value, unit, samples, what it rests on.
    fn inferred(&self) -> Vec<InferredRow> {
        self.recon.inferred().into_iter().map(|i| (i.name, i.value, i.unit, i.n, i.how)).collect()
    }

    /// What was judged about each task: number, thread, name, how it ends, slack and length of its timer sleeps.
    fn judged(&self) -> Vec<JudgedRow> {
        self.recon.judged().into_iter().map(|j| (j.task, j.tid, j.comm, j.end, j.slack, j.sleep)).collect()
    }

    /// Number of tasks.
    fn __len__(&self) -> usize {
        self.recon.work.tasks.len()
    }

    /// Runs the programs. `policy` is a string, or an object as in `tracekit.whatif.policy`. `sets` are attributes for tasks: threads, and pairs
    /// of key and value; `groups` are names of groups, and pairs as well. `costs` are pairs of key and value as well, in place of measured ones. `switch_costs` are what switches take in the recorded and in the
    /// replayed kernel. `progress` is called with the share that is done. Gives metadata and tables.
    #[pyo3(signature = (policy, *, rt=None, cpus=None, phase_ns=0, overheads=true, sets=None, groups=None, costs=None, switch_costs=None, jitter_ns=0, seed=0, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn run<'py>(
        &self,
        py: Python<'py>,
        policy: &Bound<'py, PyAny>,
        rt: Option<String>,
        cpus: Option<usize>,
        phase_ns: i64,
        overheads: bool,
        sets: Option<Vec<Settings>>,
        groups: Option<Vec<GroupSettings>>,
        costs: Option<Vec<(String, String)>>,
        switch_costs: Option<(Times, Times)>,
        jitter_ns: i64,
        seed: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Tables<'py>> {
        let sets = sets
            .unwrap_or_default()
            .into_iter()
            .map(|(tids, set)| Override { which: Which::Tids(tids), set })
            .collect();
        let spec = ReplaySpec {
            policy: policy.extract().unwrap_or_default(),
            rt,
            mode: self.mode,
            cpus,
            hz: self.hz,
            phase_shift: phase_ns,
            overheads,
            sets,
            groups: groups.unwrap_or_default(),
            costs: costs.unwrap_or_default(),
            paths: switch_costs
                .map(|(was, is)| SwitchCostChange { recorded: SwitchCosts(was), replayed: SwitchCosts(is) }),
            jitter: jitter_ns.clamp(0, 1_000_000_000),
            seed,
            ..ReplaySpec::default()
        };
        if !policy.is_instance_of::<PyString>() {
            return self.run_object(py, policy, &spec);
        }
        let mut raised: Option<PyErr> = None;
        let mut reports = 0u32;
        let run = interruptible(py, |cancel| {
            rerun(&self.recon, &spec, &mut |done| {
                reports += 1;
                if let Some(tell) = progress.as_ref().filter(|_| reports.is_multiple_of(TELL)) {
                    let told = Python::attach(|py| tell.call1(py, (done,)).map(drop));
                    raised = told.err();
                }
                raised.is_none() && !cancel.is_set()
            })
        })?;
        if let Some(error) = raised {
            return Err(error);
        }
        let out = run.map_err(|e| replay_error(py, &e.to_string()))?.out;
        Ok((out.meta.0.clone(), tables_with_events(py, out)?))
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

impl Programs {
    /// The same under a policy that is an object. Holds the GIL, since its hooks may be Python.
    fn run_object<'py>(&self, py: Python<'py>, policy: &Bound<'py, PyAny>, spec: &ReplaySpec) -> PyResult<Tables<'py>> {
        let out = under_object(py, policy, |stack, name, go_on| {
            let run = rerun_under(&self.recon, spec, stack, name, &mut |_| go_on());
            run.map(|run| run.out).map_err(|e| e.to_string())
        })?;
        Ok((out.meta.0.clone(), tables_with_events(py, out)?))
    }
}

/// Calls of the core's progress function for each of the caller's.
const TELL: u32 = 16;

/// Marks policy objects that have been used.
const USED: &str = "_tracekit_used";

/// What `run` gives under the scheduling classes with `policy` below real time. Signals are seen to between stretches of the run; what a
/// hook raised is the cause of the error.
fn under_object(
    py: Python<'_>,
    policy: &Bound<'_, PyAny>,
    run: impl FnOnce(Stack, String, &mut dyn FnMut() -> bool) -> Result<Out, String>,
) -> PyResult<Out> {
    let raised = Raised::default();
    let used = policy.getattr_opt(USED)?.is_some();
    // An object that takes no attributes cannot be marked.
    let _ = policy.setattr(USED, true);
    let (made, name) = policy::from_object(py, policy, &raised)?;
    let stack = tracekit_replay::policies::below_rt(made).map_err(|e| replay_error(py, &e.0))?.watched();
    let out = run(stack, name, &mut || match py.check_signals() {
        Ok(()) => true,
        Err(error) => {
            raised.set(error);
            false
        }
    });
    let reused = ". This policy object was used in an earlier run and may still hold tasks of that: make a new one for each run, or \
                  empty its queues in `init`";
    let out = out.map_err(|message| if used { message + reused } else { message });
    out.map_err(|message| match raised.take() {
        Some(cause) => replay_error_from(py, &message, cause),
        None => replay_error(py, &message),
    })
}

/// Runs a workload that is written as text; `policy` replaces the one in the text. Gives metadata and tables.
#[pyfunction]
#[pyo3(signature = (text, policy=None))]
pub fn simulate<'py>(py: Python<'py>, text: &str, policy: Option<&str>) -> PyResult<Tables<'py>> {
    let run = interruptible(py, |cancel| run_text(text, policy, &mut |_| !cancel.is_set()))?;
    let out = run.map_err(|e| replay_error(py, &e))?;
    Ok((out.meta.0.clone(), tables_with_events(py, out)?))
}

/// The same under a policy that is an object: see `tracekit.whatif.policy`. Holds the GIL, since its hooks may be Python.
#[pyfunction]
pub fn simulate_with<'py>(py: Python<'py>, text: &str, policy: &Bound<'py, PyAny>) -> PyResult<Tables<'py>> {
    let out = under_object(py, policy, |stack, name, go_on| run_text_under(text, stack, &name, &mut |_| go_on()))?;
    Ok((out.meta.0.clone(), tables_with_events(py, out)?))
}
