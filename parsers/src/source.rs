//! Where bytes come from: a stream, or a block that can be read at any place.

mod utf16;

use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// How many bytes sniffing may look at.
pub const HEAD: usize = 64 * 1024;

/// Size of the buffer of a stream.
const ROOM: usize = 256 * 1024;

/// A block of bytes that outlives who reads it.
pub type Block = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The bytes of one source, decompressed.
pub enum Source {
    /// All bytes at once (a mapped file, a buffer).
    Bytes(Block),
    /// A stream (a pipe, a compressed file, a large text), which shows bytes before they are taken.
    Stream(Box<dyn BufRead + Send>),
    /// A folder: paths within it, and the files.
    Files(Vec<(String, Block)>),
}

/// Bytes that may come out of a wrapper however small it was.
const HARMLESS: u64 = 1 << 30;
/// Most bytes that come out of one in a wrapper. Each record of a trace has a time of its own: of sixty
/// captures, text and binary, zstd's level 19 made no less than a 27th.
const DENSEST: u64 = 200;

/// The file whose first bytes decide what a folder holds: of CTF, of `perf record --threads`.
const DECIDING: [&str; 2] = ["metadata", "data"];

fn folder() -> io::Error {
    io::Error::new(io::ErrorKind::IsADirectory, "expected a file, found a folder")
}

/// The first bytes of a source.
#[derive(Clone, Debug)]
pub struct Head {
    /// At most [`HEAD`] bytes.
    pub bytes: Vec<u8>,
    /// True when the whole source is in `bytes`.
    pub whole: bool,
}

impl Source {
    /// A source of the given bytes.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Source::Bytes(Arc::new(bytes.into()))
    }

    /// A source of what a reader gives, through a buffer that fits the second-level cache.
    pub fn buffered(read: impl Read + Send + 'static) -> Self {
        Source::Stream(Box::new(BufReader::with_capacity(ROOM, read)))
    }

    /// Whether a source that begins so is wrapped in gzip, zstd or xz, or text in UTF-16.
    pub fn is_wrapped(head: &[u8]) -> bool {
        WRAPPERS.iter().any(|(magic, _)| head.starts_with(magic))
    }

    /// Unwraps gzip, zstd, xz and UTF-16, recognised by their magic numbers; wrappers within wrappers
    /// too. Reading fails where far more comes out than a trace can be packed into.
    pub fn unwrapped(mut self) -> io::Result<Self> {
        for _ in 0..4 {
            let head = self.head()?.bytes;
            let Some((_, unpack)) = WRAPPERS.iter().find(|(magic, _)| head.starts_with(magic)) else {
                return Ok(self);
            };
            let packed = Arc::<AtomicU64>::default();
            let stream = unpack(Packed { stream: self.into_read(), bytes: packed.clone() })?;
            self = Source::buffered(Unpacked { stream, packed, bytes: 0 });
        }
        Ok(self)
    }

    /// The first bytes, which stay readable.
    pub fn head(&mut self) -> io::Result<Head> {
        if let Source::Files(files) = self {
            let of = |name: &&str| files.iter().find(|(path, _)| path.rsplit('/').next() == Some(*name));
            let (_, bytes) = DECIDING.iter().find_map(of).ok_or_else(folder)?;
            let all = (**bytes).as_ref();
            return Ok(Head { bytes: all[..all.len().min(HEAD)].to_vec(), whole: false });
        }
        if let Source::Bytes(all) = self {
            let all = (**all).as_ref();
            let n = all.len().min(HEAD);
            return Ok(Head { bytes: all[..n].to_vec(), whole: n == all.len() });
        }
        let Source::Stream(stream) = std::mem::replace(self, Source::from_bytes(Vec::new())) else {
            unreachable!("the other variant returned above")
        };
        let mut stream = stream;
        let mut bytes = Vec::with_capacity(HEAD);
        let failed = match (&mut stream).take(HEAD as u64).read_to_end(&mut bytes) {
            Ok(_) => None,
            // A packed file that is cut: what came out of it is read first.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && !bytes.is_empty() => Some(e),
            Err(e) => return Err(e),
        };
        let whole = failed.is_none() && bytes.len() < HEAD;
        let begins = io::Cursor::new(bytes.clone());
        *self = match failed {
            None => Source::Stream(Box::new(begins.chain(stream))),
            Some(e) => Source::buffered(begins.chain(Failed(Some(e)))),
        };
        Ok(Head { bytes, whole })
    }

    /// The source as a stream.
    pub fn into_read(self) -> Box<dyn BufRead + Send> {
        match self {
            Source::Stream(stream) => stream,
            Source::Bytes(all) => Box::new(BufReader::new(SharedCursor { all, at: 0 })),
            Source::Files(_) => Box::new(BufReader::new(Refused)),
        }
    }

    /// The source as one block; reads a stream to its end.
    pub fn into_bytes(self) -> io::Result<Arc<dyn AsRef<[u8]> + Send + Sync>> {
        match self {
            Source::Bytes(all) => Ok(all),
            Source::Files(_) => Err(folder()),
            Source::Stream(mut stream) => {
                let mut all = Vec::new();
                stream.read_to_end(&mut all)?;
                Ok(Arc::new(all))
            }
        }
    }
}

type Unpack = fn(Packed) -> io::Result<Box<dyn Read + Send>>;

/// What a wrapped stream begins with, and what unwraps it: gzip, zstd, xz, UTF-16.
const WRAPPERS: [(&[u8], Unpack); 5] = [
    (&[0x1f, 0x8b], |packed| Ok(Box::new(flate2::read::MultiGzDecoder::new(packed)))),
    (&[0x28, 0xb5, 0x2f, 0xfd], |packed| Ok(Box::new(zstd::stream::read::Decoder::new(packed)?))),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], |packed| Ok(Box::new(liblzma::read::XzDecoder::new_multi_decoder(packed)))),
    (utf16::LITTLE, |packed| Ok(Box::new(utf16::Utf16::new(packed, false)))),
    (utf16::BIG, |packed| Ok(Box::new(utf16::Utf16::new(packed, true)))),
];

/// A wrapped stream, whose bytes are counted.
struct Packed {
    stream: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Packed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// What comes out of a wrapper. It ends in an error where it is a bomb.
struct Unpacked {
    stream: Box<dyn Read + Send>,
    /// Bytes taken from the wrapper so far.
    packed: Arc<AtomicU64>,
    bytes: u64,
}

impl Read for Unpacked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        self.bytes += n as u64;
        let packed = self.packed.load(Ordering::Relaxed);
        if self.bytes > HARMLESS && self.bytes / DENSEST > packed {
            let message = format!(
                "expected a packed trace, found {} MiB in {packed} bytes, over {DENSEST} times as many, \
                 as no trace has; unpack it to a file if it is one",
                self.bytes >> 20,
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(n)
    }
}

/// The rest of a stream that cannot be read.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// A folder read as a file.
struct Refused;

impl Read for Refused {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(folder())
    }
}

struct SharedCursor {
    all: Arc<dyn AsRef<[u8]> + Send + Sync>,
    at: usize,
}

impl Read for SharedCursor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = &(*self.all).as_ref()[self.at..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn wrapped_sources_read_like_plain_ones() {
        let text = b"hello trace".repeat(9000);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let zst = zstd::encode_all(&text[..], 1).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&text).unwrap();
        for wrapped in [gz.finish().unwrap(), zst, xz.finish().unwrap(), text.clone()] {
            let all = Source::from_bytes(wrapped).unwrapped().unwrap().into_bytes().unwrap();
            assert_eq!((*all).as_ref(), &text[..]);
        }
    }

    #[test]
    fn a_bomb_ends_in_an_error() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        io::copy(&mut io::repeat(0).take(HARMLESS + (8 << 20)), &mut gz).unwrap();
        let mut stream = Source::from_bytes(gz.finish().unwrap()).unwrapped().unwrap().into_read();
        let error = io::copy(&mut stream, &mut io::sink()).unwrap_err();
        assert!(error.to_string().starts_with("expected a packed trace, found 1024 MiB in "), "{error}");
    }

    #[test]
    fn the_head_stays_readable() {
        let text = vec![7u8; HEAD + 5];
        let mut s = Source::Stream(Box::new(io::Cursor::new(text.clone())));
        let head = s.head().unwrap();
        assert_eq!((head.bytes.len(), head.whole), (HEAD, false));
        assert_eq!((*s.into_bytes().unwrap()).as_ref(), &text[..]);
    }
}
