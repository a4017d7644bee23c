//! Tables as Parquet, written while their rows come.
//!
//! Threads share the columns of each piece of rows, and again when a row group is full and its pages
//! are made. Bytes come out in the order of the file and are never gone back to: the caller writes
//! them where it likes.
//!
//! Strings go through dictionaries (`listed.rs`). So do numbers, and as packed differences
//! (`stepped.rs`) where they hardly repeat; times and sequence numbers always as differences. The
//! crate `parquet` writes the few other columns, and the headers, indexes and footer of all. Each
//! page has bounds and a place in an index, for readers that skip.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{get_column_writer, get_typed_column_writer_mut};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, Type as SchemaType, TypePtr};

mod chunk;
mod listed;
mod packed;
mod rows;
mod stepped;

use self::listed::{Entries, Listed};
use self::rows::present;
use self::stepped::Stepped;
use crate::strings::{StrId, Strings, TextId};
use crate::table::{Col, ColumnDef, Table, Type, Visitor};
use crate::{Kind, State};

/// Level of Zstandard.
const LEVEL: i32 = 1;
/// Most bytes of a dictionary of numbers; with more, differences take less room and are faster to make.
const DICTIONARY: usize = 1 << 17;
/// Fewer rows are left to one thread.
const ALONE: usize = 1 << 12;
/// Values that are encoded together: they stay in the nearest cache.
const AT_ONCE: usize = 1 << 13;
/// Most rows of a page.
const PAGE_ROWS: usize = 1 << 17;

/// What cannot fail here fails only by a bug: bytes go to memory, and columns match their definitions.
const SOUND: &str = "rows of a declared table are written to memory";

/// Writes one table.
pub struct Writer {
    file: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Mutex<Column>>,
    group_rows: usize,
    threads: usize,
    rows: usize,
}

impl Writer {
    /// A file of table `T`, with row groups of at least `group_rows` rows but for the last, made by
    /// so many threads. The bytes are the same for any number of them.
    pub fn new<T: Table>(group_rows: usize, threads: usize) -> Self {
        let defs = T::DEF.columns;
        let file = SerializedFileWriter::new(Vec::new(), schema(defs), properties()).expect(SOUND);
        let made = file.schema_descr().columns().iter().zip(defs);
        let columns = made.map(|(descr, def)| Column::new(def, descr.clone(), file.properties().clone()));
        Writer { columns: columns.map(Mutex::new).collect(), file, group_rows, threads, rows: 0 }
    }

    /// Adds rows; bytes that are ready are added to `out`.
    pub fn push<T: Table + Sync>(&mut self, table: &T, strings: &Strings, out: &mut Vec<u8>) {
        assert_eq!(T::DEF.columns.len(), self.columns.len(), "pieces of one table");
        if table.is_empty() {
            return;
        }
        let (free, columns) = (AtomicUsize::new(0), self.columns.as_slice());
        let threads = if table.len() < ALONE { 1 } else { self.threads };
        together(threads, || {
            table.visit(&mut Pass { columns: columns.iter().enumerate(), free: &free, mine: None, strings });
        });
        self.rows += table.len();
        if self.rows >= self.group_rows {
            self.end_group();
            self.drain(out);
        }
    }

    /// Ends the file.
    pub fn finish(mut self, metadata: &BTreeMap<String, String>, out: &mut Vec<u8>) {
        if self.rows > 0 {
            self.end_group();
        }
        for (key, value) in metadata {
            self.file.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
        }
        self.file.finish().expect(SOUND);
        self.drain(out);
    }

    fn end_group(&mut self) {
        let (free, columns) = (AtomicUsize::new(0), self.columns.as_slice());
        let closed = columns.iter().map(|_| OnceLock::new()).collect::<Vec<_>>();
        let threads = if self.rows < ALONE { 1 } else { self.threads };
        together(threads, || loop {
            let mine = free.fetch_add(1, Ordering::Relaxed);
            let Some(column) = columns.get(mine) else { return };
            let mut column = column.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(closed[mine].set(column.close().expect(SOUND)).is_ok(), "each column falls to one thread");
        });
        let mut group = self.file.next_row_group().expect(SOUND);
        for column in closed {
            let (bytes, chunk) = column.into_inner().expect("every column was closed");
            group.append_column(&bytes, chunk).expect(SOUND);
        }
        group.close().expect(SOUND);
        self.rows = 0;
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        self.file.flush().expect(SOUND);
        out.append(self.file.inner_mut());
    }
}

/// Does the same in so many threads, this one included.
fn together(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(&work)));
        work();
    });
}

/// How the columns are written that are neither numbers nor strings that repeat.
fn properties() -> WriterPropertiesPtr {
    let level = ZstdLevel::try_new(LEVEL).expect("a level that zstd has");
    let made = WriterProperties::builder()
        .set_created_by(concat!("tracekit version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(AT_ONCE);
    Arc::new(made.build())
}

/// What the dictionary of a column holds, none where values hardly repeat.
fn entries(def: &ColumnDef) -> Option<Entries> {
    let steady = def.name.ends_with("ts_ns") || def.name.starts_with("seq");
    match def.ty {
        Type::Str | Type::Kind | Type::State => Some(Entries::names()),
        Type::I64 | Type::I32 if !steady => Some(Entries::numbers(false)),
        Type::U64 | Type::U32 | Type::U16 if !steady => Some(Entries::numbers(true)),
        _ => None,
    }
}

/// The schema of a file.
fn schema(defs: &[ColumnDef]) -> TypePtr {
    let fields = defs.iter().map(|def| {
        let (physical, logical) = match def.ty {
            Type::I64 => (Physical::INT64, None),
            Type::I32 => (Physical::INT32, None),
            Type::U64 => (Physical::INT64, Some(unsigned(64))),
            Type::U32 => (Physical::INT32, Some(unsigned(32))),
            Type::U16 => (Physical::INT32, Some(unsigned(16))),
            Type::F64 => (Physical::DOUBLE, None),
            Type::Bool => (Physical::BOOLEAN, None),
            Type::Text | Type::Str | Type::Kind | Type::State => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if def.null.is_empty() { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        let made = SchemaType::primitive_type_builder(def.name, physical).with_repetition(repetition);
        Arc::new(made.with_logical_type(logical).build().expect(SOUND))
    });
    let fields = fields.collect();
    Arc::new(SchemaType::group_type_builder("schema").with_fields(fields).build().expect(SOUND))
}

fn unsigned(bits: i8) -> LogicalType {
    LogicalType::integer(bits, false)
}

/// Bytes that two hold.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps the pages of a column until its row group ends.
struct Pages(TrackedWrite<Shared>);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        SerializedPageWriter::new(&mut self.0).write_page(page)
    }

    fn close(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Bytes of a number.
fn width(physical: Physical) -> usize {
    if physical == Physical::INT32 {
        4
    } else {
        8
    }
}

/// A number as it stands in bounds.
fn bytes_of(value: i64, physical: Physical) -> Vec<u8> {
    value.to_le_bytes()[..width(physical)].to_vec()
}

/// Bounds of numbers in a row group.
fn statistics(least: Option<i64>, most: Option<i64>, nulls: u64, physical: Physical) -> Statistics {
    if physical == Physical::INT32 {
        let (least, most) = (least.map(|v| v as i32), most.map(|v| v as i32));
        return Statistics::int32(least, most, None, Some(nulls), false);
    }
    Statistics::int64(least, most, None, Some(nulls), false)
}

/// A column of the row group at hand.
struct Column {
    descr: ColumnDescPtr,
    properties: WriterPropertiesPtr,
    optional: bool,
    listed: Option<Listed>,
    /// Numbers: from the start of a row group where they have no dictionary, or once that is full.
    stepped: Stepped,
    /// What the crate writes.
    written: Option<(Shared, ColumnWriter<'static>)>,
    /// Room for which rows are set.
    levels: Vec<i16>,
}

impl Column {
    fn new(def: &ColumnDef, descr: ColumnDescPtr, properties: WriterPropertiesPtr) -> Self {
        let (optional, listed) = (!def.null.is_empty(), entries(def).map(Listed::new));
        let unsigned = matches!(def.ty, Type::U64 | Type::U32 | Type::U16);
        let stepped = Stepped::new(descr.physical_type(), optional, unsigned);
        Column { descr, properties, optional, listed, stepped, written: None, levels: Vec::new() }
    }

    /// Ends the row group.
    fn close(&mut self) -> Result<(Bytes, ColumnCloseResult)> {
        if let Some((bytes, writer)) = self.written.take() {
            let closed = writer.close()?;
            let bytes = std::mem::take(&mut *bytes.0.lock().unwrap_or_else(PoisonError::into_inner));
            return Ok((bytes.into(), closed));
        }
        match &mut self.listed {
            Some(listed) if self.stepped.is_empty() => listed.close(&self.descr, self.optional),
            _ => self.stepped.close(&self.descr),
        }
    }

    fn writer<D: DataType>(&mut self) -> &mut ColumnWriterImpl<'static, D> {
        let (_, writer) = self.written.get_or_insert_with(|| {
            let bytes = Shared::default();
            let pages = Pages(TrackedWrite::new(bytes.clone()));
            (bytes, get_column_writer(self.descr.clone(), self.properties.clone(), Box::new(pages)))
        });
        get_typed_column_writer_mut::<D>(writer)
    }

    /// Adds rows of strings that have a number; `text` is asked once for each number.
    fn names<T: Copy + Default>(
        &mut self,
        col: &Col<T>,
        rows: usize,
        id: impl Fn(T) -> u32,
        text: impl Fn(u32) -> ByteArray,
    ) {
        let listed = self.listed.as_mut().expect("strings that repeat have a dictionary");
        listed.names(col, rows, id, text);
    }

    /// Adds rows of numbers, as `wide` makes them.
    fn numbers<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, wide: impl Fn(T) -> i64) {
        let listed = self.listed.as_mut().filter(|_| self.stepped.is_empty());
        let Some(listed) = listed else { return self.stepped.numbers(col, rows, wide).expect(SOUND) };
        listed.numbers(col, rows, wide);
        if listed.weight(self.descr.physical_type()) >= DICTIONARY {
            let (known, values) = listed.unlisted();
            self.stepped.append(known, values).expect(SOUND);
            listed.clear();
        }
    }

    /// Adds rows of values that `f` makes the format's.
    fn values<D: DataType, T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, f: impl Fn(T) -> D::T) {
        let mut values = Vec::with_capacity(col.values().len());
        present(col, |some| values.extend(some.iter().map(|v| f(*v))));
        let (stored, valid) = (col.values().len(), col.validity());
        let set = |row| row < stored && valid.is_none_or(|words| words[row / 64] >> (row % 64) & 1 == 1);
        let mut levels = std::mem::take(&mut self.levels);
        levels.clear();
        if self.optional {
            levels.extend((0..rows).map(set).map(i16::from));
        }
        let known = self.optional.then_some(levels.as_slice());
        self.writer::<D>().write_batch(&values, known, None).expect(SOUND);
        self.levels = levels;
    }
}

/// One piece of rows on its way into the columns. Several threads pass over it at once, and each
/// column falls to one of them.
struct Pass<'a> {
    columns: std::iter::Enumerate<std::slice::Iter<'a, Mutex<Column>>>,
    /// The first column that nobody has taken.
    free: &'a AtomicUsize,
    /// The column that this thread is to encode, none while it has yet to take one.
    mine: Option<usize>,
    strings: &'a Strings,
}

impl<'a> Pass<'a> {
    /// Encodes the next column, unless it is another thread's.
    fn next(&mut self, encode: impl FnOnce(&mut Column)) {
        let (i, column) = self.columns.next().expect("a column for each definition");
        let mine = *self.mine.get_or_insert_with(|| self.free.fetch_add(1, Ordering::Relaxed));
        if i == mine {
            encode(&mut column.lock().unwrap_or_else(PoisonError::into_inner));
            self.mine = None;
        }
    }
}

impl Visitor for Pass<'_> {
    fn i64(&mut self, _: &ColumnDef, col: &Col<i64>, rows: usize) {
        self.next(|column| column.numbers(col, rows, |v| v));
    }
    fn i32(&mut self, _: &ColumnDef, col: &Col<i32>, rows: usize) {
        self.next(|column| column.numbers(col, rows, i64::from));
    }
    fn u64(&mut self, _: &ColumnDef, col: &Col<u64>, rows: usize) {
        self.next(|column| column.numbers(col, rows, |v| v as i64));
    }
    fn u32(&mut self, _: &ColumnDef, col: &Col<u32>, rows: usize) {
        self.next(|column| column.numbers(col, rows, i64::from));
    }
    fn u16(&mut self, _: &ColumnDef, col: &Col<u16>, rows: usize) {
        self.next(|column| column.numbers(col, rows, i64::from));
    }
    fn f64(&mut self, _: &ColumnDef, col: &Col<f64>, rows: usize) {
        self.next(|column| column.values::<DoubleType, _>(col, rows, |v| v));
    }
    fn bool(&mut self, _: &ColumnDef, col: &Col<bool>, rows: usize) {
        self.next(|column| column.values::<BoolType, _>(col, rows, |v| v));
    }
    fn str(&mut self, _: &ColumnDef, col: &Col<StrId>, rows: usize) {
        let strings = self.strings;
        self.next(|column| column.names(col, rows, |id| id.0, |id| ByteArray::from(&*strings.text(StrId(id)))));
    }
    fn text(&mut self, _: &ColumnDef, col: &Col<TextId>, rows: usize) {
        let strings = self.strings;
        let text = |id| ByteArray::from(&*String::from_utf8_lossy(strings.get_text(id)));
        self.next(|column| column.values::<ByteArrayType, _>(col, rows, text));
    }
    fn kind(&mut self, _: &ColumnDef, col: &Col<Kind>, rows: usize) {
        self.next(|column| column.names(col, rows, |k| k as u32, |id| fixed(Kind::NAMES[id as usize])));
    }
    fn state(&mut self, _: &ColumnDef, col: &Col<State>, rows: usize) {
        self.next(|column| column.names(col, rows, |s| s as u32, |id| fixed(State::NAMES[id as usize])));
    }
}

/// A word that needs no memory of its own.
fn fixed(word: &'static str) -> ByteArray {
    Bytes::from_static(word.as_bytes()).into()
}

#[cfg(test)]
mod tests;
