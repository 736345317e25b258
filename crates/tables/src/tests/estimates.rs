//! How near estimates of rows are when many are deleted, changed, rolled back, loaded or gone, with
//! and without an old snapshot that needs what was: of the table, of ranges of its key and of an
//! index, and after a look at its keys. From so many rows on within a factor of two, below it off
//! by no more than that.

use super::*;
use std::ops::Bound;

const ROWS: i64 = 12_000;
/// Below this a factor says nothing.
const FEW: u64 = 300;

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

    fn change(&self, change: impl FnOnce(&mut Transaction, &Arc<Table>) -> Result<()>) {
        let mut txn = self.db.begin();
        change(&mut txn, &self.table).unwrap();
        commit(txn);
    }

    /// One that sees all that is there now, as long as it is kept.
    fn old_reader(&self) -> Transaction {
        let mut reader = self.db.begin();
        assert!(reader.get(&self.table, &[0i64.into()], &mut Row::new()).is_ok());
        reader
    }

    /// The last of them that a transaction reads, and what is told.
    fn compare(&self, what: &str) {
        let mut txn = self.db.begin_at(Isolation::ReadCommitted);
        let rows = all_rows(&mut txn, &self.table, Direction::Forward);
        let number = |row: &[Value], column: usize| match row[column] {
            Value::Int(number) => number,
            _ => panic!("a number"),
        };
        let near = |what: &str, said: u64, is: u64| {
            let is_near = said.abs_diff(is) <= FEW || (said <= 2 * is && is <= 2 * said);
            assert!(is_near, "{what}: {said} told of {is} rows");
        };
        let size = self.db.store.size_estimate(&self.table).unwrap();
        near(&format!("{what}: table"), size.rows, rows.len() as u64);
        for (from, to) in [(0, ROWS / 3), (ROWS / 4, ROWS * 3 / 4), (ROWS / 2, ROWS * 4)] {
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
    }
}

/// `by_a` is on the second column.
fn row(id: i64) -> [ValueRef<'static>; 4] {
    row_values(id, id, Some("some bytes that make a row longer"), None)
}

/// Does it with and without an old snapshot.
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

/// By statements that revert at once, and by a transaction that is reverted behind its end.
#[test]
fn estimates_do_not_count_rows_rolled_back() {
    both("inserted and rolled back", |bed| {
        let mut txn = bed.db.begin();
        for id in ROWS..ROWS * 4 {
            txn.insert(&bed.table, &row(id)).unwrap();
        }
        txn.rollback().unwrap();
    });
    both("deleted and rolled back", |bed| {
        let mut txn = bed.db.begin();
        for id in 0..ROWS {
            txn.delete(&bed.table, &[ValueRef::Int(id)]).unwrap();
        }
        txn.rollback().unwrap();
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
