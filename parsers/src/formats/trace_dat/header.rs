//! The head of a trace.dat: both versions end in a list of buffers and a bag of options.

use super::sections::{version_7, Orphan};
use super::{damaged, short, NAME};
use crate::binary::bytes::Reader;
use crate::binary::tracepoint::header::{Header, Prologue, MAGIC};
use crate::error::ParseError;
use std::io::Read;

/// How version 7 sections are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not.
    None,
    /// zstd frames.
    Zstd,
    /// zlib streams.
    Zlib,
}

/// No block of a real file is larger than this when decompressed.
const BLOCK_LIMIT: u32 = 1 << 28;

impl Compression {
    /// The `size` bytes that `data` decompresses to; fewer when the data are damaged.
    pub fn decompress(self, data: &[u8], size: u32) -> std::io::Result<Vec<u8>> {
        let limit = u64::from(size.min(BLOCK_LIMIT));
        let mut out = Vec::with_capacity((limit as usize).min(data.len().saturating_mul(16)));
        match self {
            Compression::None => out.extend_from_slice(data),
            Compression::Zstd => {
                zstd::stream::read::Decoder::with_buffer(data)?.take(limit).read_to_end(&mut out)?;
            }
            Compression::Zlib => {
                flate2::bufread::ZlibDecoder::new(data).take(limit).read_to_end(&mut out)?;
            }
        }
        Ok(out)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Zstd => "zstd",
            Compression::Zlib => "zlib",
        }
    }
}

/// The records of one CPU in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuData {
    /// CPU.
    pub cpu: i32,
    /// Offset of its first page, or of its table of compressed chunks.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// One ring buffer: the top one, or that of an instance.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// Name, empty for the top one.
    pub name: String,
    /// Clock, where the file says it per buffer.
    pub clock: String,
    /// Size of its pages, 0 when the file does not say.
    pub page: usize,
    /// Offset of its section (version 7).
    pub section: u64,
    /// Are its pages compressed?
    pub compressed: bool,
    /// Its CPUs.
    pub cpus: Vec<CpuData>,
    /// The text of a latency tracer, which stands in place of pages.
    pub text: Option<Vec<u8>>,
    /// The CPU within whose records the file ends, where no table says how many it has.
    pub cut: Option<i32>,
    /// Records are missing that may be of other CPUs than these.
    pub lacks: bool,
}

/// What one CPU's ring buffer counted by the end of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Instance, empty for the top buffer.
    pub buffer: String,
    /// CPU.
    pub cpu: i32,
    /// Records that newer ones overwrote.
    pub overrun: u64,
    /// Records that found no room.
    pub dropped: u64,
    /// Records that were left in the buffer.
    entries: u64,
    /// Records that were taken out of it.
    read: u64,
}

impl CpuStat {
    /// How many records came into the file: those that were taken out, before or after the counters
    /// were looked at.
    pub fn recorded(&self) -> u64 {
        if self.read > 0 {
            self.read
        } else {
            self.entries
        }
    }
}

/// The options that matter here.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Wall clock minus trace clock, ns.
    pub date_ns: Option<i64>,
    /// Added to every time, ns.
    pub offset_ns: i64,
    /// Ring-buffer counters.
    pub stats: Vec<CpuStat>,
    /// Name of the clock.
    pub clock: Option<String>,
    /// The file keeps the clock's name behind the table of CPU data (version 6).
    pub clock_follows: bool,
    /// System, host name, release, machine.
    pub uname: Option<String>,
    /// trace-cmd's version.
    pub tool: Option<String>,
    /// ns = ticks * mult >> shift.
    pub tsc: Option<(u32, u32)>,
    /// Ticks per second, where the clock or the caller says it.
    pub hz: Option<u64>,
    /// Number of CPUs.
    pub cpus: Option<u32>,
    /// This is a guest's file, to be related to its host's clock.
    pub guest_shift: bool,
    /// Guests whose files belong to this one.
    pub guests: u32,
    /// Instances: where their tables lie (version 6).
    instances: Vec<(String, u64)>,
    /// Buffers (version 7).
    pub(super) buffers: Vec<Buffer>,
    /// Sections with formats and names (version 7): option number, offset.
    pub(super) sections: Vec<(u16, u64)>,
    /// Buffers whose table of CPUs is cut off (version 7).
    pub orphans: Vec<Orphan>,
    /// The file ends within this section, which holds no record (version 7): number, offset.
    pub cut: Option<(u16, u64)>,
    stat_buffer: String,
}

/// Everything before the first record.
pub struct Head {
    /// File version.
    pub version: u32,
    /// Formats, names, page layout.
    pub header: Header,
    /// Options.
    pub facts: Facts,
    /// Buffers, the top one first.
    pub buffers: Vec<Buffer>,
    /// Compression of the file.
    pub compression: Compression,
}

/// Reads the head of `file`.
pub fn read(file: &[u8]) -> Result<Head, ParseError> {
    let mut r = Reader::new(file, 0, false);
    if !file.starts_with(MAGIC) {
        return Err(ParseError::new(NAME, "damaged", "expected the bytes 17 08 44 `tracing` at the start").at_offset(0));
    }
    let prologue = Prologue::read(&mut r).map_err(short)?;
    let version = prologue.version.parse().unwrap_or(0);
    let header = Header::new(&prologue);
    let head = match version {
        6 => version_6(file, r, header)?,
        7 => version_7(file, r, header)?,
        _ => {
            let message = format!("expected file version 6 or 7, found `{}`", prologue.version);
            return Err(ParseError::new(NAME, "unsupported", message).at_offset(MAGIC.len() as u64));
        }
    };
    if head.header.old_records {
        let message = "the ring buffer is that of a kernel up to 2.6.30, which tracekit does not read";
        return Err(ParseError::new(NAME, "unsupported", message).advise("convert it with `trace-cmd report`"));
    }
    Ok(head)
}

fn version_6(file: &[u8], mut r: Reader<'_>, mut header: Header) -> Result<Head, ParseError> {
    header.read_all(&mut r).map_err(short)?;
    header.read_names(&mut r).map_err(short)?;
    let cpus = r.u32().map_err(short)?;
    let mut facts = Facts { cpus: Some(cpus), ..Facts::default() };
    let mut buffers = vec![tagged_data(&mut r, cpus, &mut facts)?];
    for (name, offset) in std::mem::take(&mut facts.instances) {
        let mut at = Reader::new(file, usize::try_from(offset).unwrap_or(usize::MAX), r.be);
        let buffer = tagged_data(&mut at, cpus, &mut facts)?;
        buffers.push(Buffer { name, ..buffer });
    }
    Ok(Head { version: 6, header, facts, buffers, compression: Compression::None })
}

/// Reads the 10-byte tags that follow the number of CPUs in version 6.
fn tagged_data(r: &mut Reader<'_>, cpus: u32, facts: &mut Facts) -> Result<Buffer, ParseError> {
    loop {
        let at = r.at;
        match r.take(10).map_err(short)? {
            b"options  \0" => options_6(r, facts)?,
            b"latency  \0" => {
                let text = r.take(r.left() as u64).map_err(short)?.to_vec();
                return Ok(Buffer { text: Some(text), ..Buffer::default() });
            }
            b"flyrecord\0" => {
                let mut buffer = Buffer::default();
                for cpu in 0..cpus {
                    let (offset, size) = (r.u64().map_err(short)?, r.u64().map_err(short)?);
                    buffer.cpus.push(CpuData { cpu: cpu as i32, offset, size });
                }
                if facts.clock_follows {
                    let clock = r.u64().and_then(|n| r.take(n)).map(selected_clock);
                    facts.clock = facts.clock.take().or(clock.ok().flatten());
                }
                return Ok(buffer);
            }
            _ => return Err(damaged("expected `options`, `latency` or `flyrecord`", at)),
        }
    }
}

fn options_6(r: &mut Reader<'_>, facts: &mut Facts) -> Result<(), ParseError> {
    loop {
        let id = r.u16().map_err(short)?;
        if id == option::DONE {
            return Ok(());
        }
        let n = r.u32().map_err(short)?;
        let data = r.take(u64::from(n)).map_err(short)?;
        if id == option::BUFFER {
            let mut b = Reader::new(data, 0, r.be);
            if let (Ok(offset), Ok(name)) = (b.u64(), b.c_str()) {
                facts.instances.push((lossy(name), offset));
            }
        } else {
            facts.option(id, data, r.be);
        }
    }
}

impl Facts {
    pub(super) fn option(&mut self, id: u16, data: &[u8], be: bool) {
        let mut r = Reader::new(data, 0, be);
        let text = || lossy(crate::binary::bytes::until_nul(data));
        match id {
            // Microseconds, as a C integer literal.
            option::DATE => self.date_ns = c_integer(&text()).and_then(|us| us.checked_mul(1000)),
            option::OFFSET => self.offset_ns = c_integer(&text()).unwrap_or(0),
            option::CPUSTAT => self.cpu_stat(&text()),
            option::TRACECLOCK => {
                self.clock_follows = data.is_empty();
                self.clock = selected_clock(data);
            }
            option::UNAME => self.uname = Some(text()),
            option::VERSION => self.tool = Some(text()),
            option::CPUCOUNT => self.cpus = r.u32().ok(),
            option::TIME_SHIFT => self.guest_shift = true,
            option::GUEST => self.guests += 1,
            option::TSC2NSEC => {
                if let (Ok(mult), Ok(shift)) = (r.u32(), r.u32()) {
                    self.tsc = (mult != 0 && shift < 64).then_some((mult, shift));
                }
            }
            _ => {}
        }
    }

    fn cpu_stat(&mut self, text: &str) {
        let mut stat = CpuStat { cpu: -1, ..CpuStat::default() };
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let number = value.trim().parse::<u64>();
            match (key.trim(), number) {
                ("Buffer", _) => self.stat_buffer = value.trim().to_owned(),
                ("CPU", Ok(n)) => stat.cpu = i32::try_from(n).unwrap_or(-1),
                ("overrun", Ok(n)) => stat.overrun = n,
                ("entries", Ok(n)) => stat.entries = n,
                ("read events", Ok(n)) => stat.read = n,
                ("dropped events", Ok(n)) => stat.dropped = stat.dropped.saturating_add(n),
                ("commit overrun", Ok(n)) => stat.dropped = stat.dropped.saturating_add(n),
                _ => {}
            }
        }
        if stat.cpu >= 0 {
            stat.buffer = self.stat_buffer.clone();
            self.stats.push(stat);
        }
    }
}

/// `0x5f`, `-12`, `12`.
fn c_integer(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let value = match digits.strip_prefix("0x") {
        // A negative offset is written as the hex digits of its two's complement.
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse().ok()?,
    };
    value.checked_mul(sign)
}

/// The clock in brackets, or the only word of an old file.
fn selected_clock(text: &[u8]) -> Option<String> {
    let text = lossy(crate::binary::bytes::until_nul(text));
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    let name = inside.unwrap_or(&text).trim();
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Numbers of options; see trace-cmd's description of the file.
pub(super) mod option {
    pub const DONE: u16 = 0;
    pub const DATE: u16 = 1;
    pub const CPUSTAT: u16 = 2;
    pub const BUFFER: u16 = 3;
    pub const TRACECLOCK: u16 = 4;
    pub const UNAME: u16 = 5;
    pub const OFFSET: u16 = 7;
    pub const CPUCOUNT: u16 = 8;
    pub const VERSION: u16 = 9;
    pub const TIME_SHIFT: u16 = 12;
    pub const GUEST: u16 = 13;
    pub const TSC2NSEC: u16 = 14;
    pub const STRINGS: u16 = 15;
    pub const HEADER_INFO: u16 = 16;
    pub const FTRACE_EVENTS: u16 = 17;
    pub const EVENT_FORMATS: u16 = 18;
    pub const KALLSYMS: u16 = 19;
    pub const CMDLINES: u16 = 21;
    pub const BUFFER_TEXT: u16 = 22;
}
