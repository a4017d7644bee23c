//! Buffers that hold so much: what a workload with them does, and that they come back from its events, so
//! that a replay under another policy does what the workload itself does under that policy.

use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{reconstruct, Options, Outcome, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out, State};

/// A pipeline of three, of which now the one and now the other is the slowest. The last reads four units at
/// once.
const PIPELINE: &str = "
until: 2000
cpus: 2
buffer p: capacity=8 write=1 read=1
buffer q: capacity=12 write=1 read=4
A: ((R~uniform(0.04,0.06) I(p))*50 (R~uniform(0.1,0.12) I(p))*50)*
B: (O(p) R~uniform(0.07,0.09) I(q))*
C: ((O(q) R~uniform(0.1,0.12))*40 (O(q) R~uniform(0.04,0.06))*40)*
H: R∞
";

/// Two that call and answer, one that is asked while it is busy.
const CALLS: &str = "
until: 2000
cpus: 1
A: (R~uniform(0.2,0.4) P(b) W(a))*
B: (W(b) R~uniform(0.1,0.3) P(a))*
D: (S1 R0.1)*
H: R∞
";

fn recorded(text: &str, policy: &str) -> Out {
    workload::run_text(text, Some(policy), &mut |_| true).expect("the workload runs")
}

fn programs(out: &Out) -> Recon {
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() })
}

/// How often a thread slept.
fn sleeps(out: &Out, tid: i64) -> usize {
    let e = &out.events;
    let slept = |row: &usize| {
        let switch = e.kind.get(*row) == Some(Kind::Switch) && e.tid.get(*row) == Some(tid);
        switch && e.state.get(*row) == Some(State::Sleeping)
    };
    (0..e.len()).filter(slept).count()
}

/// Whoever puts sleeps where there is no room, whoever takes where there is nothing.
#[test]
fn a_buffer_fills_and_empties() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nbuffer p: capacity=2\nA: (R1 I(p))*6 Z\nB: (O(p) R3)*6 Z\n\
                expect: A[0,5) A[7,8) ...\nexpect@1: B[1,19)\n";
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    assert_eq!(scenario.check(&run), Vec::<String>::new());
}

/// A reader is woken when a write is complete, and then takes what it can.
#[test]
fn a_write_wakes_when_it_is_complete_and_a_read_takes_several() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nbuffer p: capacity=8 write=2 read=4\nA: (R1 I(p))*4 R9 Z\n\
                B: (O(p) R3)*4 Z\nexpect: A[0,13)\nexpect@1: B[2,14)\n";
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    assert_eq!(scenario.check(&run), Vec::<String>::new());
}

/// Whoever waits for one that has ended waits no more: A ends before it comes to put something in.
#[test]
fn the_end_of_one_task_ends_the_wait_of_the_other() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nuntil: 60\nbuffer p: capacity=2\nA: R2 Z I(p)\n\
                B: O(p) R1 Z\nexpect: A[0,2) B[2,3)\n";
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    assert_eq!(scenario.check(&run), Vec::<String>::new());
}

/// Several put into one buffer. Where it takes room for more than one to wake them, all are woken then. Who
/// waits for more waits until all of them have ended.
#[test]
fn several_put_what_one_takes_and_wake_together() {
    let text = "policy: rr:quantum=10ms\ncpus: 3\nbuffer p: capacity=3 room=2\nA: (R1 I(p))*5 R1 Z\n\
                B: (R1 I(p))*5 R1 Z\nC: (O(p) R4)*11 Z\nexpect: A[0,3) A[9,10) A[17,18) A[25,26)\n\
                expect@1: B[0,3) B[9,10) B[17,18) B[25,26)\nexpect@2: C[1,45)\n";
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    assert_eq!(scenario.check(&run), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_buffer_is_said() {
    let cases = [
        ("A: R1 I(p)", "no buffer p; declare it"),
        ("buffer p: capacity=0\nA: I(p)", "`0`: expected 1 to 1000000"),
        ("buffer p: size=4\nA: I(p)", "no attribute size of a buffer; valid are capacity, write, read, room, holds"),
        ("buffer p: capacity=4 holds=5\nA: I(p)", "it holds 4 at most"),
        ("buffer p: capacity=4\nbuffer p: capacity=4\nA: I(p)", "is there already"),
        ("buffer p: capacity=4\nA: O(p)\nB: O(p)\nC: R1 I(p)", "one task takes something out, not several"),
        ("buffer p: capacity=4\nA: R1 I(p)", "somebody puts something in, and one task takes it out"),
    ];
    for (text, what) in cases {
        let error = workload::parse(&format!("policy: cfs\n{text}\n"), None).err().expect(text);
        assert!(error.to_string().contains(what), "{text}: {error}");
    }
}

/// Buffers are found, with about as much room as they have. A unit of what is found is one of the workload or
/// several: the takers work 0.08 ms for one of the workload.
#[test]
fn the_buffers_of_a_pipeline_come_back() {
    let recon = programs(&recorded(PIPELINE, "cfs"));
    let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
    assert_eq!(outcomes, [Outcome::Buffered]);
    let report = recon.inferred().into_iter().find(|i| i.name == "unobserved messages").expect("a report");
    assert!(report.how.contains("fills and empties the buffers"), "{}", report.how);
    let mut room: Vec<(u32, u32, f64)> = Vec::new();
    for b in &recon.work.buffers {
        let steps = &recon.work.tasks[b.to.index()].steps;
        let taken = steps.iter().filter(|s| matches!(s, Step::Take { .. })).count() as f64;
        let work = |s: &Step| if let Step::Run { ns } | Step::RunKernel { ns } = *s { ns as f64 } else { 0.0 };
        let unit = steps.iter().map(work).sum::<f64>() / taken / 80_000.0;
        room.push((b.from[0].0, b.to.0, f64::from(b.capacity) * unit));
    }
    room.sort_by_key(|r| r.0);
    let [(0, 1, p), (1, 2, q)] = room[..] else { panic!("{room:?}") };
    assert!((p - 8.0).abs() < 1.0 && (q - 12.0).abs() < 1.0, "{room:?}");
}

/// Under a policy without preemption by wakeups each runs until a buffer is full or empty: so does the replay
/// of a recording in which they preempted each other.
#[test]
fn a_replay_waits_where_a_buffer_is_full_or_empty() {
    let trace = recorded(PIPELINE, "cfs");
    let recon = programs(&trace);
    let spec = ReplaySpec { policy: "fifo".into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
    let replay = rerun(&recon, &spec, &mut |_| true).expect("the replay runs").out;
    let real = recorded(PIPELINE, "fifo");
    assert!(sleeps(&trace, 3) * 5 < sleeps(&real, 3), "the recording says something else");
    for tid in 1..=3 {
        let (was, want, got) = (sleeps(&trace, tid), sleeps(&real, tid), sleeps(&replay, tid));
        let off = (got as f64 / want as f64).ln().abs();
        assert!(off < 0.1, "task {tid}: {got} sleeps, {want} really, {was} recorded");
    }
}

/// A unit takes now more and now less work. Where the reader is back at sleep before the next one is
/// half done, each of its waits is for one unit: there are as many as waits, not as many as there would
/// be of the shortest.
#[test]
fn units_of_different_lengths_are_counted_once() {
    let text = "
until: 2000
cpus: 2
buffer p: capacity=8
A cpus=0: (R~uniform(0.04,0.3) I(p))*
B cpus=1: (O(p) R0.02)*
G cpus=1 policy=fifo prio=50: (S20 R6)*
H cpus=0: R∞
";
    let trace = recorded(text, "eevdf");
    let recon = programs(&trace);
    assert_eq!(recon.work.buffers.len(), 1);
    let takes = |s: &&Step| matches!(s, Step::Take { .. });
    let taken = recon.work.tasks.iter().flat_map(|t| &t.steps).filter(takes).count();
    // A has half of CPU 0, and works 0.17 ms for a unit.
    let units = 1000.0 / 0.17;
    assert!((taken as f64 / units - 1.0).abs() < 0.1, "{taken} units, really some {units:.0}");
}

/// Both buffers come back also where all three have one CPU, and now this end and now that is the slower one.
#[test]
fn the_buffers_of_a_pipeline_on_one_cpu_come_back() {
    let text = "
until: 2000
cpus: 1
buffer p: capacity=4
buffer q: capacity=4
A: ((R~uniform(0.02,0.04) I(p))*40 (R~uniform(0.2,0.3) I(p))*40)*
B: (O(p) R~uniform(0.1,0.12) I(q))*
C: ((O(q) R~uniform(0.2,0.3))*40 (O(q) R~uniform(0.02,0.04))*40)*
";
    let recon = programs(&recorded(text, "eevdf"));
    let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
    assert_eq!((outcomes, recon.work.buffers.len()), (vec![Outcome::Buffered], 2));
}

/// A writer that ends behind its last unit, and a third task that closes the other end of the buffer then:
/// the reader, which had taken everything, is woken for the end of the file. What both do behind that counts
/// as units as well, so that the writer waits for room: a reader that waited for the third task, which waits
/// for the writer's end, would wait for ever.
#[test]
fn the_end_of_a_file_waits_for_nobody() {
    let text = "
until: 2000
cpus: 2
buffer p: capacity=12 write=1 read=4
A cpus=0: (R~uniform(0.07,0.09) I(p))*1600 R1.5 P(done) Z
B cpus=1: ((O(p) R~uniform(0.1,0.12))*40 (O(p) R~uniform(0.04,0.06))*40)*20 W(eof) R2 Z
C: W(done) R0.05 P(eof)
H: R∞
";
    let recon = programs(&recorded(text, "cfs"));
    assert_eq!(recon.work.buffers.len(), 1);
    let spec = ReplaySpec { policy: "cfs".into(), hz: Some(1000), ..ReplaySpec::default() };
    let replay = rerun(&recon, &spec, &mut |_| true).expect("the replay runs").out;
    assert_eq!(replay.meta.get("replay.stuck"), None);
}

/// Question and answer are no buffer.
#[test]
fn calls_are_no_buffers() {
    for policy in ["cfs", "eevdf", "rr:quantum=1ms"] {
        assert_eq!(programs(&recorded(CALLS, policy)).work.buffers, Vec::new(), "{policy}");
    }
}
