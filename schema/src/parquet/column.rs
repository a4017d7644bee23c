//! One column of a row group: its dictionary, its pages, and what is known of them.

use super::encode::{delta, hybrid, levels, width_of};
use super::footer::{encoding, Chunk, Page, Physical};
use super::numbers::Numbers;
use super::page::{bounded, Pages};
use crate::strings::{Strings, TextId};
use crate::table::{Col, ColumnDef, Type};

/// Entries of a dictionary of numbers; with more, differences take less room and are faster to make.
const MOST_NUMBERS: usize = 1 << 14;
/// A page with at least so many values, more than half of them new, needs no dictionary.
const ENOUGH: usize = 1024;

/// How values are written.
enum Way {
    /// Numbers that grow steadily: as differences.
    Steady,
    /// Numbers through a dictionary, until there are too many of them.
    Numbers(Numbers),
    /// Numbers of which there were too many.
    Many,
    /// Strings through a dictionary.
    Names(Names),
    /// As they are.
    Plain,
}

/// Strings by their id.
#[derive(Default)]
struct Names {
    /// By id, the place in `used`, plus 1.
    slots: Vec<u32>,
    /// The ids of the dictionary, and all whose slot is taken.
    used: Vec<u32>,
    met: Vec<u32>,
}

/// A column that is being written.
pub struct Column {
    def: &'static ColumnDef,
    physical: Physical,
    way: Way,
    pages: Pages,
    /// Values of the page at hand that are not null, or their places in the dictionary.
    numbers: Vec<i64>,
    places: Vec<u32>,
}

/// The physical type of a column.
pub fn physical(ty: Type) -> Physical {
    match ty {
        Type::I64 | Type::U64 => Physical::Int64,
        Type::I32 | Type::U32 | Type::U16 => Physical::Int32,
        Type::F64 => Physical::Double,
        Type::Bool => Physical::Boolean,
        Type::Text | Type::Str | Type::Kind | Type::State => Physical::ByteArray,
    }
}

impl Column {
    /// A column without rows.
    pub fn new(def: &'static ColumnDef) -> Self {
        let way = match def.ty {
            Type::I64 | Type::U64 if def.name.ends_with("ts_ns") || def.name.starts_with("seq") => Way::Steady,
            Type::I64 | Type::U64 | Type::I32 | Type::U32 | Type::U16 => Way::Numbers(Numbers::default()),
            Type::Str | Type::Kind | Type::State => Way::Names(Names::default()),
            Type::F64 | Type::Bool | Type::Text => Way::Plain,
        };
        let pages = Pages::new(!def.null.is_empty());
        Column { def, physical: physical(def.ty), way, pages, numbers: Vec::new(), places: Vec::new() }
    }

    /// Adds a page of numbers.
    pub fn integers<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, f: impl Fn(T) -> i64) {
        self.numbers.clear();
        present(col, |v| self.numbers.push(f(v)));
        let nulls = rows - self.numbers.len();
        self.begin(col, rows, nulls);
        let bounds = self.bounds();
        let encoding = match &mut self.way {
            Way::Steady => self.differences(),
            Way::Numbers(known) if !known.closed => {
                let before = known.len();
                self.places.clear();
                self.places.extend(self.numbers.iter().map(|v| known.place(*v)));
                let new = known.len() - before;
                if known.len() > MOST_NUMBERS || (self.places.len() >= ENOUGH && new > self.places.len() / 2) {
                    known.close(before);
                    if before == 0 {
                        self.way = Way::Many;
                    }
                    self.differences()
                } else {
                    let len = known.len();
                    self.dictionary(len)
                }
            }
            _ => self.differences(),
        };
        self.pages.end(Page { rows, nulls, encoding, bounds, ..Page::default() });
    }

    /// Adds a page of strings that have a number. Of strings with different numbers, `twin` finds one in use that reads the
    /// same: a dictionary holds no text twice.
    pub fn names<T: Copy + Default>(
        &mut self,
        col: &Col<T>,
        rows: usize,
        id: impl Fn(T) -> u32,
        twin: impl Fn(u32, &[u32]) -> Option<usize>,
    ) {
        let Way::Names(names) = &mut self.way else { unreachable!("strings that repeat have a dictionary") };
        self.places.clear();
        present(col, |v| {
            let id = id(v);
            if id as usize >= names.slots.len() {
                names.slots.resize((id as usize + 1).next_power_of_two(), 0);
            }
            let slot = &mut names.slots[id as usize];
            if *slot == 0 {
                *slot = match twin(id, &names.used) {
                    Some(place) => place as u32 + 1,
                    None => {
                        names.used.push(id);
                        names.used.len() as u32
                    }
                };
                names.met.push(id);
            }
            self.places.push(*slot - 1);
        });
        let (nulls, len) = (rows - self.places.len(), names.used.len());
        self.begin(col, rows, nulls);
        let encoding = self.dictionary(len);
        self.pages.end(Page { rows, nulls, encoding, ..Page::default() });
    }

    /// Adds a page of texts that hardly ever repeat.
    pub fn texts(&mut self, col: &Col<TextId>, rows: usize, strings: &Strings) {
        let (mut present_rows, mut bounds) = (0, None::<(String, String)>);
        present(col, |_| present_rows += 1);
        self.begin(col, rows, rows - present_rows);
        let body = &mut self.pages.body;
        present(col, |id| {
            let text = String::from_utf8_lossy(strings.get_text(id));
            plain_bytes(text.as_bytes(), body);
            let (least, most) = bounds.get_or_insert_with(|| (text.to_string(), text.to_string()));
            if *text < **least {
                text.as_ref().clone_into(least);
            }
            if *text > **most {
                text.as_ref().clone_into(most);
            }
        });
        let bounds = bounds.map(|(least, most)| bounded(&least, &most));
        self.pages.end(Page { rows, nulls: rows - present_rows, encoding: encoding::PLAIN, bounds, ..Page::default() });
    }

    /// Adds a page of truths.
    pub fn truths(&mut self, col: &Col<bool>, rows: usize) {
        self.numbers.clear();
        present(col, |v| self.numbers.push(v.into()));
        let nulls = rows - self.numbers.len();
        self.begin(col, rows, nulls);
        let bounds = self.bounds();
        let packed = self.numbers.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, v| byte << 1 | *v as u8));
        self.pages.body.extend(packed);
        self.pages.end(Page { rows, nulls, encoding: encoding::PLAIN, bounds, ..Page::default() });
    }

    /// Adds a page of floats, without bounds.
    pub fn floats(&mut self, col: &Col<f64>, rows: usize) {
        let mut found = Vec::new();
        present(col, |v| found.push(v));
        let nulls = rows - found.len();
        self.begin(col, rows, nulls);
        self.pages.body.extend(found.iter().flat_map(|v| v.to_le_bytes()));
        self.pages.end(Page { rows, nulls, encoding: encoding::PLAIN, ..Page::default() });
    }

    /// Ends the column of this row group: the bytes of its pages go to `out`, where `at` bytes stood before.
    pub fn finish(&mut self, text: impl Fn(u32) -> String, at: u64, out: &mut Vec<u8>) -> Chunk {
        let mut entries = Vec::new();
        let mut bounds = None;
        let count = match &mut self.way {
            Way::Numbers(known) => {
                known.values().iter().for_each(|v| plain_number(self.physical, *v, &mut entries));
                known.take()
            }
            Way::Names(names) => {
                let texts: Vec<String> = names.used.iter().map(|id| text(*id)).collect();
                texts.iter().for_each(|t| plain_bytes(t.as_bytes(), &mut entries));
                bounds = texts.iter().min().zip(texts.iter().max()).map(|(least, most)| bounded(least, most));
                names.met.drain(..).for_each(|id| names.slots[id as usize] = 0);
                names.used.clear();
                texts.len()
            }
            _ => 0,
        };
        let has_dictionary = self.pages.any(encoding::RLE_DICTIONARY);
        let unsigned = self.def.ty == Type::U64;
        self.pages.finish(has_dictionary.then_some((&entries, count)), bounds, (self.physical, unsigned), at, out)
    }

    /// Begins a page with which of its rows have a value.
    fn begin<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize, nulls: usize) {
        self.pages.body.clear();
        if self.pages.optional {
            levels(col.validity(), col.values().len(), rows, nulls, &mut self.pages.body);
        } else {
            assert_eq!(nulls, 0, "column `{}` is never null by its definition", self.def.name);
        }
    }

    fn bounds(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let flip = if self.def.ty == Type::U64 { i64::MIN } else { 0 };
        let first = *self.numbers.first()? ^ flip;
        let (least, most) = self.numbers.iter().fold((first, first), |(a, b), v| (a.min(*v ^ flip), b.max(*v ^ flip)));
        let [mut low, mut high] = [Vec::new(), Vec::new()];
        plain_number(self.physical, least ^ flip, &mut low);
        plain_number(self.physical, most ^ flip, &mut high);
        Some((low, high))
    }

    fn dictionary(&mut self, len: usize) -> i32 {
        let width = width_of(len.saturating_sub(1) as u32);
        self.pages.body.push(width as u8);
        hybrid(&self.places, width, &mut self.pages.body);
        encoding::RLE_DICTIONARY
    }

    /// The numbers without a dictionary: differences of 64 bits, and others as they are.
    fn differences(&mut self) -> i32 {
        if self.physical == Physical::Int64 {
            delta(&self.numbers, &mut self.pages.body);
            return encoding::DELTA_BINARY_PACKED;
        }
        self.numbers.iter().for_each(|v| plain_number(self.physical, *v, &mut self.pages.body));
        encoding::PLAIN
    }

    /// Compresses the page that was made.
    pub fn compress(&mut self, with: &mut super::page::Press) {
        self.pages.compress(with);
    }
}

/// Calls `f` with each value that is set.
#[inline(always)]
fn present<T: Copy + Default>(col: &Col<T>, mut f: impl FnMut(T)) {
    let values = col.values();
    let Some(words) = col.validity() else {
        values.iter().for_each(|v| f(*v));
        return;
    };
    for (word, values) in words.iter().zip(values.chunks(64)) {
        let mut left = *word;
        while left != 0 {
            f(values[left.trailing_zeros() as usize]);
            left &= left - 1;
        }
    }
}

fn plain_number(physical: Physical, value: i64, out: &mut Vec<u8>) {
    match physical {
        Physical::Int32 => out.extend_from_slice(&(value as i32).to_le_bytes()),
        Physical::Boolean => out.push(value as u8),
        _ => out.extend_from_slice(&value.to_le_bytes()),
    }
}

fn plain_bytes(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}
