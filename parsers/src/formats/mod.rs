//! The formats: one file each, one row each in [`FORMATS`].

pub mod bpf_hist;
pub mod ctf;
pub mod curt;
pub mod dtrace_agg;
pub mod dtrace_text;
pub mod dtrace_tkd;
pub mod ftrace_pages;
pub mod ftrace_text;
pub mod ktr;
pub mod lttng_text;
pub mod perf_data;
pub mod perf_latency;
pub mod perf_sched_map;
pub mod perf_sched_stats;
pub mod perf_script;
pub mod perf_timehist;
pub mod schedviz;
pub mod systrace_html;
pub mod trace_dat;
pub mod trcrpt;

use crate::binary::tar;
use crate::error::ParseError;
use crate::{mismatch, Head, Options, Parser, Source};
use tracekit_schema::Out;

/// How sure a sniffer is, 0 (not this) to 100 (a magic number).
pub type Confidence = u8;

/// Of a magic number: no other format is asked.
const CERTAIN: Confidence = 100;

/// Opens a source as one format.
pub type Open = fn(Source, &Options, &mut Out) -> Result<Box<dyn Parser>, ParseError>;

/// What `tracekit formats -v` and the docs say of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatInfo {
    /// Which command produces it.
    pub produced_by: &'static str,
    /// Kinds of records it can fill.
    pub kinds: &'static str,
    /// Of waker, target CPU, priority, state, queue length, losses: those the format records.
    pub provides: &'static str,
    /// Time resolution.
    pub resolution: &'static str,
    /// Clock.
    pub clock: &'static str,
    /// What it was verified on: `real captures`, `documented samples`, `experimental`.
    pub confidence: &'static str,
    /// What else a user should know: departures tolerated, what is dropped.
    pub notes: &'static str,
}

/// One format.
pub struct Format {
    /// Its name everywhere: module, fixture folder, `--format`, metadata.
    pub name: &'static str,
    /// A line about it.
    pub title: &'static str,
    /// Can it be read from a pipe without holding all of it in memory?
    pub streams: bool,
    /// How sure are we, from the first bytes, that this is it?
    pub sniff: fn(&Head) -> Confidence,
    /// Reads the head and returns the record stream.
    pub open: Open,
    /// Documentation.
    pub info: FormatInfo,
}

/// Every format, in the order in which `tracekit formats` lists them.
#[rustfmt::skip]
pub static FORMATS: &[&Format] = &[
    &trace_dat::FORMAT,
    &ftrace_text::FORMAT,
    &perf_data::FORMAT,
    &perf_script::FORMAT,
    &perf_timehist::FORMAT,
    &perf_latency::FORMAT,
    &perf_sched_map::FORMAT,
    &perf_sched_stats::FORMAT,
    &systrace_html::FORMAT,
    &schedviz::FORMAT,
    &ftrace_pages::FORMAT,
    &dtrace_tkd::FORMAT,
    &dtrace_text::FORMAT,
    &dtrace_agg::FORMAT,
    &bpf_hist::FORMAT,
    &ktr::FORMAT,
    &trcrpt::FORMAT,
    &curt::FORMAT,
    &lttng_text::FORMAT,
    &ctf::FORMAT,
];

/// Those whose files may come in a tar archive.
static ARCHIVED: &[&Format] = &[&schedviz::FORMAT, &ctf::FORMAT];

/// The format called `name`.
///
/// # Errors
/// [`ParseError`] that lists the names.
pub fn by_name(name: &str) -> Result<&'static Format, ParseError> {
    FORMATS.iter().copied().find(|f| f.name == name).ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|f| f.name).collect();
        ParseError::new("unknown", "unknown-format", format!("no format is called `{name}`"))
            .advise(format!("use one of {}", names.join(", ")))
    })
}

/// The format that the first bytes speak for.
///
/// # Errors
/// [`ParseError`] for an empty source, or when no format recognises it.
pub fn sniff(head: &Head) -> Result<&'static Format, ParseError> {
    if head.bytes.is_empty() {
        return Err(ParseError::new("unknown", "empty", "expected a trace, found an empty file"));
    }
    // What is packed as it stands may look like text, and an archive like the text within it.
    if let Some(packed) = mismatch::packed(head) {
        return Err(packed);
    }
    let formats = if tar::is_tar(&head.bytes) { ARCHIVED } else { FORMATS };
    let mut best = None;
    for format in formats {
        let sure = (format.sniff)(head);
        if sure > 0 && best.is_none_or(|(most, _)| sure >= most) {
            best = Some((sure, *format));
        }
        if sure == CERTAIN {
            break;
        }
    }
    best.map(|(_, f)| f).ok_or_else(|| mismatch::unknown(head))
}
