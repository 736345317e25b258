//! Counts, by name, the states at crashes or after them. A script that does not reach the states
//! that it tests fails.

use evenkeel_base::sync::Mutex;
use std::collections::BTreeMap;

/// Counts by name.
#[derive(Default)]
pub struct Seen {
    /// The names that must have been counted once every crash point was tried.
    wanted: &'static [&'static str],
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Seen {
    /// No counts yet.
    pub fn of(wanted: &'static [&'static str]) -> Seen {
        Seen { wanted, counts: Mutex::default() }
    }

    /// Counts one.
    pub fn note(&self, what: &'static str) {
        *self.counts.lock().entry(what).or_default() += 1;
    }

    /// Prints the counts; `all`: every crash point was tried.
    pub fn tell(&self, all: bool) {
        let counts = self.counts.lock();
        if counts.is_empty() && self.wanted.is_empty() {
            return;
        }
        println!("       crashes of it: {counts:?}");
        let missed: Vec<_> =
            self.wanted.iter().filter(|what| !counts.contains_key(*what)).collect();
        assert!(!all || missed.is_empty(), "not seen in any crash: {missed:?}");
    }
}
