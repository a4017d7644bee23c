//! Linux EEVDF: the fair class since 6.6. See [`INFO`].
//!
//! Up to 7.0 a group is an entity on each CPU, with a queue of its own below it: picking goes down
//! from the queue of the CPU, and queueing goes up. From 7.3 on all tasks compete on the queue of
//! their CPU, with the weight that their groups leave them.

mod books;
mod info;
mod levels;
mod rq;
mod tree;

pub use info::INFO;

use super::linux::{Balancer, Groups, Pull, Quota};
use super::weights;
use crate::policy::{Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::queue::TaskMap;
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};
use rq::Rq;
use tree::Place;

/// Whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V66,
    V612,
    V618,
    V73,
}

/// Rules that differ between kernel versions or can be switched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    pub version: Version,
    pub place_lag: bool,
    pub place_deadline_initial: bool,
    pub place_rel_deadline: bool,
    pub run_to_parity: bool,
    pub preempt_short: bool,
    pub delay_dequeue: bool,
    pub delay_zero: bool,
    pub next_buddy: bool,
    pub exit_requeue: bool,
    pub wakeup_preemption: bool,
    pub hrtick: bool,
    pub lazy: bool,
    pub forfeit: bool,
    pub reweight_places: bool,
}

impl Features {
    /// What falls asleep while it is not eligible stays counted.
    #[inline(always)]
    fn delays(&self) -> bool {
        self.delay_dequeue && self.version != Version::V66
    }
}

/// What the policy keeps of a task, or of a group's share of a CPU, in two lines of the cache: what
/// changes when it is queued or runs in the first, what it is chosen by in the second.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Entity {
    v: Ns,
    deadline: Ns,
    slice: Ns,
    /// 1024 times the weight that counts on its queue.
    weight: i64,
    /// Lag when it left the queue, in virtual time.
    vlag: Ns,
    /// Where it is in the tree of its queue.
    place: Place,
    /// The queue in whose sums it is counted, where it is in any.
    queue: u32,
    on_rq: bool,
    /// Asleep, but still counted until it is eligible.
    delayed: bool,
    custom_slice: bool,
    /// `deadline` is relative to the vruntime: it left without sleeping.
    rel_deadline: bool,
    /// Deadline when it was picked; the kernel keeps it in `vlag` meanwhile. 6.18 and later:
    /// protected until this vruntime.
    picked: Option<Ns>,
    protected: Ns,
    idle: bool,
    /// 2^32 over the weight.
    inverse: u64,
    /// Weight by its own attributes (1024 is nice 0).
    own_weight: i64,
}

/// What is known of one CPU.
#[derive(Clone, Copy, Debug)]
struct Local {
    /// The task that was just put back, and when ([`Ns::MIN`] for never): it competes as the running
    /// one if picked at once.
    prev: TaskId,
    put_back_at: Ns,
    /// The CPU to which the running task is to be handed.
    push: Option<u32>,
    /// When the timer of HRTICK fires.
    hrtick_at: Ns,
}

const IDLE: Local = Local { prev: TaskId(0), put_back_at: Ns::MIN, push: None, hrtick_at: 0 };

/// State of the policy.
pub struct Eevdf {
    f: Features,
    /// As the user gave it; 0 for the kernel's own.
    base_slice: Ns,
    base: Ns,
    tick: Ns,
    ncpu: usize,
    e: TaskMap<Entity>,
    rq: Vec<Rq>,
    cpus: Vec<Local>,
    bal: Balancer,
    groups: Groups,
    quota: Quota,
    /// Tasks that ask for a slice of their own.
    custom: usize,
    delayed: i64,
}

/// Bounds of a slice that a task asks for.
const SLICE_MIN: Ns = 100_000;
const SLICE_MAX: Ns = 100_000_000;
/// The shortest time that hrtick is set for.
const HRTICK_MIN: Ns = 10_000;

impl Entity {
    /// Number of its queue.
    #[inline(always)]
    fn q(&self) -> usize {
        self.queue as usize
    }

    /// Gives it another weight.
    fn weigh(&mut self, weight: i64) {
        self.weight = weight;
        self.inverse = weights::inverse(weight >> 10);
    }

    /// The bound of its lag, where the longest slice on its queue has a part in it.
    #[inline(always)]
    fn most_lag(&self, longest: Option<Ns>, tick: Ns) -> Ns {
        self.fair(match longest {
            Some(longest) => longest.max(self.slice) + tick,
            None => (2 * self.slice).max(tick),
        })
    }

    /// `delta` of CPU time in its virtual time, as `calc_delta_fair` rounds it.
    #[inline]
    fn fair(&self, delta: Ns) -> Ns {
        if self.weight == weights::NICE_0 << 10 {
            return delta;
        }
        weights::scale(delta, weights::NICE_0 as u64 * self.inverse)
    }
}

impl Eevdf {
    fn new(f: Features, base_slice: Ns, bal: Balancer) -> Self {
        Eevdf {
            f,
            base_slice,
            base: base_slice,
            tick: 0,
            ncpu: 1,
            e: TaskMap::new(),
            rq: Vec::new(),
            cpus: Vec::new(),
            bal,
            groups: Groups::default(),
            quota: Quota::default(),
            custom: 0,
            delayed: 0,
        }
    }

    fn flat(&self) -> bool {
        self.f.version == Version::V73
    }

    #[inline]
    fn cpu_of(&self, q: usize) -> Cpu {
        self.groups.cpu_of(q)
    }

    /// Moves what the balancer found.
    #[inline(never)]
    fn pull(&mut self, k: &mut Kernel, pull: &Pull) {
        if pull.tasks.is_empty() {
            self.cpus[pull.from].push = Some(pull.to as u32);
            k.resched(pull.from);
        }
        // detach_tasks takes all of them out first, and attach_tasks begins with the last.
        let mut taken = Vec::new();
        for &t in &pull.tasks {
            // Another CPU may have taken it at the same tick.
            let e = &self.e[t];
            if !e.on_rq || e.delayed || self.cpu_of(e.q()) != pull.from {
                continue;
            }
            self.detach(k, pull.from, pull.to, t);
            taken.push(t);
        }
        for t in taken.into_iter().rev() {
            self.attach(k, pull.to, t);
        }
    }

    /// Moves `t`, which is queued, to another CPU.
    #[inline(never)]
    fn transfer(&mut self, k: &mut Kernel, from: Cpu, to: Cpu, t: TaskId) {
        self.detach(k, from, to, t);
        self.attach(k, to, t);
    }

    /// An idle CPU takes a task from another one.
    #[inline(never)]
    fn pull_idle(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let bal = &mut self.bal;
        let (e, rq, f) = (&self.e, &self.rq, &self.f);
        let pull = bal.newidle(k, cpu, |t, failed| {
            let e = &e[t];
            let ineligible =
                f.version == Version::V73 && f.place_lag && failed == 0 && rq[cpu].nr > 0 && !rq[e.q()].eligible(e.v);
            e.on_rq && !e.delayed && !ineligible
        });
        let Some(pull) = pull else {
            self.bal.note_idle(k.now(), cpu);
            self.cpus[cpu].hrtick_at = 0;
            return None;
        };
        self.pull(k, &pull);
        self.pick_task(k, cpu, None)
    }

    /// `t`, which ran on `cpu`, goes where the balancer said; false where it may not.
    #[inline(never)]
    fn pushes(&mut self, k: &mut Kernel, cpu: Cpu, to: Cpu, t: TaskId) -> bool {
        let goes = k.allowed(t, to) && !self.e[t].delayed && self.e[t].on_rq;
        if goes {
            self.transfer(k, cpu, to, t);
        }
        goes
    }

    fn detach(&mut self, k: &mut Kernel, from: Cpu, to: Cpu, t: TaskId) {
        k.update_clock(from);
        self.bal.moves(t);
        self.take_out(k, from, t, false);
        k.migrate(t, to);
    }

    fn attach(&mut self, k: &mut Kernel, to: Cpu, t: TaskId) {
        k.update_clock(to);
        self.put_in(k, to, t, false);
        if let Some(curr) = k.curr(to).filter(|&c| k.is_mine(c)) {
            self.wakeup_preempt(k, to, curr, t, Enqueue::Migrated);
        }
    }

    /// HRTICK: the running task is to leave when its deadline comes; false when it is alone.
    fn start_hrtick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) -> bool {
        if self.rq[cpu].nr <= 1 {
            return false;
        }
        let e = &self.e[t];
        // Rounded up: the deadline has come when the timer fires.
        let (product, unit) = (i128::from(e.deadline - e.v) * i128::from(e.weight), i128::from(weights::NICE_0 << 10));
        let left = ((product + unit - 1).div_euclid(unit) as Ns).max(HRTICK_MIN);
        self.cpus[cpu].hrtick_at = k.now() + left;
        k.set_slice(cpu, left);
        true
    }

    /// HRTICK when a task comes on: up to 6.18 a switch stops the timer; in 7.3 it goes on for
    /// whoever runs then.
    fn hrtick_at_switch(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.start_hrtick(k, cpu, t) {
            return;
        }
        if !self.flat() {
            self.cpus[cpu].hrtick_at = 0;
        } else if self.cpus[cpu].hrtick_at > k.now() {
            k.set_slice(cpu, self.cpus[cpu].hrtick_at - k.now());
        }
    }

    /// 6.18 and later: does `t`, which wakes, preempt `curr`?
    fn preempts(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let flat = self.flat();
        let short = self.f.preempt_short && self.e[t].slice < self.e[curr].slice;
        let q = self.e[curr].q();
        if self.e[t].q() != q || self.e[t].delayed {
            return;
        }
        if !short && why == Enqueue::Fork {
            if flat {
                self.not_preempted(curr);
            }
            return;
        }
        if self.f.next_buddy && !short {
            let keep = self.rq[q].next.is_some_and(|n| self.e[n].deadline < self.e[t].deadline);
            if !keep && !self.e[t].idle {
                self.rq[q].next = Some(t);
            }
        }
        let best = self.pick(q, Some(curr), !short);
        if best == Some(t) || flat && short && self.rq[q].eligible(self.e[t].v) {
            if flat || short {
                self.cancel_protection(curr);
            }
            if flat && short {
                self.rq[q].next = Some(t);
            }
            self.resched_woken(k, cpu);
        } else if flat || short {
            self.not_preempted(curr);
        }
    }

    fn not_preempted(&mut self, curr: TaskId) {
        if self.f.run_to_parity {
            self.shorten_protection(curr);
        }
    }

    /// The entities of two tasks that compete on the same queue.
    #[inline]
    fn matching(&self, a: TaskId, b: TaskId) -> (TaskId, TaskId) {
        if self.groups.is_empty() {
            return (a, b);
        }
        let (up_a, up_b) = (self.chain(a), self.chain(b));
        for x in up_a {
            if let Some(y) = up_b.into_iter().find(|&y| self.e[y].q() == self.e[x].q()) {
                return (x, y);
            }
        }
        (a, b)
    }
}

impl Policy for Eevdf {
    fn init(&mut self, k: &mut Kernel) {
        self.tick = k.tick_ns();
        self.ncpu = k.nr_cpus();
        if self.base_slice == 0 {
            let unscaled = if self.f.version == Version::V66 { 750_000 } else { 700_000 };
            self.base = unscaled * weights::cpu_factor(k.nr_cpus());
        }
        self.groups = Groups::new(k);
        self.bal.init(k);
        self.groups.register(&mut self.bal);
        self.rq = vec![Rq::default(); self.groups.nr_queues()];
        for q in 0..self.rq.len() {
            self.rq[q].owner = self.groups.owner(q).filter(|_| !self.flat());
            if let Some(owner) = self.groups.owner(q) {
                let idle = self.groups.is_idle(owner);
                let e = self.e.ensure(owner);
                (e.own_weight, e.slice, e.idle) = (1024, self.base, idle);
                e.weigh(1024 << 10);
            }
        }
        self.cpus = vec![IDLE; self.ncpu];
        self.quota = Quota::new(k, &self.groups);
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<crate::policy::Birth>) {
        self.set_attrs(t, &k.task(t).attrs.clone());
        let e = &self.e[t];
        self.bal.init_task(k, t, e.own_weight as u64, e.idle, birth.map(|b| b.parent));
        self.groups.join(k, t);
    }

    fn exec(&mut self, k: &mut Kernel, t: TaskId) {
        let cpu = k.task(t).cpu;
        if let Some(to) = self.bal.select_exec(k, t, cpu) {
            self.cpus[cpu].push = Some(to as u32);
            k.resched(cpu);
        }
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        self.bal.task_ends(k.now(), t);
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        // A task whose sleep is not yet in the books wakes where it is.
        if self.e[t].delayed {
            let cpu = self.cpu_of(self.e[t].q());
            if k.allowed(t, cpu) {
                return cpu;
            }
            self.finish_delayed(k, t);
        }
        self.bal.select(k, t, why)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        if matches!(why, Enqueue::Preempted | Enqueue::Yielded) {
            self.put_back(t);
            let c = &mut self.cpus[cpu];
            (c.prev, c.put_back_at) = (t, k.now());
            return;
        }
        if self.e[t].delayed {
            return self.wake_delayed(k, t);
        }
        if self.e[t].on_rq {
            // It ran elsewhere and may no longer do so.
            self.take_out(k, self.cpu_of(self.e[t].q()), t, false);
        }
        self.put_in(k, cpu, t, matches!(why, Enqueue::Fork | Enqueue::Initial));
        if self.f.hrtick && self.cpus[cpu].hrtick_at <= k.now() {
            if let Some(curr) = k.curr(cpu).filter(|&c| k.is_mine(c)) {
                self.start_hrtick(k, cpu, curr);
            }
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        if self.quota.parked(t) {
            return;
        }
        let woken = k.task(t).attrs.policy;
        let (ce, pe) = self.matching(curr, t);
        let (idle, woken_idle) = (self.e[ce].idle, self.e[pe].idle);
        let old = self.f.version < Version::V618;
        if old && self.f.next_buddy && why != Enqueue::Fork && !woken_idle {
            self.rq[self.e[t].q()].next = Some(t);
        }
        if k.need_resched(cpu) && (old || !self.flat() || !self.f.preempt_short) {
            return k.resched_keeping_clock(cpu);
        }
        if !self.f.wakeup_preemption {
            return;
        }
        if idle && !woken_idle {
            // The idle task has no right to the rest of its slice.
            if self.f.version != Version::V66 {
                self.cancel_protection(ce);
            }
            return self.resched_woken(k, cpu);
        }
        if idle != woken_idle || woken != SchedPolicy::Other {
            if self.flat() {
                self.not_preempted(curr);
            }
            return;
        }
        let q = self.e[ce].q();
        if self.charge(k, q) {
            self.resched_woken(k, cpu);
        }
        if !old {
            return self.preempts(k, cpu, ce, pe, why);
        }
        let (c, p, rq) = (&self.e[ce], &self.e[pe], &self.rq[q]);
        if self.f.version == Version::V612
            && self.f.preempt_short
            && p.slice < c.slice
            && rq.eligible(p.v)
            && (p.deadline < c.deadline || !rq.eligible(c.v))
        {
            self.cancel_protection(ce);
        }
        if self.earliest(q, Some(ce), true) == Some(pe) {
            self.resched_woken(k, cpu);
        }
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Dequeue) {
        self.take_out(k, cpu, t, false);
        if why == Dequeue::SwitchedFrom {
            self.e[t].rel_deadline = false;
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let c = &mut self.cpus[cpu];
        let mut prev = (c.put_back_at == k.now()).then_some(c.prev);
        c.put_back_at = Ns::MIN;
        if let Some(to) = c.push.take() {
            prev = prev.filter(|&t| !self.pushes(k, cpu, to as Cpu, t));
        }
        self.enforce_quota(k, cpu);
        let prev = prev.filter(|&p| !self.quota.parked(p));
        self.pick_task(k, cpu, prev).or_else(|| self.pull_idle(k, cpu))
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {
        if !self.e[t].on_rq {
            self.put_in(k, cpu, t, false);
            self.set_next(t, &[]);
        }
        let clock = k.clock(cpu);
        let mut above = self.rq[self.e[t].q()].runs(t, clock);
        while let Some(e) = above {
            above = self.rq[self.e[e].q()].runs(e, clock);
            self.bal.set_running(k.now(), e, true);
        }
        self.bal.task_starts(k.now(), cpu, t);
        if self.f.hrtick && switched {
            self.hrtick_at_switch(k, cpu, t);
        } else if self.f.hrtick && self.cpus[cpu].hrtick_at > k.now() {
            k.set_slice(cpu, self.cpus[cpu].hrtick_at - k.now());
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.charge_chain(k, t);
        let now = k.now();
        if why == Stop::Slept && self.groups.is_empty() && self.sleeps_alone(now, cpu, t) {
            return;
        }
        let mut at = self.above(t);
        while let Some(e) = at {
            self.bal.set_running(now, e, false);
            at = self.above(e);
        }
        self.bal.task_stops(now, cpu, t);
        match why {
            Stop::Preempted | Stop::Yielded => {}
            Stop::Slept => self.falls_asleep(k, cpu, t),
            Stop::Exited => self.take_out(k, cpu, t, true),
            Stop::SwitchedFrom => {
                self.take_out(k, cpu, t, false);
                self.e[t].rel_deadline = false;
            }
        }
        self.step_down(t);
    }

    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if !self.f.exit_requeue || self.rq[self.e[t].q()].curr != Some(t) {
            return;
        }
        // sched_move_task: dequeued and queued again with its lag, and the CPU is asked to choose anew.
        k.update_clock(cpu);
        let q = self.e[t].q();
        self.charge(k, q);
        self.leave(t, false);
        self.place(q, t, false);
        self.e[t].on_rq = true;
        self.rq[q].add(&self.e[t]);
        self.protect(t);
        self.rq[q].curr = Some(t);
        k.resched(cpu);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let mut at = Some(t);
        while let Some(e) = at {
            self.charge_and_resched(k, self.e[e].q());
            at = self.above(e);
        }
        self.refresh_shares(k, t);
        let (e, rq, f) = (&self.e, &self.rq, &self.f);
        let pulls = self.bal.tick(k, cpu, |t, failed| {
            let e = &e[t];
            let ineligible = f.version == Version::V73 && f.place_lag && failed == 0 && !rq[e.q()].eligible(e.v);
            e.on_rq && !e.delayed && !ineligible && rq[e.q()].next != Some(t)
        });
        for pull in pulls {
            self.pull(k, &pull);
        }
    }

    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.charge_chain(k, t);
        k.resched(cpu);
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        self.refill(k, token);
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if k.nr_runnable(cpu) <= 1 && self.rq[self.e[t].q()].nr <= 1 {
            return;
        }
        let q = self.e[t].q();
        self.rq[q].clear_buddy(t);
        self.charge(k, q);
        let e = self.e[t];
        if !self.f.forfeit {
            self.e[t].deadline += e.fair(e.slice);
        } else if self.rq[q].eligible(e.v) {
            let step = e.deadline - e.v;
            self.e[t].v = e.deadline;
            self.e[t].deadline += e.fair(e.slice);
            self.rq[q].sum_wv += i128::from(e.weight) * i128::from(step);
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        let old = self.e[t];
        if old.on_rq && self.rq[old.q()].curr == Some(t) {
            self.charge(k, old.q());
        }
        self.set_attrs(t, &attrs);
        let weight = self.e[t].weight;
        self.e[t].weigh(old.weight);
        self.bal.reweigh(k.now(), t, self.e[t].own_weight as u64);
        self.bal.set_idle_policy(t, self.e[t].idle);
        let weight = if self.flat() && self.e[t].on_rq { self.flat_weight(t) } else { weight };
        self.reweigh(t, weight);
        self.groups.join(k, t);
    }

    fn disable(&mut self, k: &mut Kernel, t: TaskId) {
        if self.e[t].delayed {
            self.finish_delayed(k, t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let e = self.e.get(t)?;
        Some(match key {
            "vruntime" => e.v as f64,
            "deadline" => e.deadline as f64,
            "vlag" => e.vlag as f64,
            "slice" => e.slice as f64,
            _ => return None,
        })
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("delayed_dequeues", self.delayed)]
    }
}
