//! Policy strings and workload texts, damaged.

use std::path::Path;

use tracekit_replay::policies::{PolicySpec, POLICIES};
use tracekit_replay::workload;
use tracekit_schema::table::Table;

use crate::damage::damage;
use crate::random::Random;
use crate::Target;

/// Rounds of a run's progress callback after which it is stopped: a text may ask for years.
const ROUNDS: u32 = 20;

/// `NAME:KEY=VALUE,...` of every policy, damaged, parsed and shown; what is shown parses to the same.
pub struct Policies {
    seeds: Vec<String>,
}

impl Policies {
    /// One string for each parameter of each policy, with its default.
    pub fn new() -> Self {
        let mut seeds = Vec::new();
        for policy in POLICIES {
            seeds.push(policy.name.to_owned());
            for p in policy.params {
                seeds.push(format!("{}:{}={}", policy.name, p.name, p.default_for("")));
            }
        }
        Policies { seeds }
    }
}

impl Target for Policies {
    fn make(&mut self, random: &mut Random) -> Vec<u8> {
        let (one, other) = (random.below(self.seeds.len()), random.below(self.seeds.len()));
        match random.below(4) {
            0 => format!("{},{}", self.seeds[one], self.seeds[other].split(':').next_back().unwrap_or("")).into_bytes(),
            _ => damage(self.seeds[one].as_bytes(), self.seeds[other].as_bytes(), random),
        }
    }

    fn run(&mut self, input: &[u8]) -> Result<u64, String> {
        let Ok(spec) = PolicySpec::parse(&String::from_utf8_lossy(input)) else { return Ok(0) };
        let shown = spec.show();
        let again = PolicySpec::parse(&shown).map_err(|e| format!("`{shown}` is shown and not read: {e}"))?;
        if again.show() != shown {
            return Err(format!("`{shown}` is read as `{}`", again.show()));
        }
        Ok(u64::from(spec.stack().is_ok()))
    }
}

/// The workloads of the fixtures, damaged and run.
pub struct Workloads {
    seeds: Vec<String>,
}

impl Workloads {
    /// Every workload in the fixtures' documents.
    pub fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository");
        let mut seeds = vec!["cpus: 2\nuntil: 50\nA: (R3 S2)*\nB: R10\n".to_owned()];
        let files = std::fs::read_dir(root.join("fixtures").join("policies")).into_iter().flatten();
        for file in files.filter_map(|f| Some(f.ok()?.path())).filter(|p| p.extension().is_some_and(|e| e == "md")) {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            seeds.extend(workload::blocks(&text).into_iter().map(|(_, block)| block));
        }
        seeds.sort();
        Workloads { seeds }
    }
}

impl Target for Workloads {
    fn make(&mut self, random: &mut Random) -> Vec<u8> {
        let (one, other) = (random.below(self.seeds.len()), random.below(self.seeds.len()));
        damage(self.seeds[one].as_bytes(), self.seeds[other].as_bytes(), random)
    }

    fn run(&mut self, input: &[u8]) -> Result<u64, String> {
        let text = String::from_utf8_lossy(input);
        let mut rounds = 0;
        let ran = workload::run_text(&text, None, &mut |_| {
            rounds += 1;
            rounds < ROUNDS
        });
        Ok(ran.map_or(0, |out| out.events.len() as u64))
    }
}
