//! What push and pull between CPUs are for: whoever matters more runs first, on whatever CPU.

use proptest::prelude::*;
use tracekit_replay::engine::{Engine, Machine, Run};
use tracekit_replay::log::{left, RecKind, IDLE};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::program::{Pause, Program, SemId, Start, Step, Workload};
use tracekit_replay::task::{Attrs, SchedPolicy, Sleep};

const MS: i64 = 1_000_000;

fn run(rt: &str, work: &Workload, cpus: usize) -> Run {
    let rt = PolicySpec::parse(rt).unwrap();
    let stack = PolicySpec::parse("eevdf").unwrap().stack_under(Some(&rt)).unwrap();
    let machine = Machine { cpus, until: 3600 * 1000 * MS, ..Machine::default() };
    Engine::new(work.clone(), &machine, stack).unwrap().run(&mut |_| true).unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    let sleep = Sleep::Interruptible;
    prop_oneof![
        4 => (1..8 * MS).prop_map(|ns| Step::Run { ns }),
        3 => (1..20 * MS).prop_map(move |ns| Step::Pause { pause: Pause::Timer { ns, slack: 0 }, sleep }),
        1 => (1..20 * MS).prop_map(move |ns| Step::Pause { pause: Pause::Io { ns }, sleep }),
        1 => Just(Step::Yield),
    ]
}

/// Tasks of a few priorities, others of the fair class, and one that wakes several at once.
fn workload() -> impl Strategy<Value = Workload> {
    let task = (0..6i32, any::<bool>(), prop::collection::vec(step(), 1..15), 0..30 * MS);
    (prop::collection::vec(task, 2..14), 0..6i32, 0..8usize).prop_map(|(tasks, waker, woken)| {
        let attrs = |prio: i32, rr| match prio {
            0 => Attrs::default(),
            _ if rr => Attrs { policy: SchedPolicy::Rr, rt_prio: prio, ..Attrs::default() },
            _ => Attrs { policy: SchedPolicy::Fifo, rt_prio: prio, ..Attrs::default() },
        };
        let mut work = Workload { sems: vec![0], ..Workload::default() };
        for (i, (prio, rr, mut steps, start)) in tasks.into_iter().enumerate() {
            if i < woken {
                steps.insert(0, Step::Wait { sem: SemId(0), sleep: Sleep::Interruptible });
            }
            let mut p = Program::new(format!("T{i}"), i as i64 + 1, steps);
            p.first = attrs(prio, rr);
            p.start = Start::At(start);
            work.tasks.push(p);
        }
        let mut steps = vec![Step::Run { ns: 40 * MS }];
        steps.extend([Step::Post { sem: SemId(0), sync: false }].repeat(woken));
        let mut p = Program::new("waker", 100, steps);
        p.first = attrs(waker, false);
        work.tasks.push(p);
        work
    })
}

/// At the end of each instant: nobody waits who matters more than somebody who runs.
fn best_first(name: &str, work: &Workload, cpus: usize, run: &Run) -> Result<(), TestCaseError> {
    let prio = |t: u32| if t == IDLE { 0 } else { work.tasks[t as usize].first.rt_prio };
    let mut on = vec![IDLE; cpus];
    let mut waits = vec![false; work.tasks.len()];
    for (i, rec) in run.log.recs.iter().enumerate() {
        match rec.kind {
            RecKind::Switch => {
                if rec.a != IDLE {
                    waits[rec.a as usize] = [left::PREEMPTED, left::YIELDED].contains(&rec.x);
                }
                if rec.b != IDLE {
                    waits[rec.b as usize] = false;
                }
                on[rec.cpu as usize] = rec.b;
            }
            RecKind::Wake | RecKind::Initial => waits[rec.a as usize] = true,
            _ => {}
        }
        if run.log.recs.get(i + 1).is_some_and(|next| next.ts > rec.ts) {
            let least = on.iter().map(|&t| prio(t)).min().unwrap_or(0);
            let most = (0..waits.len()).filter(|&t| waits[t]).map(|t| prio(t as u32)).max().unwrap_or(0);
            prop_assert!(most <= least, "{}: priority {} waits at {} while {} runs", name, most, rec.ts, least);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_waits_who_matters_more_than_somebody_who_runs(work in workload(), cpus in 2..6usize) {
        for push in ["on", "off"] {
            let rt = format!("rt:throttle=off,fair_server=off,push_ipi={push}");
            best_first(&rt, &work, cpus, &run(&rt, &work, cpus))?;
        }
    }
}
