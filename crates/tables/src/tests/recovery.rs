//! Stop, crash and open again: committed transactions are found, others are not, in table, indexes
//! and catalog; auto-increment never decreases.

use super::*;

#[test]
fn a_stopped_or_crashed_database_reopens() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let mut with_auto = spec();
    with_auto.columns[0].auto_increment = true;
    let table = db.store.create_table("t", &with_auto).unwrap();
    db.store.create_table("empty", &spec()).unwrap();
    let mut txn = db.begin();
    let null_id = |a: i64| [ValueRef::Null, a.into(), ValueRef::Text("x"), ValueRef::Null];
    for a in 0..300 {
        txn.insert(&table, &null_id(a)).unwrap();
    }
    commit(txn);
    db.store.add_column("t", &ColumnSpec::new("d", ColumnType::Date).nullable()).unwrap();
    db.store
        .add_indexes("t", &[IndexSpec::new("by_d", &["d"])], &BuildProgress::default())
        .unwrap();
    let mut txn = db.begin();
    txn.update(&table, &[5i64.into()], &[(4, ValueRef::Date(77))]).unwrap();
    txn.savepoint("s").unwrap();
    txn.update(&table, &[6i64.into()], &[(4, ValueRef::Date(78))]).unwrap();
    txn.rollback_to("s").unwrap();
    txn.delete(&table, &[7i64.into()]).unwrap();
    commit(txn);
    let mut prepared = db.begin();
    prepared.update(&table, &[8i64.into()], &[(1, 5000i64.into())]).unwrap();
    prepared.prepare(b"xid").unwrap();
    let mut open = db.begin();
    open.update(&table, &[9i64.into()], &[(1, 6000i64.into())]).unwrap();
    open.insert(
        &table,
        &[ValueRef::Null, 1i64.into(), ValueRef::Null, ValueRef::Null, ValueRef::Null],
    )
    .unwrap();
    // A schema change that has only allocated its tree.
    let orphan = db.store.next_id(crate::catalog::NextId::Tree).unwrap();
    db.store.trees().create(evenkeel_base::TreeId(orphan)).unwrap();
    // The writes of the open transaction are in the log, but not its end.
    db.store.log.wait_durable(Lsn(db.store.log.end().0 - 1)).unwrap();
    let rows = all_rows(&mut db.begin(), &table, Direction::Forward);
    std::mem::forget((prepared, open));
    drop(db);

    let db = Db::open(env, SMALL, root);
    assert_eq!(db.store.table_names(), ["empty", "t"]);
    assert_eq!(db.store.remove_orphans().unwrap(), 1, "the tree without a table");
    assert_eq!(db.store.remove_orphans().unwrap(), 0);
    let table = db.store.table("t").unwrap();
    let mut txn = db.begin();
    assert_eq!(all_rows(&mut txn, &table, Direction::Forward), rows);
    check_indexes(&mut txn, &table);
    db.store.commit_prepared(b"xid", Durability::Sync).unwrap();
    let mut txn = db.begin();
    let after = all_rows(&mut txn, &table, Direction::Forward);
    assert_eq!(after[6][1], Value::Int(5000));
    check_indexes(&mut txn, &table);
    let five = [ValueRef::Null, 1i64.into(), ValueRef::Null, ValueRef::Null, ValueRef::Null];
    let next = txn.insert(&table, &five).unwrap().unwrap();
    assert!(next > 301, "numbers never go back: {next}");
    txn.update(&table, &[9i64.into()], &[(1, 1i64.into())]).unwrap();
    commit(txn);
    check_indexes(&mut db.begin(), &table);
}
