//! A file that a thread reads ahead, and hashes, while what it read before is worked on.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::Builder;

use crate::digest::Running;

/// Bytes read at a time: they fit the second-level cache.
const BLOCK: usize = 1 << 19;
/// Blocks that wait. With fewer bytes on the way each thread waits for the other more often: a conversion
/// of 1 GB of text (`bench/convert_memory.py --size 1GB`; changed by hand, elapsed time on two CPUs) takes
/// 0.62 s with two blocks of 1 << 18, 0.55 s like this, 0.58 s with two of 1 << 21.
const WAITING: usize = 4;

/// Reads a file from its start.
pub struct Ahead {
    filled: Receiver<io::Result<Block>>,
    emptied: Sender<Vec<u8>>,
    block: Block,
    at: usize,
    ended: bool,
    /// Bytes handed out.
    count: Arc<AtomicU64>,
}

#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    len: usize,
}

impl Ahead {
    /// Starts to read `file`; its bytes go into `digest` as well.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(file: File, digest: Option<Running>, count: Arc<AtomicU64>) -> io::Result<Self> {
        let (give, filled) = sync_channel(WAITING);
        let (emptied, empty) = channel::<Vec<u8>>();
        Builder::new().name("read".into()).spawn(move || loop {
            let mut bytes = empty.try_recv().unwrap_or_else(|_| vec![0; BLOCK]);
            let read = loop {
                let read = match &digest {
                    Some(digest) => digest.read(&file, &mut bytes),
                    None => (&file).read(&mut bytes),
                };
                if !matches!(&read, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
                    break read;
                }
            };
            let last = !matches!(read, Ok(n) if n > 0);
            // Whoever listened may have had enough.
            if give.send(read.map(|len| Block { bytes, len })).is_err() || last {
                return;
            }
        })?;
        Ok(Ahead { filled, emptied, block: Block::default(), at: 0, ended: false, count })
    }
}

impl BufRead for Ahead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.block.len && !self.ended {
            // An error, too, is the last that comes.
            self.ended = true;
            let lost = |_| Err(io::Error::other("the thread that reads is lost"));
            let next = self.filled.recv().unwrap_or_else(lost)?;
            self.ended = next.len == 0;
            self.count.fetch_add(next.len as u64, Ordering::Relaxed);
            let before = std::mem::replace(&mut self.block, next);
            if !before.bytes.is_empty() {
                // At the end nobody takes it.
                let _ = self.emptied.send(before.bytes);
            }
            self.at = 0;
        }
        Ok(&self.block.bytes[self.at..self.block.len])
    }

    fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.block.len);
    }
}

impl Read for Ahead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}
