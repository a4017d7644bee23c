//! The BLAKE3 digest of sources, by which they are distinguished.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ::blake3::Hasher;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::detached;

/// Bytes that are read and hashed at a time: they stay in the second-level cache.
const BLOCK: usize = 1 << 17;
/// How far the reader goes before the thread behind it hears of that.
const STRIDE: u64 = 1 << 20;

/// The digest of what has been read so far. Where there are several CPUs a thread reads a file once
/// more, behind the reader, from the kernel's page cache: to hash takes a seventh of the time of
/// `convert`, and the reader is what the others wait for.
#[derive(Clone, Default)]
pub struct Running(Arc<State>);

#[derive(Default)]
struct State {
    /// What the thread does not hash.
    hasher: Mutex<Hasher>,
    follower: Mutex<Option<JoinHandle<io::Result<Hasher>>>>,
    follows: bool,
    progress: Arc<Progress>,
}

/// How far the reader has come, and whether it goes on.
#[derive(Default)]
struct Progress {
    read: AtomicU64,
    ended: AtomicBool,
}

impl Running {
    /// The digest of `file`, which is about to be read from its start.
    pub fn of(file: &File) -> Self {
        let several = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let Some(own) = several.then(|| file.try_clone().ok()).flatten() else { return Running::default() };
        let progress = Arc::<Progress>::default();
        let seen = Arc::clone(&progress);
        let Ok(thread) = thread::Builder::new().name("digest".into()).spawn(move || follow(&own, &seen)) else {
            return Running::default();
        };
        let follower = Mutex::new(Some(thread));
        Running(Arc::new(State { hasher: Mutex::default(), follower, follows: true, progress }))
    }

    /// Goes on with these bytes.
    pub fn add(&self, bytes: &[u8]) {
        if !self.0.follows {
            lock(&self.0.hasher).update(bytes);
            return;
        }
        let n = bytes.len() as u64;
        let before = self.0.progress.read.fetch_add(n, Ordering::Release);
        if before / STRIDE != (before + n) / STRIDE {
            if let Some(thread) = &*lock(&self.0.follower) {
                thread.thread().unpark();
            }
        }
    }

    /// Goes on to the end of `file`, and gives the digest in hexadecimal.
    pub fn finish(&self, mut file: &File) -> io::Result<String> {
        if let Some(thread) = self.0.stop() {
            let hashed = thread.join().map_err(|_| io::Error::other("the thread that hashes is lost"))?;
            *lock(&self.0.hasher) = hashed?;
        }
        let mut hasher = lock(&self.0.hasher);
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block) {
                Ok(0) => break,
                Ok(n) => drop(hasher.update(&block[..n])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

impl State {
    /// Lets the thread know that there is no more to come.
    fn stop(&self) -> Option<JoinHandle<io::Result<Hasher>>> {
        let thread = lock(&self.follower).take()?;
        self.progress.ended.store(true, Ordering::Release);
        thread.thread().unpark();
        Some(thread)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Nobody asked for the digest: the thread ends by itself.
        self.progress.ended.store(true, Ordering::Release);
        self.progress.read.store(0, Ordering::Release);
        drop(self.stop());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hashes what of `file` was read, from its start, until that ends.
fn follow(file: &File, progress: &Progress) -> io::Result<Hasher> {
    let (mut hasher, mut at) = (Hasher::new(), 0);
    let mut block = vec![0; BLOCK];
    loop {
        // In this order: what was read before the end is seen with it.
        let ended = progress.ended.load(Ordering::Acquire);
        let left = progress.read.load(Ordering::Acquire).saturating_sub(at);
        if left == 0 && ended {
            return Ok(hasher);
        }
        if left < STRIDE && !ended {
            thread::park();
            continue;
        }
        let want = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match file.read_at(&mut block[..want], at) {
            // It is shorter than it was: its reader says so.
            Ok(0) => return Ok(hasher),
            Ok(n) => {
                hasher.update(&block[..n]);
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digest of a file or of bytes, in hexadecimal, as `b3sum` prints it.
#[pyfunction]
pub fn blake3(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(bytes) = source.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return detached(py, || ::blake3::hash(bytes).to_hex().to_string());
    }
    let path: PathBuf = source.extract()?;
    let digest = detached(py, || crate::files::plain(&path).and_then(|file| Running::default().finish(&file)))?;
    Ok(digest?)
}
