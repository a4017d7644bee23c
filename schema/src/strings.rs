//! An interner for the short, endlessly repeated strings of traces: task names, state letters, IRQ names.

use std::hash::{BuildHasherDefault, Hasher};

/// Index of a string in [`Strings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrId(pub u32);

/// Index of a text in [`Strings`]: good until [`Strings::forget_texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub u32);

/// Strings, each stored once and named by a dense [`StrId`] in order of first appearance.
///
/// Strings of at most 16 bytes (every Linux task name) take a path that loads them as one integer and never
/// compares bytes.
///
/// Texts ([`Self::keep`]) are another matter: payloads that hardly ever repeat. They are kept one
/// after the other, and only until the rows that hold them are drained, so that a long trace full
/// of them needs no more memory than a batch.
#[derive(Debug, Default, Clone)]
pub struct Strings {
    texts: Vec<u8>,
    text_ends: Vec<usize>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    short: Short,
    long: std::collections::HashMap<Box<[u8]>, u32, BuildHasherDefault<Fnv>>,
}

/// Strings and texts on their way to a thread that follows.
#[derive(Debug, Default)]
pub struct News {
    texts: Vec<u8>,
    text_ends: Vec<usize>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Strings {
    /// An empty interner.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of `text`, which is added when it is new.
    #[inline]
    pub fn intern(&mut self, text: &[u8]) -> StrId {
        if text.len() <= 16 {
            return self.intern_short(pack(text), text.len() as u8);
        }
        if let Some(&id) = self.long.get(text) {
            return StrId(id);
        }
        let id = self.add(text);
        self.long.insert(text.into(), id);
        StrId(id)
    }

    /// Keeps a text that is not worth looking up, until [`Self::forget_texts`].
    pub fn keep(&mut self, text: &[u8]) -> TextId {
        self.texts.extend_from_slice(text);
        self.text_ends.push(self.texts.len());
        TextId((self.text_ends.len() - 1) as u32)
    }

    /// The bytes of a text.
    pub fn get_text(&self, id: TextId) -> &[u8] {
        let i = id.0 as usize;
        let start = if i == 0 { 0 } else { self.text_ends[i - 1] };
        &self.texts[start..self.text_ends[i]]
    }

    /// Bytes that texts take up.
    pub fn text_bytes(&self) -> usize {
        self.texts.len()
    }

    /// Forgets all texts; their ids mean nothing any more. Strings stay.
    pub fn forget_texts(&mut self) {
        self.texts.clear();
        self.text_ends.clear();
    }

    /// What a [`follow`](Self::follow)er that knows `known` strings lacks, and all texts, which are
    /// forgotten here.
    pub fn news(&mut self, known: usize) -> News {
        let texts = std::mem::take(&mut self.texts);
        News { texts, text_ends: std::mem::take(&mut self.text_ends), ..self.new_names(known) }
    }

    /// What a [`follow`](Self::follow)er that knows `known` strings lacks, for one that looks no texts up.
    pub fn new_names(&self, known: usize) -> News {
        let from = known.checked_sub(1).map_or(0, |last| self.ends[last] as usize);
        News { bytes: self.bytes[from..].to_vec(), ends: self.ends[known..].to_vec(), ..News::default() }
    }

    /// Takes over what another interner has come to know, for who only looks up ids: nothing may be
    /// interned here.
    pub fn follow(&mut self, news: News) {
        self.texts = news.texts;
        self.text_ends = news.text_ends;
        self.bytes.extend_from_slice(&news.bytes);
        self.ends.extend_from_slice(&news.ends);
    }

    /// The id of the text in `field` up to its first NUL: a kernel's `char comm[16]`, taken in one load.
    #[inline]
    pub fn intern_padded(&mut self, field: [u8; 16]) -> StrId {
        const ONES: u128 = u128::MAX / 255;
        let word = u128::from_le_bytes(field);
        // The lowest set bit marks the lowest zero byte; what stands above may be wrong and is not looked at.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        let len = zeros.trailing_zeros() / 8;
        let key = if len >= 16 { word } else { word & ((1 << (8 * len)) - 1) };
        self.intern_short(key, len as u8)
    }

    /// The id of the text whose `len` bytes (at most 16) lie in `key` from its lowest byte on, zeros above.
    #[inline]
    pub fn intern_short(&mut self, key: u128, len: u8) -> StrId {
        let slot = self.short.find(key, len);
        if let Some(id) = self.short.at(slot) {
            return StrId(id);
        }
        self.add_short(key, len)
    }

    #[cold]
    fn add_short(&mut self, key: u128, len: u8) -> StrId {
        let id = self.add(&key.to_le_bytes()[..usize::from(len)]);
        self.short.insert(key, len, id);
        StrId(id)
    }

    /// The id of `text` when it is known already.
    pub fn find(&self, text: &[u8]) -> Option<StrId> {
        if text.len() <= 16 {
            let slot = self.short.find(pack(text), text.len() as u8);
            return self.short.at(slot).map(StrId);
        }
        self.long.get(text).map(|&id| StrId(id))
    }

    /// The bytes of `id`, as they stood in the source (not necessarily UTF-8).
    #[inline]
    pub fn get(&self, id: StrId) -> &[u8] {
        let i = id.0 as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.bytes[start..self.ends[i] as usize]
    }

    /// The text of `id`, invalid UTF-8 replaced.
    pub fn text(&self, id: StrId) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.get(id))
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when nothing was interned.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All strings in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(StrId(i as u32)))
    }

    fn add(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(u32::try_from(self.bytes.len()).expect("under 4 GiB of distinct names"));
        (self.ends.len() - 1) as u32
    }
}

#[inline]
fn pack(text: &[u8]) -> u128 {
    let mut word = [0u8; 16];
    word[..text.len()].copy_from_slice(text);
    u128::from_le_bytes(word)
}

/// Open addressing over packed strings.
#[derive(Debug, Clone)]
struct Short {
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    key: u128,
    /// Length of the text.
    len: u8,
    /// Id + 1, 0 where the slot is empty.
    id: u32,
}

impl Default for Short {
    fn default() -> Self {
        Short { slots: vec![Slot::default(); 1024], used: 0 }
    }
}

impl Short {
    #[inline]
    fn find(&self, key: u128, len: u8) -> usize {
        let mask = self.slots.len() - 1;
        let (low, high) = (key as u64, (key >> 64) as u64);
        let mixed = (low ^ high.rotate_left(32) ^ u64::from(len)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut slot = (mixed >> 40) as usize & mask;
        loop {
            let found = &self.slots[slot];
            if found.id == 0 || (found.key == key && found.len == len) {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }

    #[inline]
    fn at(&self, slot: usize) -> Option<u32> {
        self.slots[slot].id.checked_sub(1)
    }

    fn insert(&mut self, key: u128, len: u8, id: u32) {
        if self.used * 2 >= self.slots.len() {
            let grown = Short { slots: vec![Slot::default(); self.slots.len() * 2], used: 0 };
            let old = std::mem::replace(self, grown);
            for slot in old.slots.into_iter().filter(|s| s.id != 0) {
                self.insert(slot.key, slot.len, slot.id - 1);
            }
        }
        let slot = self.find(key, len);
        self.slots[slot] = Slot { key, len, id: id + 1 };
        self.used += 1;
    }
}

/// FNV-1a: the long strings are few, and their order must not depend on a random seed.
#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_text_same_id_through_growth() {
        let mut s = Strings::new();
        let ids: Vec<_> = (0..5000).map(|i| s.intern(format!("task-{i}").as_bytes())).collect();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(s.intern(format!("task-{i}").as_bytes()), *id);
            assert_eq!(s.get(*id), format!("task-{i}").as_bytes());
        }
        assert_eq!(s.len(), 5000);
    }

    #[test]
    fn texts_are_kept_as_they_come_until_forgotten() {
        let mut s = Strings::new();
        let (a, b, again) = (s.keep(b"a text"), s.keep(b""), s.keep(b"a text"));
        assert_eq!((s.get_text(a), s.get_text(b), s.get_text(again)), (&b"a text"[..], &b""[..], &b"a text"[..]));
        assert_eq!((s.text_bytes(), s.len()), (12, 0));
        s.forget_texts();
        let c = s.keep(b"new");
        assert_eq!((c, s.get_text(c), s.text_bytes()), (a, &b"new"[..], 3));
    }

    #[test]
    fn a_follower_knows_what_it_was_given() {
        let (mut s, mut follower) = (Strings::new(), Strings::new());
        for round in 0..3 {
            let known = s.len();
            let id = s.intern(format!("name {round}").as_bytes());
            s.intern(b"the same");
            let text = s.keep(b"a text");
            follower.follow(s.news(known));
            assert_eq!((follower.get(id), follower.get_text(text)), (s.get(id), &b"a text"[..]));
            assert_eq!((follower.len(), s.text_bytes()), (s.len(), 0));
        }
    }

    #[test]
    fn a_padded_field_is_its_text_up_to_the_first_nul() {
        let mut s = Strings::new();
        for (field, text) in [
            (*b"kworker/0:1\0junk", &b"kworker/0:1"[..]),
            (*b"sixteen bytes ok", b"sixteen bytes ok"),
            (*b"\0leftover bytes.", b""),
            (*b"\x01\x80\xff\0\x01\0\0\0\0\0\0\0\0\0\0\0", b"\x01\x80\xff"),
        ] {
            let id = s.intern_padded(field);
            assert_eq!(s.get(id), text);
            assert_eq!(s.intern(text), id);
        }
    }

    #[test]
    fn trailing_nul_is_part_of_the_text() {
        let mut s = Strings::new();
        assert_ne!(s.intern(b"a"), s.intern(b"a\0"));
        assert_ne!(s.intern(b""), s.intern(b"\0"));
        let long = s.intern(b"seventeen bytes..");
        assert_eq!(s.find(b"seventeen bytes.."), Some(long));
        assert_eq!(s.find(b"no"), None);
    }
}
