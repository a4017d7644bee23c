//! Walks `fixtures/<format>/<case>/` and holds every format to what its cases say.
//!
//! A case is a folder with one `input*` file (plain, or wrapped in gzip, zstd or xz) and a `case.toml`:
//!
//! ```toml
//! format = "ftrace-text"       # the folder's name
//! about = "what is special here, and where the bytes come from"
//! valid = true                 # false: reading it raises `error`
//! lossy = false                # true: the source says that records were lost
//! sniff = true                 # false: not recognised by its first bytes, must be named (default true)
//! error = "unsupported"        # code of the ParseError, for valid = false
//! diagnostics = ["lost-events"] # codes that appear; one of severity `error` that is not listed fails the case
//!
//! [options]                    # what the user would say: clock, clock_hz, pattern, or a name the format documents
//! clock = "mono"
//!
//! [counts]                     # rows of each kind, exactly; tables other than events by name (slices, losses, ...)
//! switch = 12
//!
//! [metadata]                   # pairs that must be there
//! "clock.resolution_ns" = "1000"
//!
//! [[rows]]                     # cells of chosen rows; "null" for an empty one
//! row = 0                      # table = "slices" for another table than events
//! kind = "switch"
//! tid = 17
//! ```
//!
//! Beside the figures of each case: no other format claims a valid input, every prefix and many
//! damaged copies are read without a panic, and the rows do not depend on how many are asked for at
//! a time.

#![allow(clippy::disallowed_methods, reason = "the walker reads fixtures; the crate itself sees no files")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use common::{counts, missing, panics, read, read_in_steps, root, row};
use tracekit_parsers::{formats, Options, Source, FORMATS};
use tracekit_schema::diag::{Code, Severity};
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out, State};

/// Folders under `fixtures/` that do not hold cases of a format.
const OTHER_FOLDERS: &[&str] = &["policies", "equivalence", "demo"];

/// What a case may say; a key that is not here is a spelling mistake.
const KEYS: &[&str] =
    &["format", "about", "valid", "lossy", "sniff", "error", "diagnostics", "options", "counts", "metadata", "rows"];

/// Formats whose source cannot lose records: the kernel's own counters.
const LOSSLESS: &[&str] = &["perf-sched-stats"];

struct Case {
    name: String,
    input: Vec<u8>,
    toml: toml::Table,
}

impl Case {
    fn text(&self, key: &str) -> Option<&str> {
        self.toml.get(key)?.as_str()
    }
    fn flag(&self, key: &str, default: bool) -> bool {
        self.toml.get(key).map_or(default, |v| v.as_bool().unwrap_or_else(|| panic!("{}: {key} is a flag", self.name)))
    }
    fn table(&self, key: &str) -> toml::Table {
        self.toml.get(key).map_or_else(toml::Table::new, |v| v.as_table().expect(key).clone())
    }
    fn format(&self) -> &str {
        self.text("format").unwrap_or_else(|| panic!("{}: case.toml names no format", self.name))
    }
    fn valid(&self) -> bool {
        self.flag("valid", true)
    }
    /// True when the input is refused, or something in it is damaged, cut or contradicts itself.
    fn malformed(&self) -> bool {
        let bad = |c: &Code| c.severity() == Severity::Error || *c == Code::Truncated;
        let code = |name: &str| Code::ALL.iter().find(|c| c.as_str() == name);
        let listed = self.toml.get("diagnostics").and_then(|d| d.as_array()).into_iter().flatten();
        !self.valid() || listed.filter_map(|d| d.as_str()).filter_map(code).any(bad)
    }
    /// The format as the user would name it: not at all where it can be sniffed.
    fn named(&self) -> Option<&str> {
        (!self.flag("sniff", true)).then(|| self.format())
    }
    fn options(&self) -> Options {
        let mut options = Options::default();
        for (key, value) in self.table("options") {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match key.as_str() {
                "clock" => options.clock = Some(text),
                "clock_hz" => options.clock_hz = Some(text.parse().expect("clock_hz is a number")),
                "pattern" => options.pattern = Some(text),
                _ => drop(options.extra.insert(key, text)),
            }
        }
        options
    }
    fn read(&self) -> (Out, Result<&'static str, tracekit_parsers::ParseError>) {
        read_in_steps(&self.input, self.named(), &self.options(), 1 << 16)
    }
}

fn folders(path: PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(&path) else { return Vec::new() };
    let mut all: Vec<_> = entries.map(|e| e.expect("readable folder").path()).filter(|p| p.is_dir()).collect();
    all.sort();
    all
}

fn cases() -> Vec<Case> {
    let name_of = |p: &PathBuf| p.file_name().expect("a name").to_string_lossy().into_owned();
    let formats = folders(root().join("fixtures")).into_iter().filter(|p| !OTHER_FOLDERS.contains(&&*name_of(p)));
    let mut all = Vec::new();
    for folder in formats.flat_map(folders) {
        let name = format!("{}/{}", name_of(&folder.parent().expect("a parent").to_path_buf()), name_of(&folder));
        let file =
            std::fs::read_to_string(folder.join("case.toml")).unwrap_or_else(|e| panic!("{name}/case.toml: {e}"));
        let toml: toml::Table = file.parse().unwrap_or_else(|e| panic!("{name}/case.toml: {e}"));
        let mut inputs = std::fs::read_dir(&folder).expect("readable").map(|e| e.expect("readable").path());
        let input = inputs.find(|p| name_of(p).starts_with("input")).unwrap_or_else(|| panic!("{name}: no input file"));
        all.push(Case { input: std::fs::read(input).expect("readable input"), name, toml });
    }
    all
}

/// Runs `check` on every case and reports all failures at once.
fn for_all(check: impl Fn(&Case, &mut Vec<String>)) {
    let mut failures = Vec::new();
    for case in cases() {
        let mut found = Vec::new();
        check(&case, &mut found);
        failures.extend(found.into_iter().map(|f| format!("{}: {f}", case.name)));
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_format_has_a_fixture_and_every_fixture_a_format() {
    let cases = cases();
    for case in &cases {
        let known = FORMATS.iter().any(|f| f.name == case.format()) || case.format() == "unknown";
        assert!(known, "{}: no format is called {}", case.name, case.format());
        assert_eq!(case.name.split('/').next(), Some(case.format()), "{}: folder and format differ", case.name);
        let odd: Vec<_> = case.toml.keys().filter(|k| !KEYS.contains(&k.as_str())).collect();
        assert!(odd.is_empty(), "{}: unknown keys {odd:?}", case.name);
        assert!(case.text("about").is_some_and(|a| a.len() > 10), "{}: `about` says what the case shows", case.name);
        assert_eq!(case.valid(), case.text("error").is_none(), "{}: `error` goes with valid = false", case.name);
    }
    let mut names = BTreeSet::new();
    for format in FORMATS {
        assert!(names.insert(format.name), "two formats are called {}", format.name);
        let valid = cases.iter().any(|c| c.valid() && c.format() == format.name);
        assert!(valid, "format {} has no valid fixture under fixtures/{}", format.name, format.name);
        let malformed = cases.iter().any(|c| c.format() == format.name && c.malformed());
        assert!(malformed, "format {} has no malformed fixture", format.name);
        let lossy = cases.iter().any(|c| c.format() == format.name && c.flag("lossy", false));
        assert!(
            lossy || LOSSLESS.contains(&format.name),
            "format {} has no fixture whose source lost records",
            format.name
        );
    }
}

#[test]
fn cases_read_as_they_say() {
    for_all(|case, failures| {
        let (out, result) = case.read();
        match (&result, case.text("error")) {
            (Err(e), Some(code)) if e.code == code => return,
            (Err(e), _) => return failures.push(format!("raises {}: {e}", e.code)),
            (Ok(_), Some(code)) => return failures.push(format!("should raise {code}")),
            (Ok(name), None) if *name != case.format() => return failures.push(format!("is taken for {name}")),
            (Ok(_), None) => {}
        }
        check_counts(case, &out, failures);
        check_diagnostics(case, &out, failures);
        check_metadata(case, &out, failures);
        check_rows(case, &out, failures);
        for column in missing(&out.events, &out.strings) {
            failures.push(format!("events.{column} is null somewhere, and must not be"));
        }
        for column in missing(&out.losses, &out.strings) {
            failures.push(format!("losses.{column} is null somewhere, and must not be"));
        }
    });
}

fn check_counts(case: &Case, out: &Out, failures: &mut Vec<String>) {
    let said: BTreeMap<String, i64> =
        case.table("counts").into_iter().map(|(k, v)| (k, v.as_integer().expect("a count"))).collect();
    let found = counts(out);
    for key in said.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (said, found) = (said.get(key).copied().unwrap_or(0), found.get(key).copied().unwrap_or(0));
        if said != found {
            failures.push(format!("{found} rows of {key}, the case says {said}"));
        }
    }
}

fn check_diagnostics(case: &Case, out: &Out, failures: &mut Vec<String>) {
    let said: Vec<String> = case.toml.get("diagnostics").map_or_else(Vec::new, |v| {
        v.as_array().expect("a list").iter().map(|c| c.as_str().expect("a code").to_owned()).collect()
    });
    let rows = out.diagnostics.rows();
    for code in &said {
        if !rows.iter().any(|d| d.code.as_str() == code) {
            failures.push(format!("no diagnostic {code}"));
        }
    }
    for d in rows.iter().filter(|d| d.code.severity() == Severity::Error && !said.iter().any(|s| s == d.code.as_str()))
    {
        failures.push(format!("diagnostic {} (line {:?}): {}", d.code.as_str(), d.line, d.message));
    }
    let loss = |d: &&tracekit_schema::Diagnostic| matches!(d.code, Code::LostEvents | Code::Overwritten);
    let lossy = !out.losses.is_empty() || rows.iter().any(|d| loss(&d));
    if lossy != case.flag("lossy", false) {
        failures.push(format!("lossy is {lossy}"));
    }
}

fn check_metadata(case: &Case, out: &Out, failures: &mut Vec<String>) {
    if out.meta.get("source.format") != Some(case.format()) {
        failures.push("metadata source.format is not the format".to_owned());
    }
    for (key, value) in case.table("metadata") {
        let value = value.as_str().expect("metadata values are strings").to_owned();
        if out.meta.get(&key) != Some(&value) {
            failures.push(format!("metadata {key} is {:?}, the case says {value:?}", out.meta.get(&key)));
        }
    }
}

fn check_rows(case: &Case, out: &Out, failures: &mut Vec<String>) {
    let Some(rows) = case.toml.get("rows") else { return };
    for want in rows.as_array().expect("[[rows]]") {
        let want = want.as_table().expect("[[rows]]");
        let index = want["row"].as_integer().expect("row number") as usize;
        let table = want.get("table").map_or("events", |t| t.as_str().expect("a name"));
        let cells = match table {
            "events" => row(&out.events, &out.strings, index),
            "slices" => row(&out.slices, &out.strings, index),
            "losses" => row(&out.losses, &out.strings, index),
            "summaries" => row(&out.summaries, &out.strings, index),
            "histograms" => row(&out.histograms, &out.strings, index),
            other => panic!("{}: no table {other}", case.name),
        };
        for (key, value) in want.iter().filter(|(k, _)| !["row", "table"].contains(&k.as_str())) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let found = cells.get(key.as_str()).map_or("null", String::as_str);
            if found != value {
                failures.push(format!("{table}[{index}].{key} is {found}, the case says {value}"));
            }
        }
    }
}

#[test]
fn no_other_format_claims_a_valid_input() {
    for_all(|case, failures| {
        if !case.valid() {
            return;
        }
        let mut source = Source::from_bytes(&case.input[..]).unwrapped().expect("readable");
        let head = source.head().expect("readable");
        let claims: Vec<_> = FORMATS.iter().map(|f| ((f.sniff)(&head), f.name)).filter(|c| c.0 > 0).collect();
        let own = claims.iter().find(|c| c.1 == case.format()).map_or(0, |c| c.0);
        for (confidence, name) in claims.iter().filter(|c| c.1 != case.format() && c.0 >= own) {
            failures.push(format!("{name} claims it with {confidence}, its own format with {own}"));
        }
        if case.flag("sniff", true) && own == 0 {
            failures.push("is not recognised".to_owned());
        }
    });
}

#[test]
fn rows_do_not_depend_on_the_step() {
    for_all(|case, failures| {
        let (whole, _) = case.read();
        for step in [1, 7] {
            let (stepped, _) = read_in_steps(&case.input, case.named(), &case.options(), step);
            if whole.events.len() != stepped.events.len() {
                failures.push(format!("{} rows, {} in steps of {step}", whole.events.len(), stepped.events.len()));
                continue;
            }
            let differ =
                |&r: &usize| row(&whole.events, &whole.strings, r) != row(&stepped.events, &stepped.strings, r);
            if let Some(r) = (0..whole.events.len()).find(differ) {
                failures.push(format!("row {r} differs when read in steps of {step}"));
            }
        }
    });
}

/// Lengths at which to cut: every one near the ends, some hundred in between.
fn cuts(len: usize) -> Vec<usize> {
    let stride = (len / 400).max(1);
    let edge = |n: &usize| *n < 600 || *n + 300 > len || n.is_multiple_of(stride);
    (0..len).filter(edge).collect()
}

#[test]
fn every_prefix_is_read_without_a_panic() {
    std::panic::set_hook(Box::new(|_| {}));
    for_all(|case, failures| {
        for len in cuts(case.input.len()) {
            // Named, because a short prefix is often not recognised.
            if let Some(why) = panics(&case.input[..len], Some(case.format()).filter(|f| *f != "unknown")) {
                return failures.push(format!("cut at byte {len}: panic: {why}"));
            }
        }
    });
}

#[test]
fn damaged_bytes_are_read_without_a_panic() {
    std::panic::set_hook(Box::new(|_| {}));
    for_all(|case, failures| {
        let len = case.input.len();
        for at in (0..len).step_by((len / 300).max(1)) {
            for with in [0u8, b'\n', b'9', b' ', 0xff] {
                let mut damaged = case.input.clone();
                damaged[at] = with;
                if let Some(why) = panics(&damaged, Some(case.format()).filter(|f| *f != "unknown")) {
                    return failures.push(format!("byte {at} set to {with}: panic: {why}"));
                }
            }
        }
    });
}

#[test]
fn unknown_names_and_empty_files_are_refused_with_the_code() {
    let (_, result) = read(b"", None);
    assert_eq!(result.expect_err("nothing to read").code, "empty");
    let (_, result) = read(b"no trace at all\n", None);
    assert_eq!(result.expect_err("not a trace").code, "unknown-format");
    assert_eq!(formats::by_name("no-such-format").map(|f| f.name).expect_err("no such format").code, "unknown-format");
    for format in FORMATS {
        assert!(panics(b"", Some(format.name)).is_none(), "{} panics on an empty file", format.name);
        assert!(panics(&[0; 4096], Some(format.name)).is_none(), "{} panics on zeros", format.name);
        assert!(panics(&[0xff; 4096], Some(format.name)).is_none(), "{} panics on ones", format.name);
    }
}

/// A word of `FormatInfo::provides`, and whether what was read shows it.
type Claim = (&'static str, fn(&Out) -> bool);

/// What a format may claim in `provides`, and what in a fixture shows it: the docs make a table of
/// these words.
const CLAIMS: [Claim; 6] = [
    ("waker", |out| {
        let wakes = |k| matches!(k, Kind::Waking | Kind::Wakeup | Kind::WakeupNew | Kind::Enqueue);
        let stated = |i: &usize| out.events.kind.get(*i).is_some_and(wakes) && out.events.ctx_tid.get(*i).is_some();
        (0..out.events.len()).any(|i| stated(&i))
            || (0..out.slices.len()).any(|i| out.slices.waker_utid.get(i).is_some())
    }),
    ("target CPU", |out| {
        let placed = |k| k != Kind::Load;
        (0..out.events.len())
            .any(|i| out.events.target_cpu.get(i).is_some() && out.events.kind.get(i).is_some_and(placed))
    }),
    ("priority", |out| {
        (0..out.events.len()).any(|i| out.events.prio.get(i).is_some())
            || (0..out.slices.len()).any(|i| out.slices.prio.get(i).is_some())
    }),
    ("state", |out| {
        let events = || (0..out.events.len()).filter_map(|i| out.events.state.get(i));
        let slices = || (0..out.slices.len()).filter_map(|i| out.slices.end_state.get(i));
        events().chain(slices()).any(|s| !matches!(s, State::Unknown | State::UnknownOff))
    }),
    ("queue length", |out| {
        !out.histograms.is_empty() || (0..out.events.len()).any(|i| out.events.kind.get(i) == Some(Kind::Load))
    }),
    ("losses", |out| !out.losses.is_empty()),
];

#[test]
fn formats_provide_what_fixtures_show() {
    let read: Vec<_> = cases().into_iter().map(|c| (c.format().to_owned(), c.read().0)).collect();
    let mut wrong = Vec::new();
    for format in FORMATS {
        for (word, shows) in CLAIMS {
            let claimed = format.info.provides.contains(word);
            let shown = read.iter().any(|(name, out)| name == format.name && shows(out));
            if claimed != shown {
                wrong.push(format!("{}: {word} is claimed: {claimed}, shown by a fixture: {shown}", format.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
