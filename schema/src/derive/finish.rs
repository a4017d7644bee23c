//! The end of the trace: open intervals close, tasks and CPUs become rows.

use super::emit::End;
use super::sink::{CpuRow, Sink, TaskRow, Transition};
use super::tasks::Phase;
use super::Deriver;
use crate::tables::flag;
use crate::{Code, Diagnostic, Diagnostics, State};

impl<S: Sink> Deriver<S> {
    pub(super) fn close(&mut self, diagnostics: &mut Diagnostics) {
        let Some((start, end)) = self.span else { return };
        for slot in 0..self.cpus.all.len() {
            let cpu = &mut self.cpus[slot];
            let Some(first) = cpu.first else { continue };
            if cpu.only_glimpsed() {
                cpu.account(cpu.last);
                cpu.cur = None;
            }
            cpu.account(end);
            // Nobody knows who had it before its first record.
            cpu.unknown = cpu.unknown.saturating_add(first.saturating_sub(start));
        }
        for utid in 0..self.tasks.all.len() as u32 {
            self.close_task(utid, end);
        }
        self.sink.transition(end, Transition::End);
        self.tell_ends(diagnostics);
        self.cpu_rows();
        self.task_rows();
        if self.unwoken && !self.wakes {
            diagnostics.push(
                Diagnostic::new(Code::MissingEvents, "tasks come to run from sleep, and no record says who woke them")
                    .advise("record wakeups too; run delays after a sleep are null without them"),
            );
        }
    }

    /// Says which CPUs a task had when their records ended, though it ran on others later.
    fn tell_ends(&self, diagnostics: &mut Diagnostics) {
        for cpu in &self.cpus.all {
            let Some((utid, ts)) = cpu.ousted else { continue };
            let tid = self.tasks[utid].tid;
            diagnostics.push_with(Code::Inferred, || {
                let message =
                    format!("thread {tid} enters a CPU while it has CPU {}, whose switches end before", cpu.cpu);
                Diagnostic::new(Code::Inferred, message).on_cpu(cpu.cpu).at_ts(ts).advise(
                    "a recorder may stop one CPU after another, as perf does: who had that CPU then is not known",
                )
            });
        }
    }

    fn close_task(&mut self, utid: u32, end: i64) {
        let task = &mut self.tasks[utid];
        if task.idle || task.phase == Phase::Unseen {
            return;
        }
        task.flags |= flag::OPEN_END;
        // In a recording of some CPUs another one may have taken it.
        let unseen = !self.live || self.options.partial.cpus.is_some();
        if unseen && task.phase == Phase::Ready {
            // Without switches nobody knows whether it still waits.
            task.state = State::Unknown;
        }
        if task.phase == Phase::Running {
            let flags = task.open.flags;
            task.flags |= flags;
            let seen = task.slot.map(|slot| &self.cpus[slot]).filter(|cpu| cpu.only_glimpsed()).map(|cpu| cpu.last);
            let ts = seen.map_or(end, |last| last.max(self.tasks[utid].open.ts));
            self.end_slice(utid, &End { ts, flags: flag::OPEN_END, ..End::default() });
            if seen.is_some() {
                self.turn(utid, ts, Phase::Unknown, State::Unknown);
            }
        }
        if self.options.states {
            let ts = end.max(self.tasks[utid].since);
            self.state_row(utid, ts);
        }
    }

    fn cpu_rows(&mut self) {
        let mut slots: Vec<usize> = (0..self.cpus.all.len()).collect();
        slots.sort_by_key(|slot| self.cpus.all[*slot].cpu);
        for slot in slots {
            let cpu = &self.cpus.all[slot];
            let Some(first) = cpu.first else { continue };
            self.sink.cpu(&CpuRow {
                cpu: cpu.cpu,
                seen: (first, cpu.last),
                events: cpu.nr_events,
                switches: cpu.nr_switches,
                lost: cpu.nr_lost,
                time: (cpu.busy, cpu.idle, cpu.unknown),
                max_backstep: cpu.max_backstep,
            });
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
    }

    fn task_rows(&mut self) {
        for (utid, task) in self.tasks.all.iter().enumerate() {
            // Named by records without a time only.
            if task.phase == Phase::Unseen && task.end_ts.is_none() {
                continue;
            }
            self.sink.task(&TaskRow {
                utid: utid as u32,
                tid: task.tid,
                pid: task.pid,
                comm: task.comm,
                comm_first: task.comm_first,
                exec_path: task.exec_path,
                parent: task.parent,
                idle: task.idle,
                idle_cpu: task.idle_cpu,
                seen: (task.first_ts, task.last_ts),
                start_ts: task.start_ts,
                end_ts: task.end_ts,
                prio: (task.prio_min, task.prio_max),
                run: task.run_ns,
                counts: (task.nr_slices, task.nr_involuntary, task.nr_voluntary),
            });
        }
    }
}
