//! The entries of a tar archive.

use std::ops::Range;

/// Size of a tar block.
const BLOCK: usize = 512;

/// One file in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path, with `/`.
    pub path: String,
    /// Where its bytes lie; shorter than stated when the archive is cut.
    pub data: Range<usize>,
    /// True when the archive ends before the file does.
    pub cut: bool,
}

/// True when `bytes` starts with the header of a tar entry, recognised by its checksum.
pub fn is_tar(bytes: &[u8]) -> bool {
    bytes.first_chunk::<BLOCK>().is_some_and(checksum_fits)
}

fn checksum_fits(header: &[u8; BLOCK]) -> bool {
    let blank = |i: usize| (148..156).contains(&i);
    let sum: u64 = header.iter().enumerate().map(|(i, b)| if blank(i) { 32 } else { u64::from(*b) }).sum();
    header[0] != 0 && octal(&header[148..156]) == Some(sum)
}

fn octal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches(|c: char| c == '\0' || c == ' ');
    u64::from_str_radix(text, 8).ok()
}

/// The regular files of the archive; ends at the first block that is no header.
pub fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut at = 0usize;
    while let Some(header) = bytes.get(at..).and_then(|b| b.first_chunk::<BLOCK>()) {
        if !checksum_fits(header) {
            break;
        }
        let Some(size) = octal(&header[124..136]).and_then(|n| usize::try_from(n).ok()) else { break };
        let start = at + BLOCK;
        let end = start.saturating_add(size);
        if matches!(header[156], 0 | b'0') {
            let text = |range: Range<usize>| {
                String::from_utf8_lossy(crate::binary::bytes::until_nul(&header[range])).into_owned()
            };
            let prefix = if &header[257..262] == b"ustar" { text(345..500) } else { String::new() };
            let name = text(0..100);
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
            found.push(Entry { path, data: start..end.min(bytes.len()), cut: end > bytes.len() });
        }
        let Some(next) = end.checked_next_multiple_of(BLOCK) else { break };
        at = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, size: usize, kind: u8) -> Vec<u8> {
        let mut h = vec![0u8; BLOCK];
        h[..name.len()].copy_from_slice(name.as_bytes());
        h[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        h[156] = kind;
        h[148..156].fill(b' ');
        let sum: u64 = h.iter().map(|b| u64::from(*b)).sum();
        h[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        h
    }

    #[test]
    fn files_in_order_folders_left_out() {
        let mut tar = header("a/", 0, b'5');
        tar.extend(header("./a/b", 3, b'0'));
        tar.extend(b"xyz");
        tar.resize(3 * BLOCK, 0);
        tar.extend(header("c", 600, 0));
        tar.extend([7; 10]);
        assert!(is_tar(&tar));
        let entries = entries(&tar);
        assert_eq!(entries[0], Entry { path: "a/b".into(), data: 1024..1027, cut: false });
        assert_eq!((entries[1].data.clone(), entries[1].cut), (2048..2058, true));
        assert!(!is_tar(&tar[1..]));
    }
}
