//! Measures how many events a second a parser makes of a file in memory: `throughput FILE [FORMAT] [RUNS]`.
//!
//! One run goes through the whole file from `open` to the last `fill`, on one thread, and clears
//! the events between two calls as a streaming reader does. The text is in memory before the clock
//! starts. The result is one line of JSON; `seconds` is the best run. On a busy machine take the
//! CPU time of the whole process with many runs less that with one.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads a file, its arguments and the clock")]

use std::time::Instant;

use tracekit_parsers::{open, Options, Source};
use tracekit_schema::table::Table;
use tracekit_schema::Out;

/// Rows asked for at a time: small enough for the columns to stay in the cache.
const ROWS: usize = 1 << 14;

/// Events of one run, and its time.
fn run(bytes: &std::sync::Arc<Vec<u8>>, format: Option<&str>, options: &Options) -> Result<(u64, f64), String> {
    let source = Source::Bytes(std::sync::Arc::clone(bytes) as std::sync::Arc<dyn AsRef<[u8]> + Send + Sync>);
    let start = Instant::now();
    let mut out = Out::new();
    let (_, mut parser) = open(source, format, options, &mut out).map_err(|e| e.to_string())?;
    let mut events = 0;
    let mut checksum = 0i64;
    loop {
        let more = parser.fill(&mut out, ROWS).map_err(|e| e.to_string())?;
        events += out.events.len() as u64;
        checksum = checksum.wrapping_add(out.events.ts_ns.values().last().copied().unwrap_or(0));
        out.clear_events();
        if !more {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    std::hint::black_box(checksum);
    Ok((events, seconds))
}

fn main() -> Result<(), String> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut options = Options::default();
    if let Some(at) = args.iter().position(|a| a == "--careful") {
        args.remove(at);
        options.extra.insert("careful".to_owned(), String::new());
    }
    let path = args.first().ok_or("usage: throughput [--careful] FILE [FORMAT] [RUNS]")?;
    let format = args.get(1).map(String::as_str).filter(|f| *f != "auto");
    let runs: usize = args.get(2).map_or(Ok(5), |n| n.parse()).map_err(|_| "RUNS is a number")?;
    let bytes = std::sync::Arc::new(std::fs::read(path).map_err(|e| format!("{path}: {e}"))?);
    let (mut events, mut best) = (0, f64::INFINITY);
    for _ in 0..runs.max(1) {
        let (n, seconds) = run(&bytes, format, &options)?;
        events = n;
        best = best.min(seconds);
    }
    let rate = events as f64 / best;
    println!(
        "{{\"events\": {events}, \"bytes\": {}, \"seconds\": {best:.6}, \"events_per_second\": {rate:.0}}}",
        bytes.len()
    );
    Ok(())
}
