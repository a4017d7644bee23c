//! What explains a group of tasks is kept where the recorded run is replayed at least as well.
//!
//! The trace is replayed twice under the policy that it was recorded under, with every explanation
//! and with none. A replay of a group is off by the work that its tasks did more or less than
//! recorded (CPU time, in time of a CPU of middling speed), in all and in each part of the run. An
//! explanation is taken where that is no more than without it, within tolerances of `calibrate`.
//! Pools whose requests are only counted, and tasks that share a lock, are judged by the time that
//! they were awake, which for pools follows from how long requests wait (Little's law). A task that
//! another one of its pool wakes has waited for their lock with a request in hand. In a replay it may
//! do so again, or wait for a CPU instead, so that it counts as awake meanwhile and as asleep, and a
//! pool is left where it is worse both ways. It is left, too, where the number of its tasks' sleeps is
//! further from the recorded one than without it: a few long bursts are awake as long as many short
//! ones. So is a lock: threads that wait for room in a queue while others are at work look as if they
//! shared one. Those of hubs and barriers are judged by both together.

use std::collections::BTreeMap;

use tracekit_schema::table::Table;
use tracekit_schema::{Kind, State};

use crate::cancel::Cancel;
use crate::history::{By, EventKind, Off, TaskHistory};
use crate::infer::{Group, Outcome, Track};
use crate::reconstruct::{Reading, Recon};
use crate::replay::{play, ReplaySpec};

use super::STRETCH;
use crate::task::Ns;

/// Parts of a run that are compared: CPU time at another place within a part does not count.
const PARTS: usize = 4;
/// How much further off a replay with an explanation may be, as one part in so many of the time: in
/// all, a quarter of `cpu_share` (2 points) in `tolerances.toml`, and in a part of the run, where
/// one service may lie in the next part, `cpu_share_window` (5 points).
const TOLERATED: (Ns, Ns) = (200, 20);

/// How much further off the time awake, or the number of sleeps, may be, as a logarithm:
/// `run_delay_p50` in `tolerances.toml`. Where the replay without an explanation is off by more, as one
/// is that does not know of SCHED_IDLE, it tells less: as much again is allowed.
const AWAKE: f64 = 0.1;

/// What a thread did in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// Work in each part.
    used: [Ns; PARTS],
    /// Time from its wakeups to its sleeps.
    awake: Ns,
    /// Time that it waited for others of its pool.
    waited: Ns,
    /// How often it went to sleep.
    sleeps: u32,
    /// When it was woken, and when it fell asleep last.
    since: Option<Ns>,
    slept: Option<Ns>,
}

impl Spent {
    /// It is woken, perhaps by another one of its pool.
    fn woken(&mut self, at: Ns, by_pool: bool) {
        if self.since.is_none() {
            self.waited += self.slept.filter(|_| by_pool).map_or(0, |slept| at - slept);
            self.since = Some(at);
        }
    }

    fn sleeps(&mut self, at: Ns) {
        if let Some(since) = self.since.take() {
            self.awake += at - since;
            self.sleeps += 1;
        }
        self.slept = Some(at);
    }
}

/// The threads of a run.
type Spents = BTreeMap<i64, Spent>;
/// The queue from which threads receive.
type Pools = BTreeMap<i64, u32>;

/// True for two that receive from one queue.
fn share(pool_of: &Pools, one: i64, other: Option<i64>) -> bool {
    let of = |tid: i64| pool_of.get(&tid);
    of(one).is_some() && of(one) == other.and_then(of)
}

/// The programs with those explanations under which `identity`, a replay as the trace was recorded, is no
/// worse than without them.
pub(super) fn kept(reading: &mut Reading, identity: &ReplaySpec, cancel: &Cancel) -> Recon {
    choose_gathered(reading, identity, cancel);
    let guessed = |group: &Group| {
        matches!(
            group.outcome,
            Outcome::Explained | Outcome::Hub | Outcome::Pooled | Outcome::Locked | Outcome::Barrier
        )
    };
    let all = reading.messages.found.groups.iter().enumerate();
    // Nothing was guessed where the calls were recorded.
    let groups: Vec<usize> = all.filter(|g| !g.1.recorded && guessed(g.1)).map(|g| g.0).collect();
    let with = reading.programs();
    if groups.is_empty() {
        return with;
    }
    let kept = reading.messages.clone();
    for group in &groups {
        reading.messages.forget(&reading.history, *group);
    }
    let without = reading.programs();
    reading.messages = kept;
    let of = |(task, queue): (&TaskHistory, &Option<u32>)| queue.map(|queue| (task.tid, queue));
    let pool_of: Pools = reading.history.tasks.iter().zip(&reading.messages.receives).filter_map(of).collect();
    let recorded = recorded(reading, &pool_of);
    let run = |recon: &Recon| replayed(recon, &pool_of, identity, cancel);
    let (Some(used), Some(plain)) = (run(&with), run(&without)) else { return with };
    // Those that receive or share a lock: what sources use besides is not explained by messages. Tasks
    // of a pool take what comes, so that another of them may do it: a pool counts as one.
    let pools = |group: usize| -> Vec<Vec<i64>> {
        let group = &reading.messages.found.groups[group];
        let mut pools: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for task in group.tasks.iter().map(|t| *t as usize) {
            let shared = Some(0).filter(|_| group.outcome == Outcome::Locked);
            let Some(queue) = shared.or(reading.messages.receives[task]) else { continue };
            pools.entry(queue).or_default().push(reading.history.tasks[task].tid);
        }
        pools.into_values().collect()
    };
    let span = reading.history.span.max(1);
    let worse = |group: &usize| {
        let pools = pools(*group);
        let Group { outcome, tasks, .. } = &reading.messages.found.groups[*group];
        if matches!(outcome, Outcome::Hub | Outcome::Barrier) {
            let all = [tids(reading, tasks)];
            return apart(&all, &used, &recorded) > apart(&all, &plain, &recorded);
        }
        if matches!(outcome, Outcome::Pooled | Outcome::Locked) {
            let worse = |of: &dyn Fn(&Spent) -> f64| {
                let (with, without) = (off(&pools, &used, &recorded, of), off(&pools, &plain, &recorded, of));
                with > without + AWAKE.max(without)
            };
            let awake = [0, 1].iter().all(|waits| worse(&|s| (s.awake + waits * s.waited) as f64));
            return awake || worse(&|s| f64::from(s.sleeps));
        }
        let (with, without) = (gaps(&pools, &used, &recorded), gaps(&pools, &plain, &recorded));
        with.0 > without.0 + span / TOLERATED.0 || with.1 > without.1 + span / PARTS as Ns / TOLERATED.1
    };
    let worse: Vec<usize> = groups.into_iter().filter(worse).collect();
    if worse.is_empty() {
        return with;
    }
    for group in worse {
        reading.messages.forget(&reading.history, group);
    }
    reading.programs()
}

/// Where several put what one takes out, so that it may as well be a pool, a flow of messages or neither:
/// what replays the number of sleeps and the time awake of these tasks better, in logarithms together.
fn choose_gathered(reading: &mut Reading, identity: &ReplaySpec, cancel: &Cancel) {
    if reading.instead.is_none() {
        return;
    }
    let gathered = reading.messages.found.groups.iter().filter(|g| g.outcome == Outcome::Gathered);
    let pools: Vec<Vec<i64>> = gathered.map(|g| tids(reading, &g.tasks)).collect();
    let gap = |reading: &Reading| {
        let none = Pools::new();
        let recorded = recorded(reading, &none);
        let Some(run) = replayed(&reading.programs(), &none, identity, cancel) else { return f64::MAX };
        apart(&pools, &run, &recorded)
    };
    let with = gap(reading);
    reading.swap();
    if gap(reading) >= with {
        reading.swap();
    }
    reading.instead = None;
}

/// By how much work the pool that is furthest off differs in two runs: in all, and in one part.
fn gaps(pools: &[Vec<i64>], one: &Spents, other: &Spents) -> (Ns, Ns) {
    let used = |pool: &[i64], run: &Spents, part: usize| -> Ns {
        pool.iter().filter_map(|tid| run.get(tid)).map(|spent| spent.used[part]).sum()
    };
    let mut most = (0, 0);
    for pool in pools {
        let parts: Vec<Ns> = (0..PARTS).map(|part| used(pool, one, part) - used(pool, other, part)).collect();
        most.0 = parts.iter().sum::<Ns>().abs().max(most.0);
        most.1 = parts.iter().map(|gap| gap.abs()).max().max(Some(most.1)).unwrap_or(0);
    }
    most
}

/// By what the pool that is furthest off has more or less of something in two runs, as a logarithm.
fn off(pools: &[Vec<i64>], one: &Spents, other: &Spents, of: &dyn Fn(&Spent) -> f64) -> f64 {
    let sum =
        |pool: &[i64], run: &Spents| pool.iter().filter_map(|tid| run.get(tid)).map(of).sum::<f64>().max(1.0).ln();
    pools.iter().map(|pool| (sum(pool, one) - sum(pool, other)).abs()).fold(0.0, f64::max)
}

fn tids(reading: &Reading, tasks: &[u32]) -> Vec<i64> {
    tasks.iter().map(|t| reading.history.tasks[*t as usize].tid).collect()
}

/// By how much two runs differ in the sleeps and the time awake of the pools that are furthest off, in
/// logarithms together.
fn apart(pools: &[Vec<i64>], one: &Spents, other: &Spents) -> f64 {
    off(pools, one, other, &|s| f64::from(s.sleeps)) + off(pools, one, other, &|s| s.awake as f64)
}

/// Where so many parts of a run of length `span` end.
fn end(span: Ns, parts: usize) -> Ns {
    (i128::from(span) * parts as i128 / PARTS as i128) as Ns
}

/// The parts of a run of length `span` in which the time from `from` to `to` lies.
fn book(used: &mut [Ns; PARTS], from: Ns, to: Ns, span: Ns, work: impl Fn(Ns, Ns) -> Ns) {
    for (part, used) in used.iter_mut().enumerate() {
        let from = from.max(end(span, part));
        *used += work(from, to.min(end(span, part + 1)).max(from));
    }
}

fn recorded(reading: &Reading, pool_of: &Pools) -> Spents {
    let (mut spents, span, speeds) = (Spents::new(), reading.history.span, reading.speeds());
    for task in &reading.history.tasks {
        let (track, row) = (Track::of(task, span, &speeds), spents.entry(task.tid).or_default());
        for (part, used) in row.used.iter_mut().enumerate() {
            *used += track.pos(end(span, part + 1)) - track.pos(end(span, part));
        }
        for event in &task.events {
            match event.kind {
                EventKind::Woken { by, .. } => {
                    let waker = if let By::Task { waker, .. } = by { Some(waker) } else { None };
                    let waker = waker.map(|waker| reading.history.tasks[waker as usize].tid);
                    row.woken(event.at, share(pool_of, task.tid, waker));
                }
                EventKind::Off(Off::Slept { .. } | Off::Ended) => row.sleeps(event.at),
                _ => {}
            }
        }
        row.sleeps(span);
    }
    spents
}

/// What the threads do in a replay of `recon`; none where it comes to no end.
fn replayed(recon: &Recon, pool_of: &Pools, identity: &ReplaySpec, cancel: &Cancel) -> Option<Spents> {
    let run = play(recon, identity, &mut |_| !cancel.is_set()).ok()?;
    let (mut out, mut spents) = (run.out, Spents::new());
    let mut on: BTreeMap<Option<i32>, (i64, Ns)> = BTreeMap::new();
    let work = |cpu: Option<i32>| {
        let place = cpu.and_then(|cpu| recon.cpus.binary_search(&cpu).ok()).unwrap_or(usize::MAX);
        move |from, to| recon.speeds.work(place, from, to)
    };
    let mut emitter = run.records.emitter(&mut out);
    while emitter.fill(&mut out, STRETCH) {
        let events = &out.events;
        for row in 0..events.len() {
            let at = (events.ts_ns.get(row)? - recon.start).min(recon.span);
            match events.kind.get(row) {
                Some(Kind::Wakeup) => {
                    let tid = events.tid.get(row)?;
                    spents.entry(tid).or_default().woken(at, share(pool_of, tid, events.ctx_tid.get(row)));
                }
                Some(Kind::Switch) => {
                    let cpu = events.cpu.get(row);
                    if let Some((tid, from)) = on.remove(&cpu) {
                        let spent = spents.entry(tid).or_default();
                        book(&mut spent.used, from, at, recon.span, work(cpu));
                        if matches!(events.state.get(row), Some(State::Sleeping | State::Blocked | State::Dead)) {
                            spent.sleeps(at);
                        }
                    }
                    if let Some(tid) = events.next_tid.get(row) {
                        on.insert(cpu, (tid, at));
                    }
                }
                _ => {}
            }
        }
        out.clear_events();
    }
    for (cpu, (tid, from)) in on {
        book(&mut spents.entry(tid).or_default().used, from, recon.span, recon.span, work(cpu));
    }
    spents.values_mut().for_each(|spent| spent.sleeps(recon.span));
    Some(spents)
}

#[cfg(test)]
mod tests {
    use super::kept;
    use crate::cancel::Cancel;
    use crate::infer::{Mark, Outcome};
    use crate::reconstruct::{Options, Reading, Whole};
    use crate::replay::ReplaySpec;
    use crate::workload::run_text;

    const SHARED: &str = "until: 3000\ncpus: 2\nA*3: (R~uniform(0.05,0.15) L(m) R~uniform(0.02,0.06) G(m))*\n\
        H*2: (R~uniform(2,9) S~uniform(1,4))*\n";

    const MANY: &str = "until: 500\ncpus: 2\nbuffer a: capacity=40 room=30\nbuffer b: capacity=40 room=30\n\
        W*6: ((R~uniform(0.02,0.04) I(a) R~uniform(0.02,0.04) I(b))*200 S~uniform(1,30))*\n\
        A: (O(a) R~uniform(0.02,0.04))*\nB: (O(b) R~uniform(0.02,0.04))*\n";

    /// Leaves of such marks of each task one of so many.
    fn thin(reading: &mut Reading, every: u32, such: fn(&Mark) -> bool) {
        for marks in &mut reading.messages.marks {
            let mut n = 0;
            marks.retain(|mark| {
                n += u32::from(such(&mark.1));
                !such(&mark.1) || n % every == 0
            });
        }
    }

    /// What many write to one stays where the tasks sleep in the replay as they did, and goes where they wait
    /// for what nobody writes.
    #[test]
    fn what_many_write_is_kept_where_the_tasks_sleep_as_recorded() {
        let trace = run_text(MANY, Some("eevdf"), &mut |_| true).expect("the workload runs");
        let options = Options { hz: Some(1000), ..Options::default() };
        let identity = ReplaySpec { policy: "eevdf".into(), hz: Some(1000), ..ReplaySpec::default() };
        for (every, gathered) in [(1, true), (40, false)] {
            let mut reading = Reading::of(&Whole::new(&trace.events, &trace.strings), &options);
            assert!(reading.instead.is_some(), "1 of {every}");
            thin(&mut reading, every, |mark| matches!(mark, Mark::Put(_)));
            let recon = kept(&mut reading, &identity, &Cancel::default());
            let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
            assert_eq!(outcomes.contains(&Outcome::Gathered), gathered, "1 of {every}: {outcomes:?}");
            assert_eq!(recon.work.buffers.len(), if gathered { 2 } else { 0 }, "1 of {every}");
        }
    }

    /// What a hub waits for goes where its tasks sleep otherwise than recorded; what it was asked stays.
    #[test]
    fn a_hub_goes_where_its_tasks_sleep_otherwise() {
        let trace = run_text(SHARED, Some("cfs"), &mut |_| true).expect("the workload runs");
        let options = Options { hz: Some(1000), ..Options::default() };
        let identity = ReplaySpec { policy: "cfs".into(), hz: Some(1000), ..ReplaySpec::default() };
        for (every, outcome) in [(1, Outcome::Hub), (40, Outcome::Unexplained)] {
            let mut reading = Reading::of(&Whole::new(&trace.events, &trace.strings), &options);
            // A lock's marks, as any that replays follow.
            reading.messages.found.groups.iter_mut().for_each(|g| g.outcome = Outcome::Hub);
            thin(&mut reading, every, |_| true);
            let recon = kept(&mut reading, &identity, &Cancel::default());
            let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
            assert_eq!(outcomes, [outcome], "1 of {every}");
        }
    }

    /// A barrier stays where the tasks sleep in the replay as they did, and goes where they hardly do.
    #[test]
    fn a_barrier_is_kept_where_the_tasks_sleep_as_recorded() {
        let text = "until: 3000\ncpus: 2\nA*3: (R~uniform(0.2,2.7) J(b))*\nH: Rinf\n";
        let trace = run_text(text, Some("cfs"), &mut |_| true).expect("the workload runs");
        let options = Options { hz: Some(1000), ..Options::default() };
        let identity = ReplaySpec { policy: "cfs".into(), hz: Some(1000), ..ReplaySpec::default() };
        for (every, outcome) in [(1, Outcome::Barrier), (40, Outcome::Worse)] {
            let mut reading = Reading::of(&Whole::new(&trace.events, &trace.strings), &options);
            thin(&mut reading, every, |_| true);
            let recon = kept(&mut reading, &identity, &Cancel::default());
            let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
            assert_eq!(outcomes, [outcome], "1 of {every}");
            assert_eq!(reading.messages.explained.is_empty(), outcome == Outcome::Worse);
        }
    }

    /// A lock stays where the tasks wait in the replay as they did, and goes where they hardly do.
    #[test]
    fn a_lock_is_kept_where_the_tasks_wait_as_recorded() {
        let trace = run_text(SHARED, Some("cfs"), &mut |_| true).expect("the workload runs");
        let options = Options { hz: Some(1000), ..Options::default() };
        let identity = ReplaySpec { policy: "cfs".into(), hz: Some(1000), ..ReplaySpec::default() };
        for (every, outcome) in [(1, Outcome::Locked), (40, Outcome::Worse)] {
            let mut reading = Reading::of(&Whole::new(&trace.events, &trace.strings), &options);
            thin(&mut reading, every, |_| true);
            let recon = kept(&mut reading, &identity, &Cancel::default());
            assert_eq!(
                recon.unobserved.groups.iter().map(|g| g.outcome).collect::<Vec<_>>(),
                [outcome],
                "1 of {every}"
            );
            assert_eq!(reading.messages.explained.is_empty(), outcome == Outcome::Worse);
            assert_eq!(recon.work.locks.len(), usize::from(outcome == Outcome::Locked), "1 of {every}");
        }
    }
}
