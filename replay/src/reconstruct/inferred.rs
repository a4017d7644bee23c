//! What was inferred about a recorded run as a whole, as rows for people: costs, clock ticks, ends, timers.

use tracekit_schema::{Code, Diagnostic};

use super::build::Verdict;
use super::{Periodic, Recon};
use crate::calibrate::{Estimate, TickSource};
use crate::program::{Late, Pause, Step};
use crate::task::Ns;

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

/// A row about periodic timers: its name, what it says, and of which of them.
type Kind = (&'static str, &'static str, fn(&Periodic) -> bool);

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
        if self.wakes_unrecorded {
            let what = "no record says when tasks woke, nor who woke them: every sleep ends when the \
                task next got a CPU, so that a replay makes its waits longer, and waits after sleeps and \
                the lengths of run queues cannot be held against the recording";
            found.push(Diagnostic::new(Code::MissingEvents, what).advise("record sched:sched_waking"));
        }
        if self.unmade != (0, 0) {
            let (made, others) = self.unmade;
            let n = made + others;
            let what = format!(
                "new tasks are not recorded: of {n} that first show when they get a CPU, {made} are taken \
                 for children of a task that had their name and ran before, {others} begin, or wake, when \
                 they were first seen"
            );
            found.push(Diagnostic::new(Code::MissingEvents, what).advise("record sched:sched_process_fork"));
        }
        if self.uncaused > 0 && !self.ticks_show {
            let n = self.uncaused;
            let what = format!(
                "{n} tasks left a CPU ready to run and nothing shows why: clock ticks do not show \
                 in the trace, so these switches are taken for preemptions, yields among them"
            );
            let advice = "record sched:sched_stat_runtime, which shows ticks, or the system call sched_yield";
            found.push(Diagnostic::new(Code::MissingEvents, what).advise(advice));
        }
        let over = &self.overheads;
        let lacks = [
            (over.record.n == 0, "what a switch takes"),
            (over.tick_source != TickSource::Seen, "when clock ticks come and what they take"),
        ];
        let lacks: Vec<&str> = lacks.iter().filter(|l| l.0).map(|l| l.1).collect();
        if !lacks.is_empty() {
            let what =
                format!("this trace does not show {}; a replay leaves that out, or assumes it", lacks.join(", nor "));
            let advice =
                "record sched:sched_stat_runtime with interrupt flags on Linux, and keep the perf.data or trace.dat";
            found.push(Diagnostic::new(Code::MissingEvents, what).advise(advice));
        }
        if let Some(beside) = &self.beside {
            let advice = "see --placement in the help of `tracekit compare`: `model` leaves it to the policy";
            found.push(Diagnostic::new(Code::MissingEvents, beside.report()).advise(advice));
        }
        if self.coarse {
            let what = "the times of this trace are whole microseconds";
            let advice = "keep the binary file, or write text with nanoseconds (perf script --ns)";
            found.push(Diagnostic::new(Code::MissingEvents, what).advise(advice));
        }
        found
    }

    fn costs(&self) -> Vec<Inferred> {
        let over = &self.overheads;
        let row = |name, e: Estimate, how: &str| {
            let how = if e.n > 0 { how.to_owned() } else { format!("no sample; {} stands in", instead(name)) };
            Inferred { name, value: Some(e.ns as f64), unit: "ns", n: Some(e.n as u64), how }
        };
        vec![
            row(
                "run-queue clock to tracepoint offset",
                over.record,
                "the kernel's clock at a switch is read so long before the switch record",
            ),
            row("switch", Estimate { ns: over.switch, n: over.record.n }, "until the new task's own work begins"),
            row("tick", over.tick, "difference of bursts of equal work with a tick in them and without"),
            row("interrupts-on latency", over.irqs_on, "from the switch record to an interrupt that waited for it"),
            row("tick that reschedules", over.tick_resched, "run time charged from the tick to the switch"),
            row("tick with a timer behind it", over.tick_wakeup, "run time charged from the tick to the wakeup"),
            row("wakeup in an interrupt", over.interrupt, "from the wakeup to the reschedule"),
            row("last wakeup of several", over.interrupt_last, "from the wakeup to the reschedule"),
            row(
                "wakeup without a switch",
                over.interrupt_return,
                "difference of bursts of equal work with a wakeup in them and without",
            ),
            row(
                "wakeup in an interrupt, cache-cold",
                over.interrupt_cache_cold,
                "what it takes more on a CPU without a switch for 0.9 ms",
            ),
            row("next wakeup in an interrupt", over.next_wakeup, "between two wakeups of one interrupt"),
            row(
                "clock of a new task",
                over.fork_clock,
                "from the record of a fork, behind which the clock is read, to the record that the child is queued",
            ),
            row("wakeup by a task", over.wakeup_tail, "from the wakeup to the reschedule"),
            row("wakeup by another CPU", over.remote_wakeup, "from the wakeup to the reschedule"),
            row("wakeup of an idle CPU by another", over.remote_idle, "from the wakeup to the reschedule"),
            row("wakeup of an idle CPU", over.idle_exit, "from the wakeup to the switch"),
            row("jitter", over.jitter, "median deviation of these costs from one time to the next"),
        ]
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
        let mut rows = vec![Inferred {
            name: "ticks a second",
            value: Some(over.hz as f64),
            unit: "1/s",
            n: None,
            how: how.into(),
        }];
        for (cpu, phase) in over.phase.iter().enumerate().take(if phase_known { 8 } else { 1 }) {
            let how = if self.stated.is_some() {
                format!("first tick of CPU {cpu}, as the text states")
            } else if phase_known {
                format!("first tick of CPU {cpu} after the first record")
            } else {
                "not known".into()
            };
            let value = phase_known.then_some(*phase as f64);
            rows.push(Inferred { name: "tick phase", value, unit: "ns", n: None, how });
        }
        rows
    }

    /// How fast the CPUs are, where they differ.
    fn speeds(&self) -> Vec<Inferred> {
        let mut rows = self.rates.rows(&self.cpus, self.span);
        let row = |(i, cpu): (usize, &i32)| Inferred {
            name: "slowness of a CPU",
            value: Some(self.speeds.time_of_one(i)),
            unit: "1",
            n: None,
            how: format!("time that CPU {cpu} takes for the same work, against one of middling speed"),
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
        let count = |name, names: Vec<&str>| Inferred {
            name,
            value: Some(names.len() as f64),
            unit: "1",
            n: None,
            how: list(names),
        };
        let starved = self.starved.iter().filter_map(|t| self.work.tasks.get(t.0 as usize));
        let starved = starved.map(|p| p.comm.as_str()).collect();
        let spinners = self.spinners.iter().filter_map(|t| self.work.tasks.get(t.0 as usize));
        let spinners = spinners.map(|p| p.comm.as_str()).collect();
        let early = self.stop < self.span;
        let how = if early { "first exit of an endless task" } else { "end of the trace" };
        vec![
            count("endless tasks", named(|v| v.endless)),
            count("tasks that loop until stopped", named(|v| v.loops)),
            count("tasks that never ran", starved),
            count("tasks that busy-wait", spinners),
            Inferred {
                name: "tasks bound to a CPU",
                value: Some(self.bound.len() as f64),
                unit: "1",
                n: None,
                how: "the kernel's own threads of a CPU, by their names, which ran nowhere else".into(),
            },
            Inferred {
                name: "recorded run stopped",
                value: Some(self.stop as f64),
                unit: "ns",
                n: None,
                how: how.into(),
            },
            Inferred {
                name: "kernel can be preempted",
                value: Some(f64::from(u8::from(self.preempt_kernel))),
                unit: "1",
                n: None,
                how: "whether tasks were preempted in the middle of their exit".into(),
            },
        ]
    }

    fn slacks(&self) -> Inferred {
        let mut own: Vec<Ns> = self.judged().iter().filter_map(|j| j.slack).collect();
        own.sort_unstable();
        let how = match (own.first(), own.last()) {
            (Some(least), Some(most)) => format!(
                "median of the tasks that sleep on timers; {:.1} to {:.1} us{}",
                *least as f64 / 1e3,
                *most as f64 / 1e3,
                if *least >= super::sleep::DEFAULT_SLACK { ", at least Linux's default" } else { "" }
            ),
            _ => "no task sleeps on a timer".to_owned(),
        };
        let value = own.get(own.len() / 2).map(|v| *v as f64);
        Inferred { name: "timer slack", value, unit: "ns", n: Some(own.len() as u64), how }
    }

    /// Tasks whose timers expire on a grid of times, what those do that are late, and which may be some.
    fn periods(&self) -> Vec<Inferred> {
        let name = |p: &Periodic| {
            let comm = self.work.tasks.get(p.task.0 as usize).map_or("", |program| program.comm.as_str());
            format!("{comm} ({} us)", p.period / 1000)
        };
        let groups: [Kind; 6] = [
            ("periodic timers", "late, they catch up: ", |p| p.late == Some((Late::CatchUp, true))),
            ("periodic timers", "late, one round is for all that came until it began: ", |p| {
                p.late == Some((Late::Merge, true))
            }),
            (
                "periodic timers",
                "late, one round is for all that came until it began, and maybe for later ones: ",
                |p| p.late == Some((Late::Merge, false)),
            ),
            ("periodic timers", "late, they wait for the next time: ", |p| p.late == Some((Late::Skip, true))),
            ("periodic timers", "too seldom late to show what they do then, taken to catch up: ", |p| {
                p.late == Some((Late::CatchUp, false))
            }),
            (
                "timers relative or periodic",
                "the trace does not say: taken to be set for a length, so that a delay moves all that follows: ",
                |p| p.late.is_none(),
            ),
        ];
        let row = |(what, how, holds): Kind| {
            let names: Vec<String> = self.periodic.iter().filter(|p| holds(p)).map(name).collect();
            let value = Some(names.len() as f64);
            let how = format!("{how}{}", list(names.iter().map(String::as_str).collect()));
            (!names.is_empty()).then_some(Inferred { name: what, value, unit: "1", n: None, how })
        };
        groups.into_iter().filter_map(row).collect()
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
