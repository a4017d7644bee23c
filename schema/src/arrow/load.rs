//! The way back: record batches become tables again.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};

use super::convert::{each_float, each_whole, each_word, Words};
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

/// Adds the rows of `batch` to `table`; its strings go to `strings`. Columns are found by name,
/// other columns are left aside, nullable columns may be missing, and any type that holds the same
/// values will do ([`super::convert`]).
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
    /// The column of `def`, `None` when there is nothing in it to load.
    fn column(&mut self, def: &ColumnDef) -> Option<ArrayRef> {
        if self.error.is_some() {
            return None;
        }
        let required = def.null.is_empty();
        let Some(array) = self.batch.column_by_name(def.name) else {
            if required && self.batch.num_rows() > 0 {
                self.error = Some(LoadError::Missing { table: self.table, column: def.name });
            }
            return None;
        };
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        if let Some(row) = nulls.as_ref().filter(|_| required).and_then(|nulls| nulls.iter().position(|set| !set)) {
            self.error = Some(LoadError::Null { column: def.name, row });
            return None;
        }
        // A column without values may have any type: who made it knew of none.
        (nulls.map_or(0, |nulls| nulls.null_count()) < array.len()).then(|| array.clone())
    }

    /// The type of a column, or one of its values, does not fit.
    fn refuse(&mut self, def: &ColumnDef, found: &ArrayRef) {
        let (found, expected) = (found.data_type().to_string(), data_type(def.ty).to_string());
        self.error = Some(LoadError::Type { column: def.name, found, expected });
    }

    fn integers<A: ArrowPrimitiveType>(&mut self, def: &ColumnDef, base: usize, col: &mut Col<A::Native>)
    where
        A::Native: Copy + Default + TryFrom<i128>,
    {
        let Some(array) = self.column(def) else { return };
        if let Some(array) = array.as_primitive_opt::<A>() {
            let bits = array.nulls().map(|nulls| nulls.inner().bit_chunks());
            col.extend(base, array.values(), bits.as_ref().map(|bits| bits.iter_padded()));
            return;
        }
        let fits = each_whole(&array, &mut |row, v| A::Native::try_from(v).map(|v| col.set(base + row, v)).is_ok());
        if !fits {
            self.refuse(def, &array);
        }
    }

    /// Columns of words: `f` says what a word is, `None` for one that has no place; once a word
    /// where there is a dictionary.
    fn coded<V: Copy + Default>(
        &mut self,
        def: &ColumnDef,
        base: usize,
        col: &mut Col<V>,
        f: impl Fn(&mut Strings, &str) -> Option<V>,
    ) {
        let Some(array) = self.column(def) else { return };
        let mut wrong = None;
        let fits = if let Some((keys, words)) = Words::of_dictionary(&array) {
            // Only words in use are judged: a dictionary may hold others.
            let mut known: Vec<Option<V>> = vec![None; words.len()];
            keys.into_iter().enumerate().all(|(row, key)| {
                let Some((key, word)) = key.and_then(|key| Some((key, words.get(key)?))) else { return true };
                if known[key].is_none() {
                    known[key] = f(self.strings, word);
                }
                match known[key] {
                    Some(value) => col.set(base + row, value),
                    None => wrong = Some(word.to_owned()),
                }
                wrong.is_none()
            })
        } else {
            each_word(&array, &mut |row, word| {
                match f(self.strings, word) {
                    Some(value) => col.set(base + row, value),
                    None => wrong = Some(word.to_owned()),
                }
                wrong.is_none()
            })
        };
        match wrong {
            Some(word) => self.error = Some(LoadError::Word { column: def.name, word }),
            None if !fits => self.refuse(def, &array),
            None => {}
        }
    }
}

impl Loader for Import<'_> {
    fn i64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<i64>) {
        self.integers::<Int64Type>(def, base, col);
    }
    fn i32(&mut self, def: &ColumnDef, base: usize, col: &mut Col<i32>) {
        self.integers::<Int32Type>(def, base, col);
    }
    fn u64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u64>) {
        self.integers::<UInt64Type>(def, base, col);
    }
    fn u32(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u32>) {
        self.integers::<UInt32Type>(def, base, col);
    }
    fn u16(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u16>) {
        self.integers::<UInt16Type>(def, base, col);
    }
    fn f64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<f64>) {
        let Some(array) = self.column(def) else { return };
        if !each_float(&array, &mut |row, v| col.set(base + row, v)) {
            self.refuse(def, &array);
        }
    }
    fn bool(&mut self, def: &ColumnDef, base: usize, col: &mut Col<bool>) {
        let Some(array) = self.column(def) else { return };
        let fits = each_whole(&array, &mut |row, v| {
            col.set(base + row, v == 1);
            v == 0 || v == 1
        });
        if !fits {
            self.refuse(def, &array);
        }
    }
    fn str(&mut self, def: &ColumnDef, base: usize, col: &mut Col<StrId>) {
        self.coded(def, base, col, |strings, word| Some(strings.intern(word.as_bytes())));
    }
    fn text(&mut self, def: &ColumnDef, base: usize, col: &mut Col<TextId>) {
        let Some(array) = self.column(def) else { return };
        let fits = each_word(&array, &mut |row, text| {
            col.set(base + row, self.strings.keep(text.as_bytes()));
            true
        });
        if !fits {
            self.refuse(def, &array);
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
    use std::sync::Arc;

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

    /// The events whose column `column` is `array`, and whose other columns are whatever they must be.
    fn with(column: &str, array: ArrayRef) -> Result<(Events, Strings), LoadError> {
        let n = array.len() as i64;
        let numbers = || Arc::new(Int64Array::from_iter_values(0..n)) as ArrayRef;
        let kinds = Arc::new(StringArray::from_iter_values((0..n).map(|_| "exit"))) as ArrayRef;
        let others = [("ts_ns", numbers()), ("seq", numbers()), ("quality", numbers()), ("kind", kinds)];
        let columns = others.into_iter().filter(|(name, _)| *name != column).chain([(column, array)]);
        let (mut events, mut strings) = (Events::default(), Strings::new());
        append(&mut events, &RecordBatch::try_from_iter(columns).unwrap(), &mut strings)?;
        Ok((events, strings))
    }

    #[test]
    fn whole_numbers_of_any_type_convert_and_others_do_not() {
        use arrow_array::{
            BooleanArray, DurationNanosecondArray, Float64Array, NullArray, TimestampMicrosecondArray, UInt8Array,
        };
        let good: [ArrayRef; 6] = [
            Arc::new(UInt8Array::from(vec![Some(1), None])),
            Arc::new(DurationNanosecondArray::from(vec![Some(1), None])),
            Arc::new(Float64Array::from(vec![Some(1.0), None])),
            Arc::new(BooleanArray::from(vec![Some(true), None])),
            Arc::new(StringArray::from(vec![Some("1"), None])),
            Arc::new(Int64Array::from(vec![Some(1), None])),
        ];
        for array in good {
            let (events, _) = with("cpu", array).unwrap();
            assert_eq!((events.cpu.get(0), events.cpu.get(1)), (Some(1), None));
        }
        let bad: [ArrayRef; 5] = [
            Arc::new(Float64Array::from(vec![1.5])),
            Arc::new(Float64Array::from(vec![f64::NAN])),
            Arc::new(Int64Array::from(vec![1 << 40])),
            Arc::new(StringArray::from(vec!["one"])),
            Arc::new(TimestampMicrosecondArray::from(vec![1])),
        ];
        for array in bad {
            let error = with("cpu", array).map(|_| ());
            assert!(matches!(error, Err(LoadError::Type { column: "cpu", .. })), "{error:?}");
        }
        for empty in [Arc::new(NullArray::new(2)) as ArrayRef, Arc::new(StringArray::new_null(2))] {
            assert_eq!(with("cpu", Arc::clone(&empty)).unwrap().0.cpu.get(0), None);
            let error = with("ts_ns", empty).map(|_| ());
            assert_eq!(error, Err(LoadError::Null { column: "ts_ns", row: 0 }));
        }
    }

    #[test]
    fn words_of_any_type_convert() {
        use arrow_array::types::{Int8Type, UInt64Type};
        use arrow_array::{DictionaryArray, LargeStringArray, StringViewArray};
        let words = vec![Some("switch"), None, Some("exit"), Some("exit")];
        let all: [ArrayRef; 5] = [
            Arc::new(StringArray::from(words.clone())),
            Arc::new(LargeStringArray::from(words.clone())),
            Arc::new(StringViewArray::from(words.clone())),
            Arc::new(words.clone().into_iter().collect::<DictionaryArray<Int8Type>>()),
            Arc::new(words.clone().into_iter().collect::<DictionaryArray<UInt64Type>>()),
        ];
        for array in all {
            let (events, strings) = with("comm", Arc::clone(&array)).unwrap();
            let comm = |row| events.comm.get(row).map(|id| strings.text(id).into_owned());
            assert_eq!(
                (0..4).map(comm).collect::<Vec<_>>(),
                words.iter().map(|w| w.map(str::to_owned)).collect::<Vec<_>>()
            );
            let (events, strings) = with("raw", Arc::clone(&array)).unwrap();
            assert_eq!(events.raw.get(1), None);
            assert_eq!(events.raw.get(3).map(|id| strings.get_text(id)), Some(&b"exit"[..]));
            assert_eq!(with("kind", array).map(|_| ()), Err(LoadError::Null { column: "kind", row: 1 }));
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let (events, strings) = with("comm", numbers).unwrap();
        assert_eq!(events.comm.get(0).map(|id| strings.text(id).into_owned()), Some("7".into()));
    }
}
