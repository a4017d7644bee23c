//! The policies. Adding one takes one file, one line and one fixture:
//!
//! 1. `policies/<name>.rs` (`-` becomes `_`): a struct that implements [`Policy`], and a `pub const
//!    INFO: PolicyInfo` with its idea, formula, tie-break, parameters, what is not modelled, and
//!    sources. That text *is* the documentation: `tracekit policies show NAME` and the docs page
//!    print it.
//! 2. One line in [`POLICIES`].
//! 3. `fixtures/policies/<name>.md`: prose and fenced `workload` blocks with the expected timeline
//!    (language: [`crate::workload`]). A test fails when it is missing; every block is executed.
//!
//! Conformance tests (`replay/tests/conformance.rs`) run over every row: no task lost, none on two
//! CPUs, CPU time conserved, affinity kept, same input same bytes.
//!
//! What to know when writing one:
//!
//! * Keep per-task data in a [`TaskMap`](crate::queue::TaskMap), made in `init_task`; queues are in
//!   [`crate::queue`] (FIFO lists, priority levels with a bitmap, ordered by key), all O(1) or
//!   O(log n) and free of allocation.
//! * Charge by [`Kernel::clock`](crate::policy::Kernel::clock), at `running`, `stopping`, `tick`
//!   and wherever the modelled scheduler does. A scheduler that samples charges whole ticks in
//!   `tick`.
//! * `enqueue(Initial)` is a task that was there before the replay: neither credit nor fork debt.
//! * Real-time tasks (SCHED_FIFO, SCHED_RR) never reach a policy whose row says `rt_above`: the
//!   engine runs them in a class above it.
//! * Name in `reads` each attribute of tasks that the policy looks at; a test holds that against its
//!   source.
//! * Decide about preemption in `wakeup_preempt` (same class only), `tick`, `slice_expired`; ask by
//!   `k.resched(cpu)`.
//! * With several CPUs: `select_cpu` places wakeups, `dispatch` may return a task queued elsewhere
//!   (stealing by an idle CPU), `tick` may move queued tasks with `k.migrate`.
//! * Work that costs simulated time per task looked at: `k.scanned(cpu, n)`.
//! * Let literate specs see inside: `inspect` (per task) and `counters`.

pub mod aix;
pub mod bfs;
pub mod bsd4;
pub mod cfs;
pub mod deadline;
pub mod eevdf;
pub mod fifo;
pub mod goodness;
pub mod kernels;
pub mod linux;
pub mod lottery;
pub mod mlfq;
pub mod nt4;
pub mod o1;
pub mod rr;
pub mod rt;
pub mod scx_simple;
pub mod solaris_ts;
pub mod srpt;
pub mod stride;
pub mod ule;
pub mod weights;

use crate::classes::Reads;
use crate::engine::{Layer, Stack};
use crate::near;
use crate::params::{Param, ParamError, Params};
use crate::policy::Policy;
use crate::program::{Program, Workload};
use crate::task::SchedPolicy;

/// The form of `cfs` that is younger than SCHED_DEADLINE.
const CFS_6_1: i64 = 3;

/// A row of [`POLICIES`]: everything there is to know about a policy.
#[derive(Clone, Copy)]
pub struct PolicyInfo {
    /// Name, as in `--policy`.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// The idea, in a few sentences.
    pub idea: &'static str,
    /// The rule, as formulas.
    pub formula: &'static str,
    /// How ties are broken.
    pub tie_break: &'static str,
    /// What the real scheduler does and this does not.
    pub not_modelled: &'static str,
    /// Where the rules come from.
    pub sources: &'static str,
    /// Parameters.
    pub params: &'static [Param],
    /// True: SCHED_FIFO and SCHED_RR tasks run in a class above this policy, as on the system it comes from.
    pub rt_above: bool,
    /// True: tasks with a reservation run in a class above that: Linux since 3.14, and policies that
    /// take the place of its fair class.
    pub deadline_above: bool,
    /// The fields of [`crate::task::Attrs`] that the policy looks at, but for the CPUs. What is set
    /// of another changes nothing, and is refused.
    pub reads: &'static [&'static str],
    /// Makes the policy; the error is a sentence about a combination of parameters.
    pub build: fn(&Params) -> Result<Box<dyn Policy>, String>,
}

/// Every policy, by name.
pub const POLICIES: &[PolicyInfo] = &[
    bsd4::INFO,
    aix::INFO,
    bfs::INFO,
    cfs::INFO,
    deadline::INFO,
    eevdf::INFO,
    fifo::INFO,
    goodness::INFO,
    lottery::INFO,
    mlfq::INFO,
    nt4::INFO,
    o1::INFO,
    rr::INFO,
    rt::INFO,
    scx_simple::INFO,
    solaris_ts::INFO,
    srpt::INFO,
    stride::INFO,
    ule::INFO,
];

/// Other names, and the rows that they stand for.
pub const ALIASES: &[(&str, &str)] = &[("fcfs", "fifo")];

/// The row with this name.
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    let name = ALIASES.iter().find(|a| a.0 == name).map_or(name, |a| a.1);
    POLICIES.iter().find(|p| p.name == name)
}

/// A stack of `policy` with the real-time class above it, as on Linux.
pub fn below_rt(policy: Box<dyn Policy>) -> Result<Stack, ParamError> {
    Ok(Stack::single(policy).above(Layer::Rt, PolicySpec::parse("rt")?.policy()?).with_reservations())
}

/// Puts the class of SCHED_DEADLINE on top where the system has it and one of these tasks asks for it.
pub(crate) fn with_deadline(stack: Stack, work: &Workload) -> Result<Stack, ParamError> {
    let asks = |p: &Program| p.attrs.iter().chain([&p.first]).any(|a| a.policy == SchedPolicy::Deadline);
    if !stack.reservations || !work.tasks.iter().any(asks) {
        return Ok(stack);
    }
    Ok(stack.above(Layer::Deadline, PolicySpec::parse("deadline")?.policy()?))
}

/// A policy with checked parameters.
#[derive(Clone)]
pub struct PolicySpec {
    /// Its row.
    pub info: &'static PolicyInfo,
    /// Its parameters.
    pub params: Params,
}

impl PolicySpec {
    /// Reads `name` or `name:param=value,param=value`; the name may be that of a kernel, `linux-6.12`.
    pub fn parse(text: &str) -> Result<Self, ParamError> {
        let text = &kernels::expand(text)?;
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        let info = find(name).ok_or_else(|| {
            let names: Vec<&str> = POLICIES.iter().map(|p| p.name).collect();
            ParamError(format!(
                "no policy {name}; {}, and linux-VERSION",
                near::valid(near::nearest(name, &names), &names)
            ))
        })?;
        let params = Params::parse(info.name, info.params, rest)?;
        (info.build)(&params).map_err(|e| ParamError(format!("policy {name}: {e}")))?;
        Ok(PolicySpec { info, params })
    }

    /// The scheduling classes of a replay under this policy: real time above it where the row says so.
    pub fn stack(&self) -> Result<Stack, ParamError> {
        self.stack_under(None)
    }

    /// The same with `above`, where given, for real time. That class follows the rules of the kernel that
    /// this policy is of, where `above` does not say which.
    pub fn stack_under(&self, above: Option<&PolicySpec>) -> Result<Stack, ParamError> {
        let mut stack = Stack::single(self.policy()?);
        stack.reads = Some(Reads { policy: self.info.name, of_main: self.info.reads });
        if self.reserves() {
            stack = stack.with_reservations();
        }
        let of_kernel = PolicySpec::parse("rt")?;
        let Some(above) = above.or(self.info.rt_above.then_some(&of_kernel)) else { return Ok(stack) };
        let mut above = above.clone();
        if above.info.name == rt::INFO.name && !above.params.given("version") {
            above.params = above.params.of_form(rt::INFO.params, self.rt_version());
        }
        Ok(stack.above(Layer::Rt, above.policy()?))
    }

    /// Whether tasks with a reservation run in a class above this policy.
    fn reserves(&self) -> bool {
        let old = self.info.name == "cfs" && self.params.int("form") != CFS_6_1;
        self.info.deadline_above && !old
    }

    /// The newest kernel that the real-time class knows and that is not newer than the one that this
    /// policy is of.
    fn rt_version(&self) -> &'static str {
        match self.info.name {
            "eevdf" => ["6.1", "6.12", "6.12", "7.3"][self.params.int("version") as usize],
            _ => "6.1",
        }
    }

    fn policy(&self) -> Result<Box<dyn Policy>, ParamError> {
        (self.info.build)(&self.params).map_err(|e| ParamError(format!("policy {}: {e}", self.info.name)))
    }

    /// The policy with all its parameters, as written in metadata.
    pub fn show(&self) -> String {
        let params = self.params.show(self.info.params).to_string();
        if params.is_empty() {
            self.info.name.to_owned()
        } else {
            format!("{}:{params}", self.info.name)
        }
    }
}
