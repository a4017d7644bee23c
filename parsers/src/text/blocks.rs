//! Whole lines of a text source, many at a time and where possible in place.
//!
//! A source that is in memory is never copied; a stream goes through one buffer that fits the
//! second-level cache.

use std::io::{self, Read};
use std::sync::Arc;

use crate::Source;

/// Size of the buffer for streams; it grows for a longer line.
const ROOM: usize = 256 * 1024;
/// Most bytes of one line of a stream that are held. No record comes near: the kernel's pages hold
/// 64 KiB, perf's records too, and a page of scripts has lines of a few megabytes.
const LONGEST: usize = 16 << 20;

/// A text source as blocks of whole lines.
pub struct Blocks {
    from: From,
    /// Offset of the next byte.
    pub offset: u64,
    /// Bytes of the line at the current position that were passed over, since it is longer than any record.
    cut: u64,
}

enum From {
    Bytes { all: Arc<dyn AsRef<[u8]> + Send + Sync>, at: usize },
    Stream { stream: Box<dyn Read + Send>, buf: Vec<u8>, start: usize, lines_end: usize, end: usize, eof: bool },
}

impl Blocks {
    /// Blocks of `source`.
    pub fn new(source: Source) -> Self {
        let from = match source {
            Source::Bytes(all) => From::Bytes { all, at: 0 },
            source => {
                let stream = source.into_read();
                From::Stream { stream, buf: vec![0; ROOM], start: 0, lines_end: 0, end: 0, eof: false }
            }
        };
        Blocks { from, offset: 0, cut: 0 }
    }

    /// The lines in memory from the current position on, empty only at the end of the source. Only
    /// the very last line of the source may lack its line end. Of a line in a stream that is longer
    /// than any record its head is shown.
    pub fn peek(&mut self) -> io::Result<&[u8]> {
        match &mut self.from {
            From::Bytes { all, at } => Ok(&(**all).as_ref()[*at..]),
            From::Stream { stream, buf, start, lines_end, end, eof } => {
                while start == lines_end && !(*eof && *end == *start) {
                    if *eof {
                        *lines_end = *end;
                        break;
                    }
                    buf.copy_within(*start..*end, 0);
                    (*end, *start) = (*end - *start, 0);
                    if *end >= LONGEST {
                        self.cut += (*end - LONGEST) as u64;
                        *end = LONGEST;
                    }
                    if *end == buf.len() {
                        buf.resize(buf.len() * 2, 0);
                    }
                    let fresh = *end;
                    match stream.read(&mut buf[fresh..]) {
                        Ok(0) => *eof = true,
                        Ok(n) => *end += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(e),
                    }
                    *lines_end = memchr::memrchr(b'\n', &buf[fresh..*end]).map_or(0, |i| fresh + i + 1);
                }
                Ok(&buf[*start..*lines_end])
            }
        }
    }

    /// Moves on by `n` bytes of what [`Self::peek`] showed: whole lines.
    pub fn advance(&mut self, n: usize) {
        self.offset += n as u64 + std::mem::take(&mut self.cut);
        match &mut self.from {
            From::Bytes { at, .. } => *at += n,
            From::Stream { start, .. } => *start += n,
        }
    }

    /// The last `n` bytes that [`Self::advance`] moved over.
    pub fn passed(&self, n: usize) -> &[u8] {
        match &self.from {
            From::Bytes { all, at } => &(**all).as_ref()[*at - n..*at],
            From::Stream { buf, start, .. } => &buf[*start - n..*start],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        ) {
            let plain: Vec<Vec<u8>> = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&lines(Blocks::new(Source::from_bytes(&text[..]))), &plain);
            let stream = Source::Stream(Box::new(Pieces(text.clone(), sizes)));
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
        let From::Stream { buf, .. } = &blocks.from else { unreachable!() };
        assert!(buf.len() <= 2 * LONGEST);
        assert_eq!(blocks.peek().unwrap(), b"last");
        assert_eq!(blocks.offset, total - 4);
        blocks.advance(4);
        assert!(blocks.peek().unwrap().is_empty());
        assert_eq!((blocks.offset, blocks.passed(4)), (total, &b"last"[..]));
    }

    #[test]
    fn a_line_longer_than_the_buffer() {
        let mut text = vec![b'x'; 3 * ROOM + 5];
        text.push(b'\n');
        text.extend(b"last");
        let found = lines(Blocks::new(Source::Stream(Box::new(io::Cursor::new(text)))));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3 * ROOM + 6, 4]);
    }
}
