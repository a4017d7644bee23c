//! SCHED_DEADLINE: earliest deadline first with a constant-bandwidth server per task.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::queue::{Levels, Ordered, TaskMap};
use crate::task::{Attrs, Cpu, Ns, Reservation, SchedPolicy, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "deadline",
    title: "SCHED_DEADLINE: earliest deadline first with budgets (CBS)",
    idea: "A task with a reservation may run for `runtime` in each `period` and must be done by its \
           relative deadline. The earliest absolute deadline runs. A task that used up its budget \
           is throttled until its next period, so it cannot hurt the others. This class runs above \
           real time under every policy of Linux where a task asks for it. Named by itself it \
           schedules everybody, and tasks without a reservation share what is left.",
    formula: "Wakeup at t: if d < t or q * D > (d - t) * Q: d = t + D, q = Q; else both are kept (D \
              < P and d >= t: q = Q / D * (d - t)). Running: q falls with CPU time; at 0 throttled \
              until d - D + P, then d += P, q += Q until q > 0, and d = t + D, q = Q when d is \
              past. CPU time is accounted at ticks and switches, as Linux does without HRTICK_DL, \
              so a budget may be overdrawn by less than a tick. D < P: a task that wakes behind its \
              deadline waits for the next period. Products are taken in units of 1024 ns, Q / D in \
              1 / 2^20. A yield gives up the rest of the budget. Admission: sum of Q / P <= 0.95 * \
              CPUs.",
    tie_break: "Equal deadlines: in order of arrival; a preempted task keeps its place. Tasks \
        without a reservation: real-time priorities first, then round robin with `background`.",
    not_modelled: "GRUB reclaiming; the inactive bandwidth of sleepers until their zero-lag time; the \
        fair server's place among deadlines (it stands below them); the refusal of tasks that may \
        not use every CPU of their cpuset; which of two tasks moves where both find a CPU. A task \
        whose reservation is not known goes first and has no budget. Named by itself: a fair \
        class below (use `background`, or name a policy of Linux and give tasks a reservation).",
    sources: "Linux 6.12.117 kernel/sched/deadline.c; Abeni and Buttazzo, Integrating multimedia \
        applications in hard real-time systems, 1998.",
    params: &[
        Param {
            name: "admission",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "Refuse reservations that sum to more than 95 % of the CPUs.",
        },
        Param {
            name: "hrtick",
            unit: Unit::Switch,
            default: "off",
            range: None,
            doc: "A timer ends a budget to the nanosecond (HRTICK_DL); off: the tick that finds it used up.",
        },
        Param {
            name: "background",
            unit: Unit::Time,
            default: "4ms",
            range: Some(("100us", "10s")),
            doc: "Quantum of tasks without a reservation.",
        },
    ],
    rt_above: false,
    deadline_above: false,
    reads: &["policy", "rt_prio", "deadline"],
    build: |p| {
        Ok(Box::new(Deadline {
            admission: p.on("admission"),
            hrtick: p.on("hrtick"),
            background: p.int("background"),
            of: TaskMap::new(),
            ready: Ordered::new(),
            rest: Levels::new(LEVELS),
            began: Vec::new(),
            arrivals: 0,
            bandwidth: 0,
            throttles: 0,
        }))
    },
};

/// Queues of tasks without a known reservation: deadline tasks whose reservation nothing states,
/// real-time priorities 99 to 1, all others.
const LEVELS: usize = 101;

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    reserved: Option<Reservation>,
    /// Budget left.
    left: Ns,
    /// Absolute deadline.
    deadline: Ns,
    throttled: bool,
    /// Its place among equal deadlines.
    arrival: u64,
    /// It waits for its budget and would run.
    waiting: bool,
    /// Distinguishes a timer that was overtaken from the right one.
    round: u32,
    level: usize,
    to_tail: bool,
}

/// State of the policy.
pub struct Deadline {
    admission: bool,
    hrtick: bool,
    background: Ns,
    of: TaskMap<Server>,
    ready: Ordered<(Ns, u64)>,
    rest: Levels,
    began: Vec<Ns>,
    arrivals: u64,
    /// Sum of runtime / period in parts per million.
    bandwidth: i64,
    throttles: i64,
}

impl Deadline {
    fn set_attrs(&mut self, k: &mut Kernel, t: TaskId, attrs: &Attrs) {
        let share = |r: Reservation| r.runtime * 1_000_000 / r.period.max(1);
        let s = self.of.ensure(t);
        self.bandwidth -= s.reserved.map_or(0, share);
        let reserved = attrs.deadline.filter(|_| attrs.policy == SchedPolicy::Deadline);
        *s = Server { reserved, round: s.round + 1, deadline: -1, ..Server::default() };
        s.level = match attrs.policy {
            SchedPolicy::Deadline => 0,
            policy if policy.is_rt() => LEVELS - 1 - attrs.rt_prio.clamp(1, 99) as usize,
            _ => LEVELS - 1,
        };
        self.bandwidth += s.reserved.map_or(0, share);
        if self.admission && self.bandwidth > 950_000 * k.nr_cpus() as i64 {
            k.fail(format!(
                "reservations sum to {} % of a CPU, and {} CPUs admit 95 % each (admission=off lets them in)",
                self.bandwidth / 10_000,
                k.nr_cpus()
            ));
        }
    }

    /// The rule for a wakeup: a new deadline where the old one would give more than the reserved bandwidth.
    fn refresh(&mut self, k: &mut Kernel, t: TaskId) {
        let now = k.now();
        let s = &mut self.of[t];
        let Some(r) = s.reserved else { return };
        let constrained = r.deadline < r.period && s.deadline >= 0;
        if constrained && s.deadline < now && now < s.deadline - r.deadline + r.period {
            s.left = s.left.min(0);
            return self.throttle(k, t);
        }
        let product = |a: Ns, b: Ns| i128::from(a >> 10) * i128::from(b >> 10);
        let past = s.deadline < now;
        if !past && product(r.deadline, s.left) <= product(s.deadline - now, r.runtime) {
            return;
        }
        if constrained && !past {
            let density = (i128::from(r.runtime) << 20) / i128::from(r.deadline);
            s.left = ((density * i128::from(s.deadline - now)) >> 20) as Ns;
        } else {
            s.deadline = now + r.deadline;
            s.left = r.runtime;
        }
    }

    /// Queues `t` behind all with the same deadline.
    fn arrive(&mut self, t: TaskId) {
        self.arrivals += 1;
        self.of[t].arrival = self.arrivals;
        self.ready.insert((self.of[t].deadline, self.arrivals), t);
    }

    /// Takes what the running task has used since the last time from its budget; true where that is used up.
    fn charge(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) -> bool {
        let now = k.clock(cpu);
        let used = now - std::mem::replace(&mut self.began[cpu], now);
        let s = &mut self.of[t];
        s.left -= used;
        if s.left > 0 || s.throttled {
            return false;
        }
        self.throttle(k, t);
        true
    }

    fn throttle(&mut self, k: &mut Kernel, t: TaskId) {
        let s = &mut self.of[t];
        let Some(r) = s.reserved else { return };
        s.throttled = true;
        s.round += 1;
        self.throttles += 1;
        let at = s.deadline - r.deadline + r.period;
        if (at - k.now()) / 1000 < 0 {
            // The next period has begun already.
            self.arrivals += 1;
            s.arrival = self.arrivals;
            return self.replenish(k.now(), t);
        }
        let token = u64::from(s.round) << 32 | u64::from(t.0);
        k.timer_at(at, token);
    }

    fn replenish(&mut self, now: Ns, t: TaskId) {
        let s = &mut self.of[t];
        let Some(r) = s.reserved else { return };
        s.throttled = false;
        while s.left <= 0 {
            s.deadline += r.period;
            s.left += r.runtime;
        }
        if s.deadline < now {
            s.deadline = now + r.deadline;
            s.left = r.runtime;
        }
    }

    /// The CPU that `t` may use whose task has the latest deadline, of several `home`. A task without a
    /// reservation is later than all deadlines, one with an unknown one earlier.
    fn latest(&self, k: &Kernel, t: TaskId, home: Cpu) -> Cpu {
        let later = |c: Cpu| match k.curr(c).map(|r| self.of[r]) {
            Some(s) if s.reserved.is_some() => s.deadline,
            Some(s) if s.level == 0 => Ns::MIN,
            _ => Ns::MAX,
        };
        (0..k.nr_cpus()).filter(|&c| k.allowed(t, c)).max_by_key(|&c| (later(c), c == home)).unwrap_or(home)
    }

    /// Ready before `curr`?
    fn beats(&self, t: TaskId, curr: TaskId) -> bool {
        let (a, b) = (&self.of[t], &self.of[curr]);
        match (a.reserved, b.reserved) {
            (Some(_), Some(_)) => a.deadline < b.deadline,
            (Some(_), None) => b.level > 0,
            (None, Some(_)) => a.level == 0,
            (None, None) => a.level < b.level,
        }
    }
}

impl Policy for Deadline {
    fn wants_ticks(&self) -> bool {
        !self.hrtick
    }

    fn init(&mut self, k: &mut Kernel) {
        self.began = vec![0; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let attrs = k.task(t).attrs.clone();
        self.set_attrs(k, t, &attrs);
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        // Beside what is above it does not matter whether the others idle.
        let cpu = if self.of[t].level == 0 { k.task(t).cpu } else { k.idle_or_last(t) };
        if k.is_idle(cpu) && k.allowed(t, cpu) {
            return cpu;
        }
        self.latest(k, t, cpu)
    }

    fn enqueue(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Enqueue) {
        if self.of[t].reserved.is_none() {
            let s = &mut self.of[t];
            if why == Enqueue::Preempted && !std::mem::take(&mut s.to_tail) {
                self.rest.push_front(s.level, t);
            } else {
                self.rest.push_back(s.level, t);
            }
            return;
        }
        if !matches!(why, Enqueue::Preempted | Enqueue::Yielded | Enqueue::Migrated) && !self.of[t].throttled {
            self.refresh(k, t);
        }
        let s = &mut self.of[t];
        if s.throttled {
            s.waiting = true;
            k.set_throttled(t, true);
        } else if why == Enqueue::Preempted {
            self.ready.insert((s.deadline, s.arrival), t);
        } else {
            self.arrive(t);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if !self.of[t].throttled && self.beats(t, curr) {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.of[t].waiting = false;
        k.set_throttled(t, false);
        if self.ready.remove(t).is_none() {
            self.rest.remove(t);
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let fits = |t| k.allowed(t, cpu);
        let first = self.rest.best() == Some(0);
        let unknown = if first { self.rest.pop_fitting(|t| self.of[t].level == 0 && fits(t)) } else { None };
        unknown.or_else(|| self.ready.pop_fitting(fits).map(|e| e.1)).or_else(|| self.rest.pop_fitting(fits))
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.began[cpu] = k.clock(cpu);
        let s = &self.of[t];
        match s.reserved {
            Some(_) if self.hrtick => k.set_slice(cpu, s.left),
            Some(_) => {}
            None if s.level == 0 => {}
            None => k.set_slice(cpu, self.background),
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        if self.of[t].reserved.is_none() || why == Stop::Exited {
            return;
        }
        let used_up = self.charge(k, cpu, t);
        if why == Stop::Yielded && !used_up && !self.of[t].throttled {
            self.of[t].left = 0;
            self.throttle(k, t);
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.of[t].reserved.is_some() && self.charge(k, cpu, t) {
            k.resched(cpu);
        }
    }

    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let s = &mut self.of[t];
        if s.reserved.is_none() {
            s.to_tail = true;
            if self.rest.is_empty() && self.ready.is_empty() {
                s.to_tail = false;
                return k.set_slice(cpu, self.background);
            }
        }
        k.resched(cpu);
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        let t = TaskId(token as u32);
        if !self.of[t].throttled || u64::from(self.of[t].round) != token >> 32 {
            return;
        }
        self.replenish(k.now(), t);
        if !std::mem::take(&mut self.of[t].waiting) {
            return;
        }
        k.set_throttled(t, false);
        self.arrive(t);
        let cpu = self.latest(k, t, k.task(t).cpu);
        if k.curr(cpu).is_none_or(|c| self.beats(t, c)) {
            k.resched(cpu);
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        let queued = self.ready.remove(t).is_some() || self.rest.remove(t) || self.of[t].waiting;
        k.set_throttled(t, false);
        self.set_attrs(k, t, &attrs);
        if queued {
            let cpu = k.task(t).cpu;
            self.enqueue(k, cpu, t, Enqueue::SwitchedTo);
        }
    }

    fn enable(&mut self, k: &mut Kernel, t: TaskId) {
        let attrs = k.task(t).attrs.clone();
        self.set_attrs(k, t, &attrs);
        self.refresh(k, t);
    }

    fn disable(&mut self, k: &mut Kernel, t: TaskId) {
        let attrs = k.task(t).attrs.clone();
        self.set_attrs(k, t, &attrs);
    }

    fn exit_task(&mut self, _k: &mut Kernel, t: TaskId) {
        let s = &mut self.of[t];
        self.bandwidth -= s.reserved.take().map_or(0, |r| r.runtime * 1_000_000 / r.period.max(1));
        s.round += 1;
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let s = self.of.get(t)?;
        match key {
            "deadline" => Some(s.deadline as f64),
            "left" => Some(s.left as f64),
            _ => None,
        }
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("throttles", self.throttles)]
    }
}
