//! Column stores, and the [`table!`](crate::table!) macro that declares a table once: its columns, types, units and docs.
//!
//! A column costs nothing in rows that do not set it: [`Col`] fills the gap when the next value comes. So a wide table
//! of mostly null columns is as cheap to build as a narrow one.

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

/// Fills the columns of a table one after the other: the way back from Arrow. Each method adds its rows to `col`, the
/// first of them as row `base`.
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
#[derive(Clone, Debug)]
pub struct Col<T> {
    values: Vec<T>,
    /// Bit per row of `values`, only once a row was left out.
    valid: Option<Vec<u64>>,
}

impl<T> Default for Col<T> {
    fn default() -> Self {
        Col { values: Vec::new(), valid: None }
    }
}

impl<T: Copy + Default> Col<T> {
    /// Sets the value of `row`, which must be the last row set or a later one.
    #[inline]
    pub fn set(&mut self, row: usize, value: T) {
        let len = self.values.len();
        if len == row && self.valid.is_none() {
            self.values.push(value);
        } else {
            self.set_slow(row, value);
        }
    }

    #[inline]
    fn set_slow(&mut self, row: usize, value: T) {
        let len = self.values.len();
        if self.valid.is_none() && row > len {
            let mut bits = Vec::with_capacity(row / 64 + 1);
            bits.resize(len / 64, u64::MAX);
            bits.push((1u64 << (len % 64)) - 1);
            self.valid = Some(bits);
        }
        if row >= len {
            self.values.resize(row, T::default());
            self.values.push(value);
        } else {
            self.values[row] = value;
        }
        if let Some(bits) = &mut self.valid {
            if bits.len() <= row / 64 {
                bits.resize(row / 64 + 1, 0);
            }
            bits[row / 64] |= 1 << (row % 64);
        }
    }

    /// The value of `row`, `None` where null.
    #[inline]
    pub fn get(&self, row: usize) -> Option<T> {
        let value = *self.values.get(row)?;
        match &self.valid {
            Some(bits) if bits[row / 64] >> (row % 64) & 1 == 0 => None,
            _ => Some(value),
        }
    }

    /// The stored values; rows past the end, and rows whose bit in [`Self::validity`] is 0, are null.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// One bit per stored row, `None` when all stored rows are set.
    pub fn validity(&self) -> Option<&[u64]> {
        self.valid.as_deref()
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

    /// Forgets all rows, keeping the allocation.
    pub fn clear(&mut self) {
        self.values.clear();
        self.valid = None;
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

        impl $table {
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
        fn a_column_reads_back_what_was_set(values in prop::collection::vec(prop::option::of(any::<i32>()), 0..300)) {
            let mut t = Tiny::default();
            for v in &values {
                t.push().a_ns(1).b(*v);
            }
            prop_assert_eq!(t.len(), values.len());
            for (row, v) in values.iter().enumerate() {
                prop_assert_eq!(t.b.get(row), *v);
                prop_assert_eq!(t.a_ns.get(row), Some(1));
            }
            let back: Vec<u32> = (0..values.len() as u32).rev().collect();
            let taken = t.take(&back);
            for (row, v) in values.iter().rev().enumerate() {
                prop_assert_eq!(taken.b.get(row), *v);
            }
        }
    }
}
