//! Records of a switch that stand twice: a line that was printed or pasted again, an event that two
//! sessions put into one text.

use super::{Sink, Step};
use crate::{Code, Diagnostic};

impl<S: Sink> Step<'_, S> {
    /// Whether the record states the last switch of its CPU once more.
    pub(super) fn stands_twice(&mut self, slot: usize, from: Option<i64>, to: Option<i64>, ts: i64) -> bool {
        let (Some(from), Some(to)) = (from, to) else { return false };
        let cpu = &mut self.d.cpus[slot];
        let number = cpu.cpu;
        if cpu.switched.replace((ts, from, to)) != Some((ts, from, to)) {
            return false;
        }
        self.diagnostics.push_with(Code::Duplicate, || {
            let message = format!("the switch from thread {from} to thread {to} stands twice");
            Diagnostic::new(Code::Duplicate, message)
                .on_cpu(number)
                .at_ts(ts)
                .advise("the second record is left out of slices and states; the events table has both")
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use super::super::DeriveOptions;
    use crate::table::Table;
    use crate::{Code, Kind, State};

    #[test]
    fn a_switch_that_stands_twice_is_no_missing_switch() {
        let run = |times: usize| {
            let mut t = Trace::default();
            for (ts, from, to) in [(0, 1, 2), (10, 2, 1), (20, 1, 2)] {
                for _ in 0..times {
                    t.switch(ts, 0, from, State::Runnable, to);
                    t.wake(ts + 1, 0, Kind::Wakeup, to, 3, 0);
                }
            }
            let (d, found) = t.derive_with(DeriveOptions::default());
            let slices: Vec<_> = (0..d.slices.len()).map(|i| (d.slices.ts_ns.get(i), d.slices.dur_ns.get(i))).collect();
            (slices, d.cpus.nr_switches.get(0), [Code::Duplicate, Code::SwitchMismatch].map(|code| found.count(code)))
        };
        let (once, twice) = (run(1), run(2));
        assert_eq!((&once.0, once.1), (&twice.0, twice.1));
        assert_eq!((once.2, twice.2), ([0, 0], [3, 0]));
    }
}
