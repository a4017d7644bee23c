//! The runnable tasks of each CPU, in the order in which they came or last ran. That changes with
//! every switch and is asked for when tasks are moved: a task has a number that grows, and who asks
//! sorts.

use crate::task::{Cpu, TaskId};

/// Where a task is.
#[derive(Clone, Copy, Debug)]
struct Listed {
    cpu: u32,
    place: u32,
    /// Greater than those of all that came or ran before; 0 where it is not runnable.
    order: u64,
}

const NOWHERE: Listed = Listed { cpu: u32::MAX, place: 0, order: 0 };

/// Tasks of each CPU; a task is on one at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Runnable {
    /// In no order. Who ceases to be runnable stays until somebody asks: most come back to where they
    /// were.
    cpus: Vec<Vec<TaskId>>,
    tasks: Vec<Listed>,
    last: u64,
}

impl Runnable {
    /// None on any of so many CPUs.
    pub fn none(cpus: usize) -> Self {
        Runnable { cpus: vec![Vec::new(); cpus], ..Runnable::default() }
    }

    /// `t` is on `cpu`, and is the last of its tasks.
    #[inline]
    pub fn put_last(&mut self, cpu: Cpu, t: TaskId) {
        self.last += 1;
        match self.tasks.get_mut(t.index()) {
            Some(listed) if listed.cpu == cpu as u32 => listed.order = self.last,
            _ => self.put_on(cpu, t),
        }
    }

    #[inline(never)]
    fn put_on(&mut self, cpu: Cpu, t: TaskId) {
        if self.tasks.len() <= t.index() {
            self.tasks.resize(t.index() + 1, NOWHERE);
        }
        self.strike(t);
        let tasks = &mut self.cpus[cpu];
        self.tasks[t.index()] = Listed { cpu: cpu as u32, place: tasks.len() as u32, order: self.last };
        tasks.push(t);
    }

    /// Takes `t` out of the list in which it is.
    fn strike(&mut self, t: TaskId) {
        let Listed { cpu, place, .. } = std::mem::replace(&mut self.tasks[t.index()], NOWHERE);
        let Some(tasks) = self.cpus.get_mut(cpu as usize) else { return };
        tasks.swap_remove(place as usize);
        if let Some(moved) = tasks.get(place as usize) {
            self.tasks[moved.index()].place = place;
        }
    }

    /// `t` is on none, if it was on one.
    #[inline]
    pub fn remove(&mut self, t: TaskId) {
        if let Some(listed) = self.tasks.get_mut(t.index()) {
            listed.order = 0;
        }
    }

    /// `t` is on a CPU.
    pub fn contains(&self, t: TaskId) -> bool {
        self.tasks.get(t.index()).is_some_and(|l| l.order != 0)
    }

    /// The first tasks of `cpu` in order, so many at most.
    pub fn first(&mut self, cpu: Cpu, most: usize) -> Vec<TaskId> {
        let (on, tasks) = (&mut self.cpus[cpu], &mut self.tasks);
        let mut place = 0;
        on.retain(|t| {
            let listed = &mut tasks[t.index()];
            let stays = listed.order != 0;
            *listed = if stays { Listed { place, ..*listed } } else { NOWHERE };
            place += u32::from(stays);
            stays
        });
        let mut found = on.clone();
        let order = |t: &TaskId| tasks[t.index()].order;
        if most < found.len() {
            found.select_nth_unstable_by_key(most, order);
            found.truncate(most);
        }
        found.sort_unstable_by_key(order);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_lists(ops in prop::collection::vec((0u32..30, 0usize..3, 0u8..4), 1..200), most in 0usize..12) {
            let mut runnable = Runnable::none(3);
            let mut model: Vec<Vec<TaskId>> = vec![Vec::new(); 3];
            for (t, cpu, op) in ops {
                let t = TaskId(t);
                model.iter_mut().for_each(|tasks| tasks.retain(|&x| x != t));
                if op == 0 {
                    runnable.remove(t);
                } else {
                    runnable.put_last(cpu, t);
                    model[cpu].push(t);
                }
                prop_assert_eq!(runnable.contains(t), op != 0);
                for (cpu, want) in model.iter().enumerate() {
                    prop_assert_eq!(&runnable.first(cpu, usize::MAX), want);
                    prop_assert_eq!(runnable.first(cpu, most), &want[..most.min(want.len())]);
                }
            }
        }
    }
}
