//! Types of CTF fields.

use std::sync::Arc;

/// A whole number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Int {
    /// Bits, 1 to 64.
    pub size: u32,
    /// Bits.
    pub align: u32,
    /// Two's complement?
    pub signed: bool,
    /// Byte order, `None` for that of the trace.
    pub big_endian: Option<bool>,
    /// A character of text.
    pub character: bool,
    /// Its value is the time of a clock.
    pub clock: bool,
}

/// An enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enum {
    /// How the number is stored.
    pub int: Int,
    /// First and last value, and their name.
    pub labels: Vec<(i128, i128, String)>,
}

impl Enum {
    /// The names of a value.
    pub fn names(&self, value: i64) -> impl Iterator<Item = &str> {
        let value = if self.int.signed { i128::from(value) } else { i128::from(value as u64) };
        self.labels.iter().filter(move |(lo, hi, _)| (*lo..=*hi).contains(&value)).map(|(.., name)| name.as_str())
    }
}

/// How many elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Always as many.
    Fixed(u64),
    /// As many as the field of this name says, which came before.
    Field(String),
}

/// Named fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Names and types, in order.
    pub list: Vec<(String, Type)>,
    /// Bits.
    pub align: u32,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A whole number.
    Int(Int),
    /// A floating-point number: bits, and bits of alignment. Its value is not used.
    Float(u32, u32),
    /// Bytes up to a zero.
    Text,
    /// A number with names.
    Enum(Arc<Enum>),
    /// Fields one after the other.
    Struct(Arc<Fields>),
    /// One of several, chosen by the name of the value of an enumeration that came before.
    Variant(String, Arc<Fields>),
    /// Several of one type.
    Array(Arc<Type>, Length),
}

impl Type {
    /// Bits.
    pub fn align(&self) -> u32 {
        match self {
            Type::Int(int) => int.align,
            Type::Float(_, align) => *align,
            Type::Text => 8,
            Type::Enum(e) => e.int.align,
            Type::Struct(fields) => fields.align,
            Type::Variant(..) => 1,
            Type::Array(element, _) => element.align(),
        }
    }
}
