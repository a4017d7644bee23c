//! The error that ends a reading before it began.

use std::fmt;

/// Where in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Byte offset in the decompressed source.
    pub offset: Option<u64>,
    /// Line, from 1.
    pub line: Option<u64>,
}

/// A whole-file failure: unknown format, truncated header, unsupported version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// Format that was being read, `unknown` when none was recognised.
    pub format: &'static str,
    /// Short code: `unknown-format`, `empty`, `truncated`, `damaged`, `unsupported`,
    /// `no-scheduler-events`, `option`, `io`.
    pub code: &'static str,
    /// Where.
    pub position: Position,
    /// What was expected and what was found, as a sentence.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

impl ParseError {
    /// An error without a position.
    pub fn new(format: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        ParseError { format, code, position: Position::default(), message: message.into(), advice: String::new() }
    }

    /// An error of the operating system while reading.
    pub fn io(format: &'static str, error: &std::io::Error) -> Self {
        let failed = Self::new(format, "io", format!("reading failed: {error}"));
        // A file that is not packed ends where it ends.
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return failed.advise(
                "the packed file is cut: get the whole one, or unpack what there is (`gzip -dc`, \
                 `xz -dc`, `zstd -dc`, into a file) and read that",
            );
        }
        failed
    }

    /// Adds the byte offset.
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.position.offset = Some(offset);
        self
    }

    /// Adds the line, from 1.
    pub fn at_line(mut self, line: u64) -> Self {
        self.position.line = Some(line);
        self
    }

    /// Adds advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.format != "unknown" {
            write!(f, "{}: ", self.format)?;
        }
        write!(f, "{}", self.message)?;
        match (self.position.line, self.position.offset) {
            (Some(line), _) => write!(f, " (line {line})")?,
            (None, Some(offset)) => write!(f, " (byte {offset})")?,
            (None, None) => {}
        }
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}
