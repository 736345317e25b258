//! What crashes struck, or what they left: counted by name, so that a script that does not reach
//! what it is for fails.

use evenkeel_base::sync::Mutex;
use std::collections::BTreeMap;

/// Counts by name.
#[derive(Default)]
pub struct Seen {
    /// What must be seen once every crash point was tried.
    wanted: &'static [&'static str],
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Seen {
    /// Nothing is seen yet.
    pub fn of(wanted: &'static [&'static str]) -> Seen {
        Seen { wanted, counts: Mutex::default() }
    }

    /// One more.
    pub fn note(&self, what: &'static str) {
        *self.counts.lock().entry(what).or_default() += 1;
    }

    /// Prints them; `all`: every crash point was tried.
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
