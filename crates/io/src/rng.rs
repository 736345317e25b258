//! SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough for schedules, faults and
//! tests. Not for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser: spreads the bits of `z`.
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A generator owned by one user.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> Rng {
        Rng(mix(seed ^ STEP))
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `n` (0 if `n` is 0).
    pub const fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next_u64() % n }
    }

    /// True once in `n` on average; never for 0.
    pub const fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.next_u64().is_multiple_of(n)
    }
}

/// A generator shared by threads. Under the simulator only the baton's holder draws, so its
/// sequence is repeatable.
#[derive(Debug)]
pub struct SharedRng(AtomicU64);

impl SharedRng {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> SharedRng {
        SharedRng(AtomicU64::new(mix(seed ^ STEP)))
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next_u64() % n }
    }

    /// True once in `n` on average; never for 0.
    pub fn one_in(&self, n: u64) -> bool {
        n != 0 && self.next_u64().is_multiple_of(n)
    }
}
