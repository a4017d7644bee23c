//! Prints what a trace says of its machine: `cargo run --release -p tracekit-replay --example
//! estimate -- FILE...`.
#![allow(clippy::disallowed_methods)]

use tracekit_parsers::{open, Options, Source};
use tracekit_replay::reconstruct;
use tracekit_schema::Out;

fn load(path: &str) -> Result<Out, Box<dyn std::error::Error>> {
    let source = Source::from_bytes(std::fs::read(path)?).unwrapped()?;
    let mut out = Out::new();
    let (_, mut parser) = open(source, None, &Options::default(), &mut out)?;
    while parser.fill(&mut out, 65_536)? {}
    Ok(out)
}

fn main() {
    for path in std::env::args().skip(1) {
        match load(&path) {
            Err(e) => println!("{path}: {e}"),
            Ok(out) => {
                let recon = reconstruct::reconstruct(&out.events, &out.strings, &Default::default());
                println!(
                    "{path}: tasks {} span {:.3}s idle wakeups {} mismatches {} uncaused {}",
                    recon.work.tasks.len(),
                    recon.span as f64 / 1e9,
                    recon.idle_wakeups,
                    recon.mismatches,
                    recon.uncaused
                );
                println!("  {:?}", recon.overheads);
            }
        }
    }
}
