//! Named events of a simulation, counted over all seeds: a name with a count of zero at the end
//! means that the seeds do not reach what they are for.

use evenkeel_base::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
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

    /// Adds the counts of another.
    pub fn merge(&self, other: &Events) {
        for (name, n) in other.counts.lock().iter() {
            self.add(name, *n);
        }
    }

    /// The count of one.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.lock().get(name).copied().unwrap_or(0)
    }

    /// Names of `expected` that never came.
    pub fn missing<'a>(&self, expected: &[&'a str]) -> Vec<&'a str> {
        expected.iter().filter(|name| self.get(name) == 0).copied().collect()
    }

    /// Names that came and are not in `expected`: nobody would notice if they came no more.
    pub fn beyond(&self, expected: &[&str]) -> Vec<&'static str> {
        self.counts.lock().keys().filter(|name| !expected.contains(name)).copied().collect()
    }

    /// Number of different events that came.
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
