//! Which rows of a row group have a value.

use super::packed::levels;
use super::PAGE_ROWS;
use crate::table::Col;

/// A bit for each row.
#[derive(Default)]
pub struct Rows {
    bits: Vec<u64>,
    len: usize,
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds the rows of a piece.
    pub fn add<T: Copy + Default>(&mut self, col: &Col<T>, rows: usize) {
        let (stored, valid) = (col.values().len(), col.validity());
        let whole = |word: usize| u64::MAX >> 64usize.saturating_sub(stored - word * 64);
        let bits = |word: usize| valid.map_or(u64::MAX, |words| words[word]) & whole(word);
        self.append((0..stored.div_ceil(64)).map(bits), rows);
    }

    /// Adds rows of which bits say whether they have a value; what the bits do not reach has none.
    pub fn append(&mut self, bits: impl Iterator<Item = u64>, rows: usize) {
        self.bits.resize((self.len + rows).div_ceil(64), 0);
        let (mut at, shift) = (self.len / 64, self.len % 64);
        for bits in bits {
            self.bits[at] |= bits << shift;
            let above = bits.checked_shr(64 - shift as u32).unwrap_or(0);
            if above != 0 {
                self.bits[at + 1] |= above;
            }
            at += 1;
        }
        self.len += rows;
    }

    /// A bit for each row, 64 a word.
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// The rows of the page of this number, and how many have a value.
    pub fn page(&self, number: usize) -> (usize, usize) {
        let (rows, words) = self.words(number);
        (rows, words.iter().map(|word| word.count_ones() as usize).sum())
    }

    /// Appends the definition levels of a page, of whose rows so many have a value.
    pub fn levels(&self, number: usize, count: usize, out: &mut Vec<u8>) {
        let (rows, words) = self.words(number);
        levels(words, rows, rows - count, out);
    }

    fn words(&self, number: usize) -> (usize, &[u64]) {
        let rows = PAGE_ROWS.min(self.len - number * PAGE_ROWS);
        let begin = number * (PAGE_ROWS / 64);
        (rows, &self.bits[begin..begin + rows.div_ceil(64)])
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.len = 0;
    }
}

/// Calls `f` with the values that are set, many at a time.
#[inline(always)]
pub fn present<T: Copy + Default>(col: &Col<T>, mut f: impl FnMut(&[T])) {
    let values = col.values();
    let Some(words) = col.validity() else { return f(values) };
    let mut some = [T::default(); 64];
    for (word, values) in words.iter().zip(values.chunks(64)) {
        let (mut left, mut n) = (*word, 0);
        if left == u64::MAX {
            f(values);
            continue;
        }
        while left != 0 {
            some[n % 64] = values[left.trailing_zeros() as usize];
            (left, n) = (left & (left - 1), n + 1);
        }
        f(&some[..n]);
    }
}
