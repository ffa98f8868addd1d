//! A cache of rows with clock eviction: a row used since the hand last passed stays. Nothing is allocated after it is made.

/// Rows by their ids, in one array.
pub(crate) struct Clock {
    row_bytes: usize,
    keys: Vec<u64>,
    used: Vec<bool>,
    data: Vec<u8>,
    /// Open addressing with linear steps, at most half full: a place in `keys` plus one, or 0.
    index: Vec<u32>,
    hand: usize,
    capacity: usize,
}

/// Bytes that a cached row of `row_bytes` takes at most.
pub(crate) fn cost(row_bytes: u64) -> u64 {
    // key, flag, and up to four places of the index
    row_bytes + 8 + 1 + 16
}

impl Clock {
    /// A cache of rows of `row_bytes` in at most `budget` bytes.
    pub fn new(budget: u64, row_bytes: usize) -> Clock {
        let fits = (budget / cost(row_bytes as u64)).min(u64::from(u32::MAX / 4)) as usize;
        Clock {
            row_bytes,
            keys: Vec::with_capacity(fits),
            used: Vec::with_capacity(fits),
            data: vec![0; fits * row_bytes],
            index: vec![0; if fits == 0 { 0 } else { (2 * fits).next_power_of_two() }],
            hand: 0,
            capacity: fits,
        }
    }

    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.index.len() - 1)
    }

    /// The place of `key` in the index, or the empty one where its search ends.
    fn find(&self, key: u64) -> (usize, Option<usize>) {
        let mut i = self.home(key);
        loop {
            match self.index[i] {
                0 => return (i, None),
                s if self.keys[s as usize - 1] == key => return (i, Some(s as usize - 1)),
                _ => i = (i + 1) & (self.index.len() - 1),
            }
        }
    }

    /// True if the row is held; it is not marked as used.
    pub fn holds(&self, key: u64) -> bool {
        self.capacity > 0 && self.find(key).1.is_some()
    }

    /// The row, marked as used.
    pub fn get(&mut self, key: u64) -> Option<&[u8]> {
        if self.capacity == 0 {
            return None;
        }
        let slot = self.find(key).1?;
        self.used[slot] = true;
        Some(&self.data[slot * self.row_bytes..][..self.row_bytes])
    }

    /// Keeps a row, in the place of one that was not used for a while if there is no other.
    pub fn insert(&mut self, key: u64, row: &[u8]) {
        if self.capacity == 0 {
            return;
        }
        let slot = match self.find(key).1 {
            Some(slot) => slot,
            None if self.keys.len() < self.capacity => {
                self.keys.push(key);
                self.used.push(false);
                self.keys.len() - 1
            }
            None => {
                while std::mem::replace(&mut self.used[self.hand], false) {
                    self.hand = (self.hand + 1) % self.capacity;
                }
                let slot = self.hand;
                self.hand = (self.hand + 1) % self.capacity;
                self.forget(self.keys[slot]);
                self.keys[slot] = key;
                slot
            }
        };
        let at = self.place_of(key);
        self.index[at] = slot as u32 + 1;
        self.data[slot * self.row_bytes..][..self.row_bytes].copy_from_slice(row);
    }

    /// Where the index holds `key`, or would.
    fn place_of(&self, key: u64) -> usize {
        let mut i = self.home(key);
        while self.index[i] != 0 && self.keys[self.index[i] as usize - 1] != key {
            i = (i + 1) & (self.index.len() - 1);
        }
        i
    }

    /// Takes a key out of the index and moves up those that searched past it.
    fn forget(&mut self, key: u64) {
        let mask = self.index.len() - 1;
        let (mut gap, found) = self.find(key);
        debug_assert!(found.is_some());
        self.index[gap] = 0;
        let mut i = (gap + 1) & mask;
        while self.index[i] != 0 {
            let home = self.home(self.keys[self.index[i] as usize - 1]);
            // it may move to the gap if its home is not after the gap on the way to it
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(gap) & mask) {
                self.index[gap] = self.index[i];
                self.index[i] = 0;
                gap = i;
            }
            i = (i + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The same policy with a list and a search.
    #[derive(Default)]
    struct Naive {
        slots: Vec<(u64, Vec<u8>, bool)>,
        hand: usize,
        capacity: usize,
    }

    impl Naive {
        fn get(&mut self, key: u64) -> Option<Vec<u8>> {
            let s = self.slots.iter_mut().find(|s| s.0 == key)?;
            s.2 = true;
            Some(s.1.clone())
        }

        fn insert(&mut self, key: u64, row: &[u8]) {
            if let Some(s) = self.slots.iter_mut().find(|s| s.0 == key) {
                s.1 = row.to_vec();
            } else if self.slots.len() < self.capacity {
                self.slots.push((key, row.to_vec(), false));
            } else if self.capacity > 0 {
                while self.slots[self.hand].2 {
                    self.slots[self.hand].2 = false;
                    self.hand = (self.hand + 1) % self.capacity;
                }
                self.slots[self.hand] = (key, row.to_vec(), false);
                self.hand = (self.hand + 1) % self.capacity;
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_the_naive_clock(capacity in 0u64..20, steps in prop::collection::vec((0u64..40, any::<bool>()), 0..400)) {
            let mut clock = Clock::new(capacity * cost(3), 3);
            let mut naive = Naive { capacity: capacity as usize, ..Naive::default() };
            let mut latest: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            for (i, (key, put)) in steps.into_iter().enumerate() {
                // keys that collide: multiples of a large power of two share their low bits
                let key = key << 33;
                if put {
                    let row = [i as u8, (i >> 8) as u8, key as u8];
                    clock.insert(key, &row);
                    naive.insert(key, &row);
                    latest.insert(key, row.to_vec());
                } else {
                    prop_assert_eq!(clock.holds(key), naive.slots.iter().any(|s| s.0 == key));
                    let got = clock.get(key).map(<[u8]>::to_vec);
                    prop_assert_eq!(&got, &naive.get(key));
                    // never a stale or a foreign row
                    prop_assert!(got.is_none() || got.as_ref() == latest.get(&key));
                }
            }
            prop_assert!(clock.keys.len() <= capacity as usize);
        }
    }

    #[test]
    fn the_budget_holds() {
        let c = Clock::new(64 << 20, 90);
        let bytes = c.capacity * (90 + 8 + 1) + c.index.len() * 4;
        assert!(bytes <= 64 << 20 && bytes > 50 << 20, "{bytes}");
        assert_eq!(Clock::new(0, 90).get(1), None);
    }
}
