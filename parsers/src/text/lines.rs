//! Lines of a text source, without a copy or an allocation per line.

use std::io::{self, Read};

/// Block size of reads.
const BLOCK: usize = 1 << 20;

/// Reads lines out of a stream through one growing buffer.
pub struct Lines {
    stream: Box<dyn Read + Send>,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    eof: bool,
    /// Lines handed out so far, so also the number (from 1) of the last one.
    pub number: u64,
    /// Offset of the byte after the last line handed out.
    pub offset: u64,
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
    /// Lines of `stream`.
    pub fn new(stream: Box<dyn Read + Send>) -> Self {
        Lines { stream, buf: vec![0; BLOCK], start: 0, end: 0, eof: false, number: 0, offset: 0 }
    }

    /// The next line, `None` at the end.
    #[inline]
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        let (from, to, ended) = loop {
            if let Some(i) = memchr::memchr(b'\n', &self.buf[searched..self.end]) {
                break (self.start, searched + i, true);
            }
            if self.eof {
                if self.start == self.end {
                    return Ok(None);
                }
                break (self.start, self.end, false);
            }
            let kept = self.end - self.start;
            self.refill()?;
            searched = self.start + kept;
        };
        let next = to + usize::from(ended);
        self.offset += (next - from) as u64;
        self.number += 1;
        self.start = next;
        let mut bytes = &self.buf[from..to];
        if let [rest @ .., b'\r'] = bytes {
            bytes = rest;
        }
        Ok(Some(Line { bytes, ended }))
    }

    #[cold]
    fn refill(&mut self) -> io::Result<()> {
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buf.len() {
            self.buf.resize(self.buf.len() * 2, 0);
        }
        loop {
            match self.stream.read(&mut self.buf[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_lengths_across_blocks() {
        let mut text = Vec::new();
        for n in [0usize, 1, 15, BLOCK - 3, BLOCK + 7, 2 * BLOCK, 3] {
            text.extend(std::iter::repeat_n(b'x', n));
            text.extend(if n % 2 == 0 { &b"\n"[..] } else { &b"\r\n"[..] });
        }
        text.extend(b"cut");
        let total = text.len() as u64;
        let mut lines = Lines::new(Box::new(io::Cursor::new(text)));
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            seen.push((line.bytes.len(), line.ended));
        }
        let full = [0, 1, 15, BLOCK - 3, BLOCK + 7, 2 * BLOCK, 3].map(|n| (n, true));
        assert_eq!(seen[..7], full);
        assert_eq!(seen[7], (3, false));
        assert_eq!((lines.number, lines.offset), (8, total));
    }
}
