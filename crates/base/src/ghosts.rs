//! Ghosts: names of what a cache threw out lately. A miss that finds its name here would have been
//! a hit, had the cache been a little larger: so ghost hits say which of two caches should have the
//! memory.
//!
//! A table of fingerprints, each place taken by the youngest name that falls on it: about as many
//! names as it has places. No lock; what is lost in races is an estimate anyway.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names of what was thrown out.
pub struct Ghosts {
    places: Box<[AtomicU32]>,
    hits: AtomicU64,
}

impl Ghosts {
    /// Remembers about `count` names.
    pub fn new(count: usize) -> Ghosts {
        let places = (0..count.max(1)).map(|_| AtomicU32::new(0)).collect();
        Ghosts { places, hits: AtomicU64::new(0) }
    }

    fn place(&self, name: u64) -> (&AtomicU32, u32) {
        let mixed = (name ^ (name >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = ((u128::from(mixed) * self.places.len() as u128) >> 64) as usize;
        // Zero is an empty place.
        (&self.places[at], mixed as u32 | 1)
    }

    /// Something was thrown out.
    pub fn note(&self, name: u64) {
        let (place, print) = self.place(name);
        place.store(print, Ordering::Relaxed);
    }

    /// Something was missed: counts it if it was thrown out lately.
    pub fn missed(&self, name: u64) {
        let (place, print) = self.place(name);
        if place.load(Ordering::Relaxed) == print {
            place.store(0, Ordering::Relaxed);
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Misses so far that a larger cache would have spared.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_ghost_once() {
        let ghosts = Ghosts::new(1000);
        (0..100).for_each(|name| ghosts.note(name));
        (50..150).for_each(|name| ghosts.missed(name));
        let hits = ghosts.hits();
        assert!((40..=50).contains(&hits), "{hits} hits");
        (50..100).for_each(|name| ghosts.missed(name));
        assert_eq!(ghosts.hits(), hits);
    }

    #[test]
    fn forgets_the_old() {
        let ghosts = Ghosts::new(100);
        (0..10_000).for_each(|name| ghosts.note(name));
        (0..9_000).for_each(|name| ghosts.missed(name));
        assert!(ghosts.hits() < 10, "{} hits", ghosts.hits());
    }
}
