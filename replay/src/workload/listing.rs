//! Programs as plain lists, from which other tools' files and workload texts are written.

use crate::program::{Fork, Pause, Program, Start, Step, Workload};
use crate::task::{Attrs, Ns, SchedPolicy, NEVER};

/// A step: its name and its numbers. A time without end is -1.
pub type ListedStep = (&'static str, Vec<i64>);

/// Attributes that are not the defaults, as [`Attrs::set`] takes them.
pub type ListedAttrs = Vec<(&'static str, String)>;

/// A task with its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name.
    pub comm: String,
    /// Thread.
    pub tid: i64,
    /// Start; `None` for a task that another makes.
    pub start: Option<Ns>,
    /// Attributes at the start, then those that `attrs` steps name.
    pub attrs: Vec<ListedAttrs>,
    /// The steps.
    pub steps: Vec<ListedStep>,
}

/// All tasks, and the steps of all requests.
pub fn listing(work: &Workload, cpus: usize) -> (Vec<Listed>, Vec<Vec<ListedStep>>) {
    let tasks = work.tasks.iter().map(|program| task(program, cpus)).collect();
    (tasks, work.handlers.iter().map(|steps| steps.iter().map(listed).collect()).collect())
}

fn task(program: &Program, cpus: usize) -> Listed {
    Listed {
        comm: program.comm.clone(),
        tid: program.tid,
        start: match program.start {
            Start::At(at) | Start::Asleep(at) => Some(at),
            Start::Forked => None,
        },
        attrs: std::iter::once(&program.first).chain(&program.attrs).map(|a| attributes(a, cpus)).collect(),
        steps: program.steps.iter().map(listed).collect(),
    }
}

fn attributes(attrs: &Attrs, cpus: usize) -> ListedAttrs {
    let mut all = ListedAttrs::new();
    let mut add = |key, value: Option<String>| all.extend(value.map(|value| (key, value)));
    let policy = match attrs.policy {
        SchedPolicy::Fifo => Some("fifo"),
        SchedPolicy::Rr => Some("rr"),
        SchedPolicy::Batch => Some("batch"),
        SchedPolicy::Idle => Some("idle"),
        SchedPolicy::Deadline => Some("deadline"),
        SchedPolicy::Other => None,
    };
    add("policy", policy.map(str::to_owned));
    add("nice", (attrs.nice != 0).then(|| attrs.nice.to_string()));
    let prio = if attrs.policy.is_rt() { Some(attrs.rt_prio) } else { attrs.prio };
    add("prio", prio.map(|p| p.to_string()));
    add("upri", attrs.upri.map(|p| p.to_string()));
    add("class", attrs.class.as_ref().map(ToString::to_string));
    add("slice", attrs.slice.map(|ns| format!("{ns}ns")));
    let times = attrs.deadline.map(|d| format!("{}ns/{}ns/{}ns", d.runtime, d.deadline, d.period));
    add("deadline", times);
    add("tickets", attrs.tickets.map(|n| n.to_string()));
    add("foreground", attrs.foreground.then(|| "on".to_owned()));
    add("process", attrs.process.map(|p| p.to_string()));
    add("kernel", attrs.kernel.then(|| "on".to_owned()));
    if !attrs.affinity.is_all() {
        let own: Vec<String> = (0..cpus).filter(|c| attrs.affinity.contains(*c)).map(|c| c.to_string()).collect();
        add("cpus", Some(own.join("+")));
    }
    add("group", attrs.group.as_ref().map(ToString::to_string));
    all
}

fn listed(step: &Step) -> ListedStep {
    let time = |ns: Ns| if ns == NEVER { -1 } else { ns };
    match *step {
        Step::Run { ns } => ("run", vec![time(ns)]),
        Step::RunKernel { ns } => ("kernel", vec![time(ns)]),
        Step::Pause { pause, .. } => match pause {
            Pause::Timer { ns, slack } => ("sleep", vec![ns, i64::from(slack)]),
            Pause::Period { ns, slack, late } => ("period", vec![ns, i64::from(slack), late as i64]),
            Pause::Ticks { ns, .. } => ("ticks", vec![ns]),
            Pause::Io { ns } => ("io", vec![ns]),
            Pause::At { at } => ("at", vec![at]),
            Pause::External { ns } => ("external", vec![ns]),
        },
        Step::Wait { sem, .. } => ("wait", vec![i64::from(sem.0)]),
        Step::Post { sem, sync } => ("post", vec![i64::from(sem.0), i64::from(sync)]),
        Step::Send { queue, handler } => ("send", vec![i64::from(queue.0), i64::from(handler.0)]),
        Step::Receive { queue, .. } => ("receive", vec![i64::from(queue.0)]),
        Step::Put { buffer } => ("put", vec![i64::from(buffer.0)]),
        Step::Take { buffer } => ("take", vec![i64::from(buffer.0)]),
        Step::Acquire { lock } => ("acquire", vec![i64::from(lock.0)]),
        Step::Release { lock } => ("release", vec![i64::from(lock.0)]),
        Step::Contend { lock, ns, ready } => ("contend", vec![i64::from(lock.0), ns, i64::from(ready)]),
        Step::Barrier { barrier } => ("barrier", vec![i64::from(barrier.0)]),
        Step::Yield => ("yield", Vec::new()),
        Step::Spin { sem, ns, turns } => {
            ("spin", vec![i64::from(sem.0), ns, if turns == u32::MAX { -1 } else { i64::from(turns) }])
        }
        Step::Fork { child, how } => {
            let how = match how {
                Fork::Fork => 0,
                Fork::Vfork => 1,
                Fork::Thread => 2,
            };
            ("fork", vec![i64::from(child.0), how])
        }
        Step::Exec => ("exec", Vec::new()),
        Step::SetAttrs { attrs } => ("attrs", vec![i64::from(attrs) + 1]),
        Step::Place { cpu } => ("place", vec![i64::from(cpu)]),
        Step::Exiting => ("exiting", Vec::new()),
        Step::Exit => ("exit", Vec::new()),
        Step::Goto { step } => ("goto", vec![i64::from(step)]),
        Step::LoopUntil { step, until } => ("loop_until", vec![i64::from(step), until]),
    }
}
