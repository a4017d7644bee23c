//! Rows of the quick path on their way into the table, up to 64 at a time.
//!
//! A row touches a dozen columns, and each column has its own end, room and validity bits to look
//! at. Here it touches fixed arrays; a full stage goes into the table column by column, each with
//! one copy and one word of bits.

use tracekit_schema::{Events, Kind, State, StrId, Strings};

use crate::text::log::Stamp;

/// Rows of a stage.
const ROWS: usize = 64;

/// Up to 64 rows, column by column.
#[derive(Debug)]
pub struct Stage {
    rows: usize,
    ts_ns: [i64; ROWS],
    cpu: [i32; ROWS],
    kind: [Kind; ROWS],
    quality: [u16; ROWS],
    ctx_tid: [i64; ROWS],
    ctx_pid: [i64; ROWS],
    ctx_comm: [StrId; ROWS],
    irq_flags: [u16; ROWS],
    tid: [i64; ROWS],
    pid: [i64; ROWS],
    comm: [StrId; ROWS],
    prio: [i32; ROWS],
    next_tid: [i64; ROWS],
    next_pid: [i64; ROWS],
    next_comm: [StrId; ROWS],
    next_prio: [i32; ROWS],
    state: [State; ROWS],
    state_raw: [StrId; ROWS],
    target_cpu: [i32; ROWS],
    orig_cpu: [i32; ROWS],
    value: [i64; ROWS],
    value2: [i64; ROWS],
    set: Set,
    /// Names of fixed width that records held.
    pub names: Names,
}

/// The last name of a thread, by the low bits of its number: names change rarely.
#[derive(Debug)]
pub struct Names {
    kept: [(u128, StrId); NAMES],
}

const NAMES: usize = 256;

impl Default for Names {
    fn default() -> Self {
        // No name begins with a zero.
        Names { kept: [(0, StrId(0)); NAMES] }
    }
}

impl Names {
    /// The id of the name of thread `tid` in a field that is padded with a zero and what was there before;
    /// its first byte is the lowest.
    #[inline(always)]
    pub fn intern(&mut self, tid: i64, field: u128, strings: &mut Strings) -> StrId {
        let kept = &mut self.kept[tid as usize % NAMES];
        if kept.0 != field {
            *kept = (field, strings.intern_padded(field.to_le_bytes()));
        }
        kept.1
    }
}

/// Which rows set a column; columns that every row sets are not here.
#[derive(Debug, Default)]
struct Set {
    cpu: u64,
    ctx_tid: u64,
    ctx_pid: u64,
    ctx_comm: u64,
    irq_flags: u64,
    pid: u64,
    next_pid: u64,
    prio: u64,
    switch: u64,
    target_cpu: u64,
    orig_cpu: u64,
    value: u64,
    value2: u64,
}

impl Default for Stage {
    fn default() -> Self {
        Stage {
            rows: 0,
            ts_ns: [0; ROWS],
            cpu: [0; ROWS],
            kind: [Kind::Other; ROWS],
            quality: [0; ROWS],
            ctx_tid: [0; ROWS],
            ctx_pid: [0; ROWS],
            ctx_comm: [StrId(0); ROWS],
            irq_flags: [0; ROWS],
            tid: [0; ROWS],
            pid: [0; ROWS],
            comm: [StrId(0); ROWS],
            prio: [0; ROWS],
            next_tid: [0; ROWS],
            next_pid: [0; ROWS],
            next_comm: [StrId(0); ROWS],
            next_prio: [0; ROWS],
            state: [State::Unknown; ROWS],
            state_raw: [StrId(0); ROWS],
            target_cpu: [0; ROWS],
            orig_cpu: [0; ROWS],
            value: [0; ROWS],
            value2: [0; ROWS],
            set: Set::default(),
            names: Names::default(),
        }
    }
}

impl Stage {
    /// Most rows of a stage.
    pub const ROWS: usize = ROWS;

    /// True when the next row needs a [`Self::flush`] before it.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.rows == ROWS
    }

    /// Number of rows that wait.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True when none waits.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row of `kind` about the task `tid` called `comm`; the rest of its columns follow.
    #[inline(always)]
    pub fn push(&mut self, stamp: &Stamp, quality: u16, kind: Kind, tid: i64, comm: StrId) -> Row<'_> {
        let (at, bit) = (self.rows % ROWS, 1 << (self.rows % ROWS));
        self.rows += 1;
        self.ts_ns[at] = stamp.ts_ns;
        self.quality[at] = quality;
        self.kind[at] = kind;
        self.tid[at] = tid;
        self.comm[at] = comm;
        if let Some(cpu) = stamp.cpu {
            self.cpu[at] = cpu;
            self.set.cpu |= bit;
        }
        if let Some(tid) = stamp.who.tid {
            self.ctx_tid[at] = tid;
            self.set.ctx_tid |= bit;
        }
        if let Some(comm) = stamp.who.comm {
            self.ctx_comm[at] = comm;
            self.set.ctx_comm |= bit;
        }
        if let Some(pid) = stamp.who.pid {
            self.ctx_pid[at] = pid;
            self.set.ctx_pid |= bit;
        }
        if let Some(bits) = stamp.irq {
            self.irq_flags[at] = bits;
            self.set.irq_flags |= bit;
        }
        Row { stage: self, at, bit }
    }

    /// Moves the rows to the end of `events`; `next_seq` is the ordinal after the last of them.
    #[inline]
    pub fn flush(&mut self, events: &mut Events, next_seq: u64) {
        if self.rows > 0 {
            self.move_rows(events, next_seq);
        }
    }

    fn move_rows(&mut self, events: &mut Events, next_seq: u64) {
        let rows = std::mem::take(&mut self.rows);
        let set = std::mem::take(&mut self.set);
        let base = events.push_rows(rows);
        let all = u64::MAX >> (ROWS - rows);
        let first = next_seq - rows as u64;
        let seq: [u64; ROWS] = std::array::from_fn(|i| first + i as u64);
        events.ts_ns.put(base, &self.ts_ns, all);
        events.cpu.put(base, &self.cpu, set.cpu);
        events.seq.put(base, &seq, all);
        events.kind.put(base, &self.kind, all);
        events.quality.put(base, &self.quality, all);
        events.ctx_tid.put(base, &self.ctx_tid, set.ctx_tid);
        events.ctx_pid.put(base, &self.ctx_pid, set.ctx_pid);
        events.ctx_comm.put(base, &self.ctx_comm, set.ctx_comm);
        events.irq_flags.put(base, &self.irq_flags, set.irq_flags);
        events.tid.put(base, &self.tid, all);
        events.pid.put(base, &self.pid, set.pid);
        events.comm.put(base, &self.comm, all);
        events.prio.put(base, &self.prio, set.prio);
        events.next_tid.put(base, &self.next_tid, set.switch);
        events.next_pid.put(base, &self.next_pid, set.next_pid);
        events.next_comm.put(base, &self.next_comm, set.switch);
        events.next_prio.put(base, &self.next_prio, set.switch);
        events.state.put(base, &self.state, set.switch);
        events.state_raw.put(base, &self.state_raw, set.switch);
        events.target_cpu.put(base, &self.target_cpu, set.target_cpu);
        events.orig_cpu.put(base, &self.orig_cpu, set.orig_cpu);
        events.value.put(base, &self.value, set.value);
        events.value2.put(base, &self.value2, set.value2);
    }
}

/// Sets the columns of a staged row that not every row has.
pub struct Row<'s> {
    stage: &'s mut Stage,
    at: usize,
    bit: u64,
}

impl Row<'_> {
    /// Processes of the task and of the one that enters.
    #[inline(always)]
    pub fn pids(self, pid: Option<i64>, next: Option<i64>) -> Self {
        if let Some(pid) = pid {
            self.stage.pid[self.at] = pid;
            self.stage.set.pid |= self.bit;
        }
        if let Some(next) = next {
            self.stage.next_pid[self.at] = next;
            self.stage.set.next_pid |= self.bit;
        }
        self
    }

    /// Priority of the task.
    #[inline(always)]
    pub fn prio(self, prio: i32) -> Self {
        self.stage.prio[self.at] = prio;
        self.stage.set.prio |= self.bit;
        self
    }

    /// The other half of a switch.
    #[inline(always)]
    pub fn switch(self, state: (State, StrId), next: (i64, StrId, i32)) -> Self {
        let (stage, at) = (&mut *self.stage, self.at);
        (stage.state[at], stage.state_raw[at]) = state;
        (stage.next_tid[at], stage.next_comm[at], stage.next_prio[at]) = next;
        stage.set.switch |= self.bit;
        self
    }

    /// CPU that the task goes to.
    #[inline(always)]
    pub fn target_cpu(self, cpu: i32) -> Self {
        self.stage.target_cpu[self.at] = cpu;
        self.stage.set.target_cpu |= self.bit;
        self
    }

    /// CPU that the task comes from.
    #[inline(always)]
    pub fn orig_cpu(self, cpu: i32) -> Self {
        self.stage.orig_cpu[self.at] = cpu;
        self.stage.set.orig_cpu |= self.bit;
        self
    }

    /// The record's number.
    #[inline(always)]
    pub fn value(self, value: Option<i64>) -> Self {
        if let Some(value) = value {
            self.stage.value[self.at] = value;
            self.stage.set.value |= self.bit;
        }
        self
    }

    /// The record's second number.
    #[inline(always)]
    pub fn value2(self, value: Option<i64>) -> Self {
        if let Some(value) = value {
            self.stage.value2[self.at] = value;
            self.stage.set.value2 |= self.bit;
        }
        self
    }
}
