//! Queues under a lock, with a condition variable: who waits for whom, and who is drawn where.

use tracekit_replay::speeds::Speeds;
use tracekit_replay::workload;

/// What the tasks of a workload do is as expected.
fn as_expected(text: &str) {
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    assert_eq!(scenario.check(&run), Vec::<String>::new(), "{text}");
}

/// Two readers wait in the younger group, which becomes the older one with the first message, so
/// that the second wakes the other without a wait. A waits again when the third comes, and nothing
/// holds it up.
#[test]
fn messages_wake_one_reader_each() {
    as_expected(
        "policy: fifo\ncpus: 3\nuntil: 30\ntolerance: 10us\nqueue web: wakes=condition\n\
         S cpus=0: R1 M(web: R2) R1 M(web: R2) R8 M(web: R2) Z\nA cpus=1: A(web) A(web) Z\nB cpus=2: A(web) Z\n\
         expect: S[0,10)\nexpect@1: A[1,3) A[10,12)\nexpect@2: B[2,4)\n",
    );
}

/// A is woken with the first message and gets no CPU, which H has until 20; B takes that message,
/// and waits in the younger group. Nobody of A's group is left who could be woken for the second:
/// so the sender waits until A has run, though B waits for it.
#[test]
fn a_signal_waits_for_a_reader_that_has_no_cpu() {
    let text = |wakes: &str, sender: &str, (a, b): (&str, &str)| {
        format!(
            "policy: rr:quantum=1000ms\ncpus: 3\nuntil: 60\ntolerance: 10us\nqueue web: wakes={wakes}\n\
             S cpus=0: R1 M(web: R2) R4 M(web: R2) R1 Z\nA cpus=1: A(web) Z\nH cpus=1: R20 Z\n\
             B cpus=2 start=2: A(web) A(web) Z\nexpect: {sender}\nexpect@1: H[0,20) {a}\nexpect@2: B[2,4) {b}\n"
        )
    };
    as_expected(&text("condition", "S[0,5) S[20,21)", ("A[20,22)", "")));
    as_expected(&text("each", "S[0,6)", ("", "B[5,7)")));
    as_expected(&text("signal", "S[0,6)", ("", "B[5,7)")));
}

/// The lock is held until the sender is back from its system call, which takes another 2 in the
/// kernel: the reader that it woke waits for that on its own CPU.
#[test]
fn the_lock_is_held_until_the_sender_is_back() {
    let text = |wakes: &str, a: &str| {
        format!(
            "policy: fifo\ncpus: 2\nuntil: 30\ntolerance: 10us\nqueue web: wakes={wakes}\n\
             S cpus=0: R1 M(web: R2) K2 R3 Z\nA cpus=1: A(web) Z\nexpect: S[0,6)\nexpect@1: {a}\n"
        )
    };
    as_expected(&text("condition", "A[3,5)"));
    as_expected(&text("signal", "A[3,5)"));
    as_expected(&text("each", "A[1,3)"));
}

/// The reader preempts the sender before it is back from its system call, and waits for the lock: where
/// CPUs are equally fast, and where the least that a task can do takes less than half a nanosecond.
#[test]
fn a_sender_is_preempted_before_it_is_back() {
    let text = "policy: cfs\ncpus: 3\nuntil: 30\ntolerance: 10us\nqueue web: wakes=condition\n\
                S cpus=0: R2 M(web: R2) R2 Z\nA cpus=0 policy=fifo prio=10: A(web) Z\n\
                expect: S[0,2) A[2,4) S[4,6)\n";
    as_expected(text);
    let mut scenario = workload::parse(text, None).expect("a workload");
    scenario.machine.speeds = Speeds::of(&[0.2, 1.0, 1.0]);
    assert_eq!(scenario.machine.speeds.time(0, 0, 1), 0);
    let run = scenario.run().expect("it runs");
    // Both do all of their 4 and 2 ms.
    let took: Vec<i64> = run.ran.iter().map(|ran| scenario.machine.speeds.work(0, 0, *ran) / 10_000).collect();
    assert_eq!(took, [400, 200]);
}

/// What is written to a pipe wakes its reader as one whose waker sleeps soon: Linux has it come to the
/// writer's CPU where nobody else is, and a reader that a futex wakes goes where little waits.
#[test]
fn a_pipe_draws_its_reader_to_the_writer() {
    let text = |wakes: &str, s: &str, h: &str| {
        format!(
            "policy: eevdf\ncpus: 2\nuntil: 30\ntolerance: 10us\nqueue web: wakes={wakes}\n\
             S cpus=0: R10 M(web: R2) R1 S30 Z\nA cpus=1: N(cpus=0-1) A(web) Z\n\
             H cpus=1 start=1 nice=19: R∞\nexpect: {s}\nexpect@1: {h}\n"
        )
    };
    as_expected(&text("first", "S[0,11) A[11,13)", "H[1,30)"));
    as_expected(&text("each", "S[0,11)", "H[1,10) A[10,12) H[12,30)"));
}
