//! Tables as Parquet, written while their rows come.
//!
//! The crate `parquet` encodes and compresses. Two threads share the columns of each piece of rows;
//! pages are kept until their row group is full. Bytes come out in the order of the file and are
//! never gone back to: the caller writes them where it likes.
//!
//! Strings go through dictionaries. So do numbers, and as packed differences where they hardly
//! repeat; times and sequence numbers always as differences. Each page has bounds and a place in an
//! index, for readers that skip.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{get_column_writer, get_typed_column_writer_mut, ColumnCloseResult, ColumnWriter};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, ColumnPath, Type as SchemaType, TypePtr};

use crate::strings::{StrId, Strings, TextId};
use crate::table::{Col, ColumnDef, Table, Type, Visitor};
use crate::{Kind, State};

/// Level of Zstandard.
const LEVEL: i32 = 1;
/// Most bytes of a dictionary of numbers; with more, differences take less room and are faster to make.
const DICTIONARY: usize = 1 << 17;
/// A piece of fewer rows is encoded by one thread, others by two.
const ALONE: usize = 1 << 12;
/// Values that are encoded together: they stay in the nearest cache.
const AT_ONCE: usize = 1 << 13;
/// Most rows of a page.
const PAGE_ROWS: usize = 1 << 17;

/// What cannot fail here fails only by a bug: bytes go to memory, and columns match their definitions.
const SOUND: &str = "rows of a declared table are written to memory";

/// Writes one table.
pub struct Writer {
    defs: &'static [ColumnDef],
    file: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Mutex<Column>>,
    group_rows: usize,
    rows: usize,
}

impl Writer {
    /// A file of table `T`, with row groups of at least `group_rows` rows but for the last.
    pub fn new<T: Table>(group_rows: usize) -> Self {
        let defs = T::DEF.columns;
        let file = SerializedFileWriter::new(Vec::new(), schema(defs), properties(defs)).expect(SOUND);
        let mut writer = Writer { defs, file, columns: Vec::new(), group_rows, rows: 0 };
        writer.begin_group();
        writer
    }

    /// Adds rows; bytes that are ready are added to `out`.
    pub fn push<T: Table + Sync>(&mut self, table: &T, strings: &Strings, out: &mut Vec<u8>) {
        assert_eq!(T::DEF.columns.len(), self.columns.len(), "pieces of one table");
        if table.is_empty() {
            return;
        }
        let (free, columns) = (AtomicUsize::new(0), self.columns.as_slice());
        let work = || table.visit(&mut Pass { columns: columns.iter().enumerate(), free: &free, mine: None, strings });
        std::thread::scope(|scope| {
            if table.len() >= ALONE {
                scope.spawn(work);
            }
            work();
        });
        self.rows += table.len();
        if self.rows >= self.group_rows {
            self.end_group();
            self.begin_group();
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

    fn begin_group(&mut self) {
        let properties = self.file.properties();
        let made = self.file.schema_descr().columns().iter().zip(self.defs);
        self.columns = made.map(|(descr, def)| Mutex::new(Column::new(def, descr.clone(), properties))).collect();
        self.rows = 0;
    }

    fn end_group(&mut self) {
        let mut group = self.file.next_row_group().expect(SOUND);
        for column in self.columns.drain(..) {
            let column = column.into_inner().unwrap_or_else(PoisonError::into_inner);
            let (bytes, chunk) = column.close().expect(SOUND);
            group.append_column(&bytes, chunk).expect(SOUND);
        }
        group.close().expect(SOUND);
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        self.file.flush().expect(SOUND);
        out.append(self.file.inner_mut());
    }
}

/// How columns are written.
fn properties(defs: &[ColumnDef]) -> WriterPropertiesPtr {
    let level = ZstdLevel::try_new(LEVEL).expect("a level that zstd has");
    let mut made = WriterProperties::builder()
        .set_created_by(concat!("tracekit version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(AT_ONCE)
        .set_dictionary_page_size_limit(DICTIONARY);
    for def in defs {
        let path = || ColumnPath::from(def.name);
        match def.ty {
            Type::I64 | Type::U64 | Type::I32 | Type::U32 | Type::U16 => {
                let steady = def.name.ends_with("ts_ns") || def.name.starts_with("seq");
                made = made.set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
                made = made.set_column_dictionary_enabled(path(), !steady);
            }
            Type::F64 | Type::Bool | Type::Text => made = made.set_column_dictionary_enabled(path(), false),
            Type::Str | Type::Kind | Type::State => {
                made = made.set_column_dictionary_page_size_limit(path(), usize::MAX);
            }
        }
    }
    Arc::new(made.build())
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

/// A column of the row group at hand.
struct Column {
    bytes: Shared,
    writer: ColumnWriter<'static>,
    optional: bool,
    /// Strings that were met, by their number.
    texts: Vec<Option<ByteArray>>,
    /// Room for which rows are set.
    levels: Vec<i16>,
}

impl Column {
    fn new(def: &ColumnDef, descr: ColumnDescPtr, properties: &WriterPropertiesPtr) -> Self {
        let bytes = Shared::default();
        let pages = Pages(TrackedWrite::new(bytes.clone()));
        let writer = get_column_writer(descr, properties.clone(), Box::new(pages));
        Column { bytes, writer, optional: !def.null.is_empty(), texts: Vec::new(), levels: Vec::new() }
    }

    fn close(self) -> Result<(Bytes, ColumnCloseResult)> {
        let closed = self.writer.close()?;
        let bytes = std::mem::take(&mut *self.bytes.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((bytes.into(), closed))
    }

    /// Adds rows, of which `values` are those that are set.
    fn put<D: DataType, T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, values: &[D::T]) {
        let levels = self.optional.then(|| {
            self.levels.clear();
            let stored = col.values().len();
            match col.validity() {
                None => self.levels.resize(stored, 1),
                Some(words) => {
                    self.levels.extend(words.iter().flat_map(|word| (0..64).map(move |bit| (word >> bit & 1) as i16)));
                    self.levels.truncate(stored);
                }
            }
            self.levels.resize(rows, 0);
            self.levels.as_slice()
        });
        get_typed_column_writer_mut::<D>(&mut self.writer).write_batch(values, levels, None).expect(SOUND);
    }

    /// Adds rows of strings that have a number; `text` is asked once for each number.
    fn names<T: Copy + Default>(
        &mut self,
        col: &Col<T>,
        rows: usize,
        id: impl Fn(T) -> u32,
        text: impl Fn(u32) -> ByteArray,
    ) {
        let mut values = Vec::with_capacity(col.values().len());
        present(col, |v| {
            let id = id(v) as usize;
            if id >= self.texts.len() {
                self.texts.resize(id + 1, None);
            }
            values.push(self.texts[id].get_or_insert_with(|| text(id as u32)).clone());
        });
        self.put::<ByteArrayType, T>(col, rows, &values);
    }

    /// Adds rows of values that `f` makes the format's.
    fn values<D: DataType, T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, f: impl Fn(T) -> D::T) {
        let mut values = Vec::with_capacity(col.values().len());
        present(col, |v| values.push(f(v)));
        self.put::<D, T>(col, rows, &values);
    }
}

/// Calls `f` with each value that is set.
#[inline(always)]
fn present<T: Copy + Default>(col: &Col<T>, mut f: impl FnMut(T)) {
    let values = col.values();
    let Some(words) = col.validity() else {
        values.iter().for_each(|v| f(*v));
        return;
    };
    for (word, values) in words.iter().zip(values.chunks(64)) {
        let mut left = *word;
        while left != 0 {
            f(values[left.trailing_zeros() as usize]);
            left &= left - 1;
        }
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
        self.next(|column| column.values::<Int64Type, _>(col, rows, |v| v));
    }
    fn i32(&mut self, _: &ColumnDef, col: &Col<i32>, rows: usize) {
        self.next(|column| column.values::<Int32Type, _>(col, rows, |v| v));
    }
    fn u64(&mut self, _: &ColumnDef, col: &Col<u64>, rows: usize) {
        self.next(|column| column.values::<Int64Type, _>(col, rows, |v| v as i64));
    }
    fn u32(&mut self, _: &ColumnDef, col: &Col<u32>, rows: usize) {
        self.next(|column| column.values::<Int32Type, _>(col, rows, |v| v as i32));
    }
    fn u16(&mut self, _: &ColumnDef, col: &Col<u16>, rows: usize) {
        self.next(|column| column.values::<Int32Type, _>(col, rows, i32::from));
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
