//! Damages the fixtures of a format for some seconds and reads what comes out: `fuzz FORMAT [SECONDS] [SEED]`.
//!
//! A finding is a panic, a reading that takes longer than ten seconds, or one that never ends. Its input is written to
//! `target/findings/FORMAT-N` and the exit status is 1. The seed decides everything but the time, so a run can be repeated.
//! `FORMAT` may be `all`: every format in turn, with its share of the time.

#![allow(clippy::disallowed_methods, reason = "a test driver reads fixtures, its arguments and the clock")]

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracekit_parsers::{open, Options, Source, FORMATS};
use tracekit_schema::table::Table;
use tracekit_schema::Out;

/// A reading that takes longer is a finding.
const SLOW: Duration = Duration::from_secs(10);

/// One fixture.
struct Seed {
    input: Vec<u8>,
    options: Options,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<_> = FORMATS.iter().map(|f| f.name).collect();
    let Some(format) = args.first().filter(|f| *f == "all" || names.contains(&f.as_str())) else {
        eprintln!("usage: fuzz FORMAT [SECONDS] [SEED]; FORMAT is all, {}", names.join(", "));
        std::process::exit(2);
    };
    let number = |i: usize, default: u64| args.get(i).map_or(default, |a| a.parse().expect("a number"));
    let chosen: Vec<_> = names.into_iter().filter(|n| format == "all" || n == format).collect();
    let each = Duration::from_secs(number(1, 600)) / chosen.len() as u32;
    std::panic::set_hook(Box::new(|_| {}));
    let findings: u64 = chosen.iter().map(|name| fuzz(name, each, number(2, 1))).sum();
    if findings > 0 {
        std::process::exit(1);
    }
}

/// Fuzzes one format; the number of findings.
fn fuzz(format: &'static str, time: Duration, seed: u64) -> u64 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository");
    let seeds = seeds(&root.join("fixtures").join(format));
    if seeds.is_empty() {
        println!("{format}: no fixtures, nothing to damage");
        return 0;
    }
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let start = Instant::now();
    let (mut runs, mut rows, mut findings, mut slowest) = (0u64, 0u64, 0u64, Duration::ZERO);
    while start.elapsed() < time && findings < 10 {
        let pick = random.below(seeds.len());
        let other = random.below(seeds.len());
        let input = damage(&seeds[pick].input, &seeds[other].input, &mut random);
        let step = [1usize, 100, 1 << 16][random.below(3)];
        let began = Instant::now();
        let read = catch_unwind(AssertUnwindSafe(|| read(&input, format, &seeds[pick].options, step)));
        let took = began.elapsed();
        slowest = slowest.max(took);
        runs += 1;
        let why = match read {
            Ok(Ok(n)) => {
                rows += n;
                (took > SLOW).then(|| format!("takes {took:?}"))
            }
            Ok(Err(why)) => Some(why),
            Err(payload) => Some(panic_text(payload.as_ref())),
        };
        if let Some(why) = why {
            findings += 1;
            let path = keep(root, format, findings, &input);
            println!("{format}: finding {findings}: {why}; input in {}", path.display());
        }
    }
    let seconds = start.elapsed().as_secs();
    println!("{format}: {runs} inputs from {} fixtures in {seconds} s, {rows} rows read, slowest {slowest:?}, {findings} findings", seeds.len());
    findings
}

/// Reads `input` to its end; rows, or why that is a finding.
fn read(input: &[u8], format: &str, options: &Options, step: usize) -> Result<u64, String> {
    let Ok(source) = Source::from_bytes(input).unwrapped() else { return Ok(0) };
    let mut out = Out::new();
    let Ok((_, mut parser)) = open(source, Some(format), options, &mut out) else { return Ok(0) };
    let mut rows = 0;
    // Every call that is not the last adds a row or takes a byte.
    let most = input.len() as u64 * 64 + 100_000;
    for _ in 0..most {
        let more = parser.fill(&mut out, step);
        let events = &out.events;
        rows += events.len() as u64;
        for row in [0, events.len().saturating_sub(1)].into_iter().filter(|r| *r < events.len()) {
            let whole = events.ts_ns.get(row).is_some()
                && events.seq.get(row).is_some()
                && events.kind.get(row).is_some()
                && events.quality.get(row).is_some();
            if !whole {
                return Err(format!("row {row} lacks a column that is never null"));
            }
        }
        out.clear_events();
        match more {
            Ok(true) => {}
            Ok(false) => {
                let tables = out.slices.len() + out.summaries.len() + out.histograms.len();
                return Ok(rows + tables as u64);
            }
            Err(_) => return Ok(rows),
        }
    }
    Err("never ends".to_owned())
}

/// The fixtures of a format, wrapped ones unwrapped so that damage reaches the parser.
fn seeds(folder: &Path) -> Vec<Seed> {
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(folder).map_or_else(|_| Vec::new(), |d| d.filter_map(|e| Some(e.ok()?.path())).collect());
    cases.sort();
    cases.iter().filter_map(|case| seed(case)).collect()
}

fn seed(case: &Path) -> Option<Seed> {
    let files = std::fs::read_dir(case).ok()?.filter_map(|e| Some(e.ok()?.path()));
    let input = files.into_iter().find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("input")))?;
    let source = Source::from_bytes(std::fs::read(input).ok()?).unwrapped().ok()?;
    let input = (*source.into_bytes().ok()?).as_ref().to_vec();
    let toml: toml::Table = std::fs::read_to_string(case.join("case.toml")).ok()?.parse().ok()?;
    let mut options = Options::default();
    for (key, value) in toml.get("options").and_then(|o| o.as_table()).into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match key.as_str() {
            "clock" => options.clock = Some(text),
            "clock_hz" => options.clock_hz = text.parse().ok(),
            "pattern" => options.pattern = Some(text),
            _ => drop(options.extra.insert(key.clone(), text)),
        }
    }
    (!input.is_empty()).then_some(Seed { input, options })
}

/// A copy of `input` with one to eight things done to it.
fn damage(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + random.below(8) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.place(bytes.len());
        let len = 1 + random.below(64.min(bytes.len() - at));
        match random.below(11) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let copy = bytes[at..at + len].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            5 => bytes[at..at + len].fill(if random.below(2) == 0 { 0 } else { 0xff }),
            6 => number(&mut bytes, at, random),
            7 => digits(&mut bytes, at, random),
            8 => {
                let from = random.below(other.len().max(1));
                let piece = &other[from..(from + 1 + random.below(4096)).min(other.len())];
                bytes.splice(at..(at + len).min(bytes.len()), piece.iter().copied());
            }
            9 => {
                let to = random.below(bytes.len() - len + 1);
                bytes.copy_within(at..at + len, to);
            }
            _ => bytes[at] = b"\n\t =:,;()[]{}<>\"\\/-+|%"[random.below(22)],
        }
    }
    bytes
}

/// Puts a number that is often fatal over two, four or eight bytes.
fn number(bytes: &mut [u8], at: usize, random: &mut Random) {
    const FATAL: [u64; 12] =
        [0, 1, 7, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x0800_0000, i64::MAX as u64, u64::MAX];
    let width = [2, 4, 8][random.below(3)].min(bytes.len() - at);
    let value = FATAL[random.below(FATAL.len())].wrapping_sub(random.below(2) as u64);
    let (le, be) = (value.to_le_bytes(), value.to_be_bytes());
    let from = if random.below(4) == 0 { &be[8 - width..] } else { &le[..width] };
    bytes[at..at + width].copy_from_slice(from);
}

/// Replaces the next decimal number by another.
fn digits(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|i| at + i) else { return };
    let to = bytes[from..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |i| from + i);
    const NUMBERS: [&str; 8] = [
        "",
        "0",
        "-1",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "99999999999999999999",
        "00000001",
    ];
    bytes.splice(from..to, NUMBERS[random.below(NUMBERS.len())].bytes());
}

fn keep(root: &Path, format: &str, number: u64, input: &[u8]) -> PathBuf {
    let folder = root.join("target").join("findings");
    let path = folder.join(format!("{format}-{number}"));
    if let Err(e) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)) {
        eprintln!("{}: {e}", path.display());
    }
    path
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    format!("panic: {}", text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or(""))
}

/// xorshift64*: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A place in `n` bytes: half of them near the start, where headers are.
    fn place(&mut self, n: usize) -> usize {
        if self.below(2) == 0 {
            self.below(n.min(4096))
        } else {
            self.below(n)
        }
    }
}
