//! A dictionary of numbers, in order of first appearance.

/// Places of numbers, by open addressing.
#[derive(Default)]
pub struct Numbers {
    values: Vec<i64>,
    /// Number and its place plus 1; 0 where the slot is empty.
    slots: Vec<(i64, u32)>,
    /// There are too many: no further ones are taken.
    pub closed: bool,
}

impl Numbers {
    /// The place of `value`, which is added when it is new.
    #[inline(always)]
    pub fn place(&mut self, value: i64) -> u32 {
        if self.values.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.find(value);
        match self.slots[slot].1 {
            0 => {
                self.values.push(value);
                self.slots[slot] = (value, self.values.len() as u32);
                self.values.len() as u32 - 1
            }
            place => place - 1,
        }
    }

    #[inline(always)]
    fn find(&self, value: i64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = ((value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.slots[slot].1 != 0 && self.slots[slot].0 != value {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        self.fill((self.slots.len() * 2).max(256));
    }

    fn fill(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, (0, 0));
        for place in 0..self.values.len() {
            let slot = self.find(self.values[place]);
            self.slots[slot] = (self.values[place], place as u32 + 1);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The numbers, each at its place.
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// Takes no further numbers, and forgets those from this place on.
    pub fn close(&mut self, place: usize) {
        self.values.truncate(place);
        self.closed = true;
    }

    /// Begins anew, and says how many there were.
    pub fn take(&mut self) -> usize {
        let count = self.values.len();
        self.values.clear();
        self.slots.clear();
        self.closed = false;
        count
    }
}
