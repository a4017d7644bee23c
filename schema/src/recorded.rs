//! What records show of what was recorded, where nothing says so.

use std::collections::BTreeSet;

use crate::table::Table;
use crate::{Events, Kind};

/// Fewest switches to threads from which none leads away, idle or others, and one in how many of all must be
/// such, by which a recording of some tasks is known: a tracer that follows tasks keeps the switch by which
/// one of them leaves, and none by which one comes. Of busy machines as a whole perf leaves out many
/// switches from idle: up to 0.5 % of theirs are such (five of 3,450 to 18,835), of some tasks 34 and 100 %.
const NO_WAY_BACK: (usize, usize) = (5, 20);

/// What shows in switches that only some tasks were recorded: idle is switched to and never from.
///
/// A parser whose tables depend on it asks of the beginning of a text, Python of whole tables.
pub fn of_some_tasks(events: &Events) -> Option<String> {
    let (mut cpus, mut left, mut next) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for row in (0..events.len()).filter(|row| events.kind.get(*row) == Some(Kind::Switch)) {
        cpus.extend(events.cpu.get(row));
        if let (Some(from), Some(to)) = (events.tid.get(row), events.next_tid.get(row)) {
            left.insert(from);
            next.push(to);
        }
    }
    let kept = next.iter().filter(|tid| !left.contains(tid)).count();
    let (least, share) = NO_WAY_BACK;
    let so = kept >= least.max(2 * cpus.len()) && kept * share >= next.len() && !left.contains(&0);
    so.then(|| format!("{kept} of {} switches lead to threads from which none leads away", next.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(switches: &[(i64, i64)]) -> Option<String> {
        let mut events = Events::default();
        for (from, to) in switches {
            events.push().kind(Kind::Switch).cpu(0).tid(*from).next_tid(*to);
        }
        of_some_tasks(&events)
    }

    #[test]
    fn five_switches_and_a_twentieth_of_all_without_a_way_back() {
        let ways = |there: usize, both: usize| {
            let mut all = vec![(1, 9); there];
            all.extend(std::iter::repeat_n([(1, 2), (2, 1)], both).flatten());
            shown(&all)
        };
        assert_eq!(ways(5, 40).as_deref(), Some("5 of 85 switches lead to threads from which none leads away"));
        assert_eq!(ways(4, 0), None);
        assert_eq!(ways(5, 48), None);
    }

    #[test]
    fn who_leaves_idle_was_recorded_as_a_whole() {
        let mut all = vec![(1, 9); 20];
        assert!(shown(&all).is_some());
        all.push((0, 1));
        assert_eq!(shown(&all), None);
    }
}
