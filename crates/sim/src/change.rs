//! Statements that change rows, and the checks of their success or failure.

use crate::kind::Kind;
use crate::model::{Key, Model};
use crate::session::{Session, Step};
use crate::values::{
    B, BASE, N, Row, U, UNIQUE, V, live, random_row, random_value, short, value_at, whole,
};
use crate::verify::key_of;
use evenkeel::{Code, Error, LargeValue, TableDef, TableRef, Value, ValueRef};
use std::sync::Arc;

/// The row that a statement works on, and the state before the statement.
pub struct Target {
    /// The table's name.
    pub name: String,
    /// The table's definition before the statement.
    pub def: Arc<TableDef>,
    /// The row's number.
    pub id: i64,
    /// Timestamp of the newest commit before the statement.
    pub low: u64,
    /// The greatest row number that the engine had assigned before the statement.
    pub given: u64,
    /// Moment of `Unsure` before the statement.
    pub moment: u64,
}

impl Target {
    /// The kind of the table.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.name)
    }

    /// The key columns of the row.
    pub fn key(&self) -> Vec<V> {
        self.kind().key(self.id)
    }

    /// The same target with another row.
    pub fn with_id(&self, id: i64) -> Target {
        let (name, def) = (self.name.clone(), self.def.clone());
        Target { name, def, id, ..*self }
    }
}

/// Converts values for the engine.
pub fn refs(values: &[V]) -> Vec<ValueRef<'_>> {
    values.iter().map(V::value).collect()
}

impl Session {
    /// Draws a row of some table.
    pub fn target(&mut self) -> Option<Target> {
        let (name, def) = self.some_table()?;
        let keys = self.world.shape.keys;
        // Some sessions work at one end of the table, which causes splits and empty leaves there.
        let id = match self.rng.below(4) {
            0 => self.rng.below(keys / 8 + 1),
            _ => self.rng.below(keys),
        };
        let (low, given) = {
            let model = self.world.model.lock();
            (model.last(), model.given(key_of(&def, 0).0))
        };
        let moment = self.world.unsure.lock().now();
        self.world.op();
        Some(Target { name, def, id: id as i64, low, given, moment })
    }

    /// Runs one statement that changes rows.
    pub fn change(&mut self) -> Step {
        let Some(mut target) = self.target() else { return Ok(()) };
        let deletes = self.world.shape.deletes;
        let mut what = self.rng.below(11 + deletes);
        if !target.kind().has_key() {
            // A heap never uses a number twice.
            target.id = self.world.next() as i64;
            what %= 6;
        }
        self.touch(target.id);
        match what {
            0..=2 => self.insert(target),
            3 => self.insert_or_ignore(target),
            4 => self.insert_many(target),
            5 => self.bulk_load(target),
            6 => self.upsert(target),
            7..=10 => self.update(target),
            _ => self.delete(target),
        }
    }

    fn row_for(&mut self, target: &Target) -> Row {
        random_row(&mut self.rng, &target.def, self.world.shape.sizes)
    }

    /// The key by the present definition: it is fixed while the transaction uses the table, except
    /// for its columns.
    fn key(&self, target: &Target) -> Key {
        let db = &self.world.db;
        // The table was renamed meanwhile, and perhaps truncated before that: then it has another
        // tree.
        let renamed = || {
            let all = db.tables().into_iter().filter_map(|name| db.definition(&name).ok());
            all.into_iter().find(|def| def.id == target.def.id)
        };
        let now = db.definition(&target.name).ok().or_else(renamed);
        key_of(now.as_deref().unwrap_or(&target.def), target.id)
    }

    /// True if columns were added or dropped since the statement began. Then the model cannot know
    /// which value went into which column, and the transaction is rolled back.
    fn is_other_format(&self, target: &Target) -> bool {
        let now = self.world.db.definition(&target.name);
        now.is_ok_and(|now| live(&now) != live(&target.def))
    }

    /// The newest version of a row that this transaction has locked.
    fn newest(&mut self, key: Key) -> Option<Row> {
        if let Some(own) = self.open().own.effects.get(&key) {
            return own.clone();
        }
        let model = self.world.model.lock();
        model.row_at(key, model.last()).cloned()
    }

    /// Checks, after a change or lock that succeeded, that no commit newer than the snapshot has
    /// changed the row.
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
            evenkeel::Kind::Duplicate => {
                self.world.events.hit(match error.context("index") == Some(UNIQUE) {
                    true => "unique duplicate refused",
                    false => "primary key duplicate refused",
                });
                self.check_duplicate(what, target, row, error);
                Ok(())
            }
            evenkeel::Kind::Conflict => {
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
        let u = row.get(U).filter(|u| **u != V::Null);
        let has_u = |r: &Row| u.is_some() && r.get(U) == u;
        let mine = own.iter().any(|(k, row)| {
            row.as_ref().is_some_and(|r| k.0 == key.0 && (k.1 == key.1 || has_u(r)))
        });
        let theirs = model.states(target.low, model.last()).iter().any(|cts| {
            model.row_at(key, *cts).is_some()
                || model.table_at(key.0, *cts).values().any(|r| has_u(r))
        });
        assert!(mine || theirs, "{what} of {key:?}, u {u:?}: {error}, but there is none");
    }

    /// Records a new row in the model after checking it against the unique index.
    fn note(&mut self, target: &Target, key: Key, row: Option<Row>) {
        if let Some(row) = &row {
            self.check_is_unique(target, key, row);
        }
        let number = self.open().number;
        self.world.trace(|| format!("txn {number}: {key:?} = {}", short(row.as_ref())));
        self.open().own.set(key, row);
    }

    fn check_is_unique(&mut self, target: &Target, key: Key, row: &Row) {
        let u = row.get(U);
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
        if let Some((id, _)) = all.find(|(id, r)| *id != key.1 && r.get(U) == u) {
            panic!("row {key:?} was written with u {u:?}, which row {id} has");
        }
    }

    /// True if the table's unique index has been valid since before the statement.
    fn has_unique(&self, target: &Target) -> bool {
        let model = self.world.model.lock();
        let table = model.tables.get(&target.name);
        table.is_some_and(|t| !t.is_busy && t.indexes.contains(UNIQUE))
            && target.def.index(UNIQUE).is_ok()
    }

    /// Writes some values of b as separate streams, before the row.
    fn streamed(
        &mut self,
        target: &Target,
        value: Option<&V>,
    ) -> Result<Vec<(usize, LargeValue)>, Error> {
        let Some(V::Text(text)) = value else { return Ok(Vec::new()) };
        let long = self.world.shape.sizes.large_one_in > 0 && text.len() >= 1_000;
        let indexed = target.def.indexes.iter().any(|i| i.name == "by_b");
        if !long || indexed || self.rng.one_in(2) {
            return Ok(Vec::new());
        }
        let piece = 1 + self.rng.below(9_000) as usize;
        let mut stream = self.open().txn.table(&target.name)?.large_value()?;
        for bytes in text.as_bytes().chunks(piece) {
            stream.append(bytes)?;
        }
        self.world.events.hit("long value written as a stream");
        Ok(vec![(target.kind().key_columns() + B, stream.finish()?)])
    }

    fn insert(&mut self, target: Target) -> Step {
        let row = self.row_for(&target);
        let (key, def) = (target.key(), target.def.clone());
        let done = self.streamed(&target, row.get(B)).and_then(|large| {
            let values = whole(&def, &key, &row);
            let table = self.open().txn.table(&target.name)?;
            match large.is_empty() {
                true => table.insert(&values),
                false => table.insert_large(&values, large),
            }
        });
        match done {
            Ok(number) => {
                let row = self.numbered("insert", &target, row, number);
                self.inserted("insert", &target, row)
            }
            Err(error) => self.change_failed("insert", &target, &row, &error),
        }
    }

    /// The row with the number that the engine gave it, if the caller knows that number. The number
    /// must exceed all that were given before the statement, also before the last restart.
    fn numbered(&self, what: &str, target: &Target, mut row: Row, number: Option<u64>) -> Row {
        if !target.kind().is_numbered() {
            assert!(number.is_none(), "{what} gave {number:?} in {}", target.name);
            return row;
        }
        let Some(number) = number else {
            row[N] = V::Gone;
            return row;
        };
        row[N] = V::Int(number as i64);
        let tree = self.key(target).0;
        // TRUNCATE gave the table another tree, whose numbers start again.
        if tree == key_of(&target.def, 0).0 {
            let given = target.given;
            assert!(number > given, "{what} gave {number} in {}, behind {given}", target.name);
            self.world.events.add("number above all before", u64::from(given > 0));
        }
        self.world.model.lock().give(tree, number);
        row
    }

    fn inserted(&mut self, what: &str, target: &Target, row: Row) -> Step {
        if self.is_other_format(target) {
            return self.end_rollback();
        }
        let key = self.key(target);
        let before = self.newest(key);
        assert!(before.is_none(), "{what} of {key:?} over {}", short(before.as_ref()));
        if target.kind().is_clustered() {
            self.check_no_conflict(what, key);
        } else if self.open().at.is_some_and(|at| self.world.model.lock().newest(key) > at) {
            // Another row now has the key that the deleted row had: the model would see both.
            return self.end_rollback();
        }
        self.note(target, key, Some(row));
        Ok(())
    }

    fn insert_or_ignore(&mut self, target: Target) -> Step {
        let row = self.row_for(&target);
        let key = target.key();
        let open = self.open();
        let table = open.txn.table(&target.name);
        match table.and_then(|t| t.insert_or_ignore(&whole(&target.def, &key, &row))) {
            Ok(true) => {
                let row = self.numbered("insert or ignore", &target, row, None);
                self.inserted("insert or ignore", &target, row)
            }
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
        self.insert_rows("insert many", &target, n, |table, rows| {
            let rows: Vec<Vec<ValueRef<'_>>> =
                rows.iter().map(|r| r.iter().map(Value::as_ref).collect()).collect();
            table.insert_many(rows.iter().map(|r| &r[..]))
        })
    }

    fn bulk_load(&mut self, target: Target) -> Step {
        let n = 1 + self.rng.below(60) as i64;
        self.insert_rows("bulk load", &target, n, |table, rows| {
            let loaded = table.bulk_load(rows)?;
            assert_eq!(loaded, rows.len() as u64);
            Ok(None)
        })
    }

    /// Inserts rows in one statement, in key order. `f` returns the number of the first row.
    fn insert_rows(
        &mut self,
        what: &'static str,
        target: &Target,
        n: i64,
        f: impl FnOnce(TableRef<'_>, &[Vec<Value>]) -> Result<Option<u64>, Error>,
    ) -> Step {
        let kind = target.kind();
        let mut ids: Vec<i64> = (target.id..target.id + n).collect();
        if !kind.has_key() {
            ids = ids.iter().map(|_| self.world.next() as i64).collect();
        }
        ids.sort_by_key(|id| kind.rank(*id));
        ids.iter().for_each(|id| self.touch(*id));
        let rows: Vec<Row> = ids.iter().map(|_| self.row_for(target)).collect();
        let owned = |(id, row): (&i64, &Row)| -> Vec<Value> {
            let key = kind.key(*id);
            whole(&target.def, &key, row).into_iter().map(ValueRef::to_owned).collect()
        };
        let values: Vec<Vec<Value>> = ids.iter().zip(&rows).map(owned).collect();
        let table = self.open().txn.table(&target.name);
        match table.and_then(|table| f(table, &values)) {
            Ok(mut number) => {
                self.world.events.hit(what);
                for (id, row) in ids.into_iter().zip(rows) {
                    if self.is_open() {
                        let row = self.numbered(what, target, row, number.take());
                        self.inserted(what, &target.with_id(id), row)?;
                    }
                }
                Ok(())
            }
            Err(error) if error.kind() == evenkeel::Kind::Duplicate => {
                self.world.events.hit("statement undone for a duplicate");
                Ok(())
            }
            Err(error) => self.failed(what, &error),
        }
    }

    fn upsert(&mut self, target: Target) -> Step {
        let mut row = self.row_for(&target);
        // Only the primary key may cause a duplicate: then it is certain which row is meant.
        row[U] = V::Null;
        let key = target.key();
        let change = random_value(&mut self.rng, 0, self.world.shape.sizes);
        let by_change = self.rng.one_in(2);
        let changes = [(target.kind().key_columns(), change.value())];
        let changes = if by_change { &changes[..] } else { &[] };
        let open = self.open();
        let table = open.txn.table(&target.name);
        match table.and_then(|t| t.upsert(&whole(&target.def, &key, &row), changes)) {
            Ok(true) => self.inserted("upsert", &target, row),
            Ok(false) => {
                self.world.events.hit("upsert changed a row");
                if by_change {
                    return self.updated("upsert", &target, &[(0, change)]);
                }
                let all: Vec<_> = row.into_iter().enumerate().collect();
                self.updated("upsert", &target, &all)
            }
            Err(error) => self.change_failed("upsert", &target, &row, &error),
        }
    }

    fn update(&mut self, target: Target) -> Step {
        let places: Vec<usize> = live(&target.def).into_iter().flatten().collect();
        let mut changes: Vec<(usize, V)> = Vec::new();
        for _ in 0..=self.rng.below(2) {
            let at = places[self.rng.below(places.len() as u64) as usize];
            if changes.iter().all(|(c, _)| *c != at) {
                let value = random_value(&mut self.rng, at, self.world.shape.sizes);
                changes.push((at, value));
            }
        }
        let key = target.key();
        let b = changes.iter().find(|(at, _)| *at == B).map(|(_, b)| b.clone());
        let done = self.streamed(&target, b.as_ref()).and_then(|large| {
            let first = target.kind().key_columns();
            let position = |at: usize| places.iter().position(|p| *p == at).unwrap_or(0) + first;
            let plain = changes.iter().filter(|(at, _)| large.is_empty() || *at != B);
            let values: Vec<_> = plain.map(|(at, v)| (position(*at), v.value())).collect();
            let table = self.open().txn.table(&target.name)?;
            match large.is_empty() {
                true => table.update(&refs(&key), &values),
                false => table.update_large(&refs(&key), &values, large),
            }
        });
        match done {
            Ok(true) => self.updated("update", &target, &changes),
            Ok(false) => self.must_be_absent("update", &target),
            Err(error) => {
                let mut row = vec![V::Null; BASE];
                for (at, value) in changes.iter().filter(|(at, _)| *at < BASE) {
                    row[*at] = value.clone();
                }
                self.change_failed("update", &target, &row, &error)
            }
        }
    }

    fn updated(&mut self, what: &str, target: &Target, changes: &[(usize, V)]) -> Step {
        if self.is_other_format(target) {
            return self.end_rollback();
        }
        let key = self.key(target);
        let Some(mut row) = self.newest(key) else { panic!("{what} of {key:?}: no such row") };
        self.check_no_conflict(what, key);
        for (at, value) in changes {
            while row.len() <= *at {
                let next = value_at(&row, &target.def, row.len());
                row.push(next);
            }
            row[*at] = value.clone();
        }
        self.note(target, key, Some(row));
        Ok(())
    }

    fn delete(&mut self, target: Target) -> Step {
        let key = target.key();
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|t| t.delete(&refs(&key)));
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

    /// Checks a report that the row is absent: it must have been absent at some moment since the
    /// statement began.
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
