//! Checked reading of binary data in either byte order.

/// A read past the end: where it began and how many bytes were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Offset of the first byte wanted.
    pub at: usize,
    /// Number of bytes wanted.
    pub wanted: u64,
}

/// The unsigned integer of `size` (1, 2, 4 or 8) bytes at `at`, `None` when it is not all there.
#[inline]
pub fn uint(bytes: &[u8], at: usize, size: usize, be: bool) -> Option<u64> {
    let rest = bytes.get(at..)?;
    Some(match size {
        1 => u64::from(*rest.first()?),
        2 => {
            let b = *rest.first_chunk::<2>()?;
            u64::from(if be { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) })
        }
        4 => {
            let b = *rest.first_chunk::<4>()?;
            u64::from(if be { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) })
        }
        8 => {
            let b = *rest.first_chunk::<8>()?;
            if be {
                u64::from_be_bytes(b)
            } else {
                u64::from_le_bytes(b)
            }
        }
        _ => return None,
    })
}

/// The 32-bit integer at `at`.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize, be: bool) -> Option<u32> {
    uint(bytes, at, 4, be).map(|v| v as u32)
}

/// The bytes of `text` before its first NUL.
#[inline]
pub fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |n| &text[..n])
}

/// A place in a block of bytes that moves on as things are read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of the next byte.
    pub at: usize,
    /// True for big-endian data.
    pub be: bool,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from `at`.
    pub fn new(bytes: &'a [u8], at: usize, be: bool) -> Self {
        Reader { bytes, at, be }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8], Short> {
        let short = Short { at: self.at, wanted: n };
        let end = usize::try_from(n).ok().and_then(|n| self.at.checked_add(n)).ok_or(short)?;
        let found = self.bytes.get(self.at..end).ok_or(short)?;
        self.at = end;
        Ok(found)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Short> {
        self.take(1).map(|b| b[0])
    }

    /// The next two bytes as an integer.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.uint(2).map(|v| v as u16)
    }

    /// The next four bytes as an integer.
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.uint(4).map(|v| v as u32)
    }

    /// The next eight bytes as an integer.
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.uint(8)
    }

    fn uint(&mut self, size: usize) -> Result<u64, Short> {
        let value = uint(self.bytes, self.at, size, self.be);
        let value = value.ok_or(Short { at: self.at, wanted: size as u64 })?;
        self.at += size;
        Ok(value)
    }

    /// The bytes up to the next NUL, which is passed over.
    pub fn c_str(&mut self) -> Result<&'a [u8], Short> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let n = memchr::memchr(0, rest).ok_or(Short { at: self.at, wanted: rest.len() as u64 + 1 })?;
        self.at += n + 1;
        Ok(&rest[..n])
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_both_orders() {
        let b = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(uint(&b, 0, 2, false), Some(0x0201));
        assert_eq!(uint(&b, 0, 8, true), Some(0x0102_0304_0506_0708));
        assert_eq!(uint(&b, 5, 4, false), None);
        assert_eq!(uint(&b, usize::MAX, 4, false), None);
        assert_eq!(uint(&b, 0, 3, false), None);
    }

    #[test]
    fn a_reader_stops_at_the_end() {
        let mut r = Reader::new(b"ab\0\x01\x02", 0, true);
        assert_eq!(r.c_str(), Ok(&b"ab"[..]));
        assert_eq!(r.u16(), Ok(0x0102));
        assert_eq!(r.u8(), Err(Short { at: 5, wanted: 1 }));
        assert_eq!(r.take(u64::MAX), Err(Short { at: 5, wanted: u64::MAX }));
        assert!(r.c_str().is_err());
    }
}
