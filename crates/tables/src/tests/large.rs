//! Long values: around each limit, as streams, through update, delete, rollback, savepoint and a
//! crash; afterwards every used page is reachable.

use super::*;
use std::io::{Read, Write};

const PLENTY: Sizes = Sizes { frames: 1024, ..SMALL };

fn films() -> TableSpec {
    let bytes = ColumnType::Bytes { max: u32::MAX };
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("n", ColumnType::Int32))
        .column(ColumnSpec::new("film", bytes).nullable())
        .column(ColumnSpec::new("text", ColumnType::Text { max: 1 << 20 }).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_n", &["n"]))
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8 ^ seed).collect()
}

fn row(id: i64, film: &[u8]) -> [ValueRef<'_>; 4] {
    [id.into(), 1i64.into(), ValueRef::Bytes(film), ValueRef::Text("t")]
}

fn film(db: &Db, table: &Arc<Table>, id: i64) -> Option<Vec<u8>> {
    let mut row = Row::new();
    let found = db.begin().get(table, &[id.into()], &mut row).unwrap();
    found.then(|| match row.value(2).unwrap() {
        ValueRef::Bytes(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    })
}

/// The memory of a long value may outlive the row buffer, which reads the value again if necessary.
#[test]
fn a_long_value_is_taken_from_a_row_without_a_copy() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let long = bytes((1 << 20) + 77, 5);
    let mut txn = db.begin();
    txn.insert(&table, &row(1, &long)).unwrap();
    txn.insert(&table, &row(2, &long[..100_000])).unwrap();
    commit(txn);
    let mut row = Row::new();
    let mut txn = db.begin();
    assert!(txn.get(&table, &[1i64.into()], &mut row).unwrap());
    assert!(row.take_large(2).is_none(), "nobody has asked for it");
    let ValueRef::Bytes(seen) = row.value(2).unwrap() else { panic!("no bytes") };
    let at = seen.as_ptr();
    let Some(Value::Bytes(taken)) = row.take_large(2) else { panic!("not taken") };
    assert!(taken.as_ptr() == at && row.take_large(2).is_none());
    assert_eq!(row.value(2).unwrap(), ValueRef::Bytes(&long), "read again");
    // A shorter value is read with its row.
    assert!(txn.get(&table, &[2i64.into()], &mut row).unwrap());
    assert_eq!(row.value(2).unwrap(), ValueRef::Bytes(&long[..100_000]));
    assert!(row.take_large(2).is_none() && row.take_large(0).is_none());
    assert!(taken == long);
}

/// The check finds no problem and no unreachable page.
fn sound(db: &Db) {
    let report = db.store.check_table("films").unwrap();
    assert_eq!(report.problems, [""; 0]);
}

/// Waits until the background has freed all that it may; returns the number of pages in use.
fn settled(db: &Db, table: &Arc<Table>) -> usize {
    let rt = &db.store.rt;
    let event = Arc::new(Event::new());
    for _ in 0..2000 {
        if db.store.chains_waiting() == 0 && db.store.txns.rolling_back_count() == 0 {
            break;
        }
        db.store.txns.event().notify();
        rt.wait(&event, event.now(), Some(Duration::from_millis(5)), Cause::Idle);
    }
    assert_eq!(db.store.chains_waiting(), 0);
    sound(db);
    db.store.pages.used_by(table.state().tree.id()).len()
}

fn stream(txn: &mut TableTxn, table: &Arc<Table>, len: usize, seed: u8) -> LargeValue {
    let mut writer = txn.large_value(table).unwrap();
    for part in bytes(len, seed).chunks(10_007) {
        writer.write_all(part).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn values_around_the_limits_of_rows_and_reads_round_trip() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let limit = table.state().tree.row_bytes_max(8);
    let quarter = table.state().tree.row_bytes_whole();
    let mut lens = vec![0, 1, 63, 64, (1 << 20) - 1, 1 << 20, (1 << 20) + 1];
    lens.extend(quarter - 40..quarter + 2);
    lens.extend(limit - 40..limit + 2);
    for (id, len) in lens.iter().enumerate() {
        let mut txn = db.begin();
        txn.insert(&table, &row(id as i64, &bytes(*len, 3))).unwrap();
        commit(txn);
    }
    for (id, len) in lens.iter().enumerate() {
        assert!(film(&db, &table, id as i64) == Some(bytes(*len, 3)), "{len} bytes");
    }
    sound(&db);
    let mut txn = db.begin();
    (0..lens.len()).for_each(|id| assert!(txn.delete(&table, &[(id as i64).into()]).unwrap()));
    commit(txn);
    settled(&db, &table);
}

#[test]
fn replaced_and_deleted_chains_are_freed_when_no_snapshot_needs_them() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &row(1, &bytes(100_000, 1))).unwrap();
    txn.insert(&table, &row(2, &bytes(50_000, 2))).unwrap();
    commit(txn);
    let before = settled(&db, &table);

    let mut old = db.begin();
    old.take_snapshot().unwrap();
    let mut txn = db.begin();
    txn.update(&table, &[1i64.into()], &[(2, ValueRef::Bytes(&bytes(100_000, 9)))]).unwrap();
    // Another column changes: the chain stays.
    txn.update(&table, &[2i64.into()], &[(1, 7i64.into())]).unwrap();
    commit(txn);
    let mut txn = db.begin();
    txn.delete(&table, &[2i64.into()]).unwrap();
    commit(txn);
    assert_eq!(db.store.chains_waiting(), 2);
    assert_eq!(db.store.chain_beat().unwrap(), Beat::Idle, "a snapshot needs both");
    sound(&db);
    let mut row = Row::new();
    assert!(old.get(&table, &[1i64.into()], &mut row).unwrap());
    assert!(row.value(2).unwrap() == ValueRef::Bytes(&bytes(100_000, 1)));
    assert!(old.get(&table, &[2i64.into()], &mut row).unwrap());
    assert!(row.value(2).unwrap() == ValueRef::Bytes(&bytes(50_000, 2)));
    old.rollback().unwrap();
    assert!(settled(&db, &table) < before);
    assert!(film(&db, &table, 1) == Some(bytes(100_000, 9)));
    assert_eq!(film(&db, &table, 2), None);
}

#[test]
fn rollbacks_free_new_chains_and_keep_old_ones() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &row(1, &bytes(90_000, 1))).unwrap();
    commit(txn);
    let before = settled(&db, &table);
    let new = bytes(80_000, 5);
    let mut txn = db.begin();
    txn.savepoint("s").unwrap();
    txn.update(&table, &[1i64.into()], &[(2, ValueRef::Bytes(&new))]).unwrap();
    txn.update(&table, &[1i64.into()], &[(2, ValueRef::Bytes(&bytes(70_000, 6)))]).unwrap();
    txn.insert(&table, &row(2, &new)).unwrap();
    sound(&db);
    txn.rollback_to("s").unwrap();
    assert_eq!(settled(&db, &table), before);
    let duplicate = txn.insert(&table, &row(1, &new)).unwrap_err();
    assert_eq!(duplicate.code(), evenkeel_base::Code::DuplicateKey);
    assert_eq!(settled(&db, &table), before);
    // The key changes, the chain is copied.
    txn.update(&table, &[1i64.into()], &[(0, 4i64.into())]).unwrap();
    sound(&db);
    txn.delete(&table, &[4i64.into()]).unwrap();
    txn.rollback().unwrap();
    assert_eq!(settled(&db, &table), before);
    assert!(film(&db, &table, 1) == Some(bytes(90_000, 1)));
    let mut txn = db.begin();
    txn.update(&table, &[1i64.into()], &[(0, 4i64.into())]).unwrap();
    commit(txn);
    assert_eq!(settled(&db, &table), before);
    assert!(film(&db, &table, 4) == Some(bytes(90_000, 1)));
}

#[test]
fn long_values_stream_in_and_out() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    let empty = settled(&db, &table);
    drop(stream(&mut txn, &table, 300_000, 1));
    let mut unfinished = txn.large_value(&table).unwrap();
    unfinished.write_all(&bytes(100_000, 1)).unwrap();
    drop(unfinished);
    assert_eq!(settled(&db, &table), empty, "no row took them");

    let len = 3 << 20;
    let large = stream(&mut txn, &table, len, 2);
    sound(&db);
    let values = [1i64.into(), 1i64.into(), ValueRef::Null, ValueRef::Null];
    txn.insert_large(&table, &values, vec![(2, large)]).unwrap();
    let small = stream(&mut txn, &table, 5, 3);
    let text = {
        let mut w = txn.large_value(&table).unwrap();
        w.write_all(&[0xc3]).unwrap();
        w.write_all(&[0xa4, b'x']).unwrap();
        w.finish().unwrap()
    };
    txn.update_large(&table, &[1i64.into()], &[(1, 2i64.into())], vec![(3, text)]).unwrap();
    let wrong = stream(&mut txn, &table, 5, 3);
    assert!(txn.update_large(&table, &[1i64.into()], &[], vec![(1, wrong)]).is_err());
    let broken = {
        let mut w = txn.large_value(&table).unwrap();
        w.write_all(&[0xc3]).unwrap();
        w.finish().unwrap()
    };
    assert!(txn.update_large(&table, &[1i64.into()], &[], vec![(3, broken)]).is_err());
    let values = [2i64.into(), 1i64.into(), ValueRef::Null, ValueRef::Null];
    txn.insert_large(&table, &values, vec![(2, small)]).unwrap();
    commit(txn);
    settled(&db, &table);

    let mut txn = db.begin();
    let mut row = Row::new();
    assert!(txn.get(&table, &[1i64.into()], &mut row).unwrap());
    assert_eq!(row.value("text").unwrap(), ValueRef::Text("äx"));
    let mut reader = row.open_large(2).unwrap();
    txn.rollback().unwrap();
    let mut other = db.begin();
    other.delete(&table, &[1i64.into()]).unwrap();
    commit(other);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == bytes(len, 2), "an open stream keeps its version");
    drop(reader);
    row = Row::new();
    assert_eq!(row.len(), 0);
    settled(&db, &table);
    assert_eq!(film(&db, &table, 2), Some(bytes(5, 3)));
}

#[test]
fn after_a_crash_no_chain_is_lost_and_none_leaks() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), PLENTY);
    let root = db.store.catalog_root();
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    for id in 1..=4 {
        txn.insert(&table, &row(id, &bytes(40_000, id as u8))).unwrap();
    }
    commit(txn);
    let four = settled(&db, &table);
    let keep = db.store.txns.snapshot();
    let mut txn = db.begin();
    txn.update(&table, &[1i64.into()], &[(2, ValueRef::Bytes(&bytes(40_000, 9)))]).unwrap();
    txn.delete(&table, &[2i64.into()]).unwrap();
    commit(txn);
    let mut open = db.begin();
    open.update(&table, &[3i64.into()], &[(2, ValueRef::Bytes(&bytes(70_000, 8)))]).unwrap();
    open.insert(&table, &row(5, &bytes(60_000, 8))).unwrap();
    let mut prepared = db.begin();
    prepared.update(&table, &[4i64.into()], &[(2, ValueRef::Bytes(&bytes(40_000, 7)))]).unwrap();
    prepared.prepare(b"x").unwrap();
    let ahead = stream(&mut open, &table, 90_000, 1);
    let mut cut = open.large_value(&table).unwrap();
    cut.write_all(&bytes(33_000, 1)).unwrap();
    db.store.log.wait_durable(Lsn(db.store.log.end().0 - 1)).unwrap();
    std::mem::forget((open, prepared, ahead, cut, keep));
    drop(db);

    let db = Db::open(env, PLENTY, root);
    let table = db.store.table("films").unwrap();
    sound(&db);
    let wait = Arc::new(Event::new());
    for _ in 0..2000 {
        if db.store.chains_waiting() == 1 && db.store.txns.rolling_back_count() == 0 {
            break;
        }
        db.store.txns.event().notify();
        db.store.rt.wait(&wait, wait.now(), Some(Duration::from_millis(5)), Cause::Idle);
    }
    assert_eq!(db.store.chains_waiting(), 1, "what the prepared one gives up");
    sound(&db);
    db.store.commit_prepared(b"x", Durability::Sync).unwrap();
    let three = settled(&db, &table);
    assert_eq!(four - three, 10, "the pages of one film");
    for (id, seed) in [(1, 9), (3, 3), (4, 7)] {
        assert!(film(&db, &table, id) == Some(bytes(40_000, seed)), "film {id}");
    }
    assert_eq!((film(&db, &table, 2), film(&db, &table, 5)), (None, None));
}

#[test]
fn the_list_of_chains_survives_in_a_checkpoint() {
    let stamp = |txn| evenkeel_base::Stamp {
        txn: evenkeel_base::TxnId(txn),
        undo_no: evenkeel_base::UndoNo(1),
    };
    let chain = |head, txn| evenkeel_tree::OverflowRef {
        head: evenkeel_base::PageNo(head),
        len: 9,
        owner: stamp(txn),
    };
    let tree = evenkeel_base::TreeId(7);
    let chains = Chains::default();
    chains.begin(evenkeel_base::PageNo(5), tree, stamp(1));
    let superseded = evenkeel_format::overflow::ChainEdit::Superseded(chain(6, 1));
    chains.logged(stamp(2), tree, &[superseded]);
    let blob = chains.checkpoint_blob();
    let again = Chains::default();
    again.restore(&blob).unwrap();
    assert_eq!(again.checkpoint_blob(), blob);
    // An entry that is in the checkpoint and again in the log counts once.
    again.logged(stamp(2), tree, &[superseded]);
    assert_eq!(again.waiting(), 1);
    again.reverted(stamp(2));
    assert_eq!(again.waiting(), 0);
    (0..blob.len()).for_each(|cut| drop(Chains::default().restore(&blob[..cut])));
    assert!(Chains::default().restore(&blob[..blob.len() - 1]).is_err());
}

fn give_up(txn: &mut TableTxn, table: &Arc<Table>, id: i64) {
    assert!(txn.update(table, &[id.into()], &[(2, ValueRef::Bytes(&bytes(3_000, 99)))]).unwrap());
}

/// Chains that a snapshot keeps are freed from lists like from memory, unless the list is damaged.
#[test]
fn chains_in_lists_are_freed_when_no_snapshot_needs_them() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    for id in 0..40 {
        txn.insert(&table, &row(id, &bytes(9_000, 1))).unwrap();
    }
    commit(txn);
    let before = settled(&db, &table);
    let mut old = db.begin();
    old.take_snapshot().unwrap();
    let (chains, txns) = (&db.store.chains, &db.store.txns);
    for part in 0..4 {
        let mut txn = db.begin();
        (part * 10..part * 10 + 10).for_each(|id| give_up(&mut txn, &table, id));
        commit(txn);
        let saved = chains.save_beyond(9, txns).unwrap();
        assert_eq!((saved, chains.save_beyond(9, txns).unwrap()), (10, 0));
    }
    assert!(chains.checkpoint_blob().len() < 4, "none is listed one by one");
    assert!(chains.lists_blob().len() < 60, "{} bytes", chains.lists_blob().len());
    assert_eq!(db.store.chains_waiting(), 40);
    assert_eq!(db.store.chain_beat().unwrap(), Beat::Idle, "a snapshot needs them");
    sound(&db);
    let mut row = Row::new();
    assert!(old.get(&table, &[11i64.into()], &mut row).unwrap());
    assert!(row.value(2).unwrap() == ValueRef::Bytes(&bytes(9_000, 1)));
    old.rollback().unwrap();
    assert!(settled(&db, &table) < before);
    assert_eq!(chains.lists_blob(), []);
    assert!(film(&db, &table, 11) == Some(bytes(3_000, 99)));
}

/// A list entry of an operation that was rolled back since has no effect, whatever the outcome of
/// its transaction; the commit table keeps that transaction for as long as the list exists.
#[test]
fn listed_chains_that_a_rollback_restored_are_kept() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    for id in 0..6 {
        txn.insert(&table, &row(id, &bytes(9_000, 1))).unwrap();
    }
    commit(txn);
    let (chains, txns) = (&db.store.chains, &db.store.txns);
    let [mut kept, mut back, mut held] = [db.begin(), db.begin(), db.begin()];
    give_up(&mut kept, &table, 0);
    kept.savepoint("s").unwrap();
    give_up(&mut kept, &table, 1);
    give_up(&mut kept, &table, 2);
    give_up(&mut back, &table, 3);
    give_up(&mut held, &table, 4);
    assert_eq!(chains.save_beyond(0, txns).unwrap(), 5);
    kept.rollback_to("s").unwrap();
    give_up(&mut kept, &table, 2);
    commit(kept);
    back.rollback().unwrap();
    // Enough that the ids of both may leave the commit table.
    let mut ids = 0..10_000;
    while txns.next_id().0 < 10_000 {
        let mut txn = db.begin();
        txn.insert(&table, &row(100 + ids.next().unwrap() % 2, b"")).unwrap();
        txn.rollback().unwrap();
    }
    db.store.txns.event().notify();
    assert_eq!(db.store.chains_waiting(), 5, "an undecided one holds the list");
    held.rollback().unwrap();
    settled(&db, &table);
    for id in 0..6 {
        let new = id == 0 || id == 2;
        let expected = if new { bytes(3_000, 99) } else { bytes(9_000, 1) };
        assert!(film(&db, &table, id) == Some(expected), "film {id}");
    }
}

#[test]
fn a_check_reports_unreachable_pages() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let tree = table.state().tree.clone();
    let mut lost = evenkeel_tree::OverflowWriter::new(&tree, evenkeel_base::Stamp::default());
    lost.write(&[1; 9_000]).unwrap();
    let lost = lost.finish().unwrap();
    let problems = db.store.check_table("films").unwrap().problems;
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems.iter().all(|p| p.ends_with("in use and unreachable")), "{problems:?}");
    evenkeel_tree::overflow::free(&tree, &lost).unwrap();
    sound(&db);
}

/// A dirty read has found a version whose long values are freed before it reads them, because the
/// version is rolled back: it reads the row again.
#[test]
fn a_dirty_read_of_a_rolled_back_value_reads_the_row_again() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let table = db.store.create_table("films", &films()).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &row(1, &bytes(90_000, 1))).unwrap();
    commit(txn);
    settled(&db, &table);
    let mut writer = db.begin();
    writer.update(&table, &[1i64.into()], &[(2, ValueRef::Bytes(&bytes(80_000, 2)))]).unwrap();
    writer.insert(&table, &row(2, &bytes(70_000, 3))).unwrap();
    let mut reader = db.begin_at(Isolation::ReadUncommitted);
    let (view, state) = (reader.view().unwrap(), table.state());
    let found = [1i64, 2].map(|id| {
        let (mut key, mut row) = (Vec::new(), Row::new());
        state.layout.encode_key(&|_| Ok(ValueRef::Int(id)), &mut key).unwrap();
        assert!(db.store.read(&state, &key, &view, &mut row).unwrap(), "the new version of {id}");
        row
    });
    writer.rollback().unwrap();
    settled(&db, &table);
    let [mut changed, mut inserted] = found;
    assert!(db.store.load_in_view(&state, &view, &mut changed).unwrap());
    assert!(changed.value(2).unwrap() == ValueRef::Bytes(&bytes(90_000, 1)));
    assert!(!db.store.load_in_view(&state, &view, &mut inserted).unwrap(), "there is no such row");
}

/// A locking scan checks the key of each row again: here a key made from a value in overflow pages.
#[test]
fn locking_by_an_index_over_the_beginning_of_long_values() {
    let db = Db::create(Arc::new(MemEnv::new()), PLENTY);
    let mut spec = films().index(IndexSpec::new("by_film", &["n", "film"]));
    spec.indexes[1].parts[1].prefix = 2;
    let table = db.store.create_table("films", &spec).unwrap();
    let mut txn = db.begin();
    for (id, len) in [(1, 20), (2, 5_000), (3, 90_000), (4, 2 << 20)] {
        txn.insert(&table, &row(id, &bytes(len, id as u8))).unwrap();
    }
    commit(txn);
    let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
    let mut txn = db.begin();
    let mut scan =
        txn.locked_index_scan(&table, 1, Range::ALL, Direction::Forward, locking).unwrap();
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        let ValueRef::Int(id) = row.value(0).unwrap() else { panic!() };
        let ValueRef::Bytes(film) = row.value(2).unwrap() else { panic!() };
        found.push((id, film.len()));
        let moved = txn.update(&table, &[id.into()], &[(1, 2i64.into())]).unwrap();
        assert!(moved, "{id}");
    }
    found.sort_unstable();
    assert_eq!(found, [(1, 20), (2, 5_000), (3, 90_000), (4, 2 << 20)]);
    commit(txn);
    sound(&db);
}

/// A change is one record with the entries of all indexes: a longer one is refused.
#[test]
fn the_entries_of_a_row_fit_one_record() {
    let db = Db::new();
    let mut spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("text", ColumnType::Text { max: 60_000 }))
        .primary_key(&["id"]);
    spec.indexes = (0..40).map(|n| IndexSpec::new(&format!("i{n}"), &["text"])).collect();
    let table = db.store.create_table("t", &spec).unwrap();
    let (long, half, short) = ("l".repeat(60_000), "h".repeat(30_000), "s".repeat(20_000));
    let mut txn = db.begin();
    let refused = |done: Result<()>| {
        let error = done.unwrap_err();
        assert_eq!(error.code(), evenkeel_base::Code::EntryTooLong, "{error}");
        assert_eq!(error.context("limit"), Some("2097152"));
    };
    refused(txn.insert(&table, &[1i64.into(), ValueRef::Text(&long)]).map(|_| ()));
    txn.insert(&table, &[1i64.into(), ValueRef::Text(&half)]).unwrap();
    // The old entries are removed and the new ones inserted.
    refused(txn.update(&table, &[1i64.into()], &[(1, ValueRef::Text(&long))]).map(|_| ()));
    assert!(txn.update(&table, &[1i64.into()], &[(1, ValueRef::Text(&short))]).unwrap());
    commit(txn);
    let mut txn = db.begin();
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    assert_eq!(rows, [[Value::Int(1), Value::from(&short[..])]]);
    check_indexes(&mut txn, &table);
}
