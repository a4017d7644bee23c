//! A column whose values are places in a dictionary.
//!
//! The writer of the crate `parquet` looks up every value by its bytes, and compares every text for
//! the bounds of its page. Strings here have a number already, so a table takes them to their place,
//! and bounds are looked for among the entries that a page uses. Headers, indexes and the footer
//! are the crate's.

use std::collections::BTreeMap;
use std::io::Write;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, Type as Physical, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::packed::{hybrid, levels, width_of};
use super::{LEVEL, PAGE_ROWS, SOUND};
use crate::table::Col;

/// Numbers in order of their first appearance, found again by open addressing.
#[derive(Default)]
pub struct Numbers {
    values: Vec<i64>,
    /// Number and its place plus 1; 0 where the slot is empty.
    slots: Vec<(i64, u32)>,
    /// Compared without their sign.
    unsigned: bool,
}

impl Numbers {
    /// The place of `value`, which is added when it is new.
    #[inline(always)]
    fn place(&mut self, value: i64) -> u32 {
        if self.values.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.find(value);
        if self.slots[slot].1 == 0 {
            self.values.push(value);
            self.slots[slot] = (value, self.values.len() as u32);
        }
        self.slots[slot].1 - 1
    }

    #[inline(always)]
    fn find(&self, value: i64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = ((value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.slots[slot].1 != 0 && self.slots[slot].0 != value {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(256);
        self.slots.clear();
        self.slots.resize(slots, (0, 0));
        for (place, value) in self.values.iter().enumerate() {
            let slot = self.find(*value);
            self.slots[slot] = (*value, place as u32 + 1);
        }
    }
}

/// Strings in order of their first appearance, found again by their number.
#[derive(Default)]
pub struct Names {
    texts: Vec<ByteArray>,
    /// By number, the place plus 1.
    slots: Vec<u32>,
    /// Numbers whose slot is taken.
    met: Vec<u32>,
    /// Texts in which something was replaced, which strings of different bytes can come to share: a
    /// dictionary holds no text twice.
    replaced: BTreeMap<Vec<u8>, u32>,
}

impl Names {
    /// The place of the string of this number; `text` is asked once for each number.
    #[inline(always)]
    fn place(&mut self, id: u32, text: impl Fn(u32) -> ByteArray) -> u32 {
        match self.slots.get(id as usize) {
            Some(slot) if *slot > 0 => slot - 1,
            _ => self.add(id, text(id)),
        }
    }

    #[cold]
    fn add(&mut self, id: u32, text: ByteArray) -> u32 {
        if id as usize >= self.slots.len() {
            self.slots.resize((id as usize + 1).next_power_of_two(), 0);
        }
        self.met.push(id);
        let next = self.texts.len() as u32;
        let known = if has_replacement(text.data()) {
            *self.replaced.entry(text.data().to_vec()).or_insert(next)
        } else {
            next
        };
        if known == next {
            self.texts.push(text);
        }
        self.slots[id as usize] = known + 1;
        known
    }
}

/// Whether U+FFFD stands in a text.
fn has_replacement(text: &[u8]) -> bool {
    text.windows(3).any(|three| three == "\u{fffd}".as_bytes())
}

/// What places stand for.
pub enum Entries {
    Numbers(Numbers),
    Names(Names),
}

impl Entries {
    /// None yet, of numbers; `unsigned` are compared without their sign.
    pub fn numbers(unsigned: bool) -> Self {
        Entries::Numbers(Numbers { unsigned, ..Numbers::default() })
    }

    /// None yet, of strings.
    pub fn names() -> Self {
        Entries::Names(Names::default())
    }

    fn len(&self) -> usize {
        match self {
            Entries::Numbers(numbers) => numbers.values.len(),
            Entries::Names(names) => names.texts.len(),
        }
    }

    /// Whether the entry at one place is less than that at another.
    fn less(&self, one: u32, other: u32) -> bool {
        let (one, other) = (one as usize, other as usize);
        match self {
            Entries::Numbers(Numbers { values, unsigned: true, .. }) => (values[one] as u64) < values[other] as u64,
            Entries::Numbers(Numbers { values, .. }) => values[one] < values[other],
            Entries::Names(Names { texts, .. }) => texts[one].data() < texts[other].data(),
        }
    }

    /// An entry as it stands in bounds.
    fn bytes(&self, place: u32, physical: Physical) -> Vec<u8> {
        match self {
            Entries::Numbers(numbers) => numbers.values[place as usize].to_le_bytes()[..width(physical)].to_vec(),
            Entries::Names(names) => names.texts[place as usize].data().to_vec(),
        }
    }

    /// All entries as they stand in their page.
    fn page(&self, physical: Physical) -> Vec<u8> {
        match self {
            Entries::Numbers(numbers) => {
                numbers.values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(width(physical))).collect()
            }
            Entries::Names(names) => {
                let texts = names.texts.iter().map(ByteArray::data);
                texts.flat_map(|t| (t.len() as u32).to_le_bytes().into_iter().chain(t.iter().copied())).collect()
            }
        }
    }

    fn statistics(&self, bounds: Option<(u32, u32)>, nulls: u64, physical: Physical) -> Statistics {
        let (least, most) = bounds.unzip();
        match self {
            Entries::Numbers(numbers) => {
                let at = |place: Option<u32>| place.map(|place| numbers.values[place as usize]);
                let (least, most) = (at(least), at(most));
                if physical == Physical::INT32 {
                    return Statistics::int32(
                        least.map(|v| v as i32),
                        most.map(|v| v as i32),
                        None,
                        Some(nulls),
                        false,
                    );
                }
                Statistics::int64(least, most, None, Some(nulls), false)
            }
            Entries::Names(names) => {
                let at = |place: Option<u32>| place.map(|place| names.texts[place as usize].clone());
                Statistics::byte_array(at(least), at(most), None, Some(nulls), false)
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Entries::Numbers(numbers) => {
                numbers.values.clear();
                numbers.slots.fill((0, 0));
            }
            Entries::Names(names) => {
                names.texts.clear();
                names.replaced.clear();
                names.met.drain(..).for_each(|id| names.slots[id as usize] = 0);
            }
        }
    }
}

fn width(physical: Physical) -> usize {
    if physical == Physical::INT32 {
        4
    } else {
        8
    }
}

/// The rows of a row group: which have a value, and its place.
pub struct Listed {
    pub entries: Entries,
    places: Vec<u32>,
    /// A bit for each row.
    set: Vec<u64>,
    rows: usize,
}

impl Listed {
    /// No rows.
    pub fn new(entries: Entries) -> Self {
        Listed { entries, places: Vec::new(), set: Vec::new(), rows: 0 }
    }

    /// Adds rows of numbers.
    pub fn numbers<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, f: impl Fn(T) -> i64) {
        self.note(col, rows);
        let Entries::Numbers(numbers) = &mut self.entries else { unreachable!("a column has one type") };
        super::present(col, |v| self.places.push(numbers.place(f(v))));
    }

    /// Adds rows of strings that have a number.
    pub fn names<T: Copy + Default>(
        &mut self,
        col: &Col<T>,
        rows: usize,
        id: impl Fn(T) -> u32,
        text: impl Fn(u32) -> ByteArray,
    ) {
        self.note(col, rows);
        let Entries::Names(names) = &mut self.entries else { unreachable!("a column has one type") };
        super::present(col, |v| self.places.push(names.place(id(v), &text)));
    }

    /// Notes which rows of a piece have a value.
    fn note<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize) {
        let (stored, valid) = (col.values().len(), col.validity());
        self.set.resize((self.rows + rows).div_ceil(64), 0);
        for word in 0..stored.div_ceil(64) {
            let known = stored - word * 64;
            let bits = valid.map_or(u64::MAX, |words| words[word]) & (u64::MAX >> 64usize.saturating_sub(known));
            let (at, shift) = (self.rows / 64 + word, self.rows % 64);
            self.set[at] |= bits << shift;
            let above = bits.checked_shr(64 - shift as u32).unwrap_or(0);
            if above != 0 {
                self.set[at + 1] |= above;
            }
        }
        self.places.reserve(stored);
        self.rows += rows;
    }

    /// Bytes that the numbers of the dictionary take up; strings do not count.
    pub fn weight(&self, physical: Physical) -> usize {
        match &self.entries {
            Entries::Numbers(numbers) => numbers.values.len() * width(physical),
            Entries::Names(_) => 0,
        }
    }

    /// The numbers that were listed, and for each row whether it has one.
    pub fn unlisted(&self) -> (impl Iterator<Item = i64> + '_, impl Iterator<Item = bool> + '_) {
        let Entries::Numbers(numbers) = &self.entries else { unreachable!("only numbers can be too many") };
        let values = self.places.iter().map(|place| numbers.values[*place as usize]);
        (values, (0..self.rows).map(|row| self.set[row / 64] >> (row % 64) & 1 == 1))
    }

    /// Forgets all rows and entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
        self.set.clear();
        self.rows = 0;
    }

    /// Ends the row group: its bytes, and what is known of them.
    pub fn close(&mut self, descr: &ColumnDescPtr, optional: bool) -> Result<(Bytes, ColumnCloseResult)> {
        let physical = descr.physical_type();
        let mut chunk = Chunk::new(physical);
        let dictionary = self.entries.page(physical);
        let (count, encoding) = (self.entries.len() as u32, Encoding::PLAIN);
        chunk.add(&dictionary, |buf| Page::DictionaryPage { buf, num_values: count, encoding, is_sorted: false })?;
        // The page that used an entry last, plus 1.
        let mut used = vec![0u32; self.entries.len()];
        let (mut places, mut whole) = (self.places.as_slice(), None);
        let mut body = Vec::new();
        for (number, set) in self.set.chunks(PAGE_ROWS / 64).enumerate() {
            let rows = PAGE_ROWS.min(self.rows - number * PAGE_ROWS);
            let count = set.iter().map(|word| word.count_ones() as usize).sum::<usize>();
            let (page, rest) = places.split_at(count);
            places = rest;
            body.clear();
            if optional {
                levels(set, rows, rows - count, &mut body);
            }
            let width = width_of(self.entries.len().saturating_sub(1) as u32);
            body.push(width as u8);
            hybrid(page, width, &mut body);
            let bounds = self.bounds(page, number as u32 + 1, &mut used);
            whole = self.wider(whole, bounds);
            let bytes =
                bounds.map(|(low, high)| (self.entries.bytes(low, physical), self.entries.bytes(high, physical)));
            chunk.add(&body, |buf| Page::DataPage {
                buf,
                num_values: rows as u32,
                encoding: Encoding::RLE_DICTIONARY,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            })?;
            chunk.index(rows, rows - count, bytes);
        }
        let nulls = (self.rows - self.places.len()) as u64;
        let statistics = self.entries.statistics(whole, nulls, physical);
        let closed = chunk.close(descr, self.rows, statistics)?;
        self.clear();
        Ok(closed)
    }

    /// The places of the least and of the greatest entry that a page uses.
    fn bounds(&self, page: &[u32], number: u32, used: &mut [u32]) -> Option<(u32, u32)> {
        let mut found = None;
        for place in page {
            let last = &mut used[*place as usize];
            if *last != number {
                *last = number;
                found = self.wider(found, Some((*place, *place)));
            }
        }
        found
    }

    fn wider(&self, one: Option<(u32, u32)>, other: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let (Some((a, b)), Some((low, high))) = (one, other) else { return one.or(other) };
        let least = if self.entries.less(low, a) { low } else { a };
        Some((least, if self.entries.less(b, high) { high } else { b }))
    }
}

/// The pages of a column in a row group.
struct Chunk {
    bytes: TrackedWrite<Vec<u8>>,
    columns: ColumnIndexBuilder,
    offsets: OffsetIndexBuilder,
    compressor: zstd::bulk::Compressor<'static>,
    /// Where data begins, bytes before compression, and the number of data pages.
    data: Option<u64>,
    plain: usize,
    pages: i32,
}

impl Chunk {
    fn new(physical: Physical) -> Self {
        Chunk {
            bytes: TrackedWrite::new(Vec::new()),
            columns: ColumnIndexBuilder::new(physical),
            offsets: OffsetIndexBuilder::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL).expect(SOUND),
            data: None,
            plain: 0,
            pages: 0,
        }
    }

    /// Adds a page with this body.
    fn add(&mut self, body: &[u8], page: impl FnOnce(Bytes) -> Page) -> Result<()> {
        let packed = self.compressor.compress(body)?;
        let page = CompressedPage::new(page(packed.into()), body.len());
        let written = SerializedPageWriter::new(&mut self.bytes).write_page(page)?;
        self.plain += written.uncompressed_size;
        if written.page_type != PageType::DICTIONARY_PAGE {
            self.data.get_or_insert(written.offset);
            self.pages += 1;
            self.offsets.append_offset_and_size(written.offset as i64, written.compressed_size as i32);
        }
        Ok(())
    }

    /// Puts the last page into the indexes.
    fn index(&mut self, rows: usize, nulls: usize, bounds: Option<(Vec<u8>, Vec<u8>)>) {
        let (least, most) = bounds.unwrap_or_default();
        self.columns.append(nulls == rows, least, most, nulls as i64);
        self.offsets.append_row_count(rows as i64);
    }

    fn close(
        mut self,
        descr: &ColumnDescPtr,
        rows: usize,
        statistics: Statistics,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        self.bytes.flush()?;
        let bytes = self.bytes.into_inner()?;
        let page = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let stats = vec![
            page(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
            page(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, self.pages),
        ];
        let metadata = ColumnChunkMetaData::builder(descr.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_page_encoding_stats(stats)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.plain as i64)
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(Some(0))
            .set_data_page_offset(self.data.unwrap_or_default() as i64)
            .set_statistics(statistics)
            .build()?;
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: Some(self.columns.build()?),
            offset_index: Some(self.offsets.build()),
        };
        Ok((bytes.into(), closed))
    }
}
