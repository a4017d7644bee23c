//! `perf-timehist`: the slices that `perf sched timehist` prints, and its sums.
//!
//! # Format
//!
//! **Produced by** `perf sched timehist`, with any of `-V`, `--state`, `--show-prio`, `-P`, `-w`,
//! `-M`, `-n`, `-g`, `-s`, `-S`.
//!
//! **Grammar**: a heading that names the columns, its second line with their units, a ruler, and a
//! row for each task that *leaves* a CPU. `-V` puts a letter a CPU before the task, `--show-prio` a
//! priority behind it, `-P` one more time behind the others, `--state` a letter behind those, `-n`
//! who runs next, `-g` the call chain at the very end:
//!
//! ```text
//!            time    cpu  task name                       wait time  sch delay   run time
//!                         [tid/pid]                          (msec)     (msec)     (msec)
//! --------------- ------  ------------------------------  ---------  ---------  ---------
//!       13.532645 [0000]  rcu_preempt[15]                     3.869      0.019      0.011
//! ```
//!
//! `-w` and `-M` add rows without figures, `... awakened: NAME[TID]` and `... migrated: NAME[TID]
//! cpu 0 => 1`. `-s` prints only the sums, `-S` both.
//!
//! **Clock**: perf's own, cut to the microsecond; so are the figures. A slice starts at its time
//! less its run time, and that start may be 1 us too late or too early.
//!
//! **Rows**: the table `slices`, directly: there are no events to derive it from, so no states and
//! no run queues. The name is the one at the end of the slice; with `-n`, the one at its start.
//! `wait time` runs from the task's last slice to this one; less the delay it is `sleep_ns`. The
//! figures of `-s` fill `summaries`, as does the number of migrations of each task (`-M`).
//! **Dropped**: call chains, `pre-mig time`, `<idle>`, which is never a task here.
//!
//! **Departures tolerated**: no heading, collapsed blanks, `[...]`, CRLF, perf's messages, call
//! chains behind a row.
//!
//! **Traps**: the first row of each CPU has 0.000 because nobody saw the slice begin: it is marked
//! as open at its start. A delay of 0.000 means either no wakeup or one without delay: the delay is
//! then null, unless `-w` reports the wakeup or `--state` that the task had been preempted. perf
//! up to 6.5 prints the letters of an older kernel: `K` is an idle kernel thread, `W` a preempted
//! task, `x` either parked or dead, here unknown, and `X` and `Z` have changed places: both are
//! `dead` here. A thread that has ended is `:-1[-1/302]`; without `-n` its slice cannot be kept.
//! `-I` prints 0.000 for every task, so only its sums are read. The waker of `-w` is the task that
//! ran, even when an interrupt interrupted it.
//!
//! **Sources**: Linux `tools/perf/builtin-sched.c`, `perf-sched(1)`; output of perf 4 to 6.12.

mod row;
mod summary;

use std::collections::{BTreeMap, HashMap};

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::table::Table;
use tracekit_schema::tables::flag;
use tracekit_schema::{Out, State, StrId};

use crate::text::payload::state;
use crate::text::perf_tables::{self, Reader, Report, Task, Threads, Tool};
use crate::text::scan;
use crate::{Confidence, Format, FormatInfo, Head, Options, ParseError, Parser, Source};
use row::{Figures, Layout, RowKind};
use summary::Summary;

/// The format's row.
pub static FORMAT: Format = Format {
    name: "perf-timehist",
    title: "slices as perf prints them: perf sched timehist",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "perf sched timehist [-V] [--state] [--show-prio] [-w] [-M] [-n] [-s | -S]",
        kinds: "none: fills the tables `slices` and `summaries`",
        provides: "run, sleep and run delay of each slice; state with --state, priority with \
            --show-prio, waker with -w; losses",
        resolution: "1 us, truncated; starts of slices to 1 us either way",
        clock: "perf's own",
        confidence: "real captures: perf 6.1's output in every variant it has; --show-prio and -P on published samples",
        notes: "no events, so no states, no run queues and no replay; a delay of 0.000 is unknown \
            without -w or --state",
    },
};

const EXPECTED: &str = "a row of perf sched timehist `TIME [CPU] TASK[TID] WAIT DELAY RUN`";

fn sniff(head: &Head) -> Confidence {
    let mut rows = 0;
    for line in head.bytes.split(|b| *b == b'\n').take(500) {
        if Layout::of(line).is_some_and(|_| memchr::memmem::find(line, b"sch delay").is_some()) {
            return 95;
        }
        if line.trim_ascii().starts_with(b"comm  parent ") {
            return 90;
        }
        rows += u8::from(row::parse(line, None).is_some());
        if rows > 1 {
            return 80;
        }
    }
    match rows {
        0 if perf_tables::usage(head, "timehist").is_some() => 60,
        0 => 0,
        _ => 65,
    }
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(FORMAT.name, &e))?;
    let mut lines = head.bytes.split(|b| *b == b'\n');
    if head.whole && !lines.any(|l| Layout::of(l).is_some() || row::parse(l, None).is_some() || is_title(l)) {
        return Err(perf_tables::no_rows(FORMAT.name, "timehist", EXPECTED, &head));
    }
    out.meta.set("os", "linux");
    out.meta.set("prio.scale", "linux");
    out.meta.set("clock.name", options.clock.clone().unwrap_or_else(|| "perf".to_owned()));
    out.meta.set("clock.resolution_ns", "1000");
    out.meta.set("clock.synchronised", "unknown");
    Ok(Box::new(Reader::new(source, Timehist::default())))
}

fn is_title(line: &[u8]) -> bool {
    summary::TITLES.contains(&scan::trim(line.trim_ascii()))
}

/// What the rows before say of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    cpu: Option<i32>,
    state: Option<State>,
    /// Who woke it since, and where.
    wakeup: Option<(Option<u32>, i32)>,
}

/// What the rows before say of a CPU.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    ts_ns: i64,
    /// Thread and name of who came next, where `-n` says.
    next: Option<(i64, Option<StrId>)>,
}

/// What was met, for the metadata and the diagnostics.
#[derive(Default)]
struct Met {
    rows: u64,
    /// Rows of tasks with any figure but 0.
    figures: u64,
    idle: bool,
    wakeups: bool,
    states: bool,
    prio: bool,
    next: bool,
    visual: bool,
    lost_sight: u64,
}

#[derive(Default)]
struct Timehist {
    layout: Option<Layout>,
    summary: Summary,
    threads: Threads<Last>,
    cpus: HashMap<i32, Cpu>,
    migrations: BTreeMap<(Option<i64>, Vec<u8>), u64>,
    met: Met,
}

impl Tool for Timehist {
    const NAME: &'static str = FORMAT.name;

    fn line(&mut self, line: &[u8], ended: bool, report: &mut Report, out: &mut Out) {
        if let Some(layout) = Layout::of(line) {
            self.met.visual |= layout.visual.is_some();
            self.layout = Some(layout);
            return;
        }
        let ruler = line.iter().all(|b| matches!(b, b'-' | b' ' | b'\r'));
        if ruler || self.layout.as_mut().is_some_and(|l| l.units(line)) {
            return;
        }
        match row::parse(line, self.layout.as_ref()) {
            // A row that is cut within its last figure would read as a smaller one.
            Some(row) if ended => self.row(&row, report.number(), out),
            _ if self.summary.line(line, out) => {}
            _ => report.unparsed(line, ended, EXPECTED, out),
        }
    }

    fn finish(&mut self, out: &mut Out) {
        let met = &self.met;
        if met.lost_sight > 0 {
            let message = format!("{} slices are of threads that perf lost sight of (`:-1`); left out", met.lost_sight);
            let d = Diagnostic { count: met.lost_sight, ..Diagnostic::new(Code::PartlyParsed, message) };
            out.diag(d.advise("print who runs next as well (perf sched timehist -n)"));
        }
        if met.idle && met.figures == 0 && !out.slices.is_empty() {
            out.slices.clear();
            let message = "all times of tasks are 0.000, as perf sched timehist -I prints them; no slices were made";
            out.diag(Diagnostic::new(Code::Unsupported, message).advise("print the table without -I"));
        }
        let delays = (0..out.slices.len()).any(|i| out.slices.run_delay_ns.get(i).is_some());
        if !out.slices.is_empty() && !met.wakeups && !delays {
            let message = "the source has no wakeups: run delays and wakers are unknown";
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise("record `sched_waking` or `sched_wakeup`"));
        }
        perf_tables::sort_slices(out);
        for ((tid, text), count) in std::mem::take(&mut self.migrations) {
            let section = out.strings.intern(b"Migrations");
            let (subject, key) = (out.strings.intern(&text), out.strings.intern(b"migrations"));
            out.summaries.push().section(section).subject(subject).tid(tid).key(key).value(count as f64);
        }
        let highest = self.cpus.keys().max().map(|cpu| i64::from(*cpu) + 1);
        if let Some(cpus) = highest.max(self.summary.cpus).filter(|n| *n > 0) {
            out.meta.set("nr_cpus", cpus.to_string());
        }
        let met = &self.met;
        let mut parts = vec!["timehist"];
        for (is, what) in [
            (met.visual, "a letter for each CPU"),
            (met.prio, "priorities"),
            (met.states, "states"),
            (met.next, "who runs next"),
            (met.wakeups, "wakeups"),
            (self.summary.begun(), "sums"),
        ] {
            if is {
                parts.push(what);
            }
        }
        out.meta.set("source.variant", parts.join(", "));
    }
}

impl Timehist {
    fn row(&mut self, row: &row::Row<'_>, number: u64, out: &mut Out) {
        match &row.kind {
            RowKind::Slice(figures) => self.slice(row, figures, number, out),
            RowKind::Awakened(woken) => {
                self.met.wakeups = true;
                let waker = match row.task {
                    Task::Thread { tid: Some(tid), .. } => Some(self.threads.entry(tid).utid),
                    _ => None,
                };
                if let Task::Thread { tid: Some(tid), .. } = woken {
                    self.threads.entry(*tid).kept.wakeup = Some((waker, row.cpu));
                }
            }
            RowKind::Migrated { text, task, .. } => {
                let tid = if let Task::Thread { tid, .. } = task { *tid } else { None };
                *self.migrations.entry((tid, text.to_vec())).or_insert(0) += 1;
            }
        }
    }

    fn slice(&mut self, row: &row::Row<'_>, figures: &Figures<'_>, number: u64, out: &mut Out) {
        let before = self.leave_cpu(row, figures, number, out);
        self.met.rows += 1;
        let Task::Thread { comm, tid, pid } = row.task else { return self.met.idle = true };
        self.met.figures += u64::from(figures.run > 0 || figures.wait > 0 || figures.delay > 0);
        let stated = before.and_then(|b| b.next);
        let Some(tid) = tid.or(stated.map(|t| t.0)) else {
            self.met.lost_sight += 1;
            return;
        };
        let comm = match stated {
            Some((next, name)) if next == tid && name.is_some() => name,
            _ => comm.map(|c| out.strings.intern(c)),
        };
        let thread = self.threads.entry(tid);
        let (utid, last) = (thread.utid, thread.kept);
        let state = figures.state.map(state_of);
        thread.kept = Last { cpu: Some(row.cpu), state, wakeup: None };

        let ts = row.ts_ns.saturating_sub(figures.run);
        let woken = figures.delay > 0 || last.wakeup.is_some();
        let preempted = last.state.is_some_and(State::is_runnable);
        let open = before.is_none() && figures.run == 0;
        let mut slice = out.slices.push();
        slice.ts_ns(ts).dur_ns(figures.run).cpu(row.cpu).utid(utid).tid(tid).pid(pid).comm(comm);
        slice.prio(figures.prio).end_state(state).involuntary(state.map(State::is_runnable)).prev_cpu(last.cpu);
        slice.flags(if open { flag::OPEN_START } else { 0 });
        if open {
            return;
        }
        if woken {
            slice.run_delay_ns(figures.delay).wake_ts_ns(ts.saturating_sub(figures.delay));
            if last.cpu.is_some() {
                slice.sleep_ns(figures.wait.saturating_sub(figures.delay));
                slice.blocked(last.state.map(|s| s == State::Blocked));
            }
        } else if preempted {
            slice.run_delay_ns(figures.wait);
        }
        if let Some((waker, cpu)) = last.wakeup {
            slice.waker_utid(waker).waker_cpu(cpu);
        }
    }

    /// Takes a row's end into account; what was known of its CPU before.
    fn leave_cpu(&mut self, row: &row::Row<'_>, figures: &Figures<'_>, number: u64, out: &mut Out) -> Option<Cpu> {
        let next = match figures.next {
            Some(Task::Thread { comm, tid: Some(tid), .. }) => Some((tid, comm.map(|c| out.strings.intern(c)))),
            _ => None,
        };
        self.met.next |= figures.next.is_some();
        self.met.states |= figures.state.is_some();
        self.met.prio |= figures.prio.is_some();
        let before = self.cpus.insert(row.cpu, Cpu { ts_ns: row.ts_ns, next });
        if let Some(last) = before.filter(|b| b.ts_ns > row.ts_ns) {
            let cpu = row.cpu;
            out.diagnostics.push_with(Code::TimeBackwards, || {
                let message = format!("CPU {cpu} goes back by {} ns", last.ts_ns.saturating_sub(row.ts_ns));
                let d = Diagnostic::new(Code::TimeBackwards, message).at_line(number).on_cpu(cpu).at_ts(row.ts_ns);
                d.advise("two reports in one file: cut the file there")
            });
        }
        before
    }
}

/// What the letter of `--state` says. perf up to 6.5 prints a table that lost its meaning with Linux 4.14.
fn state_of(letter: u8) -> State {
    match letter {
        b'K' => State::IdleKthread,
        b'W' | b'p' => State::Preempted,
        b'x' => State::Unknown,
        b'X' | b'Z' => State::Dead,
        other => state::from_letters(&[other]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_every_perf() {
        let of = |letters: &str| letters.bytes().map(state_of).collect::<Vec<_>>();
        assert_eq!(of("RWp"), [State::Runnable, State::Preempted, State::Preempted]);
        assert_eq!(of("SDK"), [State::Sleeping, State::Blocked, State::IdleKthread]);
        assert_eq!(of("Ix?"), [State::IdleKthread, State::Unknown, State::Unknown]);
        assert_eq!(of("ZXP"), [State::Dead, State::Dead, State::Parked]);
    }
}
