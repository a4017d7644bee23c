//! Raw tracepoint record -> one row of `events`.
//!
//! Every event's format is compiled once into a list of (column, offset, size) moves, so that a
//! record costs a few loads and no allocation.

use super::format::{Content, EventFormat, Int, Text};
use super::mapping::{self, To};
use super::print_fmt::{pairs, StateTable};
use super::quick::Shape;
use super::symbols::Symbols;
use crate::binary::bytes::until_nul;
use crate::binary::tasks::Tasks;
use crate::text::log::{Stamp, Who};
use crate::text::payload::state::from_letters;
use crate::text::stage::Stage;
use std::ops::Range;
use tracekit_schema::events::{irq, EventRow};
use tracekit_schema::{Code, Diagnostic, Kind, Out, State, StrId, Strings};

/// One field's way into the table.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The column.
    pub to: To,
    /// The field.
    pub from: Content,
}

/// The compiled form of one event.
#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    /// Name of the record, as `system:event`.
    event: String,
    /// What goes to `name` when no field does: the event's own name, or the system call's.
    name: Option<String>,
    name_id: Option<StrId>,
    pid: Option<Int>,
    flags: Option<Int>,
    preempt: Option<Int>,
    /// The common fields lie where they lie in every kernel but the oldest.
    usual: bool,
    shape: Option<Shape>,
    moves: Vec<Move>,
    symbols: Vec<(u64, String)>,
    seen: u64,
}

/// What a record said, for callers that add more to the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Its kind.
    pub kind: Kind,
    /// `common_pid`.
    pub ctx_tid: Option<i64>,
    /// Subject.
    pub tid: Option<i64>,
    /// Who enters, at a switch.
    pub next_tid: Option<i64>,
    /// True when the record was too short for some field, or its text lies outside it.
    pub partial: bool,
    /// True when its number has no format.
    pub unknown: bool,
}

const NONE: u16 = u16::MAX;
/// Set in `index` for formats that are not compiled yet.
const PENDING: u16 = 1 << 15;

/// A format that no record has asked for yet. A kernel has some thousand events, a recording a dozen.
#[derive(Clone, Debug)]
struct Pending {
    system: u16,
    name: String,
    text: Range<usize>,
}

/// Decodes the records of one trace.
#[derive(Debug, Default)]
pub struct Decoder {
    be: bool,
    /// Where `common_type` lies.
    number: Option<Int>,
    /// Event number -> index in `plans`.
    index: Vec<u16>,
    plans: Vec<Plan>,
    pending: Vec<Pending>,
    systems: Vec<String>,
    texts: Vec<u8>,
    /// The kernel's own table of task states.
    pub states: StateTable,
    state_cache: Vec<Option<(State, StrId)>>,
    /// Kernel addresses to names.
    pub symbols: Symbols,
    unknown: u64,
}

impl Decoder {
    /// A decoder without events.
    pub fn new(be: bool) -> Self {
        Decoder { be, ..Self::default() }
    }

    /// Are records big-endian?
    #[inline]
    pub fn be(&self) -> bool {
        self.be
    }

    /// How many events are known.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// True when no event is known.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Takes the format file `text` of an event of `system`; the first one of a number stays.
    ///
    /// Events that have a kind are compiled at once, others when the first record needs them.
    pub fn add(&mut self, system: &str, text: &[u8]) {
        let Some((name, id)) = name_and_number(text) else { return };
        if self.index.len() <= id {
            self.index.resize(id + 1, NONE);
        }
        if self.index[id] != NONE || self.plans.len().max(self.pending.len()) >= usize::from(PENDING) - 1 {
            return;
        }
        if self.number.is_none() || mapping::row(system, name).is_some() {
            self.compile(id, system, text);
            return;
        }
        if self.systems.last().is_none_or(|s| s != system) {
            self.systems.push(system.to_owned());
        }
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        self.index[id] = PENDING | self.pending.len() as u16;
        let system = (self.systems.len() - 1).min(usize::from(NONE)) as u16;
        self.pending.push(Pending { system, name: name.to_owned(), text: start..self.texts.len() });
    }

    fn compile(&mut self, id: usize, system: &str, text: &[u8]) {
        let Some(format) = EventFormat::parse(system, &String::from_utf8_lossy(text)) else { return };
        self.index[id] = self.plans.len() as u16;
        self.number = self.number.or(format.int("common_type"));
        if format.name == "sched_switch" {
            self.states = StateTable::from_print_fmt(&format.print_fmt);
        }
        self.plans.push(Plan::compile(&format));
    }

    /// Compiles the format of `id` that was put off; its place among the plans.
    #[cold]
    fn settle(&mut self, id: usize) -> u16 {
        let pending = &self.pending[usize::from(self.index[id] & !PENDING)];
        let (system, text) =
            (self.systems[usize::from(pending.system)].clone(), self.texts[pending.text.clone()].to_vec());
        self.index[id] = NONE;
        self.compile(id, &system, &text);
        self.index[id]
    }

    /// Is there an event whose fields hold addresses?
    pub fn needs_symbols(&self) -> bool {
        self.plans.iter().any(|p| p.moves.iter().any(|m| m.to == To::Address))
    }

    /// The number of the event that `record` is.
    #[inline]
    pub fn number(&self, record: &[u8]) -> Option<u32> {
        self.number?.get(record, self.be).map(|n| n as u32)
    }

    /// The kind of the event with this number.
    pub fn kind(&self, number: u32) -> Option<Kind> {
        match *self.index.get(number as usize)? {
            NONE => None,
            put_off if put_off & PENDING != 0 => {
                let event = &self.pending[usize::from(put_off & !PENDING)];
                let call = self.systems[usize::from(event.system)] == "syscalls";
                Some(mapping::syscall(&event.name).filter(|_| call).map_or(Kind::Other, |(kind, _)| kind))
            }
            plan => self.plans.get(usize::from(plan)).map(|p| p.kind),
        }
    }

    /// The name of the event with this number.
    pub fn name(&self, number: u32) -> Option<&str> {
        match *self.index.get(number as usize)? {
            NONE => None,
            put_off if put_off & PENDING != 0 => Some(&self.pending[usize::from(put_off & !PENDING)].name),
            plan => self.plans.get(usize::from(plan)).map(|p| p.event.as_str()),
        }
    }

    /// Adds the row of a usual record to `stage`, which has room; false when the record needs
    /// [`Self::decode`]. The stamp's context is set here, from the record and from what `tasks`
    /// knows of it. `be` says again whether records are big-endian, so that a caller who states it
    /// for all of them gets code of one byte order.
    #[inline(always)]
    pub fn stage<const PIDS: bool>(
        &mut self,
        be: bool,
        record: &[u8],
        stamp: &mut Stamp,
        tasks: &Tasks,
        stage: &mut Stage,
        strings: &mut Strings,
    ) -> bool {
        debug_assert_eq!(be, self.be);
        let Some(&[n0, n1, flags, preempt, ref pid @ ..]) = record.first_chunk::<8>() else { return false };
        let number = if be { u16::from_be_bytes([n0, n1]) } else { u16::from_le_bytes([n0, n1]) };
        let plan = self.index.get(usize::from(number)).and_then(|plan| self.plans.get_mut(usize::from(*plan)));
        let Some(plan) = plan.filter(|p| p.usual) else { return false };
        let Some(shape) = &plan.shape else { return false };
        let tid = i64::from(if be { i32::from_be_bytes(*pid) } else { i32::from_le_bytes(*pid) });
        let task = tasks.get(tid);
        stamp.who = Who { tid: Some(tid), pid: task.pid(), comm: task.comm() };
        stamp.irq = Some(irq_flags(flags, preempt));
        let (cache, table) = (&mut self.state_cache, &mut self.states);
        let states = |value, strings: &mut Strings| cached(cache, table, value, strings);
        let done = shape.stage::<PIDS>(record, be, stamp, (stage, strings), tasks, states).is_some();
        plan.seen += u64::from(done);
        done
    }

    /// Takes what the kernel's release says of its records, and says so.
    pub fn of_kernel(&mut self, release: &str, out: &mut Out) {
        if self.states.of_kernel(release) {
            let message = format!("kernel {release} writes the place of a task state in its table, not its bit");
            out.diag(
                Diagnostic::new(Code::Inferred, message).advise("states are read so; a repaired 4.14 is recognised"),
            );
        }
    }

    /// Sets kind, context, subject and values of `row` from `record`; time, CPU, order and quality
    /// are the caller's.
    #[inline]
    pub fn decode(&mut self, record: &[u8], row: &mut EventRow<'_>, strings: &mut Strings) -> Decoded {
        let number = self.number(record);
        let mut plan = number.and_then(|n| self.index.get(n as usize)).copied().unwrap_or(NONE);
        if plan & PENDING != 0 && plan != NONE {
            plan = self.settle(number.unwrap_or(0) as usize);
        }
        let Some(plan) = self.plans.get_mut(usize::from(plan)) else {
            return self.unknown(number, record, row, strings);
        };
        plan.seen += 1;
        let be = self.be;
        let mut done = Decoded { kind: plan.kind, ..Decoded::default() };
        row.kind(plan.kind);
        match record.first_chunk::<8>().filter(|_| plan.usual) {
            Some(&[_, _, flags, preempt, pid @ ..]) => {
                let tid = if be { i32::from_be_bytes(pid) } else { i32::from_le_bytes(pid) };
                done.ctx_tid = Some(i64::from(tid));
                row.ctx_tid(i64::from(tid)).irq_flags(irq_flags(flags, preempt));
            }
            None => done.ctx_tid = plan.context(record, be, row),
        }
        if let Some(name) = &plan.name {
            let id = *plan.name_id.get_or_insert_with(|| strings.intern(name.as_bytes()));
            row.name(id);
        }
        for m in &plan.moves {
            let moved = match m.from {
                Content::Int(int) => match int.get(record, be) {
                    None => false,
                    Some(value) => {
                        match m.to {
                            // -1 stands for none, as in a wait for any child.
                            To::Tid => {
                                done.tid = (value >= 0).then_some(value);
                                row.tid(done.tid);
                            }
                            To::NextTid => {
                                done.next_tid = (value >= 0).then_some(value);
                                row.next_tid(done.next_tid);
                            }
                            To::State => {
                                let (state, raw) = cached(&mut self.state_cache, &mut self.states, value, strings);
                                row.state(state).state_raw(raw);
                            }
                            To::Symbol => {
                                row.value(value);
                                if let Some((_, s)) = plan.symbols.iter().find(|(n, _)| *n == value as u64) {
                                    row.name(strings.intern(s.as_bytes()));
                                }
                            }
                            To::Address => {
                                row.reason(self.symbols.name(value as u64, strings));
                            }
                            to => plain(to, value, row),
                        }
                        true
                    }
                },
                Content::Text(text) => match text.get(record, be) {
                    None => false,
                    Some(bytes) => {
                        let id = intern(bytes, m.to, text, strings);
                        match m.to {
                            To::Comm => row.comm(id),
                            To::NextComm => row.next_comm(id),
                            _ => row.name(id),
                        };
                        true
                    }
                },
                Content::Other => true,
            };
            done.partial |= !moved;
        }
        done
    }

    #[cold]
    fn unknown(
        &mut self,
        number: Option<u32>,
        record: &[u8],
        row: &mut EventRow<'_>,
        strings: &mut Strings,
    ) -> Decoded {
        self.unknown += 1;
        row.kind(Kind::Other);
        if let Some(number) = number {
            row.name(strings.intern(format!("event {number}").as_bytes()));
        }
        let ctx_tid = self.plans.first().and_then(|p| p.pid).and_then(|f| f.get(record, self.be));
        row.ctx_tid(ctx_tid);
        Decoded { ctx_tid, unknown: true, ..Decoded::default() }
    }

    /// Names of the events that were met, as a JSON list.
    pub fn recorded_json(&self) -> String {
        let mut names: Vec<_> = self.plans.iter().filter(|p| p.seen > 0).map(|p| p.event.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let quoted: Vec<_> = names.iter().map(|n| format!("\"{}\"", n.replace(['"', '\\'], "?"))).collect();
        format!("[{}]", quoted.join(", "))
    }

    /// Whether the source has the format of an event of `kind`.
    pub fn knows(&self, kind: Kind) -> bool {
        self.plans.iter().any(|p| p.kind == kind)
    }

    /// How many records of `kind` were met.
    pub fn seen(&self, kind: Kind) -> u64 {
        self.plans.iter().filter(|p| p.kind == kind).map(|p| p.seen).sum()
    }
}

impl Plan {
    /// Sets what the common fields say, wherever they lie.
    #[cold]
    fn context(&self, record: &[u8], be: bool, row: &mut EventRow<'_>) -> Option<i64> {
        let tid = self.pid.and_then(|f| f.get(record, be));
        row.ctx_tid(tid);
        if let (Some(flags), Some(preempt)) = (self.flags, self.preempt) {
            if let (Some(flags), Some(preempt)) = (flags.get(record, be), preempt.get(record, be)) {
                row.irq_flags(irq_flags(flags as u8, preempt as u8));
            }
        }
        tid
    }

    fn compile(format: &EventFormat) -> Self {
        let has_value =
            |(field, to): &(&str, To)| matches!(to, To::Value | To::Value2) && format.field(field).is_some();
        // Older kernels only state what real time and interrupts leave of a capacity.
        let row = mapping::row(&format.system, &format.name)
            .filter(|(_, _, kind, fields)| *kind != Kind::CpuCapacity || fields.iter().any(has_value));
        let call = if format.system == "syscalls" { mapping::syscall(&format.name) } else { None };
        let (kind, name, fields) = match (row, call) {
            (Some((_, _, kind, fields)), _) => (*kind, None, *fields),
            (None, Some((kind, name))) => (kind, Some(name.to_owned()), mapping::SYSCALL),
            (None, None) => (Kind::Other, Some(format.name.clone()), &[][..]),
        };
        let mut moves: Vec<Move> = Vec::new();
        for (field, to) in fields {
            if let Some(from) = format.field(field).filter(|_| moves.iter().all(|m| m.to != *to)) {
                moves.push(Move { to: *to, from });
            }
        }
        let symbols = if moves.iter().any(|m| m.to == To::Symbol) {
            pairs(&format.print_fmt, "__print_symbolic")
        } else {
            Vec::new()
        };
        let (pid, flags) = (format.int("common_pid"), format.int("common_flags"));
        let preempt = format.int("common_preempt_count");
        let usual = pid == Some(Int { at: 4, size: 4, signed: true })
            && flags == Some(Int { at: 2, size: 1, signed: false })
            && preempt == Some(Int { at: 3, size: 1, signed: false })
            && format.int("common_type").is_some_and(|f| (f.at, f.size) == (0, 2));
        Plan {
            kind,
            event: format.name.clone(),
            shape: Shape::of(kind, &moves).filter(|_| name.is_none()),
            name,
            name_id: None,
            pid,
            flags,
            preempt,
            usual,
            moves,
            symbols,
            seen: 0,
        }
    }
}

#[inline]
fn plain(to: To, value: i64, row: &mut EventRow<'_>) {
    match to {
        To::Prio => row.prio(value as i32),
        To::NextPrio => row.next_prio(value as i32),
        To::TargetCpu => row.target_cpu(value as i32),
        To::OrigCpu => row.orig_cpu(value as i32),
        To::Value2 => row.value2(value),
        To::IdleState => row.value((value as u32 != u32::MAX).then_some(value)),
        _ => row.value(value),
    };
}

/// The id of a text field, `None` when it is empty.
#[inline]
fn intern(bytes: &[u8], to: To, text: Text, strings: &mut Strings) -> Option<StrId> {
    if let (Text::Array { len: 16, .. }, Some(word)) = (text, bytes.first_chunk::<16>()) {
        return (word[0] != 0).then(|| strings.intern_padded(*word));
    }
    let mut bytes = until_nul(bytes);
    if to == To::Marker {
        while let [rest @ .., b'\n' | b'\r'] = bytes {
            bytes = rest;
        }
    }
    if bytes.is_empty() {
        return None;
    }
    crate::text::payload::text(bytes, strings)
}

/// State and text of a state number; the numbers are few, so they are looked up once.
#[inline]
fn cached(
    cache: &mut Vec<Option<(State, StrId)>>,
    table: &mut StateTable,
    value: i64,
    strings: &mut Strings,
) -> (State, StrId) {
    let slot = value as usize;
    if let Some(Some(known)) = cache.get(slot) {
        return *known;
    }
    let indexed = table.indexed;
    let bits = table.bits(value as u64);
    if table.indexed != indexed {
        cache.clear();
    }
    let text = table.letters(bits);
    let found = (from_letters(text.as_bytes()), strings.intern(text.as_bytes()));
    if slot < 1 << 14 {
        if cache.len() <= slot {
            cache.resize(slot + 1, None);
        }
        cache[slot] = Some(found);
    }
    found
}

/// `common_flags` and `common_preempt_count` in the bits of `irq_flags`.
///
/// Bit 1 of the flags meant `no irq information` before 6.13, on architectures that today do not
/// exist any more, and means `lazy reschedule` since.
#[inline]
pub fn irq_flags(flags: u8, preempt: u8) -> u16 {
    // The depth of preemption and that of migration, each four bits, follow one another in both.
    const _: () = assert!(irq::MIGRATE_DISABLE_SHIFT == irq::PREEMPT_DEPTH_SHIFT + 4);
    IRQ_BITS[usize::from(flags)] | u16::from(preempt) << irq::PREEMPT_DEPTH_SHIFT
}

/// `common_flags` in the bits of `irq_flags`.
const IRQ_BITS: [u16; 256] = {
    const BITS: [u16; 8] = [
        irq::IRQS_OFF,
        irq::LAZY_RESCHED,
        irq::NEED_RESCHED,
        irq::HARDIRQ,
        irq::SOFTIRQ,
        irq::PREEMPT_RESCHED,
        irq::NMI,
        irq::BH_OFF,
    ];
    let mut table = [0; 256];
    let mut flags = 0;
    while flags < 256 {
        let mut bit = 0;
        while bit < 8 {
            if flags >> bit & 1 != 0 {
                table[flags] |= BITS[bit];
            }
            bit += 1;
        }
        flags += 1;
    }
    table
};

/// Name and number of a format file, without reading the rest.
fn name_and_number(text: &[u8]) -> Option<(&str, usize)> {
    let mut lines = text.split(|b| *b == b'\n').map(|l| std::str::from_utf8(l).unwrap_or("").trim());
    let name = lines.find_map(|l| l.strip_prefix("name:"))?.trim();
    let number = lines.find_map(|l| l.strip_prefix("ID:"))?.trim().parse::<u16>().ok()?;
    (!name.is_empty() && number != NONE).then_some((name, usize::from(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracekit_schema::table::Table;
    use tracekit_schema::Out;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    fn switch(prio: &str) -> String {
        format!(
            "name: sched_switch\nID: 9\nformat:\n{COMMON}\
             \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:1;\n\
             \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
             \tfield:int {prio};\toffset:28;\tsize:4;\tsigned:1;\n\
             \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
             \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:1;\n\
             \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
             \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\
             print fmt: \"\", __print_flags(REC->prev_state & (1024-1), \"|\", {{ 1, \"S\" }}), REC->prev_state & 1024 ? \"+\" : \"\"\n"
        )
    }

    fn record() -> Vec<u8> {
        let mut r = vec![0u8; 64];
        r[0] = 9;
        r[2] = 1;
        r[3] = 0x12;
        r[4] = 7;
        r[8..11].copy_from_slice(b"one");
        r[24] = 7;
        r[28] = 120;
        r[32] = 1;
        r[40..43].copy_from_slice(b"two");
        r[56] = 8;
        r[60] = 100;
        r
    }

    /// What the quick way and the general way make of `record`.
    fn both(format: &str, record: &[u8]) -> (Out, bool, Out) {
        let mut decoder = Decoder::new(false);
        decoder.add("sched", format.as_bytes());
        let (mut quick, mut general) = (Out::new(), Out::new());
        let mut stage = Stage::default();
        let mut stamp = Stamp::default();
        let taken = decoder.stage::<true>(false, record, &mut stamp, &Tasks::default(), &mut stage, &mut quick.strings);
        assert_eq!(stage.len(), usize::from(taken), "a refused record leaves nothing behind");
        stage.flush(&mut quick.events, u64::from(taken));
        decoder.decode(record, &mut general.events.push(), &mut general.strings);
        (quick, taken, general)
    }

    #[test]
    fn the_quick_way_says_what_the_general_way_says() {
        let (quick, taken, general) = both(&switch("prev_prio"), &record());
        assert!(taken);
        let (q, g) = (&quick.events, &general.events);
        assert_eq!((q.tid.get(0), q.next_tid.get(0)), (Some(7), Some(8)));
        assert_eq!(q.tid.get(0), g.tid.get(0));
        assert_eq!(q.next_tid.get(0), g.next_tid.get(0));
        assert_eq!((q.prio.get(0), q.next_prio.get(0)), (g.prio.get(0), g.next_prio.get(0)));
        assert_eq!((q.state.get(0), q.irq_flags.get(0)), (g.state.get(0), g.irq_flags.get(0)));
        assert_eq!(q.irq_flags.get(0), Some(irq::IRQS_OFF | 0x1200));
        let name = |out: &Out| out.events.next_comm.get(0).map(|id| out.strings.text(id).into_owned());
        assert_eq!(name(&quick), Some("two".to_owned()));
        assert_eq!(name(&quick), name(&general));
    }

    #[test]
    fn records_at_the_usual_places_say_what_the_general_way_says() {
        let field = |what: &str, at: usize, size: usize, signed: u8| {
            format!("\tfield:{what};\toffset:{at};\tsize:{size};\tsigned:{signed};\n")
        };
        let task = field("char comm[16]", 8, 16, 1) + &field("pid_t pid", 24, 4, 1);
        let prio = field("int prio", 28, 4, 1);
        let shapes = [
            ("sched_waking", 36, prio.clone() + &field("int target_cpu", 32, 4, 1)),
            ("sched_migrate_task", 40, prio + &field("int orig_cpu", 32, 4, 1) + &field("int dest_cpu", 36, 4, 1)),
            ("sched_stat_wait", 40, field("u64 delay", 32, 8, 0)),
            ("sched_stat_runtime", 48, field("u64 runtime", 32, 8, 0) + &field("u64 vruntime", 40, 8, 0)),
        ];
        for (name, size, fields) in shapes {
            let format = format!("name: {name}\nID: 9\nformat:\n{COMMON}{task}{fields}print fmt: \"%d\", REC->pid\n");
            let mut bytes = record()[..32].to_vec();
            bytes.extend((1u8..=16).map(|n| n * 3));
            let (quick, taken, general) = both(&format, &bytes[..size]);
            assert!(taken, "{name}");
            let (q, g) = (&quick.events, &general.events);
            let of = |e: &tracekit_schema::Events| {
                (
                    (e.kind.get(0), e.tid.get(0), e.prio.get(0), e.ctx_tid.get(0), e.irq_flags.get(0)),
                    (e.target_cpu.get(0), e.orig_cpu.get(0), e.value.get(0), e.value2.get(0)),
                )
            };
            assert_eq!(of(q), of(g), "{name}");
            let comm = |out: &Out| out.events.comm.get(0).map(|id| out.strings.text(id).into_owned());
            assert_eq!((comm(&quick).as_deref(), comm(&general).as_deref()), (Some("one"), Some("one")));
            for len in 0..size {
                let (_, taken, general) = both(&format, &bytes[..len]);
                assert!(!taken && general.events.len() == 1, "{name}, {len} bytes");
            }
        }
    }

    #[test]
    fn what_the_quick_way_cannot_take_it_leaves_alone() {
        let (_, taken, general) = both(&switch("other"), &record());
        assert!(!taken);
        assert_eq!((general.events.tid.get(0), general.events.prio.get(0)), (Some(7), None));
        for len in 0..64 {
            let (_, taken, general) = both(&switch("prev_prio"), &record()[..len]);
            assert!(!taken);
            assert_eq!(general.events.len(), 1);
        }
    }
}
