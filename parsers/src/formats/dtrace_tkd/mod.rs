//! `dtrace-tkd`: what tracekit's own DTrace capture scripts print.
//!
//! # Format
//!
//! **Produced by** `tracekit recipes dtrace --os illumos|freebsd|macos`, run as `dtrace -x temporal
//! -s tkd.d > t.tkd 2>&1`.
//!
//! **Grammar**, version 1: one record a line, columns separated by one TAB, `-` for what is not available.
//!
//! ```text
//! #TKD  1  os  timestamp  walltimestamp  addr|tid     the first line; how threads are distinguished
//! #TKP  on,off,...                                    the events that the script asks for
//! #TKT  timestamp  walltimestamp                      once a second: no line older than the last #TKT can follow the next
//! #TKE  timestamp  walltimestamp                      the capture ended in order
//! T1 ts cpu ev cpid ctid caddr cpri spid stid saddr spri x y z ccomm scomm
//! ```
//!
//! `c...` is the thread that runs, `s...` the one that the record is about (entering, woken,
//! queued). A `T1` line has exactly 17 columns. What `x`, `y` and `z` hold depends on the event and
//! the system:
//!
//! | event | x | y | z |
//! |---|---|---|---|
//! | on | 1 for an idle thread | | class (illumos) |
//! | off, illumos | what it sleeps on (0 none, 1 mutex, 2 rwlock, 3 cv, 4 sema, 5 user, 6 user-pi, 7 shuttle) | system call | state letter |
//! | off, freebsd | 1 if idle leaves, 2 if idle enters | (td_state + 1) * 256 + td_inhibitors | wait message |
//! | off, macos | as on freebsd | thread state bits | |
//! | enq, deq | CPU of the queue, -1 for none | put at the front (illumos), preempted (freebsd) | class (illumos) |
//! | wak, tck, sur | | | class (illumos) |
//! | slp, pre, rem | what it sleeps on (illumos) | | |
//! | pri, lnd | the new priority | | |
//! | ld | CPU | its load | |
//! | xit | why (1 exited, 2 killed, 3 dumped core) | | |
//! | exe | | | path |
//!
//! **Clock**: DTrace `timestamp`, ns, monotonic, one for all CPUs. `#TKT` rows become `clock_sync`,
//! so wall time is known.
//!
//! **Kept and dropped**: dropped are the system call of `off` and the last CPU of `wak`. A record
//! of `proc:::create` repeats the `lwp-create` before it on illumos and is then kept as `other`,
//! not as a second `fork`.
//!
//! **Threads**: on FreeBSD and macOS `tid` is the system's own. On illumos LWP numbers are per
//! process, so `tid` is the process number for LWP 1, `pid * 1000000 + LWP` for the others, and
//! 10^12 + n for the n-th kernel thread of process 0 in order of appearance. Idle threads are `tid`
//! 0 everywhere: recognised by priority -1 (illumos), by the flag in `x`, by name (FreeBSD's `idle:
//! cpu0`), or as threads of process 0 at priority 0 (macOS).
//!
//! **Departures tolerated**: lines out of order across CPUs (sorted, with `#TKT` as watermark); a
//! file without `#TKE`; messages of dtrace itself, even in the middle of a line; events of a later
//! script, kept as `other`. `N drops on CPU n` become losses: dtrace reports a drop in the switch
//! interval in which it sees it, so a loss reaches from the CPU's last record before the message to
//! its first record at least two intervals (200 ms) later.
//!
//! **Sources**: Solaris Dynamic Tracing Guide (sched, proc providers), FreeBSD dtrace_sched(4) and
//! SDT definitions, xnu's SDT arguments. **Traps**: newer macOS hands the leaving process to
//! off-cpu and the waker's to wakeup, so the script prints no process there; FreeBSD names no CPU
//! in enqueue.
//!
//! **Verified** on schedules written by the tests only: no DTrace system was at hand.

mod intake;
mod rows;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::lines::Lines;
use crate::text::scan;
use crate::{Head, Options, Parser, Source};
use intake::Intake;
use rows::Rows;
use tracekit_schema::table::Table;
use tracekit_schema::Out;

const NAME: &str = "dtrace-tkd";
/// Tabs of a `T1` line.
const TABS: usize = 16;

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "tracekit's DTrace scripts (illumos, Solaris, FreeBSD, macOS)",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "tracekit recipes dtrace --os illumos|freebsd|macos; dtrace -x temporal -s tkd.d > t.tkd 2>&1",
        kinds: "switch, resume, enqueue, dequeue, wakeup, sleep, preempt, remain, prio, pi_boost, \
            tick, load, fork, exec, exit, lost, clock_sync, trace_on, trace_off, other",
        provides: "waker, target CPU (illumos), priority, state, queue length (freebsd), losses; \
            class (illumos), wait channel",
        resolution: "1 ns",
        clock: "DTrace timestamp (monotonic), with wall time once a second",
        confidence: "experimental: schedules written and read back by the tests; no capture from a \
            DTrace system was at hand",
        notes: "exactly 17 columns; lines of the CPUs' buffers are sorted with the heartbeat as \
            watermark; on illumos tid is pid for LWP 1, pid*1000000+LWP for others, 10^12+n for \
            kernel threads; idle is tid 0; drops become losses",
    },
};

fn sniff(head: &Head) -> Confidence {
    let mut lines = head.bytes.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()).take(200);
    if lines.clone().any(|l| l.starts_with(b"#TKD\t")) {
        return 100;
    }
    let record = |l: &[u8]| l.starts_with(b"T1\t") && memchr::memchr_iter(b'\t', l).count() == TABS;
    if lines.any(record) {
        95
    } else {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Os {
    Illumos,
    FreeBsd,
    Darwin,
}

impl Os {
    fn from_name(name: &[u8]) -> Option<Os> {
        match name {
            b"illumos" | b"solaris" => Some(Os::Illumos),
            b"freebsd" => Some(Os::FreeBsd),
            b"macos" | b"darwin" => Some(Os::Darwin),
            _ => None,
        }
    }
    /// Value of `os` and of `prio.scale`.
    fn scale(self) -> &'static str {
        match self {
            Os::Illumos => "solaris",
            Os::FreeBsd => "freebsd",
            Os::Darwin => "darwin",
        }
    }
}

struct Header {
    os: Os,
    by_address: bool,
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(NAME, &e))?;
    let header = header(&head.bytes, options, out)?;
    out.meta.set("os", header.os.scale());
    out.meta.set("prio.scale", header.os.scale());
    out.meta.set("clock.name", "hrtime");
    out.meta.set("clock.resolution_ns", "1");
    out.meta.set("clock.synchronised", "true");
    Ok(Box::new(Tkd {
        lines: Lines::new(source),
        intake: Intake::default(),
        rows: Rows::new(header.os, header.by_address),
        done: false,
    }))
}

/// The first `#TKD` line, or what the option `os` says for a file without one.
fn header(head: &[u8], options: &Options, out: &mut Out) -> Result<Header, ParseError> {
    let lines = head.split(|b| *b == b'\n').zip(1u64..);
    let Some((line, number)) = lines.clone().find(|(l, _)| l.starts_with(b"#TKD\t")) else {
        let missing = || {
            let (found, number) = lines.clone().find(|(l, _)| !l.trim_ascii().is_empty()).unwrap_or((b"", 1));
            let message = format!("expected the line `#TKD`, found `{}`", scan::shown(found, 60));
            ParseError::new(NAME, "truncated", message)
                .at_line(number)
                .advise("if the header was cut off, say where it was made: os=illumos, os=freebsd or os=macos")
        };
        let os = options.extra.get("os").ok_or_else(missing)?;
        let os = Os::from_name(os.as_bytes()).ok_or_else(missing)?;
        out.meta.set("source.variant", format!("tkd without header, os {} by option", os.scale()));
        return Ok(Header { os, by_address: os == Os::Illumos });
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let columns: Vec<_> = line.split(|b| *b == b'\t').collect();
    let error = |code, what: &str| {
        ParseError::new(NAME, code, format!("{what} in `{}`", scan::shown(line, 80))).at_line(number)
    };
    if columns.get(1).is_some_and(|v| scan::u64(v).is_some_and(|v| v != 1)) {
        return Err(error("unsupported", "expected version 1 of the protocol, found another"));
    }
    let [_, b"1", os, ts, wall, key] = columns[..] else {
        return Err(error("truncated", "expected 6 columns (#TKD, 1, os, two times, addr or tid), found others"));
    };
    let os =
        Os::from_name(os).ok_or_else(|| error("unsupported", "expected illumos, freebsd or macos, found another"))?;
    if !matches!(key, b"addr" | b"tid") {
        return Err(error("unsupported", "expected `addr` or `tid` as thread key, found another"));
    }
    if let (Some(ts), Some(wall)) = (scan::i64(ts), scan::i64(wall)) {
        out.meta.set("clock.epoch_offset_ns", wall.wrapping_sub(ts).to_string());
    }
    let key = scan::shown(key, 4);
    out.meta.set("source.variant", format!("tkd 1, {}, by {key}", scan::shown(columns[2], 16)));
    Ok(Header { os, by_address: key == "addr" })
}

struct Tkd {
    lines: Lines,
    intake: Intake,
    rows: Rows,
    done: bool,
}

impl Parser for Tkd {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let enough = out.events.len() + rows.max(1);
        while out.events.len() < enough {
            if let Some(line) = self.intake.sorter.pop() {
                self.rows.add(line, out);
                continue;
            }
            if self.done {
                return Ok(false);
            }
            self.read(out)?;
        }
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.lines.offset()
    }
}

impl Tkd {
    /// Reads lines until some of them may come out, or the end.
    fn read(&mut self, out: &mut Out) -> Result<(), ParseError> {
        while !self.intake.sorter.has_ready() {
            let at = self.lines.number + 1;
            let Some(line) = self.lines.next_line().map_err(|e| ParseError::io(NAME, &e))? else {
                self.done = true;
                self.intake.finish(out);
                self.rows.finish(out);
                out.meta.set("parse.lines", self.lines.number.to_string());
                break;
            };
            self.intake.take(line.bytes, at, line.ended, out);
        }
        Ok(())
    }
}
