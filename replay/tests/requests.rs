//! Requests that go round between a few servers, whose services take more or less long, beside a
//! task that always wants the CPU. Most of their messages wake nobody. The run is taken for a
//! recording, and the messages that were really sent are the measure of those that are found.

use std::collections::HashMap;

use tracekit_replay::emit::Records;
use tracekit_replay::engine::{Engine, Machine};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::program::{HandlerId, Pause, Program, QueueId, Step, Workload};
use tracekit_replay::reconstruct::{reconstruct, Options, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::task::{Sleep, NEVER};
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

const REQUESTS: u32 = 120;
/// Queues that each request goes through: 0 is served by two tasks, 1 to 3 by one each.
const ROUTE: [u32; 7] = [0, 1, 2, 1, 2, 1, 3];

/// 60 % of one CPU, in services of half to one and a half times the usual.
fn workload() -> Workload {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let usual = [900e3, 400e3, 250e3, 500e3];
    let mut handlers = Vec::new();
    let mut source = Vec::new();
    for _ in 0..REQUESTS {
        let first = handlers.len() as u32;
        for (i, queue) in ROUTE.iter().enumerate() {
            let mut handler = vec![Step::Run { ns: (usual[*queue as usize] * (0.5 + random())) as i64 }];
            if let Some(next) = ROUTE.get(i + 1) {
                handler.push(Step::Send { queue: QueueId(*next), handler: HandlerId(first + i as u32 + 1) });
            }
            handlers.push(handler);
        }
        let ns = (-6e6 * random().max(1e-3).ln()) as i64 + 100_000;
        source.push(Step::Pause { pause: Pause::Timer { ns, slack: 0 }, sleep: Sleep::Interruptible });
        source.push(Step::Run { ns: 15_000 });
        source.push(Step::Send { queue: QueueId(0), handler: HandlerId(first) });
    }
    source.push(Step::Exit);
    let server = |name: &str, tid, queue| {
        let receive = Step::Receive { queue: QueueId(queue), sleep: Sleep::Interruptible };
        Program::new(name, tid, vec![receive, Step::Goto { step: 0 }])
    };
    let tasks = vec![
        Program::new("source", 10, source),
        server("first", 11, 0),
        server("second", 12, 0),
        server("round", 13, 1),
        server("there", 14, 2),
        server("last", 15, 3),
        Program::new("hog", 16, vec![Step::Run { ns: NEVER }]),
    ];
    Workload { tasks, queues: 4, handlers, ..Workload::default() }
}

fn recorded(policy: &str) -> Out {
    let stack = PolicySpec::parse(policy).and_then(|p| p.stack()).expect("a policy");
    let machine = Machine { cpus: 1, until: 2_500_000_000, ..Machine::default() };
    let mut run = Engine::new(workload(), &machine, stack).expect("an engine").run(&mut |_| true).expect("a run");
    let mut out = Out::default();
    Records::of(&mut run, 1, &[], 1_000_000).all(&mut out);
    out
}

fn programs(out: &Out) -> Recon {
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() })
}

fn replayed(recon: &Recon, policy: &str) -> Out {
    let spec = ReplaySpec { policy: policy.into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
    rerun(recon, &spec, &mut |_| true).expect("the replay runs").out
}

/// Events of kind `other` with that name.
fn rows_named<'a>(out: &'a Out, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let e = &out.events;
    let named = |row: &usize| {
        e.kind.get(*row) == Some(Kind::Other) && e.name.get(*row).map(|n| out.strings.get(n)) == Some(name.as_bytes())
    };
    (0..e.len()).filter(named)
}

/// Messages reported: time, sender, first task that receives from the queue, request.
fn report(out: &Out) -> Vec<(i64, i64, i64, Option<i64>)> {
    let e = &out.events;
    rows_named(out, "message")
        .map(|r| (e.ts_ns.get(r).unwrap(), e.ctx_tid.get(r).unwrap(), e.tid.get(r).unwrap(), e.value.get(r)))
        .collect()
}

/// Mean time from the arrival of each request to its last message, and how many requests that are.
/// A replay that is done early begins again: only the first time counts.
fn mean_response(out: &Out) -> (f64, usize) {
    let (mut arrived, mut times) = (HashMap::new(), HashMap::new());
    for (at, from, to, request) in report(out) {
        let Some(request) = request else { continue };
        if from == 10 {
            arrived.entry(request).or_insert(at);
        } else if let (15, Some(from)) = (to, arrived.get(&request)) {
            times.entry(request).or_insert(at - from);
        }
    }
    (times.values().sum::<i64>() as f64 / times.len() as f64, times.len())
}

/// The same of the workload itself, of which the n-th request is known by its request handlers.
fn true_response(out: &Out) -> f64 {
    let e = &out.events;
    let (mut arrived, mut sum) = (HashMap::new(), 0);
    for row in rows_named(out, "message") {
        let (at, handler) = (e.ts_ns.get(row).unwrap(), e.value2.get(row).unwrap());
        let request = handler / ROUTE.len() as i64;
        match handler % ROUTE.len() as i64 {
            0 => {
                arrived.insert(request, at);
            }
            6 => sum += at - arrived[&request],
            _ => {}
        }
    }
    sum as f64 / f64::from(REQUESTS)
}

/// All messages are found, though most are unobserved, and the response times under another policy are
/// those of the workload.
#[test]
fn requests_are_followed_through_unobserved_messages() {
    // Where few messages are unobserved, requests overtake each other unseen, and some are mixed up.
    for (from, within) in [("rr:quantum=4ms", 0.03), ("eevdf", 0.03), ("cfs:wakeup_preemption=off", 0.2)] {
        let trace = recorded(from);
        let sent = report(&trace).len();
        assert_eq!(sent, REQUESTS as usize * ROUTE.len());
        let recon = programs(&trace);
        let found = &recon.unobserved;
        assert!(found.resolved && found.unobserved * 10 > sent, "{from}: {found:?}");
        assert!(found.messages.abs_diff(sent) * 100 <= sent, "{from}: {sent} messages, {found:?}");
        for to in ["rr:quantum=1ms", "cfs"] {
            let real = true_response(&recorded(to));
            let (predicted, n) = mean_response(&replayed(&recon, to));
            assert!(n * 10 >= REQUESTS as usize * 8, "{from} -> {to}: {n} requests can be followed");
            assert!((predicted / real - 1.0).abs() < within, "{from} -> {to}: {predicted} instead of {real} ns");
        }
    }
}
