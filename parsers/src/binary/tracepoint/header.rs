//! The block of formats, symbols and names at the head of trace.dat; perf.data carries the same as
//! `tracing_data`.
//!
//! ```text
//! prologue := 17 08 44 "tracing" version NUL, u8 big endian?, u8 size of long (of the recorder), u32 page size
//! header   := "header_page" NUL u64 n text, "header_event" NUL u64 n text
//! ftrace   := u32 events, each u64 n format text
//! formats  := u32 systems, each name NUL u32 events, each u64 n format text
//! symbols  := u32 n kallsyms text,  printk := u32 n text,  names := u64 n lines of `pid comm`
//! ```

use super::Decoder;
use crate::binary::bytes::{Reader, Short};
use crate::binary::ring_buffer::Layout;
use crate::binary::tracepoint::symbols::Symbols;

/// The first bytes of the prologue.
pub const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// What the prologue says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prologue {
    /// File version (`6`, `7`; `0.6` within perf.data).
    pub version: String,
    /// Big endian?
    pub be: bool,
    /// Size of a page.
    pub page: u32,
}

impl Prologue {
    /// Reads the prologue and sets the byte order of `r`.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, Short> {
        r.take(MAGIC.len() as u64)?;
        let version = String::from_utf8_lossy(r.c_str()?).into_owned();
        r.be = r.u8()? != 0;
        r.u8()?;
        let page = r.u32()?;
        Ok(Prologue { version, be: r.be, page })
    }
}

/// Everything in the block.
#[derive(Debug)]
pub struct Header {
    /// The compiled formats.
    pub decoder: Decoder,
    /// How ring-buffer pages look.
    pub layout: Layout,
    /// Lines of `pid comm`.
    pub names: Vec<u8>,
    /// True for the record headers of kernels up to 2.6.30.
    pub old_records: bool,
}

impl Header {
    /// A header without events, for a file with this prologue.
    pub fn new(prologue: &Prologue) -> Self {
        let be = prologue.be;
        Header {
            decoder: Decoder::new(be),
            layout: Layout { be, long: 8, data: 16, page: prologue.page as usize },
            names: Vec::new(),
            old_records: false,
        }
    }

    /// A header without events, for pages that come without a prologue.
    pub fn plain(be: bool) -> Self {
        Self::new(&Prologue { version: String::new(), be, page: 4096 })
    }

    /// Reads `header_page` and `header_event`.
    pub fn read_header_info(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        r.c_str()?;
        let n = r.u64()?;
        self.header_page(r.take(n)?);
        r.c_str()?;
        let n = r.u64()?;
        let text = r.take(n)?;
        self.old_records = memchr::memmem::find(text, b": 2 bits").is_some();
        Ok(())
    }

    /// Takes the layout of pages from the text of `header_page`.
    pub fn header_page(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let number = |line: &str, key: &str| {
            let (_, rest) = line.split_once(key)?;
            rest.split(';').next()?.trim().parse::<usize>().ok()
        };
        for line in text.lines() {
            let (Some(at), Some(size)) = (number(line, "offset:"), number(line, "size:")) else { continue };
            if line.contains(" commit;") && matches!(size, 4 | 8) {
                self.layout.long = size;
                self.layout.data = 8 + size;
            }
            if line.contains(" data;") && (12..=64).contains(&at) {
                self.layout.data = at;
                // Sub-buffers can be larger than a machine page.
                if (256..=1 << 27).contains(&size) {
                    self.layout.page = at + size;
                }
            }
        }
    }

    /// Reads the formats of the tracer's own events.
    pub fn read_ftrace_events(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        self.read_system("ftrace", r)
    }

    /// Reads the formats of all other events, system by system.
    pub fn read_event_formats(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        for _ in 0..r.u32()? {
            let system = String::from_utf8_lossy(r.c_str()?).into_owned();
            self.read_system(&system, r)?;
        }
        Ok(())
    }

    fn read_system(&mut self, system: &str, r: &mut Reader<'_>) -> Result<(), Short> {
        for _ in 0..r.u32()? {
            let n = r.u64()?;
            self.decoder.add(system, r.take(n)?);
        }
        Ok(())
    }

    /// Reads the kernel's symbols.
    pub fn read_kallsyms(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        let n = r.u32()?;
        let text = r.take(u64::from(n))?;
        if self.decoder.needs_symbols() {
            self.decoder.symbols = Symbols::new(text);
        }
        Ok(())
    }

    /// Passes over the texts of `trace_printk`.
    pub fn read_printk(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        let n = r.u32()?;
        r.take(u64::from(n)).map(|_| ())
    }

    /// Reads the names of tasks.
    pub fn read_names(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        let n = r.u64()?;
        self.names = r.take(n)?.to_vec();
        Ok(())
    }

    /// Reads all of it but the names, in the order of a version 6 file.
    pub fn read_all(&mut self, r: &mut Reader<'_>) -> Result<(), Short> {
        self.read_header_info(r)?;
        self.read_ftrace_events(r)?;
        self.read_event_formats(r)?;
        self.read_kallsyms(r)?;
        self.read_printk(r)
    }

    /// The task names as (tid, name), those unknown to the recorder left out.
    pub fn task_names(&self) -> impl Iterator<Item = (i64, &[u8])> {
        self.names.split(|b| *b == b'\n').filter_map(|line| {
            let space = memchr::memchr(b' ', line)?;
            let tid = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
            let name = &line[space + 1..];
            (!name.is_empty() && name != b"<...>").then_some((tid, name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_pages_is_taken_where_it_makes_sense() {
        let page = |data: &str| {
            let mut header = Header::plain(false);
            let commit = "\tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n";
            header
                .header_page(format!("{commit}\tfield: char data;\toffset:12;\tsize:{data};\tsigned:1;\n").as_bytes());
            (header.layout.long, header.layout.data, header.layout.page)
        };
        assert_eq!(page("4084"), (4, 12, 4096));
        assert_eq!(page("16372"), (4, 12, 16384));
        assert_eq!(page("18446744073709551615"), (4, 12, 4096));
        assert_eq!(page("0"), (4, 12, 4096));
    }
}
