//! Linux CFS in three forms: 2.6.29, 2.6.32 and 6.1.

mod balance;
mod fixed;
mod info;
mod rules;

pub use info::INFO;

use super::linux;
use crate::params::Params;
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::{Ordered, TaskMap};
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};
use fixed::Weight;

/// Which kernel's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
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
            form: [Form::V29, Form::V32, Form::V61][p.int("form") as usize],
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

    /// Scales the times to the number of CPUs, as the kernel does at boot.
    fn scale(&mut self, cpus: usize) {
        let counted = if self.form == Form::V29 { cpus } else { cpus.min(8) };
        let factor = match self.scaling {
            1 => 1 + i64::from(counted.max(1).ilog2()),
            2 => counted as i64,
            _ => 1,
        };
        let cap = |t: Ns| if self.form == Form::V29 { t.min(200_000_000) } else { t };
        (self.latency, self.min_gran) = (cap(self.latency * factor), cap(self.min_gran * factor));
        self.idle_min_gran *= factor;
        self.wakeup_gran *= factor;
        self.nr_latency = (self.latency + self.min_gran - 1) / self.min_gran.max(1);
    }
}

/// A task in the books of CFS.
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
    /// CPU whose `min_vruntime` the virtual time refers to.
    cpu: Cpu,
    /// When it last stopped running (cache hot soon after).
    last_ran: Ns,
    /// 2.6.32: mean CPU time between wakeups it makes, and CPU time at the last one.
    avg_wakeup: Ns,
    last_wakeup: Ns,
    start_sum: Ns,
}

/// Run queue of a CPU.
#[derive(Clone, Debug, Default)]
struct Rq {
    /// Tasks that wait, by virtual time; the running one is not among them.
    tree: Ordered<i64>,
    curr: Option<TaskId>,
    min_vruntime: i64,
    /// Weight and number of all runnable tasks, the running one included.
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
    /// 6.1: loads and balancing as in the kernel; the older forms balance as `balance.rs` says.
    bal: Option<linux::Balancer>,
    /// CPUs that are to hand their running task to another.
    push: Vec<Option<Cpu>>,
}

impl Cfs {
    fn new(p: &Params) -> Self {
        let tun = Tunables::read(p);
        let bal = (tun.form == Form::V61)
            .then(|| linux::Balancer::new(linux::Form::Cfs, tun.migration_cost, p.on("balance")));
        Cfs { tun, rqs: Vec::new(), tasks: TaskMap::new(), bal, push: Vec::new() }
    }

    fn add(&mut self, cpu: Cpu, t: TaskId) {
        let e = &mut self.tasks[t];
        e.on_rq = true;
        e.cpu = cpu;
        let rq = &mut self.rqs[cpu];
        rq.load += e.weight.w;
        rq.nr += 1;
        rq.tree.insert(e.vruntime, t);
    }

    /// `t`, which is not in the tree any more, leaves the books of `cpu`.
    fn forget(&mut self, cpu: Cpu, t: TaskId) {
        let e = &mut self.tasks[t];
        e.on_rq = false;
        let rq = &mut self.rqs[cpu];
        rq.load -= e.weight.w;
        rq.nr -= 1;
        self.clear_buddies(cpu, t);
        if self.rqs[cpu].curr == Some(t) {
            self.rqs[cpu].curr = None;
        }
        self.update_min(cpu);
    }

    /// Virtual time is relative to a queue: moves that of `t` from its last one to that of `cpu`.
    fn rebase(&mut self, cpu: Cpu, t: TaskId) {
        let e = &mut self.tasks[t];
        if e.cpu != cpu {
            e.vruntime += self.rqs[cpu].min_vruntime - self.rqs[e.cpu].min_vruntime;
            e.cpu = cpu;
        }
    }
}

impl Policy for Cfs {
    fn init(&mut self, k: &mut Kernel) {
        self.tun.scale(k.nr_cpus());
        self.rqs = vec![Rq::default(); k.nr_cpus()];
        self.push = vec![None; k.nr_cpus()];
        if let Some(bal) = &mut self.bal {
            bal.init(k);
        }
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let attrs = &k.task(t).attrs;
        *self.tasks.ensure(t) = Entity {
            weight: Weight::of(attrs),
            idle_policy: attrs.policy == SchedPolicy::Idle,
            cpu: k.task(t).cpu,
            avg_wakeup: self.tun.wakeup_gran,
            last_ran: Ns::MIN / 2,
            ..Entity::default()
        };
        let e = &self.tasks[t];
        if let Some(bal) = &mut self.bal {
            bal.init_entity(k.now(), t, e.weight.w, e.idle_policy, true);
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
            Enqueue::Preempted | Enqueue::Yielded => {
                self.rqs[cpu].tree.insert(self.tasks[t].vruntime, t);
                return;
            }
            Enqueue::Initial => self.tasks[t].vruntime = self.rqs[cpu].min_vruntime,
            Enqueue::Fork => {
                self.update_curr(k, cpu);
                self.place_new(k, cpu, t);
            }
            Enqueue::Wakeup(_) => {
                self.rebase(cpu, t);
                self.update_curr(k, cpu);
                self.place_woken(cpu, t);
                let e = &mut self.tasks[t];
                e.start_sum = e.sum;
            }
            Enqueue::Migrated => {
                self.update_curr(k, cpu);
                self.rebase(cpu, t);
            }
            Enqueue::SwitchedTo => {
                self.update_curr(k, cpu);
                self.rebase(cpu, t);
                let floor = self.rqs[cpu].min_vruntime;
                let e = &mut self.tasks[t];
                e.vruntime = e.vruntime.max(floor);
            }
        }
        self.count(k, cpu, t);
        self.add(cpu, t);
        self.update_min(cpu);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        self.check_preempt(k, cpu, curr, t, why);
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.update_curr(k, cpu);
        self.rqs[cpu].tree.remove(t);
        self.uncount(k, t);
        self.forget(cpu, t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.push_running(k, cpu);
        let t = match self.pick(cpu) {
            Some(t) => t,
            None => self.pull_idle(k, cpu)?,
        };
        self.rqs[cpu].tree.remove(t);
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {
        let e = &mut self.tasks[t];
        if !e.on_rq {
            // It comes from another class without passing through a queue.
            e.cpu = cpu;
            e.on_rq = true;
            e.vruntime = e.vruntime.max(self.rqs[cpu].min_vruntime);
            self.rqs[cpu].load += e.weight.w;
            self.rqs[cpu].nr += 1;
            self.count(k, cpu, t);
        }
        if let Some(bal) = &mut self.bal {
            bal.set_running(k.now(), t, true);
            bal.task_runs(k.now(), cpu, t, true);
        }
        let rq = &mut self.rqs[cpu];
        rq.curr = Some(t);
        rq.exec_start = k.clock(cpu);
        // Since group scheduling, choosing the same task again changes nothing.
        if switched || self.tun.form < Form::V61 {
            let e = &mut self.tasks[t];
            e.prev_sum = e.sum;
            self.clear_buddies(cpu, t);
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.update_curr(k, cpu);
        self.tasks[t].last_ran = k.now();
        if let Some(bal) = &mut self.bal {
            bal.set_running(k.now(), t, false);
            bal.task_runs(k.now(), cpu, t, false);
        }
        match why {
            Stop::Preempted | Stop::Yielded => self.rqs[cpu].curr = None,
            Stop::Slept | Stop::Exited | Stop::SwitchedFrom => {
                if why == Stop::Slept {
                    self.note_sleep(t);
                }
                self.uncount(k, t);
                self.forget(cpu, t);
            }
        }
    }

    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if !self.tun.exit_requeue {
            return;
        }
        // sched_move_task: dequeued relative to the old minimum, queued again relative to the new one.
        k.update_clock(cpu);
        self.update_curr(k, cpu);
        let before = self.rqs[cpu].min_vruntime;
        if let Some((left, _)) = self.rqs[cpu].tree.first() {
            self.rqs[cpu].min_vruntime = before.max(left);
        }
        let jump = self.rqs[cpu].min_vruntime - before;
        let e = &mut self.tasks[t];
        e.vruntime += jump;
        e.prev_sum = e.sum;
        self.clear_buddies(cpu, t);
        k.resched(cpu);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.update_curr(k, cpu);
        if self.rqs[cpu].nr > 1 {
            self.check_tick(k, cpu, t);
        }
        if k.nr_cpus() > 1 {
            self.balance(k, cpu);
        }
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.do_yield(k, cpu, t);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {
        let cpu = k.task(t).cpu;
        let new = Weight::of(&k.task(t).attrs);
        let (was, on_rq) = (self.tasks[t].weight, self.tasks[t].on_rq);
        if on_rq {
            self.update_curr(k, cpu);
            let rq = &mut self.rqs[cpu];
            rq.load = rq.load - was.w + new.w;
        }
        self.tasks[t].weight = new;
        self.tasks[t].idle_policy = k.task(t).attrs.policy == SchedPolicy::Idle;
        if let Some(bal) = &mut self.bal {
            bal.reweigh(k.now(), t, new.w);
            bal.set_idle_policy(t, self.tasks[t].idle_policy);
        }
        if k.curr(cpu) == Some(t) {
            self.tasks[t].prev_sum = self.tasks[t].sum;
            if k.task(t).attrs.nice > old.nice {
                k.resched(cpu);
            }
        } else if on_rq {
            if let Some(curr) = self.rqs[cpu].curr {
                self.check_preempt(k, cpu, curr, t, Enqueue::SwitchedTo);
            }
        }
    }

    fn enable(&mut self, k: &mut Kernel, t: TaskId) {
        self.tasks[t].weight = Weight::of(&k.task(t).attrs);
        self.tasks[t].idle_policy = k.task(t).attrs.policy == SchedPolicy::Idle;
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let e = self.tasks.get(t)?;
        match key {
            "vruntime" => Some(e.vruntime as f64),
            "sum" => Some(e.sum as f64),
            "min_vruntime" => Some(self.rqs[e.cpu].min_vruntime as f64),
            _ => None,
        }
    }
}
