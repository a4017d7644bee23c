//! Workloads as text: what tasks do, under which policy, and the timeline that must come out.
//!
//! ```text
//! policy: rr:quantum=2ms
//! A: R5
//! B: R3
//! C nice=5 start=1: (R1 S3)*
//! until: 9
//! expect: A[0,2) B[2,4) C[4,5) ...
//! ```
//!
//! Lines begin with a key (lower case) or a task (upper case). Numbers without unit are
//! milliseconds, or multiples of `unit`. `#` begins a comment.
//!
//! | key | meaning |
//! |---|---|
//! | `policy: NAME:param=value,...` | the policy; may be repeated, to put a class above: `policy rt: rt:slice=20ms` |
//! | `cpus: N`, `hz: N` | the machine; defaults 1 and 1000 |
//! | `phase: T,T,...` | time of the first tick, per CPU |
//! | `capacity: N,N,...` | capacity per CPU, 1024 for full speed; the last for all further ones |
//! | `khz CPU: T KHZ, T KHZ, ...` | frequency of a CPU from each time on; the first holds before, the highest is full speed |
//! | `timers: hr` or `tick` | when sleeps end |
//! | `kernel: preempt` or `nopreempt` | may `K` steps be preempted |
//! | `costs: switch=T fork=list:T/T ...` | what scheduling costs: [`crate::cost::COST_KEYS`] |
//! | `buffer pipe: capacity=16 write=1 read=4 room=1 holds=0` | units that a buffer has room for (`max`: any number), that are written and read at once, for which there is room again when those who wait for it are woken, that are in it at the start |
//! | `unit: T` | what plain numbers count |
//! | `until: T` | the end |
//! | `seed: N` | for times that are drawn; default 1 |
//! | `values NAME: T T ...` | recorded times, which `R~NAME` draws from and `arrivals=NAME` takes in order |
//! | `expect: A[0,11) B[11,22) ...` | timeline of CPU 0, exact; `...` at the end: only so far. `expect@1:` is CPU 1 |
//! | `tolerance: T` | how far each bound of the timeline may be off |
//! | `run: A=75 B=25±1` | CPU time of tasks |
//! | `share: A=66%±1` | share of all CPU time used, in per cent |
//! | `end: A=85±5%` | when tasks end |
//! | `switches: 12±1` | times that another task was put on a CPU, over all CPUs |
//! | `slice: H*=9±1%` | mean stay on a CPU, over all tasks whose name fits |
//! | `state: A.vruntime=76.418ms A.counter=5` | value that the policy keeps; times with their unit |
//! | `count: recalcs=4` | what the policy counted |
//!
//! A task line is `NAME attribute=value ... : steps`; `NAME*16` makes 16 tasks `NAME0` to `NAME15`.
//! Attributes are those of [`crate::task::ATTR_KEYS`], `start=T`, and `start=fork` for a task that
//! another makes. `Q*100 arrivals=~exp(5): ...` makes 100 tasks that come one after another: with
//! gaps that are drawn (a Poisson process), with the recorded gaps `values` in order
//! (`arrivals=NAME`), or evenly (`arrivals=5`).
//!
//! A false expectation fails wherever a text is run under its own policy.
//!
//! | step | meaning |
//! |---|---|
//! | `R5` `R∞` `Rinf` | run |
//! | `K5` | run in the kernel |
//! | `S30` `S30~50us` | sleep on a timer, with slack |
//! | `S@30` `S@30~50us` | sleep until the task's own periodic timer expires: 30 after its last expiry, the first time 30 from now; late, it goes on at once, once for each |
//! | `S@30/merge` `S@30/skip` | late, it goes on at once for all that came since it ran (a timerfd), or waits for the next |
//! | `D3` | uninterruptible sleep for a device |
//! | `E3` | sleep for something outside |
//! | `U40` | sleep until time 40 |
//! | `W(x)` `P(x)` `Psync(x)` | wait for, post to semaphore x; a synchronous post |
//! | `B(x,1us,32)` | busy-wait until a task waits for semaphore x: 1 us and a yield a turn; sleep after 32 turns (without a number: never) |
//! | `I(pipe)` `O(pipe)` | put a unit into a buffer, take one out; sleep where there is no room, or none |
//! | `L(m)` `G(m)` | take a lock, let go of it |
//! | `H(m,20us)` | come to a lock that is held where another task that asks for it runs now: sleep until that one has run for 20 us more; `H(m,20us,ready)`: or where one is ready |
//! | `J(b)` | come to a barrier: sleep until all who come to it are there; the last of them wakes the others |
//! | `Y` | yield |
//! | `F(Child)` `V(Child)` `T(Child)` | fork, vfork, make a thread |
//! | `X` | exec |
//! | `Q` | begin to exit |
//! | `Z` | exit |
//! | `N(nice=5)` | change own attributes |
//! | `A(web)` | receive a request from the queue `web`, and do what it asks for; `Server*4: (A(web))*` is a pool of four |
//! | `C(web: R2 D5)` | call: put a request with these steps into the queue, and wait until it is done |
//! | `M(web: R2)` | the same without waiting |
//! | `(R1 S30)*` `(R1 S30)*5` | for ever; five times |
//!
//! A time can be drawn: `R~exp(5)` (mean), `R~uniform(1,3)`, `R~normal(5,1)`, `R~lognormal(5,2)`
//! (mean and standard deviation), and likewise behind `K`, `S`, `D` and `E`, and in
//! `start=~uniform(0,9)`; `R~NAME` draws from recorded times. Each task, and each round of a loop,
//! has draws of its own; a loop for ever repeats after [`ROUNDS`] rounds. The same `seed` gives the
//! same draws.
//!
//! A step `F(C)` in a counted loop makes a task of its own each time: `C`, then `C.1`, `C.2` and so
//! on, with the same steps.

mod check;
mod draw;
mod exchange;
mod listing;
mod parse;
mod stated;

pub use check::{timeline, Span};
pub use listing::{listing, Listed, ListedAttrs, ListedStep};
pub use parse::{ParseError, ROUNDS};

use tracekit_schema::Out;

use crate::emit::{self, Records};
use crate::engine::{Engine, EngineError, Machine, Run, Stack};
use crate::policies::{with_deadline, PolicySpec};
use crate::program::Workload;
use crate::rates::Rates;
use crate::replay::Played;
use crate::task::Ns;

/// A workload read from text.
#[derive(Clone)]
pub struct Scenario {
    /// Policy of the main class.
    pub policy: PolicySpec,
    /// Real-time class with parameters of its own, where given.
    pub rt: Option<PolicySpec>,
    /// The machine.
    pub machine: Machine,
    /// Capacities and frequencies of its CPUs.
    pub(crate) rates: Rates,
    /// The tasks.
    pub work: Workload,
    /// What must come out.
    pub(crate) expect: Vec<check::Expect>,
    /// The seed of the times that are drawn.
    pub seed: u64,
    /// Some times are drawn.
    pub drawn: bool,
}

/// Reads a scenario. `policy` replaces the one in the text, and is needed where the text has none.
pub fn parse(text: &str, policy: Option<&str>) -> Result<Scenario, ParseError> {
    parse::scenario(text, policy, None)
}

/// The same with this seed, whatever the text says.
pub fn parse_seeded(text: &str, policy: Option<&str>, seed: Option<u64>) -> Result<Scenario, ParseError> {
    parse::scenario(text, policy, seed)
}

impl Scenario {
    /// Runs it.
    pub fn run(&self) -> Result<Run, EngineError> {
        self.run_under(self.stack()?, &mut |_| true)
    }

    /// Its own scheduling classes.
    fn stack(&self) -> Result<Stack, EngineError> {
        let stack = self.policy.stack_under(self.rt.as_ref());
        stack.and_then(|stack| with_deadline(stack, &self.work)).map_err(|e| EngineError(e.0))
    }

    /// Runs it under other scheduling classes than its own. `progress` is as for [`Engine::run`].
    pub fn run_under(&self, stack: Stack, progress: &mut dyn FnMut(Ns) -> bool) -> Result<Run, EngineError> {
        let mut engine = Engine::new(self.work.clone(), &self.machine, stack)?;
        check::ask(&self.expect, &mut engine, &self.work);
        engine.run(progress)
    }

    /// What a run leaves, as a replay does.
    fn played(&self, mut run: Run, policy: &str) -> Played {
        let mut out = Out::new();
        emit::describe(&mut out, policy, self.machine.cpus, self.machine.hz);
        let records = Records::of(&mut run, self.machine.cpus, &[], 0);
        emit::report(&mut out, &run);
        Played { out, records, counts: run.counts, counters: run.counters, policy: policy.to_owned() }
    }

    /// Compares a run with what the text expects; one sentence per difference.
    pub fn check(&self, run: &Run) -> Vec<String> {
        check::compare(&self.expect, run, self.machine.cpus)
    }

    /// True when the text expects anything.
    pub fn expects(&self) -> bool {
        !self.expect.is_empty()
    }
}

/// Runs a workload text and gives its events, as a replay does. `progress` is as for [`Engine::run`].
pub fn run_text(text: &str, policy: Option<&str>, progress: &mut dyn FnMut(Ns) -> bool) -> Result<Out, String> {
    run_seeded(text, policy, None, progress).map(|run| run.whole().out)
}

/// The same with this seed, whatever the text says, and without making the events.
pub fn run_seeded(
    text: &str,
    policy: Option<&str>,
    seed: Option<u64>,
    progress: &mut dyn FnMut(Ns) -> bool,
) -> Result<Played, String> {
    let scenario = parse_seeded(text, policy, seed).map_err(|e| e.to_string())?;
    let run = scenario.stack().and_then(|stack| scenario.run_under(stack, progress)).map_err(|e| e.to_string())?;
    // What a text expects, it expects of its own policy, and of its own draws.
    if policy.is_none() && (seed.is_none() || !scenario.drawn) {
        let wrong = scenario.check(&run);
        if !wrong.is_empty() {
            return Err(format!("the run is not what the text expects: {}", wrong.join("; ")));
        }
    }
    Ok(scenario.played(run, &scenario.policy.show()))
}

/// Runs a workload text under the given scheduling classes, which are called `policy`; its own
/// policy is not looked at.
pub fn run_text_under(
    text: &str,
    stack: Stack,
    policy: &str,
    seed: Option<u64>,
    progress: &mut dyn FnMut(Ns) -> bool,
) -> Result<Played, String> {
    let scenario = parse_seeded(text, Some("fifo"), seed).map_err(|e| e.to_string())?;
    let run = scenario.run_under(stack, progress).map_err(|e| e.to_string())?;
    Ok(scenario.played(run, policy))
}

/// The fenced `workload` blocks of a literate spec, with the line on which each begins.
pub fn blocks(markdown: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (i, line) in markdown.lines().enumerate() {
        let fence = line.trim_start();
        match &mut open {
            Some(_) if fence.starts_with("```") => found.extend(open.take()),
            Some((_, text)) => {
                text.push_str(line);
                text.push('\n');
            }
            None if fence.trim_end() == "```workload" => open = Some((i + 2, String::new())),
            None => {}
        }
    }
    found
}
