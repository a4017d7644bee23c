//! The head of a perf.data: attributes of the recorded events, and features.

use super::attr::{Attr, Plain, TRACEPOINT};
use super::{damaged, short, NAME};
use crate::binary::bytes::{until_nul, Reader, Short};
use crate::error::ParseError;
use std::collections::HashMap;
use std::ops::Range;
use tracekit_schema::{Code, Diagnostic, Out};

/// Magic of a little-endian file.
pub const MAGIC_LE: &[u8; 8] = b"PERFILE2";
/// Magic of a big-endian file.
pub const MAGIC_BE: &[u8; 8] = b"2ELIFREP";
/// Magic of files before 2010, in either byte order.
pub const MAGIC_OLD: [&[u8; 8]; 2] = [b"PERFFILE", b"ELIFFREP"];

/// Features that matter here.
pub mod feature {
    #![allow(missing_docs)]
    pub const TRACING_DATA: u64 = 1;
    pub const HOSTNAME: u64 = 3;
    pub const OSRELEASE: u64 = 4;
    pub const VERSION: u64 = 5;
    pub const ARCH: u64 = 6;
    pub const NRCPUS: u64 = 7;
    pub const CMDLINE: u64 = 11;
    pub const EVENT_DESC: u64 = 12;
    pub const DIR_FORMAT: u64 = 24;
    pub const CLOCK_DATA: u64 = 29;
    pub const LAST: u64 = 255;
}

/// The recorded events.
#[derive(Clone, Debug, Default)]
pub struct Attrs {
    /// All of them.
    pub all: Vec<Attr>,
    /// How many numbers each of them has.
    numbers: Vec<usize>,
    /// Number in samples -> index in `all`.
    by_id: HashMap<u64, usize>,
    /// Number in samples -> which of the numbers of its event it is; the n-th of every event are alike.
    places: HashMap<u64, usize>,
    /// One layout serves all, and all that ever sample are tracepoints: samples need no lookup.
    uniform: bool,
    /// That layout, when it is a plain one.
    plain: Option<Plain>,
}

impl Attrs {
    /// Adds an event with the numbers that its samples carry.
    pub fn add(&mut self, attr: Attr, ids: impl Iterator<Item = u64>) {
        let mut numbers = 0;
        for (place, id) in ids.enumerate() {
            numbers += 1;
            self.by_id.insert(id, self.all.len());
            self.places.insert(id, place);
        }
        self.numbers.push(numbers);
        self.all.push(attr);
        let first = &self.all[0];
        let like = |a: &Attr| a.layout == first.layout && a.kind == TRACEPOINT;
        self.uniform = first.kind == TRACEPOINT && self.all.iter().all(|a| like(a) || a.never_samples());
        self.plain = first.layout.plain().filter(|_| self.uniform);
    }

    /// Every event, and how many numbers it has.
    pub fn counted(&self) -> impl Iterator<Item = (&Attr, usize)> {
        self.all.iter().zip(self.numbers.iter().copied())
    }

    /// Which of the numbers of its event `id` is.
    pub fn place(&self, id: u64) -> Option<usize> {
        self.places.get(&id).copied()
    }

    /// Where the fields of every sample lie, when samples are of tracepoints only and have them all.
    #[inline(always)]
    pub fn plain(&self) -> Option<Plain> {
        self.plain
    }

    /// The event whose number a sample bears, and its place among the events.
    pub fn event_of(&self, record: &[u8], be: bool) -> Option<(usize, &Attr)> {
        let id = self.all.first()?.layout.id.and_then(|at| crate::binary::bytes::uint(record, at, 8, be))?;
        let index = *self.by_id.get(&id)?;
        Some((index, self.all.get(index)?))
    }

    /// The event of a sample: by its number, or the first when there is nothing to distinguish them by.
    #[inline(always)]
    pub fn of_sample(&self, record: &[u8], be: bool) -> Option<&Attr> {
        let first = self.all.first()?;
        if self.uniform {
            return Some(first);
        }
        let known = first.layout.id.and_then(|at| crate::binary::bytes::uint(record, at, 8, be));
        match known.and_then(|id| self.by_id.get(&id)) {
            Some(&index) => self.all.get(index),
            None => Some(first),
        }
    }
}

/// What a file says before its records.
#[derive(Debug, Default)]
pub struct Head {
    /// Big endian?
    pub be: bool,
    /// Is it a recorded pipe, whose facts come as records?
    pub pipe: bool,
    /// The recording was killed before it wrote where its records end.
    pub killed: bool,
    /// The file ends before its records do.
    pub cut: bool,
    /// The file ends before the facts that stand behind its records do.
    pub featureless: bool,
    /// Where the records lie.
    pub data: Range<usize>,
    /// Events.
    pub attrs: Attrs,
    /// Where they stand.
    pub attrs_at: u64,
    /// Feature number and place.
    pub features: Vec<(u64, Range<usize>)>,
}

impl Head {
    /// Does the file have the feature of this number?
    pub fn has_feature(&self, number: u64) -> bool {
        self.features.iter().any(|(n, _)| *n == number)
    }

    /// Where another recording begins, right behind the end of this one.
    pub fn next_recording(&self, file: &[u8]) -> Option<usize> {
        if self.pipe || self.killed || self.cut || self.featureless {
            return None;
        }
        let table = self.data.end + 16 * self.features.len();
        let end = self.features.iter().map(|(_, place)| place.end).fold(table, usize::max);
        let next = file.get(end..)?.first_chunk::<8>()?;
        (next == MAGIC_LE || next == MAGIC_BE).then_some(end)
    }
}

/// Reads the head of `file`.
pub fn read(file: &[u8]) -> Result<Head, ParseError> {
    let magic = file.first_chunk::<8>().ok_or_else(|| short(Short { at: 0, wanted: 8 }))?;
    if MAGIC_OLD.contains(&magic) {
        let message = "the file is of perf before 2.6.35, whose layout was never fixed";
        return Err(ParseError::new(NAME, "unsupported", message).at_offset(0));
    }
    if magic != MAGIC_LE && magic != MAGIC_BE {
        return Err(damaged("expected the bytes `PERFILE2` at the start", 0));
    }
    let be = magic == MAGIC_BE;
    let mut r = Reader::new(file, 8, be);
    let size = r.u64().map_err(short)?;
    if size == 16 {
        return Ok(Head { be, pipe: true, attrs_at: 16, data: 16..file.len(), ..Head::default() });
    }
    let attr_size = r.u64().map_err(short)?;
    let (attrs, data) = (section(&mut r)?, section(&mut r)?);
    section(&mut r)?;
    let mut flags = [0u64; 4];
    for word in &mut flags {
        *word = r.u64().map_err(short)?;
    }
    let mut head = Head { be, killed: data.1 == 0, attrs_at: attrs.0, ..Head::default() };
    head.attrs = read_attrs(file, attrs, attr_size, be)?;
    let start = usize::try_from(data.0).unwrap_or(usize::MAX).min(file.len());
    let end = start.saturating_add(usize::try_from(data.1).unwrap_or(usize::MAX));
    head.data = start..if head.killed { file.len() } else { end.min(file.len()) };
    head.cut = !head.killed && end > file.len();
    head.featureless = head.cut;
    if !head.killed {
        // The table of features stands behind the records, one entry a bit that is set.
        let mut r = Reader::new(file, end, be);
        for bit in (0..256u64).filter(|b| flags[*b as usize / 64] >> (b % 64) & 1 != 0) {
            let (Ok(offset), Ok(size)) = (r.u64(), r.u64()) else {
                head.featureless = true;
                break;
            };
            head.featureless |= offset.saturating_add(size) > file.len() as u64;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
            let to = from.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)).min(file.len());
            head.features.push((bit, from..to));
        }
    }
    Ok(head)
}

fn section(r: &mut Reader<'_>) -> Result<(u64, u64), ParseError> {
    Ok((r.u64().map_err(short)?, r.u64().map_err(short)?))
}

fn read_attrs(file: &[u8], (offset, size): (u64, u64), each: u64, be: bool) -> Result<Attrs, ParseError> {
    let mut attrs = Attrs::default();
    if !(16 + 48..=4096).contains(&each) {
        return Err(damaged(&format!("expected an event attribute of 64 to 4096 bytes, found {each}"), 16));
    }
    let mut r = Reader::new(file, usize::try_from(offset).unwrap_or(usize::MAX), be);
    for _ in 0..size / each {
        let attr = Attr::read(r.take(each - 16).map_err(short)?, be).map_err(short)?;
        let (at, n) = section(&mut r)?;
        let mut ids = Reader::new(file, usize::try_from(at).unwrap_or(usize::MAX), be);
        attrs.add(attr, (0..n / 8).map_while(|_| ids.u64().ok()));
    }
    Ok(attrs)
}

/// Sets the metadata that a feature states.
pub fn describe(number: u64, data: &[u8], be: bool, out: &mut Out) -> Result<(), Short> {
    let mut r = Reader::new(data, 0, be);
    match number {
        feature::HOSTNAME => out.meta.set("host", string(&mut r)?),
        feature::OSRELEASE => out.meta.set("kernel", string(&mut r)?),
        feature::ARCH => out.meta.set("arch", string(&mut r)?),
        feature::VERSION => {
            let container = out.meta.get("source.variant").unwrap_or("").to_owned();
            out.meta.set("source.variant", format!("{container}, perf {}", string(&mut r)?));
        }
        feature::NRCPUS => out.meta.set("nr_cpus", r.u32()?.to_string()),
        feature::CLOCK_DATA => {
            r.u32()?;
            r.u32()?;
            let (wall, clock) = (r.u64()?, r.u64()?);
            out.meta.set("clock.epoch_offset_ns", (wall as i64).wrapping_sub(clock as i64).to_string());
        }
        _ => {}
    }
    Ok(())
}

/// The names of the recorded events, from feature EVENT_DESC.
pub fn event_names(data: &[u8], be: bool) -> Vec<String> {
    let mut names = Vec::new();
    let mut r = Reader::new(data, 0, be);
    let mut one = |r: &mut Reader<'_>, attr_size: u32| -> Result<(), Short> {
        r.take(u64::from(attr_size))?;
        let ids = r.u32()?;
        names.push(string(r)?);
        r.take(u64::from(ids) * 8).map(|_| ())
    };
    if let (Ok(events), Ok(attr_size)) = (r.u32(), r.u32()) {
        for _ in 0..events {
            if one(&mut r, attr_size).is_err() {
                break;
            }
        }
    }
    names
}

/// `u32` length and bytes, padded with NULs.
fn string(r: &mut Reader<'_>) -> Result<String, Short> {
    let n = r.u32()?;
    Ok(String::from_utf8_lossy(until_nul(r.take(u64::from(n))?)).into_owned())
}

/// The name of a clock by its number.
pub fn clock_name(id: i32) -> &'static str {
    match id {
        0 => "realtime",
        1 => "mono",
        4 => "mono_raw",
        7 => "boot",
        11 => "tai",
        _ => "unknown",
    }
}

/// Sets the metadata of the clock from the events.
pub fn describe_clock(attrs: &Attrs, out: &mut Out) {
    let clock = attrs.all.first().and_then(Attr::clockid);
    out.meta.set("clock.name", clock.map_or("perf", clock_name));
    out.meta.set("clock.unit", "ns");
    out.meta.set("clock.synchronised", if clock.is_some() { "true" } else { "unknown" });
}

/// Says that a feature could not be read.
pub fn feature_damaged(number: u64, at: usize, out: &mut Out) {
    let message = format!("feature {number} of the header is shorter than what it lists");
    out.diag(Diagnostic::new(Code::Damaged, message).at_offset(at as u64));
}
