//! Helpers of the integration tests: reading a source to its end, and looking at tables by column name.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::disallowed_methods, reason = "tests read fixtures; the crate itself sees no files")]

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use tracekit_parsers::{open, Options, ParseError, Source};
use tracekit_schema::table::{Col, ColumnDef, Table, Visitor};
use tracekit_schema::{Kind, Out, State, StrId, Strings, TextId};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").to_path_buf()
}

/// Reads `bytes` to the end, about `rows` rows a call.
pub fn read_in_steps(
    bytes: &[u8],
    format: Option<&str>,
    options: &Options,
    rows: usize,
) -> (Out, Result<&'static str, ParseError>) {
    let mut out = Out::new();
    // A wrapper that is cut short fails when its first bytes are unpacked.
    let source = match Source::from_bytes(bytes).unwrapped() {
        Ok(source) => source,
        Err(e) => return (out, Err(ParseError::io("unknown", &e))),
    };
    let (format, mut parser) = match open(source, format, options, &mut out) {
        Ok(opened) => opened,
        Err(e) => return (out, Err(e)),
    };
    // A parser that neither ends nor consumes is stuck; every call of a sound one consumes at least a byte.
    for _ in 0..bytes.len() * 64 + 1000 {
        match parser.fill(&mut out, rows) {
            Ok(true) => {}
            Ok(false) => return (out, Ok(format.name)),
            Err(e) => return (out, Err(e)),
        }
    }
    panic!("{}: fill never returns false", format.name);
}

/// Reads `bytes` to the end.
pub fn read(bytes: &[u8], format: Option<&str>) -> (Out, Result<&'static str, ParseError>) {
    read_in_steps(bytes, format, &Options::default(), 1 << 16)
}

/// Reads `bytes` and says whether that panicked, with the panic's text.
pub fn panics(bytes: &[u8], format: Option<&str>) -> Option<String> {
    let caught = catch_unwind(AssertUnwindSafe(|| drop(read(bytes, format))));
    caught.err().map(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
    })
}

/// Rows of each kind, and of each other table that has rows.
pub fn counts(out: &Out) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for row in 0..out.events.len() {
        let kind = out.events.kind.get(row).unwrap_or_else(|| panic!("event {row} has no kind"));
        *counts.entry(kind.as_str().to_owned()).or_insert(0) += 1;
    }
    let tables = [
        ("losses", out.losses.len()),
        ("slices", out.slices.len()),
        ("histograms", out.histograms.len()),
        ("summaries", out.summaries.len()),
    ];
    counts.extend(tables.iter().filter(|t| t.1 > 0).map(|t| (t.0.to_owned(), t.1 as i64)));
    counts
}

/// The cells of one row as text, by column; null cells are left out.
pub fn row<T: Table>(table: &T, strings: &Strings, row: usize) -> BTreeMap<&'static str, String> {
    let mut reader = RowReader { strings, row, cells: BTreeMap::new() };
    table.visit(&mut reader);
    reader.cells
}

/// Columns that are never null by definition, but null in some row.
pub fn missing<T: Table>(table: &T, strings: &Strings) -> Vec<&'static str> {
    let required = || T::DEF.columns.iter().filter(|c| c.null.is_empty()).map(|c| c.name);
    let full = |name: &&str| (0..table.len()).all(|r| row(table, strings, r).contains_key(*name));
    required().filter(|name| !full(name)).collect()
}

struct RowReader<'a> {
    strings: &'a Strings,
    row: usize,
    cells: BTreeMap<&'static str, String>,
}

macro_rules! cells {
    ($($method:ident: $t:ty,)*) => {
        $(fn $method(&mut self, def: &ColumnDef, col: &Col<$t>, _rows: usize) {
            if let Some(v) = col.get(self.row) { self.cells.insert(def.name, v.to_string()); }
        })*
    };
}

impl Visitor for RowReader<'_> {
    cells! { i64: i64, i32: i32, u64: u64, u32: u32, u16: u16, f64: f64, bool: bool, }
    fn str(&mut self, def: &ColumnDef, col: &Col<StrId>, _rows: usize) {
        if let Some(v) = col.get(self.row) {
            self.cells.insert(def.name, self.strings.text(v).into_owned());
        }
    }
    fn text(&mut self, def: &ColumnDef, col: &Col<TextId>, _rows: usize) {
        if let Some(v) = col.get(self.row) {
            self.cells.insert(def.name, String::from_utf8_lossy(self.strings.get_text(v)).into_owned());
        }
    }
    fn kind(&mut self, def: &ColumnDef, col: &Col<Kind>, _rows: usize) {
        if let Some(v) = col.get(self.row) {
            self.cells.insert(def.name, v.as_str().to_owned());
        }
    }
    fn state(&mut self, def: &ColumnDef, col: &Col<State>, _rows: usize) {
        if let Some(v) = col.get(self.row) {
            self.cells.insert(def.name, v.as_str().to_owned());
        }
    }
}
