//! Clients that call a server and wait for its answer in a queue of their own, where requests nearly
//! always wait: their source hardly ever wakes anybody.

use tracekit_replay::emit::Records;
use tracekit_replay::engine::{Engine, Machine};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::program::{HandlerId, Pause, Program, QueueId, SemId, Step, Workload};
use tracekit_replay::reconstruct::{reconstruct, Options, Outcome};
use tracekit_replay::task::{Ns, Sleep, NEVER};
use tracekit_schema::Out;

const CALLS: u32 = 150;

/// Clients take requests, call the server, wait for its answer, and notify a third task; hogs beside them.
fn workload() -> Workload {
    let run = |ns: Ns| Step::Run { ns };
    let send = |queue, handler| Step::Send { queue: QueueId(queue), handler: HandlerId(handler) };
    let receive = |queue| Step::Receive { queue: QueueId(queue), sleep: Sleep::Interruptible };
    let mut handlers = Vec::new();
    let mut source = Vec::new();
    for i in 0..CALLS {
        let (wait, post) =
            (Step::Wait { sem: SemId(i), sleep: Sleep::Interruptible }, Step::Post { sem: SemId(i), sync: false });
        let varied = |ns: Ns, by: u32| ns / 2 + ns * Ns::from((i * by) % 11) / 10;
        let own = run(varied(900_000, 7));
        handlers.push(vec![own, send(1, 3 * i + 1), wait, own, send(2, 3 * i + 2)]);
        handlers.push(vec![run(varied(2_000_000, 5)), post]);
        handlers.push(vec![run(varied(200_000, 3))]);
        let ns = if i < 8 { 30_000_000 } else { varied(4_000_000, 4) };
        source.extend([
            Step::Pause { pause: Pause::Timer { ns, slack: 0 }, sleep: Sleep::Interruptible },
            run(20_000),
            send(0, 3 * i),
        ]);
    }
    source.push(Step::Exit);
    let server = |name: &str, tid, queue| Program::new(name, tid, vec![receive(queue), Step::Goto { step: 0 }]);
    let mut tasks = vec![Program::new("source", 1, source)];
    tasks.extend((0..4).map(|i| server("client", 2 + i, 0)));
    tasks.extend([server("server", 6, 1), server("log", 7, 2)]);
    tasks.extend((0..3).map(|i| Program::new("hog", 8 + i, vec![run(NEVER)])));
    Workload { tasks, queues: 3, sems: vec![0; CALLS as usize], handlers, ..Workload::default() }
}

#[test]
fn answers_come_to_a_queue_of_their_own_where_requests_nearly_always_wait() {
    for policy in ["eevdf", "cfs", "eevdf:base_slice=3ms"] {
        let stack = PolicySpec::parse(policy).and_then(|p| p.stack()).expect("a policy");
        let machine = Machine { cpus: 2, until: 2_500_000_000, ..Machine::default() };
        let mut run = Engine::new(workload(), &machine, stack).expect("an engine").run(&mut |_| true).expect("a run");
        let mut out = Out::new();
        Records::of(&mut run, 2, &[], 1_000_000).all(&mut out);
        let recon = reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() });
        let [group] = &recon.unobserved.groups[..] else { panic!("{policy}: {:?}", recon.unobserved) };
        assert_eq!(group.outcome, Outcome::Explained, "{policy}: {group:?}");
        // A request, a call, an answer and a note each.
        assert_eq!((group.messages, group.unexplained), (4 * CALLS as usize, 0), "{policy}: {group:?}");
        assert!(group.unobserved > 200, "{policy}: {group:?}");
    }
}
