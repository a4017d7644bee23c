//! Capacities and frequencies of CPUs: what work takes, worked out by hand, and recordings with changes.

use tracekit_replay::rates::StatedCpu;
use tracekit_replay::reconstruct::{reconstruct, Options, Placement, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, Out};

/// Runs a text that says itself what comes out.
fn holds(text: &str) {
    if let Err(why) = workload::run_text(text, None, &mut |_| true) {
        panic!("{why}\n{text}");
    }
}

#[test]
fn work_takes_twice_as_long_on_a_cpu_of_half_the_capacity() {
    holds("policy: fifo\ncpus: 2\ncapacity: 1024, 512\nA cpus=0: R10\nB cpus=1: R10\nend: A=10 B=20");
    // Half of it on each: 5 and twice 5.
    holds("policy: fifo\ncpus: 2\ncapacity: 1024, 512\nA cpus=0: R5 N(cpus=1) R5\nend: A=15");
}

#[test]
fn work_takes_the_longer_the_lower_the_frequency_is_at_its_time() {
    // Half of it at full speed, the rest at half of that.
    holds("policy: fifo\nkhz 0: 0 1000000, 5 500000\nA: R10\nend: A=15");
    // The first frequency holds before its time: 12 ms at a quarter do 3, and 7 follow.
    holds("policy: fifo\nkhz 0: 3 250000, 12 1000000\nA: R10\nend: A=19");
    // On a CPU of half the capacity: 8 ms do 4, and 6 take four times as long.
    let both = "cpus: 2\ncapacity: 1024, 512\nkhz 1: 0 1000000, 8 500000";
    holds(&format!("policy: fifo\n{both}\nA cpus=0: R10\nB cpus=1: R10\nend: A=10 B=32"));
}

#[test]
fn what_a_preempted_task_did_is_what_its_cpu_could_do() {
    // Turns of 2 ms. By 6 ms A did 4 and B 2; then each does 1 a turn: B at 8, A at 10 and so on.
    let text = "policy: rr:quantum=2ms\nkhz 0: 0 1000000, 6 500000\nA: R7\nB: R6\nend: A=18 B=20";
    holds(text);
}

#[test]
fn what_puts_work_off_puts_it_under_another_speed() {
    // 10 ms are done when the tick comes and takes 4; then 2 until the speed is half, and 8 take 16.
    holds("policy: fifo\nhz: 20\nphase: 10\ncosts: tick=4ms\nkhz 0: 0 1000000, 16 500000\nA: R20\nend: A=32");
}

#[test]
fn a_capacity_is_part_of_a_thousand_and_twenty_four() {
    for (text, why) in [
        ("capacity: 0", "expected 1 to 1024"),
        ("khz 3: 0 1000", "there are 1 CPUs"),
        ("khz 0: 0 0", "expected 1 to"),
        ("khz 0: 5 1000, 5 2000", "times that rise"),
        ("khz 0: 1000", "a time and kHz"),
    ] {
        let found = workload::run_text(&format!("policy: fifo\n{text}\nA: R1"), None, &mut |_| true);
        let message = found.err().unwrap_or_else(|| panic!("{text} is taken"));
        assert!(message.contains(why), "{text}: {message}");
    }
}

/// Two CPUs, the second of half the capacity; both change their frequency in the middle.
const TWO: &str = "
policy: rr:quantum=1ms
cpus: 2
capacity: 1024, 512
khz 0: 0 2000000, 40 1000000, 90 1500000
khz 1: 0 1000000, 55 250000
until: 150
A cpus=0: (R3 S2)*
B cpus=1: (R2 S5)*
H cpus=0: R∞
J cpus=1: (R1 Y)*
";
/// What is recorded of them.
const CHANGES: [(i64, Kind, i32, i64); 7] = [
    (0, Kind::CpuFreq, 0, 2_000_000),
    (0, Kind::CpuFreq, 1, 1_000_000),
    (1, Kind::CpuCapacity, 0, 1024),
    (1, Kind::CpuCapacity, 1, 512),
    (40_000_000, Kind::CpuFreq, 0, 1_000_000),
    (55_000_000, Kind::CpuFreq, 1, 250_000),
    (90_000_000, Kind::CpuFreq, 0, 1_500_000),
];

fn recorded(changes: &[(i64, Kind, i32, i64)]) -> Out {
    let mut out = workload::run_text(TWO, None, &mut |_| true).expect("the workload runs");
    for (at, kind, cpu, value) in changes {
        out.events.push().ts_ns(*at).cpu(0).kind(*kind).target_cpu(*cpu).value(*value).quality(0);
    }
    let mut order: Vec<u32> = (0..out.events.len() as u32).collect();
    order.sort_by_key(|r| out.events.ts_ns.get(*r as usize));
    out.events = out.events.take(&order);
    out
}

/// Time, CPU, leaving and entering thread of every switch.
fn switches(e: &Events) -> Vec<(i64, i32, i64, i64)> {
    let row = |r: usize| Some((e.ts_ns.get(r)?, e.cpu.get(r)?, e.tid.get(r)?, e.next_tid.get(r)?));
    (0..e.len()).filter(|&r| e.kind.get(r) == Some(Kind::Switch)).filter_map(row).collect()
}

fn programs(out: &Out, placement: Placement, cpus: Vec<StatedCpu>) -> Recon {
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), placement, cpus, ..Options::default() })
}

fn spec() -> ReplaySpec {
    ReplaySpec { policy: "rr:quantum=1ms".into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() }
}

#[test]
fn frequencies_hold_where_tasks_are_or_where_the_load_does_not_choose_them() {
    let out = recorded(&CHANGES);
    let model = programs(&out, Placement::Model, Vec::new());
    // Capacities hold everywhere.
    let ratio = model.speeds.time_of_one(1) / model.speeds.time_of_one(0);
    assert!((ratio - 2.0).abs() < 1e-5, "{ratio}");
    let row = |recon: &Recon| recon.inferred().into_iter().find(|r| r.name == "frequency governor").expect("a row").how;
    assert!(row(&model).contains("recorded and not used"), "{}", row(&model));
    let fixed = |cpu| StatedCpu { cpu, fixed: true, ..StatedCpu::default() };
    // One of two is not enough.
    assert_eq!(programs(&out, Placement::Model, vec![fixed(0)]).speeds, model.speeds);
    let follows = programs(&out, Placement::Model, vec![fixed(0), fixed(1)]);
    assert_eq!(follows.speeds, programs(&out, Placement::Trace, Vec::new()).speeds);
    assert!(row(&follows).contains("keeps each at its recorded time"), "{}", row(&follows));
    let khz = ReplaySpec { cpu_sets: vec![(1, vec![("khz".into(), "500000".into())])], ..spec() };
    let why = rerun(&model, &khz, &mut |_| true).expect_err("not used").to_string();
    assert!(why.contains("placement=trace"), "{why}");
}

/// CPU time of a thread on the CPU with this number.
fn time_on(events: &Events, tid: i64, cpu: i32) -> i64 {
    let (mut since, mut sum) = (None, 0);
    for (at, _, prev, next) in switches(events).into_iter().filter(|s| s.1 == cpu) {
        if prev == tid {
            sum += since.take().map_or(0, |s: i64| at - s);
        }
        if next == tid {
            since = Some(at);
        }
    }
    sum
}

#[test]
fn a_task_that_is_moved_to_the_slow_cpu_takes_twice_as_long() {
    let text = "policy: fifo\ncpus: 2\nA cpus=0: R10 S1 R10 S1 R10 S1\nB cpus=1: R1 S9 R1\n";
    let out = workload::run_text(text, None, &mut |_| true).expect("the workload runs");
    let tid = (0..out.events.len()).find_map(|r| out.events.next_tid.get(r).filter(|t| *t > 0)).expect("A");
    let slow = |cpu, capacity| StatedCpu { cpu, capacity: Some(capacity), ..StatedCpu::default() };
    let moved = |cpus: Vec<StatedCpu>, cpu_sets: Vec<(i32, Vec<(String, String)>)>| {
        let recon = programs(&out, Placement::Model, cpus);
        let to = tracekit_replay::replay::Override {
            which: tracekit_replay::replay::Which::Tids(vec![tid]),
            set: vec![("cpus".into(), "1".into())],
        };
        let replayed = rerun(&recon, &ReplaySpec { sets: vec![to], cpu_sets, ..spec() }, &mut |_| true);
        time_on(&replayed.expect("the replay runs").out.events, tid, 1)
    };
    let plain = moved(Vec::new(), Vec::new());
    let on_slow = moved(vec![slow(0, 1024), slow(1, 512)], Vec::new());
    assert!((plain - 30_000_000).abs() < 50 && (on_slow - 60_000_000).abs() < 50, "{plain} {on_slow}");
    // Asked for where nothing is known of capacities: the same.
    let asked = moved(Vec::new(), vec![(1, vec![("capacity".into(), "512".into())])]);
    assert!((asked - 60_000_000).abs() < 50, "{asked}");
    // Where all capacities are alike, none is known: a kernel says 1024 of all.
    assert_eq!(moved(vec![slow(0, 1024), slow(1, 1024)], Vec::new()), plain);
}

#[test]
fn the_highest_frequency_is_the_largest_that_anything_tells() {
    let stated = |max_khz| StatedCpu { cpu: 1, capacity: None, max_khz: Some(max_khz), ..StatedCpu::default() };
    let mut with_limit = CHANGES.to_vec();
    with_limit.push((60_000_000, Kind::CpuFreqLimits, 1, 3_000_000));
    for (changes, cpus, highest) in [
        (CHANGES.to_vec(), vec![], 1_000_000),
        (CHANGES.to_vec(), vec![stated(2_000_000)], 2_000_000),
        (CHANGES.to_vec(), vec![stated(500_000)], 1_000_000),
        (with_limit, vec![stated(2_000_000)], 3_000_000),
    ] {
        let recon = programs(&recorded(&changes), Placement::Trace, cpus);
        assert_eq!(recon.rates.cpus[1].highest, Some(highest));
        let rows: Vec<&str> = recon.inferred().iter().map(|r| r.name).collect();
        assert!(rows.contains(&"frequency governor") && rows.contains(&"capacity of a CPU"), "{rows:?}");
    }
}

#[test]
fn present_capacities_are_speeds() {
    let of = |at: i64, cpu: i32, value: i64| (at, cpu, value);
    let present =
        [of(0, 0, 1024), of(0, 1, 512), of(40_000_000, 0, 512), of(55_000_000, 1, 128), of(90_000_000, 0, 768)];
    let mut out = workload::run_text(TWO, None, &mut |_| true).expect("the workload runs");
    for (at, cpu, value) in present {
        out.events.push().ts_ns(at).cpu(0).kind(Kind::CpuCapacity).target_cpu(cpu).value2(value).quality(0);
    }
    let mut order: Vec<u32> = (0..out.events.len() as u32).collect();
    order.sort_by_key(|r| out.events.ts_ns.get(*r as usize));
    out.events = out.events.take(&order);
    let by_capacity = programs(&out, Placement::Trace, Vec::new());
    let by_frequency = programs(&recorded(&CHANGES), Placement::Trace, Vec::new());
    assert_eq!(by_capacity.speeds, by_frequency.speeds);
}

#[test]
fn nothing_is_balanced_onto_an_isolated_cpu() {
    // B alone was on CPU 2; A and the others went to and fro between 0 and 1.
    let text = "policy: cfs\ncpus: 3\nuntil: 300\nA*5 cpus=0+1: (R3 S2)*\nB cpus=2: (R1 S9)*\n";
    let out = workload::run_text(text, None, &mut |_| true).expect("the workload runs");
    let isolated = |cpu| StatedCpu { cpu, isolated: true, ..StatedCpu::default() };
    for policy in ["cfs", "eevdf", "cfs:form=2.6.32", "rr:quantum=5ms", "o1"] {
        let ran = |cpus: Vec<StatedCpu>, sets: Vec<tracekit_replay::replay::Override>| {
            let recon = programs(&out, Placement::Model, cpus);
            let spec = ReplaySpec { policy: policy.into(), sets, ..spec() };
            let events = rerun(&recon, &spec, &mut |_| true).expect("the replay runs").out.events;
            let there: std::collections::BTreeSet<i64> =
                switches(&events).into_iter().filter(|s| s.1 == 2 && s.3 > 0).map(|s| s.3).collect();
            there.len()
        };
        assert!(ran(Vec::new(), Vec::new()) > 1, "{policy}");
        assert_eq!(ran(vec![isolated(2)], Vec::new()), 1, "{policy}");
        // Who asks for it gets it.
        let asks = tracekit_replay::replay::Override {
            which: tracekit_replay::replay::Which::Comms(vec!["A0".into()]),
            set: vec![("cpus".into(), "2".into())],
        };
        assert_eq!(ran(vec![isolated(2)], vec![asks]), 2, "{policy}");
    }
    let recon = programs(&out, Placement::Model, vec![isolated(2)]);
    let row = recon.inferred().into_iter().find(|r| r.name == "isolated CPUs").expect("a row");
    assert_eq!(row.value, Some(1.0));
}
