//! Temporary tables: no session waits for the log, other tables written in the same transaction are
//! durable, and the next start can drop every one that a crash leaves.

use super::*;
use evenkeel_base::metrics::Metric;

/// Each has six statements that would wait for a sync.
const ROUNDS: u64 = 20;

const TEMPORARY: &str = "#sql-temporary";

/// Syncs of the log, and its durable end.
fn synced(db: &Db) -> (u64, Lsn) {
    (db.store.rt.metrics.get(Metric::LogSyncs), db.store.log.durable())
}

fn rows(ids: std::ops::Range<i64>) -> impl Iterator<Item = [ValueRef<'static>; 4]> {
    ids.map(|id| row_values(id, id % 7, Some("text"), Some(id)))
}

fn insert(txn: &mut TableTxn, table: &Arc<Table>, ids: std::ops::Range<i64>) {
    rows(ids).for_each(|row| _ = txn.insert(table, &row).unwrap());
}

fn count(db: &Db, table: &Arc<Table>) -> usize {
    all_rows(&mut db.begin(), table, Direction::Forward).len()
}

/// A database in which only sessions sync the log: no memtable is flushed, and no page is written.
fn only_sessions() -> Db {
    let sizes = Sizes { frames: 4096, generation_bytes: 16 << 20, ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    db.hold_cleaning();
    db
}

/// Created, written, rolled back in part and whole, emptied, read, dropped, repeatedly.
#[test]
fn temporary_tables_never_wait_for_the_log() {
    let db = only_sessions();
    db.store.create_table("t", &spec()).unwrap();
    let (before, _) = synced(&db);
    for round in 0..ROUNDS {
        let table = db.store.create_temporary_table(TEMPORARY, &spec()).unwrap();
        let mut txn = db.begin();
        insert(&mut txn, &table, 0..10);
        txn.savepoint("s").unwrap();
        insert(&mut txn, &table, 10..20);
        txn.rollback_to("s").unwrap();
        assert_eq!(commit(txn), Lsn::ZERO, "nothing is to be waited for");
        let mut txn = db.begin();
        txn.delete(&table, &[3i64.into()]).unwrap();
        let row = row_values(4, 4, None, Some(5));
        assert!(txn.insert(&table, &row).is_err(), "a key that is there");
        txn.update(&table, &[5i64.into()], &[(1, 70i64.into())]).unwrap();
        txn.rollback().unwrap();
        check_indexes(&mut db.begin(), &table);
        assert_eq!(count(&db, &table), 10);
        db.store.analyze_table(TEMPORARY).unwrap();
        db.store.truncate_table(TEMPORARY).unwrap();
        assert_eq!(count(&db, &table), 0, "round {round}");
        db.store.drop_table(TEMPORARY).unwrap();
    }
    // On a busy machine the rounds take seconds, and the log syncs once a second what is left.
    let (after, _) = synced(&db);
    assert!(after - before < ROUNDS / 2, "{} syncs in {ROUNDS} rounds", after - before);
}

/// A permanent table among the written ones makes the transaction durable, whichever is written
/// first; one that is only read does not.
#[test]
fn other_tables_in_the_transaction_of_a_temporary_one_are_durable() {
    let db = only_sessions();
    let table = db.store.create_table("t", &spec()).unwrap();
    for temporary_first in [true, false] {
        let temporary = db.store.create_temporary_table(TEMPORARY, &spec()).unwrap();
        let mut both = [&temporary, &table];
        if !temporary_first {
            both.reverse();
        }
        let mut txn = db.begin();
        for table in both {
            txn.insert(table, &row_values(1, 1, None, None)).unwrap();
        }
        let cts = commit(txn);
        assert!(cts > Lsn::ZERO && db.store.log.durable() > cts, "durable");
        let before = synced(&db);
        let mut txn = db.begin();
        assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 1);
        txn.insert(&temporary, &row_values(2, 1, None, None)).unwrap();
        commit(txn);
        db.store.drop_table(TEMPORARY).unwrap();
        assert_eq!(synced(&db), before);
        let mut txn = db.begin();
        txn.delete(&table, &[1i64.into()]).unwrap();
        commit(txn);
    }
}

/// Dropped by the transaction that wrote it and permanent tables: the commit waits for the latter.
#[test]
fn a_temporary_table_dropped_in_its_transaction_keeps_others_durable() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let temporary = db.store.create_temporary_table(TEMPORARY, &spec()).unwrap();
    let mut txn = db.begin();
    insert(&mut txn, &temporary, 0..5);
    insert(&mut txn, &table, 0..5);
    txn.drop_table(TEMPORARY, &SchemaWait::default()).unwrap();
    let cts = commit(txn);
    assert!(db.store.log.durable() > cts && cts > Lsn::ZERO);
    assert_eq!(count(&db, &table), 5);
}

/// Two-phase commit with temporary tables alone and with permanent ones.
#[test]
fn temporary_tables_take_part_in_two_phase_commit() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let temporary = db.store.create_temporary_table(TEMPORARY, &spec()).unwrap();
    let mut txn = db.begin();
    insert(&mut txn, &temporary, 0..5);
    insert(&mut txn, &table, 0..5);
    let end = db.store.log.end();
    assert!(txn.prepare(b"both").unwrap());
    assert!(db.store.log.durable() > end, "it was durable when that returned");
    db.store.commit_prepared(b"both", Durability::Sync).unwrap();
    let mut txn = db.begin();
    insert(&mut txn, &temporary, 5..9);
    assert!(txn.prepare(b"one").unwrap());
    db.store.commit_prepared(b"one", Durability::Lazy).unwrap();
    assert_eq!((count(&db, &table), count(&db, &temporary)), (5, 9));
}

/// With a permanent name it is a table like others.
#[test]
fn a_renamed_temporary_table_is_durable() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let table = db.store.create_temporary_table(TEMPORARY, &spec()).unwrap();
    let mut txn = db.begin();
    insert(&mut txn, &table, 0..5);
    commit(txn);
    db.store.rename_table(TEMPORARY, "kept").unwrap();
    let renamed = db.store.log.durable();
    let mut txn = db.begin();
    insert(&mut txn, &table, 5..7);
    let cts = commit(txn);
    assert!(cts >= renamed && db.store.log.durable() > cts);
    drop(db);
    let db = Db::open(env, SMALL, root);
    assert_eq!(count(&db, &db.store.table("kept").unwrap()), 7);
}

/// A temporary table that a crash leaves is complete, and can be dropped.
#[test]
fn a_temporary_table_left_by_a_crash_can_be_dropped() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let table = db.store.create_table("t", &spec()).unwrap();
    let temporary = db.store.create_temporary_table(TEMPORARY, &spec()).unwrap();
    let mut txn = db.begin();
    insert(&mut txn, &temporary, 0..500);
    commit(txn);
    let mut txn = db.begin();
    insert(&mut txn, &table, 0..5);
    commit(txn);
    drop(db);
    let db = Db::open(env, SMALL, root);
    let temporary = db.store.table(TEMPORARY).unwrap();
    check_indexes(&mut db.begin(), &temporary);
    assert_eq!(count(&db, &temporary), 500);
    db.store.drop_table(TEMPORARY).unwrap();
    assert_eq!(db.store.table_names(), ["t"]);
    assert_eq!(db.store.remove_orphans().unwrap(), 0, "its pages are given back");
    assert_eq!(count(&db, &db.store.table("t").unwrap()), 5);
}
