//! Column stores, and the [`table!`](crate::table!) macro that declares a table once: its columns,
//! types, units and docs.
//!
//! A column costs nothing in rows that do not set it: [`Col`] fills the gap when the next value
//! comes. So a wide table of mostly null columns is as cheap to build as a narrow one.

use crate::strings::{StrId, Strings, TextId};
use crate::{Kind, State};

/// The type of a column, as documented and as exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 64-bit unsigned integer.
    U64,
    /// 32-bit unsigned integer.
    U32,
    /// 16-bit unsigned integer.
    U16,
    /// 64-bit float, in tables of statistics only.
    F64,
    /// True or false.
    Bool,
    /// String that repeats, dictionary-encoded.
    Str,
    /// Text that hardly ever repeats.
    Text,
    /// One of [`Kind`], dictionary-encoded.
    Kind,
    /// One of [`State`], dictionary-encoded.
    State,
}

/// One column's definition.
#[derive(Clone, Copy, Debug)]
pub struct ColumnDef {
    /// Name; ends in the unit where there is one.
    pub name: &'static str,
    /// Type.
    pub ty: Type,
    /// When it is null: `""` for never.
    pub null: &'static str,
    /// What it holds.
    pub doc: &'static str,
}

/// A table's definition.
#[derive(Clone, Copy, Debug)]
pub struct TableDef {
    /// Name of the table.
    pub name: &'static str,
    /// What one row is.
    pub doc: &'static str,
    /// The columns in order.
    pub columns: &'static [ColumnDef],
}

/// Fills the columns of a table one after the other: the way back from Arrow. Each method adds its
/// rows to `col`, the first of them as row `base`.
#[allow(missing_docs)]
pub trait Loader {
    fn i64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<i64>);
    fn i32(&mut self, def: &ColumnDef, base: usize, col: &mut Col<i32>);
    fn u64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u64>);
    fn u32(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u32>);
    fn u16(&mut self, def: &ColumnDef, base: usize, col: &mut Col<u16>);
    fn f64(&mut self, def: &ColumnDef, base: usize, col: &mut Col<f64>);
    fn bool(&mut self, def: &ColumnDef, base: usize, col: &mut Col<bool>);
    fn str(&mut self, def: &ColumnDef, base: usize, col: &mut Col<StrId>);
    fn text(&mut self, def: &ColumnDef, base: usize, col: &mut Col<TextId>);
    fn kind(&mut self, def: &ColumnDef, base: usize, col: &mut Col<Kind>);
    fn state(&mut self, def: &ColumnDef, base: usize, col: &mut Col<State>);
}

/// A Rust type that a column can hold.
pub trait Value: Copy + Default {
    /// Its column type.
    const TYPE: Type;
    /// Takes the column's rows from an importer.
    fn load(col: &mut Col<Self>, base: usize, def: &ColumnDef, from: &mut dyn Loader)
    where
        Self: Sized;
    /// Hands the column's buffers to an exporter.
    fn visit(col: &Col<Self>, rows: usize, def: &ColumnDef, to: &mut dyn Visitor)
    where
        Self: Sized;
}

/// Receives the columns of a table one after the other (the Arrow export, mainly).
#[allow(missing_docs)]
pub trait Visitor {
    fn i64(&mut self, def: &ColumnDef, col: &Col<i64>, rows: usize);
    fn i32(&mut self, def: &ColumnDef, col: &Col<i32>, rows: usize);
    fn u64(&mut self, def: &ColumnDef, col: &Col<u64>, rows: usize);
    fn u32(&mut self, def: &ColumnDef, col: &Col<u32>, rows: usize);
    fn u16(&mut self, def: &ColumnDef, col: &Col<u16>, rows: usize);
    fn f64(&mut self, def: &ColumnDef, col: &Col<f64>, rows: usize);
    fn bool(&mut self, def: &ColumnDef, col: &Col<bool>, rows: usize);
    fn str(&mut self, def: &ColumnDef, col: &Col<StrId>, rows: usize);
    fn text(&mut self, def: &ColumnDef, col: &Col<TextId>, rows: usize);
    fn kind(&mut self, def: &ColumnDef, col: &Col<Kind>, rows: usize);
    fn state(&mut self, def: &ColumnDef, col: &Col<State>, rows: usize);
}

macro_rules! values {
    ($($t:ty, $ty:ident, $method:ident;)*) => {
        $(impl Value for $t {
            const TYPE: Type = Type::$ty;
            fn visit(col: &Col<Self>, rows: usize, def: &ColumnDef, to: &mut dyn Visitor) {
                to.$method(def, col, rows);
            }
            fn load(col: &mut Col<Self>, base: usize, def: &ColumnDef, from: &mut dyn Loader) {
                from.$method(def, base, col);
            }
        })*
    };
}
values! {
    i64, I64, i64; i32, I32, i32; u64, U64, u64; u32, U32, u32; u16, U16, u16; f64, F64, f64; bool, Bool, bool;
    StrId, Str, str; TextId, Text, text; Kind, Kind, kind; State, State, state;
}

/// A nullable column that grows on demand.
///
/// Setting a value is two stores behind one comparison: room is made ahead of the rows, zeroed, for
/// values and validity bits alike, so a row that is left out costs nothing at all.
#[derive(Clone, Debug)]
pub struct Col<T> {
    /// A multiple of 64 values; those from `len` on, and those whose bit is 0, are left over and
    /// mean nothing.
    values: Vec<T>,
    /// Bit per value: set or not.
    valid: Vec<u64>,
    /// One more than the last row set.
    len: usize,
    /// Rows that the first value makes room for.
    expected: usize,
}

impl<T> Default for Col<T> {
    fn default() -> Self {
        Col { values: Vec::new(), valid: Vec::new(), len: 0, expected: 0 }
    }
}

impl<T: Copy + Default> Col<T> {
    /// Sets the value of `row`, in any order.
    #[inline(always)]
    pub fn set(&mut self, row: usize, value: T) {
        if row >= self.values.len() {
            self.grow(row);
        }
        self.values[row] = value;
        self.valid[row / 64] |= 1 << (row % 64);
        self.len = self.len.max(row + 1);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, row: usize) {
        let first = if self.values.is_empty() { self.expected.max(1024) } else { 0 };
        let room = (row + 1).max(self.values.len() * 2).max(first).next_multiple_of(64);
        self.values.resize(room, T::default());
        self.valid.resize(room / 64, 0);
    }

    /// Says that `rows` rows are to be expected: the first value makes room for all of them at once.
    /// A column that has room already, or never gets a value, takes no notice.
    pub fn expect_rows(&mut self, rows: usize) {
        self.expected = rows;
    }

    /// The value of `row`, `None` where null.
    #[inline]
    pub fn get(&self, row: usize) -> Option<T> {
        let set = row < self.len && self.valid[row / 64] >> (row % 64) & 1 == 1;
        set.then(|| self.values[row])
    }

    /// The stored values; rows past the end, and rows whose bit in [`Self::validity`] is 0, are
    /// null, and what stands in their place here means nothing.
    pub fn values(&self) -> &[T] {
        &self.values[..self.len]
    }

    /// One bit per stored row; with `None` all stored rows are set.
    pub fn validity(&self) -> Option<&[u64]> {
        let bits = &self.valid[..self.len.div_ceil(64)];
        let set: usize = bits.iter().map(|w| w.count_ones() as usize).sum();
        (set < self.len).then_some(bits)
    }

    /// Rows `rows` of this column, in that order, as a new column.
    pub fn take(&self, rows: &[u32]) -> Self {
        let mut out = Col::default();
        for (to, &from) in rows.iter().enumerate() {
            if let Some(v) = self.get(from as usize) {
                out.set(to, v);
            }
        }
        out
    }

    /// An empty column with room for as many rows as this one holds.
    pub fn like(&self) -> Self {
        let room = self.len.next_multiple_of(64);
        Col { values: vec![T::default(); room], valid: vec![0; room / 64], len: 0, expected: 0 }
    }

    /// Sets up to 64 rows at once: row `base + i` to `values[i]` where bit `i` of `set` says so.
    /// Nothing may stand behind `base`.
    #[inline]
    pub fn put(&mut self, base: usize, values: &[T; 64], set: u64) {
        if set == 0 {
            return;
        }
        let end = base + 64 - set.leading_zeros() as usize;
        if end > self.values.len() {
            self.grow(end - 1);
        }
        self.values[base..end].copy_from_slice(&values[..end - base]);
        self.put_bits(base, set);
        self.len = end;
    }

    /// Adds `values` from row `base` on, which nothing stands behind: all of them, or those whose bit
    /// is in `set`, a word of bits for each 64.
    pub fn extend(&mut self, base: usize, values: &[T], set: Option<impl Iterator<Item = u64>>) {
        let Some(last) = values.len().checked_sub(1) else { return };
        if base + last >= self.values.len() {
            self.grow(base + last);
        }
        self.values[base..=base + last].copy_from_slice(values);
        let whole = |at: usize| if values.len() - at * 64 < 64 { (1 << (values.len() % 64)) - 1 } else { u64::MAX };
        let words = values.len().div_ceil(64);
        let mut put = |at: usize, bits: u64| {
            self.put_bits(base + at * 64, bits);
            if bits != 0 {
                self.len = base + at * 64 + 64 - bits.leading_zeros() as usize;
            }
        };
        match set {
            Some(set) => set.take(words).enumerate().for_each(|(at, bits)| put(at, bits & whole(at))),
            None => (0..words).for_each(|at| put(at, whole(at))),
        }
    }

    /// Marks row `base + i` as set where bit `i` says so.
    #[inline]
    fn put_bits(&mut self, base: usize, set: u64) {
        let (word, shift) = (base / 64, base % 64);
        self.valid[word] |= set << shift;
        let above = set.checked_shr(64 - shift as u32).unwrap_or(0);
        if above != 0 {
            self.valid[word + 1] |= above;
        }
    }

    /// Adds the rows of `other` from `from` on, the first of them as row `base`, which nothing stands behind.
    pub fn extend_from(&mut self, base: usize, other: &Self, from: usize) {
        if from >= other.len {
            return;
        }
        let end = base + other.len - from;
        if end > self.values.len() {
            self.grow(end - 1);
        }
        self.values[base..end].copy_from_slice(&other.values[from..other.len]);
        for at in (from..other.len).step_by(64) {
            let (word, shift) = (at / 64, at % 64);
            let high = other.valid.get(word + 1).map_or(0, |w| w.checked_shl(64 - shift as u32).unwrap_or(0));
            self.put_bits(base + at - from, other.valid[word] >> shift | high);
        }
        self.len = end;
    }

    /// Forgets the rows from `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        if rows >= self.len {
            return;
        }
        self.valid[rows.div_ceil(64)..self.len.div_ceil(64)].fill(0);
        if !rows.is_multiple_of(64) {
            self.valid[rows / 64] &= (1 << (rows % 64)) - 1;
        }
        self.len = rows;
    }

    /// Forgets all rows, keeping the allocation.
    pub fn clear(&mut self) {
        self.truncate(0);
    }
}

/// What every table can do, whatever its columns.
pub trait Table: Default {
    /// Name, columns and docs.
    const DEF: TableDef;
    /// Number of rows.
    fn len(&self) -> usize;
    /// True when there are no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Hands over all columns in order.
    fn visit(&self, to: &mut dyn Visitor);
    /// Adds `rows` rows whose columns `from` fills.
    fn load(&mut self, rows: usize, from: &mut dyn Loader);
    /// The given rows in the given order.
    fn take(&self, rows: &[u32]) -> Self;
    /// An empty table with room for as many rows as this one holds.
    fn like(&self) -> Self;
    /// Adds the rows of `other` from `from` on.
    fn extend_from(&mut self, other: &Self, from: usize);
    /// Forgets the rows from `rows` on.
    fn truncate(&mut self, rows: usize);
    /// Forgets all rows, keeping allocations.
    fn clear(&mut self);
}

/// Declares a table: a struct of columns, a row handle with one setter a column, and its documentation.
///
/// Each column is `name: type = "when null",` with `""` for never, under its doc comment.
#[macro_export]
macro_rules! table {
    ($(#[doc = $tdoc:literal])* $table:ident, $row:ident, $tname:literal {
        $($(#[doc = $doc:literal])* $col:ident : $ty:ty = $null:literal,)*
    }) => {
        $(#[doc = $tdoc])*
        #[derive(Clone, Debug, Default)]
        pub struct $table { rows: usize, $($(#[doc = $doc])* pub $col: $crate::table::Col<$ty>,)* }

        /// Sets the columns of one new row; what is not set is null.
        pub struct $row<'t> { table: &'t mut $table, row: usize }

        // Not every table uses every way to add rows.
        #[allow(dead_code)]
        impl $table {
            /// Adds `rows` rows in which nothing is set, and returns the first: for columns filled
            /// by [`put`].
            ///
            /// [`put`]: $crate::table::Col::put
            #[inline]
            pub fn push_rows(&mut self, rows: usize) -> usize {
                let first = self.rows;
                self.rows += rows;
                first
            }

            /// Says that `rows` rows are to be expected: a column makes room for them with its first value.
            pub fn expect_rows(&mut self, rows: usize) {
                $(self.$col.expect_rows(rows);)*
            }

            /// Adds a row and returns the handle that sets its columns.
            #[inline]
            pub fn push(&mut self) -> $row<'_> {
                let row = self.rows;
                self.rows += 1;
                $row { table: self, row }
            }

            /// A handle on the last row, to add to it.
            pub fn last(&mut self) -> Option<$row<'_>> {
                let row = self.rows.checked_sub(1)?;
                Some($row { table: self, row })
            }
        }

        #[allow(clippy::should_implement_trait)]
        impl $row<'_> {
            /// Position of this row.
            pub fn index(&self) -> usize { self.row }
            $($(#[doc = $doc])*
            #[inline]
            pub fn $col(&mut self, value: impl Into<Option<$ty>>) -> &mut Self {
                if let Some(value) = value.into() { self.table.$col.set(self.row, value); }
                self
            })*
        }

        impl $crate::table::Table for $table {
            const DEF: $crate::table::TableDef = $crate::table::TableDef {
                name: $tname,
                doc: concat!($($tdoc),*),
                columns: &[$($crate::table::ColumnDef {
                    name: stringify!($col),
                    ty: <$ty as $crate::table::Value>::TYPE,
                    null: $null,
                    doc: concat!($($doc),*),
                },)*],
            };
            fn len(&self) -> usize { self.rows }
            fn visit(&self, to: &mut dyn $crate::table::Visitor) {
                let mut defs = Self::DEF.columns.iter();
                $(<$ty as $crate::table::Value>::visit(&self.$col, self.rows, defs.next().expect("one def a column"), to);)*
            }
            fn load(&mut self, rows: usize, from: &mut dyn $crate::table::Loader) {
                let mut defs = Self::DEF.columns.iter();
                let base = self.rows;
                $(<$ty as $crate::table::Value>::load(&mut self.$col, base, defs.next().expect("one def a column"), from);)*
                self.rows += rows;
            }
            fn take(&self, rows: &[u32]) -> Self {
                $table { rows: rows.len(), $($col: self.$col.take(rows),)* }
            }
            fn like(&self) -> Self {
                $table { rows: 0, $($col: self.$col.like(),)* }
            }
            fn extend_from(&mut self, other: &Self, from: usize) {
                $(self.$col.extend_from(self.rows, &other.$col, from);)*
                self.rows += other.rows.saturating_sub(from);
            }
            fn truncate(&mut self, rows: usize) {
                self.rows = self.rows.min(rows);
                $(self.$col.truncate(rows);)*
            }
            fn clear(&mut self) {
                self.rows = 0;
                $(self.$col.clear();)*
            }
        }
    };
}

/// A table together with the strings its ids name.
#[derive(Clone, Copy, Debug)]
pub struct WithStrings<'a, T> {
    /// The rows.
    pub table: &'a T,
    /// The strings.
    pub strings: &'a Strings,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    table! {
        /// Rows of a test.
        Tiny, TinyRow, "tiny" {
            /// Always there.
            a_ns: i64 = "",
            /// Sometimes there.
            b: i32 = "now and then",
        }
    }

    #[test]
    fn definition_comes_from_the_declaration() {
        assert_eq!(Tiny::DEF.name, "tiny");
        assert_eq!(Tiny::DEF.columns[0].name, "a_ns");
        assert_eq!(Tiny::DEF.columns[1].null, "now and then");
        assert_eq!(Tiny::DEF.columns[1].ty, Type::I32);
    }

    proptest! {
        #[test]
        fn sixty_four_at_once_are_as_one_by_one(before in 0usize..200, values in any::<[u64; 32]>(), set in any::<u64>()) {
            let values: [i64; 64] = std::array::from_fn(|i| (values[i / 2] >> i) as i64);
            let (mut one, mut all) = (Col::default(), Col::default());
            for row in (0..before).step_by(3) {
                one.set(row, 7);
                all.set(row, 7);
            }
            for (i, value) in values.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
                one.set(before + i, *value);
            }
            all.put(before, &values, set);
            prop_assert_eq!(one.values().len(), all.values().len());
            prop_assert!((0..before + 64).all(|row| one.get(row) == all.get(row)));
        }

        #[test]
        fn a_column_reads_back_what_was_set(
            values in prop::collection::vec(prop::option::of(any::<i32>()), 0..300),
            rows in 0usize..5000,
        ) {
            let mut t = Tiny::default();
            for v in &values {
                t.push().a_ns(1).b(*v);
            }
            prop_assert_eq!(t.len(), values.len());
            prop_assert_eq!(t.last().map(|row| row.index()), values.len().checked_sub(1));
            for (row, v) in values.iter().enumerate() {
                prop_assert_eq!(t.b.get(row), *v);
                prop_assert_eq!(t.a_ns.get(row), Some(1));
            }
            let mut like = t.like();
            prop_assert_eq!(like.len(), 0);
            for v in &values {
                like.push().a_ns(1).b(*v);
            }
            prop_assert!((0..=values.len()).all(|row| like.b.get(row) == t.b.get(row)));
            let mut expected = Tiny::default();
            expected.expect_rows(rows);
            for v in &values {
                expected.push().a_ns(1).b(*v);
            }
            prop_assert!((0..=values.len()).all(|row| expected.b.get(row) == t.b.get(row)));
            prop_assert_eq!(expected.b.validity(), t.b.validity());
            prop_assert_eq!(t.b.values().len(), values.iter().rposition(Option::is_some).map_or(0, |i| i + 1));
            prop_assert_eq!(t.b.validity().is_none(), values.iter().rev().skip_while(|v| v.is_none()).all(Option::is_some));
            let back: Vec<u32> = (0..values.len() as u32).rev().collect();
            let taken = t.take(&back);
            for (row, v) in values.iter().rev().enumerate() {
                prop_assert_eq!(taken.b.get(row), *v);
            }
        }

        #[test]
        fn rows_cut_off_and_put_back_are_the_same(
            values in prop::collection::vec(prop::option::of(any::<i32>()), 0..300),
            at in 0usize..300,
        ) {
            let mut t = Tiny::default();
            for v in &values {
                t.push().a_ns(1).b(*v);
            }
            let whole = t.clone();
            t.truncate(at);
            prop_assert_eq!(t.len(), at.min(values.len()));
            prop_assert_eq!(t.b.get(at), None);
            t.extend_from(&whole, at);
            prop_assert_eq!(t.len(), values.len());
            for (row, v) in values.iter().enumerate() {
                prop_assert_eq!(t.b.get(row), *v);
            }
        }
    }
}
