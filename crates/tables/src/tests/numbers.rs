//! Auto-increment while others raise or lower its mark in the catalog, at each of their waits.

use super::*;
use evenkeel_base::Code;
use evenkeel_io::sim::SimEnv;
use std::sync::atomic::AtomicUsize;

fn numbered(db: &Db) -> Arc<Table> {
    let mut spec = spec();
    spec.columns[0].auto_increment = true;
    spec.indexes.clear();
    db.store.create_table("t", &spec).unwrap()
}

fn insert(store: &Arc<Store>, table: &Arc<Table>) -> u64 {
    let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
    let mut row = row_values(0, 1, None, None);
    row[0] = ValueRef::Null;
    let number = txn.insert(table, &row).unwrap();
    txn.commit(Durability::Lazy).unwrap();
    number.unwrap()
}

/// Two threads pass the same number; the second waits until the mark is above it too, because the
/// first may fail.
#[test]
fn a_number_passed_by_another_thread_is_durable_before_use() {
    let sim = SimEnv::new(7);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, SMALL);
        let table = numbered(&db);
        let held = table.auto.raise.lock(&db.store.rt, Cause::Schema);
        let passed = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (store, table, passed) = (db.store.clone(), table.clone(), passed.clone());
            let pass = move || {
                store.pass_number(&table, 1000).unwrap();
                passed.fetch_add(1, Ordering::SeqCst);
            };
            threads.push(db.store.rt.spawn("passer", pass).unwrap());
            db.store.rt.delay(Duration::from_millis(50), Cause::Idle);
        }
        assert_eq!(passed.load(Ordering::SeqCst), 0, "the mark is not raised yet");
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(table.auto.logged.load(Ordering::SeqCst) > 1000);
    })]);
}

/// Numbers are settled while rows are inserted: none is given twice, and all are below the mark.
#[test]
fn settling_during_inserts_never_repeats_a_number() {
    let db = Db::new();
    let table = numbered(&db);
    for round in 1..=10 {
        std::thread::scope(|scope| {
            let inserter = || {
                let mut last = 0;
                for _ in 0..4000 {
                    let number = insert(&db.store, &table);
                    assert!(number > last, "{number} after {last}");
                    last = number;
                }
            };
            let inserters = [scope.spawn(inserter), scope.spawn(inserter), scope.spawn(inserter)];
            while !inserters.iter().all(|inserter| inserter.is_finished()) {
                db.store.settle_numbers().unwrap();
            }
        });
        db.store.settle_numbers().unwrap();
        assert_eq!(db.store.next_auto(&table), round * 12_000 + 1);
        assert_eq!(table.auto.logged.load(Ordering::SeqCst), round * 12_000 + 1);
    }
}

/// No mark is above the largest number of 64 bits: that number is neither handed out nor searched
/// for.
#[test]
fn numbers_end_below_the_largest_of_64_bits() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::UInt64).auto_increment())
        .primary_key(&["id"]);
    let table = db.store.create_table("t", &spec).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &[ValueRef::UInt(u64::MAX - 2)]).unwrap();
    assert_eq!(txn.insert(&table, &[ValueRef::Null]).unwrap(), Some(u64::MAX - 1));
    for _ in 0..2 {
        let error = txn.insert(&table, &[ValueRef::Null]).unwrap_err();
        assert_eq!(error.code(), Code::AutoIncrementExhausted, "{error}");
    }
    let rows = [&[ValueRef::Null][..]];
    assert!(txn.insert_many(&table, rows.into_iter()).is_err());
    commit(txn);
    assert_eq!(db.store.next_auto(&table), u64::MAX);
    db.store.restart_numbers(&table, 0).unwrap();
    assert_eq!(db.store.next_auto(&table), 1, "as after the next open");
}

/// The first number of a table is durable with the schema change that sets it.
#[test]
fn restarted_numbers_are_durable() {
    let db = Db::new();
    let table = numbered(&db);
    for next in [5000, 1, 70] {
        db.store.pass_number(&table, 6000).unwrap();
        let before = db.store.log.end();
        db.store.restart_numbers(&table, next).unwrap();
        let end = db.store.log.end();
        assert!(end > before && db.store.log.durable() >= end, "{next}");
        assert_eq!(db.store.next_auto(&table), next);
    }
}

/// A transaction that has looked a table up and raises the table's mark during a DROP leaves
/// nothing in the catalog: otherwise the next open would find a table without a definition.
#[test]
fn a_dropped_table_gets_no_mark() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let table = numbered(&db);
    insert(&db.store, &table);
    db.store.drop_table("t").unwrap();
    let missing = |done: Result<()>| assert_eq!(done.unwrap_err().code(), Code::TableMissing);
    missing(db.store.pass_number(&table, 1_000_000));
    missing(db.store.reserve_numbers(&table, (1, 1), 1_000_000).map(|_| ()));
    missing(db.store.restart_numbers(&table, 1));
    let rows = |db: &Db| {
        let mut txn = db.begin();
        let rows = all_rows(&mut txn, &db.store.catalog.table, Direction::Forward);
        rows.into_iter().filter(|row| row[0] != Value::UInt(0)).count()
    };
    assert_eq!(rows(&db), 0);
    let root = db.store.catalog_root();
    drop(db);
    Db::open(env, SMALL, root);
}

/// TRUNCATE in SQL restarts the numbers in the same change; the library's truncate continues them.
#[test]
fn numbers_restart_with_a_truncate_on_request() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let table = numbered(&db);
    for number in 1..=50 {
        assert_eq!(insert(&db.store, &table), number);
    }
    db.store.truncate_table("t").unwrap();
    assert_eq!(insert(&db.store, &table), 51);
    db.store.truncate_and_restart("t", &crate::table::SchemaWait::default()).unwrap();
    let root = db.store.catalog_root();
    drop((table, db));
    let db = Db::open(env, SMALL, root);
    let table = db.store.table("t").unwrap();
    assert_eq!(db.store.next_auto(&table), 1, "as the catalog has it");
    assert_eq!(insert(&db.store, &table), 1);
}
