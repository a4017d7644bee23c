//! Opens files, pipes and directories as a [`Source`].

// The rule that parsers see no files ends here: this is where they are opened.
#![allow(clippy::disallowed_methods)]

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use tracekit_parsers::{ParseError, Source};

use crate::ahead::Ahead;
use crate::digest::Running;
use crate::mapping::Mapping;

/// Bytes of a file from which on a thread reads it ahead.
const WORTH_A_THREAD: u64 = 1 << 22;

/// An opened source and what progress bars need to know of it.
pub struct Opened {
    /// The bytes, unwrapped.
    pub source: Source,
    /// Size as stored; none for pipes.
    pub size: Option<u64>,
    /// Bytes read as stored; none where the parser's own count is the one to show.
    pub counter: Option<Arc<AtomicU64>>,
    /// The file, where it is one, to see whether it becomes shorter while it is read.
    pub file: Option<File>,
    /// The digest of what was read as a stream; what is left of the file is read when it is asked for.
    pub digest: Running,
}

/// Opens `path`; `-` is standard input. With `hashed`, the bytes of a file are hashed as they are read.
///
/// # Errors
/// [`ParseError`] with code `io`.
pub fn open(path: &Path, hashed: bool) -> Result<Opened, ParseError> {
    if path.as_os_str() == "-" {
        return stream(io::stdin(), None, None).map_err(|e| failed(&e));
    }
    let meta = std::fs::metadata(path).map_err(|e| failed(&e))?;
    if meta.is_dir() {
        return directory(path, hashed);
    }
    let mut file = File::open(path).map_err(|e| failed(&e))?;
    if !meta.is_file() {
        return stream(file, None, None).map_err(|e| failed(&e));
    }
    let text = is_text(&mut file).map_err(|e| failed(&e))?;
    if text || is_wrapped(&mut file).map_err(|e| failed(&e))? {
        let same = file.try_clone().ok();
        let digest = hashed.then(Running::default);
        let opened = text_file(file, meta.len(), digest).map_err(|e| failed(&e))?;
        return Ok(Opened { file: same, ..opened });
    }
    mapped(file, meta.len()).map_err(|e| failed(&e))
}

/// Opens a file to read its bytes as they are stored.
pub fn plain(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A source of bytes in memory.
///
/// # Errors
/// [`ParseError`] when they are wrapped and the wrapper is damaged.
pub fn bytes(data: Vec<u8>) -> Result<Opened, ParseError> {
    let size = Some(data.len() as u64);
    stream(io::Cursor::new(data), size, None).map_err(|e| ParseError::io("unknown", &e))
}

/// A folder: that of `perf record --threads`, whose main file is called `data`, or a CTF trace,
/// which has a `metadata`.
fn directory(path: &Path, hashed: bool) -> Result<Opened, ParseError> {
    let data = path.join("data");
    if data.is_file() {
        let threads = path.join("data.0").is_file();
        return if threads { folder(path).map_err(|e| failed(&e)) } else { open(&data, hashed) };
    }
    let mut traces = Vec::new();
    ctf_folders(path, 0, &mut traces).map_err(|e| failed(&e))?;
    // A session of LTTng holds the kernel's trace beside those of programs.
    if traces.len() > 1 && traces.iter().filter(|t| t.ends_with("kernel")).count() == 1 {
        traces.retain(|t| t.ends_with("kernel"));
    }
    match &traces[..] {
        [trace] => folder(trace).map_err(|e| failed(&e)),
        [] => {
            Err(ParseError::new("unknown", "io", "expected a file, found a folder").advise("name the trace file in it"))
        }
        _ => {
            let names: Vec<_> = traces.iter().map(|t| t.display().to_string()).collect();
            let message = format!("expected one trace, found {} in the folder", traces.len());
            Err(ParseError::new("unknown", "io", message).advise(format!("name one: {}", names.join(", "))))
        }
    }
}

/// How deep a CTF trace lies in the folder that was named: `SESSION/kernel`, `SESSION/ust/uid/0/64-bit`.
const DEEPEST: u32 = 4;

/// Folders at or below `path` that hold a `metadata` file.
fn ctf_folders(path: &Path, depth: u32, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.join("metadata").is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth == DEEPEST {
        return Ok(());
    }
    let mut inner: Vec<_> =
        std::fs::read_dir(path)?.filter_map(Result::ok).map(|e| e.path()).filter(|p| p.is_dir()).collect();
    inner.sort();
    inner.iter().try_for_each(|p| ctf_folders(p, depth + 1, found))
}

/// All files of a folder, mapped; those in folders within it are indexes.
fn folder(path: &Path) -> io::Result<Opened> {
    let mut paths: Vec<_> =
        std::fs::read_dir(path)?.filter_map(Result::ok).map(|e| e.path()).filter(|p| p.is_file()).collect();
    paths.sort();
    let (mut files, mut size) = (Vec::new(), 0);
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = File::open(&path)?;
        let len = file.metadata()?.len();
        size += len;
        let Source::Bytes(bytes) = mapped(file, len)?.source else { continue };
        files.push((name, bytes));
    }
    Ok(Opened { source: Source::Files(files), size: Some(size), counter: None, file: None, digest: Running::default() })
}

fn failed(error: &io::Error) -> ParseError {
    match error.kind() {
        io::ErrorKind::NotFound => ParseError::new("unknown", "io", "no such file"),
        io::ErrorKind::PermissionDenied => ParseError::new("unknown", "io", "permission denied"),
        _ => ParseError::io("unknown", error),
    }
}

/// A file that is read as a stream: by a thread of its own where there are several CPUs and it is worth it.
fn text_file(file: File, size: u64, digest: Option<Running>) -> io::Result<Opened> {
    let several = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    let own = if several && size >= WORTH_A_THREAD { file.try_clone().ok() } else { None };
    let counter = Arc::new(AtomicU64::new(0));
    let Some(ahead) = own.and_then(|own| Ahead::start(own, digest.clone(), Arc::clone(&counter)).ok()) else {
        return stream(file, Some(size), digest);
    };
    let source = Source::Stream(Box::new(ahead)).unwrapped()?;
    Ok(Opened { source, size: Some(size), counter: Some(counter), file: None, digest: digest.unwrap_or_default() })
}

fn stream(read: impl Read + Send + 'static, size: Option<u64>, digest: Option<Running>) -> io::Result<Opened> {
    let counter = Arc::new(AtomicU64::new(0));
    let counted = Counted { inner: read, count: Arc::clone(&counter), digest: digest.clone() };
    let source = Source::buffered(counted).unwrapped()?;
    Ok(Opened { source, size, counter: Some(counter), file: None, digest: digest.unwrap_or_default() })
}

/// Maps a binary file, which its parser reads at any place. Text is read as a stream instead, so
/// that what was read does not stay in memory.
fn mapped(mut file: File, size: u64) -> io::Result<Opened> {
    let source = match if size == 0 { None } else { Mapping::new(&file)? } {
        Some(map) => Source::Bytes(Arc::new(map)),
        None => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Source::from_bytes(bytes)
        }
    };
    Ok(Opened { source, size: Some(size), counter: None, file: Some(file), digest: Running::default() })
}

/// True when the first bytes hold no NUL: text formats have none, binary formats have some in their header.
fn is_text(file: &mut File) -> io::Result<bool> {
    Ok(!peek(file, 4096)?.contains(&0))
}

fn is_wrapped(file: &mut File) -> io::Result<bool> {
    Ok(Source::is_wrapped(&peek(file, 6)?))
}

fn peek(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.by_ref().take(bytes).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
    digest: Option<Running>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        if let Some(digest) = &self.digest {
            digest.add(&buf[..n]);
        }
        Ok(n)
    }
}
