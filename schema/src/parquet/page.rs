//! Pages of a column: compressed one by one, kept until the row group ends.

use super::footer::{encoding, Chunk, Page, Physical};
use super::thrift::Struct;

/// Most bytes of a text in bounds; longer ones are cut.
const BOUND: usize = 64;

/// Compresses pages.
pub struct Press {
    zstd: zstd::bulk::Compressor<'static>,
    buffer: Vec<u8>,
}

impl Press {
    /// Zstandard at `level`.
    pub fn new(level: i32) -> Self {
        let zstd = zstd::bulk::Compressor::new(level).expect("a level that zstd has");
        Press { zstd, buffer: Vec::new() }
    }

    fn press(&mut self, body: &[u8]) -> &[u8] {
        self.buffer.clear();
        self.buffer.reserve(zstd::zstd_safe::compress_bound(body.len()));
        self.zstd.compress_to_buffer(body, &mut self.buffer).expect("room for the worst case");
        &self.buffer
    }
}

/// The pages of one column of the row group at hand.
pub struct Pages {
    /// Whether rows may have no value.
    pub optional: bool,
    /// The page that is being made.
    pub body: Vec<u8>,
    /// The finished ones, compressed, with their headers.
    bytes: Vec<u8>,
    index: Vec<Page>,
    /// Bytes before compression, headers included.
    plain: u64,
}

impl Pages {
    /// None yet.
    pub fn new(optional: bool) -> Self {
        Pages { optional, body: Vec::new(), bytes: Vec::new(), index: Vec::new(), plain: 0 }
    }

    /// Ends the page in `body`; [`Self::compress`] must follow.
    pub fn end(&mut self, page: Page) {
        self.index.push(page);
    }

    /// Whether a page has this encoding.
    pub fn any(&self, encoding: i32) -> bool {
        self.index.iter().any(|page| page.encoding == encoding)
    }

    /// Compresses the page in `body`.
    pub fn compress(&mut self, press: &mut Press) {
        let page = self.index.last_mut().expect("a page was ended");
        let begin = self.bytes.len();
        let (rows, encoding) = (page.rows as i32, page.encoding);
        let header = put(&self.body, 0, &mut self.bytes, press, |header| {
            header.nested(5, |data| {
                data.i32(1, rows);
                data.i32(2, encoding);
                data.i32(3, super::footer::encoding::RLE);
                data.i32(4, super::footer::encoding::RLE);
            });
        });
        page.offset = begin as u64;
        page.size = self.bytes.len() - begin;
        self.plain += (header + self.body.len()) as u64;
    }

    /// Ends the column of a row group: moves its bytes to `out`, where `at` bytes stood before. `bounds` are those of all
    /// values, for pages that have none of their own.
    pub fn finish(
        &mut self,
        dictionary: Option<(&Vec<u8>, usize)>,
        bounds: Option<(Vec<u8>, Vec<u8>)>,
        kind: (Physical, bool),
        at: u64,
        out: &mut Vec<u8>,
    ) -> Chunk {
        let mut pages = std::mem::take(&mut self.index);
        let (begin, mut plain) = (out.len(), std::mem::take(&mut self.plain));
        if let Some((entries, count)) = dictionary {
            let mut press = Press::new(super::LEVEL);
            let header = put(entries, 2, out, &mut press, |header| {
                header.nested(7, |page| {
                    page.i32(1, count as i32);
                    page.i32(2, encoding::PLAIN);
                });
            });
            plain += (header + entries.len()) as u64;
        }
        let data = at + (out.len() - begin) as u64;
        out.append(&mut self.bytes);
        for page in &mut pages {
            page.offset += data;
            if page.bounds.is_none() && page.nulls < page.rows {
                page.bounds.clone_from(&bounds);
            }
        }
        Chunk {
            dictionary: dictionary.is_some().then_some(at),
            data,
            plain,
            size: (out.len() - begin) as u64,
            kind,
            pages,
            index: (0, 0),
            offsets: (0, 0),
        }
    }
}

/// A page of type `kind`, with its header, whose further fields `fill` writes; gives the length of the header.
fn put(body: &[u8], kind: i32, out: &mut Vec<u8>, press: &mut Press, fill: impl FnOnce(&mut Struct<'_>)) -> usize {
    let begin = out.len();
    let packed = press.press(body);
    let mut header = Struct::new(out);
    header.i32(1, kind);
    header.i32(2, body.len() as i32);
    header.i32(3, packed.len() as i32);
    fill(&mut header);
    header.end();
    let length = out.len() - begin;
    out.extend_from_slice(packed);
    length
}

/// Bounds of texts, cut where they are long: a least one may be shorter, a most one must not be less.
pub fn bounded(least: &str, most: &str) -> (Vec<u8>, Vec<u8>) {
    let low = &least[..least.floor_char_boundary(BOUND)];
    if most.len() <= BOUND {
        return (low.into(), most.into());
    }
    let mut high = most[..most.floor_char_boundary(BOUND)].to_owned();
    while let Some(last) = high.pop() {
        // No character stands between the surrogates; after the last one there is none.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            high.push(next);
            return (low.into(), high.into());
        }
    }
    (low.into(), most.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bounds_hold_what_they_bound(texts in prop::collection::vec("[a\u{d7ff}\u{10ffff}z]{0,40}", 1..6)) {
            let (least, most) = (texts.iter().min().unwrap(), texts.iter().max().unwrap());
            let (low, high) = bounded(least, most);
            prop_assert!(low.as_slice() <= least.as_bytes() && most.as_bytes() <= high.as_slice());
            prop_assert!(low.len() <= BOUND);
        }
    }
}
