//! Looks for inputs that break something: `fuzz TARGET [SECONDS] [SEED]`, seconds of CPU time.
//!
//! A target is a format (its fixtures are damaged and read), several in turn (`aix`, `dtrace`,
//! `words`), `events` (any sequence of events through the state machine, the reconstruction and a
//! replay), `messages` (runs of tasks that send each other messages, damaged, through the same: what
//! is inferred is bounded), `policy` (damaged policy strings), `workload` (damaged workload texts),
//! or `all`.
//!
//! A finding is a panic, an input that takes longer than ten seconds, one that never ends, one that
//! breaks an invariant, or memory above 1 GiB. Its input is written to `target/findings/TARGET-N`
//! and the exit status is 1. The seed decides everything but the time, so a run can be repeated.

#![allow(clippy::disallowed_methods, reason = "a test driver reads fixtures, its arguments and the clock")]

mod damage;
mod events;
mod formats;
mod messages;
mod random;
mod texts;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracekit_parsers::FORMATS;

use random::Random;

/// An input that takes longer is a finding.
const SLOW: Duration = Duration::from_secs(10);
/// So is one that needs more memory, KiB.
const LARGE_KIB: u64 = 1 << 20;
/// Findings after which a target is left alone.
const ENOUGH: u64 = 10;

/// Something to break: makes an input and tries it. The result is what came out, or why that is a finding.
trait Target {
    /// A new input, as bytes that can be kept.
    fn make(&mut self, random: &mut Random) -> Vec<u8>;
    /// Tries the input that was made last; how many rows, steps or the like came out.
    fn run(&mut self, input: &[u8]) -> Result<u64, String>;
}

/// Targets that are one, too: an input of each in turn.
const TOGETHER: [(&str, &[&str]); 3] = [
    ("aix", &["trcrpt", "curt"]),
    ("dtrace", &["dtrace-tkd", "dtrace-text", "dtrace-agg"]),
    ("words", &["policy", "workload"]),
];

/// Several targets in turn.
struct InTurn {
    targets: Vec<Box<dyn Target>>,
    turn: usize,
}

impl Target for InTurn {
    fn make(&mut self, random: &mut Random) -> Vec<u8> {
        self.turn = (self.turn + 1) % self.targets.len();
        self.targets[self.turn].make(random)
    }

    fn run(&mut self, input: &[u8]) -> Result<u64, String> {
        self.targets[self.turn].run(input)
    }
}

/// A format: damaged fixtures.
struct Reading {
    format: formats::Format,
    pick: usize,
    step: usize,
}

impl Target for Reading {
    fn make(&mut self, random: &mut Random) -> Vec<u8> {
        let (input, pick) = self.format.input(random);
        (self.pick, self.step) = (pick, [1usize, 100, 1 << 16][random.below(3)]);
        input
    }

    fn run(&mut self, input: &[u8]) -> Result<u64, String> {
        self.format.read(input, self.pick, self.step)
    }
}

/// The target of that name; none for a format without fixtures.
fn target(name: &str) -> Option<Box<dyn Target>> {
    Some(match name {
        "events" => Box::new(events::Sequence::default()),
        "messages" => Box::new(messages::Messages::default()),
        "policy" => Box::new(texts::Policies::new()),
        "workload" => Box::new(texts::Workloads::new()),
        _ => {
            if let Some((_, parts)) = TOGETHER.iter().find(|t| t.0 == name) {
                let targets = parts.iter().filter_map(|part| target(part)).collect();
                return Some(Box::new(InTurn { targets, turn: 0 }));
            }
            let format = formats::Format::new(FORMATS.iter().find(|f| f.name == name)?.name);
            if format.seeds() == 0 {
                return None;
            }
            Box::new(Reading { format, pick: 0, step: 1 })
        }
    })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut names: Vec<&str> = FORMATS.iter().map(|f| f.name).collect();
    names.extend(["events", "messages", "policy", "workload"]);
    if args.first().is_some_and(|t| t == "list") {
        println!("{}", names.join("\n"));
        return;
    }
    let Some(wanted) = args.first().filter(|t| {
        *t == "all" || names.contains(&t.as_str()) || TOGETHER.iter().any(|several| several.0 == t.as_str())
    }) else {
        let several = TOGETHER.map(|t| t.0).join(", ");
        eprintln!("usage: fuzz TARGET [SECONDS] [SEED]; TARGET is all, list, {several}, {}", names.join(", "));
        std::process::exit(2);
    };
    let number = |i: usize, default: u64| args.get(i).map_or(default, |a| a.parse().expect("a number"));
    let chosen = if wanted == "all" { names } else { vec![wanted.as_str()] };
    let each = Duration::from_secs(number(1, 600)) / chosen.len() as u32;
    std::panic::set_hook(Box::new(|_| {}));
    let findings: u64 = chosen.iter().map(|name| fuzz(name, each, number(2, 1))).sum();
    if findings > 0 {
        std::process::exit(1);
    }
}

/// Tries one target for so much CPU time; the number of findings.
fn fuzz(name: &str, time: Duration, seed: u64) -> u64 {
    let Some(mut target) = target(name) else {
        println!("{name}: no fixtures, nothing to damage");
        return 0;
    };
    let mut random = Random::new(seed);
    let start = cpu_time();
    let (mut runs, mut came_out, mut findings, mut slowest) = (0u64, 0u64, 0u64, Duration::ZERO);
    while cpu_time().saturating_sub(start) < time && findings < ENOUGH {
        let input = target.make(&mut random);
        let began = cpu_time();
        let tried = catch_unwind(AssertUnwindSafe(|| target.run(&input)));
        let took = cpu_time().saturating_sub(began);
        slowest = slowest.max(took);
        runs += 1;
        let why = match tried {
            Ok(Ok(n)) => {
                came_out += n;
                (took > SLOW).then(|| format!("takes {took:?}"))
            }
            Ok(Err(why)) => Some(why),
            Err(payload) => Some(panic_text(payload.as_ref())),
        };
        let why = why.or_else(|| (peak_kib() > LARGE_KIB).then(|| format!("needs {} MiB", peak_kib() >> 10)));
        if let Some(why) = why {
            findings += 1;
            let path = keep(name, findings, &input);
            println!("{name}: finding {findings}: {why}; input in {}", path.display());
        }
        if peak_kib() > LARGE_KIB {
            break; // The peak does not go down again.
        }
    }
    let (seconds, peak) = (cpu_time().saturating_sub(start).as_secs(), peak_kib() >> 10);
    println!(
        "{name}: {runs} inputs in {seconds} s of CPU time, {came_out} rows or steps came out, \
         slowest {slowest:?}, peak {peak} MiB, {findings} findings"
    );
    findings
}

/// CPU time of this process; the wall clock where the system does not say.
fn cpu_time() -> Duration {
    thread_local!(static BEGIN: Instant = Instant::now());
    let report = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = report.and_then(|text| text.split(' ').next()?.parse().ok());
    ns.map_or_else(|| BEGIN.with(Instant::elapsed), Duration::from_nanos)
}

/// Most memory that this process has had, KiB; 0 where the system does not say.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn keep(target: &str, number: u64, input: &[u8]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository");
    let folder = root.join("target").join("findings");
    let path = folder.join(format!("{target}-{number}"));
    if let Err(e) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)) {
        eprintln!("{}: {e}", path.display());
    }
    path
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    format!("panic: {}", text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or(""))
}
