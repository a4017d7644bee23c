//! A class above that no task can ever come into is not asked for one; one that a task comes into
//! later is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use tracekit_replay::engine::{Engine, Layer, Machine};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::policy::{Dequeue, Enqueue, Kernel, Policy};
use tracekit_replay::program::{Program, Step, Workload};
use tracekit_replay::task::{Attrs, Cpu, SchedPolicy, TaskId};

/// First in, first out, and how often it was asked for a task.
struct Asked {
    rests: bool,
    times: Arc<AtomicU64>,
    queue: Vec<TaskId>,
}

impl Policy for Asked {
    fn rests_without_tasks(&self) -> bool {
        self.rests
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Enqueue) {
        self.queue.push(t);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queue.retain(|&queued| queued != t);
    }

    fn dispatch(&mut self, _k: &mut Kernel, _cpu: Cpu) -> Option<TaskId> {
        self.times.fetch_add(1, Ordering::Relaxed);
        (!self.queue.is_empty()).then(|| self.queue.remove(0))
    }
}

fn real_time() -> Attrs {
    Attrs { policy: SchedPolicy::Fifo, rt_prio: 1, ..Attrs::default() }
}

/// How often the class for real time was asked, and what each of three tasks ran. The last of them has
/// the attributes `first`, and takes those of `later` after half of its work.
fn run(rests: bool, first: Attrs, later: Option<Attrs>) -> (u64, Vec<i64>) {
    let half = Step::Run { ns: 10_000_000 };
    let mut work = Workload::default();
    for i in 0..3 {
        work.tasks.push(Program::new(format!("t{i}"), i + 1, vec![half, half, Step::Exit]));
    }
    let last = &mut work.tasks[2];
    last.first = first;
    if let Some(later) = later {
        last.attrs.push(later);
        last.steps.insert(1, Step::SetAttrs { attrs: 0 });
    }
    let times = Arc::new(AtomicU64::new(0));
    let class = Asked { rests, times: times.clone(), queue: Vec::new() };
    let stack = PolicySpec::parse("rr:quantum=2ms").unwrap().stack().unwrap().above(Layer::Rt, Box::new(class));
    let machine = Machine { cpus: 1, hz: 1000, until: 200_000_000, ..Machine::default() };
    let run = Engine::new(work, &machine, stack).unwrap().run(&mut |_| true).unwrap();
    (times.load(Ordering::Relaxed), run.ran)
}

#[test]
fn a_class_is_asked_where_a_task_may_come_into_it() {
    let (never, ran) = run(true, Attrs::default(), None);
    let (always, same) = run(false, Attrs::default(), None);
    assert_eq!((never, ran), (0, same), "nobody is ever in it");
    assert!(always > 20, "one that may do something is asked at every dispatch: {always}");
    let all = vec![20_000_000; 3];
    for (first, later) in [(real_time(), None), (Attrs::default(), Some(real_time()))] {
        let (asked, ran) = run(true, first.clone(), later.clone());
        assert_eq!((asked, &ran), (run(false, first, later).0, &all));
        assert!(asked > 0);
    }
}
