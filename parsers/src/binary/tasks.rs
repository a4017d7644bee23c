//! What a recording says of its threads apart from the records: their names and processes.

use std::collections::HashMap;
use tracekit_schema::StrId;

/// Name and process of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Id of the name + 1, 0 for none.
    comm: u32,
    /// Process + 1, 0 for none.
    pid: u32,
}

impl Task {
    /// Name.
    #[inline]
    pub fn comm(self) -> Option<StrId> {
        self.comm.checked_sub(1).map(StrId)
    }

    /// Process.
    #[inline]
    pub fn pid(self) -> Option<i64> {
        self.pid.checked_sub(1).map(i64::from)
    }

    /// Sets the name.
    pub fn set_comm(&mut self, comm: Option<StrId>) {
        self.comm = comm.map_or(0, |id| id.0 + 1);
    }

    /// Sets the process; a number that no kernel gives counts as none.
    #[inline]
    pub fn set_pid(&mut self, pid: Option<i64>) {
        self.pid = pid.and_then(|p| u32::try_from(p).ok()).and_then(|p| p.checked_add(1)).unwrap_or(0);
    }
}

/// Threads of one page.
const PAGE: usize = 512;
/// Linux gives no thread a higher number.
const MOST: usize = 1 << 22;

/// Threads by number. Kernels number them from 0 up, so a table of pages finds one with two loads.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    pages: Vec<Option<Box<[Task; PAGE]>>>,
    /// Those with numbers that no kernel gives.
    others: HashMap<i64, Task>,
}

impl Tasks {
    /// What is known of `tid`.
    #[inline]
    pub fn get(&self, tid: i64) -> Task {
        let n = tid as usize;
        match self.pages.get(n / PAGE) {
            Some(Some(page)) => page[n % PAGE],
            _ => self.elsewhere(tid),
        }
    }

    #[cold]
    fn elsewhere(&self, tid: i64) -> Task {
        if self.others.is_empty() {
            return Task::default();
        }
        self.others.get(&tid).copied().unwrap_or_default()
    }

    /// The entry of `tid`, made when it is new.
    #[inline]
    pub fn entry(&mut self, tid: i64) -> &mut Task {
        let n = tid as usize;
        if n >= MOST {
            return self.others.entry(tid).or_default();
        }
        if self.pages.len() <= n / PAGE {
            self.pages.resize(n / PAGE + 1, None);
        }
        &mut self.pages[n / PAGE].get_or_insert_with(|| Box::new([Task::default(); PAGE]))[n % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_finds_its_task() {
        let mut tasks = Tasks::default();
        for tid in [0, 1, 511, 512, 4_194_303, 4_194_304, -1, i64::MIN] {
            assert_eq!(tasks.get(tid), Task::default());
            tasks.entry(tid).set_pid(Some(tid & 0xffff));
            tasks.entry(tid).set_comm(Some(StrId(7)));
            assert_eq!((tasks.get(tid).pid(), tasks.get(tid).comm()), (Some(tid & 0xffff), Some(StrId(7))));
        }
        assert_eq!(tasks.get(2), Task::default());
        tasks.entry(1).set_pid(Some(-1));
        assert_eq!(tasks.get(1).pid(), None);
    }
}
