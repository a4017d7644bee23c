//! The records of a perf.data one after the other, compressed ones unpacked.

use crate::binary::bytes::uint;
use std::collections::VecDeque;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Numbers of records.
pub mod kind {
    #![allow(missing_docs)]
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Where a record lies: in the file, or (top bit set) in the stream of unpacked bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u64);

const UNPACKED: u64 = 1 << 63;

/// Unpacked bytes that wait for their turn are bounded, so that a forged file cannot fill the memory.
const UNPACKED_LIMIT: usize = 1 << 31;

/// A record's header, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of its kind.
    pub kind: u32,
    /// Flags.
    pub misc: u16,
    /// Size with header.
    pub size: usize,
    /// Where it begins.
    pub place: Place,
}

/// Why there are no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They are all read.
    Clean,
    /// The last one is cut short at this file offset.
    Cut(usize),
    /// At this file offset stands a size that no record has.
    Damaged(usize),
    /// The compressed record at this file offset does not unpack.
    Packed(usize),
}

/// Reads records.
pub struct Records {
    /// File offset of the next record.
    pub at: usize,
    end: usize,
    /// More records were written than there are.
    cut: bool,
    be: bool,
    /// From where on compressed records are those of another stream.
    joints: VecDeque<usize>,
    zstd: Option<Decoder<'static>>,
    /// Unpacked bytes from stream offset `base` on.
    unpacked: Vec<u8>,
    base: u64,
    /// Stream offset of the next unpacked record.
    next: u64,
}

impl Records {
    /// Records at `data` in the file, which were more where it is `cut`.
    pub fn new(data: std::ops::Range<usize>, joints: VecDeque<usize>, cut: bool, be: bool) -> Self {
        let (at, end) = (data.start, data.end);
        Records { at, end, cut, be, joints, zstd: None, unpacked: Vec::new(), base: 0, next: 0 }
    }

    /// The next record; `be` as the records are, said again so that there is code of one byte order.
    #[inline(always)]
    pub fn next(&mut self, be: bool, file: &[u8]) -> Result<Record, End> {
        debug_assert_eq!(be, self.be);
        loop {
            let rest = &self.unpacked[(self.next - self.base) as usize..];
            if !rest.is_empty() {
                match header(rest, be) {
                    Some((.., size)) if size < 8 => return Err(End::Packed(self.at)),
                    Some((kind, misc, size)) if size <= rest.len() => {
                        let place = Place(self.next | UNPACKED);
                        self.next += size as u64;
                        return Ok(Record { kind, misc, size, place });
                    }
                    _ => {}
                }
            }
            let rest = &file[self.at..self.end];
            if rest.is_empty() {
                return Err(if !self.cut && self.next == self.base + self.unpacked.len() as u64 {
                    End::Clean
                } else {
                    End::Cut(self.at)
                });
            }
            let Some((kind, misc, size)) = header(rest, be) else { return Err(End::Cut(self.at)) };
            if size < 8 {
                return Err(End::Damaged(self.at));
            }
            if size > rest.len() {
                return Err(End::Cut(self.at));
            }
            let place = Place(self.at as u64);
            self.at += size;
            match kind {
                kind::COMPRESSED | kind::COMPRESSED2 => self.unpack(kind, &rest[..size])?,
                _ => return Ok(Record { kind, misc, size, place }),
            }
        }
    }

    /// The next record where it is a sample that lies in the file; anything else stays for [`Self::next`].
    #[inline(always)]
    pub fn next_sample<'f>(&mut self, be: bool, file: &'f [u8]) -> Option<(&'f [u8], Place)> {
        if self.next != self.base + self.unpacked.len() as u64 {
            return None;
        }
        let rest = &file[self.at..self.end];
        let (kind, _, size) = header(rest, be)?;
        if kind != kind::SAMPLE || size < 8 {
            return None;
        }
        let record = rest.get(..size)?;
        let place = Place(self.at as u64);
        self.at += size;
        Some((record, place))
    }

    /// Passes over `n` bytes that follow the current record without belonging to it.
    pub fn skip(&mut self, n: u64) {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        self.at = self.at.saturating_add(n).min(self.end);
    }

    /// The bytes of `record`.
    #[inline(always)]
    pub fn bytes<'a>(&'a self, file: &'a [u8], place: Place, size: usize) -> &'a [u8] {
        if place.0 & UNPACKED == 0 {
            let at = place.0 as usize;
            &file[at..at + size]
        } else {
            let at = ((place.0 & !UNPACKED) - self.base) as usize;
            &self.unpacked[at..at + size]
        }
    }

    /// The header and bytes of the record at `place`, which was read before.
    #[inline(always)]
    pub fn again<'a>(&'a self, be: bool, file: &'a [u8], place: Place) -> (u32, u16, &'a [u8]) {
        let head = self.bytes(file, place, 8);
        let (kind, misc, size) = header(head, be).unwrap_or((0, 0, 8));
        (kind, misc, self.bytes(file, place, size))
    }

    /// File offset near the record, for diagnostics.
    pub fn offset(&self, place: Place) -> u64 {
        if place.0 & UNPACKED == 0 {
            place.0
        } else {
            self.at as u64
        }
    }

    /// Forgets unpacked bytes before the first of `waiting`, once that is worth moving the rest.
    pub fn forget(&mut self, waiting: impl Iterator<Item = Place>) {
        if self.unpacked.len() < 1 << 22 {
            return;
        }
        let first = waiting.filter(|p| p.0 & UNPACKED != 0).map(|p| p.0 & !UNPACKED).min().unwrap_or(self.next);
        let gone = (first.min(self.next) - self.base) as usize;
        if gone > self.unpacked.len() / 2 {
            self.unpacked.drain(..gone);
            self.base += gone as u64;
        }
    }

    #[cold]
    fn unpack(&mut self, kind: u32, record: &[u8]) -> Result<(), End> {
        let at = self.at - record.len();
        let failed = |_| End::Packed(at);
        let packed = if kind == kind::COMPRESSED {
            &record[8..]
        } else {
            let size = uint(record, 8, 8, self.be).ok_or(End::Packed(at))?;
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            record.get(16..size.saturating_add(16)).ok_or(End::Packed(at))?
        };
        while self.joints.front().is_some_and(|joint| *joint <= at) {
            self.joints.pop_front();
            self.zstd = None;
            // Half a record that one stream ends in does not go on in the next.
            if self.next != self.base + self.unpacked.len() as u64 {
                return Err(End::Cut(at));
            }
        }
        if self.zstd.is_none() {
            self.zstd = Some(Decoder::new().map_err(failed)?);
        }
        let Some(zstd) = &mut self.zstd else { return Err(End::Packed(at)) };
        let mut from = InBuffer::around(packed);
        let mut block = vec![0u8; 1 << 17];
        loop {
            let before = from.pos;
            let mut to = OutBuffer::around(&mut block[..]);
            zstd.run(&mut from, &mut to).map_err(failed)?;
            let n = to.pos();
            self.unpacked.extend_from_slice(&block[..n]);
            let stuck = n == 0 && from.pos == before && from.pos < packed.len();
            if stuck || self.unpacked.len() > UNPACKED_LIMIT {
                return Err(End::Packed(at));
            }
            // Less than the room there was: nothing is left inside the decoder.
            if from.pos == packed.len() && n < block.len() {
                return Ok(());
            }
        }
    }
}

/// Kind, flags and size of the record at the start of `bytes`.
#[inline(always)]
fn header(bytes: &[u8], be: bool) -> Option<(u32, u16, usize)> {
    let head = bytes.first_chunk::<8>()?;
    let (kind, misc) = (uint(head, 0, 4, be)?, uint(head, 4, 2, be)?);
    Some((kind as u32, misc as u16, uint(head, 6, 2, be)? as usize))
}
