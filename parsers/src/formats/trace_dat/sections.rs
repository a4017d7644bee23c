//! Version 7: sections that are found through a chain of option sections, or, where the file ends
//! before that does, one after the other from the first.

use super::header::{lossy, option, Buffer, Compression, CpuData, Facts, Head};
use super::{damaged, short, NAME};
use crate::binary::bytes::{Reader, Short};
use crate::binary::tracepoint::header::Header;
use crate::error::ParseError;
use std::ops::Range;

/// A buffer whose table of CPUs the file lacks.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// Where its records lie. Each CPU's begin at a multiple of `align`.
    pub data: Range<usize>,
    /// Size of the machine's pages.
    pub align: usize,
    /// Are its pages compressed?
    pub compressed: bool,
    /// The file holds all of it.
    pub whole: bool,
}

/// Sections are numbered as options are; a number beyond this one is none. The description of
/// version 7.5 ends at 25; a few more leave room for those to come.
const LAST_SECTION: u16 = 63;

/// Reads the head of a version 7 file, from the name of the compression on.
pub fn version_7(file: &[u8], mut r: Reader<'_>, mut header: Header) -> Result<Head, ParseError> {
    let at = r.at;
    let compression = match r.c_str().map_err(short)? {
        b"none" => Compression::None,
        b"zstd" => Compression::Zstd,
        b"zlib" => Compression::Zlib,
        other => {
            let message = format!("expected compression zstd, zlib or none, found `{}`", lossy(other));
            return Err(ParseError::new(NAME, "unsupported", message).at_offset(at as u64));
        }
    };
    r.c_str().map_err(short)?;
    let first = r.u64().map_err(short)?;
    let file = File { bytes: file, be: r.be, page: header.layout.page.max(1), compression };
    let mut facts = Facts::default();
    let whole = file.chain(first, &mut facts)?;
    if !whole || facts.buffers.is_empty() {
        file.walk(r.at, whole, &mut facts)?;
    }
    let mut sections = std::mem::take(&mut facts.sections);
    // Formats first: whether symbols are worth keeping depends on them.
    sections.sort_by_key(|(id, _)| *id);
    for (id, offset) in sections {
        let section = file.section(offset)?;
        let body = section.body()?;
        let mut s = Reader::new(&body, 0, r.be);
        let read = match id {
            option::HEADER_INFO => header.read_header_info(&mut s),
            option::FTRACE_EVENTS => header.read_ftrace_events(&mut s),
            option::EVENT_FORMATS => header.read_event_formats(&mut s),
            option::KALLSYMS => header.read_kallsyms(&mut s),
            option::CMDLINES => header.read_names(&mut s),
            _ => Ok(()),
        };
        read.map_err(|_| damaged(&format!("section {id} is shorter than what it lists"), offset as usize))?;
    }
    let mut buffers = std::mem::take(&mut facts.buffers);
    for buffer in &mut buffers {
        let section = file.section(buffer.section)?;
        buffer.compressed = section.compressed;
        if buffer.text.is_some() {
            buffer.text = Some(section.body()?.into_owned());
        }
    }
    buffers.sort_by_key(|b| !b.name.is_empty());
    Ok(Head { version: 7, header, facts, buffers, compression })
}

/// A version 7 file.
#[derive(Clone, Copy)]
struct File<'f> {
    bytes: &'f [u8],
    be: bool,
    page: usize,
    compression: Compression,
}

/// One of its sections.
struct Section<'f> {
    id: u16,
    data: &'f [u8],
    at: usize,
    be: bool,
    compressed: bool,
    compression: Compression,
    /// The size that its head states.
    size: u64,
}

impl<'f> File<'f> {
    /// Finds the section at `offset`; its data end with the file when that is cut short.
    fn section(self, offset: u64) -> Result<Section<'f>, ParseError> {
        let mut r = Reader::new(self.bytes, usize::try_from(offset).unwrap_or(usize::MAX), self.be);
        let id = r.u16().map_err(short)?;
        let flags = r.u16().map_err(short)?;
        r.u32().map_err(short)?;
        let size = r.u64().map_err(short)?;
        let at = r.at;
        let data = r.take(size.min(r.left() as u64)).map_err(short)?;
        Ok(Section { id, data, at, be: self.be, compressed: flags & 1 != 0, compression: self.compression, size })
    }

    /// Follows the option sections from the one at `next`; false when the file ends before they do.
    fn chain(self, mut next: u64, facts: &mut Facts) -> Result<bool, ParseError> {
        let mut seen = Vec::new();
        let mut last = 0;
        while next != 0 {
            if seen.contains(&next) || seen.len() > 1000 {
                return Err(damaged("expected a chain of option sections that ends, found a loop", next as usize));
            }
            seen.push(next);
            let Some(section) = self.section(next).ok().filter(Section::is_whole) else { return Ok(false) };
            last = section.end();
            next = section.options(facts)?;
        }
        facts.cut = self.torn_after(last);
        Ok(true)
    }

    /// The section behind the last options, within which the file ends: that of descriptions, which
    /// nothing refers to.
    fn torn_after(self, at: usize) -> Option<(u16, u64)> {
        let torn = match self.section(at as u64) {
            Ok(section) => section.id == option::STRINGS && !section.is_whole(),
            Err(_) => at < self.bytes.len(),
        };
        (torn && at > 0).then_some((option::STRINGS, at as u64))
    }

    /// Takes the sections one after the other from the first, at `at`: the formats, and the buffers
    /// that no option names.
    fn walk(self, mut at: usize, chained: bool, facts: &mut Facts) -> Result<(), ParseError> {
        let known: Vec<u64> = facts.buffers.iter().map(|b| b.section).collect();
        let (mut sections, mut orphans) = (Vec::new(), Vec::new());
        let texts = facts.buffers.len();
        while let Ok(section) = self.section(at as u64) {
            let offset = at as u64;
            // Its size is written last; until then its records go on to the end.
            let open = section.id == option::BUFFER && section.size == 0;
            let whole = section.is_whole() && !open;
            let data = section.at..if open { self.bytes.len() } else { section.end() };
            match section.id {
                option::BUFFER if known.contains(&offset) => {}
                option::BUFFER => {
                    orphans.push(Orphan { data, align: self.page, compressed: section.compressed, whole });
                }
                option::BUFFER_TEXT if (whole || !section.compressed) && !known.contains(&offset) => {
                    facts.cut = (!whole).then_some((section.id, offset));
                    facts.buffers.push(Buffer { section: offset, text: Some(Vec::new()), ..Buffer::default() });
                }
                option::HEADER_INFO..=option::CMDLINES if whole => sections.push((section.id, offset)),
                id if id > LAST_SECTION => break,
                _ => {}
            }
            at = section.end();
            if !whole {
                break;
            }
        }
        if !orphans.is_empty() || facts.buffers.len() > texts {
            facts.sections = sections;
            facts.orphans = orphans;
            return Ok(());
        }
        if chained {
            return Ok(());
        }
        let message = "the file ends before its first record";
        let error = ParseError::new(NAME, "truncated", message).at_offset(self.bytes.len() as u64);
        Err(error.advise("get the whole file"))
    }
}

impl Section<'_> {
    fn is_whole(&self) -> bool {
        self.size == self.data.len() as u64
    }

    /// Where its data end.
    fn end(&self) -> usize {
        self.at + self.data.len()
    }

    /// Its decompressed bytes.
    fn body(&self) -> Result<std::borrow::Cow<'_, [u8]>, ParseError> {
        if !self.compressed {
            return Ok(self.data.into());
        }
        let mut r = Reader::new(self.data, 0, self.be);
        let read = |r: &mut Reader<'_>| -> Option<Vec<u8>> {
            let (packed, size) = (r.u32().ok()?, r.u32().ok()?);
            self.compression.decompress(r.take(u64::from(packed)).ok()?, size).ok()
        };
        read(&mut r).map(Into::into).ok_or_else(|| damaged("a section does not decompress", self.at))
    }

    /// Reads it as options; the offset of the next section of them, 0 at the end.
    fn options(&self, facts: &mut Facts) -> Result<u64, ParseError> {
        let (body, be) = (self.body()?, self.be);
        let mut r = Reader::new(&body, 0, be);
        let cut = |_| damaged("an option is longer than its section", self.at);
        loop {
            let (id, n) = (r.u16().map_err(cut)?, r.u32().map_err(cut)?);
            let data = r.take(u64::from(n)).map_err(cut)?;
            match id {
                option::DONE => return Ok(Reader::new(data, 0, be).u64().unwrap_or(0)),
                option::BUFFER | option::BUFFER_TEXT => {
                    let buffer = buffer_option(data, be, id == option::BUFFER_TEXT).map_err(cut)?;
                    facts.buffers.push(buffer);
                }
                option::HEADER_INFO..=option::CMDLINES => {
                    facts.sections.push((id, Reader::new(data, 0, be).u64().map_err(cut)?));
                }
                _ => facts.option(id, data, be),
            }
        }
    }
}

/// Reads a BUFFER option.
fn buffer_option(data: &[u8], be: bool, text: bool) -> Result<Buffer, Short> {
    let mut r = Reader::new(data, 0, be);
    let section = r.u64()?;
    let (name, clock) = (lossy(r.c_str()?), lossy(r.c_str()?));
    let mut buffer = Buffer { name, clock, section, ..Buffer::default() };
    if text {
        buffer.text = Some(Vec::new());
        return Ok(buffer);
    }
    buffer.page = r.u32()? as usize;
    for _ in 0..r.u32()? {
        let cpu = r.u32()? as i32;
        buffer.cpus.push(CpuData { cpu, offset: r.u64()?, size: r.u64()? });
    }
    Ok(buffer)
}
