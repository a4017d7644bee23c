//! By which clock a new task is queued.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tracekit_replay::cost::Costs;
use tracekit_replay::engine::{Engine, Machine, Stack};
use tracekit_replay::policy::{Dequeue, Enqueue, Kernel, Policy};
use tracekit_replay::program::{Fork, Program, Start, Step, Workload};
use tracekit_replay::task::{Cpu, TaskId};

/// First come, first served; notes the clock and the time at which new tasks come.
#[derive(Default)]
struct Notes {
    queue: VecDeque<TaskId>,
    seen: Rc<RefCell<Vec<(i64, i64)>>>,
}

impl Policy for Notes {
    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        if why == Enqueue::Fork {
            self.seen.borrow_mut().push((k.clock(cpu), k.now()));
        }
        self.queue.push_back(t);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queue.retain(|q| *q != t);
    }

    fn dispatch(&mut self, _k: &mut Kernel, _cpu: Cpu) -> Option<TaskId> {
        self.queue.pop_front()
    }
}

#[test]
fn the_clock_of_a_new_task_is_read_before_it_is_seen_on_a_queue_but_never_goes_back() {
    let fork = |child| Step::Fork { child: TaskId(child), how: Fork::Fork };
    let parent = vec![Step::Run { ns: 50_000 }, fork(1), Step::Run { ns: 3_000 }, fork(2)];
    let child = |tid| Program { start: Start::Forked, ..Program::new("child", tid, vec![Step::Run { ns: 1_000 }]) };
    let tasks = vec![Program::new("parent", 1, parent), child(2), child(3)];
    let machine = Machine { costs: Costs { fork_clock: 7_000, ..Costs::default() }, ..Machine::default() };
    let policy = Notes::default();
    let seen = Rc::clone(&policy.seen);
    let work = Workload { tasks, ..Workload::default() };
    Engine::new(work, &machine, Stack::single(Box::new(policy))).unwrap().run(&mut |_| true).unwrap();
    assert_eq!(*seen.borrow(), [(43_000, 50_000), (46_000, 53_000)]);
}
