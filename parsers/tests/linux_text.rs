//! ftrace text and perf script of real machines: every scheduler line becomes a row, and the quick
//! path changes nothing.
//!
//! The captures are not part of the repository. Where they are not at hand the tests say so and pass.

#![allow(clippy::disallowed_methods, reason = "tests read files; the crate itself sees none")]

mod common;

use std::path::{Path, PathBuf};

use common::{read_in_steps, root, row};
use tracekit_parsers::Options;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Kind, Out};

/// Files under `testdata/<folder>` whose names end in one of `ends`; `None` where the captures are
/// not at hand.
fn files(folder: &str, ends: &[&str]) -> Vec<PathBuf> {
    let top = root().join("testdata").join(folder);
    let Ok(entries) = std::fs::read_dir(&top) else {
        eprintln!("skipped: no captures under testdata/{folder}");
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in entries.map(|e| e.expect("readable").path()) {
        if path.is_dir() {
            let name = format!("{folder}/{}", path.file_name().expect("a name").to_string_lossy());
            found.extend(files(&name, ends));
        } else if ends.iter().any(|end| path.to_string_lossy().ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Scheduler events that have a kind, found without the parser: by the event's name with a blank or
/// a colon before it and a colon behind it, outside of comments.
fn lines_of_sched_events(text: &[u8]) -> usize {
    const NAMES: [&[u8]; 17] = [
        b"sched_switch",
        b"sched_waking",
        b"sched_wakeup",
        b"sched_wakeup_new",
        b"sched_migrate_task",
        b"sched_process_fork",
        b"sched_process_exec",
        b"sched_process_exit",
        b"sched_process_free",
        b"sched_process_wait",
        b"sched_stat_wait",
        b"sched_stat_sleep",
        b"sched_stat_blocked",
        b"sched_stat_iowait",
        b"sched_stat_runtime",
        b"sched_pi_setprio",
        b"sched_blocked_reason",
    ];
    let mut count = 0;
    for line in text.split(|b| *b == b'\n').filter(|l| !l.starts_with(b"#")) {
        let words = line.split(|b| b" \t".contains(b)).filter_map(|w| w.strip_suffix(b":"));
        let names = words.map(|w| w.strip_prefix(b"sched:").unwrap_or(w));
        count += usize::from(names.into_iter().any(|n| NAMES.contains(&n)));
    }
    count
}

/// Rows of the kinds that scheduler events become.
fn sched_rows(out: &Out) -> usize {
    let sched =
        |kind: Kind| (Kind::Switch..=Kind::Wait).contains(&kind) || (Kind::Prio..=Kind::BlockedReason).contains(&kind);
    out.events.kind.values().iter().filter(|k| sched(**k)).count()
}

fn read_file(path: &Path, careful: bool) -> Result<Out, String> {
    let bytes = std::fs::read(path).expect("readable");
    let mut options = Options::default();
    if careful {
        options.extra.insert("careful".to_owned(), String::new());
    }
    let (out, result) = read_in_steps(&bytes, None, &options, 1 << 16);
    result.map(|_| out).map_err(|e| format!("{}: {}", e.code, e.message))
}

/// What is said of the lines, and how many are read and not understood.
fn stated(out: &Out) -> Vec<String> {
    let rows = out.diagnostics.rows().iter().map(|d| format!("{d:?}"));
    let counts = ["parse.lines", "parse.unparsed"].map(|key| format!("{key} {:?}", out.meta.get(key)));
    rows.chain(counts).collect()
}

/// Files in which lines and rows differ, by how many and why.
const EXPLAINED: [(&str, usize, &str); 2] = [
    ("trappy_trace_idle_unsorted.txt", 1, "the last line is cut within its payload"),
    ("perfparser_zstd.expected.txt", 9, "a dump of another tool, in which events stand on lines of their own"),
];

/// Every file: as many rows as lines, and the same rows without the quick path.
fn check(paths: &[PathBuf]) {
    let mut failures = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root().join("testdata")).unwrap_or(path).display();
        let explained = EXPLAINED.iter().find(|(file, ..)| path.ends_with(file)).map_or(0, |(_, n, _)| *n);
        let lines = lines_of_sched_events(&std::fs::read(path).expect("readable")) - explained;
        let quick = match read_file(path, false) {
            Ok(out) => out,
            Err(e) if lines == 0 => {
                let known = ["no-scheduler-events", "unknown-format"];
                if !known.iter().any(|code| e.starts_with(code)) {
                    failures.push(format!("{name}: {e}"));
                }
                continue;
            }
            Err(e) => {
                failures.push(format!("{name}: {lines} lines, {e}"));
                continue;
            }
        };
        if sched_rows(&quick) != lines {
            failures.push(format!("{name}: {lines} lines, {} rows", sched_rows(&quick)));
        }
        let careful = read_file(path, true).expect("as before");
        if stated(&quick) != stated(&careful) {
            failures.push(format!("{name}: {:?}\n  carefully {:?}", stated(&quick), stated(&careful)));
        }
        let same = |r: &usize| row(&quick.events, &quick.strings, *r) == row(&careful.events, &careful.strings, *r);
        // Comparing cell by cell is slow; a sample of rows at odd distances sees every shape.
        let step = (quick.events.len() / 2000).max(1);
        if quick.events.len() != careful.events.len() {
            failures.push(format!("{name}: {} rows, carefully {}", quick.events.len(), careful.events.len()));
        } else if let Some(r) = (0..quick.events.len()).step_by(step).find(|r| !same(r)) {
            let (a, b) = (row(&quick.events, &quick.strings, r), row(&careful.events, &careful.strings, r));
            failures.push(format!("{name}: row {r} differs:\n  {a:?}\n  {b:?}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} files\n{}", failures.len(), paths.len(), failures.join("\n"));
}

/// Time that steps back, and lines of another kind, are reported by the quick path as without it.
#[test]
fn the_quick_path_tells_what_the_other_one_tells() {
    for name in ["ftrace", "perf"] {
        let mut text = String::new();
        for i in 0..60u64 {
            // Two CPUs a little apart; every seventh line of CPU 1 lies before the one before it.
            let (cpu, back) = (i % 2, if i % 14 == 13 { 5_000 } else { i % 3 });
            let us = 100_000 + 100 * i - back;
            let event = format!("sched_wakeup: comm=a pid={} prio=120 target_cpu=00{cpu}", 7 + cpu);
            let head = match name {
                "ftrace" => format!("            b-5       [00{cpu}] d..2.     5.{us:06}: "),
                _ => format!("b     5 [00{cpu}]     5.{us:06}: sched:"),
            };
            let junk = match i {
                9 | 30 => "neither head nor tail\n",
                20 => &format!("{head}print: words of a program\nthat go on\n"),
                _ => "",
            };
            text += &format!("{head}{event}\n{junk}");
        }
        let read = |careful: bool| {
            let mut options = Options::default();
            if careful {
                options.extra.insert("careful".to_owned(), String::new());
            }
            let (out, result) = read_in_steps(text.as_bytes(), None, &options, 1 << 16);
            result.map(|_| out).expect("it is of the format")
        };
        let (quick, careful) = (read(false), read(true));
        assert_eq!(stated(&quick), stated(&careful), "{name}");
        let back = quick.diagnostics.rows().iter().filter(|d| d.code == Code::TimeBackwards);
        assert_eq!(back.count(), 4, "{name}");
    }
}

/// All rows of a text of ftrace, and what is said of it.
fn told(text: &str, careful: bool) -> (Vec<String>, Vec<String>, String) {
    let mut options = Options::default();
    if careful {
        options.extra.insert("careful".to_owned(), String::new());
    }
    let (out, result) = read_in_steps(text.as_bytes(), Some("ftrace-text"), &options, 1 << 16);
    result.expect("it is of the format");
    let rows = (0..out.events.len()).map(|r| format!("{:?}", row(&out.events, &out.strings, r))).collect();
    (rows, stated(&out), out.meta.get("source.variant").unwrap_or_default().to_owned())
}

/// Tasks are recognised by the bytes that name them: names and numbers that begin like others, or hold
/// what stands between, are read for what they are.
#[test]
fn tasks_that_look_alike_are_told_apart() {
    const NAMES: [&str; 14] = [
        "a",
        "ab",
        "swapper/1",
        "kworker/u12:1-ev",
        "fifteen bytes..",
        "x pid=3",
        "x prev_pid=3",
        "n=1",
        "f [120]",
        "a:16",
        "\u{e9}t\u{e9}",
        "=> b",
        "",
        "a name of twenty-one.",
    ];
    const NUMBERS: [u64; 8] = [1, 16, 168, 1680, 16_801, 1_680_123, 16_801_234, 168_012_345_678];
    let (mut text, mut seed) = (String::new(), 1u64);
    let mut draw = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for i in 0..6000 {
        let (name, tid, prio) = (NAMES[draw(14)], NUMBERS[draw(8)], [1, 12, 120][draw(3)]);
        let (other, number) = (NAMES[draw(14)], NUMBERS[draw(8)]);
        let event = match draw(8) {
            0 => format!("sched_wakeup: comm={name} pid={tid} prio={prio} target_cpu=001"),
            1 => format!("sched_wakeup:         {name}:{tid} [{prio}] CPU:001"),
            2 => format!("sched_stat_runtime:   comm={name} pid={tid} runtime={number} [ns]"),
            3 => format!("sched_stat_wait: comm={name} pid={tid} delay={number} [ns]"),
            4 => format!("sched_switch:         {name}:{tid} [{prio}] S ==> {other}:{number} [120]"),
            5 => format!("sched_waking:  comm={name} prev_pid={tid} prio={prio} target_cpu=000"),
            6 => format!("sched_migrate_task: comm={name} pid={tid} prio={prio} orig_cpu=0 dest_cpu=1"),
            _ => {
                let next = format!("next_comm={other} next_pid={number} next_prio=120");
                format!("sched_switch: prev_comm={name} prev_pid={tid} prev_prio={prio} prev_state=R+ ==> {next}")
            }
        };
        text += &format!("            b-5       [000]     5.{:06}: {event}\n", 10 * i);
    }
    let (quick, careful) = (told(&text, false), told(&text, true));
    assert_eq!(quick.0.len(), careful.0.len());
    for (quick, careful) in quick.0.iter().zip(&careful.0) {
        assert_eq!(quick, careful);
    }
    assert_eq!(quick.1, careful.1);
}

/// Flags that mean nothing in their columns say nothing, however often they come.
#[test]
fn a_marker_is_what_the_program_wrote_and_not_the_function_that_wrote_it() {
    let head = "cpus=1\n              wl-223   [000]     3.927831570: sched_switch: prev_comm=a prev_pid=1 \
                prev_prio=120 prev_state=S ==> next_comm=wl next_pid=223 next_prio=120\n";
    let written = |event: &str| {
        let text = format!("{head}              wl-223   [000]     3.927831571: {event}\n");
        let (out, result) = read_in_steps(text.as_bytes(), Some("ftrace-text"), &Options::default(), 1 << 16);
        result.expect("it is of the format");
        let name = out.events.name.get(1).map(|n| String::from_utf8_lossy(out.strings.get(n)).into_owned());
        (out.events.kind.get(1), name)
    };
    let marker = |name: &str| (Some(Kind::Marker), Some(name.to_owned()));
    // A report without the kernel's symbols prints the address of the function.
    assert_eq!(written("print:                0xffffffff8122acdf: go"), marker("go"));
    assert_eq!(written("print:                tracing_mark_write: go"), marker("go"));
    assert_eq!(written("tracing_mark_write: go"), marker("go"));
    // This is what the program wrote.
    assert_eq!(written("tracing_mark_write: 0x12: go"), marker("0x12: go"));
    assert_eq!(written("print: 0xffffffff8122acdf: 0x12: go"), marker("0x12: go"));
    assert_eq!(written("print: 0x: go"), marker("0x: go"));
}

#[test]
fn flags_without_a_meaning_stay_unknown() {
    let line = |i: u64| {
        let flags = if i.is_multiple_of(3) { "Zd.2." } else { "d..2." };
        format!(
            "            b-5       [000] {flags}     5.{i:06}: sched_wakeup: comm=a pid=7 prio=120 target_cpu=000\n"
        )
    };
    let text: String = (0..60).map(line).collect();
    assert_eq!(told(&text, false).0, told(&text, true).0);
}

/// A line that is damaged where nothing varies is not taken by its surroundings.
#[test]
fn the_quick_path_reads_no_damaged_line() {
    let line = |us: u64, event: &str| format!("            b-5       [000]     5.{us:06}: {event}\n");
    let event = "sched_wakeup: comm=a pid=7 prio=120 target_cpu=000";
    for (from, to) in [("5.0", "5x0"), (": sched", ":sched"), ("wakeup: ", "wakeup:"), ("comm=a", "comm=a\n")] {
        let lines = (0..60).map(|i| {
            let whole = line(1000 * i, event);
            if i % 9 == 5 {
                whole.replace(from, to)
            } else {
                whole
            }
        });
        let text: String = lines.collect();
        let (quick, careful) = (told(&text, false), told(&text, true));
        assert_eq!(quick.0, careful.0, "{to:?}");
        assert_eq!(quick.1, careful.1, "{to:?}");
    }
}

/// The form of switches is named whichever way they were read.
#[test]
fn the_plugin_form_is_named_where_switches_are_read_quickly() {
    let line = |us: u64, event: &str| format!("            b-5       [000]     5.{us:06}: {event}\n");
    let wakeups = |from: u64| (from..from + 20).map(|us| line(us, "sched_wakeup:         a:7 [120] CPU:000"));
    let switch = line(50, "sched_switch:         b:5 [120] S ==> a:7 [120]");
    let text: String = wakeups(10).chain([switch]).chain(wakeups(60)).collect();
    assert_eq!(told(&text, false).2, "report, plugin form");
}

#[test]
fn public_ftrace_texts() {
    check(&files("corpus/ftrace-text", &[".txt"]));
}

#[test]
fn public_perf_scripts() {
    check(&files("corpus/perf-script", &[".txt"]));
}

#[test]
fn reports_of_public_recordings() {
    let all = files("corpus/derived-from-real", &[".txt"]);
    check(&all.into_iter().filter(|p| p.to_string_lossy().contains("trace-cmd-report")).collect::<Vec<_>>());
}

#[test]
fn our_own_captures() {
    check(&files("lab", &[".ftrace.txt", ".report.txt", ".perf.txt", ".perf-script.txt"]));
}

/// Time, CPU, kind and threads of an event.
type Essence = (i64, Option<i32>, Kind, Option<i64>, Option<i64>);

/// What every scheduler event says.
fn essence(out: &Out) -> Vec<Essence> {
    let e = &out.events;
    let sched = |k: Kind| (Kind::Switch..=Kind::Wait).contains(&k) || (Kind::Prio..=Kind::BlockedReason).contains(&k);
    let rows = (0..e.len()).filter(|r| e.kind.get(*r).is_some_and(sched));
    let ts = |r: usize| e.ts_ns.get(r).expect("every record has a time");
    rows.map(|r| (ts(r), e.cpu.get(r), e.kind.get(r).expect("and a kind"), e.tid.get(r), e.next_tid.get(r))).collect()
}

/// The text `text` says what the recording `binary` holds, its times written by `written`.
fn check_pair(text: &Path, binary: &Path, written: fn(i64) -> i64, failures: &mut Vec<String>) {
    let stated = essence(&read_file(text, false).expect("a text of the capture is read"));
    let mut held = essence(&read_file(binary, false).expect("the capture is read"));
    held.iter_mut().for_each(|e| e.0 = written(e.0));
    let differ = (0..stated.len().max(held.len())).find(|i| stated.get(*i) != held.get(*i));
    if let Some(i) = differ {
        let (t, h) = (stated.get(i), held.get(i));
        let name = text.file_name().unwrap_or_default().to_string_lossy();
        failures.push(format!("{name}: event {i} of {}/{}: {t:?} against {h:?}", stated.len(), held.len()));
    }
}

/// Pairs of texts whose names end in `end`, and the recordings that `to` makes of their names.
fn check_pairs(texts: Vec<PathBuf>, to: impl Fn(&str) -> String, written: fn(i64) -> i64) {
    let mut failures = Vec::new();
    let mut pairs = 0;
    for text in &texts {
        let binary = PathBuf::from(to(&text.to_string_lossy()));
        if binary.is_file() {
            pairs += 1;
            check_pair(text, &binary, written, &mut failures);
        }
    }
    assert!(texts.is_empty() || pairs > 0, "no text has its recording beside it");
    assert!(failures.is_empty(), "{} of {pairs} pairs\n{}", failures.len(), failures.join("\n"));
}

fn rounded(ns: i64) -> i64 {
    (ns + 500) / 1000 * 1000
}

#[test]
fn reports_tell_what_their_recordings_hold() {
    check_pairs(files("lab", &[".report.txt"]), |t| t.replace(".report.txt", ".dat"), rounded);
    check_pairs(files("lab", &[".ftrace.txt"]), |t| t.replace(".ftrace.txt", ".dat"), rounded);
}

#[test]
fn reports_of_public_recordings_tell_what_those_hold() {
    let texts = files("corpus/derived-from-real", &[".trace-cmd-report-ns.txt"]);
    let to = |t: &str| t.replace("derived-from-real", "trace.dat").replace(".trace-cmd-report-ns.txt", ".dat");
    check_pairs(texts, to, |ns| ns);
    let texts = files("corpus/derived-from-real", &[".trace-cmd-report.txt"]);
    let to = |t: &str| t.replace("derived-from-real", "trace.dat").replace(".trace-cmd-report.txt", ".dat");
    check_pairs(texts, to, rounded);
}

#[test]
fn perf_scripts_tell_what_their_recordings_hold() {
    check_pairs(files("lab", &[".perf-script.txt"]), |t| t.replace(".perf-script.txt", ".perf.data"), |ns| ns);
}
