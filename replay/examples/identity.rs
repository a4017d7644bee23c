//! Replays traces and compares with what was recorded, by group of tasks (names without trailing digits):
//! `cargo run --release -p tracekit-replay --example identity -- POLICY FILE... [--against FILE]`.
//! With `--against` the figures stand beside those of another capture instead.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use tracekit_parsers::{open, Options, Source};
use tracekit_replay::reconstruct::Class;
use tracekit_replay::replay::{replay, Override, ReplaySpec, Which};
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

fn load(path: &str) -> Result<Out, Box<dyn std::error::Error>> {
    let source = Source::from_bytes(std::fs::read(path)?).unwrapped()?;
    let mut out = Out::new();
    let (_, mut parser) = open(source, None, &Options::default(), &mut out)?;
    while parser.fill(&mut out, 65_536)? {}
    Ok(out)
}

#[derive(Default, Clone)]
struct Group {
    run: i64,
    invol: u64,
    vol: u64,
    delays: Vec<i64>,
    last: i64,
}

fn groups(out: &Out) -> (BTreeMap<String, Group>, u64, i64) {
    let e = &out.events;
    let mut by: BTreeMap<i64, (String, Group)> = BTreeMap::new();
    let mut woken: BTreeMap<i64, i64> = BTreeMap::new();
    let mut on: BTreeMap<i32, (i64, i64)> = BTreeMap::new();
    let (mut switches, mut last) = (0, 0);
    let start = e.ts_ns.get(0).unwrap_or(0);
    for row in 0..e.len() {
        let (ts, cpu) = (e.ts_ns.get(row).unwrap_or(0) - start, e.cpu.get(row).unwrap_or(0));
        last = last.max(ts);
        match e.kind.get(row).unwrap() {
            Kind::Waking | Kind::WakeupNew => {
                woken.insert(e.tid.get(row).unwrap_or(0), ts);
            }
            Kind::Switch => {
                switches += 1;
                let (tid, next) = (e.tid.get(row).unwrap_or(0), e.next_tid.get(row).unwrap_or(0));
                let name = |id| out.strings.text(id).trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
                if tid != 0 {
                    let g = by.entry(tid).or_default();
                    g.0 = name(e.comm.get(row).unwrap_or_default());
                    if let Some((t, since)) = on.get(&cpu).filter(|o| o.0 == tid) {
                        let _ = t;
                        g.1.run += ts - since;
                        g.1.last = ts;
                    }
                    if e.state.get(row).is_some_and(|s| s.is_runnable()) {
                        g.1.invol += 1;
                    } else {
                        g.1.vol += 1;
                    }
                }
                on.insert(cpu, (next, ts));
                if let Some(w) = woken.remove(&next) {
                    by.entry(next).or_default().1.delays.push(ts - w);
                }
            }
            _ => {}
        }
    }
    let mut merged: BTreeMap<String, Group> = BTreeMap::new();
    for (_, (name, g)) in by {
        let m = merged.entry(name).or_default();
        m.run += g.run;
        m.invol += g.invol;
        m.vol += g.vol;
        m.delays.extend(g.delays);
        m.last = m.last.max(g.last);
    }
    (merged, switches, last)
}

/// One line per record: `time cpu kind tid next_tid state flags`.
fn write_lines(out: &Out, path: &str) {
    let e = &out.events;
    let mut text = String::new();
    for row in 0..e.len() {
        let state = e.state.get(row).map_or("-", |s| s.as_str());
        text += &format!(
            "{} {} {} {} {} {state} {}\n",
            e.ts_ns.get(row).unwrap_or(0),
            e.cpu.get(row).unwrap_or(-1),
            e.kind.get(row).unwrap_or_default().as_str(),
            e.tid.get(row).unwrap_or(-1),
            e.next_tid.get(row).unwrap_or(-1),
            e.irq_flags.get(row).unwrap_or(0),
        );
    }
    std::fs::write(path, text).expect("writable");
}

fn quantile(v: &[i64], q: f64) -> f64 {
    if v.is_empty() {
        return f64::NAN;
    }
    let mut v = v.to_vec();
    v.sort_unstable();
    v[((v.len() - 1) as f64 * q) as usize] as f64 / 1e3
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut take = |name: &str| {
        let i = args.iter().position(|a| a == name)?;
        args.remove(i);
        Some(args.remove(i))
    };
    let against = take("--against");
    let rt = take("--rt");
    let dump = take("--dump");
    let phase_shift = take("--phase").map_or(0, |p| p.parse().expect("ns"));
    let mut wanted: Vec<(String, String)> = Vec::new();
    while let Some(set) = take("--set") {
        let (comm, set) = set.split_once(':').expect("comm:key=value,key=value");
        wanted.push((comm.to_owned(), set.to_owned()));
    }
    let policy = args.remove(0);
    for path in &args {
        let recorded = match load(path) {
            Ok(out) => out,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let comms: std::collections::BTreeSet<String> = (0..recorded.events.len())
            .filter_map(|r| recorded.events.comm.get(r))
            .map(|c| recorded.strings.text(c).into_owned())
            .collect();
        let sets: Vec<Override> = wanted
            .iter()
            .map(|(pattern, set)| {
                let prefix = pattern.strip_suffix('*');
                let fits = |c: &&String| prefix.map_or(*c == pattern, |p| c.starts_with(p));
                Override {
                    which: Which::Comms(comms.iter().filter(fits).cloned().collect()),
                    set: set
                        .split(',')
                        .filter_map(|kv| kv.split_once('='))
                        .map(|(k, v)| (k.into(), v.into()))
                        .collect(),
                }
            })
            .collect();
        let spec = ReplaySpec {
            policy: policy.clone(),
            rt: rt.clone(),
            phase_shift,
            sets: sets.clone(),
            ..ReplaySpec::default()
        };
        let started = std::time::Instant::now();
        let (recon, replayed) = match replay(&recorded.events, &recorded.strings, &spec, &mut |_| true) {
            Ok(r) => r,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let took = started.elapsed().as_secs_f64();
        if let Some(dump) = &dump {
            write_lines(&replayed.out, dump);
        }
        let compared = against.as_deref().map(|a| load(a).expect("readable"));
        let (real, real_switches, real_end) = groups(compared.as_ref().unwrap_or(&recorded));
        let (sim, sim_switches, sim_end) = groups(&replayed.out);
        let endless = recon.verdicts.iter().filter(|v| v.endless).count();
        let loops = recon.verdicts.iter().filter(|v| v.loops).count();
        let essential = recon.verdicts.iter().filter(|v| v.essential).count();
        let classes: Vec<String> =
            (0..Class::COUNT).map(|i| format!("{} {}", Class::NAMES[i], recon.classes[i])).collect();
        println!(
            "{path}: switches {real_switches} -> {sim_switches}, end {:.3} -> {:.3}, stop {:.3}; endless {endless} loops {loops} essential {essential}; {}; {took:.3}s",
            real_end as f64 / 1e9,
            sim_end as f64 / 1e9,
            recon.stop as f64 / 1e9,
            classes.join(" "),
        );
        for (name, r) in &real {
            let s = sim.get(name).cloned().unwrap_or_default();
            if r.run < 2_000_000 && s.run < 2_000_000 {
                continue;
            }
            let slice = |g: &Group| g.run as f64 / 1e3 / g.invol.max(1) as f64;
            println!(
                "  {name:<12} run {:>9.1} {:>9.1} ms  invol {:>6} {:>6}  vol {:>6} {:>6}  slice {:>9.1} {:>9.1} us ({:+.1} %)  delay mean {:>8.1} {:>8.1} p50 {:>8.1} {:>8.1} p95 {:>8.1} {:>8.1}  last {:.1} {:.1}",
                r.run as f64 / 1e6,
                s.run as f64 / 1e6,
                r.invol,
                s.invol,
                r.vol,
                s.vol,
                slice(r),
                slice(&s),
                100.0 * (slice(&s) / slice(r) - 1.0),
                r.delays.iter().sum::<i64>() as f64 / 1e3 / r.delays.len().max(1) as f64,
                s.delays.iter().sum::<i64>() as f64 / 1e3 / s.delays.len().max(1) as f64,
                quantile(&r.delays, 0.5),
                quantile(&s.delays, 0.5),
                quantile(&r.delays, 0.95),
                quantile(&s.delays, 0.95),
                r.last as f64 / 1e6,
                s.last as f64 / 1e6,
            );
        }
    }
}
