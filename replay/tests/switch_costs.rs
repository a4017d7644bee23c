//! Switches of tasks in another class than recorded take another time.

use tracekit_replay::cost::Costs;
use tracekit_replay::engine::{Engine, Machine, Run};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::program::{Pause, Program, Step, Workload};
use tracekit_replay::switch_costs::{Leaves, SwitchCostChange, SwitchCosts};
use tracekit_replay::task::{Attrs, SchedPolicy, Sleep};

/// Two tasks that yield to each other ten times each, in the real-time class.
fn yields(was_rt: Option<bool>, switch_costs: Option<SwitchCostChange>) -> Run {
    let steps: Vec<Step> = std::iter::repeat_n([Step::Run { ns: 1_000 }, Step::Yield], 10).flatten().collect();
    let first = Attrs { policy: SchedPolicy::Fifo, rt_prio: 10, ..Attrs::default() };
    let task = |tid| Program { first: first.clone(), was_rt, ..Program::new("yields", tid, steps.clone()) };
    let work = Workload { tasks: vec![task(1), task(2)], ..Workload::default() };
    let costs = Costs { switch: 10_000, record: 8_000, irqs_off: 8_000, ..Costs::default() };
    let machine = Machine { costs, switch_costs, ..Machine::default() };
    let stack = PolicySpec::parse("eevdf").unwrap().stack().unwrap();
    Engine::new(work, &machine, stack).unwrap().run(&mut |_| true).unwrap()
}

#[test]
fn only_tasks_in_another_class_switch_faster_or_slower() {
    let mut both = SwitchCosts::default();
    both.0[SwitchCosts::at(false, false, Leaves::Ready)] = Some(6_300);
    both.0[SwitchCosts::at(true, true, Leaves::Ready)] = Some(4_200);
    let switch_costs = Some(SwitchCostChange { recorded: both, replayed: both });
    let plain = yields(Some(false), None);
    let faster = yields(Some(false), switch_costs);
    // The last yields find nobody else and switch to nobody.
    let (n, ns) = faster.counts.shifted;
    assert!(n >= 18, "{n} switches");
    assert_eq!((ns, plain.counts.busy - faster.counts.busy), (-2_100 * n as i64, 2_100 * n as i64));
    // In the class in which they were recorded nothing changes.
    let same = yields(None, switch_costs);
    assert_eq!((same.counts.shifted, same.counts.busy), ((0, 0), plain.counts.busy));
}

#[test]
fn no_switch_takes_less_than_nothing() {
    let (mut was, mut is) = (SwitchCosts::default(), SwitchCosts::default());
    was.0[SwitchCosts::at(true, true, Leaves::Ready)] = Some(50_000);
    is.0[SwitchCosts::at(true, true, Leaves::Ready)] = Some(1_000);
    let run = yields(None, Some(SwitchCostChange { recorded: was, replayed: is }));
    // The first switch comes from the idle task, and one from a task that ends: both stay as they
    // are. Of the others only what comes behind their record is left, 2 us.
    let (shifted, ns) = run.counts.shifted;
    assert_eq!((shifted, ns), (run.counts.switches - 2, -49_000 * (run.counts.switches as i64 - 2)));
    assert_eq!(run.counts.busy, 20 * 1_000 + 2 * 10_000 + shifted as i64 * 2_000);
}

#[test]
fn a_wakeup_in_an_interrupt_has_a_way_of_its_own() {
    let run = |switch_costs| {
        let wakes = vec![Step::Pause { pause: Pause::Timer { ns: 5_000_000, slack: 0 }, sleep: Sleep::Interruptible }];
        let first = Attrs { policy: SchedPolicy::Fifo, rt_prio: 10, ..Attrs::default() };
        let sleeper = Program { first, was_rt: Some(false), ..Program::new("wakes", 1, wakes) };
        let works = Program::new("works", 2, vec![Step::Run { ns: 9_000_000 }]);
        let work = Workload { tasks: vec![sleeper, works], ..Workload::default() };
        let costs = Costs { switch: 10_000, record: 8_000, irqs_off: 8_000, ..Costs::default() };
        let machine = Machine { costs, switch_costs, ..Machine::default() };
        let stack = PolicySpec::parse("eevdf").unwrap().stack().unwrap();
        Engine::new(work, &machine, stack).unwrap().run(&mut |_| true).unwrap()
    };
    let mut both = SwitchCosts::default();
    both.0[SwitchCosts::at(false, false, Leaves::Woken)] = Some(15_300);
    both.0[SwitchCosts::at(false, true, Leaves::Woken)] = Some(13_400);
    let (plain, faster) = (run(None), run(Some(SwitchCostChange { recorded: both, replayed: both })));
    assert_eq!((faster.counts.shifted, plain.counts.busy - faster.counts.busy), ((1, -1_900), 1_900));
}
