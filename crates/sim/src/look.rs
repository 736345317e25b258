//! Statements that read. Each row, scan and index scan is compared with the model at the snapshot
//! that it must have had.

use crate::change::{Target, refs};
use crate::kind::Kind;
use crate::model::{Effects, Model};
use crate::read::{How, InOrder, difference, entries_differ, entries_of};
use crate::read::{read_index, read_table, row_values};
use crate::session::{Session, Step};
use crate::values::{Row, V, index_parts, same, short};
use crate::verify::key_of;
use evenkeel::{Direction, Error, Isolation, LockWait, Range, TableDef, ValueRef};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The rows of a tree that a snapshot at `at` and the transaction's own changes show.
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
        self.world.op();
        if !target.kind().has_key() {
            return match self.rng.below(4) {
                0 | 1 => self.scan(&target),
                _ => self.scan_index(&target),
            };
        }
        match self.rng.below(10) {
            0..=2 => self.get(&target),
            3 => self.get_locked(&target),
            4 => self.scan(&target),
            5 => self.scan_locked(&target),
            6 => self.get_many(&target),
            7 => self.first_or_last(&target),
            _ => self.scan_index(&target),
        }
    }

    fn direction(&mut self) -> Direction {
        if self.rng.one_in(2) { Direction::Forward } else { Direction::Backward }
    }

    /// States that a plain read may have seen: that of the snapshot, or those since the read began.
    /// A SERIALIZABLE read locks what it reads, so it sees the newest state.
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

    /// True if a dirty read may have seen any value in this row.
    fn is_unsure(&mut self, target: &Target, id: i64) -> bool {
        let dirty = self.open().level == Isolation::ReadUncommitted;
        dirty && self.world.unsure.lock().since(id, target.moment)
    }

    /// Reads one row from the engine, in the terms of the model.
    fn get_row(&mut self, target: &Target) -> Result<Option<Row>, Error> {
        let key = target.key();
        let row = self.open().txn.table(&target.name)?.get(&refs(&key))?;
        row.map(|row| values_of(&row, target)).transpose()
    }

    fn get(&mut self, target: &Target) -> Step {
        if self.open().level == Isolation::Serializable {
            return self.get_serializable(target);
        }
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        match self.get_row(target) {
            Ok(read) => self.check_get(target, at, read.as_ref()),
            Err(error) => self.failed("get", &error),
        }
    }

    fn check_get(&mut self, target: &Target, at: Option<u64>, read: Option<&Row>) -> Step {
        let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
        if self.is_unsure(target, target.id) {
            return Ok(());
        }
        let key = key_of(&def, target.id);
        let states = self.states(at, target.low);
        let own = self.open().own.effects.get(&key).cloned();
        let model = self.world.model.lock();
        let fits = |want: Option<&Row>| same(read, want, &def);
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
        let row = self.get_row(target);
        let low = self.world.model.lock().last();
        match row {
            // The row is locked, whether it exists or not: the read shows the newest state, and
            // that state stays.
            Ok(read) => {
                self.world.events.hit("serializable read");
                let now = Target { low, ..target.with_id(target.id) };
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
        let key = target.key();
        let wait = match self.rng.below(3) {
            0 => LockWait::Wait,
            1 => LockWait::NoWait,
            _ => LockWait::Skip,
        };
        let share = self.rng.one_in(3);
        let mut row = evenkeel::Row::new();
        let open = self.open();
        let done = open.txn.table(&target.name).and_then(|t| match share {
            true => t.get_for_share(&refs(&key), wait, &mut row),
            false => t.get_for_update(&refs(&key), wait, &mut row),
        });
        match done.and_then(|found| found.then(|| values_of(&row, target)).transpose()) {
            Ok(Some(read)) => {
                let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
                self.check_no_conflict("get for update", key_of(&def, target.id));
                let low = self.world.model.lock().last();
                let now = Target { low, ..target.with_id(target.id) };
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

    fn get_many(&mut self, target: &Target) -> Step {
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        let ids: Vec<i64> = (0..1 + self.rng.below(6) as i64).map(|i| target.id + 3 * i).collect();
        let keys: Vec<Vec<V>> = ids.iter().map(|id| target.kind().key(*id)).collect();
        let keys: Vec<_> = keys.iter().map(|key| refs(key)).collect();
        let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        let mut read: BTreeMap<i64, Row> = BTreeMap::new();
        let done = self.open().txn.table(&target.name).and_then(|t| {
            t.get_many(&keys, &mut |i, row| {
                read.insert(ids[i], values_of(row, target)?);
                Ok(())
            })
        });
        if let Err(error) = done {
            return self.lock_failed("get many", &error);
        }
        self.world.events.hit("rows read by keys");
        // The rows are locked one after the other, or each is read at its own moment.
        for id in ids {
            let serializable = self.open().level == Isolation::Serializable;
            if !serializable {
                self.check_get(&target.with_id(id), at, read.get(&id))?;
            }
        }
        Ok(())
    }

    fn first_or_last(&mut self, target: &Target) -> Step {
        if !target.kind().is_clustered() || self.open().level == Isolation::ReadUncommitted {
            return Ok(());
        }
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        let first = self.rng.one_in(2);
        let table = self.open().txn.table(&target.name);
        let done = table.and_then(|t| if first { t.first() } else { t.last() });
        let read = match done.and_then(|r| r.map(|r| row_values(&r, &target.def)).transpose()) {
            Ok(read) => read,
            Err(error) => return self.lock_failed("first or last", &error),
        };
        self.world.events.hit("first or last row read");
        let read: InOrder = read.into_iter().collect();
        let kind = target.kind();
        self.check_rows(target, at, "first or last", &read, |rows| {
            let ids = rows.keys().copied();
            let end = match first {
                true => ids.min_by_key(|id| kind.rank(*id)),
                false => ids.max_by_key(|id| kind.rank(*id)),
            };
            rows.retain(|id, _| Some(*id) == end);
        })
    }

    /// Draws a range of the key: all of it, between two rows, or one group of pairs.
    fn some_range(&mut self, target: &Target) -> (Vec<V>, Vec<V>, Between) {
        let kind = target.kind();
        let other = target.id + self.rng.below(self.world.shape.keys) as i64;
        let (low, high) = match kind.rank(target.id) <= kind.rank(other) {
            true => (target.id, other),
            false => (other, target.id),
        };
        if !kind.is_clustered() || self.rng.one_in(8) {
            return (Vec::new(), Vec::new(), Between::All);
        }
        if kind == Kind::Pair && self.rng.one_in(2) {
            let group = kind.key(low)[..1].to_vec();
            return (group.clone(), group, Between::Group(low));
        }
        (kind.key(low), kind.key(high), Between::Rows(low, high))
    }

    fn scan(&mut self, target: &Target) -> Step {
        let at = match self.snapshot() {
            Ok(at) => at,
            Err(error) => return self.failed("snapshot", &error),
        };
        let (low, high, between) = self.some_range(target);
        let (low, high) = (refs(&low), refs(&high));
        let range = between.range(&low, &high);
        let direction = self.direction();
        let open = self.open();
        let mut read = match read_table(&mut open.txn, &target.def, range, direction) {
            Ok(read) => read,
            Err(error) => return self.lock_failed("scan", &error),
        };
        if direction == Direction::Backward {
            read.reverse();
        }
        self.world.events.hit(match between {
            Between::All => "table scanned",
            Between::Rows(..) => "range scanned",
            Between::Group(_) => "rows counted by a prefix",
        });
        let kind = target.kind();
        let what = format!("scan {direction:?} {between:?}");
        self.check_rows(target, at, &what, &read, |rows| {
            rows.retain(|id, _| between.contains(kind, *id));
        })
    }

    /// Compares rows that were read, in forward order, with the rows of a state that `keep`
    /// retains.
    fn check_rows(
        &mut self,
        target: &Target,
        at: Option<u64>,
        what: &str,
        read: &InOrder,
        keep: impl Fn(&mut BTreeMap<i64, &Row>),
    ) -> Step {
        let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
        let tree = key_of(&def, 0).0;
        let states = self.states(at, target.low);
        let own = self.open().own.effects.clone();
        let dirty = self.open().level == Isolation::ReadUncommitted;
        let (model, unsure) = (self.world.model.lock(), self.world.unsure.lock());
        let is_sure = |id: i64| !dirty || !unsure.since(id, target.moment);
        let mut read = read.clone();
        read.retain(|(id, _)| is_sure(*id));
        let wrong = |cts: u64| {
            let mut want = seen(&model, &own, tree, cts);
            keep(&mut want);
            want.retain(|id, _| is_sure(*id));
            difference(&read, &want, &def)
        };
        if states.iter().all(|cts| wrong(*cts).is_some()) {
            let why = wrong(states[0]).unwrap_or_default();
            panic!("{what} of {} at {at:?} of {states:?}: {why}", target.name);
        }
        Ok(())
    }

    fn scan_locked(&mut self, target: &Target) -> Step {
        let kind = target.kind();
        let last = target.id + 1 + self.rng.below(8) as i64;
        let (low, high) = (kind.key(target.id), kind.key(last));
        let (low, high) = (refs(&low), refs(&high));
        let mut range = Range { lower: Bound::Included(&low), upper: Bound::Excluded(&high) };
        if !kind.is_clustered() {
            range = Range::ALL;
        }
        let direction = self.direction();
        let wait = if self.rng.one_in(2) { LockWait::Wait } else { LockWait::Skip };
        let by_index = self.some_index(&target.def).filter(|_| self.rng.one_in(4));
        let mut read = Vec::new();
        let mut keep = |row: &evenkeel::Row| {
            read.push(row_values(row, &target.def)?);
            Ok(read.len() < 20)
        };
        let done = self.open().txn.table(&target.name).and_then(|t| match by_index {
            Some(index) => t.index(&index)?.scan_for_update(Range::ALL, direction, wait, &mut keep),
            None => t.scan_for_update(range, direction, wait, &mut keep),
        });
        if let Err(error) = done {
            return self.lock_failed("scan for update", &error);
        }
        self.world.events.hit("range scanned for update");
        for (id, row) in read {
            let low = self.world.model.lock().last();
            let now = Target { low, ..target.with_id(id) };
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
        let parts = index_parts(&target.def, &index);
        let (direction, keys_only) = (self.direction(), self.rng.one_in(2));
        let low = self.world.model.lock().last();
        let value = match (self.rng.below(3), parts.first()) {
            (0, Some((Ok(at), _))) => {
                let value = crate::values::random_value(&mut self.rng, *at, self.world.shape.sizes);
                Some(value).filter(|v| !matches!(v, V::Text(t) if t.len() > 1_000))
            }
            _ => None,
        };
        let bound = value.as_ref().map(|v| [v.value()]);
        let range = bound.as_ref().map_or(Range::ALL, |v| Range::prefix(v));
        let how = How { index: &index, parts: &parts, range, direction, keys_only };
        // A client that stops in the middle of its scan, while other sessions continue (D6).
        let (world, mut left) = (self.world.clone(), self.rng.below(200));
        let mut idle = || {
            if left == 0 {
                world.idle();
            }
            left = left.wrapping_sub(1);
        };
        let read = match read_index(&mut self.open().txn, &target.def, how, &mut idle) {
            Ok(read) => read,
            Err(error) if error.code() == evenkeel::Code::IndexTooNew => {
                self.world.events.hit("index too young for a snapshot");
                return Ok(());
            }
            Err(error) => return self.lock_failed("index scan", &error),
        };
        self.world.events.hit(match (&value, keys_only) {
            (Some(_), _) => "index scanned by a prefix",
            (None, true) => "index scanned alone",
            (None, false) => "index scanned",
        });
        let Ok(def) = self.world.db.definition(&target.name) else { return Ok(()) };
        let states = self.states(at, low);
        let own = self.open().own.effects.clone();
        let dirty = self.open().level == Isolation::ReadUncommitted;
        let (model, unsure) = (self.world.model.lock(), self.world.unsure.lock());
        let is_sure = |id: i64| !dirty || !unsure.since(id, target.moment);
        let mut read = read;
        read.retain(|(_, id)| is_sure(*id));
        let wrong = |cts: u64| {
            let mut rows = seen(&model, &own, key_of(&def, 0).0, cts);
            rows.retain(|id, _| is_sure(*id));
            let mut want = entries_of(&def, &parts, &rows);
            want.retain(|(values, _)| value.as_ref().is_none_or(|v| values.first() == Some(v)));
            entries_differ(&def, &parts, direction, read.clone(), &want)
        };
        if states.iter().all(|cts| wrong(*cts).is_some()) {
            let why = wrong(states[0]).unwrap_or_default();
            panic!(
                "index {}.{index} {direction:?} (keys only {keys_only}, prefix {value:?}), {at:?} \
                 of {states:?}: {why}",
                target.name
            );
        }
        Ok(())
    }

    fn some_index(&mut self, def: &TableDef) -> Option<String> {
        let at = self.rng.below(def.indexes.len() as u64) as usize;
        def.indexes.get(at).map(|i| i.name.clone())
    }
}

/// The rows of a table that a scan reads.
#[derive(Clone, Copy, Debug)]
enum Between {
    All,
    /// From the first number to before the last.
    Rows(i64, i64),
    /// Rows whose first key column equals that of this row.
    Group(i64),
}

impl Between {
    fn range<'a>(self, low: &'a [ValueRef<'a>], high: &'a [ValueRef<'a>]) -> Range<'a> {
        match self {
            Between::All => Range::ALL,
            Between::Group(_) => Range::prefix(low),
            Between::Rows(..) => {
                Range { lower: Bound::Included(low), upper: Bound::Excluded(high) }
            }
        }
    }

    fn contains(self, kind: Kind, id: i64) -> bool {
        match self {
            Between::All => true,
            Between::Rows(low, high) => {
                kind.rank(low) <= kind.rank(id) && kind.rank(id) < kind.rank(high)
            }
            Between::Group(one) => kind.key(one)[0] == kind.key(id)[0],
        }
    }
}

/// The values behind the key of a row.
fn values_of(row: &evenkeel::Row, target: &Target) -> Result<Row, Error> {
    row_values(row, &target.def).map(|(_, values)| values)
}
