//! Inference is never worse than none: what explains a group of tasks is kept where the recorded
//! run is replayed at least as well.
//!
//! The trace is replayed twice under the policy that it was recorded under, with every explanation
//! and with none. A replay of a group is off by the CPU time that its tasks used more or less than
//! recorded, in all and in each part of the run. An explanation is taken where that is no more than
//! without it, within tolerances of `calibrate`.

use std::collections::BTreeMap;

use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, Strings};

use crate::cancel::Cancel;
use crate::infer::{Outcome, Track};
use crate::reconstruct::{Options, Reading, Recon};
use crate::replay::{rerun, ReplaySpec};
use crate::task::Ns;

/// Parts of a run that are compared: CPU time at another place within a part does not count.
const PARTS: usize = 4;
/// How much further off a replay with an explanation may be, as one part in so many of the time: in
/// all, a quarter of `cpu_share` (2 points) in `tolerances.toml`, and in a part of the run, where
/// one service may lie in the next part, `cpu_share_window` (5 points).
const TOLERATED: (Ns, Ns) = (200, 20);

/// CPU time of each thread in each part of a run.
type Used = BTreeMap<i64, [Ns; PARTS]>;

/// Reconstructs the programs in `events` and keeps what was inferred about hidden messages only
/// where `identity`, a replay as the trace was recorded, says that it does no harm.
pub fn reconstruct_tried(events: &Events, strings: &Strings, options: &Options, identity: &ReplaySpec) -> Recon {
    let mut reading = Reading::of(events, strings, options);
    let all = reading.messages.found.groups.iter().enumerate();
    let groups: Vec<usize> = all.filter(|g| g.1.outcome == Outcome::Explained).map(|g| g.0).collect();
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
    let recorded = recorded(&reading);
    let (Some(used), Some(plain)) =
        (replayed(&with, identity, &options.cancel), replayed(&without, identity, &options.cancel))
    else {
        return with;
    };
    // Those that are served: what sources use besides is not explained by messages. Tasks of a pool
    // take what comes, so that another of them may do it: a pool counts as one.
    let pools = |group: usize| -> Vec<Vec<i64>> {
        let mut pools: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for task in reading.messages.found.groups[group].tasks.iter().map(|t| *t as usize) {
            let Some(queue) = reading.messages.serves[task] else { continue };
            pools.entry(queue).or_default().push(reading.history.lives[task].tid);
        }
        pools.into_values().collect()
    };
    let span = reading.history.span.max(1);
    let worse = |group: &usize| {
        let pools = pools(*group);
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

/// By how much CPU time the pool that is furthest off differs in two runs: in all, and in one part.
fn gaps(pools: &[Vec<i64>], one: &Used, other: &Used) -> (Ns, Ns) {
    let used = |pool: &[i64], run: &Used, part: usize| -> Ns {
        pool.iter().filter_map(|tid| run.get(tid)).map(|used| used[part]).sum()
    };
    let mut most = (0, 0);
    for pool in pools {
        let parts: Vec<Ns> = (0..PARTS).map(|part| used(pool, one, part) - used(pool, other, part)).collect();
        most.0 = parts.iter().sum::<Ns>().abs().max(most.0);
        most.1 = parts.iter().map(|gap| gap.abs()).max().max(Some(most.1)).unwrap_or(0);
    }
    most
}

/// Where so many parts of a run of length `span` end.
fn end(span: Ns, parts: usize) -> Ns {
    (i128::from(span) * parts as i128 / PARTS as i128) as Ns
}

/// The parts of a run of length `span` in which the time from `from` to `to` lies.
fn book(used: &mut [Ns; PARTS], from: Ns, to: Ns, span: Ns) {
    for (part, used) in used.iter_mut().enumerate() {
        *used += (to.min(end(span, part + 1)) - from.max(end(span, part))).max(0);
    }
}

fn recorded(reading: &Reading) -> Used {
    let (mut used, span) = (Used::new(), reading.history.span);
    for life in &reading.history.lives {
        let (track, row) = (Track::of(life, span), used.entry(life.tid).or_default());
        for (part, used) in row.iter_mut().enumerate() {
            *used += track.pos(end(span, part + 1)) - track.pos(end(span, part));
        }
    }
    used
}

/// CPU time in a replay of `recon`; none where it comes to no end.
fn replayed(recon: &Recon, identity: &ReplaySpec, cancel: &Cancel) -> Option<Used> {
    let run = rerun(recon, identity, &mut |_| !cancel.is_set()).ok()?;
    let (events, mut used) = (&run.out.events, Used::new());
    let mut on: BTreeMap<Option<i32>, (i64, Ns)> = BTreeMap::new();
    for row in (0..events.len()).filter(|row| events.kind.get(*row) == Some(Kind::Switch)) {
        let at = events.ts_ns.get(row)? - recon.start;
        let cpu = events.cpu.get(row);
        if let Some((tid, from)) = on.remove(&cpu) {
            book(used.entry(tid).or_default(), from, at, recon.span);
        }
        if let Some(tid) = events.next_tid.get(row) {
            on.insert(cpu, (tid, at));
        }
    }
    for (tid, from) in on.into_values() {
        book(used.entry(tid).or_default(), from, recon.span, recon.span);
    }
    Some(used)
}
