//! Accuracy of row estimates when many rows are deleted, changed, rolled back, loaded or dropped,
//! with and without an old snapshot that needs the former rows: of the table, of ranges of its key
//! and of an index, and after a look at its keys. Above a minimum of rows the estimate is within a
//! factor of two and a half, below it within that minimum, at once or soon: while the background
//! works on the change, an estimate may be further off for a moment.

use super::*;
use std::ops::Bound;

const ROWS: i64 = 12_000;
/// Below this number a factor is meaningless.
const FEW: u64 = 300;
/// How often the estimates are compared until one that is far off is an error.
const LOOKS: u32 = 100;
/// Rows that a background beat rolls back.
const REVERT_BEAT_ROWS: u64 = 256;

struct Bed {
    db: Db,
    table: Arc<Table>,
}

impl Bed {
    fn new() -> Bed {
        let db = Db::create(Arc::new(MemEnv::new()), Sizes { frames: 4096, ..SMALL });
        let table = db.store.create_table("t", &spec()).unwrap();
        let bed = Bed { db, table };
        bed.change(|txn, table| {
            (0..ROWS).try_for_each(|id| txn.insert(table, &row(id)).map(|_| ()))
        });
        bed
    }

    fn change(&self, change: impl FnOnce(&mut TableTxn, &Arc<Table>) -> Result<()>) {
        let mut txn = self.db.begin();
        change(&mut txn, &self.table).unwrap();
        commit(txn);
    }

    /// A reader that sees all current rows for as long as it is kept.
    fn old_reader(&self) -> TableTxn {
        let mut reader = self.db.begin();
        assert!(reader.get(&self.table, &[0i64.into()], &mut Row::new()).is_ok());
        reader
    }

    /// Compares the rows that a transaction reads with the estimates, until none is far off.
    fn compare(&self, what: &str) {
        for left in (0..LOOKS).rev() {
            let far = self.far_off(what);
            assert!(far.is_empty() || left > 0, "{far:?}");
            if far.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// The estimates that are far from the rows that a transaction reads.
    fn far_off(&self, what: &str) -> Vec<String> {
        let mut far = Vec::new();
        let mut txn = self.db.begin_at(Isolation::ReadCommitted);
        let rows = all_rows(&mut txn, &self.table, Direction::Forward);
        let number = |row: &[Value], column: usize| match row[column] {
            Value::Int(number) => number,
            _ => panic!("a number"),
        };
        let mut near = |what: &str, said: u64, is: u64| {
            let is_near = said.abs_diff(is) <= FEW || (2 * said <= 5 * is && 2 * is <= 5 * said);
            far.extend((!is_near).then(|| format!("{what}: {said} told of {is} rows")));
        };
        let size = self.db.store.size_estimate(&self.table).unwrap();
        near(&format!("{what}: table"), size.rows, rows.len() as u64);
        let ranges = [(0, ROWS / 3), (ROWS / 4, ROWS * 3 / 4), (ROWS / 2, ROWS * 4)];
        for (from, to) in ranges.into_iter().chain([(ROWS - 1500, ROWS * 4), (-ROWS * 4, 1500)]) {
            let (low, high) = ([ValueRef::Int(from)], [ValueRef::Int(to)]);
            let range = || Range { lower: Bound::Included(&low), upper: Bound::Excluded(&high) };
            let count = |column| {
                let within = |row: &&Vec<Value>| (from..to).contains(&number(row, column));
                rows.iter().filter(within).count() as u64
            };
            let said = txn.key_estimate(&self.table, range()).unwrap();
            near(&format!("{what}: keys from {from} below {to}"), said, count(0));
            let said = txn.index_estimate(&self.table, 0, range()).unwrap();
            near(&format!("{what}: index from {from} below {to}"), said, count(1));
        }
        drop(txn);
        self.db.store.analyze_table("t").unwrap();
        let known = self.table.statistics(None).unwrap().rows;
        near(&format!("{what}: looked at"), known, rows.len() as u64);
        far
    }
}

/// `by_a` is on the second column.
fn row(id: i64) -> [ValueRef<'static>; 4] {
    row_values(id, id, Some("some bytes that make a row longer"), None)
}

/// Runs the change with and without an old snapshot.
fn both(what: &str, change: impl Fn(&Bed)) {
    for keeps in [false, true] {
        let bed = Bed::new();
        let reader = keeps.then(|| bed.old_reader());
        bed.compare("before");
        change(&bed);
        bed.compare(&format!("{what}, an old snapshot: {keeps}"));
        drop(reader);
    }
}

fn delete(bed: &Bed, is_gone: impl Fn(i64) -> bool) {
    for some in (0..ROWS).collect::<Vec<_>>().chunks(1000) {
        bed.change(|txn, table| {
            let mut gone = some.iter().filter(|id| is_gone(**id));
            gone.try_for_each(|id| txn.delete(table, &[ValueRef::Int(*id)]).map(|_| ()))
        });
    }
}

#[test]
fn estimates_do_not_count_deleted_rows() {
    both("all", |bed| delete(bed, |_| true));
    both("every second", |bed| delete(bed, |id| id % 2 == 0));
    both("the first half", |bed| delete(bed, |id| id < ROWS / 2));
    both("all but some in the middle", |bed| {
        delete(bed, |id| !(ROWS / 3..ROWS / 2).contains(&id));
    });
}

#[test]
fn estimates_count_changed_rows_once() {
    both("changed once", |bed| move_on(bed, 1));
    both("changed many times", |bed| move_on(bed, 6));
}

fn move_on(bed: &Bed, times: i64) {
    for round in 0..times {
        for some in (0..ROWS).collect::<Vec<_>>().chunks(1000) {
            bed.change(|txn, table| {
                some.iter().try_for_each(|id| {
                    let to = ValueRef::Int((*id + (round + 1) * 500) % ROWS);
                    txn.update(table, &[ValueRef::Int(*id)], &[(1, to)]).map(|_| ())
                })
            });
        }
    }
}

/// Runs the change in a transaction that is rolled back, and compares before the background rolls
/// it back, half-way, and at the end.
fn rolled_back(what: &str, change: impl Fn(&mut TableTxn, &Arc<Table>) -> Result<()>) {
    both(what, |bed| {
        bed.db.hold_reverts();
        let mut txn = bed.db.begin();
        change(&mut txn, &bed.table).unwrap();
        // The current estimate counts rows that no longer exist.
        bed.db.store.size_estimate(&bed.table).unwrap();
        txn.rollback().unwrap();
        let (txns, what) = (&bed.db.store.txns, format!("{what} and rolled back"));
        let rows = txns.reverting_rows();
        assert!(rows >= 2 * REVERT_BEAT_ROWS, "{rows} rows are to be reverted");
        bed.compare(&format!("{what}, before the revert"));
        bed.db.let_revert(rows / REVERT_BEAT_ROWS / 2);
        let half = rows / 4..rows * 3 / 4;
        assert!(half.contains(&txns.reverting_rows()), "{} of {rows}", txns.reverting_rows());
        bed.compare(&format!("{what}, half way"));
        bed.db.let_revert(u64::MAX);
        bed.compare(&format!("{what}, reverted"));
    });
}

fn insert(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    mut ids: impl Iterator<Item = i64>,
) -> Result<()> {
    ids.try_for_each(|id| txn.insert(table, &row(id)).map(|_| ()))
}

fn remove(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    mut ids: impl Iterator<Item = i64>,
) -> Result<()> {
    ids.try_for_each(|id| txn.delete(table, &[ValueRef::Int(id)]).map(|_| ()))
}

fn update(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    mut ids: impl Iterator<Item = i64>,
) -> Result<()> {
    ids.try_for_each(|id| {
        let to = ValueRef::Int((id + 500) % ROWS);
        txn.update(table, &[ValueRef::Int(id)], &[(1, to)]).map(|_| ())
    })
}

#[test]
fn estimates_do_not_count_rolled_back_inserts() {
    rolled_back("inserted behind the last", |txn, table| insert(txn, table, ROWS..ROWS * 4));
    rolled_back("inserted before the first", |txn, table| insert(txn, table, -ROWS * 2..0));
    // Their newest versions tell of a change, not of an insert.
    rolled_back("inserted and changed", |txn, table| {
        insert(txn, table, ROWS..ROWS * 2)?;
        update(txn, table, ROWS..ROWS * 2)
    });
    rolled_back("inserted and some deleted", |txn, table| {
        insert(txn, table, ROWS..ROWS * 2)?;
        remove(txn, table, (ROWS..ROWS * 2).step_by(2))
    });
}

#[test]
fn estimates_count_rows_as_before_rolled_back_changes() {
    rolled_back("deleted", |txn, table| remove(txn, table, 0..ROWS));
    rolled_back("the first half deleted", |txn, table| remove(txn, table, 0..ROWS / 2));
    rolled_back("changed", |txn, table| update(txn, table, 0..ROWS));
    rolled_back("deleted and inserted", |txn, table| {
        remove(txn, table, 0..ROWS)?;
        insert(txn, table, 0..ROWS / 2)
    });
}

/// The inserts reuse places of rows that an old snapshot may still see.
#[test]
fn estimates_do_not_count_rolled_back_inserts_in_places_of_deleted_rows() {
    for keeps in [false, true] {
        let bed = Bed::new();
        let reader = keeps.then(|| bed.old_reader());
        delete(&bed, |id| id >= ROWS / 4);
        bed.db.hold_reverts();
        let mut txn = bed.db.begin();
        insert(&mut txn, &bed.table, ROWS / 4..ROWS).unwrap();
        bed.db.store.size_estimate(&bed.table).unwrap();
        txn.rollback().unwrap();
        bed.compare(&format!("before the revert, an old snapshot: {keeps}"));
        bed.db.let_revert(15);
        bed.compare(&format!("half way, an old snapshot: {keeps}"));
        bed.db.let_revert(u64::MAX);
        bed.compare(&format!("reverted, an old snapshot: {keeps}"));
        drop(reader);
    }
}

/// The statement itself rolls back, at once.
#[test]
fn estimates_after_a_rollback_to_a_savepoint() {
    both("reverted to a savepoint", |bed| {
        let mut txn = bed.db.begin();
        update(&mut txn, &bed.table, 0..1).unwrap();
        txn.savepoint("s").unwrap();
        insert(&mut txn, &bed.table, ROWS..ROWS * 2).unwrap();
        remove(&mut txn, &bed.table, 1..ROWS / 2).unwrap();
        bed.db.store.size_estimate(&bed.table).unwrap();
        txn.rollback_to("s").unwrap();
        bed.compare("reverted to a savepoint");
        commit(txn);
    });
}

#[test]
fn estimates_of_an_emptied_table() {
    for keeps in [false, true] {
        let bed = Bed::new();
        let other = bed.db.store.create_table("other", &spec()).unwrap();
        let reader = keeps.then(|| {
            let mut reader = bed.db.begin();
            assert!(!reader.get(&other, &[0i64.into()], &mut Row::new()).unwrap());
            reader
        });
        bed.db.store.truncate_table("t").unwrap();
        bed.compare("emptied");
        bed.change(|txn, table| {
            (0..ROWS).try_for_each(|id| txn.insert(table, &row(id)).map(|_| ()))
        });
        bed.compare("filled again");
        drop(reader);
    }
}

#[test]
fn estimates_of_a_loaded_table() {
    let bed = Bed::new();
    bed.db.store.truncate_table("t").unwrap();
    let rows = (0..ROWS).map(|id| row(id).map(|value| value.to_owned()));
    bed.db.store.load_table("t", rows, &BuildProgress::default()).unwrap();
    bed.compare("loaded");
    delete(&bed, |id| id % 3 > 0);
    bed.compare("loaded and deleted");
}
