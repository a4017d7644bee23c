//! Whole lines of a text source, many at a time and where possible in place.
//!
//! A source that is in memory is never copied. What a stream shows is taken as it stands, too, but
//! for lines that go over the end of that.

use std::io::{self, BufRead};
use std::sync::Arc;

use crate::Source;

/// Most bytes of one line of a stream that are held. No record comes near: the kernel's pages hold
/// 64 KiB, perf's records too, and a page of scripts has lines of a few megabytes.
const LONGEST: usize = 16 << 20;

/// A text source as blocks of whole lines.
pub struct Blocks {
    from: From,
    /// Offset of the next byte.
    pub offset: u64,
}

enum From {
    Bytes { all: Arc<dyn AsRef<[u8]> + Send + Sync>, at: usize },
    Stream(Stream),
}

struct Stream {
    stream: Box<dyn BufRead + Send>,
    ended: bool,
    /// Of the bytes that the stream shows: how many were passed, and how many are whole lines.
    start: usize,
    lines_end: usize,
    /// A line that the stream showed in pieces.
    line: Vec<u8>,
    /// That line is the next one.
    whole: bool,
    /// It was the last one.
    passed: bool,
    /// Bytes of it that were passed over, since it is longer than any record.
    cut: usize,
}

impl Blocks {
    /// Blocks of `source`.
    pub fn new(source: Source) -> Self {
        let from = match source {
            Source::Bytes(all) => From::Bytes { all, at: 0 },
            source => From::Stream(Stream {
                stream: source.into_read(),
                ended: false,
                start: 0,
                lines_end: 0,
                line: Vec::new(),
                whole: false,
                passed: false,
                cut: 0,
            }),
        };
        Blocks { from, offset: 0 }
    }

    /// The lines in memory from the current position on, empty only at the end of the source. Only
    /// the very last line of the source may lack its line end. Of a line in a stream that is longer
    /// than any record its head is shown.
    pub fn peek(&mut self) -> io::Result<&[u8]> {
        match &mut self.from {
            From::Bytes { all, at } => Ok(&(**all).as_ref()[*at..]),
            From::Stream(stream) => stream.peek(),
        }
    }

    /// Moves on by `n` bytes of what [`Self::peek`] showed: whole lines.
    pub fn advance(&mut self, n: usize) {
        self.offset += n as u64;
        match &mut self.from {
            From::Bytes { at, .. } => *at += n,
            From::Stream(stream) => self.offset += stream.advance(n) as u64,
        }
    }

    /// The last `n` bytes that [`Self::advance`] moved over.
    pub fn passed(&mut self, n: usize) -> io::Result<&[u8]> {
        match &mut self.from {
            From::Bytes { all, at } => Ok(&(**all).as_ref()[*at - n..*at]),
            From::Stream(Stream { line, passed: true, .. }) => Ok(&line[line.len() - n..]),
            From::Stream(Stream { stream, start, ended, .. }) => Ok(&shown(stream, ended)?[*start - n..*start]),
        }
    }
}

impl Stream {
    fn peek(&mut self) -> io::Result<&[u8]> {
        if !self.whole && self.start == self.lines_end && !self.next_lines()? {
            self.splice()?;
        }
        if self.whole {
            return Ok(&self.line);
        }
        Ok(&shown(&mut self.stream, &mut self.ended)?[self.start..self.lines_end])
    }

    /// Looks for lines in what the stream shows next, where it has shown no piece of one.
    fn next_lines(&mut self) -> io::Result<bool> {
        let begun = shown(&mut self.stream, &mut self.ended)?.len() > self.start;
        if begun {
            return Ok(false);
        }
        self.stream.consume(self.start);
        self.start = 0;
        let data = shown(&mut self.stream, &mut self.ended)?;
        self.lines_end = memchr::memrchr(b'\n', data).map_or(0, |i| i + 1);
        Ok(self.lines_end > 0 || data.is_empty())
    }

    /// Puts the pieces of a line together, and looks for lines in what the stream shows behind it.
    fn splice(&mut self) -> io::Result<()> {
        (self.whole, self.passed) = (true, false);
        self.line.clear();
        loop {
            let data = shown(&mut self.stream, &mut self.ended)?;
            if data.is_empty() {
                return Ok(());
            }
            let rest = &data[self.start..];
            let end = memchr::memchr(b'\n', rest);
            let piece = &rest[..end.map_or(rest.len(), |i| i + 1)];
            let kept = piece.len().min(LONGEST.saturating_sub(self.line.len()));
            self.line.extend_from_slice(&piece[..kept]);
            self.cut += piece.len() - kept;
            if end.is_some() {
                if kept < piece.len() {
                    self.line.push(b'\n');
                    self.cut -= 1;
                }
                self.start += piece.len();
                self.lines_end = memchr::memrchr(b'\n', data).map_or(0, |i| i + 1);
                return Ok(());
            }
            let all = data.len();
            self.stream.consume(all);
            (self.start, self.lines_end) = (0, 0);
        }
    }

    /// Moves on, and says how many bytes were passed over besides.
    fn advance(&mut self, n: usize) -> usize {
        self.passed = std::mem::take(&mut self.whole);
        if !self.passed {
            self.start += n;
        }
        std::mem::take(&mut self.cut)
    }
}

/// What a stream shows, empty only at its end. Behind that nothing is read: a terminal has an end and
/// goes on.
fn shown<'s>(stream: &'s mut Box<dyn BufRead + Send>, ended: &mut bool) -> io::Result<&'s [u8]> {
    while !*ended {
        match stream.fill_buf() {
            Ok([]) => *ended = true,
            // The same again: it would be borrowed in all rounds.
            Ok(_) => return stream.fill_buf(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    /// A stream that gives out its bytes in pieces of the given sizes.
    struct Pieces(Vec<u8>, Vec<usize>);

    impl Read for Pieces {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let want = self.1.pop().unwrap_or(usize::MAX).max(1);
            let n = want.min(buf.len()).min(self.0.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0.drain(..n);
            Ok(n)
        }
    }

    fn lines(mut blocks: Blocks) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let block = blocks.peek().unwrap();
            if block.is_empty() {
                return all;
            }
            let n = memchr::memchr(b'\n', block).map_or(block.len(), |i| i + 1);
            all.push(block[..n].to_vec());
            blocks.advance(n);
        }
    }

    proptest! {
        #[test]
        fn lines_survive_any_division(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'x')], 0..200),
            sizes in prop::collection::vec(1usize..9, 0..100),
            room in 1usize..20,
        ) {
            let plain: Vec<Vec<u8>> = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&lines(Blocks::new(Source::from_bytes(&text[..]))), &plain);
            let stream = Source::Stream(Box::new(io::BufReader::with_capacity(room, Pieces(text.clone(), sizes))));
            prop_assert_eq!(&lines(Blocks::new(stream)), &plain);
        }
    }

    #[test]
    fn of_a_line_longer_than_any_record_the_head_is_held() {
        let text = [vec![b'x'; 3 * LONGEST + 5], b"\nlast".to_vec()].concat();
        let total = text.len() as u64;
        let mut blocks = Blocks::new(Source::Stream(Box::new(io::Cursor::new(text))));
        let block = blocks.peek().unwrap();
        let n = memchr::memchr(b'\n', block).unwrap() + 1;
        assert!(n >= LONGEST && block[..n - 1].iter().all(|b| *b == b'x'));
        blocks.advance(n);
        let From::Stream(stream) = &blocks.from else { unreachable!() };
        assert!(stream.line.len() <= LONGEST + 1);
        assert_eq!(blocks.peek().unwrap(), b"last");
        assert_eq!(blocks.offset, total - 4);
        blocks.advance(4);
        assert!(blocks.peek().unwrap().is_empty());
        assert_eq!((blocks.offset, blocks.passed(4).unwrap()), (total, &b"last"[..]));
    }

    #[test]
    fn a_line_longer_than_the_buffer() {
        let mut text = vec![b'x'; 3 * (1 << 18) + 5];
        text.push(b'\n');
        text.extend(b"last");
        let found = lines(Blocks::new(Source::Stream(Box::new(io::Cursor::new(text)))));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3 * (1 << 18) + 6, 4]);
    }
}
