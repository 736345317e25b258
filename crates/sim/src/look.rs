//! Statements that read: every row, scan and index scan is compared with the model at the snapshot
//! it must have had.

use crate::change::Target;
use crate::model::{Effects, Model};
use crate::session::{Session, Step};
use crate::values::{Row, V, index_columns, key_value, padded, short};
use crate::verify::{difference, key_of, read_index, read_table};
use evenkeel::{Direction, Isolation, LockWait, Range, TableDef, ValueRef};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a snapshot at `at` and the transaction's own changes show of a tree.
fn seen<'m>(model: &'m Model, own: &'m Effects, tree: u64, at: u64) -> BTreeMap<i64, &'m Row> {
    let mut rows = model.table_at(tree, at);
    for ((_, id), row) in own.range((tree, i64::MIN)..=(tree, i64::MAX)) {
        match row {
            Some(row) => rows.insert(*id, row),
            None => rows.remove(id),
        };
    }
    rows
}

impl Session {
    /// Runs one statement that reads.
    pub fn look(&mut self) -> Step {
        let Some(target) = self.target() else { return Ok(()) };
        match self.rng.below(8) {
            0..=2 => self.get(&target),
            3 => self.get_locked(&target),
            4 => self.scan(&target),
            5 => self.scan_locked(&target),
            _ => self.scan_index(&target),
        }
    }

    fn direction(&mut self) -> Direction {
        if self.rng.one_in(2) { Direction::Forward } else { Direction::Backward }
    }

    /// States that a plain read may have seen: the snapshot, or those since it began. What a
    /// SERIALIZABLE one has read is locked: the newest.
    fn states(&mut self, at: Option<u64>, low: u64) -> Vec<u64> {
        let serializable = self.open().level == Isolation::Serializable;
        match at {
            Some(at) => vec![at],
            None if serializable => vec![self.world.model.lock().last()],
            None => {
                let model = self.world.model.lock();
                model.states(low, model.last())
            }
        }
    }

    fn get(&mut self, target: &Target) -> Step {
        if self.open().level == Isolation::Serializable {
            return self.get_serializable(target);
        }
        let key = key_value(&target.name, target.id);
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        let open = self.open();
        let row = open.txn.table(&target.name).and_then(|mut t| t.get(&[key.value()]));
        match row.and_then(|row| row.map(|r| values_of(&r)).transpose()) {
            Ok(read) => self.check_get(target, at, read.as_ref()),
            Err(error) => self.failed("get", &error),
        }
    }

    fn check_get(&mut self, target: &Target, at: Option<u64>, read: Option<&Row>) -> Step {
        let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
        let key = key_of(&def, target.id);
        let states = self.states(at, target.low);
        let own = self.open().own.effects.get(&key).cloned();
        let model = self.world.model.lock();
        let fits =
            |want: Option<&Row>| want.map(|r| padded(r, &def)) == read.map(|r| padded(r, &def));
        let right = match &own {
            Some(row) => fits(row.as_ref()),
            None => states.iter().any(|cts| fits(model.row_at(key, *cts))),
        };
        if !right {
            let want = match &own {
                Some(row) => format!("{} (own)", short(row.as_ref())),
                None => short(model.row_at(key, states[0])),
            };
            let read = short(read);
            panic!("get of {key:?} at {at:?} (states {states:?}): read {read}, expected {want}");
        }
        Ok(())
    }

    fn get_serializable(&mut self, target: &Target) -> Step {
        let key = key_value(&target.name, target.id);
        let open = self.open();
        let row = open.txn.table(&target.name).and_then(|mut t| t.get(&[key.value()]));
        let low = self.world.model.lock().last();
        match row.and_then(|row| row.map(|r| values_of(&r)).transpose()) {
            // It is locked, absent or not: the newest state, and it stays.
            Ok(read) => {
                self.world.events.hit("serializable read");
                let now =
                    Target { low, name: target.name.clone(), def: target.def.clone(), ..*target };
                self.check_get(&now, None, read.as_ref())
            }
            Err(error) => self.lock_failed("serializable get", &error),
        }
    }

    fn lock_failed(&mut self, what: &str, error: &evenkeel::Error) -> Step {
        if error.kind() == evenkeel::Kind::Conflict && !self.world.sim.is_crashed() {
            self.world.events.hit("snapshot conflict of a locking read");
            assert!(self.open().at.is_some(), "{what}: a conflict without a snapshot: {error}");
        }
        self.failed(what, error)
    }

    fn get_locked(&mut self, target: &Target) -> Step {
        let key = key_value(&target.name, target.id);
        let wait = match self.rng.below(3) {
            0 => LockWait::Wait,
            1 => LockWait::NoWait,
            _ => LockWait::Skip,
        };
        let share = self.rng.one_in(3);
        let mut row = evenkeel::Row::new();
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|mut t| match share {
            true => t.get_for_share(&[key.value()], wait, &mut row),
            false => t.get_for_update(&[key.value()], wait, &mut row),
        });
        match done.and_then(|found| found.then(|| values_of(&row)).transpose()) {
            Ok(Some(read)) => {
                let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
                self.check_no_conflict("get for update", key_of(&def, target.id));
                let low = self.world.model.lock().last();
                let now = Target { low, name: target.name.clone(), def, ..*target };
                self.world.events.hit(if share { "row locked S" } else { "row locked X" });
                self.check_get(&now, None, Some(&read))
            }
            Ok(None) if wait == LockWait::Skip => {
                self.world.events.hit("locked row or no row skipped");
                Ok(())
            }
            Ok(None) => self.must_be_absent("get for update", target),
            Err(error) => self.lock_failed("get for update", &error),
        }
    }

    fn scan(&mut self, target: &Target) -> Step {
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        let (first, last) = (target.id, target.id + self.rng.below(self.world.shape.keys) as i64);
        let (low, high) = (key_value(&target.name, first), key_value(&target.name, last));
        let (low, high) = ([low.value()], [high.value()]);
        let range = Range { lower: Bound::Included(&low), upper: Bound::Excluded(&high) };
        let direction = self.direction();
        let open = self.open();
        let mut read = match read_table(&mut open.txn, &target.name, range, direction) {
            Ok(read) => read,
            Err(error) => return self.lock_failed("scan", &error),
        };
        if direction == Direction::Backward {
            read.reverse();
        }
        self.world.events.hit("range scanned");
        let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
        let tree = key_of(&def, 0).0;
        let states = self.states(at, target.low);
        let own = self.open().own.effects.clone();
        let model = self.world.model.lock();
        let wrong = |cts: u64| {
            let mut want = seen(&model, &own, tree, cts);
            want.retain(|id, _| (first..last).contains(id));
            difference(&read, &want, &def)
        };
        if states.iter().all(|cts| wrong(*cts).is_some()) {
            let why = wrong(states[0]).unwrap_or_default();
            panic!("scan {direction:?} of {} {first}..{last} at {at:?}: {why}", target.name);
        }
        Ok(())
    }

    fn scan_locked(&mut self, target: &Target) -> Step {
        let (first, last) = (target.id, target.id + 1 + self.rng.below(8) as i64);
        let (low, high) = (key_value(&target.name, first), key_value(&target.name, last));
        let (low, high) = ([low.value()], [high.value()]);
        let range = Range { lower: Bound::Included(&low), upper: Bound::Excluded(&high) };
        let direction = self.direction();
        let wait = if self.rng.one_in(2) { LockWait::Wait } else { LockWait::Skip };
        let mut read = Vec::new();
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|mut t| {
            t.scan_for_update(range, direction, wait, &mut |row| {
                read.push((crate::values::id_of(&V::from_engine(row.value(0)?)), values_of(row)?));
                Ok(true)
            })
        });
        if let Err(error) = done {
            return self.lock_failed("scan for update", &error);
        }
        self.world.events.hit("range scanned for update");
        for (id, row) in read {
            let low = self.world.model.lock().last();
            let now = Target { low, id, name: target.name.clone(), def: target.def.clone() };
            self.check_get(&now, None, Some(&row))?;
        }
        Ok(())
    }

    fn scan_index(&mut self, target: &Target) -> Step {
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        let Some(index) = self.some_index(&target.def) else { return Ok(()) };
        let columns = index_columns(&target.def, &index);
        let (direction, keys_only) = (self.direction(), self.rng.one_in(2));
        let low = self.world.model.lock().last();
        let open = self.open();
        let what = (&index[..], &columns[..]);
        let read = read_index(&mut open.txn, &target.name, what, direction, keys_only);
        let mut read = match read {
            Ok(read) => read,
            Err(error) if error.code() == evenkeel::Code::IndexTooYoung => {
                self.world.events.hit("index too young for a snapshot");
                return Ok(());
            }
            Err(error) => return self.lock_failed("index scan", &error),
        };
        self.world.events.hit(if keys_only { "index scanned alone" } else { "index scanned" });
        read.sort();
        let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
        let states = self.states(at, low);
        let own = self.open().own.effects.clone();
        let model = self.world.model.lock();
        let want = |cts: u64| {
            let rows = seen(&model, &own, key_of(&def, 0).0, cts);
            let entry = |(id, row): (i64, &Row)| {
                (columns.iter().map(|c| row[c - 1].clone()).collect::<Vec<V>>(), id)
            };
            let mut want: Vec<_> = rows.into_iter().map(entry).collect();
            want.sort();
            want
        };
        if states.iter().all(|cts| want(*cts) != read) {
            let want = want(states[0]);
            let lost: Vec<_> = want.iter().filter(|e| !read.contains(e)).take(3).collect();
            let extra: Vec<_> = read.iter().filter(|e| !want.contains(e)).take(3).collect();
            let odd = lost.iter().map(|e| e.1).chain(extra.iter().map(|e| e.1)).next().unwrap_or(0);
            let key = key_of(&def, odd);
            let history = (model.history(key), own.get(&key).map(|r| short(r.as_ref())));
            panic!(
                "row {odd}: {history:?}, index {}.{index} {direction:?} (keys only {keys_only}) at \
                 {at:?} of {states:?}: missing {lost:?}, too much {extra:?}, {} read, {} expected",
                target.name,
                read.len(),
                want.len()
            );
        }
        Ok(())
    }

    fn some_index(&mut self, def: &TableDef) -> Option<String> {
        let at = self.rng.below(def.indexes.len() as u64) as usize;
        def.indexes.get(at).map(|i| i.name.clone())
    }
}

/// Values behind the key.
fn values_of(row: &evenkeel::Row) -> Result<Row, evenkeel::Error> {
    let value = |i: usize| -> Result<V, evenkeel::Error> {
        let value: ValueRef<'_> = row.value(i)?;
        Ok(V::from_engine(value))
    };
    (1..row.len()).map(value).collect()
}
