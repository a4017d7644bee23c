//! What a recording says of its threads apart from the records: their names and processes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use tracekit_schema::StrId;

/// Name and process of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Name.
    pub comm: Option<StrId>,
    /// Process.
    pub pid: Option<i64>,
}

/// Threads by number.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    map: HashMap<i64, Task, BuildHasherDefault<Multiply>>,
}

impl Tasks {
    /// What is known of `tid`.
    #[inline]
    pub fn get(&self, tid: i64) -> Task {
        self.map.get(&tid).copied().unwrap_or_default()
    }

    /// The entry of `tid`, made when it is new.
    #[inline]
    pub fn entry(&mut self, tid: i64) -> &mut Task {
        self.map.entry(tid).or_default()
    }
}

/// Hashes one integer by a multiplication: thread numbers need no defence against crafted keys, because a slow lookup
/// is the worst that they can do.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_i64(&mut self, n: i64) {
        self.write_u64(n as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}
