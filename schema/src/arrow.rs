//! Tables as Arrow record batches: the only code in the project that knows Arrow's types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, UInt32Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, PrimitiveArray, RecordBatch,
    StringArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};

use crate::strings::{StrId, Strings, TextId};
use crate::table::{Col, ColumnDef, Table, Type, Visitor};
use crate::{Kind, Metadata, State};

mod convert;
mod load;
mod message;
pub use load::{append, LoadError};
pub use message::message;

/// What becomes of the string columns of an export.
#[derive(Clone, Copy, Debug)]
pub enum Names<'a> {
    /// Dictionaries of the strings in use, made anew for each column of each batch.
    Compact(&'a Strings),
    /// Bare `uint32` keys, which stay the same from batch to batch: for writers that need one
    /// dictionary for a whole file and know it ([`dictionary`]) only at its end.
    Keys(&'a Strings),
}

/// The Arrow type of a column.
pub fn data_type(ty: Type) -> DataType {
    match ty {
        Type::I64 => DataType::Int64,
        Type::I32 => DataType::Int32,
        Type::U64 => DataType::UInt64,
        Type::U32 => DataType::UInt32,
        Type::U16 => DataType::UInt16,
        Type::F64 => DataType::Float64,
        Type::Bool => DataType::Boolean,
        Type::Text => DataType::Utf8,
        Type::Str | Type::Kind | Type::State => {
            DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
        }
    }
}

/// The Arrow schema of a table, with `meta` at schema level.
pub fn schema<T: Table>(meta: &Metadata) -> Schema {
    schema_of(T::DEF.columns, meta)
}

/// The Arrow schema of a table known by its columns, with `meta` at schema level.
pub fn schema_of(columns: &[ColumnDef], meta: &Metadata) -> Schema {
    schema_with(columns, meta, data_type)
}

/// The Arrow schema of a table exported with [`Names::Keys`].
pub fn keys_schema<T: Table>(meta: &Metadata) -> Schema {
    schema_with(T::DEF.columns, meta, |ty| if ty == Type::Str { DataType::UInt32 } else { data_type(ty) })
}

fn schema_with(columns: &[ColumnDef], meta: &Metadata, data_type: impl Fn(Type) -> DataType) -> Schema {
    let fields: Vec<Field> = columns.iter().map(|c| Field::new(c.name, data_type(c.ty), !c.null.is_empty())).collect();
    let pairs: HashMap<String, String> = meta.0.clone().into_iter().collect();
    Schema::new_with_metadata(fields, pairs)
}

/// All strings in order of their ids: what the keys of a [`Names::Keys`] export mean.
pub fn dictionary(strings: &Strings) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(strings.iter().map(String::from_utf8_lossy)))
}

/// One record batch of the whole table.
///
/// A column that is never null in its definition but lacks a value here is a bug in the producer and panics.
pub fn batch<T: Table>(table: &T, names: Names<'_>, schema: Arc<Schema>) -> RecordBatch {
    let mut export = Export { names, slots: Vec::new(), columns: Vec::with_capacity(T::DEF.columns.len()) };
    table.visit(&mut export);
    RecordBatch::try_new(schema, export.columns).expect("columns match the schema they were declared with")
}

struct Export<'a> {
    names: Names<'a>,
    /// By string id, the key it has in the dictionary of the column at hand, plus 1; 0 for none.
    /// All 0 between columns.
    slots: Vec<u32>,
    columns: Vec<ArrayRef>,
}

/// What columns without a value consist of: they share it, as many as there are.
#[repr(align(64))]
struct Zeros([u8; 1 << 20]);
static ZEROS: Zeros = Zeros([0; 1 << 20]);

/// So many bytes, all 0.
fn zeros(bytes: usize) -> Buffer {
    match ZEROS.0.get(..bytes) {
        Some(zeros) => Buffer::from(bytes::Bytes::from_static(zeros)),
        None => Buffer::from_vec(vec![0u8; bytes]),
    }
}

fn nulls<T: Copy + Default>(col: &Col<T>, rows: usize) -> Option<NullBuffer> {
    let stored = col.values().len();
    if stored == 0 && rows > 0 {
        return Some(NullBuffer::new(BooleanBuffer::new(zeros(rows.div_ceil(8)), 0, rows)));
    }
    let bits = match col.validity() {
        None if stored == rows => return None,
        None => {
            let mut words = vec![u64::MAX; stored / 64];
            words.push((1u64 << (stored % 64)) - 1);
            words
        }
        Some(bits) => bits.to_vec(),
    };
    let mut bits = bits;
    bits.resize(rows.div_ceil(64), 0);
    Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows)))
}

fn padded<T: Copy + Default, U: Copy + Default>(col: &Col<T>, rows: usize, f: impl Fn(T) -> U) -> Vec<U> {
    let mut values: Vec<U> = Vec::with_capacity(rows);
    let stored = col.values();
    match col.validity() {
        None => values.extend(stored.iter().map(|v| f(*v))),
        // What stands in a null's place means nothing, and must not depend on what was there before.
        Some(bits) => values.extend(stored.iter().enumerate().map(|(row, v)| {
            if bits[row / 64] >> (row % 64) & 1 == 1 {
                f(*v)
            } else {
                U::default()
            }
        })),
    }
    values.resize(rows, U::default());
    values
}

/// A column without a value.
fn none<A: ArrowPrimitiveType>(rows: usize) -> PrimitiveArray<A> {
    let values = ScalarBuffer::new(zeros(rows * size_of::<A::Native>()), 0, rows);
    PrimitiveArray::<A>::new(values, nulls(&Col::<i64>::default(), rows))
}

impl Export<'_> {
    fn primitive<A: ArrowPrimitiveType>(&mut self, col: &Col<A::Native>, rows: usize) -> PrimitiveArray<A>
    where
        A::Native: Copy + Default,
    {
        if col.values().is_empty() {
            return none(rows);
        }
        PrimitiveArray::<A>::new(ScalarBuffer::from(padded(col, rows, |v| v)), nulls(col, rows))
    }

    fn compact(&mut self, col: &Col<StrId>, rows: usize, strings: &Strings) {
        self.slots.resize(strings.len(), 0);
        let mut used: Vec<StrId> = Vec::new();
        let keys = (0..rows).map(|row| {
            let id = col.get(row)?;
            let slot = &mut self.slots[id.0 as usize];
            if *slot == 0 {
                used.push(id);
                *slot = used.len() as u32;
            }
            Some(*slot - 1)
        });
        let keys: PrimitiveArray<UInt32Type> = if col.values().is_empty() { none(rows) } else { keys.collect() };
        for id in &used {
            self.slots[id.0 as usize] = 0;
        }
        let values = StringArray::from_iter_values(used.iter().map(|id| strings.text(*id)));
        let array = DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(values)).expect("keys were dealt out above");
        self.columns.push(Arc::new(array));
    }

    fn coded<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, values: ArrayRef, f: impl Fn(T) -> u32) {
        let keys = match col.values() {
            [] => none(rows),
            _ => PrimitiveArray::new(ScalarBuffer::from(padded(col, rows, f)), nulls(col, rows)),
        };
        let array = DictionaryArray::<UInt32Type>::try_new(keys, values).expect("codes lie within their vocabulary");
        self.columns.push(Arc::new(array));
    }
}

impl Visitor for Export<'_> {
    fn i64(&mut self, _: &ColumnDef, col: &Col<i64>, rows: usize) {
        let a: Int64Array = self.primitive(col, rows);
        self.columns.push(Arc::new(a));
    }
    fn i32(&mut self, _: &ColumnDef, col: &Col<i32>, rows: usize) {
        let a: Int32Array = self.primitive(col, rows);
        self.columns.push(Arc::new(a));
    }
    fn u64(&mut self, _: &ColumnDef, col: &Col<u64>, rows: usize) {
        let a: UInt64Array = self.primitive(col, rows);
        self.columns.push(Arc::new(a));
    }
    fn u32(&mut self, _: &ColumnDef, col: &Col<u32>, rows: usize) {
        let a: UInt32Array = self.primitive(col, rows);
        self.columns.push(Arc::new(a));
    }
    fn u16(&mut self, _: &ColumnDef, col: &Col<u16>, rows: usize) {
        let a: UInt16Array = self.primitive(col, rows);
        self.columns.push(Arc::new(a));
    }
    fn f64(&mut self, _: &ColumnDef, col: &Col<f64>, rows: usize) {
        let a: Float64Array = self.primitive(col, rows);
        self.columns.push(Arc::new(a));
    }
    fn bool(&mut self, _: &ColumnDef, col: &Col<bool>, rows: usize) {
        let values: BooleanBuffer = padded(col, rows, |v| v).into();
        self.columns.push(Arc::new(BooleanArray::new(values, nulls(col, rows))));
    }
    fn str(&mut self, _: &ColumnDef, col: &Col<StrId>, rows: usize) {
        match self.names {
            Names::Keys(_) => {
                let keys =
                    PrimitiveArray::<UInt32Type>::new(padded(col, rows, |id: StrId| id.0).into(), nulls(col, rows));
                self.columns.push(Arc::new(keys));
            }
            Names::Compact(strings) => self.compact(col, rows, strings),
        }
    }
    fn text(&mut self, _: &ColumnDef, col: &Col<TextId>, rows: usize) {
        let (Names::Compact(strings) | Names::Keys(strings)) = self.names;
        let texts = (0..rows).map(|row| Some(String::from_utf8_lossy(strings.get_text(col.get(row)?))));
        let array = match col.values() {
            [] => {
                let offsets = OffsetBuffer::new(ScalarBuffer::new(zeros((rows + 1) * size_of::<i32>()), 0, rows + 1));
                StringArray::new(offsets, zeros(0), nulls(col, rows))
            }
            _ => texts.collect(),
        };
        self.columns.push(Arc::new(array));
    }
    fn kind(&mut self, _: &ColumnDef, col: &Col<Kind>, rows: usize) {
        self.coded(col, rows, vocabulary(Kind::NAMES), |k| k as u32);
    }
    fn state(&mut self, _: &ColumnDef, col: &Col<State>, rows: usize) {
        self.coded(col, rows, vocabulary(State::NAMES), |s| s as u32);
    }
}

fn vocabulary(names: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Events;
    use arrow_array::Array;

    #[test]
    fn events_become_a_batch_with_nulls_where_nothing_was_set() {
        let mut strings = Strings::new();
        let mut events = Events::default();
        for i in 0..130i64 {
            let mut row = events.push();
            row.ts_ns(i).seq(i as u64).kind(Kind::Switch).quality(0);
            if i % 3 == 0 {
                row.tid(i).comm(strings.intern(format!("t{i}").as_bytes()));
            }
        }
        let meta = Metadata::default();
        let b = batch(&events, Names::Compact(&strings), Arc::new(schema::<Events>(&meta)));
        assert_eq!(b.num_rows(), 130);
        let tid = b.column_by_name("tid").unwrap();
        assert_eq!(tid.null_count(), 130 - 44);
        assert!(tid.is_valid(129) && tid.is_null(128));
        let cpu = b.column_by_name("cpu").unwrap();
        assert_eq!(cpu.null_count(), 130);
    }

    #[test]
    fn a_batch_holds_only_the_strings_it_uses() {
        let mut strings = Strings::new();
        let ids: Vec<StrId> = (0..50).map(|i| strings.intern(format!("t{i}").as_bytes())).collect();
        let mut events = Events::default();
        for i in [7usize, 49, 7] {
            events.push().ts_ns(0).seq(0).kind(Kind::Wakeup).quality(0).comm(ids[i]).ctx_comm(ids[3]);
        }
        let b = batch(&events, Names::Compact(&strings), Arc::new(schema::<Events>(&Metadata::default())));
        let column = |name: &str| {
            let a = b.column_by_name(name).unwrap().as_any().downcast_ref::<DictionaryArray<UInt32Type>>().unwrap();
            let values = a.values().as_any().downcast_ref::<StringArray>().unwrap();
            (a.keys().values().to_vec(), values.iter().flatten().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(column("comm"), (vec![0, 1, 0], vec!["t7".into(), "t49".into()]));
        assert_eq!(column("ctx_comm"), (vec![0, 0, 0], vec!["t3".into()]));
        let b = batch(&events, Names::Keys(&strings), Arc::new(keys_schema::<Events>(&Metadata::default())));
        let keys = b.column_by_name("comm").unwrap().as_any().downcast_ref::<UInt32Array>().unwrap();
        assert_eq!(keys.values().to_vec(), vec![7, 49, 7]);
        assert_eq!(dictionary(&strings).len(), 50);
    }

    #[test]
    fn an_empty_table_is_an_empty_batch() {
        let schema = Arc::new(schema::<Events>(&Metadata::default()));
        let b = batch(&Events::default(), Names::Compact(&Strings::new()), schema);
        assert_eq!(b.num_rows(), 0);
    }
}
