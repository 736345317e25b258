//! Named events of a simulation, counted over all seeds. A count of zero at the end means that the
//! seeds do not reach a state that they are meant to test.

use evenkeel_base::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;

/// Counts of events by name.
#[derive(Debug, Default)]
pub struct Events {
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Events {
    /// Counts an event.
    pub fn add(&self, name: &'static str, n: u64) {
        if n > 0 {
            *self.counts.lock().entry(name).or_insert(0) += n;
        }
    }

    /// Counts an event once.
    pub fn hit(&self, name: &'static str) {
        self.add(name, 1);
    }

    /// Adds the counts of `other`.
    pub fn merge(&self, other: &Events) {
        for (name, n) in other.counts.lock().iter() {
            self.add(name, *n);
        }
    }

    /// The count of one event.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.lock().get(name).copied().unwrap_or(0)
    }

    /// Names of `expected` whose count is zero.
    pub fn missing<'a>(&self, expected: &[&'a str]) -> Vec<&'a str> {
        expected.iter().filter(|name| self.get(name) == 0).copied().collect()
    }

    /// Names that were counted but are not in `expected`: if they stopped occurring, no check would
    /// notice.
    pub fn beyond(&self, expected: &[&str]) -> Vec<&'static str> {
        self.counts.lock().keys().filter(|name| !expected.contains(name)).copied().collect()
    }

    /// Number of different events that were counted.
    pub fn distinct(&self) -> usize {
        self.counts.lock().len()
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, n) in self.counts.lock().iter() {
            writeln!(f, "{n:>10}  {name}")?;
        }
        Ok(())
    }
}
