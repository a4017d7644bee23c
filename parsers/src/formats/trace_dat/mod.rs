//! trace.dat, the binary file of trace-cmd, versions 6 and 7.
//!
//! * Produced by `trace-cmd record`, `trace-cmd extract`, `trace-cmd convert`; KernelShark and LISA
//!   read the same.
//! * Layout: [prologue and formats](crate::binary::tracepoint::header), options, then per CPU the
//!   raw [pages](crate::binary::ring_buffer) of the kernel's ring buffer. Version 6 stores these in
//!   a fixed order with 10-byte tags; version 7 in sections (`u16 id, u16 compressed?, u32
//!   description, u64 size`) that are found through a chain of option sections, and may compress
//!   each section, and each CPU's pages in chunks (`u32 packed, u32 size`).
//! * Clock: whatever the recording used (option TRACECLOCK, or the buffer's own). Times of
//!   `x86-tsc` are turned into ns with option TSC2NSEC where the file has it; else a clock of ticks
//!   needs its rate (`clock_hz`). `uptime` counts jiffies as 1/100 s (`USER_HZ`), which the kernel
//!   lists as not in ns (`trace_clocks[]`, 4.x to 6.18). Option OFFSET is added, as `trace-cmd
//!   report` does. Option DATE is kept as metadata `clock.epoch_offset_ns` and not added.
//! * Kept: every record. Those of a known tracepoint fill columns
//!   ([`mapping`](crate::binary::tracepoint::mapping)); others are kind `other` with their name.
//!   Dropped: payload of kind `other`, stack traces, printk formats, BTF.
//! * Losses: the missed-event flag of a page gives a `lost` row, a row in `losses`, and marks the
//!   record that follows. What a CPU's counters (option CPUSTAT) say beyond that was overwritten
//!   before its first record.
//! * Order: records of a CPU stand in time order; the CPUs are merged by (time, CPU), so memory is
//!   one page a CPU.
//! * Instances: all buffers are merged. An event that several buffers recorded is taken from the
//!   first that shows it, because the same switch twice would be two switches.
//! * Departures tolerated: CPU data cut short, damaged pages and chunks (skipped with a
//!   diagnostic), no option chain. A version 7 file that ends before the table of its CPUs is read
//!   section by section from the first; whose pages are whose is shown by the counters (option
//!   CPUSTAT), by the names of idle tasks and by wakeups, and what none of them shows is left out.
//! * Traps: the size of the kernel's `long` is that of `commit` in `header_page`, not the
//!   prologue's; CPU numbers of version 7 are explicit and may have gaps; event numbers, not names,
//!   identify records; field offsets and state bits must come from the file's own formats (6.18 has
//!   `__data_loc` names where older kernels have `char[16]`).
//! * Not read: guest time shift (said in a diagnostic), headers of 2.6.30 kernels, `trace.dat.cpuN`
//!   left by a crash.
//! * Sources: trace-cmd's documentation of the file formats, version 6.5 and 7.5; the kernel's ring_buffer.c.

mod cut;
pub(super) mod header;
mod pages;
mod sections;
pub(super) mod stream;
mod whose;

use crate::binary::bytes::Short;
use crate::binary::tracepoint::header::MAGIC;
use crate::error::ParseError;
use crate::formats::{by_name, Confidence, Format, FormatInfo};
use crate::source::Source;
use crate::{Head, Options, Parser};
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "trace-dat";

/// trace.dat.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "trace.dat of trace-cmd, versions 6 and 7",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "trace-cmd record, trace-cmd extract",
        kinds: "all sched, irq, softirq, syscall, cpu_idle, cpu_frequency and cpu_capacity tracepoints, \
            markers; others as `other`",
        provides: "waker, target CPU, priority, state, losses",
        resolution: "1 ns (ticks of the clock, where it is not in ns)",
        clock: "any trace_clock; x86-tsc with its conversion where the file has one, or clock_hz",
        confidence: "real captures",
        notes: "instances are merged; guest time shift is not applied",
    },
};

fn sniff(head: &Head) -> Confidence {
    if head.bytes.starts_with(MAGIC) {
        100
    } else {
        0
    }
}

fn open(source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let bytes = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let file = (*bytes).as_ref();
    let mut head = header::read(file)?;
    if !head.facts.orphans.is_empty() {
        cut::adopt(&bytes, &mut head, out)?;
    }
    describe(&head, out);
    clock(&mut head, options, out);
    if let Some(release) = out.meta.get("kernel").map(str::to_owned) {
        head.header.decoder.of_kernel(&release, out);
    }
    if let Some(at) = next_recording(file, &head) {
        let message = format!("another recording begins at byte {at} of the file, and is not read");
        let advice = "two files were put into one: cut it there, and read each on its own";
        out.diag(Diagnostic::new(Code::Unsupported, message).at_offset(at as u64).advise(advice));
    }
    let texts: Vec<_> = head.buffers.iter_mut().filter_map(|b| b.text.take()).collect();
    if head.buffers.iter().all(|b| b.cpus.is_empty()) && !texts.is_empty() {
        // A latency tracer's recording: the file holds the kernel's text.
        let text = by_name("ftrace-text")?;
        return (text.open)(Source::from_bytes(texts.concat()), options, out);
    }
    Ok(Box::new(stream::Stream::new(bytes.clone(), head, out)))
}

/// Sets the metadata that the head states.
fn describe(head: &header::Head, out: &mut Out) {
    let facts = &head.facts;
    out.meta.set("os", "linux");
    out.meta.set("prio.scale", "linux");
    let packed = if head.version >= 7 { format!(" {}", head.compression.as_str()) } else { String::new() };
    let tool = facts.tool.as_deref().map(|t| format!(", trace-cmd {}", t.trim())).unwrap_or_default();
    out.meta.set("source.variant", format!("version {}{packed}{tool}", head.version));
    if let Some(uname) = &facts.uname {
        // `Linux host 6.1.0 x86_64`; older trace-cmd wrote it the same way.
        let words: Vec<_> = uname.split_whitespace().collect();
        if let [_, host, kernel, .., arch] = words[..] {
            out.meta.set("host", host);
            out.meta.set("kernel", kernel);
            out.meta.set("arch", arch);
        }
    }
    let listed = head.buffers.iter().map(|b| b.cpus.len()).max().unwrap_or(0);
    out.meta.set("nr_cpus", facts.cpus.map_or(listed, |n| n as usize).max(listed).to_string());
    if !head.header.decoder.states.letters.is_empty() {
        out.meta.set("state.table", head.header.decoder.states.json());
    }
    if let Some((section, offset)) = facts.cut {
        let message = format!("the file ends within section {section}, which begins at byte {offset}");
        out.diag(Diagnostic::new(Code::Truncated, message).at_offset(offset));
    }
    if facts.guest_shift {
        let message = "the file is a guest's; its clock is left as it is, not shifted to the host's";
        out.diag(Diagnostic::new(Code::Unsupported, message));
    }
    if facts.guests > 0 {
        let message = format!("{} guest files belong to this one; they are not read with it", facts.guests);
        out.diag(Diagnostic::new(Code::Unsupported, message).advise("read each guest's file on its own"));
    }
}

/// Where another recording begins behind the pages of this one, whose options may stand between.
fn next_recording(file: &[u8], head: &header::Head) -> Option<usize> {
    let ends = head.buffers.iter().flat_map(|buffer| &buffer.cpus).map(|data| data.offset.saturating_add(data.size));
    let end = usize::try_from(ends.max()?).ok()?.max(MAGIC.len());
    memchr::memmem::find(file.get(end..)?, MAGIC).map(|at| at + end)
}

/// Ticks per second of clock `uptime`: `trace_clock_jiffies` gives `USER_HZ`, whatever HZ is.
const UPTIME_HZ: u64 = 100;

/// Says what the times are, and how long a tick of a clock that counts them is.
fn clock(head: &mut header::Head, options: &Options, out: &mut Out) {
    let of_buffer = head.buffers.iter().map(|b| b.clock.as_str()).find(|c| !c.is_empty());
    let name = head.facts.clock.as_deref().or(of_buffer).map(str::to_owned);
    if let Some(name) = &name {
        let common = matches!(name.as_str(), "global" | "mono" | "mono_raw" | "boot" | "tai" | "uptime");
        out.meta.set("clock.synchronised", if common { "true" } else { "unknown" });
        out.meta.set("clock.name", name.clone());
    }
    let name = name.unwrap_or_default();
    let ticks = matches!(name.as_str(), "counter" | "x86-tsc" | "tsc" | "ppc-tb" | "x390-tod");
    let unit = match (name.as_str(), options.clock_hz.filter(|hz| *hz > 0)) {
        _ if head.facts.tsc.is_some() => "ns",
        ("uptime", given) => {
            let hz = given.unwrap_or(UPTIME_HZ);
            head.facts.hz = Some(hz);
            let step = 1_000_000_000 / hz;
            out.meta.set("clock.resolution_ns", step.to_string());
            let step = match step {
                0 => "less than 1 ns".to_owned(),
                ns if ns % 1_000_000 == 0 => format!("{} ms", ns / 1_000_000),
                ns if ns % 1_000 == 0 => format!("{} us", ns / 1_000),
                ns => format!("{ns} ns"),
            };
            let message =
                format!("clock `uptime` goes in steps of {step}: what is shorter has no length or that of a step");
            out.diag(
                Diagnostic::new(Code::ClockUnit, message)
                    .advise("record with another clock (trace-cmd record -C mono)"),
            );
            "ns"
        }
        (_, Some(hz)) if ticks => {
            head.facts.hz = Some(hz);
            out.meta.set("clock.hz", hz.to_string());
            "ns"
        }
        _ if ticks => {
            let message = format!(
                "times are ticks of clock `{name}`, shown as if one took 1 ns: the file does not say how long one is"
            );
            let advice =
                "durations are in ticks; give the ticks per second (clock_hz), which the kernel prints at boot";
            out.diag(Diagnostic::new(Code::ClockUnit, message).advise(advice));
            "ticks"
        }
        _ => "ns",
    };
    out.meta.set("clock.unit", unit);
    if let Some(date) = head.facts.date_ns {
        out.meta.set("clock.epoch_offset_ns", date.to_string());
    }
}

fn short(short: Short) -> ParseError {
    let message = format!("expected {} more bytes, found the end of the file", short.wanted);
    let advice = "the file was cut before its first record: get the whole file";
    ParseError::new(NAME, "truncated", message).at_offset(short.at as u64).advise(advice)
}

fn damaged(message: &str, at: usize) -> ParseError {
    ParseError::new(NAME, "damaged", message).at_offset(at as u64)
}
