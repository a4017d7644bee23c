//! Runs a workload text from standard input and prints the timeline of each CPU: `timeline [POLICY]`.

use std::io::Read;

use tracekit_replay::workload;

fn main() {
    let policy = std::env::args().nth(1);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("standard input is text");
    let scenario = workload::parse(&text, policy.as_deref()).unwrap_or_else(|e| {
        eprintln!("timeline: {e}");
        std::process::exit(2)
    });
    let cpus = scenario.machine.cpus;
    let run = scenario.run().unwrap_or_else(|e| {
        eprintln!("timeline: {e}");
        std::process::exit(2)
    });
    for cpu in 0..cpus {
        let spans = workload::timeline(&run, cpu);
        let ms = |ns: i64| ns as f64 / 1e6;
        let line: Vec<String> = spans
            .iter()
            .map(|s| format!("{}[{},{})", run.work.tasks[s.task.index()].comm, ms(s.from), ms(s.to)))
            .collect();
        println!("CPU {cpu}: {}", line.join(" "));
    }
}
