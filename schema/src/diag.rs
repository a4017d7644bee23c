//! Diagnostics: every record that was skipped, repaired, inferred or lost becomes a row.

use std::collections::BTreeMap;

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; no figure is touched.
    Info,
    /// Records are missing: figures are bounds.
    Loss,
    /// The source is damaged or contradicts itself.
    Error,
}

impl Severity {
    /// The string that tables hold.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Loss => "loss",
            Severity::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident = $text:literal, $severity:ident;)*) => {
        /// What happened. Each code has one severity and one meaning, listed in the docs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];
            /// The string that tables and errors hold.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }
            /// How much it matters.
            pub const fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }
            /// What it means.
            pub const fn doc(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),*),)* }
            }
        }
    };
}

codes! {
    /// The source says that records were lost.
    LostEvents = "lost-events", Loss;
    /// The oldest records were overwritten before the trace begins.
    Overwritten = "overwritten", Loss;
    /// A line or record does not fit the format's grammar.
    Unparsed = "unparsed", Error;
    /// A record was understood in part.
    PartlyParsed = "partly-parsed", Error;
    /// The last line or record is cut short.
    Truncated = "truncated", Loss;
    /// Time runs backwards on one CPU.
    TimeBackwards = "time-backwards", Error;
    /// Records stood out of time order and were sorted.
    Reordered = "reordered", Info;
    /// A task name is not valid UTF-8.
    NotUtf8 = "not-utf8", Info;
    /// A task's name is not known.
    UnknownName = "unknown-name", Info;
    /// An event that tracekit has no kind for; kept as `other`.
    UnknownEvent = "unknown-event", Info;
    /// Consecutive switches of one CPU contradict each other.
    SwitchMismatch = "switch-mismatch", Error;
    /// A switch that no record shows was inferred from the next records of its CPU.
    SwitchInferred = "switch-inferred", Info;
    /// A time stamp was clamped in a derived table because clocks disagree.
    ClockSkew = "clock-skew", Info;
    /// No CPU has a record for longer than a kernel that runs leaves one without.
    Silence = "silence", Error;
    /// The unit of time stamps is not known.
    ClockUnit = "clock-unit", Error;
    /// A value was inferred that the source does not state.
    Inferred = "inferred", Info;
    /// The source lacks events that some analyses need.
    MissingEvents = "missing-events", Info;
    /// A record appears twice.
    Duplicate = "duplicate", Info;
    /// A section of the file is damaged and was skipped.
    Damaged = "damaged", Error;
    /// A task waited long for a CPU under a policy that is not one of tracekit's.
    Starvation = "starvation", Info;
    /// Tasks of a replay wait for ever, where those recorded went on.
    Stuck = "stuck", Error;
    /// The source uses a feature that tracekit does not read.
    Unsupported = "unsupported", Info;
}

/// One row of the `diagnostics` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What happened.
    pub code: Code,
    /// Byte offset in the (decompressed) source of the first occurrence.
    pub offset: Option<u64>,
    /// Line number of the first occurrence, from 1.
    pub line: Option<u64>,
    /// CPU concerned.
    pub cpu: Option<i32>,
    /// Trace time of the first occurrence.
    pub ts_ns: Option<i64>,
    /// How many occurrences this row stands for.
    pub count: u64,
    /// What was expected and what was found.
    pub message: String,
    /// What the user can do about it.
    pub advice: String,
}

impl Diagnostic {
    /// A diagnostic without a position.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            offset: None,
            line: None,
            cpu: None,
            ts_ns: None,
            count: 1,
            message: message.into(),
            advice: String::new(),
        }
    }
    /// Adds the byte offset.
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
    /// Adds the line number, from 1.
    pub fn at_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }
    /// Adds the CPU.
    pub fn on_cpu(mut self, cpu: i32) -> Self {
        self.cpu = Some(cpu);
        self
    }
    /// Adds the trace time.
    pub fn at_ts(mut self, ts_ns: i64) -> Self {
        self.ts_ns = Some(ts_ns);
        self
    }
    /// Adds advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

/// How many rows of one code are kept with their own position.
pub const KEPT_PER_CODE: u64 = 10;

/// Collects diagnostics: the first [`KEPT_PER_CODE`] of a code as rows of their own, the rest
/// counted in one row.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    rows: Vec<Diagnostic>,
    seen: BTreeMap<Code, (u64, Option<usize>)>,
}

impl Diagnostics {
    /// Adds a diagnostic.
    pub fn push(&mut self, d: Diagnostic) {
        self.push_with(d.code, || d);
    }

    /// Adds a diagnostic that is only built while rows of its code are still kept one by one.
    pub fn push_with(&mut self, code: Code, make: impl FnOnce() -> Diagnostic) {
        let seen = self.seen.entry(code).or_insert((0, None));
        if seen.0 < KEPT_PER_CODE {
            seen.0 += 1;
            self.rows.push(make());
            return;
        }
        self.count_further(code, 1);
    }

    /// Counts so many that are not listed one by one.
    fn count_further(&mut self, code: Code, count: u64) {
        let seen = self.seen.entry(code).or_insert((0, None));
        seen.0 += count;
        match seen.1 {
            Some(i) => self.rows[i].count += count,
            None => {
                seen.1 = Some(self.rows.len());
                self.rows.push(Diagnostic {
                    message: format!("further `{}` records, not listed one by one", code.as_str()),
                    count,
                    ..Diagnostic::new(code, "")
                });
            }
        }
    }

    /// What there would be if this one and `other` had been one, and had been added to in turns.
    /// `turns` and `others` say how many rows each had at the end of each turn; the last turn is
    /// that of the rows that are left.
    pub fn in_turns(&self, turns: &[usize], other: &Self, others: &[usize]) -> Self {
        let mut all = Diagnostics::default();
        let (mut at, mut its) = (0, 0);
        let ends = turns.iter().copied().zip(others.iter().copied());
        for (end, its_end) in ends.chain([(self.rows.len(), other.rows.len())]) {
            (at..end).for_each(|row| all.again(self, row));
            (its..its_end).for_each(|row| all.again(other, row));
            (at, its) = (at.max(end), its.max(its_end));
        }
        all
    }

    /// Adds a row of others.
    fn again(&mut self, others: &Self, row: usize) {
        let d = &others.rows[row];
        if others.seen.get(&d.code).is_some_and(|seen| seen.1 == Some(row)) {
            self.count_further(d.code, d.count);
        } else {
            self.push_with(d.code, || d.clone());
        }
    }

    /// The rows so far.
    pub fn rows(&self) -> &[Diagnostic] {
        &self.rows
    }

    /// How often `code` was seen.
    pub fn count(&self, code: Code) -> u64 {
        self.rows.iter().filter(|d| d.code == code).map(|d| d.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODES: [Code; 3] = [Code::SwitchMismatch, Code::ClockSkew, Code::Unparsed];

    proptest! {
        #[test]
        fn two_in_turns_are_as_one(
            turns in prop::collection::vec(
                (prop::collection::vec(0usize..3, 0..9), prop::collection::vec(0usize..3, 0..9)),
                1..8,
            ),
        ) {
            let (mut one, mut a, mut b) = (Diagnostics::default(), Diagnostics::default(), Diagnostics::default());
            let (mut ends, mut others) = (Vec::new(), Vec::new());
            let mut number = 0;
            for (of_a, of_b) in turns {
                for (codes, to) in [(of_a, &mut a), (of_b, &mut b)] {
                    for code in codes {
                        number += 1;
                        let made = Diagnostic::new(CODES[code], "").at_line(number);
                        one.push(made.clone());
                        to.push(made);
                    }
                }
                ends.push(a.rows().len());
                others.push(b.rows().len());
            }
            ends.pop();
            others.pop();
            let both = a.in_turns(&ends, &b, &others);
            prop_assert_eq!(both.rows(), one.rows());
            prop_assert_eq!(both.seen, one.seen);
        }
    }
}
