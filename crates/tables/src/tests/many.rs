//! Inserting many rows as one statement: the shared record has the effect of as many single
//! inserts, whatever conflicts.

use super::*;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Kind};

/// Columns id, a and b; one index.
fn plain() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("b", ColumnType::Text { max: 20_000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a"]))
}

fn rows_of(ids: &[i64]) -> Vec<[ValueRef<'static>; 3]> {
    ids.iter().map(|id| [(*id).into(), (id % 7).into(), ValueRef::Text("text")]).collect()
}

fn put(txn: &mut TableTxn, table: &Arc<Table>, ids: &[i64]) -> evenkeel_base::Result<()> {
    let rows = rows_of(ids);
    txn.insert_many(table, rows.iter().map(|r| &r[..])).map(drop)
}

fn ids(db: &Db, table: &Arc<Table>) -> Vec<i64> {
    let rows = all_rows(&mut db.begin(), table, Direction::Forward);
    let id = |row: &Vec<Value>| match row[0] {
        Value::Int(id) => id,
        _ => panic!("an id is a number"),
    };
    rows.iter().map(id).collect()
}

fn by_a(db: &Db, table: &Arc<Table>) -> usize {
    let (mut txn, mut row, mut count) = (db.begin(), Row::new(), 0);
    let mut scan = txn.index_scan(table, 0, Range::ALL, Direction::Forward, true).unwrap();
    while scan.next(&mut row).unwrap() {
        count += 1;
    }
    count
}

fn records(db: &Db) -> u64 {
    db.store.rt.metrics.get(Metric::LogRecords)
}

#[test]
fn inserted_rows_of_a_leaf_share_a_record() {
    let db = Db::new();
    let table = db.store.create_table("t", &plain()).unwrap();
    let mut txn = db.begin();
    put(&mut txn, &table, &[0]).unwrap();
    let before = records(&db);
    put(&mut txn, &table, &(1..40).collect::<Vec<_>>()).unwrap();
    assert_eq!(records(&db), before + 1);
    commit(txn);
    assert_eq!(ids(&db, &table), (0..40).collect::<Vec<_>>());
    assert_eq!(by_a(&db, &table), 40);
}

#[test]
fn many_rows_are_inserted_in_any_order() {
    let db = Db::new();
    let table = db.store.create_table("t", &plain()).unwrap();
    let mut model = std::collections::BTreeSet::new();
    let mut n: u64 = 12345;
    for round in 0..60i64 {
        let mut some = Vec::new();
        for i in 0..50 {
            n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Ascending, descending, random, and large jumps to the right edge.
            let id = match round % 4 {
                0 => 1_000_000 * (round + 1) + i,
                1 => 1_000_000 * (round + 1) - i,
                2 => (n >> 33) as i64 % 100_000,
                _ => (round << 40) + i * 3,
            };
            if model.insert(id) {
                some.push(id);
            }
        }
        let mut txn = db.begin();
        put(&mut txn, &table, &some).unwrap();
        commit(txn);
    }
    assert_eq!(ids(&db, &table), model.iter().copied().collect::<Vec<_>>());
    assert_eq!(by_a(&db, &table), model.len());
    let report = table.state().tree.check().unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn a_duplicate_rolls_back_the_statement_of_many_rows() {
    let db = Db::new();
    let table = db.store.create_table("t", &plain()).unwrap();
    let mut txn = db.begin();
    put(&mut txn, &table, &[10, 20]).unwrap();
    let error = put(&mut txn, &table, &[1, 2, 10, 11]).unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::DuplicateKey, Kind::Duplicate));
    assert!(put(&mut txn, &table, &[1, 1]).is_err(), "twice in one statement");
    assert!(put(&mut txn, &table, &[20, 30]).is_err(), "the first row");
    put(&mut txn, &table, &[1, 2]).unwrap();
    // A deleted row conflicts with the record, not with the statement.
    txn.delete(&table, &[10i64.into()]).unwrap();
    put(&mut txn, &table, &[9, 10, 11]).unwrap();
    txn.savepoint("s").unwrap();
    put(&mut txn, &table, &[12, 13]).unwrap();
    txn.rollback_to("s").unwrap();
    put(&mut txn, &table, &[13, 14]).unwrap();
    commit(txn);
    assert_eq!(ids(&db, &table), [1, 2, 9, 10, 11, 13, 14, 20]);
    assert_eq!(by_a(&db, &table), 8);
}

#[test]
fn long_rows_and_bad_values_are_inserted_row_by_row() {
    let db = Db::new();
    let table = db.store.create_table("t", &plain()).unwrap();
    let long = "x".repeat(9000);
    let mut rows = rows_of(&[1, 2, 3, 4]);
    rows[2][2] = ValueRef::Text(&long);
    let mut txn = db.begin();
    txn.insert_many(&table, rows.iter().map(|r| &r[..])).unwrap();
    let mut bad = rows_of(&[5, 6]);
    bad[1][1] = ValueRef::Text("no number");
    let error = txn.insert_many(&table, bad.iter().map(|r| &r[..])).unwrap_err();
    assert_eq!(error.code(), Code::ValueType);
    // An earlier duplicate is found first.
    bad[0][0] = 1i64.into();
    let error = txn.insert_many(&table, bad.iter().map(|r| &r[..])).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    commit(txn);
    let rows = all_rows(&mut db.begin(), &table, Direction::Forward);
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[2][2], Value::Text(long));
}

#[test]
fn a_crash_keeps_whole_transactions() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let table = db.store.create_table("t", &plain()).unwrap();
    let mut txn = db.begin();
    put(&mut txn, &table, &(0..200).collect::<Vec<_>>()).unwrap();
    txn.savepoint("s").unwrap();
    put(&mut txn, &table, &(200..300).collect::<Vec<_>>()).unwrap();
    txn.rollback_to("s").unwrap();
    put(&mut txn, &table, &(250..260).collect::<Vec<_>>()).unwrap();
    commit(txn);
    let mut prepared = db.begin();
    put(&mut prepared, &table, &[1000, 1001, 1002]).unwrap();
    prepared.prepare(b"xid").unwrap();
    let mut open = db.begin();
    put(&mut open, &table, &(400..500).collect::<Vec<_>>()).unwrap();
    db.store.log.wait_durable(Lsn(db.store.log.end().0 - 1)).unwrap();
    std::mem::forget((prepared, open));
    drop(db);
    let db = Db::open(env, SMALL, root);
    let table = db.store.table("t").unwrap();
    let mut expected: Vec<i64> = (0..200).chain(250..260).collect();
    assert_eq!(ids(&db, &table), expected);
    assert_eq!(by_a(&db, &table), expected.len());
    db.store.commit_prepared(b"xid", Durability::Sync).unwrap();
    expected.extend([1000, 1001, 1002]);
    assert_eq!(ids(&db, &table), expected);
    assert_eq!(by_a(&db, &table), expected.len());
    // Rows of transactions that the crash aborted can be written again.
    let mut txn = db.begin();
    put(&mut txn, &table, &(400..500).collect::<Vec<_>>()).unwrap();
    commit(txn);
    expected.extend(400..500);
    expected.sort_unstable();
    assert_eq!(ids(&db, &table), expected);
    assert_eq!(by_a(&db, &table), expected.len());
}

#[test]
fn an_insert_of_many_rows_waits_for_locks() {
    let db = Db::new();
    let table = db.store.create_table("t", &plain()).unwrap();
    let mut locker = db.begin_at(Isolation::Serializable);
    let mut row = Row::new();
    let found = locker
        .get_locked(&table, &[5i64.into()], Mode::Exclusive, LockWait::Wait, &mut row)
        .unwrap();
    assert!(!found, "the absent key is locked");
    let mut txn = db.begin();
    txn.set_lock_wait(std::time::Duration::from_millis(5));
    let error = put(&mut txn, &table, &[3, 4, 5, 6]).unwrap_err();
    assert_eq!(error.kind(), Kind::LockTimeout);
    commit(locker);
    put(&mut txn, &table, &[3, 4, 5, 6]).unwrap();
    commit(txn);
    assert_eq!(ids(&db, &table), [3, 4, 5, 6]);
}
