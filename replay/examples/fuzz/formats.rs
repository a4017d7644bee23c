//! Damaged fixtures of a format, read to their end.

use std::path::{Path, PathBuf};

use tracekit_parsers::{open, Options, Source};
use tracekit_schema::table::Table;
use tracekit_schema::Out;

use crate::damage::damage;
use crate::random::Random;

/// One fixture.
struct Seed {
    input: Vec<u8>,
    options: Options,
}

/// Fixtures of a format, and its name.
pub struct Format {
    name: &'static str,
    seeds: Vec<Seed>,
}

impl Format {
    /// Takes the fixtures in `fixtures/NAME`.
    pub fn new(name: &'static str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository");
        Format { name, seeds: seeds(&root.join("fixtures").join(name)) }
    }

    /// How many fixtures there are to damage.
    pub fn seeds(&self) -> usize {
        self.seeds.len()
    }

    /// A damaged fixture, and which one it was.
    pub fn input(&self, random: &mut Random) -> (Vec<u8>, usize) {
        let (pick, other) = (random.below(self.seeds.len()), random.below(self.seeds.len()));
        (damage(&self.seeds[pick].input, &self.seeds[other].input, random), pick)
    }

    /// Reads it, so many rows at a time; rows, or why that is a finding.
    pub fn read(&self, input: &[u8], pick: usize, step: usize) -> Result<u64, String> {
        read(input, self.name, &self.seeds[pick].options, step)
    }
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
