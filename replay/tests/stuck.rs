//! Tasks that wait for each other for ever, in runs and in replays.

use tracekit_replay::program::{SemId, Step};
use tracekit_replay::reconstruct::{reconstruct, Options, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::task::{Ns, Sleep};
use tracekit_replay::workload;
use tracekit_schema::Code;

/// The numbers of the tasks that wait for ever in a run of `text`, and since when.
fn stuck(text: &str) -> Vec<(u32, Option<Ns>)> {
    let text = format!("policy: rr:quantum=10ms\ncpus: 2\nuntil: 100\n{text}");
    let run = workload::parse(&text, None).expect("a workload").run().expect("it runs");
    run.stuck.iter().map(|s| (s.task.0, s.since)).collect()
}

const MS: Ns = 1_000_000;

#[test]
fn tasks_in_a_circle_wait_for_ever() {
    assert_eq!(stuck("A: R1 W(a) P(b) R1\nB: R2 W(b) P(a) R1\n"), [(0, Some(MS)), (1, Some(2 * MS))]);
    // Who waits for one of them waits as long; who comes in between helps them.
    let three = "A: R1 W(a) P(b) R1\nB: R2 W(b) P(a) P(c) R1\nC: W(c) R1\n";
    assert_eq!(stuck(three).iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(stuck(&format!("{three}D: S500 P(a)\n")), []);
}

/// The last sleep of whoever has nothing more to do is no wait for others.
#[test]
fn whoever_has_done_everything_waits_for_nothing() {
    assert_eq!(stuck("A: R1 W(a)\nB: (R1 S5)*\n"), []);
    assert_eq!(stuck("A: R1 W(a) R1\nB: R1\n"), [(0, Some(MS))]);
}

#[test]
fn what_waits_at_a_buffer_is_helped_by_whoever_is_at_its_other_end() {
    let text = "buffer p: capacity=1\nA: R1 W(a) I(p) R1\nB: O(p) R1\n";
    assert_eq!(stuck(text).iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(stuck(&format!("{text}C: S200 P(a)\n")), []);
    // Of several that put something in, one that goes on is enough.
    let several = "buffer p: capacity=1\nA: R1 W(a) I(p) R1\nC: R1 W(c) I(p) R1\nB: (O(p) R1)*3\n";
    assert_eq!(stuck(several).iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(stuck(&format!("{several}D: S200 P(a)\n")).iter().map(|s| s.0).collect::<Vec<_>>(), [1]);
}

/// Who waits at a barrier is helped where all go on who have not come yet.
#[test]
fn what_waits_at_a_barrier_is_helped_by_all_who_still_come() {
    let text = "A: R1 W(a) J(b) R1\nB: R1 J(b) R1\nC: R2 J(b) R1\n";
    assert_eq!(stuck(text).iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(stuck(&format!("{text}D: S200 P(a)\n")), []);
}

/// Two that ask each other, recorded.
fn recorded() -> Recon {
    let text = "until: 200\ncpus: 1\nA: (R1 P(b) W(a))*\nB: (W(b) R1 P(a))*\nC: (S1 R1)*\n";
    let out = workload::run_text(text, Some("cfs"), &mut |_| true).expect("the workload runs");
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() })
}

/// A replay whose tasks wait for ever names them; one of the recorded waits says nothing.
#[test]
fn a_replay_names_the_tasks_that_wait_for_ever() {
    let spec = ReplaySpec { policy: "cfs".into(), hz: Some(1000), ..ReplaySpec::default() };
    let replayed = |recon: &Recon| rerun(recon, &spec, &mut |_| true).expect("the replay runs").out;
    let said = |recon: &Recon| {
        let out = replayed(recon);
        let note = out.diagnostics.rows().iter().find(|d| d.code == Code::Stuck).map(|d| d.message.clone());
        (note, out.meta.get("replay.stuck").map(str::to_owned))
    };
    let mut recon = recorded();
    assert_eq!(said(&recon), (None, None));
    // The first of them waits for what nobody gives.
    recon.work.sems.push(0);
    let (never, first) = (SemId(recon.work.sems.len() as u32 - 1), &mut recon.work.tasks[0].steps);
    let middle = first.iter().rposition(|s| matches!(s, Step::Wait { .. })).expect("it waits") / 2;
    first.insert(middle, Step::Wait { sem: never, sleep: Sleep::Interruptible });
    let note = recon.notes[0][middle];
    recon.notes[0].insert(middle, note);
    let (message, rows) = said(&recon);
    let message = message.expect("a diagnostic");
    assert!(message.starts_with("2 of the replay's tasks wait for ever, the first from "), "{message}");
    assert!(message.contains("(A 1, B 2)"), "{message}");
    assert_eq!(rows.expect("metadata").matches('[').count(), 3);
}
