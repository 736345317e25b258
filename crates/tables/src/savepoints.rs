//! The savepoints of a transaction, by name and by age. Setting, finding and releasing one costs
//! the logarithm of their number. `transaction` alone calls this.

use evenkeel_base::{Code, Error, Result, UndoNo};
use std::collections::{BTreeMap, HashMap};

/// Savepoints, each with the operation it was set before. Invariant: both maps hold the same
/// savepoints, and a later number means a mark that is no smaller.
#[derive(Default)]
pub(crate) struct Savepoints {
    by_age: BTreeMap<u64, (String, UndoNo)>,
    by_name: HashMap<String, u64>,
    next: u64,
}

impl Savepoints {
    /// Sets one; one of the same name goes.
    pub fn set(&mut self, name: &str, mark: UndoNo) {
        if let Some(former) = self.by_name.insert(name.to_string(), self.next) {
            self.by_age.remove(&former);
        }
        self.by_age.insert(self.next, (name.to_string(), mark));
        self.next += 1;
    }

    /// Forgets those set after this one, and returns its mark.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn roll_back_to(&mut self, name: &str) -> Result<UndoNo> {
        let number = self.find(name)?;
        self.forget_from(number + 1);
        Ok(self.by_age[&number].1)
    }

    /// Forgets this one and those set after it.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn release(&mut self, name: &str) -> Result<()> {
        let number = self.find(name)?;
        self.forget_from(number);
        Ok(())
    }

    /// Forgets those with a mark behind `mark`.
    pub fn forget_behind(&mut self, mark: UndoNo) {
        while let Some(last) = self.by_age.last_entry()
            && last.get().1 > mark
        {
            let (name, _) = last.remove();
            self.by_name.remove(&name);
        }
    }

    /// Everything was undone: all of them begin at `mark`.
    pub fn move_all_to(&mut self, mark: UndoNo) {
        self.by_age.values_mut().for_each(|(_, at)| *at = mark);
    }

    fn find(&self, name: &str) -> Result<u64> {
        let number = self.by_name.get(name).copied();
        number.ok_or_else(|| Error::new(Code::SavepointMissing).with("savepoint", name))
    }

    fn forget_from(&mut self, number: u64) {
        for (name, _) in self.by_age.split_off(&number).into_values() {
            self.by_name.remove(&name);
        }
    }
}

#[cfg(test)]
#[path = "savepoints_tests.rs"]
mod savepoints_tests;
