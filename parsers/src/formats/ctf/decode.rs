//! Fields out of the bits of a packet.

use std::borrow::Cow;

use super::tsdl::types::{Enum, Int, Length, Type};
use crate::binary::bytes::until_nul;
use crate::lttng;

/// Fields of one event, at most; more are damage, or made to keep a reader busy.
const MOST_STEPS: u32 = 1 << 16;
/// Values of one event that are kept.
const MOST_KEPT: usize = 512;

/// A place in the bits of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'d> {
    pub data: &'d [u8],
    /// Bits from the start of `data`.
    pub at: u64,
    /// Where the packet's content ends, in bits.
    pub end: u64,
    pub big_endian: bool,
}

/// The content ends before a field does, or no field can lie so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl<'d> Cursor<'d> {
    /// Moves on to a multiple of `align` bits.
    pub fn align(&mut self, align: u32) -> Result<(), Damaged> {
        self.at = self.at.checked_next_multiple_of(u64::from(align)).ok_or(Damaged)?;
        if self.at > self.end {
            return Err(Damaged);
        }
        Ok(())
    }

    fn skip(&mut self, bits: u64) -> Result<u64, Damaged> {
        let from = self.at;
        let to = from.checked_add(bits).filter(|to| *to <= self.end).ok_or(Damaged)?;
        self.at = to;
        Ok(from)
    }

    /// The next whole number.
    #[inline]
    pub fn int(&mut self, int: &Int) -> Result<u64, Damaged> {
        self.align(int.align)?;
        let from = self.skip(u64::from(int.size))?;
        let big = int.big_endian.unwrap_or(self.big_endian);
        let (byte, shift) = ((from / 8) as usize, (from % 8) as u32);
        let n = (shift + int.size).div_ceil(8) as usize;
        let bytes = self.data.get(byte..byte + n).ok_or(Damaged)?;
        let mut all = 0u128;
        if big {
            for b in bytes {
                all = all << 8 | u128::from(*b);
            }
            all >>= n as u32 * 8 - shift - int.size;
        } else {
            for b in bytes.iter().rev() {
                all = all << 8 | u128::from(*b);
            }
            all >>= shift;
        }
        let value = all as u64 & (u64::MAX >> (64 - int.size));
        let negative = int.signed && value >> (int.size - 1) & 1 == 1;
        Ok(if negative { value | !(u64::MAX >> (64 - int.size)) } else { value })
    }

    /// `n` whole bytes.
    fn bytes(&mut self, n: u64) -> Result<&'d [u8], Damaged> {
        self.align(8)?;
        let from = self.skip(n.checked_mul(8).ok_or(Damaged)?)?;
        let from = (from / 8) as usize;
        self.data.get(from..from + n as usize).ok_or(Damaged)
    }

    fn text(&mut self) -> Result<&'d [u8], Damaged> {
        self.align(8)?;
        let rest = self.data.get((self.at / 8) as usize..(self.end / 8) as usize).ok_or(Damaged)?;
        let n = memchr::memchr(0, rest).ok_or(Damaged)?;
        self.at += (n as u64 + 1) * 8;
        Ok(&rest[..n])
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Value<'m, 'd> {
    Int(i64),
    /// A number of 64 bits without a sign.
    Unsigned(u64),
    Label(&'m Enum, i64),
    Text(&'d [u8]),
}

/// A field of an event.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'m, 'd> {
    pub name: &'m str,
    pub value: Value<'m, 'd>,
}

/// The fields of one event (or packet header), in the order in which they are stored.
#[derive(Debug, Default)]
pub struct Leaves<'m, 'd> {
    pub list: Vec<Leaf<'m, 'd>>,
    /// The last value of the clock: bits, and how many of them there are.
    pub clock: Option<(u64, u32)>,
    /// Where the payload begins in `list`.
    pub payload: usize,
    steps: u32,
}

impl<'m, 'd> Leaves<'m, 'd> {
    fn push(&mut self, name: &'m str, value: Value<'m, 'd>) {
        if self.list.len() < MOST_KEPT {
            self.list.push(Leaf { name, value });
        }
    }

    /// The whole number of the field `name` that came last.
    pub fn last(&self, name: &str) -> Option<i64> {
        self.list.iter().rev().find(|l| l.name == name).and_then(|l| match l.value {
            Value::Int(n) | Value::Label(_, n) => Some(n),
            Value::Unsigned(n) => Some(n as i64),
            Value::Text(_) => None,
        })
    }

    /// Reads a field of this type.
    pub fn read(&mut self, found: &'m Type, name: &'m str, cursor: &mut Cursor<'d>) -> Result<(), Damaged> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Damaged);
        }
        match found {
            Type::Int(int) => {
                let value = cursor.int(int)?;
                if int.clock && name != "timestamp_end" {
                    self.clock = Some((value, int.size));
                }
                let whole = int.signed || value <= i64::MAX as u64;
                self.push(name, if whole { Value::Int(value as i64) } else { Value::Unsigned(value) });
            }
            Type::Float(size, align) => {
                cursor.align(*align)?;
                cursor.skip(u64::from(*size))?;
            }
            Type::Text => {
                let text = cursor.text()?;
                self.push(name, Value::Text(text));
            }
            Type::Enum(e) => {
                let value = cursor.int(&e.int)?;
                self.push(name, Value::Label(e, value as i64));
            }
            Type::Struct(fields) => {
                cursor.align(fields.align)?;
                for (name, found) in &fields.list {
                    self.read(found, name, cursor)?;
                }
            }
            Type::Variant(tag, options) => {
                let chosen = self.list.iter().rev().find(|l| l.name == tag).ok_or(Damaged)?;
                let Value::Label(e, value) = chosen.value else { return Err(Damaged) };
                let option = options.list.iter().find(|(option, _)| e.names(value).any(|n| n == option));
                let (_, found) = option.ok_or(Damaged)?;
                self.read(found, name, cursor)?;
            }
            Type::Array(element, length) => self.array(element, length, name, cursor)?,
        }
        Ok(())
    }

    fn array(
        &mut self,
        element: &'m Type,
        length: &Length,
        name: &'m str,
        cursor: &mut Cursor<'d>,
    ) -> Result<(), Damaged> {
        let n = match length {
            Length::Fixed(n) => *n,
            Length::Field(field) => u64::try_from(self.last(field).ok_or(Damaged)?).map_err(|_| Damaged)?,
        };
        if n > 0 {
            cursor.align(element.align())?;
        }
        match element {
            Type::Int(int) if int.character => {
                let text = cursor.bytes(n)?;
                self.push(name, Value::Text(until_nul(text)));
            }
            // Numbers that lie without gaps are passed over at once.
            Type::Int(int) if int.size % int.align == 0 => {
                cursor.skip(n.checked_mul(u64::from(int.size)).ok_or(Damaged)?)?;
            }
            _ => {
                for _ in 0..n {
                    self.read(element, name, cursor)?;
                }
            }
        }
        Ok(())
    }

    fn payload(&self, key: &str) -> Option<Value<'m, 'd>> {
        let same = |l: &&Leaf<'_, '_>| l.name == key || l.name.strip_prefix('_') == Some(key);
        self.list[self.payload..].iter().find(same).map(|l| l.value)
    }

    /// The fields of the payload as text.
    pub fn printed_payload(&self) -> String {
        let mut text = String::new();
        for leaf in &self.list[self.payload..] {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(leaf.name.strip_prefix('_').unwrap_or(leaf.name));
            text.push_str(" = ");
            text.push_str(&String::from_utf8_lossy(&print(leaf.value)));
        }
        text
    }
}

/// A value as babeltrace2 prints it.
fn print<'d>(value: Value<'_, 'd>) -> Cow<'d, [u8]> {
    match value {
        Value::Int(n) => n.to_string().into_bytes().into(),
        Value::Unsigned(n) => n.to_string().into_bytes().into(),
        Value::Text(text) => [b"\"", text, b"\""].concat().into(),
        Value::Label(e, n) => {
            let names: Vec<_> = e.names(n).map(|name| format!("\"{name}\"")).collect();
            let names = if names.is_empty() { "<unknown>".to_owned() } else { names.join(" | ") };
            format!("( {names} : container = {n} )").into_bytes().into()
        }
    }
}

impl lttng::Fields for Leaves<'_, '_> {
    fn int(&self, key: &str) -> Option<i64> {
        match self.payload(key)? {
            Value::Int(n) | Value::Label(_, n) => Some(n),
            Value::Unsigned(_) | Value::Text(_) => None,
        }
    }

    fn text(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        match self.payload(key)? {
            Value::Text(text) => Some(text.into()),
            other => Some(print(other)),
        }
    }

    fn printed(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        self.payload(key).map(print)
    }

    fn context(&self, key: &str) -> Option<i64> {
        let same = |l: &&Leaf<'_, '_>| l.name == key || l.name.strip_prefix('_') == Some(key);
        self.list[..self.payload].iter().rev().find(same).and_then(|l| match l.value {
            Value::Int(n) | Value::Label(_, n) => Some(n),
            Value::Unsigned(_) | Value::Text(_) => None,
        })
    }
}

impl<'d> Leaves<'_, 'd> {
    /// A text of the contexts.
    pub fn context_text(&self, key: &str) -> Option<&'d [u8]> {
        let same = |l: &&Leaf<'_, '_>| l.name == key || l.name.strip_prefix('_') == Some(key);
        self.list[..self.payload].iter().rev().find(same).and_then(|l| match l.value {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::ctf::tsdl;
    use proptest::prelude::*;

    fn int(size: u32, align: u32, signed: bool, big: bool) -> Int {
        Int { size, align, signed, big_endian: Some(big), character: false, clock: false }
    }

    #[test]
    fn integers_across_bytes() {
        let data = [0b1010_0101, 0b0011_1100, 0xff];
        let cursor = |at| Cursor { data: &data, at, end: 24, big_endian: false };
        assert_eq!(cursor(3).int(&int(7, 1, false, false)), Ok(0b001_0100));
        assert_eq!(cursor(3).int(&int(7, 1, false, true)), Ok(0b001_0100));
        assert_eq!(cursor(0).int(&int(12, 1, false, true)), Ok(0b1010_0101_0011));
        assert_eq!(cursor(16).int(&int(8, 8, true, true)).map(|n| n as i64), Ok(-1));
        assert_eq!(cursor(17).int(&int(8, 8, false, true)), Err(Damaged));
    }

    proptest! {
        /// A number that is written bit by bit is read back, in either order.
        #[test]
        fn integers_survive(value in any::<u64>(), size in 1u32..=64, at in 0u64..20, big in any::<bool>()) {
            let value = value & (u64::MAX >> (64 - size));
            let mut data = [0u8; 16];
            for bit in 0..size {
                let (place, set) = if big {
                    (at + u64::from(size - 1 - bit), value >> bit & 1)
                } else {
                    (at + u64::from(bit), value >> bit & 1)
                };
                let within = if big { 7 - place % 8 } else { place % 8 };
                data[(place / 8) as usize] |= (set as u8) << within;
            }
            let mut cursor = Cursor { data: &data, at, end: 128, big_endian: big };
            prop_assert_eq!(cursor.int(&int(size, 1, false, big)), Ok(value));
        }
    }

    #[test]
    fn fields_that_never_end_are_damage() {
        let text = "struct empty { }; struct a { struct empty x[1000]; }; struct b { struct a y[1000]; };\n\
                    event { id = 0; fields := struct b; };";
        let meta = tsdl::read(text).unwrap();
        let fields = meta.events[&(0, 0)].fields.as_ref().unwrap();
        let mut cursor = Cursor { data: &[0; 8], at: 0, end: 64, big_endian: false };
        assert_eq!(Leaves::default().read(fields, "", &mut cursor), Err(Damaged));
    }
}
