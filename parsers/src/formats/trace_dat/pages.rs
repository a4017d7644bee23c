//! One CPU's pages, from the file or from compressed chunks, record by record.

use super::header::Compression;
use crate::binary::bytes::u32_at;
use crate::binary::ring_buffer::{Layout, Missed, Record, Walk};
use std::ops::Range;

/// Where pages come from.
enum Store {
    /// They lie in the file.
    File {
        /// What is not read yet.
        left: Range<usize>,
    },
    /// They lie in chunks of several pages.
    Chunks {
        /// What is not read yet of the chunks' headers and data.
        left: Range<usize>,
        /// How many chunks are left.
        count: u32,
        compression: Compression,
        /// The current chunk.
        chunk: Vec<u8>,
        /// What is not read yet of it.
        pages: Range<usize>,
    },
}

impl Store {
    /// What pages lie in.
    #[inline(always)]
    fn bytes<'a>(&'a self, file: &'a [u8]) -> &'a [u8] {
        match self {
            Store::File { .. } => file,
            Store::Chunks { chunk, .. } => chunk,
        }
    }
}

/// Something to report to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The page at this file offset (that of its chunk, for compressed data) is damaged.
    Page(usize),
    /// The chunk at this file offset does not decompress.
    Chunk(usize),
}

/// The records of one CPU in time order.
pub struct Pages {
    layout: Layout,
    /// File offset of the first page.
    start: usize,
    store: Store,
    /// The current page, in the file or in the chunk.
    page: Range<usize>,
    walk: Walk,
    /// The current page ends before what it says it holds.
    cut: bool,
    /// Time of the record that comes next.
    pub ts: u64,
    /// Its payload, in the file or in the chunk.
    payload: Range<usize>,
    /// What was lost before that record, or at the end.
    pub missed: Missed,
    /// It was lost in the file, not by the kernel.
    pub torn: bool,
    /// What went wrong since this was last taken.
    pub fault: Option<Fault>,
}

impl Pages {
    /// Pages stored plainly at `at` in the file.
    pub fn plain(layout: Layout, at: Range<usize>) -> Self {
        Self::new(layout, at.start, Store::File { left: at })
    }

    /// Pages in compressed chunks that begin at `at` in `file`.
    ///
    /// Their number bounds them, not the size that the file states: that leaves out the chunks' own headers.
    pub fn chunks(layout: Layout, file: &[u8], at: usize, compression: Compression) -> Self {
        let count = u32_at(file, at, layout.be).unwrap_or(0);
        let left = (at + 4).min(file.len())..file.len();
        Self::new(layout, at, Store::Chunks { left, count, compression, chunk: Vec::new(), pages: 0..0 })
    }

    fn new(layout: Layout, start: usize, store: Store) -> Self {
        Pages {
            layout,
            start,
            store,
            page: 0..0,
            walk: Walk::default(),
            cut: false,
            ts: 0,
            payload: 0..0,
            missed: Missed::No,
            torn: false,
            fault: None,
        }
    }

    /// Moves on to the next record; false at the end. `be` says again whether pages are big-endian, so
    /// that a caller who states it gets code of one byte order.
    #[inline(always)]
    pub fn advance(&mut self, be: bool, file: &[u8]) -> bool {
        debug_assert_eq!(be, self.layout.be);
        loop {
            match self.walk.next(&self.store.bytes(file)[self.page.clone()], be) {
                Ok(Some(Record { ts, start, len })) => {
                    let start = self.page.start + start;
                    (self.ts, self.payload) = (ts, start..start + len);
                    return true;
                }
                Ok(None) if !self.cut => {}
                _ => self.damaged(),
            }
            if !self.next_page(file) {
                return false;
            }
        }
    }

    /// The payload of the current record.
    #[inline(always)]
    pub fn payload<'a>(&'a self, file: &'a [u8]) -> &'a [u8] {
        &self.store.bytes(file)[self.payload.clone()]
    }

    /// File offset of the current page, or of what follows its chunk.
    pub fn offset(&self) -> usize {
        match &self.store {
            Store::File { .. } => self.page.start,
            Store::Chunks { left, .. } => left.start,
        }
    }

    /// Bytes of the file read so far.
    pub fn read_bytes(&self) -> u64 {
        let left = match &self.store {
            Store::File { left } | Store::Chunks { left, .. } => left,
        };
        left.start.saturating_sub(self.start) as u64
    }

    #[cold]
    fn damaged(&mut self) {
        self.cut = false;
        self.fault = Some(Fault::Page(self.offset()));
        (self.missed, self.torn) = (Missed::Unknown, true);
    }

    #[cold]
    fn next_page(&mut self, file: &[u8]) -> bool {
        let size = self.layout.page;
        let left = match &mut self.store {
            Store::File { left } => left,
            Store::Chunks { left, count, compression, chunk, pages } => {
                while pages.start >= pages.end {
                    if *count == 0 || left.start >= left.end {
                        return false;
                    }
                    *count -= 1;
                    let at = left.start;
                    let sizes = (u32_at(file, at, self.layout.be), u32_at(file, at + 4, self.layout.be));
                    let (Some(packed), Some(size)) = sizes else { return false };
                    let data = at + 8..(at + 8).saturating_add(packed as usize);
                    let whole = data.end <= left.end;
                    left.start = data.end.min(left.end);
                    let unpacked = file.get(data).filter(|_| whole).map(|d| compression.decompress(d, size));
                    match unpacked {
                        Some(Ok(bytes)) if bytes.len() == size as usize => {
                            *pages = 0..bytes.len();
                            *chunk = bytes;
                        }
                        _ => {
                            self.fault = Some(Fault::Chunk(at));
                            (self.missed, self.torn) = (Missed::Unknown, true);
                        }
                    }
                }
                pages
            }
        };
        if left.start >= left.end {
            return false;
        }
        self.page = left.start..(left.start + size).min(left.end);
        left.start = self.page.end;
        let (walk, missed, fits) = Walk::new(&self.layout, &self.store.bytes(file)[self.page.clone()]);
        self.walk = walk;
        if missed != Missed::No && self.missed != Missed::Unknown {
            self.missed = missed;
        }
        self.cut = fits.is_err();
        true
    }
}
