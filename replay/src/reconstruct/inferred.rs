//! What was inferred about a recorded run as a whole, as rows for people: costs, clock ticks, ends, timers.

use tracekit_schema::{Code, Diagnostic};

use super::build::Verdict;
use super::{Periodic, Recon};
use crate::calibrate::{Estimate, TickSource};
use crate::program::{Pause, Step};
use crate::task::{Ns, TaskId};

/// Names that a row lists before it only counts.
const NAMED: usize = 6;

/// A value that no record states.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// What it is.
    pub name: &'static str,
    /// Its value; none where nothing says it.
    pub value: Option<f64>,
    /// `ns`, `1/s` or `1` (a count).
    pub unit: &'static str,
    /// Samples behind it; none where it is no estimate.
    pub n: Option<u64>,
    /// What it rests on.
    pub how: String,
}

impl Inferred {
    fn of(name: &'static str, value: Option<f64>, unit: &'static str, how: impl Into<String>) -> Self {
        Inferred { name, value, unit, n: None, how: how.into() }
    }
}

/// What was judged about one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Number of the task in the program.
    pub task: u32,
    /// Thread.
    pub tid: i64,
    /// Name.
    pub comm: String,
    /// `endless`, `loops`, `ends` (the replay waits for it) or `stopped`.
    pub end: &'static str,
    /// Slack of its timers, where it sleeps on any.
    pub slack: Option<Ns>,
    /// Length of its timer sleeps, where they all have the same.
    pub sleep: Option<Ns>,
}

/// The first names, and how many more there are.
pub(crate) fn list(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let text = names.join(", ");
    if more > 0 {
        format!("{text} and {more} more")
    } else {
        text
    }
}

impl Recon {
    /// Everything inferred about the run as a whole.
    pub fn inferred(&self) -> Vec<Inferred> {
        if self.stated.is_some() {
            return self.clock();
        }
        let mut rows = self.costs();
        rows.extend(self.clock());
        rows.extend(self.speeds());
        rows.extend(self.isolation());
        rows.extend(self.ends());
        rows.push(self.slacks());
        rows.extend(self.periods());
        rows.extend(self.messages());
        rows
    }

    /// What the trace leaves open, and which records of a new capture would say.
    pub fn missing(&self) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        let mut say = |what: String, advice| found.push(Diagnostic::new(Code::MissingEvents, what).advise(advice));
        if self.wakes_unrecorded {
            let what = "no record says when tasks woke, nor who woke them: every sleep ends when the \
                task next got a CPU, so that a replay makes its waits longer, and waits after sleeps and \
                the lengths of run queues cannot be held against the recording";
            say(what.into(), "record sched:sched_waking");
        }
        if self.unmade != (0, 0) {
            let (made, others) = self.unmade;
            let what = format!(
                "new tasks are not recorded: of {} that first show when they get a CPU, {made} are taken \
                 for children of a task that had their name and ran before, {others} begin, or wake, when \
                 they were first seen",
                made + others
            );
            say(what, "record sched:sched_process_fork");
        }
        if self.uncaused > 0 && !self.ticks_show {
            let what = format!(
                "{} tasks left a CPU ready to run and nothing shows why: clock ticks do not show \
                 in the trace, so these switches are taken for preemptions, yields among them",
                self.uncaused
            );
            say(what, "record sched:sched_stat_runtime, which shows ticks, or the system call sched_yield");
        }
        let over = &self.overheads;
        let lacks = match (over.record.n == 0, over.tick_source != TickSource::Seen) {
            (true, true) => "what a switch takes, nor when clock ticks come and what they take",
            (true, false) => "what a switch takes",
            (false, true) => "when clock ticks come and what they take",
            (false, false) => "",
        };
        if !lacks.is_empty() {
            let advice =
                "record sched:sched_stat_runtime with interrupt flags on Linux, and keep the perf.data or trace.dat";
            say(format!("this trace does not show {lacks}; a replay leaves that out, or assumes it"), advice);
        }
        if let Some(beside) = &self.beside {
            let advice = "see --placement in the help of `tracekit compare`: `model` leaves it to the policy";
            say(beside.report(), advice);
        }
        if self.coarse {
            let advice = "keep the binary file, or write text with nanoseconds (perf script --ns)";
            say("the times of this trace are whole microseconds".into(), advice);
        }
        found
    }

    fn costs(&self) -> Vec<Inferred> {
        let over = &self.overheads;
        let row = |(name, e, how): (_, Estimate, &str)| {
            let how = if e.n > 0 { how.to_owned() } else { format!("no sample; {} stands in", instead(name)) };
            Inferred { name, value: Some(e.ns as f64), unit: "ns", n: Some(e.n as u64), how }
        };
        [
            (
                "run-queue clock to tracepoint offset",
                over.record,
                "the kernel's clock at a switch is read so long before the switch record",
            ),
            ("switch", Estimate { ns: over.switch, n: over.record.n }, "until the new task's own work begins"),
            ("tick", over.tick, "difference of bursts of equal work with a tick in them and without"),
            ("interrupts-on latency", over.irqs_on, "from the switch record to an interrupt that waited for it"),
            ("tick that reschedules", over.tick_resched, "run time charged from the tick to the switch"),
            ("tick with a timer behind it", over.tick_wakeup, "run time charged from the tick to the wakeup"),
            ("wakeup in an interrupt", over.interrupt, "from the wakeup to the reschedule"),
            ("last wakeup of several", over.interrupt_last, "from the wakeup to the reschedule"),
            (
                "wakeup without a switch",
                over.interrupt_return,
                "difference of bursts of equal work with a wakeup in them and without",
            ),
            (
                "wakeup in an interrupt, cache-cold",
                over.interrupt_cache_cold,
                "what it takes more on a CPU without a switch for 0.9 ms",
            ),
            ("next wakeup in an interrupt", over.next_wakeup, "between two wakeups of one interrupt"),
            (
                "clock of a new task",
                over.fork_clock,
                "from the record of a fork, behind which the clock is read, to the record that the child is queued",
            ),
            ("wakeup by a task", over.wakeup_tail, "from the wakeup to the reschedule"),
            ("wakeup by another CPU", over.remote_wakeup, "from the wakeup to the reschedule"),
            ("wakeup of an idle CPU by another", over.remote_idle, "from the wakeup to the reschedule"),
            ("wakeup of an idle CPU", over.idle_exit, "from the wakeup to the switch"),
            ("jitter", over.jitter, "median deviation of these costs from one time to the next"),
        ]
        .map(row)
        .into()
    }

    fn clock(&self) -> Vec<Inferred> {
        let over = &self.overheads;
        let how = match over.tick_source {
            TickSource::Seen => "ticks are seen in the trace",
            TickSource::Preemptions => "from the times of preemptions without a wakeup",
            TickSource::Stated => "stated by the trace or the caller",
            TickSource::Unknown => "assumed: the trace does not say",
        };
        let phase_known =
            self.stated.is_some() || matches!(over.tick_source, TickSource::Seen | TickSource::Preemptions);
        let mut rows = vec![Inferred::of("ticks a second", Some(over.hz as f64), "1/s", how)];
        for (cpu, phase) in over.phase.iter().enumerate().take(if phase_known { 8 } else { 1 }) {
            let how = if self.stated.is_some() {
                format!("first tick of CPU {cpu}, as the text states")
            } else if phase_known {
                format!("first tick of CPU {cpu} after the first record")
            } else {
                "not known".into()
            };
            rows.push(Inferred::of("tick phase", phase_known.then_some(*phase as f64), "ns", how));
        }
        rows
    }

    /// How fast the CPUs are, where they differ.
    fn speeds(&self) -> Vec<Inferred> {
        let mut rows = self.rates.rows(&self.cpus, self.span);
        let row = |(i, cpu): (usize, &i32)| {
            let how = format!("time that CPU {cpu} takes for the same work, against one of middling speed");
            Inferred::of("slowness of a CPU", Some(self.speeds.time_of_one(i)), "1", how)
        };
        if self.rates.are_unknown() && !self.speeds.are_equal() {
            rows.extend(self.cpus.iter().enumerate().map(row));
        }
        rows
    }

    fn ends(&self) -> Vec<Inferred> {
        let named = |holds: fn(&Verdict) -> bool| -> Vec<&str> {
            let tasks = self.work.tasks.iter().zip(&self.verdicts);
            tasks.filter(|(_, v)| holds(v)).map(|(p, _)| p.comm.as_str()).collect()
        };
        let comms = |tasks: &[TaskId]| -> Vec<&str> {
            tasks.iter().filter_map(|t| self.work.tasks.get(t.index())).map(|p| p.comm.as_str()).collect()
        };
        let count = |name, names: Vec<&str>| Inferred::of(name, Some(names.len() as f64), "1", list(names));
        let early = self.stop < self.span;
        let stopped = if early { "first exit of an endless task" } else { "end of the trace" };
        let bound = "the kernel's own threads of a CPU, by their names, which ran nowhere else";
        let preempt = f64::from(u8::from(self.preempt_kernel));
        let exits = "whether tasks were preempted in the middle of their exit";
        vec![
            count("endless tasks", named(|v| v.endless)),
            count("tasks that loop until stopped", named(|v| v.loops)),
            count("tasks that never ran", comms(&self.starved)),
            count("tasks that busy-wait", comms(&self.spinners)),
            Inferred::of("tasks bound to a CPU", Some(self.bound.len() as f64), "1", bound),
            Inferred::of("recorded run stopped", Some(self.stop as f64), "ns", stopped),
            Inferred::of("kernel can be preempted", Some(preempt), "1", exits),
        ]
    }

    fn slacks(&self) -> Inferred {
        let own: Vec<Ns> = self.judged().iter().filter_map(|j| j.slack).collect();
        let how = match own.first() {
            None => "no task sleeps on a timer",
            Some(0) => "timers fire when they are due",
            Some(_) => "Linux's default, of the tasks that sleep on timers",
        };
        let value = own.first().map(|slack| *slack as f64);
        Inferred { n: Some(own.len() as u64), ..Inferred::of("timer slack", value, "ns", how) }
    }

    /// Tasks whose timers expire on a grid of times, and which may be some.
    fn periods(&self) -> Vec<Inferred> {
        let name = |p: &Periodic| {
            let comm = self.work.tasks.get(p.task.0 as usize).map_or("", |program| program.comm.as_str());
            format!("{comm} ({} us)", p.period / 1000)
        };
        let kinds = [
            ("periodic timers", true, "set for times of a grid; taken to catch up when late: "),
            (
                "timers relative or periodic",
                false,
                "the trace does not say: taken to be set for a length, so that a delay moves all that follows: ",
            ),
        ];
        let row = |(what, absolute, how)| {
            let names: Vec<String> = self.periodic.iter().filter(|p| p.absolute == absolute).map(name).collect();
            let how = format!("{how}{}", list(names.iter().map(String::as_str).collect()));
            (!names.is_empty()).then(|| Inferred::of(what, Some(names.len() as f64), "1", how))
        };
        kinds.into_iter().filter_map(row).collect()
    }

    /// Messages that no wakeup shows; nothing where none is unobserved.
    fn messages(&self) -> Option<Inferred> {
        let how = self.unobserved.report(&self.work)?;
        let name = if self.unobserved.resolved { "unobserved messages" } else { "unexplained messages" };
        let value = if self.unobserved.resolved { self.unobserved.unobserved } else { self.unobserved.unexplained };
        Some(Inferred { name, value: Some(value as f64), unit: "1", n: Some(self.unobserved.messages as u64), how })
    }

    /// What was judged about each task.
    pub fn judged(&self) -> Vec<Judged> {
        let timers = |steps: &[Step]| {
            steps.iter().any(|s| matches!(s, Step::Pause { pause: Pause::Timer { .. } | Pause::Period { .. }, .. }))
        };
        let tasks = self.work.tasks.iter().zip(&self.verdicts).enumerate();
        tasks
            .map(|(t, (program, v))| {
                let (slack, sleep) = self.slack.get(t).copied().unwrap_or_default();
                let sleeps = timers(&program.steps);
                Judged {
                    task: t as u32,
                    tid: program.tid,
                    comm: program.comm.clone(),
                    end: match v {
                        Verdict { endless: true, .. } => "endless",
                        Verdict { loops: true, .. } => "loops",
                        Verdict { essential: true, .. } => "ends",
                        _ => "stopped",
                    },
                    slack: sleeps.then_some(slack),
                    sleep: sleep.filter(|_| sleeps),
                }
            })
            .collect()
    }
}

/// What stands in for a cost of which there was no sample.
fn instead(name: &str) -> &'static str {
    match name {
        "tick" => "one and a half of a tick that reschedules",
        "tick that reschedules" => "two thirds of a tick",
        "run-queue clock to tracepoint offset" | "switch" | "jitter" | "clock of a new task" => "nothing",
        "interrupts-on latency" => "nothing",
        "wakeup in an interrupt, cache-cold" => "a twentieth of a wakeup in an interrupt",
        "tick with a timer behind it" => "a tick that reschedules",
        "wakeup without a switch" => "the wakeup that reschedules and what a tick without one takes more",
        _ => "the closest measured cost",
    }
}
