//! The model: what the database must hold. Rows by tree and key with their whole committed history,
//! tables by name, prepared transactions. Every committed transaction is entered at its timestamp
//! before any other thread can run, so that the model is never behind the engine.
//!
//! Invariant: a commit is entered once, with a timestamp above all entered before it.

use crate::values::Row;
use std::collections::{BTreeMap, BTreeSet};

/// A row of a table: the tree it lies in (a new one after TRUNCATE) and its number.
pub type Key = (u64, i64);

/// What a transaction does to rows: the new row, or `None` if it deletes it.
pub type Effects = BTreeMap<Key, Option<Row>>;

#[derive(Clone, Debug)]
struct Version {
    cts: u64,
    row: Option<Row>,
}

/// How far a prepared transaction has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The call has not returned: it may or may not be prepared.
    Asked,
    /// Durably prepared.
    Sure,
    /// Committed at this timestamp.
    Committed(u64),
    /// Rolled back, durably.
    RolledBack,
}

/// A prepared transaction.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What it does.
    pub effects: Effects,
    /// How far it has come.
    pub phase: Phase,
}

/// A table of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its tree; 0 if there is no such table.
    pub tree: u64,
    /// Its indexes.
    pub indexes: BTreeSet<String>,
    /// Its columns, by id and name.
    pub columns: Vec<(u16, String)>,
    /// A schema change has begun whose outcome is not known: any state before or after is right.
    pub in_doubt: bool,
    /// It was in doubt before the change that goes on now, which ends no doubt by being refused.
    pub was_in_doubt: bool,
    /// A session changes it now.
    pub is_busy: bool,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    rows: BTreeMap<u64, BTreeMap<i64, Vec<Version>>>,
    commits: BTreeMap<u64, Vec<Key>>,
    /// Commits up to here are durable.
    pub acked: u64,
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Prepared transactions by id.
    pub prepared: BTreeMap<Vec<u8>, Prepared>,
    /// By tree the greatest number known to have been given to a row; the next is above it.
    pub given: BTreeMap<u64, u64>,
}

fn at(versions: &[Version], cts: u64) -> Option<&Row> {
    versions.iter().rev().find(|v| v.cts <= cts).and_then(|v| v.row.as_ref())
}

impl Model {
    /// Timestamp of the newest commit.
    pub fn last(&self) -> u64 {
        self.commits.last_key_value().map_or(0, |(cts, _)| *cts)
    }

    /// Enters a commit.
    pub fn commit(&mut self, cts: u64, effects: Effects) {
        assert!(cts > self.last(), "commit timestamp {cts} is not above {}", self.last());
        self.commits.insert(cts, effects.keys().copied().collect());
        for ((tree, id), row) in effects {
            self.rows.entry(tree).or_default().entry(id).or_default().push(Version { cts, row });
        }
    }

    /// True if these effects leave every row as it is.
    pub fn changes_nothing(&self, effects: &Effects) -> bool {
        let last = self.last();
        effects.iter().all(|(key, row)| self.row_at(*key, last) == row.as_ref())
    }

    /// The greatest number known to have been given to a row of a tree.
    pub fn given(&self, tree: u64) -> u64 {
        self.given.get(&tree).copied().unwrap_or(0)
    }

    /// A row of a tree was given this number.
    pub fn give(&mut self, tree: u64, number: u64) {
        let greatest = self.given.entry(tree).or_default();
        *greatest = (*greatest).max(number);
    }

    /// A commit was acknowledged as durable, so every earlier one is.
    pub fn ack(&mut self, cts: u64) {
        self.acked = self.acked.max(cts);
    }

    /// The row as a snapshot at `cts` sees it.
    pub fn row_at(&self, key: Key, cts: u64) -> Option<&Row> {
        at(self.rows.get(&key.0)?.get(&key.1)?, cts)
    }

    /// Timestamp of the newest version of a row; 0 if there never was one.
    pub fn newest(&self, key: Key) -> u64 {
        let versions = self.rows.get(&key.0).and_then(|t| t.get(&key.1));
        versions.and_then(|v| v.last()).map_or(0, |v| v.cts)
    }

    /// Timestamps of the states that a read may have seen which began at `low` and ended at `high`.
    pub fn states(&self, low: u64, high: u64) -> Vec<u64> {
        let later = self.commits.range(low + 1..high.max(low) + 1).map(|(cts, _)| *cts);
        std::iter::once(low).chain(later).collect()
    }

    /// The versions of a row, for messages.
    pub fn history(&self, key: Key) -> String {
        let versions = self.rows.get(&key.0).and_then(|t| t.get(&key.1));
        let show = |v: &Version| format!("{}: {}", v.cts, crate::values::short(v.row.as_ref()));
        versions.map_or(String::new(), |v| v.iter().map(show).collect::<Vec<_>>().join("; "))
    }

    /// All rows of a tree as a snapshot at `cts` sees them.
    pub fn table_at(&self, tree: u64, cts: u64) -> BTreeMap<i64, &Row> {
        let Some(rows) = self.rows.get(&tree) else { return BTreeMap::new() };
        rows.iter().filter_map(|(id, v)| Some((*id, at(v, cts)?))).collect()
    }

    /// Timestamps of commits not known to be durable, newest first, ending with the newest durable.
    pub fn candidates(&self) -> Vec<u64> {
        let unsure = self.commits.range(self.acked + 1..).rev().map(|(cts, _)| *cts);
        unsure.chain([self.acked]).collect()
    }

    /// Forgets what a crash has lost, commits above `cts`, and all history before: the rest is
    /// what every snapshot of the new life sees, so it gets the timestamp 0. (States of several
    /// timestamps may be equal; which of them survived is then not known.)
    pub fn cut(&mut self, cts: u64) {
        self.commits.clear();
        self.acked = 0;
        for rows in self.rows.values_mut() {
            rows.retain(|_, versions| {
                let row = at(versions, cts).cloned();
                *versions = vec![Version { cts: 0, row }];
                versions[0].row.is_some()
            });
        }
    }
}

/// What one open transaction has done, with marks to undo from.
#[derive(Debug, Default)]
pub struct Own {
    /// What it has done so far.
    pub effects: Effects,
    undo: Vec<(Key, Option<Option<Row>>)>,
}

impl Own {
    /// Notes a change.
    pub fn set(&mut self, key: Key, row: Option<Row>) {
        let before = self.effects.insert(key, row);
        self.undo.push((key, before));
    }

    /// A mark to come back to.
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Undoes what was done since a mark.
    pub fn back_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            match self.undo.pop() {
                Some((key, Some(before))) => self.effects.insert(key, before),
                Some((key, None)) => self.effects.remove(&key),
                None => None,
            };
        }
    }
}
