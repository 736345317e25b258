//! The model: what the database must hold. It has rows by tree and key with their whole committed
//! history, tables by name, and prepared transactions. Every committed transaction is entered at
//! its timestamp before any other thread can run, so the model never lags behind the engine.
//!
//! Invariant: a commit is entered once, with a timestamp above all that were entered before it.

use crate::values::Row;
use evenkeel::{Database, Durability};
use std::collections::{BTreeMap, BTreeSet};

/// A row of a table: its tree (TRUNCATE makes a new one) and its number.
pub type Key = (u64, i64);

/// The changes of a transaction: the new row, or `None` for a delete.
pub type Effects = BTreeMap<Key, Option<Row>>;

#[derive(Clone, Debug)]
struct Version {
    cts: u64,
    row: Option<Row>,
}

/// The state of a prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The call to prepare has not returned: the transaction may or may not be prepared.
    Asked,
    /// Prepared: certain until a crash.
    Sure,
    /// Committed at this timestamp.
    Committed(u64),
    /// Rolled back, durably.
    RolledBack,
}

/// A prepared transaction.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its changes.
    pub effects: Effects,
    /// Its state.
    pub phase: Phase,
    /// Position of its record in the log.
    pub place: Place,
}

/// Position in the log of the record that prepares a transaction. If the record survives a crash,
/// so does all of the log before it; if it does not, the log behind it is lost as well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Commits up to this timestamp lie before the record.
    after: u64,
    /// Commits above this timestamp lie behind it. `None`: the call has not returned.
    before: Option<u64>,
    /// The positions of the call's beginning and of its return, among those of all calls.
    asked: u64,
    returned: Option<u64>,
    /// The durability of the record when the call returned.
    pub durability: Option<Durability>,
}

impl Place {
    /// True if this record certainly lies behind the other.
    fn is_behind(&self, other: &Place) -> bool {
        other.returned.is_some_and(|returned| returned < self.asked)
    }
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
    /// A schema change has begun whose outcome is unknown: any state before or after it is correct.
    pub in_doubt: bool,
    /// The table was in doubt before the present change. An error of that change does not end the
    /// doubt.
    pub was_in_doubt: bool,
    /// A session is changing the table.
    pub is_busy: bool,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    rows: BTreeMap<u64, BTreeMap<i64, Vec<Version>>>,
    commits: BTreeMap<u64, Vec<Key>>,
    /// Commits up to this timestamp are durable.
    acked: u64,
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Prepared transactions by id.
    pub prepared: BTreeMap<Vec<u8>, Prepared>,
    /// By tree, the greatest row number that the engine is known to have assigned; the next one is
    /// greater.
    pub given: BTreeMap<u64, u64>,
    /// Commits up to this timestamp are written. A kill of the process does not lose them. A crash
    /// of the machine does, also one that follows the kill before an open has found and synced
    /// them.
    written: u64,
    /// The process was killed, and the machine has not crashed since.
    is_killed: bool,
    /// Counts the beginnings and the returns of calls that prepare.
    calls: u64,
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

    /// The greatest row number that the engine is known to have assigned in a tree.
    pub fn given(&self, tree: u64) -> u64 {
        self.given.get(&tree).copied().unwrap_or(0)
    }

    /// Records that the engine assigned this number to a row of a tree.
    pub fn give(&mut self, tree: u64, number: u64) {
        let greatest = self.given.entry(tree).or_default();
        *greatest = (*greatest).max(number);
    }

    /// Records that a commit was acknowledged as durable; every earlier one is durable then.
    pub fn ack(&mut self, cts: u64) {
        self.acked = self.acked.max(cts);
    }

    /// Records that a commit was acknowledged with this durability.
    pub fn ack_at(&mut self, cts: u64, durability: Durability) {
        match durability {
            Durability::Sync => self.ack(cts),
            Durability::Write => self.written = self.written.max(cts),
            Durability::Lazy => {}
        }
    }

    /// Records that a call to prepare a transaction begins.
    pub fn ask(&mut self, xid: &[u8], effects: Effects) {
        self.calls += 1;
        let place = Place { after: self.last(), asked: self.calls, ..Place::default() };
        let prepared = Prepared { effects, phase: Phase::Asked, place };
        self.prepared.insert(xid.to_vec(), prepared);
    }

    /// Records that the call returned: the transaction is prepared with this durability.
    pub fn asked(&mut self, xid: &[u8], durability: Durability) {
        self.calls += 1;
        let (last, calls) = (self.last(), self.calls);
        if let Some(p) = self.prepared.get_mut(xid) {
            p.phase = Phase::Sure;
            let (before, returned) = (Some(last), Some(calls));
            p.place = Place { before, returned, durability: Some(durability), ..p.place };
        }
    }

    /// Records that the process was killed, but not the machine: everything written survives.
    pub fn killed(&mut self) {
        self.is_killed = true;
    }

    /// Records that the machine crashed: writes that were not synced may be lost.
    pub fn crashed(&mut self) {
        (self.written, self.is_killed) = (0, false);
        let written = |p: &&mut Prepared| p.place.durability == Some(Durability::Write);
        for prepared in self.prepared.values_mut().filter(written) {
            prepared.place.durability = Some(Durability::Lazy);
        }
    }

    /// Commits up to this timestamp survive the crash or kill for certain.
    pub fn kept(&self) -> u64 {
        if self.is_killed { self.acked.max(self.written) } else { self.acked }
    }

    /// True if a prepared transaction survives the crash or kill for certain.
    pub fn keeps(&self, prepared: &Prepared) -> bool {
        match prepared.place.durability {
            Some(Durability::Sync) => true,
            Some(Durability::Write) => self.is_killed,
            _ => false,
        }
    }

    /// Records that the log is damaged: commits above this timestamp may be lost.
    pub fn doubt_above(&mut self, cts: u64) {
        self.acked = self.acked.min(cts);
        self.written = self.written.min(cts);
    }

    /// Records that the database was closed: everything is durable.
    pub fn closed(&mut self) {
        self.ack(self.last());
        for prepared in self.prepared.values_mut().filter(|p| p.phase == Phase::Sure) {
            prepared.place.durability = Some(Durability::Sync);
        }
    }

    /// Compares the prepared transactions found with those expected, given that commits up to `cts`
    /// were found; returns the difference.
    pub fn prepared_differ(&self, found: &BTreeSet<Vec<u8>>, cts: u64) -> Option<String> {
        let name = |xid: &[u8]| String::from_utf8_lossy(xid).into_owned();
        for xid in found {
            let known = self.prepared.get(xid);
            let is_right = known.is_some_and(|p| match p.phase {
                Phase::Committed(at) => at > cts,
                Phase::RolledBack => false,
                Phase::Asked | Phase::Sure => true,
            });
            if !is_right {
                let phase = known.map(|p| &p.phase);
                return Some(format!("transaction {} is prepared, expected {phase:?}", name(xid)));
            }
            if let Some(p) = known.filter(|p| p.place.after > cts) {
                let (xid, after) = (name(xid), p.place.after);
                return Some(format!("transaction {xid} is prepared, commit {after} is lost"));
            }
        }
        let behind = |place: &Place| {
            let places = found.iter().filter_map(|xid| Some(self.prepared.get(xid)?.place));
            place.before.is_some_and(|before| before < cts)
                || places.into_iter().any(|other| other.is_behind(place))
        };
        let lost = self.prepared.iter().find(|(xid, p)| {
            let is_open = match p.phase {
                Phase::Sure => true,
                Phase::Committed(at) => at > cts,
                Phase::Asked | Phase::RolledBack => false,
            };
            is_open && !found.contains(*xid) && (self.keeps(p) || behind(&p.place))
        });
        lost.map(|(xid, _)| format!("transaction {} is not prepared any more", name(xid)))
    }

    /// Records the prepared transactions that were found as certain, and drops the others.
    pub fn keep_prepared(&mut self, found: &[Vec<u8>]) {
        self.prepared.retain(|xid, _| found.contains(xid));
        for prepared in self.prepared.values_mut() {
            prepared.phase = Phase::Sure;
            prepared.place = Place { durability: Some(Durability::Sync), ..Place::default() };
        }
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

    /// Timestamps of the commits not known to be durable, newest first, and last that of the newest
    /// durable one.
    pub fn candidates(&self) -> Vec<u64> {
        let kept = self.kept();
        let unsure = self.commits.range(kept + 1..).rev().map(|(cts, _)| *cts);
        unsure.chain([kept]).collect()
    }

    /// Drops the commits that a crash has lost, those above `cts`, and all history before: every
    /// snapshot after the restart sees what is left, so it gets the timestamp 0. (States of several
    /// timestamps may be equal; then it is unknown which of them survived.)
    pub fn cut(&mut self, cts: u64) {
        self.commits.clear();
        (self.acked, self.written, self.is_killed) = (0, 0, false);
        for rows in self.rows.values_mut() {
            rows.retain(|_, versions| {
                let row = at(versions, cts).cloned();
                *versions = vec![Version { cts: 0, row }];
                versions[0].row.is_some()
            });
        }
    }
}

/// The changes of one open transaction, with marks to roll back to.
#[derive(Debug, Default)]
pub struct Own {
    /// Its changes so far.
    pub effects: Effects,
    undo: Vec<(Key, Option<Option<Row>>)>,
}

impl Own {
    /// Records a change.
    pub fn set(&mut self, key: Key, row: Option<Row>) {
        let before = self.effects.insert(key, row);
        self.undo.push((key, before));
    }

    /// A mark to roll back to.
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the changes since a mark.
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

/// The table as the engine has it.
pub fn describe(db: &Database, name: &str) -> Table {
    let mut table = Table::default();
    if let Ok(def) = db.definition(name) {
        table.tree = u64::from(def.entry.tree.0);
        table.indexes = def.indexes.iter().map(|i| i.name.clone()).collect();
        table.columns = def.live_columns().iter().map(|c| (c.id, c.name.clone())).collect();
    }
    table
}
