//! Between two system calls a task is preempted by whoever it woke in the first: it has not yet fallen
//! asleep in the second, and what the other one gives it meanwhile it finds there.

use tracekit_replay::emit::Records;
use tracekit_replay::engine::{Engine, Machine};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::program::{HandlerId, Program, QueueId, SemId, Step, Workload};
use tracekit_replay::task::{Attrs, Sleep};
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out, State};

const LOW: i64 = 1;
const ROUNDS: usize = 3;

fn attrs(prio: u8, kernel: bool) -> Attrs {
    let mut attrs = Attrs { kernel, ..Attrs::default() };
    attrs.set("policy", "fifo").expect("a policy");
    attrs.set("prio", &prio.to_string()).expect("a priority");
    attrs
}

/// A task that wakes one above it and then waits for it: how often it fell asleep, and how often it was
/// preempted. `wait` is how it waits.
fn leaves(wait: Step, kernel: bool, preempt_kernel: bool) -> (usize, usize) {
    let run = |ns| Step::Run { ns };
    let own = |sem| Step::Wait { sem: SemId(sem), sleep: Sleep::Interruptible };
    let give = match wait {
        Step::Receive { queue, .. } => Step::Send { queue, handler: HandlerId(0) },
        _ => Step::Post { sem: SemId(1), sync: false },
    };
    let low = [Step::Post { sem: SemId(0), sync: false }, wait, run(1_000_000)].repeat(ROUNDS);
    let high = [own(0), run(1_000_000), give].repeat(ROUNDS);
    let mut tasks = vec![Program::new("low", LOW, low), Program::new("high", 2, high)];
    tasks[0].first = attrs(10, kernel);
    tasks[1].first = attrs(20, false);
    let work = Workload { tasks, sems: vec![0; 2], queues: 1, handlers: vec![vec![run(1_000)]], ..Workload::default() };
    let stack = PolicySpec::parse("fifo").and_then(|p| p.stack()).expect("a policy");
    let machine = Machine { cpus: 1, until: 1_000_000_000, preempt_kernel, ..Machine::default() };
    let mut run = Engine::new(work, &machine, stack).expect("an engine").run(&mut |_| true).expect("a run");
    let mut out = Out::default();
    Records::of(&mut run, 1, &[], 1_000_000).all(&mut out);
    let e = &out.events;
    let left = |states: &[State]| {
        (0..e.len())
            .filter(|row| e.kind.get(*row) == Some(Kind::Switch) && e.tid.get(*row) == Some(LOW))
            .filter(|row| e.state.get(*row).is_some_and(|state| states.contains(&state)))
            .count()
    };
    (left(&[State::Sleeping, State::Blocked]), left(&[State::Preempted]))
}

#[test]
fn who_is_woken_preempts_before_the_next_call_sleeps() {
    let wait = |sleep| Step::Wait { sem: SemId(1), sleep };
    let receive = |sleep| Step::Receive { queue: QueueId(0), sleep };
    for step in [wait(Sleep::Interruptible), receive(Sleep::Interruptible)] {
        assert_eq!(leaves(step, false, false), (0, ROUNDS), "{step:?}");
        assert_eq!(leaves(step, true, false), (ROUNDS, 0), "a kernel thread makes no calls: {step:?}");
        assert_eq!(leaves(step, true, true), (0, ROUNDS), "but in a preemptible kernel: {step:?}");
    }
    for step in [wait(Sleep::Uninterruptible), receive(Sleep::Uninterruptible)] {
        assert_eq!(leaves(step, false, false), (ROUNDS, 0), "it is still in the same call: {step:?}");
        assert_eq!(leaves(step, false, true), (0, ROUNDS), "but in a preemptible kernel: {step:?}");
    }
}
