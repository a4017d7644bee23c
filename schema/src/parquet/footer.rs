//! What stands at the end of a Parquet file: the indexes of pages, the schema, the row groups, the metadata.

use super::thrift::Struct;
use crate::table::{ColumnDef, Type};

/// Numbers of encodings in the format.
pub mod encoding {
    /// As they are.
    pub const PLAIN: i32 = 0;
    /// Runs and packed bits.
    pub const RLE: i32 = 3;
    /// Differences.
    pub const DELTA_BINARY_PACKED: i32 = 5;
    /// Places in a dictionary.
    pub const RLE_DICTIONARY: i32 = 8;
}

/// Zstandard.
const ZSTD: i32 = 6;

/// How values of a column are stored; the numbers are the format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    /// One bit.
    Boolean = 0,
    /// 32 bits.
    Int32 = 1,
    /// 64 bits.
    Int64 = 2,
    /// A float of 64 bits.
    Double = 5,
    /// Bytes of any length.
    ByteArray = 6,
}

/// A page of a column.
#[derive(Debug, Default)]
pub struct Page {
    /// Rows, and those without a value.
    pub rows: usize,
    /// Rows without a value.
    pub nulls: usize,
    /// How its values are encoded.
    pub encoding: i32,
    /// No value is less than the first or more than the second; none where it has no values.
    pub bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Where it stands in the file.
    pub offset: u64,
    /// Its bytes, header included.
    pub size: usize,
}

/// A column of a row group.
pub struct Chunk {
    /// Where its dictionary stands.
    pub dictionary: Option<u64>,
    /// Where its first page stands.
    pub data: u64,
    /// Bytes before compression, and after.
    pub plain: u64,
    /// Bytes in the file.
    pub size: u64,
    /// How values are stored, and whether they are unsigned numbers of 64 bits.
    pub kind: (Physical, bool),
    /// Its pages.
    pub pages: Vec<Page>,
    /// Where the bounds of its pages stand, and their length; 0 where there are none.
    pub index: (u64, usize),
    /// Where the places of its pages stand, and their length.
    pub offsets: (u64, usize),
}

/// A row group.
pub struct Group {
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub chunks: Vec<Chunk>,
}

impl Chunk {
    /// Bounds of all values: None where a page with values has none, or where there are no values.
    fn bounds(&self) -> Option<(&[u8], &[u8])> {
        let mut found: Option<(&[u8], &[u8])> = None;
        for page in self.pages.iter().filter(|page| page.nulls < page.rows) {
            let (low, high) = page.bounds.as_ref()?;
            let (low, high) = (low.as_slice(), high.as_slice());
            found = Some(found.map_or((low, high), |(least, most)| {
                let least = if self.less(low, least) { low } else { least };
                (least, if self.less(most, high) { high } else { most })
            }));
        }
        found
    }

    fn less(&self, a: &[u8], b: &[u8]) -> bool {
        let number = |bytes: &[u8]| {
            let wide = bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            match self.kind {
                (Physical::Int32, _) => i64::from(wide as i32),
                (_, true) => wide as i64 ^ i64::MIN,
                _ => wide as i64,
            }
        };
        match self.kind.0 {
            Physical::ByteArray => a < b,
            _ => number(a) < number(b),
        }
    }

    /// Writes the bounds and the places of its pages, for readers that skip pages.
    pub fn write_index(&mut self, at: u64, out: &mut Vec<u8>) {
        let begin = out.len();
        let here = |out: &Vec<u8>| at + (out.len() - begin) as u64;
        if self.pages.iter().all(|page| page.nulls == page.rows || page.bounds.is_some()) {
            let from = here(out);
            let mut index = Struct::new(out);
            index.bools(1, self.pages.iter().map(|page| page.nulls == page.rows));
            index.binaries(2, self.pages.iter().map(|page| page.bounds.as_ref().map_or(&[][..], |b| &b.0)));
            index.binaries(3, self.pages.iter().map(|page| page.bounds.as_ref().map_or(&[][..], |b| &b.1)));
            // Unordered: readers look at every page.
            index.i32(4, 0);
            index.i64s(5, self.pages.iter().map(|page| page.nulls as i64));
            index.end();
            self.index = (from, (here(out) - from) as usize);
        }
        let from = here(out);
        let mut offsets = Struct::new(out);
        let mut first = 0;
        offsets.structs(1, self.pages.iter(), |page, place| {
            place.i64(1, page.offset as i64);
            place.i32(2, page.size as i32);
            place.i64(3, first);
            first += page.rows as i64;
        });
        offsets.end();
        self.offsets = (from, (here(out) - from) as usize);
    }

    fn write(&self, name: &str, to: &mut Struct<'_>) {
        to.i64(2, 0);
        to.nested(3, |meta| {
            let mut encodings = vec![encoding::RLE];
            encodings.extend(self.dictionary.map(|_| encoding::PLAIN));
            encodings.extend(self.pages.iter().map(|page| page.encoding));
            encodings.sort_unstable();
            encodings.dedup();
            meta.i32(1, self.kind.0 as i32);
            meta.i32s(2, &encodings);
            meta.binaries(3, [name.as_bytes()].into_iter());
            meta.i32(4, ZSTD);
            meta.i64(5, self.pages.iter().map(|page| page.rows as i64).sum());
            meta.i64(6, self.plain as i64);
            meta.i64(7, self.size as i64);
            meta.i64(9, self.data as i64);
            if let Some(at) = self.dictionary {
                meta.i64(11, at as i64);
            }
            meta.nested(12, |statistics| {
                statistics.i64(3, self.pages.iter().map(|page| page.nulls as i64).sum());
                if let Some((least, most)) = self.bounds() {
                    statistics.binary(5, most);
                    statistics.binary(6, least);
                }
            });
        });
        to.i64(4, self.offsets.0 as i64);
        to.i32(5, self.offsets.1 as i32);
        if self.index.1 > 0 {
            to.i64(6, self.index.0 as i64);
            to.i32(7, self.index.1 as i32);
        }
    }
}

impl Group {
    fn write(&self, columns: &[ColumnDef], ordinal: usize, to: &mut Struct<'_>) {
        to.structs(1, self.chunks.iter().zip(columns), |(chunk, def), column| chunk.write(def.name, column));
        to.i64(2, self.chunks.iter().map(|chunk| chunk.plain as i64).sum());
        to.i64(3, self.rows as i64);
        let first = self.chunks.first().map_or(0, |chunk| chunk.dictionary.unwrap_or(chunk.data));
        to.i64(5, first as i64);
        to.i64(6, self.chunks.iter().map(|chunk| chunk.size as i64).sum());
        if let Ok(ordinal) = i16::try_from(ordinal) {
            to.i16(7, ordinal);
        }
    }
}

/// The footer: schema, row groups, and metadata as pairs.
pub fn write<'a>(
    columns: &[ColumnDef],
    groups: &[Group],
    metadata: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
    out: &mut Vec<u8>,
) {
    let mut file = Struct::new(out);
    file.i32(1, 2);
    let elements = std::iter::once(None).chain(columns.iter().map(Some)).collect::<Vec<_>>();
    file.structs(2, elements.into_iter(), |def, element| match def {
        None => {
            element.binary(4, b"schema");
            element.i32(5, columns.len() as i32);
        }
        Some(def) => element_of(def, element),
    });
    file.i64(3, groups.iter().map(|group| group.rows as i64).sum());
    file.structs(4, groups.iter().enumerate(), |(i, group), to| group.write(columns, i, to));
    file.structs(5, metadata, |(key, value), pair| {
        pair.binary(1, key.as_bytes());
        pair.binary(2, value.as_bytes());
    });
    file.binary(6, concat!("tracekit version ", env!("CARGO_PKG_VERSION")).as_bytes());
    // Bounds are ordered as the types say.
    file.structs(7, columns.iter(), |_, order| order.nested(1, |_| {}));
    file.end();
}

fn element_of(def: &ColumnDef, to: &mut Struct<'_>) {
    to.i32(1, super::column::physical(def.ty) as i32);
    to.i32(3, i32::from(!def.null.is_empty()));
    to.binary(4, def.name.as_bytes());
    let (converted, bits) = match def.ty {
        Type::Text | Type::Str | Type::Kind | Type::State => (0, 0),
        Type::U16 => (12, 16),
        Type::U32 => (13, 32),
        Type::U64 => (14, 64),
        Type::I64 | Type::I32 | Type::F64 | Type::Bool => return,
    };
    to.i32(6, converted);
    to.nested(10, |logical| match bits {
        0 => logical.nested(1, |_| {}),
        _ => logical.nested(10, |integer| {
            integer.byte(1, bits);
            integer.bool(2, false);
        }),
    });
}
