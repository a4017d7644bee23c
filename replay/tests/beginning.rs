//! How a replay begins: with whoever had the CPU when the recording began.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tracekit_replay::cost::Costs;
use tracekit_replay::engine::{Engine, Machine, Stack};
use tracekit_replay::policy::{Dequeue, Enqueue, Kernel, Policy, Stop};
use tracekit_replay::program::{Program, Step, Workload};
use tracekit_replay::task::{Cpu, TaskId};

/// What happened: task, clock and time.
type Seen = Rc<RefCell<Vec<(u32, i64, i64)>>>;

/// First come, first served; notes when tasks start and stop to run.
#[derive(Default)]
struct Notes {
    queue: VecDeque<TaskId>,
    seen: Seen,
}

impl Policy for Notes {
    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Enqueue) {
        self.queue.push_back(t);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queue.retain(|q| *q != t);
    }

    fn dispatch(&mut self, _k: &mut Kernel, _cpu: Cpu) -> Option<TaskId> {
        self.queue.pop_front()
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.seen.borrow_mut().push((t.0, k.clock(cpu), k.now()));
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Stop) {
        self.seen.borrow_mut().push((t.0, k.clock(cpu), k.now()));
    }
}

#[test]
fn who_runs_at_the_start_is_there_already_and_owes_what_it_ran_before() {
    let run = vec![Step::Run { ns: 50_000 }];
    let tasks =
        vec![Program::new("ready", 1, run.clone()), Program { on: Some(7_000), ..Program::new("runs", 2, run) }];
    let machine = Machine { costs: Costs { switch: 10_000, record: 8_000, ..Costs::default() }, ..Machine::default() };
    let policy = Notes::default();
    let seen = Rc::clone(&policy.seen);
    let work = Workload { tasks, ..Workload::default() };
    Engine::new(work, &machine, Stack::single(Box::new(policy))).unwrap().run(&mut |_| true).unwrap();
    // The second needs no switch; the first pays for its own.
    assert_eq!(*seen.borrow(), [(1, -7_000, 0), (1, 50_000, 50_000), (0, 50_000, 50_000), (0, 110_000, 110_000)]);
}

#[test]
fn the_workload_comes_back_as_it_was() {
    let steps = vec![Step::Run { ns: 50_000 }, Step::Yield, Step::Run { ns: 20_000 }];
    let work = Workload {
        tasks: vec![Program::new("a", 1, steps.clone()), Program::new("b", 2, steps)],
        ..Workload::default()
    };
    let stack = Stack::single(Box::new(Notes::default()));
    let run = Engine::new(work.clone(), &Machine::default(), stack).unwrap().run(&mut |_| true).unwrap();
    assert_eq!(run.work, work);
}
