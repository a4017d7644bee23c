//! Patterns by which a user says what the free text of a script means.
//!
//! A pattern is the text of a line with fields in braces: `{ts_ns} {tid} {comm} -> {next_tid}`.
//! Blanks stand for any number of blanks. A field takes everything up to the text that follows it,
//! the last one the rest of the line. Several patterns, one a line or parted by `||`, are tried in
//! order; `NAME=` before one restricts it to the probe or kind NAME.

use crate::text::scan;
use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, State, Strings};

/// What a field of a pattern is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Time, with the number of digits to make ns of it: 0, 3, 6, or 9 for seconds with a point.
    Time(u32),
    /// A column of numbers.
    Number(&'static str),
    /// A column of text.
    Text(&'static str),
    /// The probe, or the kind of the record.
    Probe,
    /// Not wanted.
    Skip,
}

const FIELDS: [(&str, Field); 26] = [
    ("ts_ns", Field::Time(0)),
    ("ts_us", Field::Time(3)),
    ("ts_ms", Field::Time(6)),
    ("ts_s", Field::Time(9)),
    ("cpu", Field::Number("cpu")),
    ("ctx_tid", Field::Number("ctx_tid")),
    ("ctx_pid", Field::Number("ctx_pid")),
    ("ctx_comm", Field::Text("ctx_comm")),
    ("tid", Field::Number("tid")),
    ("pid", Field::Number("pid")),
    ("comm", Field::Text("comm")),
    ("prio", Field::Number("prio")),
    ("next_tid", Field::Number("next_tid")),
    ("next_pid", Field::Number("next_pid")),
    ("next_comm", Field::Text("next_comm")),
    ("next_prio", Field::Number("next_prio")),
    ("state", Field::Text("state")),
    ("target_cpu", Field::Number("target_cpu")),
    ("orig_cpu", Field::Number("orig_cpu")),
    ("value", Field::Number("value")),
    ("value2", Field::Number("value2")),
    ("reason", Field::Text("reason")),
    ("class", Field::Text("class")),
    ("name", Field::Text("name")),
    ("probe", Field::Probe),
    ("_", Field::Skip),
];

/// A line that fits in so many ways fits in none.
const MOST_TRIES: u32 = 10_000;

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Vec<u8>),
    Blank,
    Field(Field),
}

/// One pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The probe or kind that it is for; empty for all.
    pub only: Vec<u8>,
    parts: Vec<Part>,
}

/// Fields of a line, in the order of the pattern.
pub type Matched<'t> = Vec<(Field, &'t [u8])>;

/// All patterns of `text`.
///
/// # Errors
/// A sentence: an unknown field, a brace that is not closed, a pattern without a time.
pub fn parse(text: &str) -> Result<Vec<Pattern>, String> {
    let each = text.split('\n').flat_map(|line| line.split("||")).map(str::trim).filter(|p| !p.is_empty());
    let patterns = each.map(one).collect::<Result<Vec<_>, _>>()?;
    if patterns.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    Ok(patterns)
}

fn one(text: &str) -> Result<Pattern, String> {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':');
    let (only, template) = match text.split_once('=') {
        Some((only, rest)) if !only.is_empty() && only.chars().all(name) => (only, rest.trim()),
        _ => ("", text),
    };
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(c) = rest.chars().next() {
        if c == ' ' || c == '\t' {
            parts.push(Part::Blank);
            rest = rest.trim_start_matches([' ', '\t']);
        } else if let Some(inner) = rest.strip_prefix('{') {
            let (name, after) = inner.split_once('}').ok_or(format!("`{text}` has a brace that is not closed"))?;
            let field = FIELDS.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
            parts.push(Part::Field(field.ok_or_else(|| unknown(name))?));
            rest = after;
        } else {
            let end = rest.find(['{', ' ', '\t']).unwrap_or(rest.len());
            parts.push(Part::Literal(rest.as_bytes()[..end].to_vec()));
            rest = &rest[end..];
        }
    }
    if !parts.iter().any(|p| matches!(p, Part::Field(Field::Time(_)))) {
        return Err(format!("`{text}` has no time: one of {{ts_ns}}, {{ts_us}}, {{ts_ms}}, {{ts_s}}"));
    }
    Ok(Pattern { only: only.as_bytes().to_vec(), parts })
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = FIELDS.iter().map(|(n, _)| *n).collect();
    format!("no field is called `{name}`; there are {}", names.join(", "))
}

impl Pattern {
    /// The fields of `line`, `None` when it does not fit.
    pub fn fields<'t>(&self, line: &'t [u8]) -> Option<Matched<'t>> {
        let mut found = Vec::new();
        let mut tries = MOST_TRIES;
        self.rest(0, scan::trim(line), &mut found, &mut tries).then_some(found)
    }

    /// Matches parts from `i` on. A field that does not fit where the text after it is found first
    /// is tried further.
    fn rest<'t>(&self, i: usize, text: &'t [u8], found: &mut Matched<'t>, tries: &mut u32) -> bool {
        let Some(part) = self.parts.get(i) else { return scan::trim(text).is_empty() };
        *tries = tries.saturating_sub(1);
        match part {
            _ if *tries == 0 => false,
            Part::Blank => {
                let after = scan::skip_blanks(text);
                (after.len() < text.len() || text.is_empty()) && self.rest(i + 1, after, found, tries)
            }
            Part::Literal(word) => {
                text.strip_prefix(&word[..]).is_some_and(|after| self.rest(i + 1, after, found, tries))
            }
            Part::Field(field) => {
                let mut from = 1;
                while let Some(end) = self.end(i, text, from) {
                    let value = scan::trim(&text[..end]);
                    if !value.is_empty() && field.takes(value) {
                        found.push((*field, value));
                        if self.rest(i + 1, &text[end..], found, tries) {
                            return true;
                        }
                        found.pop();
                    }
                    from = end + 1;
                }
                false
            }
        }
    }

    /// Where the field that is part `i` may end, from byte `from` on: at the text after it, at a
    /// blank, or at the end.
    fn end(&self, i: usize, text: &[u8], from: usize) -> Option<usize> {
        let tail = text.get(from..)?;
        let at = match (self.parts.get(i + 1), self.parts.get(i + 2)) {
            (None, _) => return Some(text.len()),
            (Some(Part::Literal(word)), _) => memchr::memmem::find(tail, word)?,
            (Some(Part::Blank), Some(Part::Literal(word))) => memchr::memmem::find(tail, &[b" ", &word[..]].concat())?,
            _ => tail.iter().position(|b| scan::is_blank(*b)).unwrap_or(tail.len()),
        };
        Some(from + at)
    }
}

impl Field {
    /// A column of numbers takes numbers, and the signs for none.
    fn takes(self, text: &[u8]) -> bool {
        match self {
            Field::Number(_) => scan::i64(text).is_some() || matches!(text, b"-" | b"?"),
            Field::Time(9) => scan::seconds(text).is_some(),
            Field::Time(digits) => scan::decimal(text, digits).is_some(),
            _ => true,
        }
    }
}

/// The time of a matched line, ns.
pub fn time(matched: &Matched<'_>) -> Option<i64> {
    matched.iter().find_map(|(field, text)| match field {
        Field::Time(9) => scan::seconds(text),
        Field::Time(digits) => scan::decimal(text, *digits),
        _ => None,
    })
}

/// The probe that a matched line names.
pub fn probe<'t>(matched: &Matched<'t>) -> Option<&'t [u8]> {
    matched.iter().find(|(field, _)| *field == Field::Probe).map(|(_, text)| *text)
}

/// Sets the columns of a matched line other than time and kind; false when a number is none.
pub fn fill(matched: &Matched<'_>, row: &mut EventRow<'_>, strings: &mut Strings) -> bool {
    let mut whole = true;
    for (field, text) in matched {
        match *field {
            Field::Number(column) => match scan::i64(text) {
                Some(n) => whole &= number(column, n, row),
                None => whole &= matches!(*text, b"-" | b"?"),
            },
            Field::Text(column) if *text != b"-" => {
                let id = strings.intern(text);
                match column {
                    "ctx_comm" => row.ctx_comm(id),
                    "comm" => row.comm(id),
                    "next_comm" => row.next_comm(id),
                    "reason" => row.reason(id),
                    "class" => row.class(id),
                    "name" => row.name(id),
                    _ => row.state(state(text)).state_raw(id),
                };
            }
            _ => {}
        }
    }
    whole
}

fn number(column: &str, n: i64, row: &mut EventRow<'_>) -> bool {
    let small = i32::try_from(n).ok();
    match column {
        "ctx_tid" => row.ctx_tid(n),
        "ctx_pid" => row.ctx_pid(n),
        "tid" => row.tid(n),
        "pid" => row.pid(n),
        "next_tid" => row.next_tid(n),
        "next_pid" => row.next_pid(n),
        "value" => row.value(n),
        "value2" => row.value2(n),
        "cpu" => row.cpu(small),
        "prio" => row.prio(small),
        "next_prio" => row.next_prio(small),
        "target_cpu" => row.target_cpu(small.filter(|n| *n >= 0)),
        _ => row.orig_cpu(small.filter(|n| *n >= 0)),
    };
    small.is_some() || !matches!(column, "cpu" | "prio" | "next_prio" | "target_cpu" | "orig_cpu")
}

/// A state by tracekit's own name, or by the letter that most systems use.
fn state(text: &[u8]) -> State {
    let named = std::str::from_utf8(text).ok().and_then(State::from_name);
    named.unwrap_or(match text {
        b"R" | b"O" => State::Runnable,
        b"R+" => State::Preempted,
        b"S" => State::Sleeping,
        b"D" => State::Blocked,
        b"T" => State::Stopped,
        b"t" => State::Traced,
        b"Z" => State::Zombie,
        b"X" => State::Dead,
        b"W" => State::Capped,
        _ => State::Unknown,
    })
}

/// The kind that a probe's name stands for: of the sched and proc providers, or tracekit's own name
/// of a kind.
pub fn kind(probe: &[u8]) -> Option<Kind> {
    let name = probe.rsplit(|b| *b == b':').next().unwrap_or(probe);
    Some(match name {
        b"on-cpu" => Kind::Resume,
        b"off-cpu" => Kind::Switch,
        b"remain-cpu" => Kind::Remain,
        b"change-pri" => Kind::Prio,
        b"lend-pri" => Kind::PiBoost,
        b"load-change" => Kind::Load,
        b"create" | b"lwp-create" => Kind::Fork,
        b"exec-success" => Kind::Exec,
        b"lwp-exit" => Kind::Exit,
        _ => return std::str::from_utf8(name).ok().and_then(Kind::from_name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pattern: &str, line: &'static str) -> Option<Vec<&'static str>> {
        let p = parse(pattern).unwrap();
        let found = p[0].fields(line.as_bytes())?;
        Some(found.iter().map(|(_, t)| std::str::from_utf8(t).unwrap()).collect())
    }

    #[test]
    fn fields_end_at_the_text_that_follows() {
        assert_eq!(fields("{ts_ns} {tid} {comm}", "  12   7 Web Content "), Some(vec!["12", "7", "Web Content"]));
        assert_eq!(
            fields("{ts_us}: {comm}/{tid} -> {next_tid}", "5.5: a b/7 -> 9"),
            Some(vec!["5.5", "a b", "7", "9"])
        );
        assert_eq!(fields("{ts_ns} {comm} -> {next_comm}", "1 a b -> c d"), Some(vec!["1", "a b", "c d"]));
        assert_eq!(fields("{ts_ns} {tid}", "1"), None);
        assert_eq!(fields("x {ts_ns}", "y 1"), None);
        assert_eq!(fields("{ts_ns} end", "1 end more"), None);
    }

    #[test]
    fn several_patterns_with_names() {
        let p = parse("off-cpu={ts_ns} {tid} {next_tid}||on-cpu={ts_ns} {tid}\nwakeup={ts_s} {tid}").unwrap();
        let names: Vec<_> = p.iter().map(|p| String::from_utf8_lossy(&p.only).into_owned()).collect();
        assert_eq!(names, ["off-cpu", "on-cpu", "wakeup"]);
        assert_eq!(time(&p[2].fields(b"1.5 7").unwrap()), Some(1_500_000_000));
        assert_eq!(parse("tid={ts_ns}").unwrap()[0].only, b"tid");
    }

    #[test]
    fn mistakes_are_reported() {
        assert!(parse("{tid}").unwrap_err().contains("no time"));
        assert!(parse("{ts_ns} {tdi}").unwrap_err().contains("`tdi`"));
        assert!(parse("{ts_ns").unwrap_err().contains("closed"));
        assert!(parse("  ").is_err());
    }

    #[test]
    fn probes_have_kinds() {
        assert_eq!(kind(b"sched:::off-cpu"), Some(Kind::Switch));
        assert_eq!(kind(b"exec_common:exec-success"), Some(Kind::Exec));
        assert_eq!(kind(b"wakeup"), Some(Kind::Wakeup));
        assert_eq!(kind(b"open:entry"), None);
    }
}
