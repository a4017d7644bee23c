//! Bare ring-buffer pages of one CPU: a copy of `per_cpu/cpuN/trace_pipe_raw`, or the
//! `trace.dat.cpuN` that a killed `trace-cmd record` leaves behind.
//!
//! * Produced by `cat per_cpu/cpu0/trace_pipe_raw`, by a crash of trace-cmd, and by recorders that
//!   copy pages.
//! * The pages do not say what their numbers mean, so the formats must come from elsewhere: option
//!   `formats` holds the text of the kernel's `events/sched/*/format` files, one after the other.
//!   Without it the file is refused, and the error says what to do; a tar of pages and formats is
//!   format [`schedviz`](super::schedviz).
//! * Options: `formats`, `cpu` (the CPU's number, 0 when not given), `header_page` (text of
//!   `events/header_page`, for kernels whose pages are not 4096 bytes with a long of 8).
//! * Clock, names and losses: see [trace.dat](super::trace_dat).
//! * Sources: the kernel's ring_buffer.c.

use super::schedviz::{big_endian, look_like_pages, pages};
use super::trace_dat::header::CpuData;
use super::trace_dat::stream::Stream;
use crate::binary::ring_buffer::Layout;
use crate::binary::tracepoint::header::Header;
use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::source::Source;
use crate::{Head, Options, Parser};
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "ftrace-pages";

/// Bare ring-buffer pages.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "raw ring-buffer pages of one CPU (trace_pipe_raw, *.dat.cpuN)",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "cat per_cpu/cpu0/trace_pipe_raw; a killed trace-cmd record",
        kinds: "those of the formats given with option formats",
        provides: "waker, target CPU, priority, state, losses",
        resolution: "1 ns",
        clock: "as recorded; the pages do not say which",
        confidence: "real captures",
        notes: "needs option formats: the text of events/sched/*/format; option cpu gives the CPU's number",
    },
};

fn layouts() -> [Layout; 4] {
    let of = |be, long| Layout { be, long, data: 8 + long, page: 4096 };
    [of(false, 8), of(false, 4), of(true, 8), of(true, 4)]
}

fn sniff(head: &Head) -> Confidence {
    if layouts().iter().any(|layout| look_like_pages(&head.bytes, layout)) {
        40
    } else {
        0
    }
}

fn open(source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let bytes = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let file = (*bytes).as_ref();
    let Some(formats) = options.extra.get("formats") else {
        let message = "expected event formats beside the pages, found none";
        let advice = "give the text of the kernel's events/sched/*/format files as option `formats`, or pack \
                      pages and formats into a tar (traces/cpu0, formats/sched/sched_switch/format, \
                      formats/header_page)";
        return Err(ParseError::new(NAME, "unsupported", message).advise(advice));
    };
    let mut header = Header::plain(big_endian(file));
    if let Some(layout) = layouts().into_iter().find(|layout| look_like_pages(file, layout)) {
        header = Header::plain(layout.be);
        header.layout = layout;
    }
    if let Some(text) = options.extra.get("header_page") {
        header.header_page(text.as_bytes());
    }
    for text in split_formats(formats) {
        header.decoder.add("", text.as_bytes());
    }
    if header.decoder.is_empty() {
        let message = "option `formats` holds no event format (`name: sched_switch`, `ID: 316`, fields)";
        return Err(ParseError::new(NAME, "unsupported", message));
    }
    let stated = options.extra.get("cpu").and_then(|c| c.parse().ok());
    if stated.is_none() {
        out.diag(Diagnostic::new(Code::Inferred, "the pages do not say of which CPU they are; CPU 0 is assumed"));
    }
    out.meta.set("os", "linux");
    out.meta.set("prio.scale", "linux");
    out.meta.set("source.variant", "one CPU");
    out.meta.set("clock.unit", "ns");
    if !header.decoder.states.letters.is_empty() {
        out.meta.set("state.table", header.decoder.states.json());
    }
    let data = CpuData { cpu: stated.unwrap_or(0), offset: 0, size: file.len() as u64 };
    let head = pages(header, vec![data]);
    Ok(Box::new(Stream::new(bytes.clone(), head, out)))
}

/// Format files that follow one another; each begins with its `name:` line.
fn split_formats(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.match_indices("name:").map(|(at, _)| at).collect();
    starts.retain(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(from, to)| &text[*from..to]).collect()
}
