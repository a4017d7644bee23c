//! Time in which no CPU has a record: the machine slept, or its clock was set.

use super::{Sink, Step};
use crate::{Code, Diagnostic, Kind};

/// Linux reports a CPU whose stopper thread did not run for 20 s as locked up, and runs it every 4 s
/// (`kernel/watchdog.c`, `get_softlockup_thresh`): no CPU that runs is without a switch for as long.
pub(super) const LONGEST_NS: i64 = 20_000_000_000;

impl<S: Sink> Step<'_, S> {
    /// Says so where the record at `ts` is the first one of any CPU for long. That records were lost, or that
    /// nobody recorded, the source says itself.
    pub(super) fn after_silence(&mut self, kind: Kind, ts: i64) {
        let Some((_, last)) = self.d.span else { return };
        let silent = ts.saturating_sub(last);
        if silent <= LONGEST_NS || !self.d.options.all_of_machine || matches!(kind, Kind::Lost | Kind::TraceOn) {
            return;
        }
        self.diagnostics.push_with(Code::Silence, || {
            let seconds = silent / 1_000_000_000;
            let message = format!("no CPU has a record for {seconds} s: the machine slept, its clock was set, or one recording follows another");
            Diagnostic::new(Code::Silence, message).at_ts(last).advise(
                "who ran or waited then is counted with all of that time: look at the parts before and \
                 after, with --from and --to",
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use super::super::DeriveOptions;
    use super::LONGEST_NS;
    use crate::{Code, Metadata, State};

    /// Two tasks take turns, with a pause between.
    fn paused(pause: i64, meta: &Metadata) -> u64 {
        let mut t = Trace::default();
        t.switch(0, 0, 1, State::Runnable, 2);
        t.switch(10, 0, 2, State::Runnable, 1);
        t.switch(10 + pause, 0, 1, State::Runnable, 2);
        let (_, diagnostics) = t.derive_with(DeriveOptions::for_trace(meta));
        diagnostics.count(Code::Silence)
    }

    #[test]
    fn a_pause_of_all_cpus_is_told_where_the_machine_was_recorded() {
        let recorded = Metadata::default();
        assert_eq!((paused(LONGEST_NS, &recorded), paused(LONGEST_NS + 1, &recorded)), (0, 1));
        for (key, value) in
            [("replay.policy", "cfs"), ("workload", "A: R1"), ("tasks.recorded", "1"), ("clock.unit", "ticks")]
        {
            let mut other = Metadata::default();
            other.set(key, value);
            assert_eq!(paused(LONGEST_NS + 1, &other), 0, "{key}");
        }
    }
}
