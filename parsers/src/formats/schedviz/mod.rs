//! SchedViz collections: a tar archive of raw ring-buffer pages with the formats they need.
//!
//! * Produced by SchedViz's `trace.sh` (`formats/`, `traces/cpuN`, `options/`, `topology/`, in a
//!   `.tar.gz`) and by its eBPF script (`ebpf_trace`, see [`ebpf`]). Any tar of
//!   `events/SYSTEM/EVENT/format` files, `events/header_page` and `per_cpu/cpuN/trace_pipe_raw`
//!   copies is read the same way.
//! * Clock: not stated by the archive without a `trace_clock` file; the kernel's default is `local`.
//! * Kept: every record, as in a [trace.dat](super::trace_dat); names of tasks where
//!   `saved_cmdlines` is there.
//! * Order: CPUs are merged by (time, CPU). Losses: the missed-event flags of pages.
//! * Trap: with overwriting buffers each CPU's pages begin at a time of their own. SchedViz clips
//!   the trace to the interval that all CPUs cover; here everything is kept and the start of each
//!   CPU is in table `cpus`.
//! * Byte order is taken from the first page.
//! * Sources: SchedViz's collection script and its sample collections; the kernel's ring_buffer.c.

mod ebpf;

use super::trace_dat::header::{Buffer, Compression, CpuData, Facts, Head as DatHead};
use super::trace_dat::stream::Stream;
use crate::binary::bytes::uint;
use crate::binary::ring_buffer::Layout;
use crate::binary::tracepoint::header::Header;
use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::source::Source;
use crate::{Head, Options, Parser};
use tracekit_schema::{Code, Diagnostic, Out};

pub use crate::binary::tar::{self, Entry};

const NAME: &str = "schedviz";

/// SchedViz collections.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "SchedViz collections: ring-buffer pages in tar, or sched.bt",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "SchedViz's trace.sh and ebpf/sched.bt; tar of trace_pipe_raw and format files",
        kinds: "those of the formats in the archive; sched.bt: switch, wakeup, migrate",
        provides: "waker, target CPU, priority, state, losses",
        resolution: "1 ns",
        clock: "as recorded; the archive does not say which",
        confidence: "real captures",
        notes: "not clipped to the interval that all CPUs cover",
    },
};

fn sniff(head: &Head) -> Confidence {
    if ebpf::is_ebpf(&head.bytes[..head.bytes.len().min(4096)]) {
        return 95;
    }
    if !tar::is_tar(&head.bytes) {
        return 0;
    }
    let ours = |e: &Entry| cpu_of(&e.path).is_some() || format_of(&e.path).is_some() || e.path.ends_with("ebpf_trace");
    if tar::entries(&head.bytes).iter().any(ours) {
        95
    } else {
        0
    }
}

fn open(source: Source, _: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let bytes = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let file = (*bytes).as_ref();
    out.meta.set("os", "linux");
    out.meta.set("prio.scale", "linux");
    if !tar::is_tar(file) {
        return Ok(Box::new(ebpf::Ebpf::new(file, out)?));
    }
    let entries = tar::entries(file);
    if let Some(cut) = entries.iter().find(|e| e.cut) {
        let message = format!("the archive ends within `{}`", cut.path);
        out.diag(Diagnostic::new(Code::Truncated, message).at_offset(file.len() as u64));
    }
    if let Some(text) = entries.iter().find(|e| e.path.ends_with("ebpf_trace")) {
        return Ok(Box::new(ebpf::Ebpf::new(&file[text.data.clone()], out)?));
    }
    let head = collection(file, &entries, out)?;
    Ok(Box::new(Stream::new(bytes.clone(), head, out)))
}

/// The formats and pages of a collection.
fn collection(file: &[u8], entries: &[Entry], out: &mut Out) -> Result<DatHead, ParseError> {
    let mut cpus: Vec<CpuData> = entries
        .iter()
        .filter_map(|e| {
            let size = (e.data.len() + usize::from(e.cut)) as u64;
            Some(CpuData { cpu: cpu_of(&e.path)?, offset: e.data.start as u64, size })
        })
        .collect();
    cpus.sort_by_key(|c| c.cpu);
    if cpus.is_empty() {
        let message =
            "expected ring-buffer pages as traces/cpu0 or per_cpu/cpu0/trace_pipe_raw in the archive, found none";
        return Err(ParseError::new(NAME, "no-scheduler-events", message));
    }
    let content = |e: &Entry| &file[e.data.clone()];
    let page = cpus.iter().find_map(|c| file.get(c.offset as usize..));
    let mut header = Header::plain(big_endian(page.unwrap_or(&[])));
    if let Some(text) = entries.iter().find(|e| e.path.ends_with("header_page")) {
        header.header_page(content(text));
    }
    for entry in entries {
        if let Some(system) = format_of(&entry.path) {
            header.decoder.add(system, content(entry));
        } else if entry.path.ends_with("saved_cmdlines") {
            header.names = content(entry).to_vec();
        }
    }
    if header.decoder.is_empty() {
        let message = "expected event formats as formats/sched/sched_switch/format in the archive, found none";
        return Err(ParseError::new(NAME, "unsupported", message));
    }
    describe(entries.iter().find(|e| e.path.ends_with("trace_clock")).map(content), &header, cpus.len(), out);
    Ok(pages(header, cpus))
}

fn describe(clock: Option<&[u8]>, header: &Header, cpus: usize, out: &mut Out) {
    out.meta.set("source.variant", "ring-buffer pages");
    out.meta.set("nr_cpus", cpus.to_string());
    out.meta.set("clock.unit", "ns");
    let clock = clock.map(String::from_utf8_lossy);
    if let Some(name) = clock.as_deref().and_then(|c| c.split_once('[')?.1.split_once(']')).map(|(name, _)| name) {
        out.meta.set("clock.name", name);
    }
    if !header.decoder.states.letters.is_empty() {
        out.meta.set("state.table", header.decoder.states.json());
    }
}

/// The head of a trace.dat with these formats and pages.
pub fn pages(header: Header, cpus: Vec<CpuData>) -> DatHead {
    let buffers = vec![Buffer { cpus, ..Buffer::default() }];
    DatHead { version: 0, header, facts: Facts::default(), buffers, compression: Compression::None }
}

/// Is this the first page of a big-endian machine? Its length stands in the low bits of the word
/// after the time.
pub fn big_endian(page: &[u8]) -> bool {
    let len = |be| uint(page, 8, 4, be).unwrap_or(0) & 0x07ff_ffff;
    // A long of 8 bytes has its low half behind on a big-endian machine.
    let low = uint(page, 12, 4, true).unwrap_or(0);
    let plausible = |n: u64| n > 0 && n <= 1 << 20;
    !plausible(len(false)) && (plausible(len(true)) || plausible(low))
}

/// Walks some pages to see whether they are pages at all.
pub fn look_like_pages(bytes: &[u8], layout: &Layout) -> bool {
    let mut last = 0;
    let mut records = 0;
    for page in bytes.chunks_exact(layout.page).take(8) {
        let (mut walk, _, fits) = crate::binary::ring_buffer::Walk::new(layout, page);
        let ts = uint(page, 0, 8, layout.be).unwrap_or(0);
        if fits.is_err() || ts < last || ts == 0 {
            return false;
        }
        last = ts;
        loop {
            match walk.next(page, layout.be) {
                Ok(Some(_)) => records += 1,
                Ok(None) => break,
                Err(_) => return false,
            }
        }
    }
    records >= 4
}

/// The CPU of `traces/cpu3` or `per_cpu/cpu3/trace_pipe_raw`.
fn cpu_of(path: &str) -> Option<i32> {
    let path = path.strip_suffix("/trace_pipe_raw").unwrap_or(path);
    let (folder, name) = path.rsplit_once('/')?;
    let folder = folder.rsplit('/').next()?;
    let digits = name.strip_prefix("cpu").filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
    matches!(folder, "traces" | "per_cpu").then(|| digits.parse().ok()).flatten()
}

/// The system of `formats/sched/sched_switch/format`.
fn format_of(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/');
    let (file, _event, system) = (parts.next()?, parts.next()?, parts.next()?);
    let folder = parts.next()?;
    (file == "format" && matches!(folder, "formats" | "events")).then_some(system)
}
