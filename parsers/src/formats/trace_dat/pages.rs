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
    /// The record that comes next.
    pub head: Record,
    /// What was lost before `head`, or at the end.
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
        let head = Record { ts: 0, start: 0, len: 0 };
        Pages {
            layout,
            start,
            store,
            page: 0..0,
            walk: Walk::default(),
            cut: false,
            head,
            missed: Missed::No,
            torn: false,
            fault: None,
        }
    }

    /// Moves on to the next record; false at the end.
    #[inline]
    pub fn advance(&mut self, file: &[u8]) -> bool {
        loop {
            let page = page(&self.store, &self.page, file);
            match self.walk.next(page, self.layout.be) {
                Ok(Some(record)) => {
                    self.head = record;
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
    #[inline]
    pub fn payload<'a>(&'a self, file: &'a [u8]) -> &'a [u8] {
        &page(&self.store, &self.page, file)[self.head.start..self.head.start + self.head.len]
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
        let (walk, missed, fits) = Walk::new(&self.layout, page(&self.store, &self.page, file));
        self.walk = walk;
        if missed != Missed::No && self.missed != Missed::Unknown {
            self.missed = missed;
        }
        self.cut = fits.is_err();
        true
    }
}

/// The bytes of the page at `at`.
#[inline]
fn page<'a>(store: &'a Store, at: &Range<usize>, file: &'a [u8]) -> &'a [u8] {
    let from = match store {
        Store::File { .. } => file,
        Store::Chunks { chunk, .. } => chunk,
    };
    &from[at.clone()]
}
