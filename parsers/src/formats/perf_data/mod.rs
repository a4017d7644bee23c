//! perf.data, the binary file of `perf record`, with scheduler tracepoints.
//!
//! * Produced by `perf sched record`, `perf record -e sched:...`, `perf record --switch-events`; as
//!   a file, or as the stream of `perf record -o -`. Little and big endian, zstd-compressed records
//!   too (`perf record -z`).
//! * Layout: header with attributes of the recorded events (in a stream: records), then records
//!   `u32 kind, u16 flags, u16 size, ...`, then features (host, kernel, event formats). Which
//!   fields a sample has, its event's `sample_type` says; the tracepoint itself is its raw field,
//!   decoded with the [formats](crate::binary::tracepoint::header) that the file carries.
//! * Clock: perf's own (ns since boot, roughly), or the one of `perf record -k`.
//! * Order: the recorder writes its per-CPU buffers in rounds. What was written before a round's
//!   end is final one round later, so two rounds are held and sorted by (time, place in file).
//!   Without round marks the whole file is one round.
//! * Kept: every sample of a tracepoint; lost-record counts; task names, forks, exits and context
//!   switches that perf itself records, where no tracepoint says the same. Records with time 0
//!   describe what was there before the recording, and so do perf's own records of tasks before the
//!   first sample of a tracepoint: perf turns those on first, and on a loaded machine it was seen
//!   to get the CPU again only 0.7 s later. Names from then are `comm` rows with quality bit
//!   `SYNTHESIZED` at the time of the recording's first record; forks and exits from then only say
//!   whose task it is. Dropped: samples' addresses and call chains, mappings, samples of events
//!   other than tracepoints (counted in a diagnostic).
//! * Losses: `LOST` says them while the recording goes on. What perf reads from the events at the
//!   end (`LOST_SAMPLES` with time 0, kernels since 6.0) counts the same again and adds only what was
//!   lost behind the last record of a buffer; samples that a BPF filter left out are no loss.
//! * `ctx_tid` is the tracepoint's own `common_pid`, not the sample's thread, which reads -1 for an
//!   exiting task. Processes (`pid`, `next_pid`) come from task records and samples, so they are
//!   null for tasks that none names.
//! * What was recorded: the command line in the header, beside the numbers of the events, says whether
//!   only some CPUs or some tasks were (metadata `cpus.recorded`, `tasks.recorded`).
//! * Departures tolerated: killed recordings (no data size, no features: without formats all
//!   records are `other`), cut and damaged files (what was read before counts).
//! * Traps: `AUXTRACE`, and in streams `TRACING_DATA`, are followed by bytes outside their own
//!   size; in per-task recordings one wakeup may be delivered twice, and a tracepoint that the
//!   command names twice has two events (copies are dropped);
//!   attributes may be shorter or longer than today's.
//! * A folder of `perf record --threads` is one recording: `data` has the head, `data.0` and so on
//!   have the records. Places in diagnostics are then those of the records put together.
//! * Not read: files of perf before 2.6.35.
//! * Sources: perf.data-file-format.txt of the kernel, and its uapi perf_event.h.

mod attr;
mod copies;
pub(super) mod extent;
mod folder;
mod header;
mod lost;
mod records;
mod rows;
mod stream;

use crate::binary::bytes::Short;
use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::source::Source;
use crate::{Head, Options, Parser};
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "perf-data";

/// perf.data.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "perf.data of perf record, file or pipe, with tracepoints",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "perf sched record, perf record -e 'sched:*', perf record --switch-events",
        kinds: "all sched, irq, softirq, syscall, cpu_idle, cpu_frequency and cpu_capacity \
            tracepoints; task and \
            switch records; others as `other`",
        provides: "waker, target CPU, priority, state, process, losses",
        resolution: "1 ns",
        clock: "perf's own (CPU clocks, not synchronised by promise), or that of perf record -k",
        confidence: "real captures",
        notes: "samples of hardware events are not kept",
    },
};

fn sniff(head: &Head) -> Confidence {
    let magic = head.bytes.get(..8);
    if magic == Some(header::MAGIC_LE) || magic == Some(header::MAGIC_BE) {
        100
    } else if header::MAGIC_OLD.iter().any(|old| magic == Some(&old[..])) {
        90
    } else {
        0
    }
}

fn open(source: Source, _: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    if let Source::Files(files) = source {
        let joined = folder::join(&files, out)?;
        return Ok(Box::new(stream::Stream::new(joined.bytes, joined.head, joined.joints, out)?));
    }
    let bytes = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let head = header::read((*bytes).as_ref())?;
    if let Some(at) = head.next_recording((*bytes).as_ref()) {
        let message = format!("another recording begins at byte {at} of the file, and is not read");
        let advice = "two files were put into one: cut it there, and read each on its own";
        out.diag(Diagnostic::new(Code::Unsupported, message).at_offset(at as u64).advise(advice));
    }
    if head.has_feature(header::feature::DIR_FORMAT) {
        let message = "this is one file of a folder of perf record --threads, and not the one with the records";
        let advice = "name the folder: data.0, data.1 and so on beside this file have the records";
        out.diag(Diagnostic::new(Code::Truncated, message).advise(advice));
    }
    Ok(Box::new(stream::Stream::new(bytes, head, Default::default(), out)?))
}

fn short(short: Short) -> ParseError {
    let message = format!("expected {} more bytes, found the end of the file", short.wanted);
    ParseError::new(NAME, "truncated", message).at_offset(short.at as u64)
}

fn damaged(message: &str, at: usize) -> ParseError {
    ParseError::new(NAME, "damaged", message).at_offset(at as u64)
}
