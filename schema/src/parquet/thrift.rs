//! Thrift's compact protocol, as far as the headers and the footer of a Parquet file need it. Writing only.

/// Types of fields and list elements.
#[derive(Clone, Copy)]
enum Wire {
    True = 1,
    False = 2,
    Byte = 3,
    I16 = 4,
    I32 = 5,
    I64 = 6,
    Binary = 8,
    List = 9,
    Struct = 12,
}

/// Adds a number in groups of seven bits, the lowest first.
pub fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A signed number as an unsigned one that is small where the number is near zero.
pub fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// A struct that is being written.
pub struct Struct<'o> {
    out: &'o mut Vec<u8>,
    last: i16,
}

impl<'o> Struct<'o> {
    /// Begins a struct at the end of `out`; `end` must follow.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Struct { out, last: 0 }
    }

    fn head(&mut self, id: i16, wire: Wire) {
        debug_assert!(id > self.last && id - self.last <= 15, "fields are written in order, close to each other");
        self.out.push(((id - self.last) as u8) << 4 | wire as u8);
        self.last = id;
    }

    /// A field of 8 bits.
    pub fn byte(&mut self, id: i16, value: u8) {
        self.head(id, Wire::Byte);
        self.out.push(value);
    }

    /// A field of 16 bits.
    pub fn i16(&mut self, id: i16, value: i16) {
        self.head(id, Wire::I16);
        varint(zigzag(value.into()), self.out);
    }

    /// A field of 32 bits, or of an enumeration.
    pub fn i32(&mut self, id: i16, value: i32) {
        self.head(id, Wire::I32);
        varint(zigzag(value.into()), self.out);
    }

    /// A field of 64 bits.
    pub fn i64(&mut self, id: i16, value: i64) {
        self.head(id, Wire::I64);
        varint(zigzag(value), self.out);
    }

    /// A field that is true or false.
    pub fn bool(&mut self, id: i16, value: bool) {
        self.head(id, if value { Wire::True } else { Wire::False });
    }

    /// A field of bytes or text.
    pub fn binary(&mut self, id: i16, value: &[u8]) {
        self.head(id, Wire::Binary);
        bytes(value, self.out);
    }

    /// A field that is a struct, whose fields `fill` writes.
    pub fn nested(&mut self, id: i16, fill: impl FnOnce(&mut Struct<'_>)) {
        self.head(id, Wire::Struct);
        let mut inner = Struct::new(self.out);
        fill(&mut inner);
        inner.end();
    }

    /// A list of structs.
    pub fn structs<T>(
        &mut self,
        id: i16,
        items: impl ExactSizeIterator<Item = T>,
        mut fill: impl FnMut(T, &mut Struct<'_>),
    ) {
        self.list(id, items.len(), Wire::Struct);
        for item in items {
            let mut inner = Struct::new(self.out);
            fill(item, &mut inner);
            inner.end();
        }
    }

    /// A list of texts or bytes.
    pub fn binaries<'a>(&mut self, id: i16, items: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.list(id, items.len(), Wire::Binary);
        for item in items {
            bytes(item, self.out);
        }
    }

    /// A list of numbers of 32 bits.
    pub fn i32s(&mut self, id: i16, items: &[i32]) {
        self.list(id, items.len(), Wire::I32);
        for item in items {
            varint(zigzag((*item).into()), self.out);
        }
    }

    /// A list of numbers of 64 bits.
    pub fn i64s(&mut self, id: i16, items: impl ExactSizeIterator<Item = i64>) {
        self.list(id, items.len(), Wire::I64);
        for item in items {
            varint(zigzag(item), self.out);
        }
    }

    /// A list of truths.
    pub fn bools(&mut self, id: i16, items: impl ExactSizeIterator<Item = bool>) {
        self.list(id, items.len(), Wire::True);
        for item in items {
            self.out.push(if item { Wire::True } else { Wire::False } as u8);
        }
    }

    fn list(&mut self, id: i16, len: usize, wire: Wire) {
        self.head(id, Wire::List);
        if len < 15 {
            self.out.push((len as u8) << 4 | wire as u8);
        } else {
            self.out.push(0xf0 | wire as u8);
            varint(len as u64, self.out);
        }
    }

    /// Ends it.
    pub fn end(self) {
        self.out.push(0);
    }
}

fn bytes(value: &[u8], out: &mut Vec<u8>) {
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}
