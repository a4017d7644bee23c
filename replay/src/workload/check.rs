//! What a workload text expects, and how a run is compared with it.

use std::collections::BTreeMap;

use crate::engine::{Engine, Run};
use crate::log::{RecKind, IDLE};
use crate::params;
use crate::program::Workload;
use crate::task::{Ns, TaskId};

/// One stay of a task on a CPU; the task going on without a switch is one stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The task.
    pub task: TaskId,
    /// From when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
}

/// A figure with its tolerance, in the unit of what it is compared with.
#[derive(Clone, Debug)]
struct Figure {
    name: String,
    value: Amount,
    tolerance: Amount,
}

/// A number, in ns where it was written with a unit.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Ns(f64),
    Plain(f64),
    Percent(f64),
}

impl Amount {
    fn parse(text: &str) -> Option<Self> {
        if let Some(ns) = params::duration(text) {
            return Some(Amount::Ns(ns as f64));
        }
        match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Amount::Percent),
            None => text.parse().ok().map(Amount::Plain),
        }
    }

    fn of(self, unit: f64) -> f64 {
        match self {
            Amount::Ns(v) => v,
            Amount::Plain(v) | Amount::Percent(v) => v * unit,
        }
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Timeline { cpu: usize, spans: Vec<(String, Ns, Ns)>, open: bool, tolerance: Ns },
    Run,
    Share,
    End,
    Switches,
    Slice,
    State,
    Count,
}

/// One expectation.
#[derive(Clone, Debug)]
pub(crate) struct Expect {
    what: Kind,
    unit: f64,
    figures: Vec<Figure>,
}

impl Expect {
    pub(super) fn parse(
        head: &str,
        body: &str,
        unit: Ns,
        tolerance: Ns,
        names: &BTreeMap<String, usize>,
    ) -> Result<Self, String> {
        let (key, cpu) = match head.split_once('@') {
            Some((key, cpu)) => (key, cpu.parse::<usize>().map_err(|_| format!("`{head}`: expected expect@CPU"))?),
            None => (head, 0),
        };
        let (what, unit) = match key {
            "expect" => return timeline_of(body, cpu, unit, tolerance, names),
            "run" => (Kind::Run, unit as f64),
            "share" => (Kind::Share, 1.0),
            "end" => (Kind::End, unit as f64),
            "switches" => (Kind::Switches, 1.0),
            "slice" => (Kind::Slice, unit as f64),
            "state" => (Kind::State, 1.0),
            "count" => (Kind::Count, 1.0),
            _ if head.starts_with(|c: char| c.is_ascii_lowercase()) => {
                return Err(format!("no key {head}; the name of a task begins with a capital letter"));
            }
            _ => return Err(format!("no key {head}; see the documentation of the workload language")),
        };
        let figures = body.split_whitespace().map(figure).collect::<Result<Vec<_>, _>>()?;
        for f in &figures {
            let task = f.name.split('.').next().unwrap_or("");
            let named = matches!(what, Kind::Run | Kind::Share | Kind::End | Kind::State);
            if named && !names.contains_key(task) {
                return Err(format!("{key}: no task {task} above this line"));
            }
        }
        Ok(Expect { what, unit, figures })
    }
}

/// `NAME=value`, `NAME=value±tolerance`, `NAME=value±5%`, or a bare value.
fn figure(text: &str) -> Result<Figure, String> {
    let bad = || format!("`{text}`: expected NAME=value or NAME=value±tolerance");
    let (name, rest) = text.split_once('=').unwrap_or(("", text));
    let (value, tolerance) = rest.split_once('±').unwrap_or((rest, "0"));
    let value = Amount::parse(value).ok_or_else(bad)?;
    let tolerance = Amount::parse(tolerance).ok_or_else(bad)?;
    Ok(Figure { name: name.to_owned(), value, tolerance })
}

fn timeline_of(
    body: &str,
    cpu: usize,
    unit: Ns,
    tolerance: Ns,
    names: &BTreeMap<String, usize>,
) -> Result<Expect, String> {
    let mut spans = Vec::new();
    let mut open = false;
    for word in body.split_whitespace() {
        if word == "..." || word == "…" {
            open = true;
            continue;
        }
        let bad = || format!("`{word}`: expected TASK[from,to)");
        let (name, rest) = word.split_once('[').ok_or_else(bad)?;
        let (from, to) = rest.strip_suffix(')').and_then(|r| r.split_once(',')).ok_or_else(bad)?;
        let time = |t: &str| params::duration(t).or_else(|| params::decimal(t, unit)).ok_or_else(bad);
        if !names.contains_key(name) {
            return Err(format!("expect: no task {name} above this line"));
        }
        spans.push((name.to_owned(), time(from)?, time(to)?));
    }
    let what = Kind::Timeline { cpu, spans, open, tolerance };
    Ok(Expect { what, unit: unit as f64, figures: Vec::new() })
}

/// Who ran when on `cpu`, without idle time.
pub fn timeline(run: &Run, cpu: usize) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut on: Option<(u32, Ns)> = None;
    let end = run.counts.end;
    let mut close = |on: &mut Option<(u32, Ns)>, at: Ns| {
        if let Some((t, from)) = on.take() {
            if at > from {
                match spans.last_mut() {
                    Some(s) if s.task.0 == t && s.to == from => s.to = at,
                    _ => spans.push(Span { task: TaskId(t), from, to: at }),
                }
            }
        }
    };
    for rec in run.log.recs.iter().filter(|r| r.kind == RecKind::Switch && r.cpu as usize == cpu) {
        let at = rec.ts.min(end);
        close(&mut on, at);
        if rec.b != IDLE {
            on = Some((rec.b, at));
        }
    }
    close(&mut on, end);
    spans
}

/// Names the values that the engine reads at the end.
pub(super) fn ask(expect: &[Expect], engine: &mut Engine, work: &Workload) {
    for e in expect.iter().filter(|e| matches!(e.what, Kind::State)) {
        for f in &e.figures {
            let (task, key) = f.name.split_once('.').unwrap_or((&f.name, ""));
            if let Some(t) = work.tasks.iter().position(|p| p.comm == task) {
                engine.inspect_at_end(TaskId(t as u32), key);
            }
        }
    }
}

pub(super) fn compare(expect: &[Expect], run: &Run, cpus: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut inspected = run.inspected.iter();
    for e in expect {
        if let Kind::Timeline { cpu, spans, open, tolerance } = &e.what {
            wrong.extend(compare_timeline(run, *cpu, spans, *open, *tolerance, e.unit));
            continue;
        }
        for f in &e.figures {
            let got = match e.what {
                Kind::State => inspected.next().copied().flatten(),
                _ => value(e, f, run, cpus),
            };
            let (want, tolerance) = scaled(f, e);
            match got {
                None => wrong.push(format!("{}: nothing to compare with", f.name)),
                Some(got) if (got - want).abs() > tolerance + 1e-9 * want.abs() => wrong.push(format!(
                    "{:?} {}: expected {} ± {}, got {}",
                    e.what,
                    f.name,
                    want / e.unit,
                    tolerance / e.unit,
                    got / e.unit
                )),
                Some(_) => {}
            }
        }
    }
    wrong
}

/// What is expected and how far off it may be, in ns or plain numbers.
fn scaled(f: &Figure, e: &Expect) -> (f64, f64) {
    let want = f.value.of(e.unit);
    let tolerance = match f.tolerance {
        Amount::Percent(p) => want.abs() * p / 100.0,
        other => other.of(e.unit),
    };
    (want, tolerance)
}

fn value(e: &Expect, f: &Figure, run: &Run, cpus: usize) -> Option<f64> {
    let task = || run.work.tasks.iter().position(|p| p.comm == f.name);
    match e.what {
        Kind::Run => Some(run.ran[task()?] as f64),
        Kind::Share => Some(100.0 * run.ran[task()?] as f64 / run.counts.busy.max(1) as f64),
        Kind::End => {
            let t = task()? as u32;
            run.log.recs.iter().find(|r| r.kind == RecKind::Exit && r.a == t).map(|r| r.ts as f64)
        }
        Kind::Switches => Some(run.counts.switches as f64),
        Kind::Slice => {
            let fits = |t: TaskId| match f.name.strip_suffix('*') {
                Some(prefix) => run.work.tasks[t.index()].comm.starts_with(prefix),
                None => run.work.tasks[t.index()].comm == f.name,
            };
            let spans: Vec<Span> = (0..cpus).flat_map(|c| timeline(run, c)).filter(|s| fits(s.task)).collect();
            let sum: Ns = spans.iter().map(|s| s.to - s.from).sum();
            (!spans.is_empty()).then(|| sum as f64 / spans.len() as f64)
        }
        Kind::Count => run.counters.iter().find(|c| c.0 == f.name).map(|c| c.1 as f64),
        Kind::State | Kind::Timeline { .. } => None,
    }
}

fn compare_timeline(
    run: &Run,
    cpu: usize,
    want: &[(String, Ns, Ns)],
    open: bool,
    tolerance: Ns,
    unit: f64,
) -> Option<String> {
    let got = timeline(run, cpu);
    let name = |t: TaskId| run.work.tasks[t.index()].comm.as_str();
    let close = |a: Ns, b: Ns| (a - b).abs() <= tolerance;
    let same = |(w, g): (&(String, Ns, Ns), &Span)| w.0 == name(g.task) && close(w.1, g.from) && close(w.2, g.to);
    let prefix = want.len() <= got.len() && want.iter().zip(&got).all(same);
    // The last span of an open timeline may be cut off by the text, not by the run.
    let cut = open
        && !want.is_empty()
        && want.len() <= got.len()
        && want[..want.len() - 1].iter().zip(&got).all(same)
        && want
            .last()
            .zip(got.get(want.len() - 1))
            .is_some_and(|(w, g)| w.0 == name(g.task) && close(w.1, g.from) && g.to >= w.2 - tolerance);
    if (prefix && (open || want.len() == got.len())) || cut {
        return None;
    }
    let show = |n: &str, a: Ns, b: Ns| format!("{n}[{},{})", a as f64 / unit, b as f64 / unit);
    let wants: Vec<String> = want.iter().map(|w| show(&w.0, w.1, w.2)).collect();
    let gots: Vec<String> = got.iter().take(want.len() + 3).map(|s| show(name(s.task), s.from, s.to)).collect();
    Some(format!("CPU {cpu}:\n  expected {}\n  got      {}", wants.join(" "), gots.join(" ")))
}
