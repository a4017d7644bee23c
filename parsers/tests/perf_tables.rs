//! What `perf sched` prints for a recording, against what the recording itself holds: run times,
//! delays and waits to the printed digit.
//!
//! perf and the recordings of the lab are not part of the repository: without them these tests say
//! so and pass.

#![allow(clippy::disallowed_methods, reason = "tests read files and run perf; the crate itself sees neither")]

mod common;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{read, root};
use tracekit_schema::derive::{DeriveOptions, Derived, Deriver};
use tracekit_schema::table::Table;
use tracekit_schema::tables::flag;
use tracekit_schema::{Kind, Out, State};

/// Every recording of perf in the lab; empty where the lab or perf is not at hand.
fn recordings() -> Vec<PathBuf> {
    if !Command::new("perf").arg("version").output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: perf is not installed");
        return Vec::new();
    }
    let mut all = Vec::new();
    for folder in ["6.1-perf", "6.12-perf"] {
        let Ok(entries) = std::fs::read_dir(root().join("testdata/lab").join(folder)) else {
            eprintln!("skipped: no recordings under testdata/lab/{folder}");
            continue;
        };
        all.extend(
            entries.map(|e| e.expect("readable").path()).filter(|p| p.to_string_lossy().ends_with(".perf.data")),
        );
    }
    all.sort();
    all
}

/// What `perf sched` prints; `None` where this perf cannot read the recording.
fn perf(recording: &Path, args: &[&str]) -> Option<Vec<u8>> {
    let run = Command::new("perf").arg("sched").arg("-i").arg(recording).args(args).output().expect("perf runs");
    if !run.status.success() {
        eprintln!("skipped {}: {}", recording.display(), String::from_utf8_lossy(&run.stderr).trim());
    }
    run.status.success().then_some(run.stdout)
}

/// The events of a recording, and the tables that follow from them.
fn derived(recording: &Path) -> (Out, Derived) {
    let bytes = std::fs::read(recording).expect("readable");
    let (mut out, format) = read(&bytes, None);
    assert_eq!(format.expect("readable"), "perf-data");
    let mut deriver = Deriver::new(DeriveOptions::for_trace(&out.meta));
    deriver.push(&out.events, &out.strings, &mut out.diagnostics);
    let mut tables = deriver.finish(&mut out.diagnostics);
    tables.sort();
    (out, tables)
}

/// Cut to the microsecond, as perf prints.
fn us(ns: i64) -> i64 {
    ns / 1000 * 1000
}

/// A slice by what identifies it in both: CPU, thread, end.
type Key = (i32, i64, i64);

/// Run time, delay since the wakeup (0 without one) and time since the last slice, as perf counts them.
type Figures = (i64, i64, i64);

/// The slices of a recording as timehist prints them, by the definitions of its manual: the delay
/// runs from the first record that woke the task after it left, the wait from its leaving.
fn expected(out: &Out, tables: &Derived) -> BTreeMap<Key, Figures> {
    let events = &out.events;
    let has_waking = (0..events.len()).any(|i| events.kind.get(i) == Some(Kind::Waking));
    let wakes = |kind| match kind {
        Kind::Waking | Kind::WakeupNew => true,
        Kind::Wakeup => !has_waking,
        _ => false,
    };
    let mut woken: HashMap<i64, Vec<i64>> = HashMap::new();
    for i in (0..events.len()).filter(|i| events.kind.get(*i).is_some_and(wakes)) {
        let (tid, ts) = (events.tid.get(i).expect("a woken task"), events.ts_ns.get(i).expect("a time"));
        woken.entry(tid).or_default().push(ts);
    }
    let slices = &tables.slices;
    let mut left: HashMap<i64, i64> = HashMap::new();
    let mut all = BTreeMap::new();
    for i in 0..slices.len() {
        let (ts, dur) = (slices.ts_ns.get(i).expect("ts"), slices.dur_ns.get(i).expect("dur"));
        let (tid, flags) = (slices.tid.get(i).expect("tid"), slices.flags.get(i).expect("flags"));
        if flags & flag::OPEN_END != 0 {
            continue;
        }
        let before = left.insert(tid, ts + dur);
        let open = flags & flag::OPEN_START != 0;
        let wake = woken.get(&tid).and_then(|w| w.iter().find(|w| **w >= before.unwrap_or(i64::MIN) && **w <= ts));
        let figures = match open {
            true => (0, 0, 0),
            false => (us(dur), wake.map_or(0, |w| us(ts - w)), before.map_or(0, |b| us(ts - b))),
        };
        all.insert((slices.cpu.get(i).expect("cpu"), tid, us(ts + dur)), figures);
    }
    all
}

/// The slices of a report: run time, delay since the wakeup, and the time since the last slice
/// where the row says it.
fn printed(read: &Out) -> BTreeMap<Key, (i64, i64, Option<i64>)> {
    let s = &read.slices;
    let mut found = BTreeMap::new();
    for i in 0..s.len() {
        let (ts, dur) = (s.ts_ns.get(i).expect("ts"), s.dur_ns.get(i).expect("dur"));
        let delay = s.wake_ts_ns.get(i).map_or(0, |wake| ts - wake);
        let wait = match (s.sleep_ns.get(i), s.run_delay_ns.get(i), s.wake_ts_ns.get(i)) {
            (Some(sleep), Some(delay), _) => Some(sleep + delay),
            // Preempted: it waited all the time.
            (None, Some(delay), None) => Some(delay),
            _ => None,
        };
        let key = (s.cpu.get(i).expect("cpu"), s.tid.get(i).expect("tid"), ts + dur);
        found.insert(key, (dur, delay, wait));
    }
    found
}

#[test]
fn timehist_tells_what_the_recording_holds() {
    const VARIANTS: [&[&str]; 3] =
        [&["timehist", "-n"], &["timehist", "-n", "-w", "-V", "--state"], &["timehist", "-n", "-M", "-S"]];
    for recording in recordings() {
        let name = recording.display();
        let (out, tables) = derived(&recording);
        let expected = expected(&out, &tables);
        for args in VARIANTS {
            let Some(text) = perf(&recording, args) else { continue };
            let (read, format) = read(&text, None);
            assert_eq!(format.expect("readable"), "perf-timehist", "{name} {args:?}");
            assert_eq!(read.meta.get("parse.unparsed"), Some("0"), "{name} {args:?}");
            let found = printed(&read);
            let missing: Vec<_> = expected.keys().filter(|k| !found.contains_key(k)).take(3).collect();
            let extra: Vec<_> = found.keys().filter(|k| !expected.contains_key(k)).take(3).collect();
            assert!(missing.is_empty() && extra.is_empty(), "{name} {args:?}: missing {missing:?}, extra {extra:?}");
            let mut waits = 0;
            for (key, (run, delay, wait)) in &found {
                let (want_run, want_delay, want_wait) = expected[key];
                assert_eq!((*run, *delay), (want_run, want_delay), "{name} {args:?}: run and delay of {key:?}");
                if let Some(wait) = wait {
                    assert_eq!(*wait, want_wait, "{name} {args:?}: wait of {key:?}");
                    waits += 1;
                }
            }
            assert!(waits > 0, "{name} {args:?}: no wait was compared");
        }
    }
}

#[test]
fn timehist_states_are_those_of_the_recording() {
    for recording in recordings() {
        let (_, tables) = derived(&recording);
        let Some(text) = perf(&recording, &["timehist", "--state", "-n"]) else { continue };
        let (read, _) = read(&text, None);
        let mut states = HashMap::new();
        let t = &tables.slices;
        for i in 0..t.len() {
            let end = us(t.ts_ns.get(i).unwrap() + t.dur_ns.get(i).unwrap());
            // The letters of zombies and of dead tasks changed places between versions of perf.
            let state = t.end_state.get(i).map(|s| if s == State::Zombie { State::Dead } else { s });
            states.insert((t.cpu.get(i), t.tid.get(i), end), state);
        }
        let s = &read.slices;
        assert!(!s.is_empty());
        for i in 0..s.len() {
            let end = s.ts_ns.get(i).unwrap() + s.dur_ns.get(i).unwrap();
            let key = (s.cpu.get(i), s.tid.get(i), end);
            assert_eq!(s.end_state.get(i), states[&key], "{}: {key:?}", recording.display());
        }
    }
}

#[test]
fn the_map_shows_who_ran_where() {
    for recording in recordings() {
        let name = recording.display();
        let (_, tables) = derived(&recording);
        let mut expected = BTreeMap::new();
        let t = &tables.slices;
        for i in 0..t.len() {
            let flags = t.flags.get(i).unwrap();
            if flags & flag::OPEN_START == 0 {
                let (ts, dur) = (t.ts_ns.get(i).unwrap(), t.dur_ns.get(i).unwrap());
                let end = (flags & flag::OPEN_END == 0).then(|| us(ts + dur));
                expected.insert((t.cpu.get(i).unwrap(), us(ts), t.tid.get(i).unwrap()), end);
            }
        }
        for args in [&["map"][..], &["map", "--compact"]] {
            let Some(text) = perf(&recording, args) else { continue };
            let (read, format) = read(&text, None);
            assert_eq!(format.expect("readable"), "perf-sched-map", "{name} {args:?}");
            assert_eq!(read.meta.get("parse.unparsed"), Some("0"), "{name} {args:?}");
            let s = &read.slices;
            let mut found = BTreeMap::new();
            for i in 0..s.len() {
                let (ts, dur) = (s.ts_ns.get(i).unwrap(), s.dur_ns.get(i).unwrap());
                let end = (s.flags.get(i).unwrap() & flag::OPEN_END == 0).then_some(ts + dur);
                found.insert((s.cpu.get(i).unwrap(), ts, s.tid.get(i).unwrap()), end);
            }
            // Beyond 260 tasks the letters stand for several.
            if read.diagnostics.rows().iter().any(|d| d.code.as_str() == "inferred") {
                eprintln!("{name}: more tasks than letters");
                continue;
            }
            let differ: Vec<_> = expected.iter().filter(|(k, v)| found.get(k) != Some(v)).take(3).collect();
            let extra: Vec<_> = found.keys().filter(|k| !expected.contains_key(k)).take(3).collect();
            assert!(differ.is_empty() && extra.is_empty(), "{name} {args:?}: differ {differ:?}, extra {extra:?}");
        }
    }
}

#[test]
fn latency_sums_the_run_times_of_the_recording() {
    for recording in recordings() {
        let name = recording.display();
        let bytes = std::fs::read(&recording).expect("readable");
        let (out, _) = read(&bytes, None);
        let events = &out.events;
        let mut runtimes: BTreeMap<i64, i64> = BTreeMap::new();
        for i in (0..events.len()).filter(|i| events.kind.get(*i) == Some(Kind::StatRuntime)) {
            *runtimes.entry(events.tid.get(i).unwrap()).or_default() += events.value.get(i).unwrap();
        }
        let Some(text) = perf(&recording, &["latency", "-p"]) else { continue };
        let (report, format) = read(&text, None);
        assert_eq!(format.expect("readable"), "perf-latency", "{name}");
        assert_eq!(report.meta.get("parse.unparsed"), Some("0"), "{name}");
        let s = &report.summaries;
        let mut checked = 0;
        for i in (0..s.len()).filter(|i| s.key.get(*i).is_some_and(|k| report.strings.text(k) == "runtime")) {
            let Some(tid) = s.tid.get(i) else { continue };
            let want = runtimes.get(&tid).copied().unwrap_or(0) as f64 / 1e6;
            let found = s.value.get(i).expect("a figure");
            assert!((found - want).abs() < 0.000_501, "{name}: thread {tid} ran {want} ms, the report says {found}");
            checked += 1;
        }
        assert!(checked > 3, "{name}: {checked} threads");
    }
}
