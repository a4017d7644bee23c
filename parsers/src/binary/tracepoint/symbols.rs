//! Kernel addresses to names, from the `kallsyms` text that a recording carries.

use tracekit_schema::{StrId, Strings};

/// The kernel's symbols; the text, often megabytes, is only looked at when an address must be named.
#[derive(Debug, Default)]
pub struct Symbols {
    text: Vec<u8>,
    /// Address, and where the name lies in `text`; sorted by address.
    sorted: Option<Vec<(u64, u32, u32)>>,
}

impl Symbols {
    /// Symbols of a `kallsyms` text: `address type name`, one a line.
    pub fn new(text: &[u8]) -> Self {
        Symbols { text: text.to_vec(), sorted: None }
    }

    /// Interns the name of the function that `address` lies in, or the address itself in hex.
    pub fn name(&mut self, address: u64, strings: &mut Strings) -> StrId {
        let text = &self.text;
        let sorted = self.sorted.get_or_insert_with(|| sort(text));
        let after = sorted.partition_point(|(a, ..)| *a <= address);
        match after.checked_sub(1).map(|i| sorted[i]) {
            // The last symbol has no end; an address far behind it lies in no function.
            Some((a, from, to)) if address - a < 1 << 24 => strings.intern(&text[from as usize..to as usize]),
            _ => strings.intern(format!("{address:#x}").as_bytes()),
        }
    }
}

fn sort(text: &[u8]) -> Vec<(u64, u32, u32)> {
    let mut found = Vec::new();
    let mut at = 0usize;
    for line in text.split(|b| *b == b'\n') {
        let start = at;
        at += line.len() + 1;
        if at > u32::MAX as usize {
            break;
        }
        let mut words = line.split(|b| *b == b' ' || *b == b'\t').filter(|w| !w.is_empty());
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let Some(address) = std::str::from_utf8(address).ok().and_then(|a| u64::from_str_radix(a, 16).ok()) else {
            continue;
        };
        let from = start + (name.as_ptr() as usize - line.as_ptr() as usize);
        if address != 0 {
            found.push((address, from as u32, (from + name.len()) as u32));
        }
    }
    found.sort_by_key(|(address, ..)| *address);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_around_an_address() {
        let mut s =
            Symbols::new(b"0000000000000000 t zero\nffff0100 T second\nffff0000 t first\nbad\nffff0200 D d\t[mod]\n");
        let mut strings = Strings::new();
        let mut name = |a| {
            let id = s.name(a, &mut strings);
            strings.text(id).into_owned()
        };
        assert_eq!(name(0xffff_0010), "first");
        assert_eq!(name(0xffff_0100), "second");
        assert_eq!(name(0xffff_0201), "d");
        assert_eq!(name(0x10), "0x10");
        assert_eq!(name(u64::MAX), "0xffffffffffffffff");
    }
}
