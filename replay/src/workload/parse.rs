//! Text to [`Scenario`].

use std::collections::BTreeMap;

use super::check::Expect;
use super::draw::Distribution;
use super::Scenario;
use crate::draws::Draws;
use crate::engine::{Machine, TimerMode};
use crate::params;
use crate::policies::PolicySpec;
use crate::program::{
    BarrierId, BufferId, Fork, Group, Late, LockId, Pause, Program, QueueId, SemId, Start, Step, Workload,
};
use crate::rates::Rates;
use crate::task::{Attrs, Ns, Sleep, TaskId, NEVER};

/// A text that is no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected and what was found.
    pub what: String,
}

/// Most steps that counted loops may unroll to.
const MAX_STEPS: usize = 1_000_000;
/// Rounds after which a loop for ever repeats the times that it has drawn.
pub const ROUNDS: usize = 1000;

pub(super) struct Builder {
    unit: Ns,
    machine: Machine,
    /// Capacity of each CPU, the last for all further ones, and the frequencies of some.
    capacities: Vec<i64>,
    khz: BTreeMap<usize, Vec<(Ns, i64)>>,
    policy: Option<String>,
    rt: Option<String>,
    pub(super) draws: Draws,
    /// The seed that the caller asks for, whatever the text says.
    seed: Option<u64>,
    /// The seed in force, and whether anything was drawn.
    seeded: u64,
    drawn: bool,
    pub(super) work: Workload,
    names: BTreeMap<String, usize>,
    sems: BTreeMap<String, SemId>,
    pub(super) queues: BTreeMap<String, QueueId>,
    pub(super) buffers: BTreeMap<String, BufferId>,
    pub(super) locks: BTreeMap<String, LockId>,
    pub(super) barriers: BTreeMap<String, BarrierId>,
    /// Recorded times by name, in order.
    pub(super) values: BTreeMap<String, Vec<Ns>>,
    /// Steps of each task as text.
    bodies: Vec<String>,
    /// Forks whose child is named later: task, step, name.
    pub(super) forks: Vec<(usize, usize, String)>,
    expect: Vec<Expect>,
    tolerance: Ns,
}

pub(super) fn scenario(text: &str, policy: Option<&str>, seed: Option<u64>) -> Result<Scenario, ParseError> {
    let seeded = seed.unwrap_or(1);
    let mut b = Builder {
        unit: 1_000_000,
        machine: Machine { hz: 1000, ..Machine::default() },
        capacities: Vec::new(),
        khz: BTreeMap::new(),
        policy: None,
        rt: None,
        draws: Draws::new(seeded),
        seed,
        seeded,
        drawn: false,
        work: Workload::default(),
        names: BTreeMap::new(),
        sems: BTreeMap::new(),
        queues: BTreeMap::new(),
        buffers: BTreeMap::new(),
        locks: BTreeMap::new(),
        barriers: BTreeMap::new(),
        values: BTreeMap::new(),
        bodies: Vec::new(),
        forks: Vec::new(),
        expect: Vec::new(),
        tolerance: 0,
    };
    let mut last = 1;
    for (i, line) in text.lines().enumerate() {
        last = i + 1;
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            b.line(line).map_err(|what| ParseError { line: i + 1, what })?;
        }
    }
    b.finish(policy).map_err(|what| ParseError { line: last, what })
}

impl Builder {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (head, body) =
            line.split_once(':').ok_or_else(|| format!("`{line}`: expected `key: value` or `TASK: steps`"))?;
        let (head, body) = (head.trim(), body.trim());
        if head.starts_with(|c: char| c.is_ascii_uppercase()) {
            return self.task(head, body);
        }
        match head {
            "policy" => self.policy = Some(body.to_owned()),
            "policy rt" => self.rt = Some(body.to_owned()),
            "cpus" => self.machine.cpus = number(body, 1, 4096)? as usize,
            "hz" => self.machine.hz = number(body, 1, 100_000)?,
            "unit" => {
                self.unit =
                    params::duration(body).filter(|u| *u > 0).ok_or_else(|| format!("unit {body}: expected a time"))?
            }
            "until" => self.machine.until = self.time(body)?,
            "seed" => {
                self.seeded = self.seed.unwrap_or(number(body, 0, i64::MAX)? as u64);
                self.draws = Draws::new(self.seeded);
            }
            "phase" => {
                self.machine.tick_phase = body.split(',').map(|p| self.time(p.trim())).collect::<Result<_, _>>()?
            }
            "capacity" => {
                let each = body.split(',').map(|c| number(c.trim(), 1, 1024));
                self.capacities = each.collect::<Result<_, _>>()?;
            }
            "timers" => {
                self.machine.timers = match body {
                    "hr" => TimerMode::High,
                    "tick" => TimerMode::Tick,
                    _ => return Err(format!("timers {body}: expected hr or tick")),
                }
            }
            "kernel" => {
                self.machine.preempt_kernel = match body {
                    "preempt" => true,
                    "nopreempt" => false,
                    _ => return Err(format!("kernel {body}: expected preempt or nopreempt")),
                }
            }
            "costs" => self.costs(body)?,
            _ if head.starts_with("khz ") => {
                let cpu = number(head["khz ".len()..].trim(), 0, 4095)? as usize;
                let each = body.split(',').map(|change| {
                    let expected = || format!("`{}`: expected a time and kHz, such as `20 600000`", change.trim());
                    let (at, khz) = change.trim().split_once(' ').ok_or_else(expected)?;
                    Ok((self.time(at.trim())?, number(khz.trim(), 1, i64::from(i32::MAX))?))
                });
                let khz: Vec<(Ns, i64)> = each.collect::<Result<_, String>>()?;
                if khz.windows(2).any(|two| two[0].0 >= two[1].0) {
                    return Err(format!("{head}: expected times that rise"));
                }
                self.khz.insert(cpu, khz);
            }
            _ if head.starts_with("group ") => self.declare_group(head["group ".len()..].trim(), body)?,
            _ if head.starts_with("buffer ") => self.declare_buffer(head["buffer ".len()..].trim(), body)?,
            _ if head.starts_with("queue ") => self.declare_queue(head["queue ".len()..].trim(), body)?,
            _ if head.starts_with("values ") => self.declare_values(head["values ".len()..].trim(), body)?,
            "tolerance" => self.tolerance = self.time(body)?,
            _ => {
                let expect = Expect::parse(head, body, self.unit, self.tolerance, &self.names)?;
                self.expect.push(expect);
            }
        }
        Ok(())
    }

    pub(super) fn time(&self, text: &str) -> Result<Ns, String> {
        if matches!(text, "∞" | "inf") {
            return Ok(NEVER);
        }
        params::duration(text)
            .or_else(|| params::decimal(text, self.unit))
            .filter(|t| *t >= 0)
            .ok_or_else(|| format!("`{text}`: expected a time such as 5, 2.5 or 300us"))
    }

    /// A time, or one that is drawn: `5`, `~exp(5)`, `~NAME` from recorded times.
    pub(super) fn time_or_draw(&mut self, text: &str) -> Result<Ns, String> {
        let Some(text) = text.strip_prefix('~') else { return self.time(text) };
        self.drawn = true;
        if let Some(values) = self.values.get(text) {
            return Ok(values[self.draws.below(values.len())]);
        }
        Ok(Distribution::parse(text, |t| self.time(t))?.draw(&mut self.draws))
    }

    /// `group web: weight=300 quota=5ms/10ms`.
    fn declare_group(&mut self, name: &str, body: &str) -> Result<(), String> {
        let mut group = Group::new(name.trim_matches('/'));
        for part in body.split_whitespace() {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("group: `{part}`: expected key=value"))?;
            group.set(key, value)?;
        }
        self.work.groups.push(group);
        Ok(())
    }

    fn costs(&mut self, body: &str) -> Result<(), String> {
        for part in body.split_whitespace() {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("costs: `{part}`: expected key=time"))?;
            // Plain numbers are in the unit of the text, as everywhere in it.
            let value = match params::decimal(value, self.unit) {
                Some(ns) => format!("{ns}ns"),
                None => value.to_owned(),
            };
            self.machine.costs.set(key, &value)?;
        }
        Ok(())
    }

    fn task(&mut self, head: &str, body: &str) -> Result<(), String> {
        let mut words = head.split_whitespace();
        let name = words.next().unwrap_or("");
        let (name, count) = match name.split_once('*') {
            Some((name, count)) => (name, Some(number(count, 1, 100_000)?)),
            None => (name, None),
        };
        let mut attrs = Attrs::default();
        let (mut start, mut arrivals) = (Some("0"), None);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: expected attribute=value"))?;
            match (key, value) {
                ("start", "fork") => start = None,
                ("start", at) => start = Some(at),
                ("arrivals", gaps) => arrivals = Some(gaps),
                _ => attrs.set(key, value)?,
            }
        }
        let starts = arrivals.map(|gaps| self.arrivals(gaps, count.unwrap_or(1) as usize)).transpose()?;
        for i in 0..count.unwrap_or(1) {
            let comm = if count.is_some() { format!("{name}{i}") } else { name.to_owned() };
            let t = self.work.tasks.len();
            if self.names.insert(comm.clone(), t).is_some() {
                return Err(format!("task {comm} is there already"));
            }
            let mut program = Program::new(comm, t as i64 + 1, Vec::new());
            program.first = attrs.clone();
            let start = match (start, &starts) {
                (Some(_), Some(starts)) => Start::At(starts[i as usize]),
                (Some(at), None) => Start::At(self.time_or_draw(at)?),
                (None, _) => Start::Forked,
            };
            program.start = start;
            self.work.tasks.push(program);
            self.bodies.push(body.to_owned());
            let rest = self.steps(t, body, 0)?;
            if !rest.is_empty() {
                return Err(format!("`{rest}`: a closing parenthesis without an opening one"));
            }
            let asleep = matches!(
                self.work.tasks[t].steps.first(),
                Some(Step::Pause { .. } | Step::Wait { .. } | Step::Receive { .. } | Step::Barrier { .. })
            );
            if let (Start::At(at), true) = (start, asleep) {
                self.work.tasks[t].start = Start::Asleep(at);
            }
        }
        Ok(())
    }

    /// Reads steps up to the end or a closing parenthesis, and returns what follows.
    pub(super) fn steps<'a>(&mut self, t: usize, mut text: &'a str, depth: usize) -> Result<&'a str, String> {
        loop {
            text = text.trim_start();
            if text.is_empty() {
                return if depth == 0 { Ok(text) } else { Err("a parenthesis is not closed".into()) };
            }
            if let Some(rest) = text.strip_prefix('(') {
                text = self.group(t, rest, depth)?;
            } else if text.starts_with(')') {
                return Ok(text);
            } else {
                let end = word_end(text);
                self.step(t, &text[..end])?;
                text = &text[end..];
            }
            if self.work.tasks[t].steps.len() > MAX_STEPS {
                return Err(format!("more than {MAX_STEPS} steps"));
            }
        }
    }

    fn group<'a>(&mut self, t: usize, text: &'a str, depth: usize) -> Result<&'a str, String> {
        if depth > 20 {
            return Err("parentheses are nested too deeply".into());
        }
        let from = self.work.tasks[t].steps.len();
        let (draws, forks) = (self.draws.clone(), self.forks.len());
        let rest = self.steps(t, text, depth + 1)?;
        let drawn = self.draws != draws;
        let makes = self.forks.len() > forks;
        let rest = rest.strip_prefix(')').and_then(|r| r.strip_prefix('*')).ok_or("expected )* or )*5")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            if makes {
                return Err("a loop for ever cannot make tasks".into());
            }
            let body = self.work.tasks[t].steps.len() - from;
            let rounds = if drawn { ROUNDS.min(MAX_STEPS / body.max(1)) } else { 1 };
            for _ in 1..rounds {
                self.steps(t, text, depth + 1)?;
            }
            self.work.tasks[t].steps.push(Step::Goto { step: from as u32 });
        } else {
            let times = number(&rest[..digits], 1, MAX_STEPS as i64)? as usize;
            let body: Vec<Step> = self.work.tasks[t].steps[from..].to_vec();
            if body.len().saturating_mul(times) > MAX_STEPS {
                return Err(format!("more than {MAX_STEPS} steps"));
            }
            if body.iter().any(|s| matches!(s, Step::Goto { .. })) {
                return Err("a counted loop cannot hold an endless one".into());
            }
            for _ in 1..times {
                if drawn || makes {
                    self.steps(t, text, depth + 1)?;
                } else {
                    self.work.tasks[t].steps.extend_from_slice(&body);
                }
            }
        }
        Ok(&rest[digits..])
    }

    fn step(&mut self, t: usize, word: &str) -> Result<(), String> {
        if let Some(whole) = self.exchange(t, word)? {
            self.work.tasks[t].steps.extend(whole);
            return Ok(());
        }
        let inner = |prefix: &str| {
            word.strip_prefix(prefix).and_then(|w| w.strip_prefix('(')).and_then(|w| w.strip_suffix(')'))
        };
        let step = if let Some(name) = inner("W") {
            Step::Wait { sem: self.sem(name), sleep: Sleep::Interruptible }
        } else if let Some(name) = inner("Psync") {
            Step::Post { sem: self.sem(name), sync: true }
        } else if let Some(given) = inner("B") {
            self.spin(given, word)?
        } else if let Some(name) = inner("P") {
            Step::Post { sem: self.sem(name), sync: false }
        } else if let Some((name, how)) = inner("F")
            .map(|n| (n, Fork::Fork))
            .or(inner("V").map(|n| (n, Fork::Vfork)))
            .or(inner("T").map(|n| (n, Fork::Thread)))
        {
            self.forks.push((t, self.work.tasks[t].steps.len(), name.to_owned()));
            Step::Fork { child: TaskId(u32::MAX), how }
        } else if let Some(list) = inner("N") {
            let mut attrs = self.work.tasks[t].attrs.last().unwrap_or(&self.work.tasks[t].first).clone();
            for part in list.split(',') {
                let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}`: expected attribute=value"))?;
                attrs.set(key.trim(), value.trim())?;
            }
            self.work.tasks[t].attrs.push(attrs);
            Step::SetAttrs { attrs: self.work.tasks[t].attrs.len() as u32 - 1 }
        } else {
            self.plain_step(word)?
        };
        self.work.tasks[t].steps.push(step);
        Ok(())
    }

    fn plain_step(&mut self, word: &str) -> Result<Step, String> {
        let letter = word.chars().next().unwrap_or(' ');
        let rest = &word[letter.len_utf8()..];
        let sleep = Sleep::Interruptible;
        Ok(match letter {
            'R' => Step::Run { ns: self.time_or_draw(rest)? },
            'K' => Step::RunKernel { ns: self.time_or_draw(rest)? },
            'S' if rest.starts_with('~') => {
                Step::Pause { pause: Pause::Timer { ns: self.time_or_draw(rest)?, slack: 0 }, sleep }
            }
            'S' if rest.starts_with('@') => {
                let (rest, late) = rest[1..].split_once('/').unwrap_or((&rest[1..], "catch-up"));
                let late = Late::NAMES.iter().find(|known| known.0 == late).map(|known| known.1);
                let late = late.ok_or_else(|| format!("`{word}`: expected S@TIME, S@TIME/merge or S@TIME/skip"))?;
                let (ns, slack) = self.timer(rest, word)?;
                Step::Pause { pause: Pause::Period { ns, slack, late }, sleep }
            }
            'S' => {
                let (ns, slack) = self.timer(rest, word)?;
                Step::Pause { pause: Pause::Timer { ns, slack }, sleep }
            }
            'D' => Step::Pause { pause: Pause::Io { ns: self.time_or_draw(rest)? }, sleep: Sleep::Uninterruptible },
            'E' => Step::Pause { pause: Pause::External { ns: self.time_or_draw(rest)? }, sleep },
            'U' => Step::Pause { pause: Pause::At { at: self.time(rest)? }, sleep },
            'Y' if rest.is_empty() => Step::Yield,
            'X' if rest.is_empty() => Step::Exec,
            'Q' if rest.is_empty() => Step::Exiting,
            'Z' if rest.is_empty() => Step::Exit,
            _ => return Err(format!("`{word}`: no such step")),
        })
    }

    /// `TIME` or `TIME~SLACK`.
    fn timer(&self, text: &str, word: &str) -> Result<(Ns, u32), String> {
        let (ns, slack) = text.split_once('~').unwrap_or((text, "0"));
        let slack = u32::try_from(self.time(slack)?).map_err(|_| format!("`{word}`: slack under 4 s"))?;
        Ok((self.time(ns)?, slack))
    }

    /// `NAME,TIME` or `NAME,TIME,TURNS`.
    fn spin(&mut self, given: &str, word: &str) -> Result<Step, String> {
        let parts: Vec<&str> = given.split(',').map(str::trim).collect();
        let (name, time, turns) = match parts[..] {
            [name, time] => (name, time, Some(u32::MAX)),
            [name, time, turns] => (name, time, turns.parse().ok()),
            _ => return Err(format!("`{word}`: expected B(SEMAPHORE,TIME) or B(SEMAPHORE,TIME,TURNS)")),
        };
        let ns = self.time(time)?;
        let turns = turns.filter(|n| *n > 0 && ns > 0);
        let turns = turns.ok_or_else(|| format!("`{word}`: expected a time and a number of turns above 0"))?;
        Ok(Step::Spin { sem: self.sem(name), ns, turns })
    }

    fn sem(&mut self, name: &str) -> SemId {
        let next = SemId(self.sems.len() as u32);
        let id = *self.sems.entry(name.to_owned()).or_insert(next);
        if id == next {
            self.work.sems.push(0);
        }
        id
    }

    /// A further task like `first`, with draws of its own, made for the fork number `times` of it.
    fn copy_of(&mut self, first: usize, times: usize) -> Result<usize, String> {
        let mut copy = self.work.tasks[first].clone();
        if copy.steps.iter().any(|s| matches!(s, Step::Fork { .. })) {
            return Err(format!("{} makes tasks itself, so it can be made only once", copy.comm));
        }
        let t = self.work.tasks.len();
        copy.comm = format!("{}.{times}", copy.comm);
        copy.tid = t as i64 + 1;
        copy.pid = Some(copy.tid);
        copy.steps.clear();
        copy.attrs.clear();
        self.work.tasks.push(copy);
        let body = self.bodies[first].clone();
        self.steps(t, &body, 0)?;
        Ok(t)
    }

    fn finish(mut self, policy: Option<&str>) -> Result<Scenario, String> {
        let mut made: BTreeMap<usize, usize> = BTreeMap::new();
        for (t, step, name) in &std::mem::take(&mut self.forks) {
            let first = *self.names.get(name).ok_or_else(|| format!("no task {name} to fork"))?;
            let times = made.entry(first).or_insert(0);
            let child = if *times == 0 { first } else { self.copy_of(first, *times)? };
            *times += 1;
            if let Step::Fork { child: c, .. } = &mut self.work.tasks[*t].steps[*step] {
                *c = TaskId(child as u32);
            }
        }
        self.work.check()?;
        if let Some((cpu, _)) = self.khz.last_key_value().filter(|(cpu, _)| **cpu >= self.machine.cpus) {
            return Err(format!("khz {cpu}: there are {} CPUs, counted from 0", self.machine.cpus));
        }
        let rates = Rates::stated(self.machine.cpus, &self.capacities, &self.khz);
        self.machine.speeds = rates.speeds();
        let policy = policy.or(self.policy.as_deref()).ok_or("no `policy:` line; add one such as `policy: cfs`")?;
        let rt = self.rt.as_deref().map(PolicySpec::parse).transpose().map_err(|e| e.0)?;
        Ok(Scenario {
            policy: PolicySpec::parse(policy).map_err(|e| e.0)?,
            rt,
            machine: self.machine,
            rates,
            work: self.work,
            expect: self.expect,
            seed: self.seeded,
            drawn: self.drawn,
        })
    }
}

/// End of the word at the start of `text`; parentheses that belong to the word are part of it, with
/// all that they hold.
fn word_end(text: &str) -> usize {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return i + 1,
            ')' if depth == 0 => return i,
            ')' => depth -= 1,
            c if c.is_whitespace() && depth == 0 => return i,
            _ => {}
        }
    }
    text.len()
}

pub(super) fn number(text: &str, lo: i64, hi: i64) -> Result<i64, String> {
    text.parse().ok().filter(|n| (lo..=hi).contains(n)).ok_or_else(|| format!("`{text}`: expected {lo} to {hi}"))
}
