//! The BLAKE3 digest of sources, by which they are told apart.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ::blake3::Hasher;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::detached;

/// Bytes that are read and hashed at a time: they stay in the second-level cache.
const BLOCK: usize = 1 << 17;

/// The digest of what has been read so far.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<Hasher>>);

impl Running {
    /// Goes on with these bytes.
    pub fn add(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
    }

    /// Goes on to the end of `file`, and gives the digest in hexadecimal.
    pub fn finish(&self, mut file: &File) -> io::Result<String> {
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block) {
                Ok(0) => break,
                Ok(n) => self.add(&block[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).finalize().to_hex().to_string())
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
