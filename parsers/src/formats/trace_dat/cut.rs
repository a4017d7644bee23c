//! Version 7 files that end before the table of their CPUs: where each CPU's pages begin, and
//! whose they are.
//!
//! trace-cmd writes CPU after CPU, each from a multiple of the page size on. Compressed, each says
//! how many chunks it has. Otherwise page follows page, and the next CPU begins where time steps
//! back, or where the records are as many as the counters of a CPU say (option CPUSTAT, which
//! stands before the records). Whose the pages are is [`whose`](super::whose)'s to say.

use super::header::{self, Buffer, CpuData, Head};
use super::sections::Orphan;
use super::stream::Stream;
use super::whose::{self, Listed};
use crate::binary::bytes::u32_at;
use crate::binary::ring_buffer::{Layout, Walk};
use crate::error::ParseError;
use std::sync::Arc;
use tracekit_schema::{Code, Diagnostic, Out};

/// Pages of one CPU, as far as their order says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// File offset of the first.
    pub offset: usize,
    /// Bytes in the file.
    pub size: usize,
    /// The file holds all of them.
    pub whole: bool,
}

/// Gives `head` the buffers whose table is cut off, as far as the file shows whose records are whose.
pub fn adopt(bytes: &Arc<dyn AsRef<[u8]> + Send + Sync>, head: &mut Head, out: &mut Out) -> Result<(), ParseError> {
    let file = (**bytes).as_ref();
    let message = "the file ends before its table of CPUs; what comes before is read";
    let advice =
        "get the whole file; or record with trace-cmd record --file-version 6, which has the table in its header";
    out.diag(Diagnostic::new(Code::Truncated, message).at_offset(file.len() as u64).advise(advice));
    if head.facts.clock.is_none() {
        let message = "the name of the clock stands in what was cut off: times are taken as ns";
        out.diag(Diagnostic::new(Code::ClockUnit, message));
    }
    let mut names: Vec<String> = Vec::new();
    for stat in &head.facts.stats {
        if !names.contains(&stat.buffer) {
            names.push(stat.buffer.clone());
        }
    }
    for (index, orphan) in std::mem::take(&mut head.facts.orphans).into_iter().enumerate() {
        let name = names.get(index).cloned().unwrap_or_default();
        let listed = listed(head, &name);
        let runs = match orphan.compressed {
            true => chunked(file, &orphan, head.header.layout.be),
            false => plain(file, &orphan, &head.header.layout, &listed),
        };
        let mut trial = header::read(file)?;
        let cpus = runs.iter().zip(0..).map(|(run, cpu)| data(cpu, run)).collect();
        trial.buffers = vec![Buffer { compressed: orphan.compressed, cpus, ..Buffer::default() }];
        let seen = whose::watch(runs.len(), |scratch| Stream::new(bytes.clone(), trial, scratch))?;
        let found = whose::decide(&runs, &seen, &listed);
        let mut buffer = Buffer { name, compressed: orphan.compressed, ..Buffer::default() };
        for ((run, seen), found) in runs.iter().zip(&seen).zip(found) {
            match found {
                // The file ends before its first record: it counts as missing.
                _ if seen.records == 0 && !run.whole => {}
                Ok(found) => {
                    buffer.cpus.push(data(found.cpu, run));
                    let message = format!("the records from here on are those of CPU {}: {}", found.cpu, found.basis);
                    let diag = Diagnostic::new(Code::Inferred, message);
                    out.diag(diag.at_offset(run.offset as u64).on_cpu(found.cpu));
                    if !found.whole {
                        buffer.cut = Some(found.cpu);
                        let message = format!("the file ends within the records of CPU {}", found.cpu);
                        let diag = Diagnostic::new(Code::Truncated, message);
                        out.diag(diag.at_offset(file.len() as u64).on_cpu(found.cpu));
                    }
                }
                Err(why) => {
                    buffer.lacks = true;
                    let end = run.offset + run.size;
                    let message = format!("the records from here to byte {end} are left out: {why}");
                    out.diag(Diagnostic::new(Code::Damaged, message).at_offset(run.offset as u64));
                }
            }
        }
        missing(&mut buffer, &orphan, &listed, file.len(), out);
        head.buffers.push(buffer);
    }
    head.buffers.sort_by_key(|b| !b.name.is_empty());
    Ok(())
}

/// Says which CPUs have records that the file lacks altogether.
fn missing(buffer: &mut Buffer, orphan: &Orphan, listed: &[Listed], end: usize, out: &mut Out) {
    if orphan.whole && !buffer.lacks {
        return;
    }
    let read = |cpu: i32| buffer.cpus.iter().any(|data| data.cpu == cpu);
    let cpus: Vec<i32> = listed.iter().filter(|l| l.records != Some(0) && !read(l.cpu)).map(|l| l.cpu).collect();
    buffer.lacks |= !cpus.is_empty() || listed.is_empty();
    let cause = out.strings.intern(b"chunk");
    for cpu in &cpus {
        out.losses.push().cpu(*cpu).cause(cause);
        let message = format!("no record of CPU {cpu} was read");
        out.diag(Diagnostic::new(Code::Truncated, message).at_offset(end as u64).on_cpu(*cpu));
    }
    if listed.is_empty() {
        out.losses.push().cause(cause);
    }
}

fn data(cpu: i32, run: &Run) -> CpuData {
    CpuData { cpu, offset: run.offset as u64, size: run.size as u64 }
}

/// The CPUs of the buffer `name`, as the options list them: with their counters, or by their number.
fn listed(head: &Head, name: &str) -> Vec<Listed> {
    let stats = head.facts.stats.iter().filter(|s| s.buffer == name);
    let mut listed: Vec<_> = stats.map(|s| Listed { cpu: s.cpu, records: Some(s.recorded()) }).collect();
    listed.sort_by_key(|l| l.cpu);
    listed.dedup_by_key(|l| l.cpu);
    if listed.iter().all(|l| l.records == Some(0)) {
        // No kernel is built for more CPUs (MAXSMP of x86).
        let cpus = head.facts.cpus.filter(|n| *n <= 8192).unwrap_or(0);
        listed = (0..cpus as i32).map(|cpu| Listed { cpu, records: None }).collect();
    }
    listed
}

/// The CPUs of compressed pages: a table of chunks each.
fn chunked(file: &[u8], orphan: &Orphan, be: bool) -> Vec<Run> {
    let end = orphan.data.end;
    let word = |at: usize| u32_at(&file[..end], at, be).map(|n| n as usize);
    let mut runs = Vec::new();
    let mut at = orphan.data.start.next_multiple_of(orphan.align);
    while let Some(count) = word(at) {
        let (offset, mut chunks) = (at, 0);
        at += 4;
        while chunks < count {
            let (Some(packed), Some(size)) = (word(at), word(at + 4)) else { break };
            if packed == 0 || size == 0 || size % orphan.align != 0 || packed > end - at - 8 {
                break;
            }
            at += 8 + packed;
            chunks += 1;
        }
        let whole = chunks == count;
        if count > 0 {
            let size = if whole { at } else { end } - offset;
            runs.push(Run { offset, size, whole });
        }
        if !whole {
            break;
        }
        at = at.next_multiple_of(orphan.align);
    }
    runs
}

/// The CPUs of pages that follow one another.
fn plain(file: &[u8], orphan: &Orphan, layout: &Layout, listed: &[Listed]) -> Vec<Run> {
    let end = orphan.data.end;
    let mut said = listed.iter().filter_map(|l| l.records).filter(|n| *n > 0);
    let mut runs: Vec<Run> = Vec::new();
    let (mut expected, mut records, mut last) = (None, 0, 0);
    let mut at = orphan.data.start.next_multiple_of(orphan.align);
    while at < end {
        let page = &file[at..end.min(at + layout.page)];
        let (mut walk, ..) = Walk::new(layout, page);
        let (mut first, mut held) = (None, 0);
        let mut until = last;
        while let Ok(Some(record)) = walk.next(page, layout.be) {
            first.get_or_insert(record.ts);
            until = record.ts;
            held += 1;
        }
        let next = records > 0 && (first.is_some_and(|ts| ts < last) || held > 0 && expected == Some(records));
        if next || runs.is_empty() {
            runs.push(Run { offset: at, size: 0, whole: true });
            (expected, records) = (said.next(), 0);
        }
        (records, last) = (records + held, until);
        at += page.len();
        if let Some(run) = runs.last_mut() {
            run.size = at - run.offset;
        }
    }
    if let Some(run) = runs.last_mut() {
        run.whole = orphan.whole || expected == Some(records);
    }
    runs
}
