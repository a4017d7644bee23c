//! Prints one line per record of a trace: `time cpu kind tid next_tid target_cpu name`, `-` for null.
//!
//! `cargo run --release --example dump -- FILE [FORMAT] [all] [NAME=VALUE ...]`: without `all`,
//! kinds `other` and `lost` are left out; NAME=VALUE is an option that the format documents.
#![allow(clippy::disallowed_methods)]

use std::io::{BufWriter, Write};
use tracekit_parsers::{open, Options, Source};
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file");
    let rest: Vec<_> = args.collect();
    let all = rest.iter().any(|a| a == "all");
    let format = rest.iter().find(|a| *a != "all" && !a.contains('=')).map(String::as_str);
    let pairs = rest.iter().filter_map(|a| a.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let options = Options { extra: pairs.collect(), ..Options::default() };
    if let Err(error) = dump(&path, format, all, &options) {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn dump(path: &str, format: Option<&str>, all: bool, options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::from_bytes(std::fs::read(path)?).unwrapped()?;
    let mut out = Out::new();
    let (_, mut parser) = open(source, format, options, &mut out)?;
    let mut to = BufWriter::new(std::io::stdout().lock());
    let mut more = true;
    while more {
        more = parser.fill(&mut out, 65_536)?;
        for row in 0..out.events.len() {
            line(&mut to, &out, row, all)?;
        }
        out.events.clear();
    }
    to.flush()?;
    for (key, value) in &out.meta.0 {
        eprintln!("{key} = {}", value.chars().take(200).collect::<String>());
    }
    for d in out.diagnostics.rows() {
        eprintln!("{} x{} cpu {:?} ts {:?} at {:?}: {}", d.code.as_str(), d.count, d.cpu, d.ts_ns, d.offset, d.message);
    }
    Ok(())
}

fn line(to: &mut impl Write, out: &Out, row: usize, all: bool) -> std::io::Result<()> {
    let e = &out.events;
    let kind = e.kind.get(row).unwrap_or_default();
    if !all && matches!(kind, Kind::Other | Kind::Lost) {
        return Ok(());
    }
    let number = |v: Option<i64>| v.map_or("-".to_owned(), |v| v.to_string());
    let text = |id: Option<_>| id.map_or("-".into(), |id| out.strings.text(id));
    writeln!(
        to,
        "{} {} {} {} {} {} {}",
        number(e.ts_ns.get(row)),
        number(e.cpu.get(row).map(i64::from)),
        kind.as_str(),
        number(e.tid.get(row)),
        number(e.next_tid.get(row)),
        number(e.target_cpu.get(row).map(i64::from)),
        text(e.name.get(row)),
    )
}
