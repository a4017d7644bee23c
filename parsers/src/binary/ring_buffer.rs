//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them and trace.dat stores them.
//!
//! ```text
//! page   := u64 time | long commit | data[commit & 0x07ff_ffff] | long lost (only with bit 30 of commit)
//! record := u32 header | payload       little endian: type = header & 31, delta = header >> 5
//!                                      big endian: type = header >> 27, delta = header & 0x07ff_ffff
//! type 0      u32 length + 4, then the payload, rounded up to 4
//! type 1..28  payload of 4 * type bytes
//! type 29     padding: delta 0 ends the page, else u32 length of a discarded record, whose delta counts
//! type 30     time extend: delta += next u32 << 27
//! type 31     absolute time in 59 bits; the top 5 stay as they were
//! ```
//!
//! Bit 31 of `commit` says that records were lost before this page, bit 30 that their number
//! follows the data. Traps: `long` is that of the traced kernel (recognised by `header_page`), not of the
//! program that wrote the file; pages can be larger than the machine's (`buffer_subbuf_size_kb`); a
//! page may end in stale bytes after `commit`.

use crate::binary::bytes::{u32_at, uint};

/// How pages look on the traced machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Big endian?
    pub be: bool,
    /// Size of the kernel's `long`: 4 or 8.
    pub long: usize,
    /// Offset of the data in a page.
    pub data: usize,
    /// Size of a page.
    pub page: usize,
}

/// Records lost before a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// None.
    No,
    /// Some; the kernel does not say how many.
    Unknown,
    /// That many.
    Count(u64),
}

/// A record's time and place in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time in the trace clock, raw.
    pub ts: u64,
    /// Offset of the payload in the page.
    pub start: usize,
    /// Length of the payload, with padding to a multiple of 4.
    pub len: usize,
}

/// The bytes do not form a record: offset in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the page.
    pub at: usize,
}

/// Walks the records of one page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    at: usize,
    end: usize,
    ts: u64,
}

impl Walk {
    /// Starts on `page`; a page that is shorter than its header or than what it says it holds is
    /// damaged, and then the walk covers what is there.
    pub fn new(layout: &Layout, page: &[u8]) -> (Self, Missed, Result<(), Damage>) {
        let be = layout.be;
        let (Some(ts), Some(commit)) = (uint(page, 0, 8, be), uint(page, 8, layout.long, be)) else {
            return (Walk::default(), Missed::No, Err(Damage { at: 0 }));
        };
        let len = (commit & 0x07ff_ffff) as usize;
        let end = layout.data + len;
        let missed = match (commit >> 31 & 1, commit >> 30 & 1) {
            (0, _) => Missed::No,
            (_, 0) => Missed::Unknown,
            _ => match uint(page, end, layout.long, be) {
                Some(n) if n > 0 && n < 1 << 48 => Missed::Count(n),
                _ => Missed::Unknown,
            },
        };
        let fits = if end > page.len() { Err(Damage { at: page.len() }) } else { Ok(()) };
        (Walk { at: layout.data, end: end.min(page.len()), ts }, missed, fits)
    }

    /// The next record of `page`, `None` at its end. Whoever states `be` gets code of one byte order.
    #[inline(always)]
    pub fn next(&mut self, page: &[u8], be: bool) -> Result<Option<Record>, Damage> {
        while self.at < self.end {
            let at = self.at;
            let damage = Damage { at };
            let header = u32_at(page, at, be).ok_or(damage)?;
            let (kind, delta) = if be { (header >> 27, header & 0x07ff_ffff) } else { (header & 31, header >> 5) };
            let delta = u64::from(delta);
            match kind {
                1..=28 => {
                    let len = 4 * kind as usize;
                    return self.record(at + 4, len, delta).map(Some);
                }
                0 => {
                    let length = u32_at(page, at + 4, be).ok_or(damage)? as usize;
                    let len = length.checked_sub(4).ok_or(damage)?.next_multiple_of(4);
                    return self.record(at + 8, len, delta).map(Some);
                }
                29 if delta == 0 => self.at = self.end,
                29 => {
                    let length = u32_at(page, at + 4, be).ok_or(damage)? as usize;
                    self.ts = self.ts.wrapping_add(delta);
                    self.at = at + 4 + length.max(4);
                }
                _ => {
                    let high = u64::from(u32_at(page, at + 4, be).ok_or(damage)?);
                    let full = (high << 27).wrapping_add(delta);
                    const TOP: u64 = 0xf8 << 56;
                    self.ts = if kind == 30 { self.ts.wrapping_add(full) } else { full & !TOP | self.ts & TOP };
                    self.at = at + 8;
                }
            }
        }
        Ok(None)
    }

    #[inline(always)]
    fn record(&mut self, start: usize, len: usize, delta: u64) -> Result<Record, Damage> {
        if start + len > self.end {
            return Err(Damage { at: start });
        }
        self.at = start + len;
        self.ts = self.ts.wrapping_add(delta);
        Ok(Record { ts: self.ts, start, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LE: Layout = Layout { be: false, long: 8, data: 16, page: 256 };
    const BE: Layout = Layout { be: true, long: 4, data: 12, page: 256 };

    /// A page of `words` (record headers and payload words) at time 1000.
    fn page(layout: &Layout, words: &[u32], commit_flags: u32, after: &[u8]) -> Vec<u8> {
        let mut p = Vec::new();
        let commit = (words.len() * 4) as u32 | commit_flags;
        let word = |w: u32| if layout.be { w.to_be_bytes() } else { w.to_le_bytes() };
        let (hi, lo) = (word(0), word(1000));
        p.extend(if layout.be { [hi, lo] } else { [lo, hi] }.concat());
        p.extend(word(commit));
        if layout.long == 8 {
            p.extend([0; 4]);
        }
        words.iter().for_each(|w| p.extend(word(*w)));
        p.extend(after);
        p
    }

    fn head(layout: &Layout, kind: u32, delta: u32) -> u32 {
        if layout.be {
            kind << 27 | delta
        } else {
            delta << 5 | kind
        }
    }

    fn all(layout: &Layout, page: &[u8]) -> Vec<(u64, usize)> {
        let (mut walk, _, fits) = Walk::new(layout, page);
        assert_eq!(fits, Ok(()));
        let mut seen = Vec::new();
        while let Some(r) = walk.next(page, layout.be).unwrap() {
            seen.push((r.ts, r.len));
        }
        seen
    }

    #[test]
    fn every_record_type_in_both_byte_orders() {
        for l in [&LE, &BE] {
            let words = [
                head(l, 1, 0),
                7,
                head(l, 30, 5),
                1, // + (1 << 27) + 5
                head(l, 0, 2),
                12,
                1,
                2, // 8 bytes of payload
                head(l, 29, 3),
                8,
                0, // discarded: 4 + 8 bytes, delta counts
                head(l, 2, 1),
                0,
                0,
                head(l, 31, 9),
                4, // absolute
                head(l, 1, 0),
                7,
                head(l, 29, 0),
                77, // end of page
            ];
            let t = 1000 + (1 << 27) + 5 + 2;
            let want = vec![(1000, 4), (t, 8), (t + 4, 8), ((4 << 27) + 9, 4)];
            assert_eq!(all(l, &page(l, &words, 0, &[])), want);
        }
    }

    #[test]
    fn an_absolute_time_keeps_the_top_bits() {
        let mut p = page(&LE, &[head(&LE, 31, 9), 4, head(&LE, 1, 0), 7], 0, &[]);
        p[7] = 0x10;
        assert_eq!(all(&LE, &p), [((0x10 << 56) + (4 << 27) + 9, 4)]);
    }

    #[test]
    fn losses_before_a_page() {
        let words = [head(&LE, 1, 0), 7];
        let missed = |flags, after: &[u8]| Walk::new(&LE, &page(&LE, &words, flags, after)).1;
        assert_eq!(missed(0, &[]), Missed::No);
        assert_eq!(missed(1 << 31, &[]), Missed::Unknown);
        assert_eq!(missed(3 << 30, &12u64.to_le_bytes()), Missed::Count(12));
        assert_eq!(missed(3 << 30, &u64::MAX.to_le_bytes()), Missed::Unknown);
        assert_eq!(missed(3 << 30, &[]), Missed::Unknown);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), be: bool) {
            let layout = if be { BE } else { LE };
            let (mut walk, _, _) = Walk::new(&layout, &bytes);
            let mut n = 0;
            while let Ok(Some(r)) = walk.next(&bytes, be) {
                prop_assert!(bytes.get(r.start..r.start + r.len).is_some());
                n += 1;
                prop_assert!(n < 200);
            }
        }
    }
}
