//! A column whose values are places in a dictionary.
//!
//! The writer of the crate `parquet` looks up every value by its bytes, and compares every text for
//! the bounds of its page. Strings here have a number already, so a table takes them to their place,
//! and bounds are looked for among the entries that a page uses.

use std::collections::BTreeMap;

use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Encoding, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::chunk::Chunk;
use super::packed::{hybrid, width_of};
use super::rows::{present, Rows};
use super::{bytes_of, statistics, width, PAGE_ROWS};
use crate::table::Col;

/// Numbers below this are found by themselves: most are threads, processes, CPUs, priorities.
const NEAR: i64 = 1 << 16;

/// Numbers in order of their first appearance, found again by themselves or by open addressing.
#[derive(Default)]
pub struct Numbers {
    values: Vec<i64>,
    /// By number, the place plus 1; 0 for those that are new.
    near: Vec<u32>,
    /// Number and its place plus 1; 0 where the slot is empty.
    slots: Vec<(i64, u32)>,
    /// How many slots are taken.
    far: usize,
    /// Compared without their sign.
    unsigned: bool,
}

impl Numbers {
    /// The place of `value`, which is added when it is new.
    #[inline(always)]
    fn place(&mut self, value: i64) -> u32 {
        match self.near.get(value as usize) {
            Some(place) if *place > 0 => place - 1,
            _ if value as u64 >= NEAR as u64 && !self.slots.is_empty() => {
                let (_, place) = self.slots[self.find(value)];
                place.checked_sub(1).unwrap_or_else(|| self.add(value))
            }
            _ => self.add(value),
        }
    }

    #[cold]
    fn add(&mut self, value: i64) -> u32 {
        self.values.push(value);
        let place = self.values.len() as u32;
        if (0..NEAR).contains(&value) {
            let least = (value as usize + 1).next_power_of_two();
            self.near.resize(least.max(self.near.len()), 0);
            self.near[value as usize] = place;
        } else {
            self.far += 1;
            if self.far * 2 >= self.slots.len() {
                self.grow();
            }
            let slot = self.find(value);
            self.slots[slot] = (value, place);
        }
        place - 1
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

    fn grow(&mut self) {
        let room = (self.slots.len() * 2).max(256);
        let before = std::mem::replace(&mut self.slots, vec![(0, 0); room]);
        for (value, place) in before.into_iter().filter(|(_, place)| *place > 0) {
            let slot = self.find(value);
            self.slots[slot] = (value, place);
        }
    }

    fn clear(&mut self) {
        let near = self.values.drain(..).filter(|value| (0..NEAR).contains(value));
        near.for_each(|value| self.near[value as usize] = 0);
        self.slots.fill((0, 0));
        self.far = 0;
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
            Entries::Numbers(numbers) => bytes_of(numbers.values[place as usize], physical),
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
                statistics(at(least), at(most), nulls, physical)
            }
            Entries::Names(names) => {
                let at = |place: Option<u32>| place.map(|place| names.texts[place as usize].clone());
                Statistics::byte_array(at(least), at(most), None, Some(nulls), false)
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Entries::Numbers(numbers) => numbers.clear(),
            Entries::Names(names) => {
                names.texts.clear();
                names.replaced.clear();
                names.met.drain(..).for_each(|id| names.slots[id as usize] = 0);
            }
        }
    }
}

/// The rows of a row group: which have a value, and its place.
pub struct Listed {
    pub entries: Entries,
    places: Vec<u32>,
    rows: Rows,
}

impl Listed {
    /// No rows.
    pub fn new(entries: Entries) -> Self {
        Listed { entries, places: Vec::new(), rows: Rows::default() }
    }

    /// Adds rows of numbers.
    pub fn numbers<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, f: impl Fn(T) -> i64) {
        self.rows.add(col, rows);
        let Entries::Numbers(numbers) = &mut self.entries else { unreachable!("a column has one type") };
        present(col, |values| self.places.extend(values.iter().map(|v| numbers.place(f(*v)))));
    }

    /// Adds rows of strings that have a number.
    pub fn names<T: Copy + Default>(
        &mut self,
        col: &Col<T>,
        rows: usize,
        id: impl Fn(T) -> u32,
        text: impl Fn(u32) -> ByteArray,
    ) {
        self.rows.add(col, rows);
        let Entries::Names(names) = &mut self.entries else { unreachable!("a column has one type") };
        present(col, |values| self.places.extend(values.iter().map(|v| names.place(id(*v), &text))));
    }

    /// Bytes that the numbers of the dictionary take up; strings do not count.
    pub fn weight(&self, physical: Physical) -> usize {
        match &self.entries {
            Entries::Numbers(numbers) => numbers.values.len() * width(physical),
            Entries::Names(_) => 0,
        }
    }

    /// The numbers that were listed, and which rows have one.
    pub fn unlisted(&self) -> (&Rows, impl Iterator<Item = i64> + '_) {
        let Entries::Numbers(numbers) = &self.entries else { unreachable!("only numbers can be too many") };
        (&self.rows, self.places.iter().map(|place| numbers.values[*place as usize]))
    }

    /// Forgets all rows and entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
        self.rows.clear();
    }

    /// Ends the row group: its bytes, and what is known of them.
    pub fn close(&mut self, descr: &ColumnDescPtr, optional: bool) -> Result<(Bytes, ColumnCloseResult)> {
        let physical = descr.physical_type();
        let mut chunk = Chunk::new(physical, Encoding::RLE_DICTIONARY);
        chunk.dictionary(&self.entries.page(physical), self.entries.len())?;
        // The page that used an entry last, plus 1.
        let mut used = vec![0u32; self.entries.len()];
        let (mut places, mut whole) = (self.places.as_slice(), None);
        let mut body = Vec::new();
        for number in 0..self.rows.len().div_ceil(PAGE_ROWS) {
            let (rows, count) = self.rows.page(number);
            let (page, rest) = places.split_at(count);
            places = rest;
            body.clear();
            if optional {
                self.rows.levels(number, count, &mut body);
            }
            let width = width_of(self.entries.len().saturating_sub(1) as u32);
            body.push(width as u8);
            hybrid(page, width, &mut body);
            let bounds = self.bounds(page, number as u32 + 1, &mut used);
            whole = self.wider(whole, bounds);
            let bytes =
                bounds.map(|(low, high)| (self.entries.bytes(low, physical), self.entries.bytes(high, physical)));
            chunk.data(&body, rows, rows - count, bytes)?;
        }
        let nulls = (self.rows.len() - self.places.len()) as u64;
        let statistics = self.entries.statistics(whole, nulls, physical);
        let closed = chunk.close(descr, self.rows.len(), statistics, BoundaryOrder::UNORDERED)?;
        self.clear();
        Ok(closed)
    }

    /// The places of the least and of the greatest entry that a page uses.
    fn bounds(&self, page: &[u32], number: u32, used: &mut [u32]) -> Option<(u32, u32)> {
        if used.len() <= 64 {
            // A bit for each of few entries.
            let met = page.iter().fold(0u64, |met, place| met | 1 << (place % 64));
            let met = (0..64).filter(|place| met >> place & 1 == 1);
            return met.fold(None, |found, place| self.wider(found, Some((place, place))));
        }
        page.iter().for_each(|place| used[*place as usize] = number);
        let met = (0u32..).zip(used.iter()).filter(|(_, page)| **page == number);
        met.fold(None, |found, (place, _)| self.wider(found, Some((place, place))))
    }

    fn wider(&self, one: Option<(u32, u32)>, other: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let (Some((a, b)), Some((low, high))) = (one, other) else { return one.or(other) };
        let least = if self.entries.less(low, a) { low } else { a };
        Some((least, if self.entries.less(b, high) { high } else { b }))
    }
}
