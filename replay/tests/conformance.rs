//! What must hold for every registered policy, whatever it decides. Random workloads, all rows of
//! the registry.

use proptest::prelude::*;
use tracekit_replay::emit::{describe, Records};
use tracekit_replay::engine::{Engine, Machine, Run};
use tracekit_replay::log::{RecKind, IDLE};
use tracekit_replay::policies::{PolicyInfo, PolicySpec, POLICIES};
use tracekit_replay::program::{Fork, Group, Pause, Program, SemId, Start, Step, Workload};
use tracekit_replay::task::{Attrs, CpuSet, SchedPolicy, Sleep, TaskId, TaskState};
use tracekit_schema::derive::{DeriveOptions, Deriver};
use tracekit_schema::table::Table;
use tracekit_schema::Out;

const MS: i64 = 1_000_000;

fn run(info: &PolicyInfo, work: &Workload, machine: &Machine) -> Run {
    run_as(info.name, work, machine)
}

fn run_as(policy: &str, work: &Workload, machine: &Machine) -> Run {
    let spec = PolicySpec::parse(policy).unwrap();
    let engine = Engine::new(work.clone(), machine, spec.stack().unwrap()).unwrap();
    engine.run(&mut |_| true).unwrap_or_else(|e| panic!("{policy}: {e}"))
}

/// Total demand of a program without endless steps.
fn demand(p: &Program) -> i64 {
    p.steps.iter().map(|s| if let Step::Run { ns } | Step::RunKernel { ns } = s { *ns } else { 0 }).sum()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1..8 * MS).prop_map(|ns| Step::Run { ns }),
        1 => (1..2 * MS).prop_map(|ns| Step::RunKernel { ns }),
        3 => (0..20 * MS, 0..100_000u32)
            .prop_map(|(ns, slack)| Step::Pause { pause: Pause::Timer { ns, slack }, sleep: Sleep::Interruptible }),
        1 => (0..20 * MS).prop_map(|ns| Step::Pause { pause: Pause::Io { ns }, sleep: Sleep::Uninterruptible }),
        1 => (0..200 * MS).prop_map(|at| Step::Pause { pause: Pause::At { at }, sleep: Sleep::Interruptible }),
        1 => Just(Step::Yield),
        1 => Just(Step::Exec),
    ]
}

fn attrs() -> impl Strategy<Value = Attrs> {
    (-20..20i32, 0..10u32, 1..99i32, 0..6usize, 0..6u32).prop_map(|(nice, class, prio, pin, process)| {
        let policy = match class {
            0 => SchedPolicy::Fifo,
            1 => SchedPolicy::Rr,
            2 => SchedPolicy::Batch,
            3 => SchedPolicy::Idle,
            _ => SchedPolicy::Other,
        };
        let rt_prio = if policy.is_rt() { prio } else { 0 };
        let affinity = if pin < 2 { CpuSet::of(&[pin]) } else { CpuSet::all() };
        let (kernel, process) = (process == 5, (process < 3).then_some(process));
        Attrs { policy, nice, rt_prio, affinity, kernel, process, ..Attrs::default() }
    })
}

/// Tasks that run, sleep, yield, change their attributes, fork, and pairs that hand each other the
/// turn.
fn workload() -> impl Strategy<Value = Workload> {
    let task = (attrs(), prop::collection::vec(step(), 1..12), 0..50 * MS, attrs());
    (prop::collection::vec(task, 1..12), 0..3usize, 0..3usize).prop_map(|(tasks, forks, pairs)| {
        let mut work = Workload::default();
        for (i, (first, steps, start, later)) in tasks.into_iter().enumerate() {
            let mut p = Program::new(format!("T{i}"), i as i64 + 1, steps);
            p.first = first;
            p.start = Start::At(start);
            p.attrs.push(later);
            p.steps.insert(p.steps.len() / 2, Step::SetAttrs { attrs: 0 });
            work.tasks.push(p);
        }
        for i in 0..forks {
            let child = TaskId(work.tasks.len() as u32);
            let mut p = Program::new(format!("C{i}"), 1000 + i as i64, vec![Step::Run { ns: 3 * MS }, Step::Exiting]);
            p.start = Start::Forked;
            work.tasks.push(p);
            work.tasks[0].steps.insert(0, Step::Fork { child, how: [Fork::Fork, Fork::Vfork, Fork::Thread][i] });
        }
        for i in 0..pairs {
            let (ping, pong) = (SemId(work.sems.len() as u32), SemId(work.sems.len() as u32 + 1));
            work.sems.extend([0, 0]);
            let sleep = Sleep::Interruptible;
            let mut a = Vec::new();
            let mut b = Vec::new();
            for _ in 0..5 {
                a.extend([Step::Run { ns: MS }, Step::Post { sem: ping, sync: true }, Step::Wait { sem: pong, sleep }]);
                b.extend([
                    Step::Wait { sem: ping, sleep },
                    Step::Run { ns: MS / 2 },
                    Step::Post { sem: pong, sync: false },
                ]);
            }
            work.tasks.push(Program::new(format!("Ping{i}"), 2000 + i as i64, a));
            let mut b = Program::new(format!("Pong{i}"), 3000 + i as i64, b);
            b.start = Start::Asleep(0);
            work.tasks.push(b);
        }
        work
    })
}

/// The same, and now and then a step says on which CPU the task belongs from there on.
fn placed_workload() -> impl Strategy<Value = Workload> {
    let places = prop::collection::vec((0..16usize, 0..14usize, 0..2u32), 1..20);
    (workload(), places).prop_map(|(mut work, places)| {
        for (t, at, cpu) in places {
            let t = t % work.tasks.len();
            let steps = &mut work.tasks[t].steps;
            let at = at.min(steps.len());
            // Long enough for a slice to end before, and now and then just there.
            steps.splice(at..at, [Step::Run { ns: 10 * MS * (at as i64 + 1) }, Step::Place { cpu }]);
        }
        work
    })
}

fn check_invariants(info: &PolicyInfo, work: &Workload, cpus: usize, run: &Run) -> Result<(), TestCaseError> {
    check_invariants_of(info.name, work, cpus, run)
}

fn check_invariants_of(name: &str, work: &Workload, cpus: usize, run: &Run) -> Result<(), TestCaseError> {
    let mut on: Vec<u32> = vec![IDLE; cpus];
    let mut since = vec![0i64; cpus];
    let mut ran = vec![0i64; work.tasks.len()];
    let mut last = 0;
    for rec in &run.log.recs {
        prop_assert!(rec.ts >= last, "{name}: time runs backwards");
        last = rec.ts;
        if rec.kind != RecKind::Switch {
            continue;
        }
        let cpu = rec.cpu as usize;
        prop_assert_eq!(rec.a, on[cpu], "{}: the task that leaves CPU {} is not the one that came", name, cpu);
        if rec.a != IDLE {
            ran[rec.a as usize] += rec.ts - since[cpu];
        }
        if rec.b != IDLE {
            prop_assert!(!on.contains(&rec.b), "{name}: task {} on two CPUs", rec.b);
        }
        on[cpu] = rec.b;
        since[cpu] = rec.ts;
    }
    for (t, p) in work.tasks.iter().enumerate() {
        prop_assert_eq!(run.states[t], TaskState::Dead, "{}: task {} ({}) is lost", name, t, &p.comm);
        prop_assert_eq!(run.ran[t], demand(p), "{}: CPU time of task {} ({})", name, t, &p.comm);
        prop_assert_eq!(ran[t], demand(p), "{}: CPU time of task {} ({}) in the log", name, t, &p.comm);
    }
    Ok(())
}

/// Affinity, from the log: attributes change at `What::Attrs` records.
fn check_affinity(info: &PolicyInfo, work: &Workload, run: &Run) -> Result<(), TestCaseError> {
    let mut allowed: Vec<&CpuSet> = work.tasks.iter().map(|p| &p.first.affinity).collect();
    for rec in &run.log.recs {
        match rec.kind {
            RecKind::Attrs => allowed[rec.a as usize] = &work.tasks[rec.a as usize].attrs[0].affinity,
            RecKind::Switch if rec.b != IDLE => prop_assert!(
                allowed[rec.b as usize].contains(rec.cpu as usize),
                "{}: task {} on CPU {}, which it may not use",
                info.name,
                rec.b,
                rec.cpu
            ),
            _ => {}
        }
    }
    Ok(())
}

/// The slices of a run's trace, wherever it is cut off, against what the engine counted.
fn check_slices(info: &PolicyInfo, work: &Workload, cpus: usize, mut run: Run) -> Result<(), TestCaseError> {
    let mut out = Out::new();
    describe(&mut out, info.name, cpus, 1000);
    Records::of(&mut run, cpus, &[], 0).all(&mut out);
    let mut deriver = Deriver::new(DeriveOptions::for_trace(&out.meta));
    deriver.push(&out.events, &out.strings, &mut out.diagnostics);
    let tables = deriver.finish(&mut out.diagnostics);
    let slices = &tables.slices;
    for (t, p) in work.tasks.iter().enumerate() {
        let own = (0..slices.len()).filter(|&i| slices.tid.get(i) == Some(p.tid));
        let sum: i64 = own.filter_map(|i| slices.dur_ns.get(i)).sum();
        prop_assert_eq!(sum, run.ran[t], "{}: slices of task {} ({})", info.name, t, &p.comm);
    }
    prop_assert_eq!(tables.cpus.len(), cpus, "{}: every CPU has a row", info.name);
    if run.counts.switches == 0 {
        // Without any switch nobody can say that the CPUs were idle.
        return Ok(());
    }
    for i in 0..cpus {
        let spent = [&tables.cpus.busy_ns, &tables.cpus.idle_ns].map(|c| c.get(i).unwrap_or(0));
        prop_assert_eq!(spent.iter().sum::<i64>(), run.counts.end, "{}: CPU {} until the end", info.name, i);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_made_up(work in workload(), cpus in 1..5usize, hz in prop::sample::select(vec![100i64, 250, 1000])) {
        // Pins name CPUs 0 and 1.
        let cpus = cpus.max(2);
        let machine = Machine { cpus, hz, until: 3600 * 1000 * MS, ..Machine::default() };
        for info in POLICIES {
            let first = run(info, &work, &machine);
            check_invariants(info, &work, cpus, &first)?;
            check_affinity(info, &work, &first)?;
            let again = run(info, &work, &machine);
            prop_assert_eq!(&first.log.recs, &again.log.recs, "{}: same input, other output", info.name);
        }
    }

    #[test]
    fn tasks_that_are_placed_anew_keep_their_work(work in placed_workload(), cpus in 2..5usize) {
        let machine = Machine { cpus, until: 3600 * 1000 * MS, ..Machine::default() };
        for info in POLICIES {
            check_invariants(info, &work, cpus, &run(info, &work, &machine))?;
        }
    }

    /// A queue of a group must know that its running task has gone to another CPU.
    #[test]
    fn groups_keep_their_work_when_tasks_are_placed_anew(work in placed_workload(), cpus in 2..5usize, of in prop::collection::vec(0..3usize, 20)) {
        let mut work = work;
        work.groups = ["a", "b", "b/c"].map(Group::new).to_vec();
        for (p, of) in work.tasks.iter_mut().zip(of.iter().cycle()) {
            let group: Option<std::sync::Arc<str>> = ["a", "b", "b/c"].get(*of).map(|name| (*name).into());
            p.first.group.clone_from(&group);
            p.attrs.iter_mut().for_each(|a| a.group.clone_from(&group));
        }
        let machine = Machine { cpus, until: 3600 * 1000 * MS, ..Machine::default() };
        for policy in ["cfs", "eevdf:version=6.6", "eevdf:version=6.12", "eevdf:version=6.18", "eevdf:version=7.3"] {
            check_invariants_of(policy, &work, cpus, &run_as(policy, &work, &machine))?;
        }
    }

    #[test]
    fn slices_cover_the_run_to_its_end(work in workload(), cpus in 2..5usize, until in MS..200 * MS) {
        let machine = Machine { cpus, until, ..Machine::default() };
        for info in POLICIES {
            check_slices(info, &work, cpus, run(info, &work, &machine))?;
        }
    }

    /// Builds with assertions (these tests) hold each choice of `goodness` against the kernel's
    /// walk over the list.
    #[test]
    fn goodness_chooses_what_its_walk_would(work in workload(), cpus in 2..5usize) {
        let machine = Machine { cpus, hz: 100, until: 3600 * 1000 * MS, ..Machine::default() };
        for version in ["2.0", "2.2", "2.4", "2.4,penalty=3"] {
            let run = run_as(&format!("goodness:version={version}"), &work, &machine);
            prop_assert!(run.counters.iter().any(|c| c.0 == "schedules" && c.1 > 0));
        }
    }

    #[test]
    fn one_cpu_conserves_work(work in workload(), phase in 0..MS) {
        let mut work = work;
        for p in &mut work.tasks {
            p.first.affinity = CpuSet::all();
            p.attrs.iter_mut().for_each(|a| a.affinity = CpuSet::all());
        }
        let machine = Machine { tick_phase: vec![phase], until: 3600 * 1000 * MS, ..Machine::default() };
        for info in POLICIES {
            let run = run(info, &work, &machine);
            check_invariants(info, &work, 1, &run)?;
        }
    }
}

#[test]
fn a_single_hog_is_switched_to_once() {
    let work =
        Workload { tasks: vec![Program::new("hog", 1, vec![Step::Run { ns: i64::MAX }])], ..Workload::default() };
    for info in POLICIES {
        let run = run(info, &work, &Machine { until: 5000 * MS, ..Machine::default() });
        assert_eq!(run.counts.switches, 1, "{}", info.name);
        assert_eq!(run.ran[0], 5000 * MS, "{}", info.name);
    }
}

/// Other work that leaves gaps does not change how much of it gets done: hog and sleeper share one
/// CPU without idle time.
#[test]
fn a_policy_that_refuses_the_workload_ends_the_run_before_it_begins() {
    let mut work = Workload::default();
    work.groups.push(Group::new("/a"));
    work.tasks.push(Program::new("t", 1, vec![Step::Run { ns: MS }]));
    work.tasks[0].first.group = Some("/a".into());
    let spec = PolicySpec::parse("cfs:form=2.6.29").unwrap();
    let machine = Machine { until: 10 * MS, ..Machine::default() };
    let error = Engine::new(work, &machine, spec.stack().unwrap()).unwrap().run(&mut |_| true).unwrap_err();
    assert!(error.0.contains("groups are modelled for form=6.1 only"), "{error}");
}

#[test]
fn idle_only_when_nothing_is_runnable() {
    let hog = Program::new("hog", 1, vec![Step::Run { ns: 400 * MS }]);
    let nap = Step::Pause { pause: Pause::Timer { ns: 9 * MS, slack: 0 }, sleep: Sleep::Interruptible };
    let sleeper = Program::new("sleeper", 2, [Step::Run { ns: MS }, nap].repeat(20));
    let work = Workload { tasks: vec![hog, sleeper], ..Workload::default() };
    for info in POLICIES {
        let run = run(info, &work, &Machine { until: 3600 * 1000 * MS, ..Machine::default() });
        let mut running = false;
        let mut hog_alive = true;
        for rec in &run.log.recs {
            match rec.kind {
                RecKind::Switch => running = rec.b != IDLE,
                RecKind::Exit if rec.a == 0 => hog_alive = false,
                _ => {}
            }
            assert!(
                running || !hog_alive || rec.kind != RecKind::Switch,
                "{}: idle beside a hog at {}",
                info.name,
                rec.ts
            );
        }
        assert_eq!(run.ran, [400 * MS, 20 * MS], "{}", info.name);
    }
}

/// The numbers of tasks are names only: tasks that differ in nothing but number get the same
/// treatment by position.
#[test]
fn renumbering_tasks_renumbers_the_timeline() {
    let make = |order: &[usize]| {
        let mut tasks: Vec<Program> = Vec::new();
        for &i in order {
            let nap =
                Step::Pause { pause: Pause::Timer { ns: (3 + i as i64) * MS, slack: 0 }, sleep: Sleep::Interruptible };
            let mut p =
                Program::new(format!("T{i}"), i as i64, [Step::Run { ns: (2 * i as i64 + 1) * MS }, nap].repeat(10));
            p.start = Start::At(i as i64 * 100);
            p.first.nice = 2 * i as i32;
            p.first.tickets = Some(100 * (i as u32 + 1));
            tasks.push(p);
        }
        Workload { tasks, ..Workload::default() }
    };
    for info in POLICIES {
        let machine = Machine { until: 2000 * MS, ..Machine::default() };
        let names = |order: &[usize]| {
            let run = run(info, &make(order), &machine);
            let name = |t: u32| run.work.tasks.get(t as usize).map(|p| p.comm.clone());
            let switches = run.log.recs.iter().filter(|r| r.kind == RecKind::Switch);
            switches.map(|r| (r.ts, name(r.a), name(r.b))).collect::<Vec<_>>()
        };
        assert_eq!(names(&[0, 1, 2, 3]), names(&[3, 1, 0, 2]), "{}", info.name);
    }
}
