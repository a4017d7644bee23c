//! Whole lines of a text source, many at a time and where possible in place.
//!
//! A source that is in memory is never copied; a stream goes through one buffer that fits the
//! second-level cache.

use std::io::{self, Read};
use std::sync::Arc;

use crate::Source;

/// Size of the buffer for streams; it grows for a longer line.
const ROOM: usize = 256 * 1024;

/// A text source as blocks of whole lines.
pub struct Blocks {
    from: From,
    /// Offset of the next byte.
    pub offset: u64,
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
        Blocks { from, offset: 0 }
    }

    /// The lines in memory from the current position on, empty only at the end of the source. Only
    /// the very last line of the source may lack its line end.
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

    /// Moves on by `n` bytes of what [`Self::peek`] showed.
    pub fn advance(&mut self, n: usize) {
        self.offset += n as u64;
        match &mut self.from {
            From::Bytes { at, .. } => *at += n,
            From::Stream { start, .. } => *start += n,
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
    fn a_line_longer_than_the_buffer() {
        let mut text = vec![b'x'; 3 * ROOM + 5];
        text.push(b'\n');
        text.extend(b"last");
        let found = lines(Blocks::new(Source::Stream(Box::new(io::Cursor::new(text)))));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3 * ROOM + 6, 4]);
    }
}
