//! Statements that change rows, and what must hold when they succeed or fail.

use crate::model::{Key, Model};
use crate::session::{Session, Step};
use crate::values::{COLUMNS, Row, UNIQUE, V, key_value, pad, random_row, random_value, short};
use crate::verify::key_of;
use evenkeel::{Code, Error, Kind, TableDef, ValueRef};
use std::sync::Arc;

/// Where a statement works.
pub struct Target {
    /// The table's name.
    pub name: String,
    /// Its definition before the statement.
    pub def: Arc<TableDef>,
    /// The row.
    pub id: i64,
    /// Newest commit before the statement.
    pub low: u64,
}

fn whole<'v>(key: &'v V, row: &'v [V]) -> Vec<ValueRef<'v>> {
    std::iter::once(key).chain(row).map(V::value).collect()
}

impl Session {
    /// A row of some table, by chance.
    pub fn target(&mut self) -> Option<Target> {
        let (name, def) = self.some_table()?;
        let keys = self.world.shape.keys;
        // Some sessions work at one end: splits and empty leaves there.
        let id = match self.rng.below(4) {
            0 => self.rng.below(keys / 8 + 1),
            _ => self.rng.below(keys),
        };
        let low = self.world.model.lock().last();
        self.world.op();
        Some(Target { name, def, id: id as i64, low })
    }

    /// Runs one statement that changes rows.
    pub fn change(&mut self) -> Step {
        let Some(target) = self.target() else { return Ok(()) };
        let deletes = self.world.shape.deletes;
        match self.rng.below(10 + deletes) {
            0..=2 => self.insert(target),
            3 => self.insert_or_ignore(target),
            4 => self.insert_many(target),
            5 => self.upsert(target),
            6..=9 => self.update(target),
            _ => self.delete(target),
        }
    }

    fn row_for(&mut self, target: &Target) -> Row {
        let columns = target.def.columns.len() - 1;
        random_row(&mut self.rng, columns, self.world.shape.sizes)
    }

    /// The definition now: fixed while the transaction uses the table, columns apart.
    fn key(&self, target: &Target) -> Key {
        match self.world.db.definition(&target.name) {
            Ok(def) => key_of(&def, target.id),
            Err(_) => key_of(&target.def, target.id),
        }
    }

    /// The newest version of a row that this transaction has locked.
    fn newest(&mut self, key: Key) -> Option<Row> {
        if let Some(own) = self.open().own.effects.get(&key) {
            return own.clone();
        }
        let model = self.world.model.lock();
        model.row_at(key, model.last()).cloned()
    }

    /// After a change or lock that succeeded: nobody younger than the snapshot has changed the row.
    pub fn check_no_conflict(&mut self, what: &str, key: Key) {
        let newest = self.world.model.lock().newest(key);
        let at = self.open().at;
        let own = self.open().own.effects.contains_key(&key);
        if let Some(at) = at.filter(|at| newest > *at && !own) {
            panic!("{what} of {key:?}: snapshot {at}, but a commit at {newest} was overlooked");
        }
    }

    /// Handles an error of a change, after checking that there was a reason for it.
    fn change_failed(&mut self, what: &str, target: &Target, row: &Row, error: &Error) -> Step {
        if self.world.sim.is_crashed() {
            return self.failed(what, error);
        }
        let number = self.open().number;
        self.world
            .trace(|| format!("txn {number}: {what} of {} {}: {error}", target.name, target.id));
        match error.kind() {
            Kind::Duplicate => {
                self.world.events.hit(match error.context("index") == Some(UNIQUE) {
                    true => "unique duplicate refused",
                    false => "primary key duplicate refused",
                });
                self.check_duplicate(what, target, row, error);
                Ok(())
            }
            Kind::Conflict => {
                self.world.events.hit("snapshot conflict");
                let at = self.open().at;
                assert!(at.is_some(), "{what}: a conflict without a snapshot: {error}");
                self.failed(what, error)
            }
            _ => self.failed(what, error),
        }
    }

    fn check_duplicate(&mut self, what: &str, target: &Target, row: &Row, error: &Error) {
        let key = self.key(target);
        let own = self.open().own.effects.clone();
        let model = self.world.model.lock();
        let u = row.get(COLUMNS - 2).filter(|u| **u != V::Null);
        let has_u = |r: &Row| u.is_some() && r.get(COLUMNS - 2) == u;
        let mine = own.iter().any(|(k, row)| {
            row.as_ref().is_some_and(|r| k.0 == key.0 && (k.1 == key.1 || has_u(r)))
        });
        let theirs = model.states(target.low, model.last()).iter().any(|cts| {
            model.row_at(key, *cts).is_some()
                || model.table_at(key.0, *cts).values().any(|r| has_u(r))
        });
        assert!(mine || theirs, "{what} of {key:?}, u {u:?}: {error}, but there is none");
    }

    /// Notes a new row after checking it against the unique index.
    fn note(&mut self, target: &Target, key: Key, row: Option<Row>) {
        if let Some(row) = &row {
            self.check_is_unique(target, key, row);
        }
        let number = self.open().number;
        self.world.trace(|| format!("txn {number}: {key:?} = {}", short(row.as_ref())));
        self.open().own.set(key, row);
    }

    fn check_is_unique(&mut self, target: &Target, key: Key, row: &Row) {
        let u = row.get(COLUMNS - 2);
        if u.is_none_or(|u| *u == V::Null) || !self.has_unique(target) {
            return;
        }
        let own = self.open().own.effects.clone();
        let model = self.world.model.lock();
        let committed = model.table_at(key.0, model.last());
        let theirs = committed.iter().filter(|(id, _)| !own.contains_key(&(key.0, **id)));
        let mut all = theirs.map(|(id, r)| (*id, *r)).chain(
            own.iter().filter(|(k, _)| k.0 == key.0).filter_map(|(k, r)| Some((k.1, r.as_ref()?))),
        );
        if let Some((id, _)) = all.find(|(id, r)| *id != key.1 && r.get(COLUMNS - 2) == u) {
            panic!("row {key:?} was written with u {u:?}, which row {id} has");
        }
    }

    /// True if the table's unique index has been valid for longer than the statement.
    fn has_unique(&self, target: &Target) -> bool {
        let model = self.world.model.lock();
        let table = model.tables.get(&target.name);
        table.is_some_and(|t| !t.is_busy && t.indexes.contains(UNIQUE))
            && target.def.index(UNIQUE).is_ok()
    }

    fn insert(&mut self, target: Target) -> Step {
        let row = self.row_for(&target);
        let key = key_value(&target.name, target.id);
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|mut t| t.insert(&whole(&key, &row)));
        match done {
            Ok(_) => self.inserted("insert", &target, row),
            Err(error) => self.change_failed("insert", &target, &row, &error),
        }
    }

    fn inserted(&mut self, what: &str, target: &Target, row: Row) -> Step {
        let key = self.key(target);
        let before = self.newest(key);
        assert!(before.is_none(), "{what} of {key:?} over {}", short(before.as_ref()));
        self.check_no_conflict(what, key);
        self.note(target, key, Some(row));
        Ok(())
    }

    fn insert_or_ignore(&mut self, target: Target) -> Step {
        let row = self.row_for(&target);
        let key = key_value(&target.name, target.id);
        let open = self.open();
        let table = open.txn.table(&target.name);
        match table.and_then(|mut t| t.insert_or_ignore(&whole(&key, &row))) {
            Ok(true) => self.inserted("insert or ignore", &target, row),
            Ok(false) => {
                self.world.events.hit("insert ignored");
                let none = Error::new(Code::DuplicateKey);
                self.check_duplicate("insert or ignore", &target, &row, &none);
                Ok(())
            }
            Err(error) => self.change_failed("insert or ignore", &target, &row, &error),
        }
    }

    fn insert_many(&mut self, target: Target) -> Step {
        let n = 2 + self.rng.below(12) as i64;
        let rows: Vec<Row> = (0..n).map(|_| self.row_for(&target)).collect();
        let keys: Vec<V> = (0..n).map(|i| key_value(&target.name, target.id + i)).collect();
        let values: Vec<Vec<ValueRef<'_>>> =
            keys.iter().zip(&rows).map(|(key, row)| whole(key, row)).collect();
        let open = self.open();
        let table = open.txn.table(&target.name);
        let done = table.and_then(|mut t| t.insert_many(values.iter().map(|v| &v[..])));
        match done {
            Ok(_) => {
                for (i, row) in rows.into_iter().enumerate() {
                    let at = Target { id: target.id + i as i64, ..self.same(&target) };
                    self.inserted("insert many", &at, row)?;
                }
                Ok(())
            }
            Err(error) if error.kind() == Kind::Duplicate => {
                self.world.events.hit("statement undone for a duplicate");
                Ok(())
            }
            Err(error) => self.failed("insert many", &error),
        }
    }

    fn same(&self, target: &Target) -> Target {
        Target { name: target.name.clone(), def: target.def.clone(), ..*target }
    }

    fn upsert(&mut self, target: Target) -> Step {
        let mut row = self.row_for(&target);
        // Only the primary key may clash: which row is meant is then certain.
        row[COLUMNS - 2] = V::Null;
        let key = key_value(&target.name, target.id);
        let change = random_value(&mut self.rng, 0, self.world.shape.sizes);
        let by_change = self.rng.one_in(2);
        let changes = [(1, change.value())];
        let changes = if by_change { &changes[..] } else { &[] };
        let open = self.open();
        let table = open.txn.table(&target.name);
        match table.and_then(|mut t| t.upsert(&whole(&key, &row), changes)) {
            Ok(true) => self.inserted("upsert", &target, row),
            Ok(false) => {
                self.world.events.hit("upsert changed a row");
                if by_change {
                    return self.updated("upsert", &target, &[(1, change)]);
                }
                let all: Vec<_> = row.into_iter().enumerate().map(|(i, v)| (i + 1, v)).collect();
                self.updated("upsert", &target, &all)
            }
            Err(error) => self.change_failed("upsert", &target, &row, &error),
        }
    }

    fn update(&mut self, target: Target) -> Step {
        let columns = target.def.columns.len() as u64;
        let mut changes: Vec<(usize, V)> = Vec::new();
        for _ in 0..=self.rng.below(2) {
            let column = 1 + self.rng.below(columns - 1) as usize;
            if changes.iter().all(|(c, _)| *c != column) {
                let value = random_value(&mut self.rng, column - 1, self.world.shape.sizes);
                changes.push((column, value));
            }
        }
        let key = key_value(&target.name, target.id);
        let refs: Vec<_> = changes.iter().map(|(c, v)| (*c, v.value())).collect();
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|mut t| t.update(&[key.value()], &refs));
        match done {
            Ok(true) => self.updated("update", &target, &changes),
            Ok(false) => self.must_be_absent("update", &target),
            Err(error) => {
                let mut row = vec![V::Null; COLUMNS - 1];
                for (column, value) in changes.iter().filter(|(c, _)| *c < COLUMNS) {
                    row[column - 1] = value.clone();
                }
                self.change_failed("update", &target, &row, &error)
            }
        }
    }

    fn updated(&mut self, what: &str, target: &Target, changes: &[(usize, V)]) -> Step {
        let key = self.key(target);
        let Some(mut row) = self.newest(key) else { panic!("{what} of {key:?}: no such row") };
        self.check_no_conflict(what, key);
        for (column, value) in changes {
            if row.len() < *column {
                pad(&mut row, &target.def);
            }
            row[column - 1] = value.clone();
        }
        self.note(target, key, Some(row));
        Ok(())
    }

    fn delete(&mut self, target: Target) -> Step {
        let key = key_value(&target.name, target.id);
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|mut t| t.delete(&[key.value()]));
        match done {
            Ok(true) => {
                let key = self.key(&target);
                assert!(self.newest(key).is_some(), "delete of {key:?}: no such row");
                self.check_no_conflict("delete", key);
                self.note(&target, key, None);
                Ok(())
            }
            Ok(false) => self.must_be_absent("delete", &target),
            Err(error) => self.change_failed("delete", &target, &Vec::new(), &error),
        }
    }

    /// The row was said to be absent: at some moment since the statement began it was.
    pub fn must_be_absent(&mut self, what: &str, target: &Target) -> Step {
        let key = self.key(target);
        let own = self.open().own.effects.get(&key).cloned();
        let model = self.world.model.lock();
        let absent = match own {
            Some(row) => row.is_none(),
            None => absent_at_some_time(&model, key, target.low),
        };
        assert!(absent, "{what} of {key:?}: said to be absent, but it is there");
        Ok(())
    }
}

fn absent_at_some_time(model: &Model, key: Key, low: u64) -> bool {
    model.states(low, model.last()).iter().any(|cts| model.row_at(key, *cts).is_none())
}
