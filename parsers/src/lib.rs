//! Bytes in, records and diagnostics out.
//!
//! One file a format under [`formats`], one row each in [`FORMATS`]. Parsers see no files, clocks
//! or environment: the caller hands them a [`Source`]. A parser does not fail half-way: what it
//! cannot read becomes a diagnostic; only a whole-file failure is a [`ParseError`], and that before
//! any record.

#![forbid(unsafe_code)]

/// The README, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod binary;
pub mod error;
pub mod formats;
pub mod lttng;
pub mod mismatch;
pub mod source;
pub mod text;

pub use error::{ParseError, Position};
pub use formats::{Confidence, Format, FormatInfo, FORMATS};
pub use source::{Head, Source};

use tracekit_schema::Out;

/// What the user may say about a source that the source does not say itself.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Trace clock of a text that does not name it.
    pub clock: Option<String>,
    /// Ticks per second of a clock that counts ticks.
    pub clock_hz: Option<u64>,
    /// Regular expression or field pattern for free-form output (formats that take one say so in their card).
    pub pattern: Option<String>,
    /// Anything else a format documents, by name.
    pub extra: std::collections::BTreeMap<String, String>,
}

/// A stream of records.
pub trait Parser: Send {
    /// Adds about `rows` more rows to `out` (a source record is never split over two calls); false
    /// at the end, after which it must not be called again.
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError>;

    /// Bytes of the source consumed so far, for progress bars.
    fn consumed(&self) -> u64;
}

/// Opens `source` as `format`, or as the format its first bytes say.
///
/// # Errors
/// [`ParseError`] when no format fits or the file's head is damaged.
pub fn open(
    mut source: Source,
    format: Option<&str>,
    options: &Options,
    out: &mut Out,
) -> Result<(&'static Format, Box<dyn Parser>), ParseError> {
    let head = source.head().map_err(|e| ParseError::io("unknown", &e))?;
    let named = format;
    let format = named.map_or_else(|| formats::sniff(&head), formats::by_name)?;
    out.meta.set("tracekit.schema", "1");
    out.meta.set("tracekit.version", env!("CARGO_PKG_VERSION"));
    out.meta.set("source.format", format.name);
    let parser =
        (format.open)(source, options, out).map_err(|error| match named.and_then(|_| formats::sniff(&head).ok()) {
            Some(other) if other.name != format.name && error.code != "io" => error.advise(format!(
                "its first bytes say that it is {}: leave the format out, or name that one",
                other.name
            )),
            _ => error,
        })?;
    Ok((format, parser))
}
