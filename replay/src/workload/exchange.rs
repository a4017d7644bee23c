//! What tasks ask of each other, and times that were recorded elsewhere: calls, messages, server
//! pools, arrivals.

use super::parse::{number, Builder};
use crate::program::{BarrierId, Buffer, BufferId, Calls, HandlerId, LockId, QueueId, SemId, Step};
use crate::task::{Ns, Sleep, TaskId, NEVER};

/// Most tasks or values of one line.
const MAX_VALUES: usize = 1_000_000;

impl Builder {
    /// `values service: 1 2.5 300us`: recorded times, to be drawn as `~service` or taken in order
    /// as arrivals.
    pub(super) fn declare_values(&mut self, name: &str, body: &str) -> Result<(), String> {
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain {
            return Err(format!("values {name}: expected a name of letters, digits and _"));
        }
        let times = body.split_whitespace().map(|word| match self.time(word)? {
            NEVER => Err(format!("`{word}`: expected a time that ends")),
            ns => Ok(ns),
        });
        let times = times.collect::<Result<Vec<Ns>, String>>()?;
        if times.is_empty() || times.len() > MAX_VALUES {
            return Err(format!("values {name}: expected 1 to {MAX_VALUES} times, found {}", times.len()));
        }
        self.values.insert(name.to_owned(), times);
        Ok(())
    }

    /// Start times of `count` tasks that come one after another: `~exp(5)` draws each gap (a
    /// Poisson process), a name takes the recorded gaps in order, and a time is the gap itself.
    pub(super) fn arrivals(&mut self, gaps: &str, count: usize) -> Result<Vec<Ns>, String> {
        let recorded = self.values.get(gaps).cloned();
        if let Some(known) = recorded.as_ref().filter(|known| known.len() < count) {
            let n = known.len();
            return Err(format!("arrivals={gaps}: {count} tasks, but only {n} recorded gaps; draw them with ~{gaps}"));
        }
        let mut at: Ns = 0;
        let mut starts = Vec::with_capacity(count);
        for i in 0..count {
            let gap = match &recorded {
                Some(known) => known[i],
                None => self.time_or_draw(gaps)?,
            };
            at = at.checked_add(gap).filter(|at| *at < NEVER).ok_or("arrivals: expected gaps that end")?;
            starts.push(at);
        }
        Ok(starts)
    }

    /// `buffer pipe: capacity=16 write=1 read=4 room=1 holds=0`; `capacity=max` for any number.
    pub(super) fn declare_buffer(&mut self, name: &str, body: &str) -> Result<(), String> {
        let nobody = TaskId(u32::MAX);
        let mut buffer = Buffer { capacity: 1, write: 1, read: 1, room: 1, holds: 0, from: Vec::new(), to: nobody };
        for part in body.split_whitespace() {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("buffer: `{part}`: expected key=number"))?;
            let least = i64::from(key != "holds");
            if (key, value) == ("capacity", "max") {
                buffer.capacity = u32::MAX;
                continue;
            }
            let units = u32::try_from(number(value, least, MAX_VALUES as i64)?).unwrap_or_default();
            match key {
                "capacity" => buffer.capacity = units,
                "write" => buffer.write = units,
                "read" => buffer.read = units,
                "room" => buffer.room = units,
                "holds" => buffer.holds = units,
                _ => {
                    return Err(format!("no attribute {key} of a buffer; valid are capacity, write, read, room, holds"))
                }
            }
        }
        if buffer.holds > buffer.capacity {
            return Err(format!("buffer {name}: it holds {} at most", buffer.capacity));
        }
        let id = BufferId(self.work.buffers.len() as u32);
        if self.buffers.insert(name.to_owned(), id).is_some() {
            return Err(format!("buffer {name} is there already"));
        }
        self.work.buffers.push(buffer);
        Ok(())
    }

    /// `queue web: wakes=first`.
    pub(super) fn declare_queue(&mut self, name: &str, body: &str) -> Result<(), String> {
        let expected = || format!("queue {name}: `{body}`: expected wakes=first, each, signal or condition");
        let calls = match body.strip_prefix("wakes=").ok_or_else(expected)? {
            "first" => Calls::First,
            "each" => Calls::Each,
            "signal" => Calls::Signal,
            "condition" => Calls::Condition,
            _ => return Err(expected()),
        };
        let queue = self.queue(name)?.0 as usize;
        self.work.calls.resize(self.work.calls.len().max(queue + 1), Calls::default());
        self.work.calls[queue] = calls;
        Ok(())
    }

    /// `I(pipe)`, which puts a unit into a buffer, or `O(pipe)`, which takes one out.
    fn buffered(&mut self, t: usize, name: &str, puts: bool) -> Result<Step, String> {
        let known = self.buffers.get(name).copied();
        let buffer = known.ok_or_else(|| format!("no buffer {name}; declare it: `buffer {name}: capacity=16`"))?;
        let of = &mut self.work.buffers[buffer.0 as usize];
        let task = TaskId(t as u32);
        if puts {
            if !of.from.contains(&task) {
                of.from.push(task);
            }
            return Ok(Step::Put { buffer });
        }
        if of.to.0 != u32::MAX && of.to != task {
            return Err(format!("buffer {name}: one task takes something out, not several"));
        }
        of.to = task;
        Ok(Step::Take { buffer })
    }

    /// `L(m)`, which takes a lock, `G(m)`, which lets go of it, or `H(m,20us)` and `H(m,20us,ready)`, which
    /// contend for it.
    fn locked(&mut self, t: usize, letter: &str, inner: &str) -> Result<Step, String> {
        let mut parts = inner.split(',').map(str::trim);
        let (name, time, ready) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let wrong = || format!("`{letter}({inner})`: expected L(LOCK), G(LOCK), H(LOCK,TIME) or H(LOCK,TIME,ready)");
        let fits = if letter == "H" { time.is_some() && ready.is_none_or(|r| r == "ready") } else { time.is_none() };
        if name.is_empty() || !fits || parts.next().is_some() {
            return Err(wrong());
        }
        let next = LockId(self.work.locks.len() as u32);
        let lock = *self.locks.entry(name.to_owned()).or_insert(next);
        if lock == next {
            self.work.locks.push(Vec::new());
        }
        let (members, t) = (&mut self.work.locks[lock.0 as usize], TaskId(t as u32));
        if !members.contains(&t) {
            members.push(t);
        }
        Ok(match letter {
            "L" => Step::Acquire { lock },
            "G" => Step::Release { lock },
            _ => match self.time(time.unwrap_or_default())? {
                NEVER => return Err(wrong()),
                ns => Step::Contend { lock, ns, ready: ready.is_some() },
            },
        })
    }

    /// `J(b)`, which comes to a barrier.
    fn met(&mut self, t: usize, name: &str) -> Result<Step, String> {
        if name.is_empty() {
            return Err("`J()`: expected J(BARRIER)".into());
        }
        let next = BarrierId(self.work.barriers.len() as u32);
        let barrier = *self.barriers.entry(name.to_owned()).or_insert(next);
        if barrier == next {
            self.work.barriers.push(Vec::new());
        }
        let (members, t) = (&mut self.work.barriers[barrier.0 as usize], TaskId(t as u32));
        if !members.contains(&t) {
            members.push(t);
        }
        Ok(Step::Barrier { barrier })
    }

    /// The steps of a call `C(pool: R2 D5)`, a message `M(pool: R2)`, or `A(pool)`, which receives
    /// one; none for other words.
    pub(super) fn exchange(&mut self, t: usize, word: &str) -> Result<Option<Vec<Step>>, String> {
        let sleep = Sleep::Interruptible;
        let Some((letter, inner)) = word.strip_suffix(')').and_then(|w| w.split_once('(')) else { return Ok(None) };
        if letter == "A" {
            let queue = self.queue(inner.trim())?;
            return Ok(Some(vec![Step::Receive { queue, sleep }]));
        }
        if matches!(letter, "I" | "O") {
            return Ok(Some(vec![self.buffered(t, inner.trim(), letter == "I")?]));
        }
        if matches!(letter, "L" | "G" | "H") {
            return Ok(Some(vec![self.locked(t, letter, inner.trim())?]));
        }
        if letter == "J" {
            return Ok(Some(vec![self.met(t, inner.trim())?]));
        }
        if !matches!(letter, "C" | "M") {
            return Ok(None);
        }
        let (pool, body) = inner
            .split_once(':')
            .ok_or_else(|| format!("`{word}`: expected {letter}(POOL: STEPS), such as C(web: R2)"))?;
        let queue = self.queue(pool.trim())?;
        let mut steps = self.request(t, body)?;
        if letter == "M" {
            let handler = self.handler(steps);
            return Ok(Some(vec![Step::Send { queue, handler }]));
        }
        // The reply: nobody else waits for it.
        let reply = SemId(self.work.sems.len() as u32);
        self.work.sems.push(0);
        steps.push(Step::Post { sem: reply, sync: false });
        let handler = self.handler(steps);
        Ok(Some(vec![Step::Send { queue, handler }, Step::Wait { sem: reply, sleep }]))
    }

    /// Steps of a request, which whoever receives it does.
    fn request(&mut self, t: usize, body: &str) -> Result<Vec<Step>, String> {
        let (own, forks) = (std::mem::take(&mut self.work.tasks[t].steps), self.forks.len());
        let read = self.steps(t, body, 0).map(str::to_owned);
        let steps = std::mem::replace(&mut self.work.tasks[t].steps, own);
        let rest = read?;
        let refused = |s: &Step| {
            matches!(
                s,
                Step::Fork { .. }
                    | Step::SetAttrs { .. }
                    | Step::Exit
                    | Step::Goto { .. }
                    | Step::Receive { .. }
                    | Step::Put { .. }
                    | Step::Take { .. }
                    | Step::Barrier { .. }
            )
        };
        if !rest.is_empty() || self.forks.len() > forks || steps.iter().any(refused) {
            self.forks.truncate(forks);
            return Err(format!("`{}`: a request runs, sleeps, waits, posts and calls; nothing else", body.trim()));
        }
        Ok(steps)
    }

    fn handler(&mut self, steps: Vec<Step>) -> HandlerId {
        self.work.handlers.push(steps);
        self.work.requests.push(None);
        HandlerId(self.work.handlers.len() as u32 - 1)
    }

    fn queue(&mut self, name: &str) -> Result<QueueId, String> {
        if name.is_empty() {
            return Err("a pool has a name: A(web)".into());
        }
        let next = QueueId(self.queues.len() as u32);
        let id = *self.queues.entry(name.to_owned()).or_insert(next);
        self.work.queues = self.queues.len() as u32;
        Ok(id)
    }
}
