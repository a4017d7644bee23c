//! Columns of a report: from the header line, by byte position, and what stands in them on a line.

use crate::text::scan;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Hook number.
    Id,
    /// Process name.
    Name,
    /// Logical CPU.
    Cpu,
    /// Process.
    Pid,
    /// Thread.
    Tid,
    /// Something that is not needed: interrupt level, system call, file name.
    Skip,
    /// Time since the trace began.
    Elapsed,
    /// Time since the record before, or another number after the time.
    AfterElapsed,
}

impl Column {
    fn is_number(self) -> bool {
        matches!(self, Column::Cpu | Column::Pid | Column::Tid)
    }
}

/// The columns of a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// In the order of the header, with the byte at which each begins.
    columns: Vec<(Column, usize)>,
    /// Where `APPL` stands: the payload of an application-level hook begins here.
    payload: usize,
    /// Where `INTERRUPT` stands.
    interrupt: usize,
    /// The header's blanks were kept, so positions mean something.
    aligned: bool,
    /// The time's column is `ELAPSED`, which may hold whole microseconds.
    micros: bool,
    /// Times have a point, or have none: known from the first record on.
    point: Option<bool>,
    /// The columns of numbers, in order.
    numbers: Vec<Column>,
}

/// What a line holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields<'t> {
    pub id: Option<u32>,
    /// The hook as it is printed.
    pub id_word: &'t [u8],
    pub name: Option<&'t [u8]>,
    pub cpu: Option<i32>,
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    pub ts: i64,
    /// Digits after the point, where the time has one.
    pub decimals: usize,
    pub payload: &'t [u8],
    /// The payload stands in the column of the interrupt level.
    pub interrupt: bool,
}

impl Fields<'_> {
    /// The fields that are not text.
    pub fn detached(&self) -> Fields<'static> {
        let Fields { id, cpu, pid, tid, ts, decimals, interrupt, .. } = *self;
        Fields { id, id_word: b"", name: None, cpu, pid, tid, ts, decimals, payload: b"", interrupt }
    }
}

/// A word with its place.
#[derive(Clone, Copy, Default)]
struct Token {
    start: usize,
    end: usize,
}

/// Words before the time of a record, at most: a name may have blanks.
const MOST: usize = 16;

fn next_token(line: &[u8], from: usize) -> Option<Token> {
    let start = from + line.get(from..)?.iter().position(|b| !scan::is_blank(*b))?;
    let len = line[start..].iter().position(|b| scan::is_blank(*b)).unwrap_or(line.len() - start);
    Some(Token { start, end: start + len })
}

/// The words of a header with their places; `PROCESS NAME` and `SYSTEM CALL` are one column each.
fn header_words(line: &[u8]) -> Vec<(&[u8], usize)> {
    let (mut words, mut from) = (Vec::<(&[u8], usize)>::new(), 0);
    while let Some(t) = next_token(line, from) {
        let word = &line[t.start..t.end];
        if !matches!((words.last(), word), (Some((b"PROCESS", _)), b"NAME") | (Some((b"SYSTEM", _)), b"CALL")) {
            words.push((word, t.start));
        }
        from = t.end;
    }
    words
}

/// A line that is a header, or a part of one.
#[derive(Clone, Debug)]
pub(super) enum Header {
    /// All columns in one line.
    Whole(Layout),
    /// `2line=on`: the columns; the levels follow on the next line.
    Columns(Layout),
    /// `2line=on`: the levels.
    Levels,
    /// No time column: no timeline.
    Timeless,
}

/// The header in `line`, if it is one.
pub(super) fn header(line: &[u8]) -> Option<Header> {
    let first = scan::skip_blanks(line);
    let candidate = first.starts_with(b"ID")
        || first.starts_with(b"APPL")
        || memchr::memmem::find(line, b"ELAPSED").is_some()
        || memchr::memmem::find(line, b"APPL").is_some();
    if !candidate {
        return None;
    }
    let words = header_words(line);
    let levels = words
        .windows(4)
        .position(|w| w[0].0 == b"APPL" && w[1].0 == b"SYSCALL" && w[2].0 == b"KERNEL" && w[3].0 == b"INTERRUPT");
    let elapsed = words.iter().position(|w| w.0.starts_with(b"ELAPSED"));
    let columns = &words[..levels.unwrap_or(words.len())];
    match (levels, elapsed) {
        (Some(0), _) => return Some(Header::Levels),
        (Some(_), None) => return Some(Header::Timeless),
        (None, Some(_)) if columns.iter().all(|w| is_column_name(w.0)) => {}
        (Some(_), Some(_)) => {}
        _ => return None,
    }
    let mut layout = Layout { aligned: line.windows(2).any(|w| w == b"  "), ..Layout::default() };
    let mut timed = false;
    for (word, start) in columns {
        let column = match *word {
            b"ID" => Column::Id,
            b"PROCESS" => Column::Name,
            b"CPU" => Column::Cpu,
            b"PID" => Column::Pid,
            b"TID" => Column::Tid,
            w if w.starts_with(b"ELAPSED") => Column::Elapsed,
            _ if timed => Column::AfterElapsed,
            _ => Column::Skip,
        };
        timed |= column == Column::Elapsed;
        layout.micros |= *word == b"ELAPSED";
        layout.columns.push((column, *start));
        if column.is_number() {
            layout.numbers.push(column);
        }
    }
    let Some(levels) = levels else {
        (layout.payload, layout.interrupt) = (usize::MAX, usize::MAX);
        return Some(Header::Columns(layout));
    };
    (layout.payload, layout.interrupt) = (words[levels].1, words[levels + 3].1);
    Some(Header::Whole(layout))
}

/// Words of a header are in capitals.
fn is_column_name(word: &[u8]) -> bool {
    word.iter().all(|b| b.is_ascii_uppercase() || *b == b'_')
}

/// Digits with a point; the number of digits after it.
fn decimals(word: &[u8]) -> Option<usize> {
    let dot = memchr::memchr(b'.', word)?;
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    (digits(&word[..dot]) && digits(&word[dot + 1..])).then(|| word.len() - dot - 1)
}

/// A number, or a sign that it is not known.
fn is_number(word: &[u8]) -> bool {
    scan::i64(word).is_some() || matches!(word, b"?" | b"-")
}

fn known(word: &[u8]) -> Option<i64> {
    scan::i64(word).filter(|n| *n >= 0)
}

impl Layout {
    /// Names of the columns, for the metadata.
    pub fn describe(&self) -> String {
        let names = self.columns.iter().map(|(column, _)| match column {
            Column::Id => "id",
            Column::Name => "name",
            Column::Cpu => "cpu",
            Column::Pid => "pid",
            Column::Tid => "tid",
            Column::Skip => "other",
            Column::Elapsed => "elapsed",
            Column::AfterElapsed => "delta",
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Takes over what records under an earlier header showed.
    pub fn inherit(&mut self, earlier: &Layout) {
        self.point = earlier.point;
    }

    /// True when reports name a CPU in each record.
    pub fn has_cpu(&self) -> bool {
        self.columns.iter().any(|(c, _)| *c == Column::Cpu)
    }

    fn has(&self, column: Column) -> bool {
        self.columns.iter().any(|(c, _)| *c == column)
    }

    fn elapsed(&self) -> usize {
        self.columns.iter().find(|(c, _)| *c == Column::Elapsed).map_or(0, |(_, start)| *start)
    }

    /// The fields of a record line; `None` for a line that goes on with the record before it.
    pub fn split<'t>(&mut self, line: &'t [u8]) -> Option<Fields<'t>> {
        let mut fields = Fields::default();
        let mut from = 0;
        let first = next_token(line, 0)?;
        if self.has(Column::Id) {
            let word = &line[first.start..first.end];
            if !(3..=4).contains(&word.len()) || first.start > 2 {
                return None;
            }
            fields.id = Some(hook(word)?);
            fields.id_word = word;
            from = first.end;
        } else if self.aligned {
            // Only the time may be the first word to stand at or behind its column.
            let time = || self.time(line, first, usize::MAX).is_some();
            if first.start >= self.payload || (first.start >= self.elapsed() && !time()) {
                return None;
            }
        }
        let (mut middle, mut count) = ([Token::default(); MOST], 0);
        let time = loop {
            let t = next_token(line, from)?;
            if let Some((ts, digits)) = self.time(line, t, count) {
                (fields.ts, fields.decimals) = (ts, digits);
                break t;
            }
            *middle.get_mut(count)? = t;
            count += 1;
            from = t.end;
        };
        let middle = &middle[..count];
        if count > 0 && self.columns.first().is_some_and(|c| c.0 == Column::Elapsed) {
            return None;
        }
        let placed = self.aligned && self.by_position(line, middle, &mut fields);
        if !placed && !self.by_order(line, middle, &mut fields) {
            // Without hook numbers such a line is no record; with them, some of its columns are blank.
            fields.id?;
            self.by_position(line, middle, &mut fields);
        }
        self.payload(line, time.end, &mut fields);
        self.point.get_or_insert(line[time.start..time.end].contains(&b'.'));
        Some(fields)
    }

    /// The time, where the word is one: with a point, or whole microseconds under `ELAPSED` after
    /// `count` words that suffice for the columns before.
    fn time(&self, line: &[u8], t: Token, count: usize) -> Option<(i64, usize)> {
        let word = &line[t.start..t.end];
        if let Some(digits) = decimals(word).filter(|_| self.point != Some(false)) {
            return Some((scan::seconds(word)?, digits));
        }
        let before = self.numbers.len() + usize::from(self.has(Column::Name));
        let under =
            self.micros && self.point != Some(true) && self.aligned && t.end + 1 > self.elapsed() && count >= before;
        if !under || !word.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some((scan::i64(word)?.checked_mul(1000)?, 6))
    }

    /// Gives each word to the column under which it stands; false when that leaves a number's
    /// column empty or wrong.
    fn by_position<'t>(&self, line: &'t [u8], middle: &[Token], fields: &mut Fields<'t>) -> bool {
        let mut name: Option<Token> = None;
        let mut filled = 0;
        for t in middle {
            let (column, _) = self.under(*t);
            let word = &line[t.start..t.end];
            match column {
                Column::Name => name = Some(Token { start: name.map_or(t.start, |n| n.start), end: t.end }),
                c if c.is_number() => {
                    if !is_number(word) {
                        return false;
                    }
                    filled += 1;
                    set(c, word, fields);
                }
                _ => {}
            }
        }
        fields.name = name.map(|n| &line[n.start..n.end]).filter(|n| stated(n));
        filled == self.numbers.len()
    }

    /// The column with which a word shares most bytes.
    fn under(&self, t: Token) -> (Column, usize) {
        let mut best = (Column::Skip, 0);
        for (i, (column, start)) in self.columns.iter().enumerate() {
            let end = self.columns.get(i + 1).map_or(self.payload, |next| next.1);
            let shared = t.end.min(end).saturating_sub(t.start.max(*start));
            if shared > best.1 {
                best = (*column, shared);
            }
        }
        best
    }

    /// Gives words to columns in their order, for lines whose blanks were lost or shifted: the name
    /// takes what stands before the first run of as many numbers as there are columns of numbers.
    fn by_order<'t>(&self, line: &'t [u8], middle: &[Token], fields: &mut Fields<'t>) -> bool {
        let numbers = &self.numbers;
        let word = |t: &Token| &line[t.start..t.end];
        let least = usize::from(self.has(Column::Name));
        let last = if least == 0 { 0 } else { middle.len().saturating_sub(numbers.len()) };
        let run = (least..=last)
            .find(|&at| middle.get(at..at + numbers.len()).is_some_and(|run| run.iter().all(|t| is_number(word(t)))));
        let Some(at) = run else { return false };
        for (column, t) in numbers.iter().zip(&middle[at..]) {
            set(*column, word(t), fields);
        }
        if at > 0 {
            fields.name = Some(&line[middle[0].start..middle[at - 1].end]).filter(|n| stated(n));
        }
        true
    }

    /// What follows the time and the numbers after it.
    fn payload<'t>(&self, line: &'t [u8], end: usize, fields: &mut Fields<'t>) {
        let mut from = end;
        for _ in self.columns.iter().filter(|(c, _)| *c == Column::AfterElapsed) {
            let Some(t) = next_token(line, from) else { break };
            let word = &line[t.start..t.end];
            let number = decimals(word).is_some() || word.iter().all(|b| b.is_ascii_digit() || *b == b'*');
            if !number || (self.aligned && t.start >= self.payload) {
                break;
            }
            from = t.end;
        }
        let at = next_token(line, from).map_or(line.len(), |t| t.start);
        fields.interrupt = self.aligned && at >= self.interrupt;
        // A blank at the end is kept: the line may have been wrapped there.
        fields.payload = &line[at..];
    }
}

/// The number of a hook; `hhh` is short for `hhh0`.
pub(super) fn hook(word: &[u8]) -> Option<u32> {
    let short = word.len() == 3;
    let number = scan::hex(word).filter(|_| word.first() != Some(&b'0') || word.get(1) != Some(&b'x'))?;
    u32::try_from(if short { number << 4 } else { number }).ok()
}

fn stated(name: &[u8]) -> bool {
    !matches!(name, b"-1" | b"?" | b"-" | b"")
}

fn set(column: Column, word: &[u8], fields: &mut Fields<'_>) {
    match column {
        Column::Cpu => fields.cpu = known(word).and_then(|n| i32::try_from(n).ok()),
        Column::Pid => fields.pid = known(word),
        Column::Tid => fields.tid = known(word),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "ID  PROCESS NAME   CPU PID       TID       I SYSTEM CALL ELAPSED_SEC     DELTA_MSEC   APPL    SYSCALL KERNEL  INTERRUPT";

    fn layout(text: &str) -> Layout {
        match header(text.as_bytes()) {
            Some(Header::Whole(layout)) => layout,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn columns_come_from_the_header() {
        let mut l = layout(ALL);
        assert_eq!(l.describe(), "id, name, cpu, pid, tid, other, other, elapsed, delta");
        let text = "106 ksh            1   7214      24713       kfork       0.014451456     0.030464             dispatch: cmd=x";
        let f = l.split(text.as_bytes()).unwrap();
        assert_eq!((f.id, f.cpu, f.pid, f.tid), (Some(0x1060), Some(1), Some(7214), Some(24713)));
        assert_eq!((f.name, f.ts, f.decimals), (Some(&b"ksh"[..]), 14_451_456, 9));
        assert_eq!(f.payload, b"dispatch: cmd=x");
    }

    #[test]
    fn collapsed_blanks_are_read_in_order() {
        let mut l = layout("ID PROCESS NAME PID ELAPSED_SEC DELTA_MSEC APPL SYSCALL KERNEL INTERRUPT");
        let f = l.split(b"134 cp 7214 0.014451456 0.030464 exec: cmd=cp a b pid=7214 tid=24713").unwrap();
        assert_eq!((f.name, f.pid, f.tid), (Some(&b"cp"[..]), Some(7214), None));
        assert_eq!(f.payload, b"exec: cmd=cp a b pid=7214 tid=24713");
        let f = l.split(b"101 Web Content 8526 0.005833472 0.107008 kfork LR = D0040AF8").unwrap();
        assert_eq!((f.name, f.pid), (Some(&b"Web Content"[..]), Some(8526)));
    }

    #[test]
    fn without_ids_deep_lines_go_on_with_the_record_before() {
        let mut l = layout("PROCESS NAME   CPU TID       ELAPSED    APPL    SYSCALL KERNEL  INTERRUPT");
        let f = l.split(b"ksh            0   24713     0.014451   dispatch: cmd=x").unwrap();
        assert_eq!((f.id, f.cpu, f.tid, f.ts), (None, Some(0), Some(24713), 14_451_000));
        assert!(l.split(b"                                        working_storage 1.5").is_none());
        assert!(l.split(b"ksh            0   24713").is_none());
        assert!(l.split(b"").is_none());
    }

    #[test]
    fn whole_microseconds_under_elapsed() {
        let mut l = layout("ID  CPU TID           ELAPSED    APPL    SYSCALL KERNEL  INTERRUPT");
        let f = l.split(b"106 0   24713           14451    dispatch: cmd=x").unwrap();
        assert_eq!((f.cpu, f.tid, f.ts), (Some(0), Some(24713), 14_451_000));
    }

    #[test]
    fn numbers_that_overflow_are_found() {
        let mut l = layout("ID  PROCESS NAME   PID  TID  ELAPSED_SEC  DELTA_MSEC  APPL    SYSCALL KERNEL  INTERRUPT");
        let f = l.split(b"106 ksh            12345678 23456789 0.014451456 0.030464  dispatch: cmd=x").unwrap();
        assert_eq!((f.pid, f.tid), (Some(12_345_678), Some(23_456_789)));
        let f = l.split(b"106 /usr/local/bin/very_long_name 12 34 0.014451456 0.030464  dispatch: cmd=x").unwrap();
        assert_eq!((f.name, f.pid, f.tid), (Some(&b"/usr/local/bin/very_long_name"[..]), Some(12), Some(34)));
        let f = l.split(b"106 -1             -1   ?    0.014451456 0.030464  dispatch: cmd=x").unwrap();
        assert_eq!((f.name, f.pid, f.tid), (None, None, None));
    }

    #[test]
    fn the_level_is_told_by_the_column() {
        let mut l = layout(ALL);
        let at = l.interrupt;
        let mut text = b"100 ksh            1   7214      24713                   0.014451456     0.030464".to_vec();
        text.resize(at, b' ');
        text.extend(b"DECREMENTER INTERRUPT iar=12");
        assert!(l.split(&text).unwrap().interrupt);
    }

    #[test]
    fn hook_numbers() {
        assert_eq!(hook(b"106"), Some(0x1060));
        assert_eq!(hook(b"10C"), Some(0x10c0));
        assert_eq!(hook(b"1065"), Some(0x1065));
        assert_eq!(hook(b"ksh"), None);
    }

    #[test]
    fn two_lines_and_no_time() {
        let Some(Header::Columns(mut l)) = header(b"ID  PROCESS NAME   PID  TID  ELAPSED_SEC  DELTA_MSEC") else {
            panic!()
        };
        assert!(matches!(header(b"APPL    SYSCALL KERNEL  INTERRUPT"), Some(Header::Levels)));
        let f = l.split(b"106 ksh            12   34    0.014451456 0.030464").unwrap();
        assert_eq!((f.pid, f.tid, f.payload), (Some(12), Some(34), &b""[..]));
        assert!(matches!(header(b"ID  PID  APPL    SYSCALL KERNEL  INTERRUPT"), Some(Header::Timeless)));
        assert!(header(b"ID=5 ELAPSED time of everything").is_none());
        assert!(header(b"Thu Oct 28 13:34:05 1999").is_none());
    }
}
