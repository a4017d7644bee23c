//! Lines of a text source one by one, without a copy or an allocation per line.

use std::io;

use super::blocks::Blocks;
use crate::Source;

/// Reads a source line by line.
pub struct Lines {
    blocks: Blocks,
    /// Lines handed out so far, so also the number (from 1) of the last one.
    pub number: u64,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes without `\n` or `\r\n`.
    pub bytes: &'a [u8],
    /// False for a last line that no line end follows.
    pub ended: bool,
}

impl Lines {
    /// Lines of `source`.
    pub fn new(source: Source) -> Self {
        Lines { blocks: Blocks::new(source), number: 0 }
    }

    /// Offset of the byte after the last line handed out.
    pub fn offset(&self) -> u64 {
        self.blocks.offset
    }

    /// The next line, `None` at the end.
    #[inline]
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let block = self.blocks.peek()?;
        if block.is_empty() {
            return Ok(None);
        }
        let (n, ended) = memchr::memchr(b'\n', block).map_or((block.len(), false), |i| (i + 1, true));
        self.blocks.advance(n);
        self.number += 1;
        let mut bytes = self.blocks.passed(n)?;
        if ended {
            bytes = &bytes[..n - 1];
        }
        if let [rest @ .., b'\r'] = bytes {
            bytes = rest;
        }
        Ok(Some(Line { bytes, ended }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 1 << 20;

    #[test]
    fn lines_of_all_lengths_across_blocks() {
        let mut text = Vec::new();
        for n in [0usize, 1, 15, BLOCK - 3, BLOCK + 7, 2 * BLOCK, 3] {
            text.extend(std::iter::repeat_n(b'x', n));
            text.extend(if n % 2 == 0 { &b"\n"[..] } else { &b"\r\n"[..] });
        }
        text.extend(b"cut");
        let total = text.len() as u64;
        let mut lines = Lines::new(Source::Stream(Box::new(io::Cursor::new(text))));
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            seen.push((line.bytes.len(), line.ended));
        }
        let full = [0, 1, 15, BLOCK - 3, BLOCK + 7, 2 * BLOCK, 3].map(|n| (n, true));
        assert_eq!(seen[..7], full);
        assert_eq!(seen[7], (3, false));
        assert_eq!((lines.number, lines.offset()), (8, total));
    }
}
