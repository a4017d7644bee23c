//! Lines of the tracer `function_graph`: functions, and events as comments between them.

use crate::text::scan;

/// Such a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// A function that begins or ends, or the mark of a switch.
    Function,
    /// `/* EVENT: PAYLOAD */`.
    Event(Event<'l>),
}

/// An event among functions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event<'l> {
    /// In ns, with the option `funcgraph-abstime`; with its digits behind the dot.
    pub time: Option<(i64, usize)>,
    pub cpu: i32,
    /// With the option `funcgraph-proc`, which cuts the name.
    pub tid: Option<i64>,
    pub body: &'l [u8],
}

/// Reads `  360.774522 |   1)    sh-4802    |               |  /* EVENT: PAYLOAD */` and its kin
/// (`print_graph_prologue` in `kernel/trace/trace_functions_graph.c`).
pub(super) fn line(text: &[u8]) -> Option<Line<'_>> {
    let text = text.trim_ascii();
    if text.len() > 20 && text.iter().all(|b| *b == b'-') {
        return Some(Line::Function);
    }
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let (time, rest) = match *text.get(digits)? {
        b')' => (None, text),
        b'.' => {
            let (time, rest) = text.split_at(memchr::memchr(b'|', text)?);
            let time = time.trim_ascii_end();
            (Some((scan::seconds(time)?, time.len() - digits - 1)), rest[1..].trim_ascii_start())
        }
        _ => return None,
    };
    let (cpu, rest) = rest.split_at(memchr::memchr(b')', rest)?);
    let (cpu, rest) = (scan::i32(cpu)?, &rest[1..]);
    let (head, body) = match memchr::memmem::find(rest, b" /* ") {
        Some(at) => (&rest[..at], rest[at + 4..].strip_suffix(b" */")),
        None => (rest, None),
    };
    let is_graph = memchr::memchr(b'|', head).is_some() || memchr::memmem::find(head, b" => ").is_some();
    // `} /* name */` ends a function.
    match body.filter(|_| head.trim_ascii_end().ends_with(b"|")) {
        _ if !is_graph => None,
        None => Some(Line::Function),
        Some(body) => {
            let task = head.split(|b| *b == b'|').next().unwrap_or(b"").trim_ascii();
            let tid = memchr::memrchr(b'-', task).and_then(|dash| scan::i64(&task[dash + 1..]));
            Some(Line::Event(Event { time, cpu, tid, body }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &[u8]) -> Event<'_> {
        match line(text) {
            Some(Line::Event(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_among_functions() {
        let full = event(b"  360.774522 |   1)    sh-4802    |               |    /* cpu_idle: state=1 */");
        assert_eq!(
            full,
            Event { time: Some((360_774_522_000, 6)), cpu: 1, tid: Some(4802), body: b"cpu_idle: state=1" }
        );
        let plain = event(b" 0)               |      /* sched_wakeup: comm=a pid=1 */\n");
        assert_eq!(plain, Event { time: None, cpu: 0, tid: None, body: b"sched_wakeup: comm=a pid=1" });
        let timed = event(b"    1.000001 |   3)               |  /* a: b */");
        assert_eq!((timed.time, timed.cpu, timed.tid), (Some((1_000_001_000, 6)), 3, None));
    }

    #[test]
    fn functions() {
        for text in [
            &b" 0)   7.084 us    |  bcm2835_mbox_irq();"[..],
            b" 0) ! 102.504 us  |        } /* vfs_open */",
            b" 3)  rcu_tor-126   =>   migrati-29",
            b"  360.774522 |   1)    sh-4802    |   0.541 us    |    }",
            b" 0)   ==========> |",
            b" ------------------------------------------",
        ] {
            assert_eq!(line(text), Some(Line::Function), "{}", String::from_utf8_lossy(text));
        }
        for text in [&b"bash-1 [000] 1.5: a: b"[..], b"1) a list", b"7", b"7.5 | x", b"", b"12:30"] {
            assert_eq!(line(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
