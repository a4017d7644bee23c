//! The end of the trace: open intervals close, tasks and CPUs become rows.

use super::emit::End;
use super::tasks::Phase;
use super::Deriver;
use crate::table::Table;
use crate::tables::flag;
use crate::{Code, Diagnostic, Diagnostics, State};

impl Deriver {
    pub(super) fn close(&mut self, diagnostics: &mut Diagnostics) {
        let Some((start, end)) = self.span else { return };
        for slot in 0..self.cpus.all.len() {
            let cpu = &mut self.cpus[slot];
            let Some(first) = cpu.first else { continue };
            cpu.account(end);
            // Nobody knows who had it before its first record.
            cpu.unknown = cpu.unknown.saturating_add(first.saturating_sub(start));
        }
        for utid in 0..self.tasks.all.len() as u32 {
            self.close_task(utid, end);
        }
        self.cpu_rows();
        self.task_rows();
        if self.unwoken && !self.wakes {
            diagnostics.push(
                Diagnostic::new(Code::MissingEvents, "tasks come to run from sleep, and no record says who woke them")
                    .advise("record wakeups too; run delays after a sleep are null without them"),
            );
        }
    }

    fn close_task(&mut self, utid: u32, end: i64) {
        let task = &mut self.tasks[utid];
        if task.idle || task.phase == Phase::Unseen {
            return;
        }
        task.flags |= flag::OPEN_END;
        if !self.live && task.phase == Phase::Ready {
            // Without switches nobody knows whether it still waits.
            task.state = State::Unknown;
        }
        if task.phase == Phase::Running {
            let flags = task.open.flags;
            task.flags |= flags;
            self.end_slice(utid, &End { ts: end, flags: flag::OPEN_END, ..End::default() });
        }
        if self.options.states {
            let ts = end.max(self.tasks[utid].since);
            self.state_row(utid, ts);
        }
    }

    fn cpu_rows(&mut self) {
        for slot in 0..self.cpus.all.len() {
            let cpu = &self.cpus.all[slot];
            let Some(first) = cpu.first else { continue };
            let mut row = self.out.cpus.push();
            row.cpu(cpu.cpu).first_ts_ns(first).last_ts_ns(cpu.last);
            row.nr_events(cpu.nr_events).nr_switches(cpu.nr_switches).nr_lost(cpu.nr_lost);
            row.busy_ns(cpu.busy).idle_ns(cpu.idle).unknown_ns(cpu.unknown).max_backstep_ns(cpu.max_backstep);
            if cpu.idle_periods > 0 {
                let (number, first, last) = (cpu.cpu, first, cpu.last);
                let (run, periods, name) = (cpu.idle, cpu.idle_periods, cpu.idle_comm);
                let utid = cpu.idle_utid.unwrap_or_else(|| self.tasks.idle_of(number));
                let task = &mut self.tasks[utid];
                task.idle_cpu = Some(number);
                (task.comm, task.comm_first) = (task.comm.or(name), task.comm_first.or(name));
                (task.run_ns, task.nr_slices) = (run, periods);
                if task.phase == Phase::Unseen && task.tid == 0 {
                    (task.first_ts, task.last_ts) = (first, last);
                    task.phase = Phase::Running;
                }
            }
        }
        let cpus = &self.out.cpus;
        self.out.cpus = cpus.take(&super::order(cpus.len(), |i| (cpus.cpu.get(i).map(i64::from), None)));
    }

    fn task_rows(&mut self) {
        for (utid, task) in self.tasks.all.iter().enumerate() {
            // Named by records without a time only.
            if task.phase == Phase::Unseen && task.end_ts.is_none() {
                continue;
            }
            let mut row = self.out.tasks.push();
            row.utid(utid as u32).tid(task.tid).pid(task.pid).comm(task.comm).comm_first(task.comm_first);
            row.exec_path(task.exec_path).parent_utid(task.parent).is_idle(task.idle).idle_cpu(task.idle_cpu);
            row.first_ts_ns(task.first_ts).last_ts_ns(task.last_ts).start_ts_ns(task.start_ts).end_ts_ns(task.end_ts);
            row.prio_min(task.prio_min).prio_max(task.prio_max).run_ns(task.run_ns).nr_slices(task.nr_slices);
            row.nr_involuntary(task.nr_involuntary).nr_voluntary(task.nr_voluntary);
        }
    }
}
