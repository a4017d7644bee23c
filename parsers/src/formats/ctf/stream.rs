//! Packets of one stream, and the events in them.

use std::ops::Range;

use super::decode::{Cursor, Damaged, Leaves};
use super::tsdl::{Metadata, StreamClass};

/// What every packet begins with.
pub const MAGIC: u32 = 0xC1FC_1FC1;

/// The bytes of a trace's files.
pub type Bytes = std::sync::Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An event whose head was read.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Cycles of the clock.
    pub clock: u64,
    /// Number of its class.
    pub id: u64,
}

/// Events that a tracer dropped between two times, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// When the packet begins.
    pub begin: u64,
    pub count: u64,
    pub cpu: Option<i32>,
}

/// What there is next in a stream.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    Event(Found),
    Dropped(Dropped),
    /// Nothing after this can be read; the place is in bytes of the file.
    Damaged(&'static str, u64),
    /// The file ends within a packet.
    Cut(u64),
    End,
}

/// The packet being read.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    /// Where its content ends, and where it ends, in bits.
    content: u64,
    end: u64,
    cpu: Option<i32>,
    /// Whoever wrote it did not come to write its size.
    open: bool,
}

/// Is there nothing but zeros from a bit on, as files are made longer with?
fn is_padding(data: &[u8], at: u64) -> bool {
    let from = usize::try_from(at.div_ceil(8)).unwrap_or(usize::MAX);
    data.get(from..).is_none_or(|rest| rest.iter().all(|b| *b == 0))
}

/// A stream: one file.
pub struct Stream {
    bytes: Bytes,
    range: Range<usize>,
    pub path: String,
    class: u64,
    packet: Packet,
    /// Bits from the start of the file.
    at: u64,
    clock: u64,
    /// What the last packet said: events dropped so far, and its end.
    dropped: u64,
    packet_end: Option<u64>,
    /// Says once that the file was cut.
    cut: bool,
    ended: bool,
}

impl Stream {
    /// The file that lies at `range` of `bytes`.
    pub fn new(path: String, bytes: Bytes, range: Range<usize>) -> Self {
        Stream {
            bytes,
            range,
            path,
            class: 0,
            packet: Packet::default(),
            at: 0,
            clock: 0,
            dropped: 0,
            packet_end: None,
            cut: false,
            ended: false,
        }
    }

    /// Bytes of the file that were read.
    pub fn consumed(&self) -> u64 {
        self.at / 8
    }

    /// CPU of the packet.
    pub fn cpu(&self) -> Option<i32> {
        self.packet.cpu
    }

    fn cursor<'d>(&self, data: &'d [u8], at: u64, end: u64, meta: &Metadata) -> Cursor<'d> {
        Cursor { data, at, end, big_endian: meta.big_endian }
    }

    /// What comes next.
    pub fn next(&mut self, meta: &Metadata) -> Next {
        let bytes = self.bytes.clone();
        let data = &(*bytes).as_ref()[self.range.clone()];
        loop {
            if self.ended {
                return Next::End;
            }
            if self.at < self.packet.content && !(self.packet.open && is_padding(data, self.at)) {
                return self.event(data, meta);
            }
            if self.cut {
                self.ended = true;
                return Next::Cut(data.len() as u64);
            }
            self.at = self.packet.end;
            if self.at / 8 >= data.len() as u64 {
                self.ended = true;
                return Next::End;
            }
            match self.open(data, meta) {
                Ok(Some(dropped)) => return Next::Dropped(dropped),
                Ok(None) => {}
                Err(what) => {
                    self.ended = true;
                    return Next::Damaged(what, self.at / 8);
                }
            }
        }
    }

    /// Reads the head of the packet at `self.at`.
    fn open(&mut self, data: &[u8], meta: &Metadata) -> Result<Option<Dropped>, &'static str> {
        const HEAD: &str = "expected the header of a packet, found damage";
        let start = self.at;
        let whole = data.len() as u64 * 8;
        let mut cursor = self.cursor(data, start, whole, meta);
        let mut head = Leaves::default();
        if let Some(header) = &meta.packet_header {
            head.read(header, "", &mut cursor).map_err(|_| HEAD)?;
            if head.last("magic").is_some_and(|m| m as u32 != MAGIC) {
                return Err("expected the number C1FC1FC1 at the start of a packet, found another");
            }
        }
        self.class = head.last("stream_id").map_or(0, |n| n as u64);
        let class =
            meta.streams.get(&self.class).ok_or("a packet names a stream that the metadata does not declare")?;
        if let Some(context) = &class.packet_context {
            head.read(context, "", &mut cursor).map_err(|_| HEAD)?;
        }
        // Sizes of -1, as babeltrace's library writes them until it ends the packet, stand for none.
        let size = |name: &str| head.last(name).map(|n| n as u64).filter(|n| *n != u64::MAX);
        let left = whole - start;
        let open = head.last("packet_size").is_some() && size("packet_size").is_none();
        let packet = size("packet_size").unwrap_or(left);
        let content = size("content_size").unwrap_or(packet);
        if packet < cursor.at - start || packet % 8 != 0 || content > packet || content < cursor.at - start {
            return Err("expected a packet at least as large as its header, found another size");
        }
        self.cut = packet > left || open;
        let end = start.saturating_add(packet);
        self.packet = Packet {
            content: start.saturating_add(content).min(whole),
            end: end.min(whole),
            cpu: head.last("cpu_id").and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0),
            open,
        };
        self.at = cursor.at;
        if let Some((value, bits)) = head.clock {
            self.tick(value, bits);
        }
        let (begin, ended) =
            (head.last("timestamp_begin").map(|n| n as u64), head.last("timestamp_end").map(|n| n as u64));
        let total = head.last("events_discarded").map_or(0, |n| n as u64);
        let count = total.saturating_sub(self.dropped);
        let dropped =
            Dropped { from: self.packet_end.or(begin), to: ended, begin: self.clock, count, cpu: self.packet.cpu };
        self.dropped = total;
        self.packet_end = ended;
        Ok((count > 0).then_some(dropped))
    }

    /// Moves the clock to a value of which only the lower bits are stored.
    fn tick(&mut self, value: u64, bits: u32) {
        if bits >= 64 {
            self.clock = value;
            return;
        }
        let span = 1u64 << bits;
        let mut next = self.clock & !(span - 1) | value;
        if next < self.clock {
            next = next.wrapping_add(span);
        }
        self.clock = next;
    }

    /// Reads the head of the event at `self.at`, which stays there until its fields are read.
    fn event(&mut self, data: &[u8], meta: &Metadata) -> Next {
        let start = self.at;
        let mut cursor = self.cursor(data, start, self.packet.content, meta);
        let mut head = Leaves::default();
        let header = meta.streams.get(&self.class).and_then(|c| c.event_header.as_ref());
        if header.is_some_and(|header| head.read(header, "", &mut cursor).is_err()) {
            return self.damage(start);
        }
        let id = head.last("id").map_or(0, |n| n as u64);
        if let Some((value, bits)) = head.clock {
            self.tick(value, bits);
        }
        if !meta.events.contains_key(&(self.class, id)) {
            return self.damage(start);
        }
        Next::Event(Found { clock: self.clock, id })
    }

    /// Leaves out the rest of the packet: the next one can still be read.
    fn damage(&mut self, at: u64) -> Next {
        self.at = self.packet.content;
        if self.cut {
            self.ended = true;
            return Next::Cut(at / 8);
        }
        let what = "expected an event that the metadata declares, found damage; the packet's rest is left out";
        Next::Damaged(what, at / 8)
    }

    /// The name and the fields of the event that was found last, out of `data`, the bytes of the file.
    ///
    /// # Errors
    /// What to report when it is damaged.
    pub fn fields<'m, 'd>(
        &mut self,
        data: &'d [u8],
        meta: &'m Metadata,
        found: &Found,
    ) -> Result<(&'m str, Leaves<'m, 'd>), Next> {
        let start = self.at;
        let mut cursor = self.cursor(data, start, self.packet.content, meta);
        let mut leaves = Leaves::default();
        match self.read(meta, found.id, &mut cursor, &mut leaves) {
            Ok(name) if cursor.at > start => {
                self.at = cursor.at;
                Ok((name, leaves))
            }
            _ => Err(self.damage(start)),
        }
    }

    /// Reads a whole event; its name.
    fn read<'m, 'd>(
        &self,
        meta: &'m Metadata,
        id: u64,
        cursor: &mut Cursor<'d>,
        leaves: &mut Leaves<'m, 'd>,
    ) -> Result<&'m str, Damaged> {
        let class: &StreamClass = meta.streams.get(&self.class).ok_or(Damaged)?;
        let event = meta.events.get(&(self.class, id)).ok_or(Damaged)?;
        for context in [&class.event_header, &class.event_context, &event.context].into_iter().flatten() {
            leaves.read(context, "", cursor)?;
        }
        leaves.payload = leaves.list.len();
        if let Some(fields) = &event.fields {
            leaves.read(fields, "", cursor)?;
        }
        Ok(&event.name)
    }

    /// The bytes of the file.
    pub fn data(&self) -> (Bytes, Range<usize>) {
        (self.bytes.clone(), self.range.clone())
    }
}
