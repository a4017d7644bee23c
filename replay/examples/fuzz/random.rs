//! Random numbers that a seed decides.

/// xorshift64*: small, and the same on every machine.
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// 53 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A place in `n` bytes: half of them near the start, where headers are.
    pub fn place(&mut self, n: usize) -> usize {
        if self.below(2) == 0 {
            self.below(n.min(4096))
        } else {
            self.below(n)
        }
    }
}
