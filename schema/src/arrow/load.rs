//! The way back: record batches become tables again.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_cast::cast;

use super::data_type;
use crate::strings::{StrId, Strings, TextId};
use crate::table::{Col, ColumnDef, Loader, Table};
use crate::{Kind, State};

/// Why a record batch is not a table of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A column that is never null is not there.
    #[error("the {table} table needs a column `{column}`, which is missing")]
    Missing {
        /// Table that was to be filled.
        table: &'static str,
        /// Name of the column.
        column: &'static str,
    },
    /// A column has another type, and its values do not convert.
    #[error("column `{column}` has type {found}, which does not convert to {expected}")]
    Type {
        /// Name of the column.
        column: &'static str,
        /// Its type.
        found: String,
        /// Type in the schema.
        expected: String,
    },
    /// A column that is never null has nulls.
    #[error("column `{column}` has a null in row {row}, and must have none")]
    Null {
        /// Name of the column.
        column: &'static str,
        /// First row that is null, from 0.
        row: usize,
    },
    /// A word that is not in the vocabulary of its column.
    #[error("column `{column}` holds `{word}`, which is none of its values")]
    Word {
        /// Name of the column.
        column: &'static str,
        /// The word.
        word: String,
    },
}

/// Adds the rows of `batch` to `table`; its strings go to `strings`. Columns are found by name, other columns are left
/// aside, nullable columns may be missing, and any type that converts without loss of meaning will do.
///
/// # Errors
/// [`LoadError`] when the batch does not have the columns of the table; `table` is then of no more use.
pub fn append<T: Table>(table: &mut T, batch: &RecordBatch, strings: &mut Strings) -> Result<(), LoadError> {
    let mut import = Import { table: T::DEF.name, batch, strings, error: None };
    table.load(batch.num_rows(), &mut import);
    import.error.map_or(Ok(()), Err)
}

struct Import<'a> {
    table: &'static str,
    batch: &'a RecordBatch,
    strings: &'a mut Strings,
    /// The first error; what follows it is not loaded.
    error: Option<LoadError>,
}

impl Import<'_> {
    /// The column of `def` in its own type, `None` when it may be missing and is.
    fn column(&mut self, def: &ColumnDef) -> Option<ArrayRef> {
        if self.error.is_some() {
            return None;
        }
        let required = def.null.is_empty();
        let Some(found) = self.batch.column_by_name(def.name) else {
            if required && self.batch.num_rows() > 0 {
                self.error = Some(LoadError::Missing { table: self.table, column: def.name });
            }
            return None;
        };
        let expected = data_type(def.ty);
        let array = if *found.data_type() == expected { Ok(Arc::clone(found)) } else { cast(found, &expected) };
        let Ok(array) = array.filter_casts(found) else {
            let found = found.data_type().to_string();
            self.error = Some(LoadError::Type { column: def.name, found, expected: expected.to_string() });
            return None;
        };
        if required && array.null_count() > 0 {
            let row = (0..array.len()).find(|i| array.is_null(*i)).unwrap_or(0);
            self.error = Some(LoadError::Null { column: def.name, row });
            return None;
        }
        Some(array)
    }

    fn primitive<A: ArrowPrimitiveType>(&mut self, def: &ColumnDef, base: usize, col: &mut Col<A::Native>)
    where
        A::Native: Copy + Default,
    {
        let Some(array) = self.column(def) else { return };
        let array: &PrimitiveArray<A> = array.as_primitive();
        for (row, value) in array.iter().enumerate() {
            if let Some(value) = value {
                col.set(base + row, value);
            }
        }
    }

    /// Dictionary columns: `f` says once a word what it is, `None` for a word that has no place.
    fn coded<V: Copy + Default>(
        &mut self,
        def: &ColumnDef,
        base: usize,
        col: &mut Col<V>,
        f: impl Fn(&mut Strings, &str) -> Option<V>,
    ) {
        let Some(array) = self.column(def) else { return };
        let array: &DictionaryArray<UInt32Type> = array.as_dictionary();
        let words: &StringArray = array.values().as_string();
        // Only words in use are judged: a dictionary may hold others.
        let mut known: Vec<Option<V>> = vec![None; words.len()];
        for (row, key) in array.keys().iter().enumerate() {
            let Some(key) = key.map(|k| k as usize) else { continue };
            if words.is_null(key) {
                continue;
            }
            if known[key].is_none() {
                known[key] = f(self.strings, words.value(key));
            }
            let Some(value) = known[key] else {
                self.error = Some(LoadError::Word { column: def.name, word: words.value(key).to_owned() });
                return;
            };
            col.set(base + row, value);
        }
    }
}

/// Refuses casts that turn values into nulls (numbers out of range, words that are no numbers).
trait FilterCasts {
    fn filter_casts(self, from: &ArrayRef) -> Result<ArrayRef, ()>;
}

impl FilterCasts for Result<ArrayRef, arrow_schema::ArrowError> {
    fn filter_casts(self, from: &ArrayRef) -> Result<ArrayRef, ()> {
        self.ok().filter(|to| to.logical_null_count() == from.logical_null_count()).ok_or(())
    }
}

impl Loader for Import<'_> {
    fn i64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<i64>) {
        self.primitive::<Int64Type>(def, base, col);
    }
    fn i32(&mut self, def: &ColumnDef, base: usize, col: &mut Col<i32>) {
        self.primitive::<Int32Type>(def, base, col);
    }
    fn u64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u64>) {
        self.primitive::<UInt64Type>(def, base, col);
    }
    fn u32(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u32>) {
        self.primitive::<UInt32Type>(def, base, col);
    }
    fn u16(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u16>) {
        self.primitive::<UInt16Type>(def, base, col);
    }
    fn f64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<f64>) {
        self.primitive::<Float64Type>(def, base, col);
    }
    fn bool(&mut self, def: &ColumnDef, base: usize, col: &mut Col<bool>) {
        let Some(array) = self.column(def) else { return };
        let array: &BooleanArray = array.as_boolean();
        for (row, value) in array.iter().enumerate() {
            if let Some(value) = value {
                col.set(base + row, value);
            }
        }
    }
    fn str(&mut self, def: &ColumnDef, base: usize, col: &mut Col<StrId>) {
        self.coded(def, base, col, |strings, word| Some(strings.intern(word.as_bytes())));
    }
    fn text(&mut self, def: &ColumnDef, base: usize, col: &mut Col<TextId>) {
        let Some(array) = self.column(def) else { return };
        let array: &StringArray = array.as_string();
        for (row, text) in array.iter().enumerate() {
            if let Some(text) = text {
                col.set(base + row, self.strings.keep(text.as_bytes()));
            }
        }
    }
    fn kind(&mut self, def: &ColumnDef, base: usize, col: &mut Col<Kind>) {
        self.coded(def, base, col, |_, word| Kind::from_name(word));
    }
    fn state(&mut self, def: &ColumnDef, base: usize, col: &mut Col<State>) {
        self.coded(def, base, col, |_, word| State::from_name(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::{batch, schema, Names};
    use crate::{Events, Metadata};
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    fn sample(strings: &mut Strings) -> Events {
        let mut events = Events::default();
        for i in 0..200i64 {
            let mut row = events.push();
            row.ts_ns(i * 10).seq(i as u64).kind(Kind::Switch).quality(3).state(State::Preempted);
            if i % 7 == 0 {
                row.comm(strings.intern(format!("t{}", i % 3).as_bytes()))
                    .raw(strings.keep(b"a=1 b=2"))
                    .next_tid(i)
                    .target_cpu(1)
                    .irq_flags(4);
            }
        }
        events
    }

    #[test]
    fn what_was_exported_loads_as_it_was() {
        let mut strings = Strings::new();
        let events = sample(&mut strings);
        let out = Arc::new(schema::<Events>(&Metadata::default()));
        let b = batch(&events, Names::Compact(&strings), Arc::clone(&out));
        let (mut again, mut names) = (Events::default(), Strings::new());
        append(&mut again, &b, &mut names).unwrap();
        append(&mut again, &b, &mut names).unwrap();
        assert_eq!(again.len(), 400);
        let b2 = batch(&again, Names::Compact(&names), out);
        assert_eq!(b2.slice(0, 200), b);
        assert_eq!(b2.slice(200, 200), b);
    }

    #[test]
    fn other_widths_and_plain_strings_convert() {
        let fields = [("ts_ns", DataType::Int64), ("seq", DataType::Int64), ("kind", DataType::Utf8)];
        let mut fields: Vec<Field> = fields.into_iter().map(|(n, t)| Field::new(n, t, true)).collect();
        fields.push(Field::new("quality", DataType::Int64, true));
        let numbers = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
        let make = |kinds: Vec<&str>, quality: Vec<i64>| {
            let kinds = Arc::new(StringArray::from(kinds)) as ArrayRef;
            let quality = Arc::new(Int64Array::from(quality)) as ArrayRef;
            RecordBatch::try_new(Arc::new(Schema::new(fields.clone())), vec![numbers(), numbers(), kinds, quality])
        };
        let mut strings = Strings::new();
        let mut events = Events::default();
        append(&mut events, &make(vec!["switch", "exit"], vec![0, 1]).unwrap(), &mut strings).unwrap();
        assert_eq!((events.kind.get(1), events.seq.get(1), events.cpu.get(0)), (Some(Kind::Exit), Some(2), None));
        let word = append(&mut Events::default(), &make(vec!["swich", "exit"], vec![0, 1]).unwrap(), &mut strings);
        assert_eq!(word, Err(LoadError::Word { column: "kind", word: "swich".into() }));
        let wide = append(&mut Events::default(), &make(vec!["exit", "exit"], vec![0, -1]).unwrap(), &mut strings);
        assert!(matches!(wide, Err(LoadError::Type { column: "quality", .. })), "{wide:?}");
        let few = make(vec!["exit", "exit"], vec![0, 1]).unwrap().project(&[0, 2]).unwrap();
        let missing = append(&mut Events::default(), &few, &mut strings);
        assert_eq!(missing, Err(LoadError::Missing { table: "events", column: "seq" }));
    }
}
