//! A column of numbers written as the differences from one to the next (`DELTA_BINARY_PACKED`).

use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Encoding, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::schema::types::ColumnDescPtr;

use super::chunk::Chunk;
use super::packed::deltas;
use super::rows::{present, Rows};
use super::{bytes_of, statistics, PAGE_ROWS};
use crate::table::Col;

/// The rows of a row group. Pages are made as they become full.
pub struct Stepped {
    physical: Physical,
    optional: bool,
    /// Compared without their sign.
    unsigned: bool,
    rows: Rows,
    /// Values of the rows that are in no page yet.
    values: Vec<i64>,
    /// Bounds of the pages that are made; none of a page without values.
    pages: Vec<Option<(i64, i64)>>,
    /// Values in those pages.
    paged: usize,
    chunk: Option<Chunk>,
    body: Vec<u8>,
}

impl Stepped {
    /// No rows.
    pub fn new(physical: Physical, optional: bool, unsigned: bool) -> Self {
        let (rows, values, pages, body) = Default::default();
        Stepped { physical, optional, unsigned, rows, values, pages, paged: 0, chunk: None, body }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Adds rows.
    pub fn numbers<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, f: impl Fn(T) -> i64) -> Result<()> {
        self.rows.add(col, rows);
        present(col, |values| self.values.extend(values.iter().map(|v| f(*v))));
        self.full_pages()
    }

    /// Adds rows of which bits say whether they have a value.
    pub fn append(&mut self, rows: &Rows, values: impl Iterator<Item = i64>) -> Result<()> {
        self.rows.append(rows.bits().iter().copied(), rows.len());
        self.values.extend(values);
        self.full_pages()
    }

    fn full_pages(&mut self) -> Result<()> {
        while self.rows.len() >= (self.pages.len() + 1) * PAGE_ROWS {
            self.page()?;
        }
        Ok(())
    }

    /// Makes the next page.
    fn page(&mut self) -> Result<()> {
        let number = self.pages.len();
        let (rows, count) = self.rows.page(number);
        let values = &self.values[..count];
        self.body.clear();
        if self.optional {
            self.rows.levels(number, count, &mut self.body);
        }
        deltas(values, self.physical == Physical::INT32, &mut self.body);
        // So that numbers without a sign come in order, too.
        let flip = if self.unsigned { i64::MIN } else { 0 };
        let first = values.first().map(|v| (v ^ flip, v ^ flip));
        let bounds = first.map(|first| {
            let (least, most) = values.iter().fold(first, |(a, b), v| (a.min(v ^ flip), b.max(v ^ flip)));
            (least ^ flip, most ^ flip)
        });
        let chunk = self.chunk.get_or_insert_with(|| Chunk::new(self.physical, Encoding::DELTA_BINARY_PACKED));
        let bytes = bounds.map(|(a, b)| (bytes_of(a, self.physical), bytes_of(b, self.physical)));
        chunk.data(&self.body, rows, rows - count, bytes)?;
        self.pages.push(bounds);
        self.values.drain(..count);
        self.paged += count;
        Ok(())
    }

    /// Ends the row group: its bytes, and what is known of them.
    pub fn close(&mut self, descr: &ColumnDescPtr) -> Result<(Bytes, ColumnCloseResult)> {
        if self.rows.len() > self.pages.len() * PAGE_ROWS {
            self.page()?;
        }
        let flip = if self.unsigned { i64::MIN } else { 0 };
        let known: Vec<_> = self.pages.iter().flatten().map(|(a, b)| (a ^ flip, b ^ flip)).collect();
        let least = known.iter().map(|bounds| bounds.0).min().map(|v| v ^ flip);
        let most = known.iter().map(|bounds| bounds.1).max().map(|v| v ^ flip);
        let rising = known.is_sorted_by(|one, next| one.0 <= next.0 && one.1 <= next.1);
        let order = if rising { BoundaryOrder::ASCENDING } else { BoundaryOrder::UNORDERED };
        let nulls = (self.rows.len() - self.paged) as u64;
        let chunk = self.chunk.take().expect("a row group has rows");
        let closed = chunk.close(descr, self.rows.len(), statistics(least, most, nulls, self.physical), order)?;
        *self = Stepped {
            values: std::mem::take(&mut self.values),
            ..Stepped::new(self.physical, self.optional, self.unsigned)
        };
        Ok(closed)
    }
}
