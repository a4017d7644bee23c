//! Runs and packed bits (`RLE`), which places in a dictionary and levels are written as, and packed
//! differences.

/// Values that are packed together.
const GROUP: usize = 8;
/// Most groups whose count fits into a header of one byte.
const MOST_GROUPS: u8 = 63;

/// Appends a number in seven bits a byte.
fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

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
        append(&word.to_le_bytes(), width as usize, out);
    } else if width <= 16 {
        let word = group.iter().rev().fold(0u128, |word, v| word << width | u128::from(*v));
        append(&word.to_le_bytes(), width as usize, out);
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

/// Appends the first `n` of some bytes. To append all and to cut is faster than to copy a number of bytes
/// that is not known before.
#[inline(always)]
fn append<const N: usize>(bytes: &[u8; N], n: usize, out: &mut Vec<u8>) {
    let end = out.len() + n.min(N);
    out.extend_from_slice(bytes);
    out.truncate(end);
}

/// Values of a block of differences, by four mini blocks of one width each.
const MINI_BLOCKS: usize = 4;

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// Numbers as the first of them and packed differences (`DELTA_BINARY_PACKED`); `narrow` ones have 32 bits.
pub fn deltas(values: &[i64], narrow: bool, out: &mut Vec<u8>) {
    let mini = if narrow { 32 } else { 64 };
    let block = mini * MINI_BLOCKS;
    varint(block as u64, out);
    varint(MINI_BLOCKS as u64, out);
    varint(values.len() as u64, out);
    let number = |v: i64| if narrow { i64::from(v as i32) } else { v };
    varint(zigzag(values.first().map_or(0, |v| number(*v))), out);
    let mut room = [0i64; 64 * MINI_BLOCKS];
    for begin in (1..values.len()).step_by(block) {
        let end = values.len().min(begin + block);
        let steps = &mut room[..end - begin];
        let pairs = values[begin - 1..end - 1].iter().zip(&values[begin..end]);
        steps.iter_mut().zip(pairs).for_each(|(step, (one, next))| *step = number(next.wrapping_sub(*one)));
        let least = steps.iter().fold(i64::MAX, |least, step| least.min(*step));
        varint(zigzag(least), out);
        let widths = out.len();
        out.extend_from_slice(&[0; MINI_BLOCKS]);
        for (i, steps) in steps.chunks_mut(mini).enumerate() {
            steps.iter_mut().for_each(|step| *step = step.wrapping_sub(least));
            let width = 64 - steps.iter().fold(0, |all, step| all | *step).leading_zeros();
            out[widths + i] = width as u8;
            pack(steps, width, mini, out);
        }
    }
}

/// Appends values of `width` bits, and zeros in place of those that are missing to `most`.
fn pack(values: &[i64], width: u32, most: usize, out: &mut Vec<u8>) {
    let (mut bytes, mut at) = ([0u8; 64 * 8], 0);
    let (mut word, mut bits) = (0u64, 0);
    for v in values {
        word |= (*v as u64) << bits;
        bits += width;
        if bits >= 64 {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            (at, bits) = (at + 8, bits - 64);
            word = (*v as u64).checked_shr(width - bits).unwrap_or(0);
        }
    }
    if bits > 0 {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&bytes[..most * width as usize / 8]);
}

/// Which rows have a value, as definition levels of one bit with their length before them. Bit `row`
/// of `set` says so.
pub fn levels(set: &[u64], rows: usize, nulls: usize, out: &mut Vec<u8>) {
    let length = out.len();
    out.extend_from_slice(&[0; 4]);
    if nulls == 0 || nulls == rows {
        varint((rows as u64) << 1, out);
        out.push(u8::from(nulls == 0));
    } else {
        varint((rows.div_ceil(8) as u64) << 1 | 1, out);
        let begin = out.len();
        out.extend(set.iter().flat_map(|word| word.to_le_bytes()));
        out.truncate(begin + rows.div_ceil(8));
    }
    let n = (out.len() - length - 4) as u32;
    out[length..length + 4].copy_from_slice(&n.to_le_bytes());
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

    fn read_deltas(mut data: &[u8], narrow: bool) -> Vec<i64> {
        let unzigzag = |n: u64| (n >> 1) as i64 ^ -((n & 1) as i64);
        let (block, minis) = (read_varint(&mut data) as usize, read_varint(&mut data) as usize);
        let (count, mut last) = (read_varint(&mut data) as usize, unzigzag(read_varint(&mut data)));
        let mut found = vec![last];
        while found.len() < count {
            let least = unzigzag(read_varint(&mut data));
            let (widths, rest) = data.split_at(minis);
            data = rest;
            for width in widths {
                if found.len() >= count {
                    assert_eq!(*width, 0);
                    continue;
                }
                let (width, n) = (usize::from(*width), block / minis);
                for i in 0..n {
                    let step =
                        (0..width).step_by(32).fold(0, |v, b| v | bits(data, i * width + b, 32.min(width - b)) << b);
                    last = last.wrapping_add(least).wrapping_add(step as i64);
                    last = if narrow { i64::from(last as i32) } else { last };
                    found.push(last);
                }
                data = &data[n * width / 8..];
            }
        }
        assert!(data.is_empty(), "{} bytes are left", data.len());
        found.truncate(count);
        found
    }

    proptest! {
        #[test]
        fn deltas_read_back(
            steps in prop::collection::vec((any::<i64>(), 0u32..64), 0..700),
            narrow in any::<bool>(),
        ) {
            let mut last = 0i64;
            let values: Vec<i64> = steps.iter().map(|(step, less)| {
                last = last.wrapping_add(step >> less);
                if narrow { i64::from(last as i32) } else { last }
            }).collect();
            let mut out = Vec::new();
            deltas(&values, narrow, &mut out);
            let found = read_deltas(&out, narrow);
            prop_assert_eq!(&found[..values.len()], values);
        }

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
        fn levels_read_back(values in prop::collection::vec(any::<bool>(), 1..300), all in any::<bool>()) {
            let values: Vec<bool> = values.iter().map(|v| *v || all).collect();
            let mut words = vec![0u64; values.len().div_ceil(64)];
            for row in (0..values.len()).filter(|row| values[*row]) {
                words[row / 64] |= 1 << (row % 64);
            }
            let mut out = Vec::new();
            levels(&words, values.len(), values.iter().filter(|v| !**v).count(), &mut out);
            prop_assert_eq!(u32::from_le_bytes(out[..4].try_into().unwrap()) as usize, out.len() - 4);
            let found = read_hybrid(&out[4..], 1, values.len());
            prop_assert_eq!(found.iter().map(|v| *v == 1).collect::<Vec<_>>(), values);
        }
    }
}
