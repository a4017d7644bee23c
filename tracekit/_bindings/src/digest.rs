//! The BLAKE3 digest of sources, by which they are distinguished.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::blake3::Hasher;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::detached;

/// Bytes that are read and hashed at a time: they stay in the second-level cache.
const BLOCK: usize = 1 << 17;

/// The digest of what has been read so far.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    hasher: Hasher,
    /// Somebody reads on to the end of the file.
    finished: bool,
}

impl Running {
    /// Goes on with these bytes.
    pub fn add(&self, bytes: &[u8]) {
        self.lock().hasher.update(bytes);
    }

    /// Reads the next bytes of a file and goes on with them: how many, or none where [`Self::finish`]
    /// reads on.
    pub fn read(&self, mut file: &File, block: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.finished {
            return Ok(0);
        }
        let n = file.read(block)?;
        state.hasher.update(&block[..n]);
        Ok(n)
    }

    /// Goes on to the end of `file`, and gives the digest in hexadecimal.
    pub fn finish(&self, mut file: &File) -> io::Result<String> {
        let mut state = self.lock();
        state.finished = true;
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block) {
                Ok(0) => break,
                Ok(n) => drop(state.hasher.update(&block[..n])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(state.hasher.finalize().to_hex().to_string())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
