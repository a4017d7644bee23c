//! Runs under policies: of programs reconstructed from a trace, and of workloads written as text.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use tracekit_replay::altered::Less;
use tracekit_replay::emit::Records;
use tracekit_replay::engine::Stack;
use tracekit_replay::reconstruct::{Class, Demand, LoopMode, Placement, Recon};
use tracekit_replay::replay::{play, play_under, Override, Played, ReplayError, ReplaySpec, Which};
use tracekit_replay::switch_costs::{SwitchCostChange, SwitchCosts, SWITCH_KINDS};
use tracekit_replay::task::NEVER;
use tracekit_replay::trial;
use tracekit_replay::workload::{self, run_seeded, run_text_under, ListedAttrs, ListedStep};
use tracekit_schema::{Metadata, Strings};

use crate::derive::{events_of, export_alone, of_run, Asked, Wanted};
use crate::errors::{detached, give_back, not_modelled, replay_error, replay_error_from};
use crate::metrics::{grouping, MetricRow};
use crate::policy::{self, Raised};
use crate::reading::Reading;
use crate::signals::{interruptible, reporting};
use crate::table::Table;

/// Metadata and tables by name.
type Tables<'py> = (BTreeMap<String, String>, Bound<'py, PyDict>);

/// Metadata, tables by name, statistics.
type Ran<'py> = (BTreeMap<String, String>, Bound<'py, PyDict>, Vec<MetricRow>);

/// What switches take, in the order of [`SwitchCosts::at`].
type Times = [Option<i64>; SWITCH_KINDS];

/// A group, and the attributes it gets.
type GroupSettings = (String, Vec<(String, String)>);

/// A CPU by its recorded number, and its settings.
type CpuSettings = (i32, Vec<(String, String)>);

/// Threads, and the attributes they get.
type Settings = (Vec<i64>, Vec<(String, String)>);

/// Name, value, unit, samples, what it rests on.
type InferredRow = (&'static str, Option<f64>, &'static str, Option<u64>, String);

/// Name, thread, start, attributes, steps.
type ListedTask = (String, i64, Option<i64>, Vec<ListedAttrs>, Vec<ListedStep>);

/// Tasks, requests, semaphores, ticks a second, CPUs, end, costs, tick phases.
type Listing = (
    Vec<ListedTask>,
    Vec<Vec<ListedStep>>,
    Vec<u32>,
    i64,
    usize,
    Option<i64>,
    ListedAttrs,
    Vec<i64>,
    Vec<(u32, u32, u32, u32, u32)>,
);

/// Task, thread, name, end, slack, sleep.
type JudgedRow = (u32, i64, String, &'static str, Option<i64>, Option<i64>);

/// Task, thread, name, kernel's work, work, without an end, sleeps, unexplained ones.
type DemandRow = (u32, i64, String, i64, i64, bool, u32, u32);

/// What the tasks of a trace did, apart from when the scheduler let them: made once, run under any
/// number of policies.
#[pyclass(module = "tracekit._core", frozen)]
pub struct Programs {
    recon: Recon,
    mode: LoopMode,
    hz: Option<i64>,
}

#[pymethods]
impl Programs {
    /// The programs of a trace that has been read. `identity` is the policy that was recorded:
    /// explanations of unobserved messages with which it is replayed less well than without are left
    /// out; `rt`, `stated` and `groups` are what held for the tasks then, as in `run`. `placement` is one
    /// of `auto`, `model`, `trace`.
    #[new]
    #[pyo3(signature = (reading, identity=None, rt=None, stated=None, groups=None, placement="model"))]
    fn new(
        py: Python<'_>,
        reading: &Reading,
        identity: Option<String>,
        rt: Option<String>,
        stated: Option<Vec<Settings>>,
        groups: Option<Vec<GroupSettings>>,
        placement: &str,
    ) -> PyResult<Self> {
        let placement = Placement::NAMES.iter().find(|(name, _)| *name == placement).map(|(_, p)| *p);
        let placement = placement.ok_or_else(|| replay_error(py, "placement: expected auto, model or trace"))?;
        let (mode, hz) = reading.0.stated();
        let recon = interruptible(py, |cancel| {
            let reading = reading.0.placed(placement, cancel);
            match identity {
                Some(policy) => {
                    let (stated, groups) = (overrides(stated), groups.unwrap_or_default());
                    let identity = ReplaySpec { policy, rt, mode, hz, stated, groups, ..ReplaySpec::default() };
                    trial::programs(reading, &identity)
                }
                None => reading.programs(),
            }
        })?;
        Ok(Programs { recon, mode, hz })
    }

    /// The programs that a workload text states; `seed` replaces its own, `hz` its clock ticks a second.
    #[staticmethod]
    #[pyo3(signature = (text, seed=None, hz=None))]
    fn from_text(py: Python<'_>, text: &str, seed: Option<u64>, hz: Option<i64>) -> PyResult<Self> {
        let scenario =
            workload::parse_seeded(text, Some("fifo"), seed).map_err(|e| replay_error(py, &e.to_string()))?;
        Ok(Programs { recon: scenario.programs(), mode: LoopMode::Dependency, hz })
    }

    /// The same programs with less work: of `faster` threads the given 1/1000 of all of it, of
    /// those in `shorter` (thread, trace time, ns) what they did then. And the time that was taken
    /// out in all.
    fn shortened(&self, faster: Vec<(i64, u32)>, shorter: Vec<(i64, i64, i64)>) -> (Self, i64) {
        let mut recon = self.recon.clone();
        let faster = faster.into_iter().map(|(tid, permille)| Less::Faster { tid, permille });
        let shorter = shorter.into_iter().map(|(tid, at, ns)| Less::Shorter { tid, at, ns });
        let taken = recon.shorten(&faster.chain(shorter).collect::<Vec<_>>());
        (Programs { recon, mode: self.mode, hz: self.hz }, taken)
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

    /// What was judged about each task: number, thread, name, how it ends, slack and length of its
    /// timer sleeps.
    fn judged(&self) -> Vec<JudgedRow> {
        self.recon.judged().into_iter().map(|j| (j.task, j.tid, j.comm, j.end, j.slack, j.sleep)).collect()
    }

    /// What each task demands: number, thread, name, the kernel's work and all work (ns), whether it has
    /// no end, sleeps, and those of them that the trace does not explain.
    fn demands(&self) -> Vec<DemandRow> {
        let row = |d: Demand| (d.task, d.tid, d.comm, d.kernel, d.work, d.endless, d.sleeps, d.unexplained);
        self.recon.demands().into_iter().map(row).collect()
    }

    /// The programs as plain lists: name, thread, start (none for a forked task), attributes (at
    /// the start, then those that steps set), and steps with their numbers; then the steps of each
    /// request; then the initial units of each semaphore, the ticks a second, the number of CPUs,
    /// the end in ns (none where there is none), costs and the phases of the tick; and of each buffer
    /// its room, what is written and read at once, for how much there is room again when those who wait are
    /// woken, and what is in it at the start.
    fn listing(&self) -> Listing {
        let (cpus, over) = (self.recon.cpus.len(), &self.recon.overheads);
        let (tasks, handlers) = workload::listing(&self.recon.work, cpus);
        let tasks = tasks.into_iter().map(|t| (t.comm, t.tid, t.start, t.attrs, t.steps)).collect();
        let end = Some(self.recon.stop).filter(|ns| *ns < NEVER);
        let stated = self.recon.stated.as_ref().map(|s| s.machine.costs);
        let costs = stated.unwrap_or_else(|| over.costs()).listed();
        let buffers = self.recon.work.buffers.iter().map(|b| (b.capacity, b.write, b.read, b.room, b.holds)).collect();
        (tasks, handlers, self.recon.work.sems.clone(), over.hz, cpus, end, costs, over.phase.clone(), buffers)
    }

    /// Number of tasks.
    fn __len__(&self) -> usize {
        self.recon.work.tasks.len()
    }

    /// Runs the programs. `policy` is a string, or an object as in `tracekit.whatif.policy`. `sets`
    /// are attributes for tasks: threads, and pairs of key and value, after those that the machine
    /// has `stated`, and what the policy does not look at is refused; `groups` are names of groups,
    /// and pairs as well, `cpu_sets` numbers of CPUs, and pairs as well. `costs` are pairs of key and
    /// value as well, in place of measured ones.
    /// `switch_costs` are what switches take in the recorded and in the replayed kernel. `progress`
    /// is called with the share that is done. `tables` are names of tables that are asked for, all by
    /// default; `by` asks for the statistics of `tracekit.analysis.compare.metrics` by that grouping.
    /// Gives metadata, tables and statistics. Where any table is asked for, those that do not grow with
    /// the run are there, too.
    #[pyo3(signature = (policy, *, rt=None, cpus=None, phase_ns=0, overheads=true, stated=None, sets=None, groups=None, cpu_sets=None, costs=None, switch_costs=None, jitter_ns=0, seed=0, progress=None, tables=None, by=None))]
    #[allow(clippy::too_many_arguments)]
    fn run<'py>(
        &self,
        py: Python<'py>,
        policy: &Bound<'py, PyAny>,
        rt: Option<String>,
        cpus: Option<usize>,
        phase_ns: i64,
        overheads: bool,
        stated: Option<Vec<Settings>>,
        sets: Option<Vec<Settings>>,
        groups: Option<Vec<GroupSettings>>,
        cpu_sets: Option<Vec<CpuSettings>>,
        costs: Option<Vec<(String, String)>>,
        switch_costs: Option<(Times, Times)>,
        jitter_ns: i64,
        seed: u64,
        progress: Option<Py<PyAny>>,
        tables: Option<Vec<String>>,
        by: Option<&str>,
    ) -> PyResult<Ran<'py>> {
        let asked = Asked { tables: Wanted::new(tables)?, metrics: by.map(grouping).transpose()? };
        let spec = ReplaySpec {
            policy: policy.extract().unwrap_or_default(),
            rt,
            mode: self.mode,
            cpus,
            hz: self.hz,
            phase_shift: phase_ns,
            overheads,
            stated: overrides(stated),
            sets: overrides(sets),
            groups: groups.unwrap_or_default(),
            cpu_sets: cpu_sets.unwrap_or_default(),
            costs: costs.unwrap_or_default(),
            switch_costs: switch_costs
                .map(|(was, is)| SwitchCostChange { recorded: SwitchCosts(was), replayed: SwitchCosts(is) }),
            jitter: jitter_ns.clamp(0, 1_000_000_000),
            seed,
            ..ReplaySpec::default()
        };
        if !policy.is_instance_of::<PyString>() {
            return self.run_object(py, policy, &spec, &asked);
        }
        let run = reporting(py, progress.as_ref(), |cancel, share| {
            let report = &mut |done| {
                share.is(done);
                !cancel.is_set()
            };
            let go_on = &mut || {
                share.is(1.0);
                !cancel.is_set()
            };
            play(&self.recon, &spec, report).map(|played| Ended::of(played, &asked, go_on))
        })?;
        let error = |e: ReplayError| match &e {
            ReplayError::NotModelled(what) => not_modelled(py, what),
            _ => replay_error(py, &e.to_string()),
        };
        run.map_err(error)?.given(py)
    }
}

fn overrides(settings: Option<Vec<Settings>>) -> Vec<Override> {
    let of = |(tids, set)| Override { which: Which::Tids(tids), set };
    settings.unwrap_or_default().into_iter().map(of).collect()
}

/// What happened in a run: its events, made when somebody asks for them.
#[pyclass(module = "tracekit._core", frozen, name = "Records")]
pub struct RunRecords {
    records: Records,
    meta: Metadata,
    events: usize,
}

#[pymethods]
impl RunRecords {
    /// The table `events`.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        interruptible(py, |cancel| events_of(&self.records, &self.meta, &mut || !cancel.is_set()))
    }

    /// Time of the first event and of the last.
    #[getter]
    fn span(&self) -> (i64, i64) {
        self.records.span()
    }

    /// Number of events.
    fn __len__(&self) -> usize {
        self.events
    }
}

/// What was asked for of a run.
struct Ended {
    records: Records,
    meta: Metadata,
    made: Option<Vec<Table>>,
    events: usize,
    metrics: Vec<MetricRow>,
}

impl Ended {
    fn of(played: Played, asked: &Asked, go_on: &mut dyn FnMut() -> bool) -> Self {
        let Played { mut out, records, .. } = played;
        let meta = out.meta.clone();
        let (made, events, metrics) = of_run(&mut out, &records, asked, go_on);
        drop(out);
        give_back(events);
        Ended { records, meta, made, events, metrics }
    }

    fn given(self, py: Python<'_>) -> PyResult<Ran<'_>> {
        let Ended { records, meta, made, events, metrics } = self;
        let (metadata, tables) = (meta.0.clone(), PyDict::new(py));
        if let Some(made) = made {
            for table in made {
                tables.set_item(table.name(), table)?;
            }
            tables.set_item("events", RunRecords { records, meta, events })?;
        }
        Ok((metadata, tables, metrics))
    }
}

/// The same of a run that held the GIL.
fn ran<'py>(py: Python<'py>, played: Played, asked: &Asked) -> PyResult<Ran<'py>> {
    interruptible(py, |cancel| Ended::of(played, asked, &mut || !cancel.is_set()))?.given(py)
}

/// Metadata and tables of a run.
fn whole<'py>(py: Python<'py>, played: Played) -> PyResult<Tables<'py>> {
    let (metadata, tables, _) = ran(py, played, &Asked { tables: Wanted::ALL, metrics: None })?;
    Ok((metadata, tables))
}

impl Programs {
    /// The same under a policy that is an object. Holds the GIL, since its hooks may be Python.
    fn run_object<'py>(
        &self,
        py: Python<'py>,
        policy: &Bound<'py, PyAny>,
        spec: &ReplaySpec,
        asked: &Asked,
    ) -> PyResult<Ran<'py>> {
        let run = under_object(py, policy, |stack, name, go_on| {
            play_under(&self.recon, spec, stack, name, &mut |_| go_on()).map_err(|e| e.to_string())
        })?;
        ran(py, run, asked)
    }
}

/// Marks policy objects that have been used.
const USED: &str = "_tracekit_used";

/// What `run` gives under the scheduling classes with `policy` below real time. Signals are seen to
/// between stretches of the run; what a hook raised is the cause of the error.
fn under_object(
    py: Python<'_>,
    policy: &Bound<'_, PyAny>,
    run: impl FnOnce(Stack, String, &mut dyn FnMut() -> bool) -> Result<Played, String>,
) -> PyResult<Played> {
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
    let reused = ". This policy object was used in an earlier run and may still hold tasks of that: \
                  make a new one for each run, or empty its queues in `init`";
    let out = out.map_err(|message| if used { message + reused } else { message });
    out.map_err(|message| match raised.take() {
        Some(cause) => replay_error_from(py, &message, cause),
        None => replay_error(py, &message),
    })
}

/// Runs a workload that is written as text; `policy` replaces the one in the text, `seed` its seed.
/// Gives metadata and tables.
#[pyfunction]
#[pyo3(signature = (text, policy=None, seed=None))]
pub fn simulate<'py>(py: Python<'py>, text: &str, policy: Option<&str>, seed: Option<u64>) -> PyResult<Tables<'py>> {
    let run = interruptible(py, |cancel| run_seeded(text, policy, seed, &mut |_| !cancel.is_set()))?;
    let out = run.map_err(|e| replay_error(py, &e))?;
    whole(py, out)
}

/// The same under a policy that is an object: see `tracekit.whatif.policy`. Holds the GIL, since
/// its hooks may be Python.
#[pyfunction]
#[pyo3(signature = (text, policy, seed=None))]
pub fn simulate_with<'py>(
    py: Python<'py>,
    text: &str,
    policy: &Bound<'py, PyAny>,
    seed: Option<u64>,
) -> PyResult<Tables<'py>> {
    let run = |stack, name: String, go_on: &mut dyn FnMut() -> bool| {
        run_text_under(text, stack, &name, seed, &mut |_| go_on())
    };
    let out = under_object(py, policy, run)?;
    whole(py, out)
}

/// What a workload text says of itself: its policy (or `policy`, where it has none), seed, whether
/// times are drawn, and whether it expects anything.
#[pyfunction]
#[pyo3(signature = (text, policy=None))]
pub fn workload_facts(py: Python<'_>, text: &str, policy: Option<&str>) -> PyResult<(String, u64, bool, bool)> {
    let scenario = workload::parse(text, policy).map_err(|e| replay_error(py, &e.to_string()))?;
    Ok((scenario.policy.show(), scenario.seed, scenario.drawn, scenario.expects()))
}
