//! The encodings of Parquet's pages: runs and packed bits, and packed differences.

use super::thrift::{varint, zigzag};

/// Values that are packed together.
const GROUP: usize = 8;
/// Most groups whose count fits into a header of one byte.
const MOST_GROUPS: u8 = 63;

/// Bits that hold `n`, at least one.
pub fn width_of(n: u32) -> u32 {
    (32 - n.leading_zeros()).max(1)
}

/// Values of `width` bits as runs of the same value and groups of packed ones (`RLE`).
pub fn hybrid(values: &[u32], width: u32, out: &mut Vec<u8>) {
    // Where the header of the packed groups at the end stands, and how many they are.
    let mut open: Option<(usize, u8)> = None;
    let mut at = 0;
    while at < values.len() {
        let rest = &values[at..];
        let first = rest[0];
        let run = match rest.first_chunk::<GROUP>() {
            Some(group) if group.iter().fold(0, |d, v| d | (v ^ first)) == 0 => {
                rest.iter().position(|v| *v != first).unwrap_or(rest.len())
            }
            _ => 0,
        };
        if run > 0 {
            open = None;
            varint((run as u64) << 1, out);
            out.extend_from_slice(&first.to_le_bytes()[..width.div_ceil(8) as usize]);
            at += run;
            continue;
        }
        let (header, groups) = open.filter(|(_, groups)| *groups < MOST_GROUPS).unwrap_or_else(|| {
            out.push(0);
            (out.len() - 1, 0)
        });
        out[header] = (groups + 1) << 1 | 1;
        open = Some((header, groups + 1));
        let mut group = [0; GROUP];
        let n = rest.len().min(GROUP);
        group[..n].copy_from_slice(&rest[..n]);
        pack_group(&group, width, out);
        at += n;
    }
}

#[inline]
fn pack_group(group: &[u32; GROUP], width: u32, out: &mut Vec<u8>) {
    if width <= 8 {
        let word = group.iter().rev().fold(0u64, |word, v| word << width | u64::from(*v));
        out.extend_from_slice(&word.to_le_bytes()[..width as usize]);
    } else if width <= 16 {
        let word = group.iter().rev().fold(0u128, |word, v| word << width | u128::from(*v));
        out.extend_from_slice(&word.to_le_bytes()[..width as usize]);
    } else {
        let (mut word, mut bits) = (0u64, 0);
        for v in group {
            word |= u64::from(*v) << bits;
            bits += width;
            while bits >= 8 {
                out.push(word as u8);
                word >>= 8;
                bits -= 8;
            }
        }
    }
}

/// Which rows have a value, as definition levels of one bit with their length before them. Bit `row` of `valid` says so;
/// rows beyond it have none.
pub fn levels(valid: Option<&[u64]>, stored: usize, rows: usize, nulls: usize, out: &mut Vec<u8>) {
    let length = out.len();
    out.extend_from_slice(&[0; 4]);
    if nulls == 0 || nulls == rows {
        varint((rows as u64) << 1, out);
        out.push(u8::from(nulls == 0));
    } else {
        varint((rows.div_ceil(8) as u64) << 1 | 1, out);
        let begin = out.len();
        match valid {
            Some(words) => out.extend(words.iter().flat_map(|word| word.to_le_bytes())),
            None => {
                out.resize(begin + stored / 8, 0xff);
                out.push((1u16 << (stored % 8)) as u8 - 1);
            }
        }
        out.resize(begin + rows.div_ceil(8), 0);
    }
    let n = (out.len() - length - 4) as u32;
    out[length..length + 4].copy_from_slice(&n.to_le_bytes());
}

/// Values of a block of differences, and of each of its four parts, which have a width of their own.
const BLOCK: usize = 128;
const PART: usize = 32;

/// Numbers as differences, packed (`DELTA_BINARY_PACKED`).
pub fn delta(values: &[i64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint((BLOCK / PART) as u64, out);
    varint(values.len() as u64, out);
    let Some(first) = values.first() else {
        varint(0, out);
        return;
    };
    varint(zigzag(*first), out);
    let mut before = *first;
    for block in values[1..].chunks(BLOCK) {
        let mut deltas = [0i64; BLOCK];
        for (delta, value) in deltas.iter_mut().zip(block) {
            *delta = value.wrapping_sub(before);
            before = *value;
        }
        let least = deltas[..block.len()].iter().copied().min().unwrap_or(0);
        varint(zigzag(least), out);
        let mut above = [0u64; BLOCK];
        for (above, delta) in above.iter_mut().zip(&deltas[..block.len()]) {
            *above = delta.wrapping_sub(least) as u64;
        }
        let widths = out.len();
        out.extend_from_slice(&[0; BLOCK / PART]);
        for (i, part) in above.chunks_exact(PART).enumerate().take(block.len().div_ceil(PART)) {
            let width = 64 - part.iter().fold(0, |all, v| all | v).leading_zeros();
            out[widths + i] = width as u8;
            pack_part(part, width, out);
        }
    }
}

#[inline]
fn pack_part(part: &[u64], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut bits) = (0u128, 0);
    for v in part {
        word |= u128::from(*v) << bits;
        bits += width;
        if bits >= 64 {
            out.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= 64;
            bits -= 64;
        }
    }
    // 32 values of any width end at four bytes.
    out.extend_from_slice(&(word as u64).to_le_bytes()[..bits as usize / 8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_varint(data: &mut &[u8]) -> u64 {
        let mut n = 0;
        for shift in (0..).step_by(7) {
            let byte = data[0];
            *data = &data[1..];
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        n
    }

    fn unzigzag(n: u64) -> i64 {
        (n >> 1) as i64 ^ -((n & 1) as i64)
    }

    fn bits(data: &[u8], from: usize, width: usize) -> u64 {
        (0..width).map(|i| u64::from(data[(from + i) / 8] >> ((from + i) % 8) & 1) << i).sum()
    }

    fn read_hybrid(mut data: &[u8], width: usize, n: usize) -> Vec<u32> {
        let mut found = Vec::new();
        while found.len() < n {
            let header = read_varint(&mut data) as usize;
            if header & 1 == 0 {
                let bytes = width.div_ceil(8);
                let value = bits(data, 0, 8 * bytes) as u32;
                found.extend(std::iter::repeat_n(value, header >> 1));
                data = &data[bytes..];
            } else {
                let groups = header >> 1;
                found.extend((0..groups * 8).map(|i| bits(data, i * width, width) as u32));
                data = &data[groups * width..];
            }
        }
        assert!(data.is_empty(), "{} bytes are left", data.len());
        found.truncate(n);
        found
    }

    fn read_delta(mut data: &[u8]) -> Vec<i64> {
        let [block, parts, n] = [(); 3].map(|()| read_varint(&mut data) as usize);
        let mut value = unzigzag(read_varint(&mut data));
        let mut found = Vec::from_iter((n > 0).then_some(value));
        while found.len() < n {
            let least = unzigzag(read_varint(&mut data));
            let widths = data[..parts].to_vec();
            data = &data[parts..];
            for width in widths.into_iter().map(usize::from) {
                for i in 0..(block / parts).min(n - found.len()) {
                    value = value.wrapping_add(least).wrapping_add(bits(data, i * width, width) as i64);
                    found.push(value);
                }
                data = &data[width * (block / parts) / 8..];
            }
        }
        assert!(data.is_empty(), "{} bytes are left", data.len());
        found
    }

    proptest! {
        #[test]
        fn runs_and_groups_read_back(
            runs in prop::collection::vec((any::<u32>(), 1usize..40), 0..60),
            tail in prop::collection::vec(any::<u32>(), 0..1100),
            width in 1u32..=32,
        ) {
            let mask = u32::MAX >> (32 - width);
            let mut values: Vec<u32> = runs.iter().flat_map(|(v, n)| std::iter::repeat_n(v & mask, *n)).collect();
            values.extend(tail.iter().map(|v| v & mask));
            let mut out = Vec::new();
            hybrid(&values, width, &mut out);
            prop_assert_eq!(read_hybrid(&out, width as usize, values.len()), values);
        }

        #[test]
        fn differences_read_back(
            values in prop::collection::vec(any::<i64>(), 0..300),
            steps in prop::collection::vec(-5i64..2000, 0..600),
        ) {
            let mut near = vec![1_700_000_000_000_000_000];
            near.extend(steps.iter().scan(near[0], |at, step| { *at += step; Some(*at) }));
            for values in [values, near] {
                let mut out = Vec::new();
                delta(&values, &mut out);
                prop_assert_eq!(read_delta(&out), values);
            }
        }

        #[test]
        fn levels_read_back(values in prop::collection::vec(any::<bool>(), 1..300), all in any::<bool>()) {
            let values: Vec<bool> = values.iter().map(|v| *v || all).collect();
            let stored = values.iter().rposition(|v| *v).map_or(0, |i| i + 1);
            let mut words = vec![0u64; stored.div_ceil(64)];
            for row in (0..stored).filter(|row| values[*row]) {
                words[row / 64] |= 1 << (row % 64);
            }
            let nulls = values.iter().filter(|v| !**v).count();
            let dense = values[..stored].iter().all(|v| *v);
            let mut out = Vec::new();
            levels((!dense).then_some(&words), stored, values.len(), nulls, &mut out);
            prop_assert_eq!(u32::from_le_bytes(out[..4].try_into().unwrap()) as usize, out.len() - 4);
            let found = read_hybrid(&out[4..], 1, values.len());
            prop_assert_eq!(found.iter().map(|v| *v == 1).collect::<Vec<_>>(), values);
        }
    }

    #[test]
    fn a_steady_count_takes_no_bits() {
        let mut out = Vec::new();
        delta(&(0..12_800).collect::<Vec<_>>(), &mut out);
        assert!(out.len() < 100 * 6 + 10, "{} bytes", out.len());
    }
}
