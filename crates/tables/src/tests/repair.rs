//! A repair builds damaged indexes anew and leaves everything else as it is.

use super::*;
use crate::{RepairScope, TableRepair};
use evenkeel_base::{Code, Error, Stamp, UndoNo};
use evenkeel_format::record::{Entry, entry_op};

fn rebuilt(report: &TableRepair) -> Vec<(&str, u64)> {
    report.rebuilt.iter().map(|index| (index.index.as_str(), index.entries)).collect()
}

fn fill(db: &Db, table: &Arc<Table>, ids: std::ops::Range<i64>) {
    let mut txn = db.begin();
    for id in ids {
        txn.insert(table, &row_values(id, id % 7, Some("text"), Some(id))).unwrap();
    }
    commit(txn);
}

fn repair(db: &Db, scope: RepairScope) -> Result<TableRepair> {
    db.store.repair_table("t", scope, &BuildProgress::default(), &|_| {})
}

/// Writes an entry that no row needs, or takes one away that a row needs.
fn plant(db: &Db, table: &Arc<Table>, index: &str, op: u8, id: i64) {
    let mut txn = db.begin();
    let stamp = {
        let row = row_values(900_000 + id, 5, None, Some(900_000 + id));
        txn.insert(table, &row).unwrap();
        Stamp { txn: txn.inner.id(), undo_no: UndoNo(9) }
    };
    commit(txn);
    let layout = table.layout();
    let index = &layout.indexes[layout.index(index).unwrap()];
    let values = row_values(id, id % 7, Some("text"), Some(id));
    let (mut pk, mut key) = (Vec::new(), Vec::new());
    layout.encode_key(&|i| Ok(values[i]), &mut pk).unwrap();
    index.encode(&|i| Ok(values[i]), pk.len(), &mut key).unwrap();
    let entry = Entry { index: index.id, op, key: &key, value: &[] };
    let mut memory = db.store.runs.reserve(1000).unwrap();
    let pin = db.store.runs.pin();
    db.store.runs.insert(&pin, &mut memory, &entry, &pk, stamp, db.store.log.end());
}

fn sound(db: &Db, table: &Arc<Table>) {
    let report = db.store.check_table("t").unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.indexes_damaged.is_empty() && !report.rows_damaged);
    check_indexes(&mut db.begin(), table);
}

#[test]
fn a_repair_builds_wrong_indexes_anew_and_no_others() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let table = db.store.create_table("t", &spec()).unwrap();
    fill(&db, &table, 0..300);
    plant(&db, &table, "by_b", entry_op::INS, 1_000);
    plant(&db, &table, "by_c", entry_op::DEL, 3);
    let damaged = db.store.check_table("t").unwrap();
    assert_eq!(damaged.indexes_damaged, ["by_b", "by_c"]);
    let rows = all_rows(&mut db.begin(), &table, Direction::Forward);
    let before: Vec<_> = table.layout().indexes.iter().map(|i| (i.name.clone(), i.id)).collect();

    let report = repair(&db, RepairScope::Indexes).unwrap();
    assert_eq!(rebuilt(&report), [("by_b", 302), ("by_c", 302)]);
    assert!(report.problems.is_empty() && !report.rows_damaged && report.lost.is_empty());
    sound(&db, &table);
    assert_eq!(all_rows(&mut db.begin(), &table, Direction::Forward), rows);
    let def = table.layout().def.clone();
    for (name, id) in before {
        let index = def.index(&name).unwrap();
        assert_eq!(index.id == id, name == "by_a", "{name}");
        assert_eq!(index.entry.unique, name == "by_c");
    }
    // The new unique index keeps duplicates out.
    let mut txn = db.begin();
    let twice = txn.insert(&table, &row_values(5_000, 1, None, Some(3))).unwrap_err();
    assert_eq!(twice.code(), Code::DuplicateKey);
    txn.rollback().unwrap();
    // Nothing is left to repair, and nothing is repaired.
    let again = repair(&db, RepairScope::Rows).unwrap();
    assert!(again.rebuilt.is_empty() && again.found.is_empty());
    drop(db);

    let db = Db::open(env, SMALL, root);
    let table = db.store.table("t").unwrap();
    sound(&db, &table);
    assert_eq!(all_rows(&mut db.begin(), &table, Direction::Forward), rows);
    assert_eq!(table.layout().def.indexes.len(), 3);
}

/// Rows with equal keys of a unique index: that index stays as it is, the others are repaired.
#[test]
fn an_index_whose_rows_have_equal_keys_is_not_repaired() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    fill(&db, &table, 0..50);
    // The index has lost the entry that would refuse the second row.
    plant(&db, &table, "by_c", entry_op::DEL, 3);
    plant(&db, &table, "by_a", entry_op::DEL, 4);
    let mut txn = db.begin();
    txn.insert(&table, &row_values(5_000, 1, None, Some(3))).unwrap();
    commit(txn);
    let report = repair(&db, RepairScope::Indexes).unwrap();
    assert_eq!(rebuilt(&report), [("by_a", 53)]);
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert!(problem.contains("index by_c") && problem.contains("DuplicateInBuild"), "{problem}");
    assert_eq!(db.store.check_table("t").unwrap().indexes_damaged, ["by_c"]);
    let mut txn = db.begin();
    txn.delete(&table, &[5_000i64.into()]).unwrap();
    commit(txn);
    assert_eq!(rebuilt(&repair(&db, RepairScope::Indexes).unwrap()), [("by_c", 52)]);
    sound(&db, &table);
}

/// A primary key that is too long to cluster on is an index too, and keeps its part.
#[test]
fn the_index_of_a_primary_key_is_built_anew() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("name", ColumnType::Text { max: 3_000 }))
        .column(ColumnSpec::new("a", ColumnType::Int32))
        .primary_key(&["name"]);
    let table = db.store.create_table("t", &spec).unwrap();
    let mut txn = db.begin();
    for name in ["a", "b", "c"] {
        txn.insert(&table, &[ValueRef::Text(name), ValueRef::Int(1)]).unwrap();
    }
    let stamp = Stamp { txn: txn.inner.id(), undo_no: UndoNo(9) };
    commit(txn);
    let layout = table.layout();
    let index = &layout.indexes[0];
    let mut row = Row::new();
    let mut reader = db.begin();
    assert!(reader.get(&table, &[ValueRef::Text("b")], &mut row).unwrap());
    let mut key = Vec::new();
    index.encode(&|i| row.value(i), row.key().len(), &mut key).unwrap();
    let entry = Entry { index: index.id, op: entry_op::DEL, key: &key, value: &[] };
    let mut memory = db.store.runs.reserve(1000).unwrap();
    let pin = db.store.runs.pin();
    db.store.runs.insert(&pin, &mut memory, &entry, row.key(), stamp, db.store.log.end());
    drop((pin, reader));
    assert!(!db.begin().get(&table, &[ValueRef::Text("b")], &mut row).unwrap(), "planted");
    let report = repair(&db, RepairScope::Indexes).unwrap();
    assert_eq!(rebuilt(&report), [("primary", 3)]);
    assert!(db.begin().get(&table, &[ValueRef::Text("b")], &mut row).unwrap());
    assert!(table.layout().def.index("primary").unwrap().entry.primary);
    assert!(db.store.check_table("t").unwrap().problems.is_empty());
}

/// Transactions that use the table hold the end of a repair up, and a cancelled repair leaves what
/// it found.
#[test]
fn a_cancelled_repair_changes_nothing() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    fill(&db, &table, 0..50);
    plant(&db, &table, "by_a", entry_op::DEL, 3);
    let def = table.layout().def.clone();
    // In the check.
    let progress = BuildProgress::default();
    let cancel = progress.clone();
    let watch = move |_| cancel.cancel();
    let done = db.store.repair_table("t", RepairScope::Indexes, &progress, &watch);
    assert_eq!(done.map_err(|e| e.code()), Err(Code::BuildCancelled));
    assert_eq!(table.layout().def, def);
    // In the wait for a reader.
    let mut reader = db.begin();
    let mut row = Row::new();
    assert!(reader.get(&table, &[1i64.into()], &mut row).unwrap());
    let progress = BuildProgress::default();
    let (store, cancel) = (db.store.clone(), progress.clone());
    let work = move || store.repair_table("t", RepairScope::Indexes, &progress, &|_| {});
    let repair = std::thread::spawn(work);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!repair.is_finished(), "it waits for the reader");
    cancel.cancel();
    let done: Result<TableRepair> = repair.join().unwrap();
    assert_eq!(done.map_err(|e: Error| e.code()), Err(Code::BuildCancelled));
    assert_eq!(table.layout().def.indexes, def.indexes);
    assert_eq!(db.store.check_table("t").unwrap().indexes_damaged, ["by_a"]);
    drop(reader);
    assert_eq!(rebuilt(&repair_now(&db)), [("by_a", 51)]);
    sound(&db, &table);
}

fn repair_now(db: &Db) -> TableRepair {
    repair(db, RepairScope::Indexes).unwrap()
}
