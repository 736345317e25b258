//! A handle gives the table that a lookup of its name would give: after DROP, RENAME, ALTER and
//! TRUNCATE, in any order, and beside readers in other threads.

use super::*;
use crate::table_handle::TableHandle;
use evenkeel_base::Code;
use evenkeel_io::Rng;
use std::sync::atomic::{AtomicBool, Ordering};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Every handle gives what a lookup of its name gives.
fn check(db: &Db, handles: &mut [TableHandle], what: &str) {
    for handle in handles {
        match (db.store.table(handle.name()), db.store.table_of(handle)) {
            (Ok(looked_up), Ok(given)) => {
                assert!(Arc::ptr_eq(&looked_up, &given), "{what}: {}", handle.name());
            }
            (Err(looked_up), Err(given)) => {
                assert_eq!((looked_up.code(), given.code()), (Code::TableMissing, given.code()));
            }
            (looked_up, given) => {
                let (looked_up, given) = (looked_up.is_ok(), given.is_ok());
                panic!("{what}: {} is {looked_up}, by the handle {given}", handle.name());
            }
        }
    }
}

/// Some rows whose second column says which table they were written to.
fn fill(db: &Db, name: &str, mark: i64) {
    let (mut txn, table) = (db.begin(), db.store.table(name).unwrap());
    (0..3).for_each(|id| {
        txn.insert(&table, &row_values(id, mark, None, None)).unwrap();
    });
    commit(txn);
}

/// The mark of the rows that a handle leads to; none without rows.
fn mark_of(db: &Db, handle: &mut TableHandle) -> Result<Option<Value>> {
    let table = db.store.table_of(handle)?;
    let (mut txn, mut row) = (db.begin(), Row::new());
    let found = txn.get(&table, &[1i64.into()], &mut row)?;
    found.then(|| Ok(row.value(1)?.to_owned())).transpose()
}

fn setting() -> (Db, TableHandle) {
    let db = Db::create(Arc::new(MemEnv::new()), SMALL);
    db.store.create_table("a", &spec()).unwrap();
    fill(&db, "a", 7);
    let mut handle = TableHandle::new("a");
    assert_eq!(mark_of(&db, &mut handle).unwrap(), Some(Value::Int(7)));
    (db, handle)
}

#[test]
fn a_handle_of_a_dropped_table_gives_none_and_then_the_next_of_its_name() {
    let (db, mut handle) = setting();
    db.store.drop_table("a").unwrap();
    assert_eq!(mark_of(&db, &mut handle).unwrap_err().code(), Code::TableMissing);
    db.store.create_table("a", &spec()).unwrap();
    assert_eq!(mark_of(&db, &mut handle).unwrap(), None);
    fill(&db, "a", 8);
    assert_eq!(mark_of(&db, &mut handle).unwrap(), Some(Value::Int(8)));
}

#[test]
fn a_handle_follows_the_name_when_tables_are_renamed() {
    let (db, mut handle) = setting();
    let mut other = TableHandle::new("b");
    assert_eq!(mark_of(&db, &mut other).unwrap_err().code(), Code::TableMissing);
    db.store.rename_table("a", "b").unwrap();
    assert_eq!(mark_of(&db, &mut handle).unwrap_err().code(), Code::TableMissing);
    assert_eq!(mark_of(&db, &mut other).unwrap(), Some(Value::Int(7)));
    db.store.create_table("a", &spec()).unwrap();
    fill(&db, "a", 9);
    assert_eq!(mark_of(&db, &mut handle).unwrap(), Some(Value::Int(9)));
    assert_eq!(mark_of(&db, &mut other).unwrap(), Some(Value::Int(7)));
}

#[test]
fn a_handle_of_an_emptied_table_gives_no_row() {
    let (db, mut handle) = setting();
    db.store.truncate_table("a").unwrap();
    assert_eq!(mark_of(&db, &mut handle).unwrap(), None);
    fill(&db, "a", 10);
    assert_eq!(mark_of(&db, &mut handle).unwrap(), Some(Value::Int(10)));
}

#[test]
fn a_handle_of_an_altered_table_gives_its_new_columns() {
    let (db, mut handle) = setting();
    let added = ColumnSpec::new("added", ColumnType::Int64).default_value(Value::Int(5));
    db.store.add_column("a", &added).unwrap();
    let table = db.store.table_of(&mut handle).unwrap();
    let (mut txn, mut row) = (db.begin(), Row::new());
    assert!(txn.get(&table, &[1i64.into()], &mut row).unwrap());
    assert_eq!(row.value("added").unwrap().to_owned(), Value::Int(5));
}

#[test]
fn handles_give_what_lookups_give_after_any_changes() {
    let db = Db::create(Arc::new(MemEnv::new()), SMALL);
    let mut handles: Vec<TableHandle> = NAMES.iter().map(|name| TableHandle::new(name)).collect();
    let mut rng = Rng::new(11);
    let mut done = [0; 4];
    for _ in 0..120 {
        let [name, other] = [(); 2].map(|()| NAMES[rng.below(3) as usize]);
        let what = rng.below(4) as usize;
        let outcome = match what {
            0 => db.store.create_table(name, &spec()).map(|_| ()),
            1 => db.store.drop_table(name),
            2 => db.store.rename_table(name, other),
            _ => db.store.truncate_table(name),
        };
        done[what] += usize::from(outcome.is_ok());
        // Some handles are not used for a while.
        let used = rng.below(3) as usize;
        check(&db, &mut handles[used..], &format!("change {what} of {name}"));
    }
    assert!(done.iter().all(|done| *done > 4), "{done:?}");
}

/// While a table changes its name again and again, readers by handles of both names read its rows
/// or hear that there is no such table; at no moment they read rows of the other table.
#[test]
fn handles_beside_renames() {
    let (db, _) = setting();
    db.store.create_table("c", &spec()).unwrap();
    fill(&db, "c", 12);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for (name, mark) in [("a", 7), ("b", 7), ("c", 12)] {
            let (db, stop) = (&db, &stop);
            s.spawn(move || {
                let (mut handle, mut found) = (TableHandle::new(name), 0);
                while !stop.load(Ordering::SeqCst) || found == 0 {
                    match mark_of(db, &mut handle) {
                        Ok(read) => assert_eq!(read, Some(Value::Int(mark)), "{name}"),
                        Err(e) => assert_eq!(e.code(), Code::TableMissing, "{name}"),
                    }
                    found += 1;
                }
            });
        }
        for _ in 0..40 {
            db.store.rename_table("a", "b").unwrap();
            db.store.rename_table("b", "a").unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
}
