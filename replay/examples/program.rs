//! Prints reconstructed programs: `cargo run -p tracekit-replay --example program -- FILE [COMM
//! [FROM [COUNT]]]`.
#![allow(clippy::disallowed_methods)]

use tracekit_parsers::{open, Options, Source};
use tracekit_replay::reconstruct;
use tracekit_schema::Out;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let source = Source::from_bytes(std::fs::read(&args[0])?).unwrapped()?;
    let mut out = Out::new();
    let (_, mut parser) = open(source, None, &Options::default(), &mut out)?;
    while parser.fill(&mut out, 65_536)? {}
    let recon = reconstruct::reconstruct(&out.events, &out.strings, &Default::default());
    println!("{:?}", recon.overheads);
    let number = |i: usize, default: usize| args.get(i).map_or(default, |a| a.parse().expect("a number"));
    for (t, p) in recon.work.tasks.iter().enumerate() {
        let (v, s) = (recon.verdicts[t], recon.slack[t]);
        println!(
            "{t} {} tid {} {:?} steps {} {v:?} slack {s:?} {:?}",
            p.comm,
            p.tid,
            p.start,
            p.steps.len(),
            p.first.nice
        );
        if args.get(1).is_some_and(|c| *c == p.comm) {
            for i in number(2, 0)..(number(2, 0) + number(3, 40)).min(p.steps.len()) {
                println!("   {i} {:?}   {:?}", p.steps[i], recon.notes[t][i]);
            }
        }
    }
    Ok(())
}
