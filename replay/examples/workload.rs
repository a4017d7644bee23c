//! Runs a workload text from standard input and prints who ran when: `cargo run -p tracekit-replay
//! --example workload [POLICY] < FILE`.
#![allow(clippy::disallowed_methods)]

use std::io::Read;
use tracekit_replay::workload;

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("text on standard input");
    let policy = std::env::args().nth(1);
    let blocks = workload::blocks(&text);
    let blocks = if blocks.is_empty() { vec![(1, text)] } else { blocks };
    for (line, block) in blocks {
        let scenario = match workload::parse(&block, policy.as_deref()) {
            Ok(s) => s,
            Err(e) => {
                println!("block at line {line}: {e}");
                continue;
            }
        };
        println!("block at line {line}: {}", scenario.policy.show());
        match scenario.run() {
            Err(e) => println!("  {e}"),
            Ok(run) => {
                for cpu in 0..scenario.machine.cpus {
                    let spans = workload::timeline(&run, cpu);
                    let name = |t: usize| &run.work.tasks[t].comm;
                    let ms = |ns: i64| ns as f64 / 1e6;
                    let show = |s: &workload::Span| format!("{}[{},{})", name(s.task.index()), ms(s.from), ms(s.to));
                    println!("  CPU {cpu}: {}", spans.iter().take(14).map(show).collect::<Vec<_>>().join(" "));
                }
                println!("  counters {:?}; {:?}", run.counters, run.counts);
                for wrong in scenario.check(&run) {
                    println!("  WRONG {wrong}");
                }
            }
        }
    }
}
