//! Known figures written as reports of curt and as aggregations of DTrace, in every layout those
//! print, and read back without loss.

#![allow(clippy::disallowed_methods, reason = "tests see files; the crate itself does not")]

mod common;

use common::{read, row};
use proptest::prelude::*;
use tracekit_schema::table::Table;

/// A row of `summaries`: section, subject, thread, key, value, unit.
type Figure = (String, Option<String>, Option<i64>, String, String, Option<&'static str>);

/// A table of curt: its title, columns (heading lines, decimals, unit) and the heading of the texts.
struct Kind {
    title: &'static str,
    columns: &'static [(&'static [&'static str], usize, Option<&'static str>)],
    last: &'static str,
    /// Per CPU: `CPU Number 0:` stands over each part.
    per_cpu: bool,
    /// Cells may be empty.
    gaps: bool,
}

const MS: Option<&str> = Some("ms");
const PERCENT: Option<&str> = Some("%");

const KINDS: [Kind; 7] = [
    Kind {
        title: "System Summary",
        columns: &[
            (&["processing", "total time", "(msec)"], 2, MS),
            (&["percent", "total time", "(incl. idle)"], 2, PERCENT),
            (&["percent", "busy time", "(excl. idle)"], 2, PERCENT),
        ],
        last: "processing category",
        per_cpu: false,
        gaps: true,
    },
    Kind {
        title: "Processor Summary",
        columns: &[
            (&["processing", "total time", "(msec)"], 2, MS),
            (&["percent", "total time", "(incl. idle)"], 2, PERCENT),
            (&["percent", "busy time", "(excl. idle)"], 2, PERCENT),
        ],
        last: "processing category",
        per_cpu: true,
        gaps: true,
    },
    Kind {
        title: "Application Summary (by Tid)",
        columns: APPLICATION,
        last: "name (Pid Tid)",
        per_cpu: false,
        gaps: false,
    },
    Kind {
        title: "Application Summary (by Pid)",
        columns: APPLICATION,
        last: "name (Pid)(Thread Count)",
        per_cpu: false,
        gaps: false,
    },
    Kind {
        title: "System Calls Summary",
        columns: &[
            (&["Count"], 0, None),
            (&["Total Time", "(msec)"], 4, MS),
            (&["% sys", "time"], 2, PERCENT),
            (&["Avg Time", "(msec)"], 4, MS),
            (&["Min Time", "(msec)"], 4, MS),
            (&["Max Time", "(msec)"], 4, MS),
        ],
        last: "SVC (Address)",
        per_cpu: false,
        gaps: false,
    },
    Kind { title: "Global Flih Summary", columns: HANDLERS, last: "Flih Type", per_cpu: false, gaps: false },
    Kind { title: "Per CPU Slih Summary", columns: HANDLERS, last: "Slih Name(addr)", per_cpu: true, gaps: false },
];

const APPLICATION: &[(&[&str], usize, Option<&str>)] = &[
    (&["processing total (msec)", "combined"], 4, MS),
    (&["processing total (msec)", "application"], 4, MS),
    (&["processing total (msec)", "syscall"], 4, MS),
    (&["percent of total processing time", "combined"], 4, PERCENT),
    (&["percent of total processing time", "application"], 4, PERCENT),
    (&["percent of total processing time", "syscall"], 4, PERCENT),
];

const HANDLERS: &[(&[&str], usize, Option<&str>)] = &[
    (&["Count"], 0, None),
    (&["Total Time", "(msec)"], 4, MS),
    (&["Avg Time", "(msec)"], 4, MS),
    (&["Min Time", "(msec)"], 4, MS),
    (&["Max Time", "(msec)"], 4, MS),
];

/// Headings over columns of these widths; equal neighbours of the first line are printed once, over
/// all their columns.
fn headings(kind: &Kind, widths: &[usize]) -> String {
    let lines = kind.columns.iter().map(|c| c.0.len()).max().expect("a column");
    let spanning = kind.columns.windows(2).any(|w| w[0].0.len() > 1 && w[0].0[0] == w[1].0[0]);
    let mut text = String::new();
    for line in 0..lines {
        let mut i = 0;
        while i < widths.len() {
            let heading = |c: usize| {
                let own = kind.columns[c].0;
                (line + own.len()).checked_sub(lines).map_or("", |at| own[at])
            };
            let same =
                (i..widths.len()).take_while(|c| spanning && line == 0 && heading(*c) == heading(i)).count().max(1);
            let width = widths[i..i + same].iter().map(|w| w + 2).sum::<usize>() - 2;
            text += &match same {
                1 => format!("{:>width$}  ", heading(i)),
                _ => format!("{:^width$}  ", format!("-- {} --", heading(i))),
            };
            i += same;
        }
        text += if line + 1 == lines { kind.last } else { "" };
        text = text.trim_end().to_owned() + "\n";
    }
    text
}

/// Rows as numbers of hundredths or of ten-thousandths, empty where there is a gap.
type Rows = Vec<(String, Option<i64>, Vec<Option<u32>>)>;

fn part(kind: &Kind, rows: &Rows, cpu: Option<usize>, text: &mut String, figures: &mut Vec<Figure>) {
    let cell = |value: u32, decimals: usize| match decimals {
        0 => value.to_string(),
        d => format!("{:.d$}", f64::from(value) / 10f64.powi(d as i32)),
    };
    let width =
        |heading: &str| if heading.contains("total") && heading.len() > 12 { 12 } else { heading.len().max(11) };
    let widths: Vec<_> = kind.columns.iter().map(|c| c.0.iter().map(|h| width(h)).max().expect("a heading")).collect();
    if let Some(cpu) = cpu {
        *text += &format!("CPU Number {cpu}:\n");
    }
    *text += &headings(kind, &widths);
    let ruler: Vec<_> = widths.iter().copied().chain([kind.last.len()]).map(|w| "=".repeat(w)).collect();
    *text += &(ruler.join("  ") + "\n");
    for (name, tid, values) in rows {
        let mut line = String::new();
        let subject = match cpu {
            Some(cpu) => format!("cpu {cpu} {name}"),
            None => name.clone(),
        };
        for ((column, width), value) in kind.columns.iter().zip(&widths).zip(values) {
            let shown = value.map_or(String::new(), |v| cell(v, column.1));
            line += &format!("{shown:>width$}  ");
            if value.is_some() {
                let number: f64 = shown.parse().expect("a number");
                let key = column.0.join(" ");
                let tid = tid.filter(|_| kind.last.contains("Tid"));
                figures.push((kind.title.to_owned(), Some(subject.clone()), tid, key, number.to_string(), column.2));
            }
        }
        *text += &format!("{line}{name}\n");
    }
    *text += "\n";
}

fn curt(parts: &[(usize, Vec<Rows>)]) -> (String, Vec<Figure>) {
    let mut text = "Run on Wed Apr 26 10:51:33 2023\nCommand line was:\ncurt -i trace.raw -o curt.out\n\n".to_owned();
    let mut figures = Vec::new();
    for (kind, cpus) in parts {
        let kind = &KINDS[*kind];
        text += &format!("{:>40}\n{:>40}\n", kind.title, "-".repeat(kind.title.len()));
        let shown = if kind.per_cpu { cpus.len() } else { 1 };
        for (cpu, rows) in cpus.iter().take(shown).enumerate() {
            part(kind, rows, kind.per_cpu.then_some(cpu), &mut text, &mut figures);
        }
    }
    (text, figures)
}

/// Rows of a table of this kind.
fn rows(kind: usize) -> impl Strategy<Value = Rows> {
    let columns = KINDS[kind].columns.len();
    let gaps = KINDS[kind].gaps;
    let value = (any::<bool>(), 0u32..90_000_000);
    let values = prop::collection::vec(value, columns).prop_map(move |values| {
        let gap = |(i, (set, value)): (usize, (bool, u32))| (i == 0 || set || !gaps).then_some(value);
        values.into_iter().enumerate().map(gap).collect()
    });
    let name = ("[a-z_]{2,9}", 100i64..90_000, 100i64..90_000);
    prop::collection::vec((name, values), 1..5).prop_map(|rows| {
        let named =
            |((name, pid, tid), values): ((String, i64, i64), _)| (format!("{name}({pid} {tid})"), Some(tid), values);
        rows.into_iter().map(named).collect()
    })
}

fn figures_of(out: &tracekit_schema::Out, sections: &[&str]) -> Vec<Figure> {
    let all = (0..out.summaries.len()).map(|i| row(&out.summaries, &out.strings, i));
    let unit = |u: &String| ["ms", "%"].into_iter().find(|known| known == u).expect("ms or %");
    let figures = all.filter(|cells| sections.contains(&cells["section"].as_str())).map(|cells| {
        let tid = cells.get("tid").map(|t| t.parse().expect("a number"));
        let value = cells.get("value").or(cells.get("text")).expect("a figure").clone();
        (
            cells["section"].clone(),
            cells.get("subject").cloned(),
            tid,
            cells["key"].clone(),
            value,
            cells.get("unit").map(unit),
        )
    });
    figures.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn curt_tables_come_back(
        parts in prop::collection::vec((0..KINDS.len()).prop_flat_map(|k| (Just(k), prop::collection::vec(rows(k), 1..4))), 1..6),
        crlf in any::<bool>(),
    ) {
        let (text, expected) = curt(&parts);
        let sections: Vec<_> = parts.iter().map(|p| KINDS[p.0].title).collect();
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let (out, format) = read(text.as_bytes(), Some("curt"));
        prop_assert_eq!(format.expect("readable"), "curt");
        prop_assert_eq!(figures_of(&out, &sections), expected, "{}", text);
        prop_assert_eq!(out.meta.get("parse.unparsed"), Some("0"));
    }

    #[test]
    fn curt_reports_of_threads_come_back(
        threads in prop::collection::vec((100i64..90_000, 0u32..90_000_000, 0u32..1_000_000, prop::collection::vec(0u32..500, 1..6)), 1..5),
    ) {
        let mut text = "               System Summary\n               --------------\n\n".to_owned();
        let mut expected: Vec<Figure> = Vec::new();
        for (tid, time, affinity, dispatched) in &threads {
            let about = format!("Thread Id: {tid} (hex {tid:x}) Pid: 77 (hex 4d)");
            let (time, affinity) = (f64::from(*time) / 1e6, f64::from(*affinity) / 1e6);
            text += &format!("{}\nReport for {about}\nProcess Name: oracle\n", "-".repeat(80));
            text += &format!("Total Application Time (ms): {time:.6}\nprocessor affinity: {affinity:.6}\n");
            let mut figure = |key: &str, value: String, unit| {
                let section = "Report for a thread or process".to_owned();
                expected.push((section, Some(about.clone()), Some(*tid), key.to_owned(), value, unit));
            };
            figure("Process Name", "oracle".to_owned(), None);
            figure("Total Application Time (ms)", time.to_string(), MS);
            figure("processor affinity", affinity.to_string(), None);
            for (cpu, times) in dispatched.iter().enumerate() {
                text += &format!("CPU {cpu} : {times}\n");
                figure(&format!("dispatched to CPU {cpu}"), times.to_string(), None);
            }
            text += "\n";
        }
        let (out, format) = read(text.as_bytes(), None);
        prop_assert_eq!(format.expect("recognised"), "curt");
        prop_assert_eq!(figures_of(&out, &["Report for a thread or process"]), expected, "{}", text);
    }

    /// `llquantize` with keys that are numbers: steps that grow tenfold with each order of magnitude.
    #[test]
    fn dtrace_log_linear_histograms_come_back(
        blocks in prop::collection::vec((0i64..500, 1u32..4, prop::collection::vec(1i64..1_000_000, 30)), 1..5),
    ) {
        let mut text = "dtrace: script 'x.d' matched 2 probes\n^C\n\n".to_owned();
        let mut expected = Vec::new();
        for (key, magnitudes, counts) in &blocks {
            text += &format!("{key:>17}\n           value  ------------- Distribution ------------- count    \n");
            let steps: Vec<i64> = (0..*magnitudes).flat_map(|m| (1..10).map(move |d| d * 10i64.pow(m))).collect();
            let top = 10i64.pow(*magnitudes);
            text += &format!("{:>16} |{:<40} 0         \n", "< 1", "");
            expected.push((key.to_string(), None, Some(1), 0));
            for (i, (lo, count)) in steps.iter().zip(counts).enumerate() {
                text += &format!("{lo:>16} |{:<40} {count:<9}\n", "@");
                expected.push((key.to_string(), Some(*lo), Some(*steps.get(i + 1).unwrap_or(&top)), *count));
            }
            text += &format!("{:>16} |{:<40} 0         \n\n", format!(">= {top}"), "");
            expected.push((key.to_string(), Some(top), None, 0));
        }
        let (out, format) = read(text.as_bytes(), None);
        prop_assert_eq!(format.expect("recognised"), "dtrace-agg");
        let found: Vec<_> = (0..out.histograms.len()).map(|i| {
            let cells = row(&out.histograms, &out.strings, i);
            let number = |name: &str| cells.get(name).map(|v| v.parse::<i64>().expect("a number"));
            (cells["key"].clone(), number("lo"), number("hi"), number("count").expect("a count"))
        }).collect();
        prop_assert_eq!(found, expected, "{}", text);
    }

    /// Tables of counts and sums: keys of text and numbers, one figure at the end of each line.
    #[test]
    fn dtrace_tables_come_back(
        rows in prop::collection::vec(("[a-z][a-z._]{1,14}", prop::option::of(0i64..99_999), -1_000_000i64..1_000_000_000), 1..12),
        heading in any::<bool>(),
    ) {
        let mut text = "dtrace: description 'sched:::on-cpu ' matched 3 probes\n^C\n\n".to_owned();
        if heading {
            text += "  CMD                       PID           COUNT\n";
        }
        let mut expected = Vec::new();
        for (name, pid, count) in &rows {
            let subject = match pid {
                Some(pid) => {
                    text += &format!("  {name:<20}  {pid:>10}  {count:>16}\n");
                    format!("{name} {pid}")
                }
                None => {
                    text += &format!("  {name:<20}  {count:>16}\n");
                    name.clone()
                }
            };
            expected.push((subject, count.to_string()));
        }
        let (out, format) = read(text.as_bytes(), Some("dtrace-agg"));
        prop_assert_eq!(format.expect("readable"), "dtrace-agg");
        let found: Vec<_> = (0..out.summaries.len()).map(|i| {
            let cells = row(&out.summaries, &out.strings, i);
            (cells["subject"].clone(), cells["value"].clone())
        }).collect();
        prop_assert_eq!(found, expected, "{}", text);
    }
}
