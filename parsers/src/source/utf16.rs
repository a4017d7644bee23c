//! Text in UTF-16, as the shells of Windows write what a command prints to a file.

use std::io::{self, BufRead, BufReader, Read};

/// What such a text begins with, by byte order.
pub const LITTLE: &[u8] = &[0xff, 0xfe];
pub const BIG: &[u8] = &[0xfe, 0xff];

/// Bytes that are turned at a time.
const ROOM: usize = 16 * 1024;

/// The same text in UTF-8, without the mark of its byte order. What is no character is replaced.
pub struct Utf16<R> {
    stream: BufReader<R>,
    big: bool,
    begun: bool,
    /// A unit that waits for its other half.
    half: Option<u16>,
    text: Vec<u8>,
    at: usize,
}

impl<R: Read> Utf16<R> {
    pub fn new(stream: R, big: bool) -> Self {
        let stream = BufReader::with_capacity(ROOM, stream);
        Utf16 { stream, big, begun: false, half: None, text: Vec::new(), at: 0 }
    }

    /// Turns more units; none are left when nothing comes of it.
    fn turn(&mut self) -> io::Result<()> {
        self.text.clear();
        self.at = 0;
        while self.text.is_empty() {
            let units = self.units()?;
            let ends = units.is_empty();
            let mut all: Vec<u16> = self.half.take().into_iter().chain(units).collect();
            if !self.begun && !all.is_empty() {
                self.begun = true;
                all.remove(0);
            }
            let opens = |unit: &u16| (0xd800..0xdc00).contains(unit);
            self.half = all.pop_if(|unit| !ends && opens(unit));
            let mut room = [0; 4];
            for c in char::decode_utf16(all) {
                let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
                self.text.extend_from_slice(c.encode_utf8(&mut room).as_bytes());
            }
            if ends {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next units; none at the end. Half a unit at the end is none.
    fn units(&mut self) -> io::Result<Vec<u16>> {
        let unit = |pair: &[u8]| {
            let pair = [pair[0], pair[1]];
            if self.big {
                u16::from_be_bytes(pair)
            } else {
                u16::from_le_bytes(pair)
            }
        };
        let there = self.stream.fill_buf()?;
        let whole = there.len() & !1;
        if whole > 0 {
            let units = there[..whole].chunks_exact(2).map(unit).collect();
            self.stream.consume(whole);
            return Ok(units);
        }
        let mut pair = [0; 2];
        match self.stream.read_exact(&mut pair) {
            Ok(()) => Ok(vec![unit(&pair)]),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.text.len() {
            self.turn()?;
        }
        let n = buf.len().min(self.text.len() - self.at);
        buf[..n].copy_from_slice(&self.text[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Slowly(std::vec::IntoIter<u8>);

    impl Read for Slowly {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match (buf.first_mut(), self.0.next()) {
                (Some(place), Some(byte)) => *place = byte,
                _ => return Ok(0),
            }
            Ok(1)
        }
    }

    #[test]
    fn both_byte_orders_read_as_utf8() {
        let text = "comm=é日𝄞 pid=7\r\n".repeat(3000);
        for big in [false, true] {
            let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
            let mut all: Vec<u8> = "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes).collect();
            assert!(all.starts_with(if big { BIG } else { LITTLE }));
            let mut quick = String::new();
            Utf16::new(&all[..], big).read_to_string(&mut quick).unwrap();
            assert_eq!(quick, text);
            // Half a character at the end, and half a unit.
            all.extend([bytes(0xd834).to_vec(), vec![0x20]].concat());
            let mut slow = String::new();
            Utf16::new(Slowly(all.into_iter()), big).read_to_string(&mut slow).unwrap();
            assert_eq!(slow, format!("{text}\u{fffd}"));
        }
    }
}
