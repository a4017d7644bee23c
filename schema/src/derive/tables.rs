//! The sink that makes tables.

use super::sink::{CpuRow, QueueRow, Sink, SliceRow, StateRow, TaskRow};
use super::Derived;

/// Rows of the derived tables, as they end.
#[derive(Debug, Default)]
pub struct Tables {
    /// The rows.
    pub rows: Derived,
}

impl Sink for Tables {
    #[inline]
    fn slice(&mut self, s: &SliceRow) {
        let mut row = self.rows.slices.push();
        row.ts_ns(s.ts).dur_ns(s.dur).cpu(s.cpu).utid(s.utid).tid(s.tid).pid(s.pid).comm(s.comm);
        row.prio(s.prio).end_state(s.end_state).involuntary(s.involuntary);
        row.run_delay_ns(s.run_delay).prev_cpu(s.prev_cpu).seq_in(s.seq.0).seq_out(s.seq.1);
        if let Some((length, blocked)) = s.sleep {
            row.sleep_ns(length).blocked(blocked);
        }
        if let Some((ts, waker, cpu)) = s.wake {
            row.wake_ts_ns(ts).waker_utid(waker).waker_cpu(cpu);
        }
        row.flags(s.flags);
    }

    #[inline]
    fn state(&mut self, s: &StateRow) {
        let mut row = self.rows.states.push();
        row.ts_ns(s.ts).dur_ns(s.dur).utid(s.utid).tid(s.tid).comm(s.comm);
        row.state(s.state).reason(s.reason).flags(s.flags);
        if s.cpu.is_some() {
            row.cpu(s.cpu);
        }
    }

    #[inline]
    fn runqueue(&mut self, s: &QueueRow) {
        let mut row = self.rows.runqueue.push();
        row.ts_ns(s.ts).nr_running(s.running).nr_waiting(s.waiting).flags(s.flags);
        if s.cpu.is_some() {
            row.cpu(s.cpu);
        }
    }

    fn task(&mut self, s: &TaskRow) {
        let mut row = self.rows.tasks.push();
        row.utid(s.utid).tid(s.tid).pid(s.pid).comm(s.comm).comm_first(s.comm_first);
        row.exec_path(s.exec_path).parent_utid(s.parent).is_idle(s.idle).idle_cpu(s.idle_cpu);
        row.first_ts_ns(s.seen.0).last_ts_ns(s.seen.1).start_ts_ns(s.start_ts).end_ts_ns(s.end_ts);
        row.prio_min(s.prio.0).prio_max(s.prio.1).run_ns(s.run).nr_slices(s.counts.0);
        row.nr_involuntary(s.counts.1).nr_voluntary(s.counts.2);
    }

    fn cpu(&mut self, s: &CpuRow) {
        let mut row = self.rows.cpus.push();
        row.cpu(s.cpu).first_ts_ns(s.seen.0).last_ts_ns(s.seen.1);
        row.nr_events(s.events).nr_switches(s.switches).nr_lost(s.lost);
        row.busy_ns(s.time.0).idle_ns(s.time.1).unknown_ns(s.time.2).max_backstep_ns(s.max_backstep);
    }
}
