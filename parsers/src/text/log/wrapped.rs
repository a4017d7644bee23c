//! Records that stand on several lines, as mail programs and terminals wrap them.
//!
//! A mail program puts a line end in place of a blank, so the next line begins with a whole word of
//! the record. A terminal puts it at its last column, so a word may go on. A record is joined only
//! where it then has the last field of its event, and where each line goes on as the record must: with
//! a field of it, or with the rest of one. Whatever fits no longer is read line by line.

use crate::text::payload;
use crate::text::scan;
use tracekit_schema::Kind;

/// Lines that one record may stand on.
const MOST_LINES: usize = 8;

/// The fields that scheduler events print, and the mark between the two tasks of a switch.
const FIELDS: [&[u8]; 27] = [
    b"prev_comm=",
    b"prev_pid=",
    b"prev_prio=",
    b"prev_state=",
    b"==>",
    b"next_comm=",
    b"next_pid=",
    b"next_prio=",
    b"comm=",
    b"pid=",
    b"prio=",
    b"success=",
    b"target_cpu=",
    b"orig_cpu=",
    b"dest_cpu=",
    b"child_comm=",
    b"child_pid=",
    b"filename=",
    b"old_pid=",
    b"delay=",
    b"runtime=",
    b"vruntime=",
    b"oldprio=",
    b"newprio=",
    b"iowait=",
    b"io_wait=",
    b"caller=",
];

/// A record whose end is awaited.
#[derive(Debug, Default)]
pub struct Wrapped {
    /// Its lines, and the number of each.
    lines: Vec<(u64, Vec<u8>)>,
    /// The lines together.
    joined: Vec<u8>,
    /// What stood first is read as it stands.
    given_up: bool,
    /// Records that were joined.
    pub records: u64,
    /// The line of the first of them.
    pub first: Option<u64>,
}

impl Wrapped {
    /// True when the next line may belong to the record before it.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        !self.lines.is_empty()
    }

    /// May the event that `body` prints go on in the next line? Most that are read with care do not.
    #[inline(always)]
    pub fn may_go_on(body: &[u8]) -> bool {
        body.is_empty() || body.starts_with(b"sched")
    }

    /// Takes `line`, whose event is `name` with `payload`, when the event's end may stand on the next
    /// line; true when it did.
    pub fn take(&mut self, line: &[u8], number: u64, name: &[u8], payload: &[u8]) -> bool {
        if self.given_up || !lacks_end(name, payload) {
            return false;
        }
        if !self.is_open() {
            self.lines.push((number, line.to_vec()));
        }
        self.joined.clear();
        self.joined.extend_from_slice(line);
        true
    }

    /// The record with `line` behind it; `None` when the line cannot be part of it.
    pub fn with(&mut self, line: &[u8], number: u64) -> Option<Vec<u8>> {
        if self.lines.len() >= MOST_LINES {
            return None;
        }
        let joined = join(&self.joined, line)?;
        self.lines.push((number, line.to_vec()));
        Some(joined)
    }

    /// Notes whether a joined record is whole; it stays open where it is not.
    pub fn settle(&mut self, before: usize) {
        // `take` has put what it took anew, and left the lines alone.
        if self.joined.len() == before {
            self.records += 1;
            self.first = self.first.or(self.lines.first().map(|(number, _)| *number));
            self.lines.clear();
            self.joined.clear();
        }
    }

    /// Bytes of the lines together.
    pub fn joined_bytes(&self) -> usize {
        self.joined.len()
    }

    /// The lines of a record that has no end, to be read one by one until [`Self::done`].
    pub fn give_up(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.given_up = true;
        self.joined.clear();
        std::mem::take(&mut self.lines)
    }

    /// The lines that were given up are read.
    pub fn done(&mut self) {
        self.given_up = false;
    }
}

/// Does the event `name` with `payload` lack its last field? One without a name does: it may stand on
/// the next line.
fn lacks_end(name: &[u8], payload: &[u8]) -> bool {
    if name.is_empty() {
        return payload.is_empty();
    }
    let Some(kind) = payload::sched_kind(name) else { return false };
    let keys: &[&[u8]] = match kind {
        Kind::Switch => &[b" next_prio="],
        Kind::Waking | Kind::Wakeup | Kind::WakeupNew => &[b" target_cpu=", b" cpu="],
        Kind::Migrate => &[b" dest_cpu="],
        Kind::Fork => &[b" child_pid="],
        Kind::Exec => &[b" old_pid="],
        Kind::Exit | Kind::Free | Kind::Wait => &[b" prio="],
        Kind::StatWait | Kind::StatSleep | Kind::StatBlocked | Kind::StatIowait => &[b" delay="],
        Kind::StatRuntime => &[b" runtime="],
        Kind::Prio => &[b" newprio="],
        _ => return false,
    };
    let printed = |key: &&[u8]| {
        let at = memchr::memmem::rfind(payload, key).map(|at| at + key.len());
        at.is_some_and(|at| payload.get(at).is_some_and(|b| !scan::is_blank(*b)))
    };
    let begun = [&b"prev_comm="[..], b"comm=", b"filename="].iter().any(|key| {
        let n = key.len().min(payload.len());
        payload[..n] == key[..n]
    });
    begun && !keys.iter().any(printed)
}

/// `before` and `line` as one record; `None` when `line` does not go on with it.
fn join(before: &[u8], line: &[u8]) -> Option<Vec<u8>> {
    let before = before.trim_ascii_end();
    let text = without_quotation(line);
    let (word, _) = scan::word(text);
    if word.is_empty() {
        return None;
    }
    if before.ends_with(b":") && is_event(word) || FIELDS.iter().any(|field| word.starts_with(field)) {
        return Some([before, b" ", text].concat());
    }
    // A word that goes on does so without a blank.
    let cut = &before[memchr::memrchr(b' ', before).map_or(0, |at| at + 1)..];
    let whole = [cut, word].concat();
    let number = cut.last().is_some_and(u8::is_ascii_digit) && word.iter().all(u8::is_ascii_digit);
    let fits = FIELDS.iter().any(|field| match cut.strip_prefix(*field) {
        // Its value begins, or goes on; after a name of digits may have stood a blank.
        Some(rest) => rest.is_empty() || !field.ends_with(b"comm=") && number && rest.iter().all(u8::is_ascii_digit),
        // The name of the field goes on.
        None => whole.starts_with(field) && field.len() > cut.len(),
    });
    fits.then(|| [before, text].concat())
}

/// Is `word` the name of a scheduler event, `sched_switch:` or `sched:sched_switch:`?
fn is_event(word: &[u8]) -> bool {
    let name = word.strip_prefix(b"sched:").unwrap_or(word);
    name.strip_suffix(b":").is_some_and(|name| payload::sched_kind(name).is_some())
}

/// `line` without the marks of a quotation and the blanks before it.
fn without_quotation(line: &[u8]) -> &[u8] {
    let n = line.iter().take_while(|b| matches!(b, b'>' | b'|' | b' ' | b'\t')).count();
    &line[n..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(before: &str, line: &str) -> Option<String> {
        join(before.as_bytes(), line.as_bytes()).map(|text| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn lines_go_on_as_the_record_must() {
        for (before, line, whole) in [
            // Wrapped at a blank.
            (
                "sched_switch: prev_comm=a",
                "prev_pid=1 prev_prio=120",
                "sched_switch: prev_comm=a prev_pid=1 prev_prio=120",
            ),
            (
                "sched_wakeup: comm=a pid=1",
                "> > prio=120 target_cpu=0",
                "sched_wakeup: comm=a pid=1 prio=120 target_cpu=0",
            ),
            ("prev_state=S", "==> next_comm=b", "prev_state=S ==> next_comm=b"),
            ("a-1 [000] 1.5:", "sched_waking: comm=b", "a-1 [000] 1.5: sched_waking: comm=b"),
            ("a 1 [000] 1.5:", "sched:sched_waking:", "a 1 [000] 1.5: sched:sched_waking:"),
            // Cut at a column.
            ("comm=a pid=1 prio=120 target_c", "pu=001", "comm=a pid=1 prio=120 target_cpu=001"),
            ("comm=a pid=1 prio=12", "0 target_cpu=001", "comm=a pid=1 prio=120 target_cpu=001"),
            ("comm=a pid=", "12 prio=120", "comm=a pid=12 prio=120"),
        ] {
            assert_eq!(joined(before, line).as_deref(), Some(whole), "{before} | {line}");
        }
    }

    #[test]
    fn what_may_be_two_names_is_not_joined() {
        for (before, line) in [
            ("sched_switch: prev_comm=Binder", "thread prev_pid=1"),
            ("sched_switch: prev_comm=a prev_pid=1", ""),
            ("sched_switch: prev_comm=a prev_pid=1", "ok?"),
            ("sched_switch: prev_comm=a prev_pid=1", "=> schedule"),
            ("comm=worker12", "3 pid=1"),
            ("comm=12", "3 pid=1"),
            ("a-1 [000] 1.5:", "kmalloc: x"),
        ] {
            assert_eq!(joined(before, line), None, "{before} | {line}");
        }
    }

    #[test]
    fn an_event_ends_in_its_last_field() {
        for (name, payload, open) in [
            ("sched_switch", "prev_comm=a prev_pid=1 prev_prio=120", true),
            ("sched_switch", "prev_comm=a ==> next_comm=b next_pid=2 next_prio=", true),
            ("sched_switch", "prev_comm=a ==> next_comm=b next_pid=2 next_prio=1", false),
            ("sched_switch", "", true),
            ("sched_switch", "prev_co", true),
            ("sched_switch", "a:1 [120] S ==> b:2 [120]", false),
            ("sched_switch", "(__probestub_sched_switch+0x4/0x10) preempt=0", false),
            ("sched_wakeup", "comm=a pid=1 prio=120 success=1", true),
            ("sched_wakeup", "comm=a pid=1 prio=120 success=1 target_cpu=0", false),
            ("sched_wakeup", "a:1 [120] success=1 CPU:000", false),
            ("sched_stat_runtime", "comm=a pid=1 runtime=5 [ns]", false),
            ("kmalloc", "call_site=1", false),
            ("", "", true),
            ("", "<stack trace>", false),
        ] {
            assert_eq!(lacks_end(name.as_bytes(), payload.as_bytes()), open, "{name}: {payload}");
        }
    }
}
