//! Tasks of slices that a source states itself: what their rows say of each, and nothing else.

use std::collections::BTreeMap;

use crate::table::Table;
use crate::tables::{Slices, Tasks};

/// What the slices of a task add up to.
#[derive(Clone, Copy, Default)]
struct Sum {
    first: usize,
    last: usize,
    run: i64,
    slices: u64,
    involuntary: u64,
    voluntary: u64,
    prio: Option<(i32, i32)>,
}

/// The `tasks` table of slices in time order: a row for each key, by key.
pub fn tasks_of(slices: &Slices) -> Tasks {
    let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
    for row in 0..slices.len() {
        let Some(utid) = slices.utid.get(row) else { continue };
        let sum = sums.entry(utid).or_insert(Sum { first: row, ..Sum::default() });
        sum.last = row;
        sum.run = sum.run.saturating_add(slices.dur_ns.get(row).unwrap_or(0));
        sum.slices += 1;
        match slices.involuntary.get(row) {
            Some(true) => sum.involuntary += 1,
            Some(false) => sum.voluntary += 1,
            None => {}
        }
        if let Some(prio) = slices.prio.get(row) {
            let (lo, hi) = sum.prio.unwrap_or((prio, prio));
            sum.prio = Some((lo.min(prio), hi.max(prio)));
        }
    }
    let mut tasks = Tasks::default();
    for (utid, sum) in sums {
        let end = |row| slices.ts_ns.get(row).unwrap_or(0).saturating_add(slices.dur_ns.get(row).unwrap_or(0));
        let mut row = tasks.push();
        row.utid(utid).tid(slices.tid.get(sum.first)).pid(slices.pid.get(sum.first)).is_idle(false);
        row.comm(slices.comm.get(sum.last)).comm_first(slices.comm.get(sum.first));
        row.first_ts_ns(slices.ts_ns.get(sum.first)).last_ts_ns(end(sum.last));
        row.prio_min(sum.prio.map(|p| p.0)).prio_max(sum.prio.map(|p| p.1));
        row.run_ns(sum.run).nr_slices(sum.slices);
        if sum.involuntary + sum.voluntary > 0 {
            row.nr_involuntary(sum.involuntary).nr_voluntary(sum.voluntary);
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_add_up_to_their_tasks() {
        let mut slices = Slices::default();
        slices.push().ts_ns(10).dur_ns(5).utid(1).tid(7).prio(120).involuntary(true).flags(0);
        slices.push().ts_ns(15).dur_ns(10).utid(0).tid(9).pid(8).flags(0);
        slices.push().ts_ns(30).dur_ns(7).utid(1).tid(7).prio(100).involuntary(false).flags(0);
        let tasks = tasks_of(&slices);
        assert_eq!(tasks.len(), 2);
        assert_eq!((tasks.tid.get(0), tasks.pid.get(0), tasks.run_ns.get(0)), (Some(9), Some(8), Some(10)));
        assert_eq!((tasks.tid.get(1), tasks.run_ns.get(1), tasks.nr_slices.get(1)), (Some(7), Some(12), Some(2)));
        assert_eq!((tasks.prio_min.get(1), tasks.prio_max.get(1)), (Some(100), Some(120)));
        assert_eq!((tasks.nr_involuntary.get(1), tasks.nr_voluntary.get(1)), (Some(1), Some(1)));
        assert_eq!((tasks.first_ts_ns.get(1), tasks.last_ts_ns.get(1)), (Some(10), Some(37)));
        assert_eq!((tasks.nr_involuntary.get(0), tasks.prio_min.get(0)), (None, None), "nothing says how they ended");
    }
}
