//! The fair server of Linux 6.12 and later: tasks below the class that starve run above it for a
//! while.
//!
//! Each CPU has a reservation of `server_runtime` in `server_period`. Time in which no task of the
//! class runs uses it up, idle time too; when that happens nobody starves, and a new period begins.
//! Where it does not, the server takes over at the last moment at which what is left still fits
//! before the deadline, and from then on at each deadline. It stops where nobody is there to be served.
//!
//! The server starts when a first task of another class is queued. Here that is found at the next
//! dispatch on its CPU, or at the next tick while a task of the class runs.
//!
//! Sources: Linux 6.12.117 kernel/sched/deadline.c (dl_server_start, dl_server_timer,
//! update_curr_dl_se, update_dl_entity, replenish_dl_entity), debug.c, fair.c.

use super::{Rt, SERVER};
use crate::policy::Kernel;
use crate::task::{Cpu, Ns};

/// Time for starving tasks, and the period in which they get it.
#[derive(Clone, Copy)]
pub(super) struct Reservation {
    pub runtime: Ns,
    pub period: Ns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody needs it.
    Stopped,
    /// It would take over when what is left just fits before the deadline.
    Waiting,
    /// Other classes run before this one.
    Serving,
    /// Its time is used up until the deadline.
    Spent,
}

/// The server of one CPU.
#[derive(Clone, Copy)]
pub(super) struct Server {
    state: State,
    deadline: Ns,
    left: Ns,
    /// It has served since a period was last used up by itself: it does not wait again.
    starving: bool,
    /// Time up to which is accounted.
    at: Ns,
    /// A task of the class runs.
    rt: bool,
    /// When the next timer comes; in the past where there is none.
    armed: Ns,
}

impl Default for Server {
    fn default() -> Self {
        // A deadline in the past: it begins with a new period.
        Server { state: State::Stopped, deadline: -1, left: 0, starving: false, at: 0, rt: false, armed: -1 }
    }
}

impl Server {
    /// True while other classes run before this one.
    pub(super) fn serves(&self) -> bool {
        self.state == State::Serving
    }

    /// False while it waits and no task of the class runs: it is brought up to date when that changes.
    #[inline]
    pub(super) fn needs_looking_after(&self) -> bool {
        self.state != State::Waiting || self.rt
    }

    /// Accounts the time up to `now`.
    fn charge(&mut self, now: Ns, r: Reservation) {
        let passed = now - std::mem::replace(&mut self.at, now);
        if self.rt || self.state == State::Stopped {
            return;
        }
        self.left -= passed;
        if self.left > 0 {
            return;
        }
        if self.state == State::Serving {
            self.state = State::Spent;
            return;
        }
        // Used up without any help, perhaps several times.
        let over = -self.left % r.runtime;
        self.new_period(now - over, r);
        self.left -= over;
    }

    fn new_period(&mut self, from: Ns, r: Reservation) {
        self.state = State::Waiting;
        self.starving = false;
        self.deadline = from + r.period;
        self.left = r.runtime;
    }

    /// Somebody is there to be served.
    fn start(&mut self, now: Ns, r: Reservation) {
        let to_deadline = self.deadline - now;
        let too_much = i128::from(self.left) * i128::from(r.period) > i128::from(to_deadline) * i128::from(r.runtime);
        if to_deadline < 0 || too_much && !self.starving {
            self.new_period(now, r);
        } else if self.starving {
            if too_much {
                self.left = (i128::from(to_deadline) * i128::from(r.runtime) / i128::from(r.period)) as Ns;
            }
            self.state = State::Serving;
        } else {
            self.state = if to_deadline > self.left { State::Waiting } else { State::Serving };
        }
    }

    /// When something happens by itself, if it does.
    fn due(&self, k: &Kernel, cpu: Cpu) -> Option<Ns> {
        match self.state {
            State::Stopped => None,
            State::Waiting => Some(self.deadline - self.left),
            State::Serving => Some(k.tick_at(cpu, k.now() + self.left)),
            State::Spent => Some(self.deadline),
        }
    }
}

impl Rt {
    /// Tasks on `cpu` that the server is for.
    fn others(&self, k: &Kernel, cpu: Cpu) -> bool {
        let ours = self.cpus[cpu].queue.len() - self.cpus[cpu].queue.level_len(super::SHARED);
        k.nr_runnable(cpu) > ours + usize::from(self.cpus[cpu].server.rt)
    }

    /// A task of the class, or another, begins or ends to run on `cpu`.
    pub(super) fn server_switch(&mut self, k: &mut Kernel, cpu: Cpu, rt: bool) {
        let Some(r) = self.reservation else { return };
        let server = &mut self.cpus[cpu].server;
        server.charge(k.now(), r);
        server.rt = rt;
        if rt {
            self.arm_server(k, cpu);
        }
    }

    /// Brings the server of `cpu` up to date, and starts it where somebody has come.
    pub(super) fn look_after_server(&mut self, k: &mut Kernel, cpu: Cpu) {
        let Some(r) = self.reservation else { return };
        let others = self.others(k, cpu);
        let server = &mut self.cpus[cpu].server;
        server.charge(k.now(), r);
        if server.state == State::Stopped && others {
            server.start(k.now(), r);
            if server.rt {
                if server.serves() {
                    k.resched(cpu);
                }
                self.arm_server(k, cpu);
            }
        }
    }

    /// Do other classes run before this one on `cpu`, which now chooses a task?
    pub(super) fn server_dispatches(&mut self, k: &mut Kernel, cpu: Cpu) -> bool {
        self.look_after_server(k, cpu);
        if !self.cpus[cpu].server.serves() {
            return false;
        }
        if !self.others(k, cpu) {
            self.cpus[cpu].server.state = State::Stopped;
            return false;
        }
        self.arm_server(k, cpu);
        true
    }

    /// Sets the timer, where none comes before it is needed.
    fn arm_server(&mut self, k: &mut Kernel, cpu: Cpu) {
        let server = &mut self.cpus[cpu].server;
        let Some(at) = server.due(k, cpu) else { return };
        if server.armed < k.now() || server.armed > at {
            server.armed = at.max(k.now());
            k.timer_at(at, SERVER | cpu as u64);
        }
    }

    /// The timer of the server of `cpu`.
    pub(super) fn server_timer(&mut self, k: &mut Kernel, cpu: Cpu) {
        let Some(r) = self.reservation else { return };
        let now = k.now();
        let waits = !self.cpus[cpu].queue.is_empty();
        let server = &mut self.cpus[cpu].server;
        if now != server.armed {
            return;
        }
        server.armed = -1;
        let served = server.serves();
        server.charge(now, r);
        match server.state {
            State::Waiting if now >= server.deadline - server.left => {
                server.starving = true;
                server.state = State::Serving;
                // What is left would be more than its share of the time to the deadline.
                server.deadline = now + r.period;
                server.left = r.runtime;
            }
            State::Spent if now >= server.deadline => {
                server.state = State::Serving;
                server.deadline += r.period;
                server.left += r.runtime;
            }
            _ => {}
        }
        let changed = server.serves() != served;
        if changed && (server.rt || waits) {
            k.resched(cpu);
        }
        if changed || server.rt || served {
            self.arm_server(k, cpu);
        }
    }
}
