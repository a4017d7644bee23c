//! Tables as Parquet, written while their rows come.
//!
//! A page is made of each piece of rows, column by column, and compressed at once; the pages of a row group are kept until it is
//! full. Strings go through dictionaries whose keys are the ids that they have already, so that none is hashed or
//! compared. Numbers go through a dictionary while they repeat, and as packed differences where they do not; times and
//! sequence numbers always as differences. Each page has bounds and a place in an index, for readers that skip.
//!
//! Bytes come out in the order of the file and are never gone back to: the caller writes them where it likes.
//!
//! **Source**: Apache Parquet format 2.10 (`parquet.thrift`, `Encodings.md`, `PageIndex.md`). Data pages are of version 1.

mod column;
mod encode;
mod footer;
mod numbers;
mod page;
mod thrift;

use std::collections::BTreeMap;

use column::Column;
use footer::Group;
use page::Press;

use crate::strings::{StrId, Strings, TextId};
use crate::table::{Col, ColumnDef, Table, Type, Visitor};
use crate::{Kind, State};

/// Level of Zstandard.
const LEVEL: i32 = 1;

/// Begin and end of every file.
const MAGIC: &[u8] = b"PAR1";

/// Writes one table.
pub struct Writer {
    defs: &'static [ColumnDef],
    columns: Vec<Column>,
    press: Press,
    group_rows: usize,
    rows: usize,
    groups: Vec<Group>,
    written: u64,
}

impl Writer {
    /// A file of table `T`, with row groups of at least `group_rows` rows but for the last.
    pub fn new<T: Table>(group_rows: usize) -> Self {
        let columns = T::DEF.columns.iter().map(Column::new).collect();
        let press = Press::new(LEVEL);
        Writer { defs: T::DEF.columns, columns, press, group_rows, rows: 0, groups: Vec::new(), written: 0 }
    }

    /// Adds rows; bytes that are ready are added to `out`.
    pub fn push<T: Table>(&mut self, table: &T, strings: &Strings, out: &mut Vec<u8>) {
        assert_eq!(T::DEF.columns.len(), self.columns.len(), "pieces of one table");
        if self.written == 0 {
            self.advance(out, |_, _, out| out.extend_from_slice(MAGIC));
        }
        if table.is_empty() {
            return;
        }
        table.visit(&mut Pass { columns: self.columns.iter_mut(), press: &mut self.press, strings });
        self.rows += table.len();
        if self.rows >= self.group_rows {
            self.end_group(strings, out);
        }
    }

    /// Ends the file.
    pub fn finish(mut self, metadata: &BTreeMap<String, String>, strings: &Strings, out: &mut Vec<u8>) {
        if self.written == 0 {
            self.advance(out, |_, _, out| out.extend_from_slice(MAGIC));
        }
        if self.rows > 0 {
            self.end_group(strings, out);
        }
        self.advance(out, |writer, at, out| {
            let begin = out.len();
            for chunk in writer.groups.iter_mut().flat_map(|group| &mut group.chunks) {
                chunk.write_index(at + (out.len() - begin) as u64, out);
            }
        });
        let begin = out.len();
        footer::write(self.defs, &self.groups, metadata.iter(), out);
        let length = (out.len() - begin) as u32;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(MAGIC);
    }

    fn end_group(&mut self, strings: &Strings, out: &mut Vec<u8>) {
        let rows = std::mem::take(&mut self.rows);
        self.advance(out, |writer, at, out| {
            let begin = out.len();
            let chunks = writer.columns.iter_mut().zip(writer.defs).map(|(column, def)| {
                let text = |id| match def.ty {
                    Type::Kind => Kind::NAMES[id as usize].to_owned(),
                    Type::State => State::NAMES[id as usize].to_owned(),
                    _ => strings.text(StrId(id)).into_owned(),
                };
                column.finish(text, at + (out.len() - begin) as u64, out)
            });
            let chunks = chunks.collect();
            writer.groups.push(Group { rows, chunks });
        });
    }

    /// Lets `make` add bytes, with the place in the file at which they will stand.
    fn advance(&mut self, out: &mut Vec<u8>, make: impl FnOnce(&mut Self, u64, &mut Vec<u8>)) {
        let begin = out.len();
        make(self, self.written, out);
        self.written += (out.len() - begin) as u64;
    }
}

/// One piece of rows on its way into the columns.
struct Pass<'a> {
    columns: std::slice::IterMut<'a, Column>,
    press: &'a mut Press,
    strings: &'a Strings,
}

impl Pass<'_> {
    fn next(&mut self, fill: impl FnOnce(&mut Column)) {
        let column = self.columns.next().expect("a column for each definition");
        fill(column);
        column.compress(self.press);
    }
}

impl Visitor for Pass<'_> {
    fn i64(&mut self, _: &ColumnDef, col: &Col<i64>, rows: usize) {
        self.next(|column| column.integers(col, rows, |v| v));
    }
    fn i32(&mut self, _: &ColumnDef, col: &Col<i32>, rows: usize) {
        self.next(|column| column.integers(col, rows, i64::from));
    }
    fn u64(&mut self, _: &ColumnDef, col: &Col<u64>, rows: usize) {
        self.next(|column| column.integers(col, rows, |v| v as i64));
    }
    fn u32(&mut self, _: &ColumnDef, col: &Col<u32>, rows: usize) {
        self.next(|column| column.integers(col, rows, i64::from));
    }
    fn u16(&mut self, _: &ColumnDef, col: &Col<u16>, rows: usize) {
        self.next(|column| column.integers(col, rows, i64::from));
    }
    fn f64(&mut self, _: &ColumnDef, col: &Col<f64>, rows: usize) {
        self.next(|column| column.floats(col, rows));
    }
    fn bool(&mut self, _: &ColumnDef, col: &Col<bool>, rows: usize) {
        self.next(|column| column.truths(col, rows));
    }
    fn str(&mut self, _: &ColumnDef, col: &Col<StrId>, rows: usize) {
        let strings = self.strings;
        let twin = |id: u32, used: &[u32]| {
            let odd = |id: u32| !strings.get(StrId(id)).is_ascii() && strings.text(StrId(id)).contains('\u{fffd}');
            let same = |other: &u32| odd(*other) && strings.text(StrId(*other)) == strings.text(StrId(id));
            odd(id).then(|| used.iter().position(same)).flatten()
        };
        self.next(|column| column.names(col, rows, |id| id.0, twin));
    }
    fn text(&mut self, _: &ColumnDef, col: &Col<TextId>, rows: usize) {
        let strings = self.strings;
        self.next(|column| column.texts(col, rows, strings));
    }
    fn kind(&mut self, _: &ColumnDef, col: &Col<Kind>, rows: usize) {
        self.next(|column| column.names(col, rows, |k| k as u32, |_, _| None));
    }
    fn state(&mut self, _: &ColumnDef, col: &Col<State>, rows: usize) {
        self.next(|column| column.names(col, rows, |s| s as u32, |_, _| None));
    }
}
