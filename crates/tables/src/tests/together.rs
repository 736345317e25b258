//! Changes and builds of several tables together, as for all partitions of a table: all of them or
//! none.

use super::build::simulated;
use super::*;
use evenkeel_base::Code;
use evenkeel_format::catalog::entry_kind;

const NAMES: [&str; 3] = ["one", "three", "two"];

/// Tables of these numbers of rows, without indexes; `c` is unique in each.
fn filled(db: &Db, rows: [i64; 3]) -> [Arc<Table>; 3] {
    let mut spec = spec();
    spec.indexes.clear();
    // Created in another order than that of their names.
    [0, 1, 2].map(|at| {
        let table = db.store.create_table(NAMES[at], &spec).unwrap();
        let mut txn = db.begin();
        let values: Vec<_> = (0..rows[at]).map(|i| row_values(i, i % 10, None, Some(i))).collect();
        txn.insert_many(&table, values.iter().map(|v| &v[..])).unwrap();
        commit(txn);
        table
    })
}

fn build(db: &Db, indexes: &[IndexSpec], progress: &BuildProgress) -> Result<()> {
    db.store.add_indexes_to(&NAMES.map(|name| (name, indexes)), progress)
}

fn alter(db: &Db, changes: [&TableChange; 3]) -> Result<()> {
    let changes: Vec<_> = NAMES.into_iter().zip(changes).collect();
    db.store.alter_tables(&changes, &SchemaWait::default())
}

/// The number of indexes of each table.
fn counts(tables: &[Arc<Table>; 3]) -> [usize; 3] {
    [0, 1, 2].map(|at| tables[at].layout().indexes.len())
}

fn dropping(index: &str) -> TableChange {
    TableChange { drop_indexes: vec![index.to_string()], ..TableChange::default() }
}

#[test]
fn several_tables_are_changed_together_or_not_at_all() {
    let sizes = Sizes { lock_wait: Duration::from_millis(30), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let tables = filled(&db, [300, 20, 300]);
    build(&db, &spec().indexes, &BuildProgress::default()).unwrap();
    assert_eq!(counts(&tables), [3; 3]);
    // The last table is in use; then it has no such index.
    let (drop_a, none) = (dropping("by_a"), dropping("none"));
    let mut user = db.begin();
    user.update(&tables[2], &[1i64.into()], &[(1, 5i64.into())]).unwrap();
    let error = alter(&db, [&drop_a, &drop_a, &drop_a]).unwrap_err();
    assert_eq!(error.code(), Code::TableBusy);
    assert!(error.to_string().contains("two"), "{error}");
    commit(user);
    let error = alter(&db, [&drop_a, &drop_a, &none]).unwrap_err();
    assert_eq!(error.code(), Code::IndexMissing);
    // No transaction waits for itself.
    let twice = [(NAMES[0], &drop_a), (NAMES[1], &drop_a), (NAMES[0], &drop_a)];
    let error = db.store.alter_tables(&twice, &SchemaWait::default()).unwrap_err();
    assert_eq!(error.code(), Code::DefinitionInvalid);
    assert!(error.to_string().contains(NAMES[0]), "{error}");
    assert_eq!(counts(&tables), [3; 3]);
    // All are open, with their former indexes.
    for table in &tables {
        let mut txn = db.begin();
        txn.insert(table, &row_values(1000, 1, None, Some(1000))).unwrap();
        commit(txn);
        check_indexes(&mut db.begin(), table);
    }
    alter(&db, [&drop_a, &drop_a, &drop_a]).unwrap();
    assert_eq!(counts(&tables), [2; 3]);
    tables.iter().for_each(|table| check_indexes(&mut db.begin(), table));
}

/// Marks in the catalog.
fn marks(db: &Db) -> usize {
    let rows = all_rows(&mut db.begin(), &db.store.catalog.table, Direction::Forward);
    let is_mark = |row: &&Vec<Value>| {
        row[1] == Value::UInt(entry_kind::COUNTER.into())
            && row[2] == Value::UInt(crate::catalog::MARK.into())
            && row[0] != Value::UInt(0)
    };
    rows.iter().filter(is_mark).count()
}

/// A crash leaves a change of three tables complete, with its mark, or without effect.
#[test]
fn a_change_of_several_tables_is_atomic_over_a_crash() {
    for durable in [true, false] {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let db = Db::create(env.clone(), SMALL);
        let root = db.store.catalog_root();
        let tables = filled(&db, [20, 20, 20]);
        build(&db, &spec().indexes, &BuildProgress::default()).unwrap();
        let drop_a = dropping("by_a");
        let marked = TableChange { mark: u64::MAX, ..drop_a.clone() };
        let mut provisional = spec().indexes.remove(0);
        provisional.name = format!("{}late", crate::PROVISIONAL);
        if durable {
            alter(&db, [&drop_a, &marked, &drop_a]).unwrap();
        } else {
            build(&db, &[provisional], &BuildProgress::default()).unwrap();
            db.store.log.wait_durable(Lsn(db.store.log.end().0 - 1)).unwrap();
        }
        drop((db, tables));
        let db = Db::open(env.clone(), SMALL, root);
        let tables = NAMES.map(|name| db.store.table(name).unwrap());
        let had = counts(&tables);
        assert_eq!(had, [had[0]; 3], "alike in all");
        tables.iter().for_each(|table| check_indexes(&mut db.begin(), table));
        if !durable {
            assert!((3..=4).contains(&had[0]), "{had:?}");
            continue;
        }
        assert_eq!(had, [2; 3]);
        assert_eq!([0, 1, 2].map(|at| tables[at].mark()), [0, u64::MAX, 0]);
        // The mark is removed when it is forgotten, and with its table.
        alter(&db, [&TableChange { mark: 7, ..TableChange::default() }; 3]).unwrap();
        assert_eq!(marks(&db), 3);
        db.store.forget_mark(NAMES[0]).unwrap();
        db.store.forget_mark(NAMES[0]).unwrap();
        db.store.drop_table(NAMES[1]).unwrap();
        assert_eq!(marks(&db), 1);
        drop((db, tables));
        let db = Db::open(env, SMALL, root);
        assert_eq!(["one", "two"].map(|name| db.store.table(name).unwrap().mark()), [0, 7]);
    }
}

#[test]
fn indexes_of_several_tables_are_built_while_writers_continue() {
    let db = Db::new();
    let tables = filled(&db, [6_000, 0, 3_000]);
    let stop = AtomicBool::new(false);
    let progress = BuildProgress::default();
    std::thread::scope(|scope| {
        for (at, table) in tables.iter().enumerate() {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                for i in 0i64.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let id = 10_000 * (at as i64 + 1) + i;
                    let mut txn = db.begin();
                    txn.insert(table, &row_values(id, i % 10, Some("new"), Some(id))).unwrap();
                    txn.update(table, &[(i % 3_000).into()], &[(1, (i % 7).into())]).unwrap();
                    txn.delete(table, &[(5_999 - i).into()]).unwrap();
                    txn.commit(Durability::Lazy).unwrap();
                }
            });
        }
        build(&db, &spec().indexes, &progress).unwrap();
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(counts(&tables), [3; 3]);
    tables.iter().for_each(|table| check_indexes(&mut db.begin(), table));
    assert_eq!((progress.phase(), progress.share()), (BuildPhase::Done, 1.0));
}

/// The rows of all tables are counted, and the share of the work covers all.
#[test]
fn the_progress_of_a_build_covers_all_its_tables() {
    let db = Db::new();
    filled(&db, [3_000, 1_000, 2_000]);
    let (progress, shown) = (BuildProgress::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut before = 0.0;
            while !shown.load(Ordering::SeqCst) {
                let share = progress.share();
                assert!(share >= before, "{share} behind {before}");
                before = share;
                std::thread::yield_now();
            }
        });
        build(&db, &spec().indexes, &progress).unwrap();
        shown.store(true, Ordering::SeqCst);
    });
    let rows = (progress.rows_done(), progress.rows_written(), progress.rows_total());
    assert_eq!(rows, (6_000, 6_000, 6_000));
    assert_eq!((progress.share(), progress.time_left()), (1.0, Some(Duration::ZERO)));
}

#[test]
fn a_duplicate_in_one_table_removes_the_new_indexes_of_all() {
    for bad in 0..3 {
        let db = Db::new();
        let tables = filled(&db, [300; 3]);
        let mut txn = db.begin();
        txn.insert(&tables[bad], &row_values(1000, 1, None, Some(7))).unwrap();
        commit(txn);
        let progress = BuildProgress::default();
        let error = build(&db, &spec().indexes, &progress).unwrap_err();
        assert_eq!(error.code(), Code::DuplicateInBuild);
        assert_eq!(progress.duplicate_in(), NAMES[bad]);
        assert!(!progress.duplicate().is_empty());
        assert_eq!(counts(&tables), [0; 3]);
        // A column that is no longer unique may have duplicates; in that case, and without it, all
        // indexes are built.
        let mut txn = db.begin();
        txn.insert(&tables[0], &row_values(2000, 1, None, Some(8))).unwrap();
        txn.delete(&tables[0], &[2000i64.into()]).unwrap();
        txn.delete(&tables[bad], &[1000i64.into()]).unwrap();
        commit(txn);
        build(&db, &spec().indexes, &BuildProgress::default()).unwrap();
        tables.iter().for_each(|table| check_indexes(&mut db.begin(), table));
    }
}

/// A duplicate inserted into a table that is already proved, while others are read, fails the
/// build; the inserting statement continues.
#[test]
fn a_duplicate_inserted_after_its_tables_proof_fails_the_build() {
    let came = Arc::new(Mutex::new(0));
    for seed in 0..8 {
        let came = came.clone();
        simulated(seed, move |sim| {
            let db = Db::create(sim.env(), SMALL);
            let tables = filled(&db, [300, 300, 300]);
            let progress = BuildProgress::default();
            let (shown, rt, store) = (progress.clone(), db.store.rt.clone(), db.store.clone());
            let (first, last) = (tables[0].clone(), tables[2].clone());
            let inserted = Arc::new(AtomicBool::new(false));
            let wrote = inserted.clone();
            let writer = rt.clone().spawn("writer", move || {
                while (shown.phase() as u8) < BuildPhase::Scanning as u8 {
                    rt.step();
                }
                // It holds up the proof of the last table, not the scan.
                let mut open = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
                open.insert(&last, &row_values(1000, 1, None, Some(1000))).unwrap();
                while shown.rows_done() < 900 && shown.phase() != BuildPhase::Done {
                    rt.delay(Duration::from_micros(100), Cause::Idle);
                }
                let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
                let done = txn.insert(&first, &row_values(1000, 1, None, Some(7)));
                wrote.store(done.is_ok(), Ordering::SeqCst);
                commit(txn);
                commit(open);
            });
            let built = build(&db, &spec().indexes, &progress);
            writer.unwrap().join().unwrap();
            let inserted = inserted.load(Ordering::SeqCst);
            assert_eq!(built.is_err(), inserted, "one of the two: {built:?}");
            if let Err(error) = built {
                assert_eq!(error.code(), Code::DuplicateInBuild);
                assert_eq!(counts(&tables), [0; 3]);
                *came.lock() += 1;
            }
            tables.iter().for_each(|table| check_indexes(&mut db.begin(), table));
        });
    }
    assert!(*came.lock() >= 4, "{} of 8 builds failed", *came.lock());
}
