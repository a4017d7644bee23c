//! A trace under another policy: the entry point of this crate.

use tracekit_schema::{Code, Diagnostic, Events, Out, Strings};

use crate::calibrate::TickSource;
use crate::emit::{self, Records};
use crate::engine::{Counts, Engine, EngineError, Machine, Run, Stack};
use crate::overrides;
use crate::params::ParamError;
use crate::perturb;
use crate::policies::{with_deadline, PolicySpec};
use crate::reconstruct::{reconstruct, Class, LoopMode, Options, Recon};
use crate::speeds::Speeds;
use crate::switch_costs::{self, SwitchCostChange};
use crate::task::{CpuSet, Ns};
use crate::unread;

/// What to replay and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySpec {
    /// Policy with parameters: `cfs:wakeup_preemption=off`.
    pub policy: String,
    /// Parameters of the real-time class above it: `rt:slice=20ms`.
    pub rt: Option<String>,
    /// What moves when the schedule changes.
    pub mode: LoopMode,
    /// Number of CPUs; as recorded when `None`.
    pub cpus: Option<usize>,
    /// Ticks a second; as found in the trace when `None`.
    pub hz: Option<i64>,
    /// Added to the tick phase, ns: to see how much depends on it.
    pub phase_shift: Ns,
    /// Add what switches, ticks and interrupts cost, as measured.
    pub overheads: bool,
    /// Can the kernel be preempted; as found in the trace when `None`.
    pub preempt_kernel: Option<bool>,
    /// Change every run and every timer sleep by a random amount up to so much, ns, to see how
    /// sensitive the replay is to that.
    pub jitter: Ns,
    /// Which random amounts, and which random numbers of the kernel.
    pub seed: u64,
    /// Attributes by task that the recorded machine states, applied in order before `sets`.
    pub stated: Vec<Override>,
    /// Attributes by task, applied in order: pattern and settings. What the policy does not look at
    /// is refused.
    pub sets: Vec<Override>,
    /// Groups with their settings: name, and pairs of key and value as
    /// [`crate::program::Group::set`] takes them. A group that only tasks name has the defaults.
    pub groups: Vec<(String, Vec<(String, String)>)>,
    /// CPUs by their recorded numbers, and their settings, as [`crate::rates::Rates::set`] takes them.
    pub cpu_sets: Vec<(i32, Vec<(String, String)>)>,
    /// By how much switches cost more or less than the recorded ones; nothing without
    /// `overheads`, or where `costs` says what a switch costs.
    pub switch_costs: Option<SwitchCostChange>,
    /// Costs in place of those measured in the trace, by the keys of [`crate::cost::COST_KEYS`].
    pub costs: Vec<(String, String)>,
}

impl Default for ReplaySpec {
    fn default() -> Self {
        ReplaySpec {
            policy: "cfs".into(),
            rt: None,
            mode: LoopMode::Dependency,
            cpus: None,
            hz: None,
            phase_shift: 0,
            overheads: true,
            preempt_kernel: None,
            jitter: 0,
            seed: 0,
            stated: Vec::new(),
            sets: Vec::new(),
            groups: Vec::new(),
            cpu_sets: Vec::new(),
            switch_costs: None,
            costs: Vec::new(),
        }
    }
}

/// Attributes for some tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Which tasks.
    pub which: Which,
    /// Attributes as `key=value`, keys of [`crate::task::ATTR_KEYS`].
    pub set: Vec<(String, String)>,
}

/// Tasks by property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Every task.
    All,
    /// Tasks of these threads.
    Tids(Vec<i64>),
    /// Tasks with these names.
    Comms(Vec<String>),
}

impl Which {
    pub(crate) fn holds(&self, tid: i64, comm: &str) -> bool {
        match self {
            Which::All => true,
            Which::Tids(tids) => tids.contains(&tid),
            Which::Comms(comms) => comms.iter().any(|c| c == comm),
        }
    }
}

/// A replay that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The policy string.
    #[error("{0}")]
    Policy(#[from] ParamError),
    /// An override of attributes, or a cost.
    #[error("{0}")]
    Set(String),
    /// An attribute of a kind that nothing models under the policy.
    #[error("{0}")]
    NotModelled(String),
    /// The trace has nothing to replay.
    #[error("{0}")]
    Trace(String),
    /// The run.
    #[error("replay under {policy}: {error}")]
    Run {
        /// Policy.
        policy: String,
        /// What happened.
        error: EngineError,
    },
}

/// A finished replay whose events are still to be made.
#[derive(Debug)]
pub struct Played {
    /// Metadata and what must be known of it; no events.
    pub out: Out,
    /// What happened.
    pub records: Records,
    /// What the engine counted.
    pub counts: Counts,
    /// What the policies counted.
    pub counters: Vec<(&'static str, i64)>,
    /// The policy with all parameters.
    pub policy: String,
}

impl Played {
    /// With its events.
    pub fn whole(self) -> Replayed {
        let Played { mut out, records, counts, counters, policy } = self;
        records.all(&mut out);
        Replayed { out, counts, counters, policy }
    }
}

/// A finished replay.
#[derive(Debug)]
pub struct Replayed {
    /// Events, names, metadata.
    pub out: Out,
    /// What the engine counted.
    pub counts: Counts,
    /// What the policies counted.
    pub counters: Vec<(&'static str, i64)>,
    /// The policy with all parameters.
    pub policy: String,
}

/// A wait that begins in the last one of so many parts of a recording takes no more than a percent from a
/// task's time.
const LATE: Ns = 100;
/// So many records any replay may make: one CPU that switches at each of 1000 ticks a second does so for
/// more than an hour, and the tables of such a replay take about 1.7 GB.
const RECORDS: usize = 1 << 22;
/// And so many for each entry of the recorded timelines: a large recording has large replays.
const RECORDS_PER_ENTRY: usize = 16;
/// Tasks that a message names.
const NAMED: usize = 3;

const NOTHING: &str = "the trace has no switch or wakeup events, so there is nothing to replay; \
    `tracekit recipes` says how to record them";

/// Reconstructs the programs in `events` and runs them under `spec`.
pub fn replay(
    events: &Events,
    strings: &Strings,
    spec: &ReplaySpec,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(Recon, Replayed), ReplayError> {
    let recon = reconstruct(events, strings, &Options { mode: spec.mode, hz: spec.hz, ..Options::default() });
    let replayed = rerun(&recon, spec, progress)?;
    Ok((recon, replayed))
}

/// Runs reconstructed programs under `spec` (whose `mode` and `hz` were used for the reconstruction).
pub fn rerun(recon: &Recon, spec: &ReplaySpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<Replayed, ReplayError> {
    play(recon, spec, progress).map(Played::whole)
}

/// The same without making the events.
pub fn play(recon: &Recon, spec: &ReplaySpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<Played, ReplayError> {
    let policy = PolicySpec::parse(&spec.policy)?;
    let stated = recon.stated.as_ref().and_then(|s| s.rt.as_deref());
    let above = spec.rt.as_deref().or(stated).map(PolicySpec::parse).transpose()?;
    let stack = policy.stack_under(above.as_ref())?;
    play_under(recon, spec, stack, policy.show(), progress).map_err(|error| match error {
        // All parameters would hide what happened.
        ReplayError::Run { error, .. } => ReplayError::Run { policy: spec.policy.clone(), error },
        other => other,
    })
}

/// Runs reconstructed programs under a stack of scheduling classes that is called `policy`; what
/// `spec` says of policies is not looked at.
pub fn play_under(
    recon: &Recon,
    spec: &ReplaySpec,
    stack: Stack,
    policy: String,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Played, ReplayError> {
    if recon.work.tasks.is_empty() {
        return Err(ReplayError::Trace(NOTHING.into()));
    }
    if recon.placed && spec.cpus.is_some_and(|cpus| cpus != recon.cpus.len()) {
        let why = recon.beside.map_or_else(
            || "placement=trace keeps each task on the CPU on which it was recorded".into(),
            |beside| beside.report(),
        );
        return Err(ReplayError::Trace(format!(
            "{why}, of {}: with another number of CPUs leave the placement to the policy \
             (--placement model, in Python placement=\"model\")",
            recon.cpus.len()
        )));
    }
    let mut work = recon.work.clone();
    if spec.cpus.is_some_and(|cpus| cpus < recon.cpus.len()) {
        // The CPU may not be there any more.
        for (task, _) in &recon.bound {
            let program = &mut work.tasks[task.index()];
            program.first.affinity = CpuSet::all();
            program.attrs.iter_mut().for_each(|attrs| attrs.affinity = CpuSet::all());
        }
    }
    let was = switch_costs::realtime(&work);
    overrides::apply(&spec.stated, &spec.sets, &recon.cpus, &mut work)?;
    unread::refuse(&spec.sets, &stack, &work)?;
    let stack = with_deadline(stack, &work)?;
    let reserved = unread::reservations(&spec.stated, &work);
    let as_recorded = spec.cpus.is_none_or(|cpus| cpus == recon.cpus.len());
    if as_recorded {
        recon.isolated.keep_off(recon.cpus.len(), &mut work);
    }
    overrides::make_groups(&spec.groups, &mut work)?;
    switch_costs::note_changes(&mut work, &was);
    if spec.jitter > 0 {
        perturb::jitter(&mut work, spec.jitter, spec.seed);
    }
    let machine = machine(recon, spec)?;
    let error = |error| ReplayError::Run { policy: policy.clone(), error };
    let engine = Engine::new(work, &machine, stack).map_err(error)?;
    let total = machine.until.clamp(1, recon.span.max(1)) as f64;
    let mut run = engine.run(&mut |now| progress((now as f64 / total).min(1.0))).map_err(error)?;
    let mut out = Out::new();
    emit::describe(&mut out, &policy, machine.cpus, machine.hz);
    out.meta.set("replay.loop", spec.mode.as_str());
    if recon.placed {
        out.meta.set("replay.placement", "trace");
    }
    if recon.yields_unrecorded {
        out.meta.set("yields.recorded", "false");
    }
    if !spec.costs.is_empty() {
        let costs: Vec<String> = spec.costs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        out.meta.set("replay.costs", costs.join(","));
    }
    let records = Records::of(&mut run, machine.cpus, &recon.cpus, recon.start);
    emit::report(&mut out, &run);
    report(recon, spec, &mut out);
    report_stuck(recon, &run, &mut out);
    reserved.into_iter().for_each(|said| out.diag(said));
    report_shift(&run.counts, &mut out);
    Ok(Played { out, records, counts: run.counts, counters: run.counters, policy })
}

fn machine(recon: &Recon, spec: &ReplaySpec) -> Result<Machine, ReplayError> {
    let over = &recon.overheads;
    let hz = spec.hz.unwrap_or(over.hz).max(1);
    let stated = recon.stated.as_ref().map(|s| &s.machine);
    let known = || stated.map_or_else(|| over.costs(), |machine| machine.costs);
    let mut costs = if spec.overheads { known() } else { Default::default() };
    spec.costs.iter().try_for_each(|(key, value)| costs.set(key, value)).map_err(ReplayError::Set)?;
    Ok(Machine {
        cpus: spec.cpus.unwrap_or(recon.cpus.len()).max(1),
        hz,
        tick_phase: over.phase.iter().map(|p| (p + spec.phase_shift).rem_euclid(1_000_000_000 / hz)).collect(),
        preempt_kernel: spec.preempt_kernel.unwrap_or(recon.preempt_kernel),
        speeds: speeds(recon, spec)?,
        balanced: if spec.cpus.is_none_or(|cpus| cpus == recon.cpus.len()) {
            recon.isolated.balanced(recon.cpus.len())
        } else {
            CpuSet::all()
        },
        costs,
        // Who says what a switch costs means all of it.
        switch_costs: spec
            .switch_costs
            .filter(|_| spec.overheads && !spec.costs.iter().any(|c| c.0 == "switch" || c.0 == "record")),
        until: recon.until,
        at_least: recon.at_least,
        seed: spec.seed,
        // The length of a workload text is what its author asks for.
        most_records: stated.map_or(RECORDS + RECORDS_PER_ENTRY * recon.entries, |machine| machine.most_records),
        timers: stated.map_or_else(Default::default, |machine| machine.timers),
        ..Machine::default()
    })
}

/// How fast the CPUs are. Other CPUs than the recorded ones are middling ones.
fn speeds(recon: &Recon, spec: &ReplaySpec) -> Result<Speeds, ReplayError> {
    let other = spec.cpus.is_some_and(|n| n != recon.cpus.len());
    if other && !spec.cpu_sets.is_empty() {
        let why = "with another number of CPUs all are of middling speed; ask for one or the other";
        return Err(ReplayError::Set(format!("cpu:{}: {why}", spec.cpu_sets[0].0)));
    }
    if other {
        return Ok(Speeds::default());
    }
    if spec.cpu_sets.is_empty() {
        return Ok(recon.speeds.clone());
    }
    let mut rates = recon.rates.clone();
    for (cpu, settings) in &spec.cpu_sets {
        let place = recon.cpus.iter().position(|c| c == cpu).ok_or_else(|| {
            let known: Vec<String> = recon.cpus.iter().map(i32::to_string).collect();
            ReplayError::Set(format!("cpu:{cpu}: the trace has no such CPU; it has {}", known.join(", ")))
        })?;
        for (key, value) in settings {
            rates.set(place, key, value).map_err(|why| ReplayError::Set(format!("cpu:{cpu}: {why}")))?;
        }
    }
    Ok(rates.speeds())
}

/// Tasks that wait for ever, whose recorded waits ended: what a replay shows of them is not theirs.
fn report_stuck(recon: &Recon, run: &Run, out: &mut Out) {
    let late = |at: Ns| at > recon.span.min(recon.stop) - recon.span / LATE;
    let (mut rows, mut names, mut first) = (Vec::new(), Vec::new(), recon.span);
    // What is written down may well wait for ever.
    for stuck in run.stuck.iter().filter(|_| recon.stated.is_none()) {
        // What was waited for came with the end of the recording, as the exit of tasks that it stopped does.
        let notes = match stuck.handler {
            Some(handler) => recon.handlers.get(handler as usize).map(|h| &h.1),
            None => recon.notes.get(stuck.task.index()),
        };
        let resumed = notes.and_then(|notes| notes.get(stuck.step)).map(|note| note.at);
        if resumed.is_some_and(late) || stuck.since.is_some_and(late) {
            continue;
        }
        let task = &recon.work.tasks[stuck.task.index()];
        first = first.min(stuck.since.unwrap_or(first));
        names.push(format!("{} {}", task.comm, task.tid));
        let since = stuck.since.map_or_else(|| "null".into(), |at| (recon.start + at).to_string());
        rows.push(format!("[{}, {since}]", task.tid));
    }
    if rows.is_empty() {
        return;
    }
    out.meta.set("replay.stuck", format!("[{}]", rows.join(", ")));
    let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
    names.truncate(NAMED);
    let message = format!(
        "{} of the replay's tasks wait for ever, the first from {:.1} ms on, where those recorded went on \
         ({}{more}): what ended their waits was taken for something else",
        rows.len(),
        first as f64 / 1e6,
        names.join(", ")
    );
    let advice = "do not use what this replay shows of them; `--loop closed` keeps the recorded length of every sleep";
    out.diag(Diagnostic::new(Code::Stuck, message).advise(advice));
}

/// What is assumed of switch costs that the trace does not show.
fn report_shift(counts: &Counts, out: &mut Out) {
    let (n, ns) = counts.shifted;
    if n > 0 {
        let mean = ns as f64 / n as f64 / 1e3;
        let message = format!(
            "assumed: {n} of {} switches take {:.1} us {} than recorded, because another scheduling \
             class or kernel chooses the next task; measured on other systems, scaled to this one",
            counts.switches,
            mean.abs(),
            if mean < 0.0 { "less" } else { "more" }
        );
        out.diag(Diagnostic::new(Code::Inferred, message));
    }
}

/// What a reader of the replay must know of the reconstruction.
fn report(recon: &Recon, spec: &ReplaySpec, out: &mut Out) {
    if recon.stated.is_some() {
        // Nothing was inferred.
        return;
    }
    let total: u64 = recon.classes.iter().sum();
    let share =
        |i: usize| format!("{} {:.1} %", Class::NAMES[i], 100.0 * recon.classes[i] as f64 / total.max(1) as f64);
    let shares: Vec<String> = (0..Class::COUNT).filter(|&i| recon.classes[i] > 0).map(share).collect();
    out.diag(Diagnostic::new(Code::Inferred, format!("of {total} wakeups: {}", shares.join(", "))));
    let over = &recon.overheads;
    let us = |ns: Ns| ns as f64 / 1e3;
    if spec.overheads {
        let message = format!(
            "costs measured in the trace, in us: switch {:.1}, tick {:.1} ({} samples), wakeup in \
            an interrupt {:.1} ({}), wakeup by a task {:.1} ({})",
            us(over.switch),
            us(over.tick.ns),
            over.tick.n,
            us(over.interrupt.ns),
            over.interrupt.n,
            us(over.wakeup_tail.ns),
            over.wakeup_tail.n
        );
        out.diag(Diagnostic::new(Code::Inferred, message));
    }
    for (_, report) in recon.rates.report(&recon.cpus) {
        out.diag(Diagnostic::new(Code::Inferred, report));
    }
    if recon.rates.are_unknown() && !recon.speeds.are_equal() {
        let of = |(i, cpu): (usize, &i32)| format!("CPU {cpu} {:.2}", recon.speeds.time_of_one(i));
        let times: Vec<String> = recon.cpus.iter().enumerate().map(of).collect();
        let message = format!("CPUs are not equally fast: the same work takes {}", times.join(", "));
        out.diag(Diagnostic::new(Code::Inferred, message));
    }
    let how = match over.tick_source {
        TickSource::Seen => "ticks are seen in the trace",
        TickSource::Preemptions => "from the times of preemptions",
        TickSource::Stated => "stated; the phase is not known",
        TickSource::Unknown => "assumed; neither rate nor phase is known",
    };
    out.diag(Diagnostic::new(Code::Inferred, format!("{} ticks a second: {how}", spec.hz.unwrap_or(over.hz))));
    let count = |f: fn(&crate::reconstruct::Verdict) -> bool| recon.verdicts.iter().filter(|v| f(v)).count();
    let (endless, loops) = (count(|v| v.endless), count(|v| v.loops));
    if endless + loops > 0 {
        let message = format!(
            "{endless} tasks are taken for endless, {loops} sleep on timers until the recorded run was stopped"
        );
        out.diag(Diagnostic::new(Code::Inferred, message));
    }
    if !recon.starved.is_empty() {
        let n = recon.starved.len();
        let message = format!("{n} tasks were ready to run until the end and never ran; they do nothing in the replay");
        out.diag(Diagnostic::new(Code::Inferred, message));
    }
    if let Some(message) = recon.unobserved.report(&recon.work) {
        out.diag(Diagnostic::new(Code::Inferred, message));
    }
    recon.missing().into_iter().for_each(|missing| out.diag(missing));
    if recon.cut > 0 {
        let ms = recon.cut as f64 / 1e6;
        out.diag(Diagnostic::new(Code::LostEvents, format!("{ms:.3} ms with lost records were cut out")));
    }
    if recon.mismatches > 0 {
        let message =
            format!("{} switches contradict the one before; the missing slices were made up", recon.mismatches);
        out.diag(Diagnostic::new(Code::SwitchMismatch, message));
    }
}
