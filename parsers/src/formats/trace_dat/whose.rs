//! Which CPU a run of pages is of, where no table says it.
//!
//! What counts as evidence: the name of the idle task, which is `swapper/N` on CPU N; as many
//! records as the counters of a CPU say, or, in the run within which the file ends, the CPU that
//! comes next after those; that no other CPU is left, as CPUs follow in the order of their numbers;
//! that tasks which were woken on CPU N run here next. Nothing is taken by order alone, and what
//! contradicts itself is refused.

use super::cut::Run;
use crate::error::ParseError;
use crate::Parser;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

/// A CPU that the options list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// CPU.
    pub cpu: i32,
    /// How many records its counters say were written.
    pub records: Option<u64>,
}

/// What the records of one run show.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How many there are.
    pub records: u64,
    /// Numbers in the names of idle tasks.
    pub idle: BTreeSet<i32>,
    /// Where tasks were woken that run here next, and how many.
    pub woken: BTreeMap<i32, u64>,
    /// A switch comes from another task than the one before led to, and nothing was lost between.
    pub broken: bool,
    /// Who ran first.
    first: Option<i64>,
    /// Who runs.
    current: Option<i64>,
}

/// Whose a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// CPU.
    pub cpu: i32,
    /// What shows it.
    pub basis: String,
    /// The file holds all of its records.
    pub whole: bool,
}

/// Rows that are looked at together.
const ROWS: usize = 1 << 16;

/// Reads all of what `open` opens, whose CPUs are the numbers of `runs` runs, for evidence.
pub fn watch<P: Parser>(runs: usize, open: impl FnOnce(&mut Out) -> P) -> Result<Vec<Seen>, ParseError> {
    let mut out = Out::new();
    let mut parser = open(&mut out);
    let mut seen = vec![Seen::default(); runs];
    let mut woken: HashMap<i64, i32> = HashMap::new();
    let mut more = true;
    while more {
        more = parser.fill(&mut out, ROWS)?;
        for row in 0..out.events.len() {
            let e = &out.events;
            let Some(here) = e.cpu.get(row).and_then(|cpu| seen.get_mut(cpu as usize)) else { continue };
            let kind = e.kind.get(row).unwrap_or_default();
            if kind == Kind::Lost {
                here.current = None;
                continue;
            }
            here.records += 1;
            match (kind, e.tid.get(row), e.target_cpu.get(row)) {
                (Kind::Wakeup | Kind::WakeupNew, Some(tid), Some(cpu)) => {
                    woken.insert(tid, cpu);
                }
                (Kind::Migrate, Some(tid), Some(cpu)) => {
                    woken.entry(tid).and_modify(|to| *to = cpu);
                }
                (Kind::Switch, Some(prev), _) => {
                    let next = e.next_tid.get(row);
                    here.first.get_or_insert(prev);
                    here.broken |= here.current.is_some_and(|current| current != prev);
                    here.current = next;
                    for (tid, name) in [(Some(prev), e.comm.get(row)), (next, e.next_comm.get(row))] {
                        if let (Some(0), Some(name)) = (tid, name) {
                            here.idle.extend(idle_of(&out.strings.text(name)));
                        }
                    }
                    if let Some(to) = next.and_then(|tid| woken.remove(&tid)) {
                        *here.woken.entry(to).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        out.clear_events();
    }
    Ok(seen)
}

/// The CPU of the idle task with this name.
fn idle_of(name: &str) -> Option<i32> {
    name.strip_prefix("swapper/")?.parse().ok()
}

/// Whose each run is, or why that is not known.
pub fn decide(runs: &[Run], seen: &[Seen], listed: &[Listed]) -> Vec<Result<Found, String>> {
    // CPUs without records have no pages.
    let mut counted = listed.iter().filter(|l| l.records.is_some_and(|n| n > 0));
    let mut in_step = true;
    let mut last = -1;
    let mut before: Option<&Seen> = None;
    let mut found = Vec::new();
    for (run, seen) in runs.iter().zip(seen) {
        let listing = counted.next().filter(|_| in_step);
        let said = listing.and_then(|l| l.records);
        let full = said == Some(seen.records);
        in_step = full;
        // Only the run within which the file ends may have fewer records than were counted.
        let counted = listing.filter(|_| full || !run.whole && said.is_some_and(|n| seen.records < n)).map(|l| l.cpu);
        // Time can step back within a CPU's records; then the same task goes on.
        let goes_on = before.is_some_and(|b| b.current.is_some() && b.current == seen.first);
        before = Some(seen);
        let mut rest = listed.iter().filter(|l| l.cpu > last && l.records != Some(0) && !goes_on);
        let left = rest.next().filter(|_| rest.next().is_none()).map(|l| l.cpu);
        let of = whose(seen, counted, full, left).and_then(|(cpu, basis)| {
            if cpu <= last || !listed.is_empty() && !listed.iter().any(|l| l.cpu == cpu) {
                return Err(format!("they seem to be those of CPU {cpu}, which do not belong here"));
            }
            last = cpu;
            Ok(Found { cpu, basis, whole: run.whole || full })
        });
        found.push(of);
    }
    found
}

fn whose(seen: &Seen, counted: Option<i32>, full: bool, left: Option<i32>) -> Result<(i32, String), String> {
    let mut basis = Vec::new();
    let mut idle = seen.idle.iter();
    let idle = match (idle.next(), idle.next()) {
        (Some(a), Some(b)) => return Err(format!("they name the idle tasks of CPU {a} and of CPU {b}")),
        (one, _) => one.copied(),
    };
    if let Some(cpu) = idle {
        basis.push(format!("its idle task is swapper/{cpu}"));
    }
    if let Some(cpu) = counted {
        if idle.is_some_and(|idle| idle != cpu) {
            let idle = idle.unwrap_or_default();
            return Err(format!("by the counters they are those of CPU {cpu}, by the idle task those of CPU {idle}"));
        }
        basis.push(match full {
            true => format!("the counters say {} records", seen.records),
            false => "it comes next by the counters".to_owned(),
        });
    }
    let most = seen.woken.values().copied().max().unwrap_or(0);
    let woken = match (seen.woken.first_key_value(), seen.woken.len()) {
        (Some((cpu, _)), 1) if !seen.broken => Some(*cpu),
        _ => None,
    };
    let Some(cpu) = idle.or(counted).or(left).or(woken) else {
        return Err("nothing in them shows of which CPU they are".to_owned());
    };
    let here = seen.woken.get(&cpu).copied().unwrap_or(0);
    if here < most {
        return Err(format!("{here} tasks that run here were woken on CPU {cpu}, {most} on another one"));
    }
    if left == Some(cpu) {
        basis.push("no other CPU is left".to_owned());
    }
    if here > 0 {
        let all: u64 = seen.woken.values().sum();
        basis.push(format!("{here} of {all} tasks that were woken run where it says"));
    }
    Ok((cpu, basis.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(whole: bool) -> Run {
        Run { offset: 0, size: 1, whole }
    }

    fn seen(records: u64, idle: &[i32], woken: &[(i32, u64)]) -> Seen {
        Seen {
            records,
            idle: idle.iter().copied().collect(),
            woken: woken.iter().copied().collect(),
            ..Seen::default()
        }
    }

    fn listed(records: &[Option<u64>]) -> Vec<Listed> {
        records.iter().zip(0..).map(|(records, cpu)| Listed { cpu, records: *records }).collect()
    }

    /// The CPUs, -1 for a run that is refused.
    fn cpus(runs: &[Run], seen: &[Seen], listed: &[Listed]) -> Vec<i32> {
        decide(runs, seen, listed).into_iter().map(|f| f.map_or(-1, |f| f.cpu)).collect()
    }

    #[test]
    fn counters_pass_over_cpus_without_records() {
        let runs = [run(true), run(false)];
        let seen = [seen(5, &[], &[]), seen(3, &[], &[])];
        assert_eq!(cpus(&runs, &seen, &listed(&[Some(0), Some(5), Some(0), Some(9)])), [1, 3]);
        // The first has not as many as is said: nothing shows whose either is.
        assert_eq!(cpus(&runs, &seen, &listed(&[Some(4), Some(9)])), [-1, -1]);
        // The last has more than is said.
        assert_eq!(cpus(&runs, &seen, &listed(&[Some(5), Some(2), Some(9)])), [0, -1]);
    }

    #[test]
    fn idle_tasks_name_their_cpu() {
        let runs = [run(true), run(false)];
        let of = |a: &[i32], b: &[i32], l: &[Listed]| cpus(&runs, &[seen(5, a, &[]), seen(3, b, &[])], l);
        assert_eq!(of(&[0], &[2], &[]), [0, 2]);
        assert_eq!(of(&[0], &[], &[]), [0, -1]);
        assert_eq!(of(&[0, 1], &[2], &[]), [-1, 2]);
        assert_eq!(of(&[2], &[0], &[]), [2, -1]);
        assert_eq!(of(&[0], &[4], &listed(&[None, None])), [0, -1]);
        assert_eq!(of(&[0], &[], &listed(&[None, None])), [0, 1]);
        assert_eq!(of(&[1], &[0], &listed(&[Some(5), Some(9)])), [-1, -1]);
    }

    #[test]
    fn wakeups_show_it_where_they_agree() {
        let runs = [run(false)];
        let two = listed(&[None, None]);
        assert_eq!(cpus(&runs, &[seen(5, &[], &[(1, 4)])], &two), [1]);
        assert_eq!(cpus(&runs, &[seen(5, &[], &[(0, 4), (1, 1)])], &two), [-1]);
        assert_eq!(cpus(&runs, &[seen(5, &[1], &[(0, 4), (1, 1)])], &two), [-1]);
        assert_eq!(cpus(&runs, &[seen(5, &[0], &[(0, 4), (1, 1)])], &two), [0]);
        let broken = Seen { broken: true, ..seen(5, &[], &[(1, 4)]) };
        assert_eq!(cpus(&runs, &[broken], &two), [-1]);
        assert_eq!(cpus(&runs, &[seen(5, &[], &[])], &listed(&[None])), [0]);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_begin_a_cpu() {
        let runs = [run(true), run(false)];
        let first = Seen { first: Some(7), current: Some(8), ..seen(5, &[0], &[]) };
        let second = |first| Seen { first: Some(first), ..seen(3, &[], &[]) };
        let two = listed(&[None, None]);
        assert_eq!(cpus(&runs, &[first.clone(), second(8)], &two), [0, -1]);
        assert_eq!(cpus(&runs, &[first, second(9)], &two), [0, 1]);
    }
}
