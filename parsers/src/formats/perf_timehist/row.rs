//! Rows of the table, and the heading that says which columns there are.

use crate::text::perf_tables::{task, Task, IDLE};
use crate::text::scan;

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Prio,
    Wait,
    Delay,
    Run,
    PreMigration,
}

/// Headings of the columns of numbers.
const HEADINGS: [(&[u8], Number); 5] = [
    (b" prio", Number::Prio),
    (b"wait time", Number::Wait),
    (b"sch delay", Number::Delay),
    (b"run time", Number::Run),
    (b"pre-mig time", Number::PreMigration),
];

/// What the heading says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    numbers: Vec<Number>,
    /// There is a column of state letters.
    pub state: bool,
    /// Byte at which the task's name begins, where a column of one letter a CPU stands before it (`-V`).
    pub visual: Option<usize>,
    /// Digits from the unit of the numbers to the nanosecond.
    digits: u32,
}

impl Layout {
    /// The layout that the heading `line` names; `None` for any other line.
    pub fn of(line: &[u8]) -> Option<Self> {
        let find = |text: &[u8]| memchr::memmem::find(line, text);
        let (cpu, name) = (find(b" cpu ")?, find(b"task name")?);
        let mut numbers: Vec<_> = HEADINGS.iter().filter_map(|(t, n)| find(t).map(|at| (at, *n))).collect();
        numbers.sort_by_key(|(at, _)| *at);
        let numbers: Vec<_> = numbers.into_iter().map(|(_, n)| n).collect();
        if !numbers.contains(&Number::Run) || name < cpu {
            return None;
        }
        let between = scan::trim(&line[(cpu + 4).min(name)..name]);
        Some(Layout {
            numbers,
            state: line.trim_ascii().ends_with(b"state"),
            visual: (!between.is_empty()).then_some(name),
            digits: 6,
        })
    }

    /// Takes the units from the second line of the heading; false for any other line.
    pub fn units(&mut self, line: &[u8]) -> bool {
        let text = scan::trim(line);
        for (unit, digits) in [(&b"(msec)"[..], 6), (b"(usec)", 3), (b"(nsec)", 0)] {
            if text.starts_with(b"[tid/pid]") && memchr::memmem::find(text, unit).is_some() {
                self.digits = digits;
                return true;
            }
        }
        false
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'l> {
    /// When the task left its CPU, or when what the row says happened.
    pub ts_ns: i64,
    pub cpu: i32,
    pub task: Task<'l>,
    pub kind: RowKind<'l>,
}

/// What a row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowKind<'l> {
    /// A slice that ends.
    Slice(Figures<'l>),
    /// The task woke another (`-w`).
    Awakened(Task<'l>),
    /// A task was moved while this one ran (`-M`).
    Migrated { text: &'l [u8], task: Task<'l>, from: i32, to: i32 },
}

/// The figures of a slice, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures<'l> {
    pub prio: Option<i32>,
    pub wait: i64,
    pub delay: i64,
    pub run: i64,
    pub state: Option<u8>,
    /// Who runs next (`-n`).
    pub next: Option<Task<'l>>,
}

/// The row in `line`; `layout` is what the heading said, if there was one.
pub fn parse<'l>(line: &'l [u8], layout: Option<&Layout>) -> Option<Row<'l>> {
    let (time, rest) = scan::word(line);
    let dot = memchr::memchr(b'.', time)?;
    if dot == 0 || dot + 1 == time.len() || time[0] == b'-' {
        return None;
    }
    let ts_ns = scan::seconds(time)?;
    let (cpu, rest) = scan::word(rest);
    let cpu = scan::u64(cpu.strip_prefix(b"[")?.strip_suffix(b"]")?).and_then(|n| i32::try_from(n).ok())?;
    let text = match layout.and_then(|l| l.visual) {
        Some(start) => without_visual(line, line.len() - rest.len(), start),
        None => scan::skip_blanks(rest),
    };
    let (task, kind) = task_ends(text).find_map(|end| {
        let kind = figures_or_event(&text[end..], layout)?;
        Some((task(&text[..end])?, kind))
    })?;
    Some(Row { ts_ns, cpu, task, kind })
}

/// The task and what follows it in a row with a column of one letter a CPU, whose CPU field ends at
/// byte `cpu_end`.
fn without_visual(line: &[u8], cpu_end: usize, start: usize) -> &[u8] {
    let visual = |b: &u8| matches!(b, b' ' | b's' | b'i' | b'm' | b'-');
    if line.len() > start && cpu_end < start && line[cpu_end..start].iter().all(visual) {
        return &line[start..];
    }
    // The blanks of the line were collapsed, so the letters are a word of their own, or none.
    let rest = scan::skip_blanks(&line[cpu_end..]);
    let (word, after) = scan::word(rest);
    if word.iter().all(visual) {
        scan::skip_blanks(after)
    } else {
        rest
    }
}

/// Where a task's text may end: names may hold brackets.
fn task_ends(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let idle = IDLE.iter().find(|name| text.starts_with(name)).map(|name| name.len());
    let ends = memchr::memchr_iter(b']', text).map(|i| i + 1);
    idle.into_iter().chain(ends).filter(|&end| text.get(end).is_none_or(|b| scan::is_blank(*b)))
}

fn figures_or_event<'l>(rest: &'l [u8], layout: Option<&Layout>) -> Option<RowKind<'l>> {
    let rest = scan::skip_blanks(rest);
    if let Some(woken) = rest.strip_prefix(b"awakened: ") {
        return Some(RowKind::Awakened(last_task(woken)?));
    }
    if let Some(text) = rest.strip_prefix(b"migrated: ") {
        let end = memchr::memmem::rfind(text, b"] cpu ")? + 1;
        let (from, after) = scan::word(&text[end + b" cpu ".len()..]);
        let (arrow, after) = scan::word(after);
        let (from, to) = (scan::i32(from)?, scan::i32(scan::word(after).0)?);
        let (text, task) = (&text[..end], task(&text[..end])?);
        return (arrow == b"=>").then_some(RowKind::Migrated { text, task, from, to });
    }
    figures(rest, layout).map(RowKind::Slice)
}

/// The task in `text`, which nothing follows but a call chain.
fn last_task(text: &[u8]) -> Option<Task<'_>> {
    let leading = || task_ends(text).find_map(|end| task(&text[..end]));
    task(scan::trim(text)).or_else(leading).or_else(|| unknown(text))
}

/// `:67`: perf gives no name and no process of a thread that it only saw woken, in the text of 6.1
/// (`timehist_get_commstr`).
fn unknown(text: &[u8]) -> Option<Task<'_>> {
    let tid = scan::u64(scan::trim(text).strip_prefix(b":")?)?;
    Some(Task::Thread { comm: None, tid: Some(i64::try_from(tid).ok()?), pid: None })
}

fn figures<'l>(rest: &'l [u8], layout: Option<&Layout>) -> Option<Figures<'l>> {
    let mut rest = rest;
    let mut figures = Figures::default();
    let mut take = |number: Number| {
        let (word, after) = scan::word(rest);
        if number == Number::Prio {
            figures.prio = Some(scan::i32(word)?);
        } else {
            if memchr::memchr(b'.', word).is_none() || word[0] == b'-' {
                return None;
            }
            let ns = scan::decimal(word, layout.map_or(6, |l| l.digits))?;
            match number {
                Number::Wait => figures.wait = ns,
                Number::Delay => figures.delay = ns,
                Number::Run => figures.run = ns,
                _ => {}
            }
        }
        rest = after;
        Some(())
    };
    match layout {
        Some(layout) => layout.numbers.iter().try_for_each(|n| take(*n))?,
        None => {
            // Without a heading the numbers speak for themselves.
            let _ = take(Number::Prio);
            [Number::Wait, Number::Delay, Number::Run].into_iter().try_for_each(&mut take)?;
            let _ = take(Number::PreMigration);
        }
    }
    let (word, after) = scan::word(rest);
    if let ([letter], true) = (word, layout.is_none_or(|l| l.state)) {
        if letter.is_ascii_alphabetic() || *letter == b'?' {
            figures.state = Some(*letter);
            rest = after;
        }
    }
    let rest = scan::skip_blanks(rest);
    figures.next = rest.strip_prefix(b"next: ").and_then(last_task);
    Some(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] =
        b"           time    cpu  task name                       wait time  sch delay   run time  state";
    const VISUAL: &[u8] =
        b"           time    cpu  01  task name                       wait time  sch delay   run time";
    const PRIO: &[u8] =
        b"           time    cpu  task name                       prio      wait time  sch delay   run time  pre-mig time";

    fn slice<'l>(line: &'l [u8], layout: Option<&Layout>) -> Figures<'l> {
        let row = parse(line, layout).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(line)));
        match row.kind {
            RowKind::Slice(figures) => figures,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn headings() {
        let plain = Layout::of(PLAIN).unwrap();
        assert_eq!((plain.numbers.len(), plain.state, plain.visual), (3, true, None));
        assert_eq!(Layout::of(VISUAL).unwrap().visual, Some(28));
        let prio = Layout::of(PRIO).unwrap();
        assert_eq!(prio.numbers[0], Number::Prio);
        assert_eq!(prio.numbers[4], Number::PreMigration);
        let mut units = prio.clone();
        assert!(units.units(b"        [tid/pid]    (usec)     (usec)     (usec)") && units.digits == 3);
        assert!(!units.units(b"--------------- ------"));
        assert!(Layout::of(b"  Task  |   Runtime ms  | Switches |").is_none());
    }

    #[test]
    fn rows_with_and_without_a_heading() {
        let layout = Layout::of(PLAIN).unwrap();
        let line = b"      13.528676 [0003]  a b[1] c[15/7]   0.001      0.034      0.017      K  next: x[0]   y <- z";
        for layout in [Some(&layout), None] {
            let row = parse(line, layout).unwrap();
            assert_eq!((row.ts_ns, row.cpu), (13_528_676_000, 3));
            assert_eq!(row.task, Task::Thread { comm: Some(b"a b[1] c"), tid: Some(15), pid: Some(7) });
            let f = slice(line, layout);
            assert_eq!((f.wait, f.delay, f.run, f.state), (1_000, 34_000, 17_000, Some(b'K')));
            assert_eq!(f.next, Some(Task::Idle));
        }
        let prio = Layout::of(PRIO).unwrap();
        let line = b" 1.5 [0002]  s[12] 129   0.000  1.000   0.029  0.500";
        for layout in [Some(&prio), None] {
            let f = slice(line, layout);
            assert_eq!((f.prio, f.delay, f.run), (Some(129), 1_000_000, 29_000));
        }
    }

    #[test]
    fn letters_of_cpus_stand_before_the_name() {
        let layout = Layout::of(VISUAL).unwrap();
        for line in [
            &b"      13.528676 [0000]  s   s[15]                           0.000      0.034      0.017 "[..],
            b"13.528676 [0000] s s[15] 0.000 0.034 0.017",
            b"13.528676 [0000] s[15] 0.000 0.034 0.017",
        ] {
            let row = parse(line, Some(&layout)).unwrap();
            assert_eq!(row.task, Task::Thread { comm: Some(b"s"), tid: Some(15), pid: Some(15) });
        }
    }

    #[test]
    fn wakeups_and_migrations() {
        let row = parse(b" 1.5 [0001]  perf[7]      awakened: a[1] b[15/3]", None).unwrap();
        assert_eq!(row.kind, RowKind::Awakened(Task::Thread { comm: Some(b"a[1] b"), tid: Some(15), pid: Some(3) }));
        let row = parse(b" 1.5 [0001]  perf[7]      awakened: :67", None).unwrap();
        assert_eq!(row.kind, RowKind::Awakened(Task::Thread { comm: None, tid: Some(67), pid: None }));
        let row = parse(b" 1.5 [0001]  <idle>      migrated: perf[9] cpu 0 => 12", None).unwrap();
        let task = Task::Thread { comm: Some(b"perf"), tid: Some(9), pid: Some(9) };
        assert_eq!((row.task, row.kind), (Task::Idle, RowKind::Migrated { text: b"perf[9]", task, from: 0, to: 12 }));
    }

    #[test]
    fn what_is_no_row() {
        for line in [
            &b"1.5 [0001] perf[7] 0.000 0.001"[..],
            b"1.5 [0001] perf 0.000 0.001 0.002",
            b"1.5 [x] perf[7] 0.000 0.001 0.002",
            b"15 [1] perf[7] 0.000 0.001 0.002",
            b"1.5 [1] perf[7] 0.000 -0.001 0.002",
            b"1.5 [1] perf[7] migrated: x[1] cpu 0 1",
            b"perf 7 [001] 1.5: sched:sched_switch: x",
            b"",
        ] {
            assert!(parse(line, None).is_none(), "{}", String::from_utf8_lossy(line));
        }
    }
}
