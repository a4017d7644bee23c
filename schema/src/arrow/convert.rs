//! Columns of other types than ours, value by value, where they hold the same: whole numbers of any
//! width, as floats or as text, and words plain or in a dictionary of any kind.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    DurationNanosecondType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, Int8Type,
    TimestampNanosecondType, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{Array, ArrayRef, LargeStringArray, StringArray, StringViewArray};
use arrow_schema::{DataType, TimeUnit};

/// Calls `f` with the row and value of each number; false when `f` says so, or when the type holds
/// no whole numbers.
pub fn each_whole(array: &ArrayRef, f: &mut dyn FnMut(usize, i128) -> bool) -> bool {
    macro_rules! all {
        ($type:ty, $v:ident => $value:expr) => {{
            let mut values = array.as_primitive::<$type>().iter().enumerate();
            values.all(|(row, v)| v.is_none_or(|$v| $value.is_some_and(|v| f(row, v))))
        }};
        ($type:ty) => {
            all!($type, v => Some(i128::from(v)))
        };
    }
    match array.data_type() {
        DataType::Int8 => all!(Int8Type),
        DataType::Int16 => all!(Int16Type),
        DataType::Int32 => all!(Int32Type),
        DataType::Int64 => all!(Int64Type),
        DataType::UInt8 => all!(UInt8Type),
        DataType::UInt16 => all!(UInt16Type),
        DataType::UInt32 => all!(UInt32Type),
        DataType::UInt64 => all!(UInt64Type),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => all!(TimestampNanosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => all!(DurationNanosecondType),
        DataType::Float32 => all!(Float32Type, v => whole(v.into())),
        DataType::Float64 => all!(Float64Type, v => whole(v)),
        DataType::Boolean => {
            let mut values = array.as_boolean().iter().enumerate();
            values.all(|(row, v)| v.is_none_or(|v| f(row, v.into())))
        }
        _ => {
            let Some(words) = Words::of(array) else { return false };
            let mut values = (0..words.len()).map(|row| (row, words.get(row)));
            values.all(|(row, word)| word.is_none_or(|word| word.parse().is_ok_and(|v| f(row, v))))
        }
    }
}

/// A float that is a whole number, as one: what a table with nulls becomes where integers have none.
fn whole(v: f64) -> Option<i128> {
    (v.fract() == 0.0 && v.abs() < 2f64.powi(64)).then_some(v as i128)
}

/// Calls `f` with the row and value of each number; false when the type holds no numbers.
pub fn each_float(array: &ArrayRef, f: &mut dyn FnMut(usize, f64)) -> bool {
    match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().iter().enumerate();
            values.for_each(|(row, v)| v.into_iter().for_each(|v| f(row, v)));
            true
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().iter().enumerate();
            values.for_each(|(row, v)| v.into_iter().for_each(|v| f(row, v.into())));
            true
        }
        _ => each_whole(array, &mut |row, v| {
            f(row, v as f64);
            true
        }),
    }
}

/// Calls `f` with the row and text of each value; false when `f` says so, or when the type is
/// neither text nor whole numbers.
pub fn each_word(array: &ArrayRef, f: &mut dyn FnMut(usize, &str) -> bool) -> bool {
    if let Some((keys, words)) = Words::of_dictionary(array) {
        let mut found = keys.into_iter().enumerate().map(|(row, key)| (row, key.and_then(|key| words.get(key))));
        return found.all(|(row, word)| word.is_none_or(|word| f(row, word)));
    }
    let Some(words) = Words::of(array) else {
        return each_whole(array, &mut |row, v| f(row, &v.to_string()));
    };
    (0..words.len()).all(|row| words.get(row).is_none_or(|word| f(row, word)))
}

/// Strings, however they lie in memory.
pub enum Words<'a> {
    /// With offsets of 32 bits.
    Small(&'a StringArray),
    /// With offsets of 64 bits.
    Large(&'a LargeStringArray),
    /// Each with a place of its own.
    View(&'a StringViewArray),
}

impl<'a> Words<'a> {
    /// An array of strings, `None` when it is of something else.
    pub fn of(array: &'a ArrayRef) -> Option<Self> {
        match array.data_type() {
            DataType::Utf8 => Some(Words::Small(array.as_string())),
            DataType::LargeUtf8 => Some(Words::Large(array.as_string())),
            DataType::Utf8View => Some(Words::View(array.as_string_view())),
            _ => None,
        }
    }

    /// The keys and the strings of a dictionary, `None` when the array is none, or one of something else.
    pub fn of_dictionary(array: &'a ArrayRef) -> Option<(Vec<Option<usize>>, Self)> {
        let dictionary = array.as_any_dictionary_opt()?;
        let words = Words::of(dictionary.values())?;
        if words.len() == 0 {
            return Some((vec![None; array.len()], words));
        }
        let keys = dictionary.normalized_keys().into_iter().enumerate();
        Some((keys.map(|(row, key)| dictionary.keys().is_valid(row).then_some(key)).collect(), words))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Words::Small(array) => array.len(),
            Words::Large(array) => array.len(),
            Words::View(array) => array.len(),
        }
    }

    /// The string at `row`, `None` where null.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            Words::Small(array) => array.is_valid(row).then(|| array.value(row)),
            Words::Large(array) => array.is_valid(row).then(|| array.value(row)),
            Words::View(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}
