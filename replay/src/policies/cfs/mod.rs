//! Linux CFS in four forms: 2.6.27, 2.6.29, 2.6.32 and 6.1.
//!
//! In 6.1 a group is an entity on each CPU, with a queue of its own below it: choosing goes down
//! from the queue of the CPU, and queueing goes up.

mod balance;
mod fixed;
mod info;
mod levels;
mod line;
mod rules;

pub use info::INFO;

use super::linux;
use crate::params::Params;
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::TaskMap;
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};
use fixed::Weight;
use line::{Line, Place};

/// Which kernel's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// 2.6.27: as 2.6.29, before LAST_BUDDY.
    V27,
    /// 2.6.29.
    V29,
    /// 2.6.32.
    V32,
    /// 6.1; 3.x to 6.5 differ little.
    V61,
}

/// Tunables and features, times scaled by the number of CPUs.
#[derive(Clone, Debug)]
struct Tunables {
    form: Form,
    latency: Ns,
    min_gran: Ns,
    idle_min_gran: Ns,
    wakeup_gran: Ns,
    migration_cost: Ns,
    /// Number of tasks up to which the period is `latency`.
    nr_latency: i64,
    scaling: i64,
    fair_sleepers: bool,
    gentle: bool,
    normalized: bool,
    start_debit: bool,
    wakeup_preemption: bool,
    next_buddy: bool,
    last_buddy: bool,
    adaptive_gran: bool,
    base_slice: bool,
    child_runs_first: bool,
    compat_yield: bool,
    exit_requeue: bool,
    /// The kernel's multiplications and shifts; plain division otherwise.
    fixed_point: bool,
}

impl Tunables {
    fn read(p: &Params) -> Self {
        Tunables {
            form: [Form::V27, Form::V29, Form::V32, Form::V61][p.int("form") as usize],
            latency: p.int("latency"),
            min_gran: p.int("min_granularity"),
            idle_min_gran: p.int("idle_min_granularity"),
            wakeup_gran: p.int("wakeup_granularity"),
            migration_cost: p.int("migration_cost"),
            nr_latency: 0,
            scaling: p.int("scaling"),
            fair_sleepers: p.on("fair_sleepers"),
            gentle: p.on("gentle_fair_sleepers"),
            normalized: p.on("normalized_sleepers"),
            start_debit: p.on("start_debit"),
            wakeup_preemption: p.on("wakeup_preemption"),
            next_buddy: p.on("next_buddy"),
            last_buddy: p.on("last_buddy"),
            adaptive_gran: p.on("adaptive_granularity"),
            base_slice: p.on("base_slice"),
            child_runs_first: p.on("child_runs_first"),
            compat_yield: p.on("compat_yield"),
            exit_requeue: p.on("exit_requeue"),
            fixed_point: p.int("arithmetic") == 1,
        }
    }

    /// Scales the times to the number of CPUs, as the kernel does at boot (update_sysctl; the least
    /// slice of idle tasks stays).
    fn scale(&mut self, cpus: usize) {
        let counted = if self.form <= Form::V29 { cpus } else { cpus.min(8) };
        let factor = match self.scaling {
            1 => 1 + i64::from(counted.max(1).ilog2()),
            2 => counted as i64,
            _ => 1,
        };
        let cap = |t: Ns| if self.form <= Form::V29 { t.min(200_000_000) } else { t };
        (self.latency, self.min_gran) = (cap(self.latency * factor), cap(self.min_gran * factor));
        self.wakeup_gran *= factor;
        self.nr_latency = (self.latency + self.min_gran - 1) / self.min_gran.max(1);
    }
}

/// A task, or a group's share of a CPU, in the books of CFS.
#[derive(Clone, Copy, Debug, Default)]
struct Entity {
    weight: Weight,
    vruntime: i64,
    /// CPU time so far.
    sum: Ns,
    /// CPU time when it was last chosen.
    prev_sum: Ns,
    on_rq: bool,
    idle_policy: bool,
    /// Queue whose `min_vruntime` the virtual time refers to.
    q: usize,
    /// Where it waits on that queue.
    place: Place,
    /// When it was last put back: at that instant it may go on as if it had never left.
    put_at: Ns,
    /// When it last stopped running (cache hot soon after).
    last_ran: Ns,
    /// 2.6.32: mean CPU time between wakeups it makes, and CPU time at the last one.
    avg_wakeup: Ns,
    last_wakeup: Ns,
    start_sum: Ns,
}

/// Run queue of a CPU, or of a group on a CPU.
#[derive(Clone, Debug, Default)]
struct Rq {
    /// What waits, by virtual time; what runs is not among it.
    line: Line,
    curr: Option<TaskId>,
    min_vruntime: i64,
    /// The group's share of the CPU that it belongs to.
    owner: Option<TaskId>,
    /// Weight and number of all that is runnable on it, what runs included.
    load: u64,
    nr: i64,
    exec_start: Ns,
    next: Option<TaskId>,
    last: Option<TaskId>,
    skip: Option<TaskId>,
    next_balance: Ns,
}

/// State of the policy.
pub struct Cfs {
    tun: Tunables,
    rqs: Vec<Rq>,
    tasks: TaskMap<Entity>,
    /// Runnable tasks of each CPU, in whatever group.
    runnable: Vec<i64>,
    groups: linux::Groups,
    quota: linux::Quota,
    /// What runs on this CPU has used up its group's run time: the CPU is to choose anew.
    out_of_quota: Option<Cpu>,
    /// 6.1: loads and balancing as in the kernel; the older forms balance as `balance.rs` says.
    bal: Option<linux::Balancer>,
    /// CPUs that are to hand their running task to another.
    push: Vec<Option<Cpu>>,
}

impl Cfs {
    fn new(p: &Params) -> Self {
        let tun = Tunables::read(p);
        let bal = (tun.form == Form::V61)
            .then(|| linux::Balancer::new(linux::Form::Cfs, tun.migration_cost, p.on("balance")))
            .map(|b| b.with_cache(p.on("shared_cache")).with_chance(p.on("newidle_random")));
        Cfs {
            tun,
            rqs: Vec::new(),
            tasks: TaskMap::new(),
            runnable: Vec::new(),
            groups: linux::Groups::default(),
            quota: linux::Quota::default(),
            out_of_quota: None,
            bal,
            push: Vec::new(),
        }
    }

    fn set_weight(&mut self, k: &Kernel, t: TaskId) {
        let attrs = &k.task(t).attrs;
        self.tasks[t].weight = Weight::of(attrs);
        self.tasks[t].idle_policy = attrs.policy == SchedPolicy::Idle;
    }
}

impl Policy for Cfs {
    fn init(&mut self, k: &mut Kernel) {
        self.tun.scale(k.nr_cpus());
        self.groups = linux::Groups::new(k);
        if self.tun.form < Form::V61 && !self.groups.is_empty() {
            return k.fail("groups are modelled for form=6.1 only");
        }
        self.rqs = vec![Rq::default(); self.groups.nr_queues()];
        self.runnable = vec![0; k.nr_cpus()];
        self.push = vec![None; k.nr_cpus()];
        self.quota = linux::Quota::new(k, &self.groups);
        if let Some(bal) = &mut self.bal {
            bal.init(k);
            self.groups.register(bal);
        }
        for q in 0..self.rqs.len() {
            let Some(owner) = self.groups.owner(q) else { continue };
            self.rqs[q].owner = Some(owner);
            *self.tasks.ensure(owner) = Entity {
                q: self.groups.home(owner, self.groups.cpu_of(q)),
                idle_policy: self.groups.is_idle(owner),
                put_at: Ns::MIN,
                ..Entity::default()
            };
        }
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        self.groups.join(k, t);
        *self.tasks.ensure(t) = Entity {
            q: self.groups.home(t, k.task(t).cpu),
            avg_wakeup: self.tun.wakeup_gran,
            last_ran: Ns::MIN / 2,
            put_at: Ns::MIN,
            ..Entity::default()
        };
        self.set_weight(k, t);
        let e = &self.tasks[t];
        if let Some(bal) = &mut self.bal {
            bal.init_task(k, t, e.weight.w, e.idle_policy, birth.map(|b| b.parent));
        }
    }

    fn exec(&mut self, k: &mut Kernel, t: TaskId) {
        let cpu = k.task(t).cpu;
        if let Some(to) = self.bal.as_mut().and_then(|bal| bal.select_exec(k, t, cpu)) {
            self.push[cpu] = Some(to);
            k.resched(cpu);
        }
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        if let Some(bal) = &mut self.bal {
            bal.task_ends(k.now(), t);
        }
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        if let Select::Wakeup(Wake::Task { waker, .. }) = why {
            self.note_waker(waker);
        }
        if k.nr_cpus() == 1 {
            return 0;
        }
        match &mut self.bal {
            Some(bal) => bal.select(k, t, why),
            None => self.place_on(k, t, why),
        }
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted | Enqueue::Yielded => self.line_up(t),
            _ => {
                if self.tasks[t].on_rq {
                    // It ran elsewhere and may no longer do so.
                    self.take_out(k, self.groups.cpu_of(self.tasks[t].q), t, false);
                }
                self.put_in(k, cpu, t, why);
            }
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        if !self.quota.parked(t) {
            self.check_preempt(k, cpu, curr, t, why);
        }
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        if !self.quota.unpark(k, t) {
            self.take_out(k, cpu, t, false);
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.push_running(k, cpu);
        self.enforce_quota(k, cpu);
        let t = match self.pick(cpu) {
            Some(t) => t,
            None => self.pull_idle(k, cpu)?,
        };
        let mut at = Some(t);
        while let Some(e) = at {
            self.out_of_line(e);
            at = self.above(e);
        }
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {
        if !self.tasks[t].on_rq {
            // It comes from another class without passing through a queue.
            self.put_in(k, cpu, t, Enqueue::SwitchedTo);
            self.out_of_line(t);
        }
        if let Some(bal) = &mut self.bal {
            bal.task_starts(k.now(), cpu, t);
        }
        let clock = k.clock(cpu);
        let mut at = Some(t);
        while let Some(e) = at {
            let entity = &mut self.tasks[e];
            let rq = &mut self.rqs[entity.q];
            if entity.place.is_queued() {
                rq.line.remove(std::mem::take(&mut entity.place));
            }
            (rq.curr, rq.exec_start) = (Some(e), clock);
            // Since group scheduling, choosing what ran until now again changes nothing.
            let anew = if e == t { switched } else { entity.put_at != k.now() };
            if anew || self.tun.form < Form::V61 {
                entity.prev_sum = entity.sum;
                if rq.marks(e) {
                    self.clear_these(e);
                }
            }
            if let (Some(bal), true) = (&mut self.bal, e != t) {
                bal.set_running(k.now(), e, true);
            }
            at = self.above(e);
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.charge_chain(k, cpu, t);
        self.tasks[t].last_ran = k.now();
        if why == Stop::Slept && self.sleeps_alone(k, cpu, t) {
            return;
        }
        if let Some(bal) = &mut self.bal {
            bal.task_stops(k.now(), cpu, t);
        }
        let group = self.above(t);
        match why {
            Stop::Preempted | Stop::Yielded => self.rqs[self.tasks[t].q].curr = None,
            Stop::Slept | Stop::Exited | Stop::SwitchedFrom => {
                if why == Stop::Slept && self.tun.form == Form::V32 {
                    self.note_sleep(t);
                }
                self.take_out(k, cpu, t, why != Stop::SwitchedFrom);
            }
        }
        self.put_groups_back(k, group);
    }

    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if !self.tun.exit_requeue {
            return;
        }
        // sched_move_task: dequeued relative to the old minimum, queued again relative to the new one.
        k.update_clock(cpu);
        let q = self.tasks[t].q;
        self.update_curr(k, q);
        let before = self.rqs[q].min_vruntime;
        if let Some((left, _)) = self.rqs[q].line.first() {
            self.rqs[q].min_vruntime = before.max(left);
        }
        let jump = self.rqs[q].min_vruntime - before;
        let e = &mut self.tasks[t];
        e.vruntime += jump;
        e.prev_sum = e.sum;
        self.clear_buddies(t);
        k.resched(cpu);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let mut at = Some(t);
        while let Some(e) = at {
            let q = self.tasks[e].q;
            self.update_curr(k, q);
            self.refresh_share(k, e);
            if self.rqs[q].nr > 1 {
                self.check_tick(k, cpu, e);
            }
            at = self.above(e);
        }
        self.resched_out_of_quota(k);
        if k.nr_cpus() > 1 {
            self.balance(k, cpu);
        }
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        self.refill(k, token as usize);
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.do_yield(k, cpu, t);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {
        let cpu = k.task(t).cpu;
        let Entity { weight: was, on_rq, q, .. } = self.tasks[t];
        if on_rq {
            self.update_curr(k, q);
        }
        self.set_weight(k, t);
        let Entity { weight: new, idle_policy, .. } = self.tasks[t];
        if on_rq {
            let rq = &mut self.rqs[q];
            rq.load = rq.load - was.w + new.w;
        }
        if let Some(bal) = &mut self.bal {
            bal.reweigh(k.now(), t, new.w);
            bal.set_idle_policy(t, idle_policy);
        }
        if k.curr(cpu) == Some(t) {
            self.tasks[t].prev_sum = self.tasks[t].sum;
            if k.task(t).attrs.nice > old.nice {
                k.resched(cpu);
            }
        } else if let (true, Some(curr)) = (on_rq, k.curr(cpu).filter(|&c| k.is_mine(c))) {
            self.check_preempt(k, cpu, curr, t, Enqueue::SwitchedTo);
        }
    }

    fn enable(&mut self, k: &mut Kernel, t: TaskId) {
        self.set_weight(k, t);
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let e = self.tasks.get(t)?;
        match key {
            "vruntime" => Some(e.vruntime as f64),
            "sum" => Some(e.sum as f64),
            "min_vruntime" => Some(self.rqs[e.q].min_vruntime as f64),
            _ => None,
        }
    }
}
