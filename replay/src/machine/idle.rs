//! Which CPUs are idle, a bit each, so that finding one does not look at them all.

use crate::queue::Bits;
use crate::task::{Cpu, CpuSet};

/// A set of CPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdleCpus {
    bits: Bits,
    cpus: usize,
}

impl IdleCpus {
    /// All of so many.
    pub fn all(cpus: usize) -> Self {
        let mut found = IdleCpus { bits: Bits::none(cpus), cpus };
        (0..cpus).for_each(|cpu| found.set(cpu, true));
        found
    }

    /// Is `cpu` idle from now on?
    #[inline]
    pub fn set(&mut self, cpu: Cpu, idle: bool) {
        self.bits.set(cpu, idle);
    }

    /// The idle CPUs, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.bits.iter()
    }

    /// The first idle CPU of `allowed` from `from` on; after the last CPU comes the first.
    pub fn next(&self, from: Cpu, allowed: &CpuSet) -> Option<Cpu> {
        let (at, bit) = (from / 64, from % 64);
        let words = self.bits.words();
        let fit = |word: usize| words[word] & allowed.word(word);
        let upper = !0u64 << bit;
        let found = |word: usize, bits: u64| (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize);
        found(at, fit(at) & upper)
            .or_else(|| (at + 1..words.len()).chain(0..at).find_map(|word| found(word, fit(word))))
            .or_else(|| found(at, fit(at) & !upper))
            .filter(|&cpu| cpu < self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_is_the_one_that_looking_at_all_finds(
            cpus in 1usize..200,
            busy in prop::collection::vec(0usize..200, 0..300),
            allowed in prop::option::of(prop::collection::vec(0usize..200, 1..80)),
            from in 0usize..200,
        ) {
            let from = from % cpus;
            let mut idle = IdleCpus::all(cpus);
            busy.iter().filter(|&&b| b < cpus).for_each(|&b| idle.set(b, false));
            let allowed = allowed.map_or_else(CpuSet::all, |cpus| CpuSet::of(&cpus));
            let free = |cpu: &Cpu| !busy.contains(cpu);
            let looked = (0..cpus).map(|i| (from + i) % cpus).find(|c| free(c) && allowed.contains(*c));
            prop_assert_eq!(idle.next(from, &allowed), looked);
            prop_assert_eq!(idle.iter().collect::<Vec<_>>(), (0..cpus).filter(free).collect::<Vec<_>>());
        }
    }
}
