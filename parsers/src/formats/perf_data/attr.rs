//! `perf_event_attr`: what an event records, and so where the fields of its samples lie.

use crate::binary::bytes::{u32_at, uint, Reader, Short};

/// Bits of `sample_type`, in the order in which their fields stand in a sample.
mod bit {
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const ID: u64 = 1 << 6;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const RAW: u64 = 1 << 10;
}

/// The type of tracepoint events.
pub const TRACEPOINT: u32 = 2;

/// One recorded event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Hardware 0, software 1, tracepoint 2, ...
    pub kind: u32,
    /// For tracepoints their number.
    pub config: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    clockid: i32,
    /// Where the fields of its samples lie.
    pub layout: Layout,
}

/// Offsets of fields in a record of an event, header included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `u64` number of the event.
    pub id: Option<usize>,
    /// `i32 pid, i32 tid`.
    pub tid: Option<usize>,
    /// `u64` ns.
    pub time: Option<usize>,
    /// `u32 cpu, u32 reserved`.
    pub cpu: Option<usize>,
    /// First byte after the fields of fixed size.
    fixed: usize,
    raw: bool,
    read: Option<u64>,
    callchain: bool,
    /// The same in the trailer of other records, as distances from their end.
    pub trailer: Trailer,
}

/// Distances of the trailing fields of a record from its end; 0 where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// `i32 pid, i32 tid`.
    pub tid: usize,
    /// `u64` ns.
    pub time: usize,
    /// `u32 cpu, u32 reserved`.
    pub cpu: usize,
    /// `u64` number of the event.
    pub id: usize,
}

/// Size of a record's header.
pub const HEADER: usize = 8;

impl Attr {
    /// Reads an attribute of `data.len()` bytes, which may be shorter or longer than the one of today.
    pub fn read(data: &[u8], be: bool) -> Result<Self, Short> {
        let mut r = Reader::new(data, 0, be);
        let kind = r.u32()?;
        r.u32()?;
        let config = r.u64()?;
        r.u64()?;
        let (sample_type, read_format, flags) = (r.u64()?, r.u64()?, r.u64()?);
        // A bit field: its first bit is the highest one on big-endian machines.
        let flags = if be { flags.reverse_bits() } else { flags };
        let clockid = uint(data, 92, 4, be).unwrap_or(0) as u32 as i32;
        let mut attr = Attr { kind, config, sample_type, read_format, flags, clockid, layout: Layout::default() };
        attr.layout = attr.lay_out();
        Ok(attr)
    }

    /// The software event that stands in to carry perf's own records.
    pub fn never_samples(&self) -> bool {
        (self.kind, self.config) == (1, 9)
    }

    fn flag(&self, bit: u32) -> bool {
        self.flags >> bit & 1 != 0
    }

    /// The clock that was asked for by number, `None` for perf's own.
    pub fn clockid(&self) -> Option<i32> {
        self.flag(25).then_some(self.clockid)
    }

    /// Does it ask for PERF_RECORD_SWITCH?
    pub fn context_switch(&self) -> bool {
        self.flag(26)
    }

    /// Can it be asked how many of its records were lost?
    pub fn counts_lost(&self) -> bool {
        self.read_format & 16 != 0
    }

    /// Does it begin when the recorded program is executed, at the same moment as perf's own records?
    pub fn enable_on_exec(&self) -> bool {
        self.flag(12)
    }

    fn lay_out(&self) -> Layout {
        let has = |bit: u64| self.sample_type & bit != 0;
        let mut at = HEADER;
        let mut next = |bit: u64| {
            has(bit).then(|| {
                at += 8;
                at - 8
            })
        };
        let identifier = next(bit::IDENTIFIER);
        next(bit::IP);
        let tid = next(bit::TID);
        let time = next(bit::TIME);
        next(bit::ADDR);
        let id = next(bit::ID);
        next(bit::STREAM_ID);
        let cpu = next(bit::CPU);
        next(bit::PERIOD);
        Layout {
            id: identifier.or(id),
            tid,
            time,
            cpu,
            fixed: at,
            raw: has(bit::RAW),
            read: has(bit::READ).then_some(self.read_format),
            callchain: has(bit::CALLCHAIN),
            trailer: self.trailer(),
        }
    }

    fn trailer(&self) -> Trailer {
        const SAMPLE_ID_ALL: u32 = 18;
        let mut trailer = Trailer::default();
        if !self.flag(SAMPLE_ID_ALL) {
            return trailer;
        }
        let mut end = 0;
        for bit in [bit::IDENTIFIER, bit::CPU, bit::STREAM_ID, bit::ID, bit::TIME, bit::TID] {
            if self.sample_type & bit != 0 {
                end += 8;
                match bit {
                    bit::CPU => trailer.cpu = end,
                    bit::TIME => trailer.time = end,
                    bit::TID => trailer.tid = end,
                    bit::IDENTIFIER | bit::ID if trailer.id == 0 => trailer.id = end,
                    _ => {}
                }
            }
        }
        trailer
    }
}

/// Where the fields lie in samples that have all of them, and none of varying size before the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// `u64` ns.
    pub time: usize,
    tid: usize,
    cpu: usize,
    raw: usize,
}

/// What such a sample says besides its time.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'r> {
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// CPU.
    pub cpu: i32,
    /// The tracepoint record.
    pub raw: &'r [u8],
}

impl Plain {
    /// What `record` says, `None` when it is too short.
    #[inline(always)]
    pub fn read<'r>(&self, record: &'r [u8], be: bool) -> Option<Sample<'r>> {
        let word = |at: usize| u32_at(record, at, be).map(|v| v as i32);
        let size = u32_at(record, self.raw, be)? as usize;
        let raw = record.get(self.raw + 4..)?.get(..size)?;
        Some(Sample { pid: word(self.tid)?, tid: word(self.tid + 4)?, cpu: word(self.cpu)?, raw })
    }
}

impl Layout {
    /// The layout as a plain one, where it is.
    pub fn plain(&self) -> Option<Plain> {
        let (Some(time), Some(tid), Some(cpu)) = (self.time, self.tid, self.cpu) else { return None };
        (self.raw && self.read.is_none() && !self.callchain).then_some(Plain { time, tid, cpu, raw: self.fixed })
    }

    /// The tracepoint record within a sample.
    #[inline(always)]
    pub fn raw<'r>(&self, record: &'r [u8], be: bool) -> Option<&'r [u8]> {
        if !self.raw {
            return None;
        }
        let mut at = self.fixed;
        if self.read.is_some() || self.callchain {
            at = self.after_variable(record, be)?;
        }
        let size = uint(record, at, 4, be)? as usize;
        record.get(at + 4..at + 4 + size)
    }

    #[cold]
    fn after_variable(&self, record: &[u8], be: bool) -> Option<usize> {
        const TIMES: u64 = 3;
        const ID: u64 = 4;
        const GROUP: u64 = 8;
        const LOST: u64 = 16;
        let mut at = self.fixed;
        if let Some(format) = self.read {
            let each = 1 + u64::from((format & ID).count_ones()) + u64::from((format & LOST).count_ones());
            let times = u64::from((format & TIMES).count_ones());
            let words = if format & GROUP == 0 {
                each + times
            } else {
                1 + times + uint(record, at, 8, be)?.checked_mul(each)?
            };
            at = at.checked_add(usize::try_from(words.checked_mul(8)?).ok()?)?;
        }
        if self.callchain {
            let words = uint(record, at, 8, be)?.checked_add(1)?;
            at = at.checked_add(usize::try_from(words.checked_mul(8)?).ok()?)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(sample_type: u64, read_format: u64, flags: u64, be: bool) -> Attr {
        let word = |v: u64| if be { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut data = vec![0u8; 128];
        data[0..4].copy_from_slice(&if be { 2u32.to_be_bytes() } else { 2u32.to_le_bytes() });
        data[8..16].copy_from_slice(&word(316));
        data[24..32].copy_from_slice(&word(sample_type));
        data[32..40].copy_from_slice(&word(read_format));
        data[40..48].copy_from_slice(&word(if be { flags.reverse_bits() } else { flags }));
        Attr::read(&data, be).unwrap()
    }

    #[test]
    fn the_layout_of_perf_sched_record() {
        // IP TID TIME CPU PERIOD RAW IDENTIFIER, sample_id_all
        for be in [false, true] {
            let a = attr(1 << 16 | 1 | 2 | 4 | 128 | 256 | 1024, 4, 1 << 18, be);
            let l = a.layout;
            assert_eq!((a.kind, a.config), (2, 316));
            assert_eq!((l.id, l.tid, l.time, l.cpu, l.fixed), (Some(8), Some(24), Some(32), Some(40), 56));
            assert_eq!(l.trailer, Trailer { tid: 32, time: 24, cpu: 16, id: 8 });
            assert_eq!((a.clockid(), a.context_switch()), (None, false));
        }
    }

    #[test]
    fn raw_data_behind_groups_and_call_chains() {
        let l = attr(4 | 16 | 32 | 1024, 8 | 4 | 1, 0, false).layout;
        let words: [u64; 10] = [0, 77, 2, 9, 1, 11, 2, 12, 1, 0xffff];
        // header, time, group of 2 (nr, enabled, 2 x (value, id)), chain of 1
        let mut record: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        record.extend(3u32.to_le_bytes());
        record.extend(b"abc.");
        assert_eq!(l.raw(&record, false), Some(&b"abc"[..]));
        assert_eq!(l.raw(&record[..70], false), None);
        record[16] = 0xff;
        record[23] = 0xff;
        assert_eq!(l.raw(&record, false), None);
    }

    #[test]
    fn without_raw_there_is_none() {
        let l = attr(4, 0, 0, false).layout;
        assert_eq!(l.raw(&[0; 64], false), None);
        assert_eq!(l.trailer, Trailer::default());
    }
}
