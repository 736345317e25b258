//! Auto-increment beside others who raise or lower its mark in the catalog, at each of their waits.

use super::*;
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

/// Two pass the same number; the one that comes second waits until the mark is above it too, for
/// the first may fail.
#[test]
fn a_number_passed_by_another_is_below_the_mark_all_the_same() {
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

/// Numbers are settled while rows come in: none is given twice, and all are below the mark.
#[test]
fn settling_beside_inserts_never_lets_numbers_go_back() {
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
