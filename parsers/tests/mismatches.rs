//! Files that no format fits, and files with a line of another format in them: the answer names the
//! line, and the format that it looks like.

#![allow(clippy::disallowed_methods, reason = "tests read fixtures; the crate itself sees none")]

mod common;

use common::{counts, read, read_in_steps, root};
use tracekit_parsers::Options;
use tracekit_schema::diag::Code;

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(root().join("fixtures").join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A line each of formats whose lines speak for themselves.
const FOREIGN: [(&str, &str); 6] = [
    (
        "ftrace-text",
        "            bash-946   [003] d.h2   676.984916: sched_waking: comm=a pid=7 prio=120 target_cpu=001",
    ),
    ("perf-script", "   perf   313 [000]    10.000500: sched:sched_wakeup: comm=one pid=11 prio=120 target_cpu=000"),
    ("perf-timehist", "      13.528676 [0000]  rcu_preempt[15]    0.000      0.034      0.017"),
    ("perf-latency", "  hog00:230  |    524.013 ms |      155 | avg:   0.592 ms | max:   0.633 ms |"),
    ("perf-sched-map", "  *A0       13.528676 secs A0 => one:11"),
    (
        "ktr",
        "505   0    7000000008000 KTRGRAPH group:\"thread\", id:\"sh tid 100085\", state:\"running\", attributes: prio:120",
    ),
];

/// Texts of each format that reads line by line, and the line behind which an unexpected one is put.
const HOSTS: [(&str, &str, usize); 10] = [
    ("ftrace-text", "ftrace-text/trace-cmd-report/input.txt", 5),
    ("perf-script", "perf-script/ns/input.txt", 5),
    ("perf-timehist", "perf-timehist/two-cpus/input.txt", 20),
    ("perf-latency", "perf-latency/by-name/input.txt", 5),
    ("perf-sched-map", "perf-sched-map/two-cpus/input.txt", 10),
    ("lttng-text", "lttng-text/midnight/input.txt", 3),
    ("ktr", "ktr/schedgraph-d/input.txt", 4),
    ("dtrace-tkd", "dtrace-tkd/illumos/input.tkd", 4),
    ("trcrpt", "trcrpt/all-columns/input.txt", 12),
    ("dtrace-agg", "dtrace-agg/queue-lengths/input.txt", 9),
];

/// The fixture, whatever its file is called.
fn text_of(path: &str) -> String {
    let folder = root().join("fixtures").join(path).parent().expect("a folder").to_path_buf();
    let mut files =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{path}: {e}")).map(|e| e.expect("readable").path());
    let input = files.find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("input")));
    String::from_utf8(std::fs::read(input.expect("an input")).expect("readable")).expect("text")
}

#[test]
fn a_line_of_another_format_is_named_as_such() {
    let (mut named, mut missed) = (0, Vec::new());
    for (host, path, behind) in HOSTS {
        let text = text_of(path);
        for (guest, line) in FOREIGN.iter().filter(|(guest, _)| *guest != host) {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.insert(behind, line);
            let mixed = lines.join("\n") + "\n";
            let (out, _) = read_in_steps(mixed.as_bytes(), Some(host), &Options::default(), 100);
            let number = behind as u64 + 1;
            let rows = out.diagnostics.rows();
            let found = rows.iter().find(|d| d.code == Code::Unparsed && d.line == Some(number));
            match found {
                Some(d) => {
                    assert!(d.message.contains("found"), "{host} with {guest}: {}", d.message);
                    assert_eq!(d.advice, format!("the line looks like {guest}"), "{host}: {}", d.message);
                    named += 1;
                }
                None => missed.push(format!("{host} takes a line of {guest}: {rows:?}")),
            }
        }
    }
    assert!(missed.is_empty(), "{named} named, {} not\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn an_unknown_file_is_told_with_its_line() {
    let (_, result) = read(b"\n\nprocs -----------memory----------\n r  b   swpd   free\n", None);
    let error = result.expect_err("vmstat is no trace");
    assert_eq!((error.code, error.position.line), ("unknown-format", Some(3)));
    assert!(error.message.contains("procs ----"), "{error}");
    assert!(error.advice.contains("tracekit formats"), "{error}");
    let (_, result) = read(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0], None);
    let error = result.expect_err("a program is no trace");
    assert_eq!((error.code, error.position.offset), ("unknown-format", Some(0)));
    assert!(error.message.contains("7f 45 4c 46"), "{error}");
}

/// What a line looks like is found by sniffing it; sniffing must not ask what a line looks like.
#[test]
fn sniffing_a_line_ends() {
    for line in [&b"^C"[..], b"@x:", b"^C\nCPU 0 is x = 1", b"dtrace: description 'x' matched 1 probe\nCPU  7 | 1"] {
        for format in ["bpf-hist", "dtrace-agg", "ktr", "ftrace-text"] {
            read(line, Some(format)).1.expect_err("a line is no trace");
        }
    }
}

/// What a magic number says, no line further on takes back.
#[test]
fn a_magic_number_is_certain() {
    for magic in [&b"\x17\x08\x44tracing6\0\0\x08\n"[..], b"PERFILE2\n"] {
        let text = [magic, b"#TKD\t1\n"].concat();
        let error = read(&text, None).1.expect_err("only its head is there");
        assert!(["trace-dat", "perf-data"].contains(&error.format), "{error}");
    }
}

/// The tracepoints of a perf.data state their byte order themselves; in a forged file it is not that of the
/// records.
#[test]
fn tracepoints_of_another_byte_order_than_the_records_are_not_guessed_at() {
    let mut bytes = fixture("perf-data/file/input.data");
    let sound = counts(&read(&bytes, None).0);
    let head = b"\x17\x08\x44tracing0.6\0";
    let order = bytes.windows(head.len()).position(|w| w == head).expect("a block of formats") + head.len();
    bytes[order] ^= 1;
    let (out, format) = read(&bytes, None);
    assert_eq!(format.expect("readable"), "perf-data");
    let found = counts(&out);
    assert!(sound["switch"] > 0);
    assert_eq!(found.get("switch"), None, "{found:?}");
    // Every sample is a row all the same.
    assert!(found["other"] >= sound["switch"], "{found:?}");
}

#[test]
fn files_of_related_tools_are_named() {
    for (bytes, what, advice) in [
        (&b"\xc1\x1f\xfc\xc1\x00\x00\x00\x00"[..], "CTF", "folder"),
        (b"{\n \"traceEvents\": [", "Chrome JSON", "made from"),
        (b"PK\x03\x04\x14\0\x08\0", "a zip archive", "unpack it"),
        (
            b"   0.621 nanosleep() ...\n   0.628 sched:sched_switch(prev_comm: \"a\")\n",
            "perf trace",
            "perf sched record",
        ),
        (b"  swapper  0 [006] sched:sched_switch: prev_comm=swapper/6\n", "perf script prints without times", "-F"),
        (b"{\n  \"linux-perf-json-version\": 1,", "perf's JSON", "perf.data"),
    ] {
        let (_, result) = read(bytes, None);
        let error = result.expect_err(what);
        assert_eq!(error.code, "unknown-format");
        assert!(error.message.contains(what) && error.advice.contains(advice), "{error}");
    }
}

#[test]
fn a_header_of_ftrace_before_other_lines_is_not_taken_for_a_trace_without_scheduling() {
    // The option nocontext-info prints payloads alone.
    let (_, result) = read(b"# tracer: nop\n#\n sched_switch: prev_comm=a prev_pid=1\n", None);
    let error = result.expect_err("no line has a head");
    assert_eq!((error.code, error.position.line), ("unknown-format", Some(3)), "{error}");
    assert!(error.message.contains("sched_switch: prev_comm=a"), "{error}");
    assert!(error.message.contains("option context-info"), "{error}");
}

/// As `print_raw_fmt`, `print_hex_fmt`, `trace_print_lat_context` and so on print them (Linux 6.18).
const PRINTED: [(&str, &str); 7] = [
    ("options/raw", "24473 0 65334707212552 type: 372"),
    ("options/raw", "00005f99 00000001 00003b6c0ec85dc0 type: 372"),
    (
        "options/verbose",
        "            bash   24473   0 1 00000002 00000000 [f36436552] 9.890ms (+0.709ms): sched_waking: \
         comm=a pid=7 prio=120 target_cpu=001",
    ),
    ("options/context-info", "sched_waking: comm=a pid=7 prio=120 target_cpu=001"),
    // babeltrace2 2.0.4 with -n all, -n scope, -n none.
    (
        "without -n",
        "timestamp = 04:13:53.924620168, delta = +0.000009014, name = sched_waking, stream.packet.context = \
         { cpu_id = 0 }, event.fields = { comm = \"a\", tid = 7, prio = 20, target_cpu = 1 }",
    ),
    (
        "without -n",
        "[04:13:53.924620168] (+0.000009014) h sched_waking: stream.packet.context = { 0 }, event.fields = { 7 }",
    ),
    ("without -n", "[04:13:53.924620168] (+0.000009014) h sched_waking: { 0 }, { \"a\", 7, 20, 1 }"),
];

#[test]
fn options_of_ftrace_that_leave_out_what_is_needed_are_named() {
    for (option, line) in PRINTED {
        let whole = format!("# tracer: nop\n#\n{line}\n{line}\n");
        let cut = format!("{}\n{line}\n{line}\n{}", &line[line.len() / 2..], &line[..line.len() / 2]);
        for text in [whole, cut] {
            let error = read(text.as_bytes(), None).1.expect_err(option);
            assert_eq!(error.code, "unknown-format");
            assert!(error.to_string().contains(option) || error.advice.contains(option), "{error}");
        }
    }
}

/// Named as a format that does not fit, a file says what its first line is.
#[test]
fn a_wrong_format_is_told_at_the_line() {
    for (format, code) in [
        ("ftrace-text", "unknown-format"),
        ("perf-script", "unknown-format"),
        ("perf-timehist", "no-scheduler-events"),
        ("perf-latency", "no-scheduler-events"),
        ("perf-sched-map", "no-scheduler-events"),
        ("curt", "no-scheduler-events"),
        ("ktr", "no-scheduler-events"),
        ("lttng-text", "no-scheduler-events"),
    ] {
        let (_, result) = read(b"one line of prose\nand another\n", Some(format));
        let error = result.expect_err(format);
        assert_eq!((error.format, error.code), (format, code), "{error}");
        assert!(error.message.contains("one line of prose"), "{error}");
    }
}

/// Bare pages cannot be read without the kernel's formats; the error says what to do.
#[test]
fn pages_without_formats_say_what_to_do() {
    let folder = "ftrace-pages/without-formats";
    let file = std::fs::read_dir(root().join("fixtures").join(folder)).expect("readable");
    let name = file.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned());
    let input = name.into_iter().find(|n| n.starts_with("input")).expect("an input");
    let (_, result) = read(&fixture(&format!("{folder}/{input}")), Some("ftrace-pages"));
    let error = result.expect_err("no formats");
    assert_eq!(error.code, "unsupported");
    assert!(error.advice.contains("option `formats`") && error.advice.contains("tar"), "{error}");
}

/// A text whose records are cut is not one without events of the scheduler.
#[test]
fn records_without_their_fields_are_not_missing_events() {
    let text = "\
          <idle>-0       [001] d..2.   5.400842: sched_switch: prev_comm=3Da prev_pid=3D0 =\n\
prev_prio=3D120 =3D=3D> next_comm=3Db next_pid=3D20\n";
    let error = read(text.as_bytes(), Some("ftrace-text")).1.expect_err("nothing can be read");
    assert_eq!(error.code, "no-scheduler-events");
    assert!(error.message.contains("expected the fields of `sched_switch`, found `prev_comm=3Da"), "{error}");
    assert!(error.advice.contains("as the tool wrote it"), "{error}");
}
