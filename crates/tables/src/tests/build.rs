//! Index builds: threads, arenas, cancellation and failure at any moment.

use super::*;
use crate::build::arena::BuildArena;
use evenkeel_base::Code;
use evenkeel_base::metrics::Metric;
use evenkeel_io::Rng;
use evenkeel_io::sim::{Fault, FaultKind, SimEnv, SimOptions, When};
use std::collections::BTreeSet;

/// A table without indexes; `c` is unique.
fn filled(db: &Db, rows: i64) -> Arc<Table> {
    let mut spec = spec();
    spec.indexes.clear();
    let table = db.store.create_table("t", &spec).unwrap();
    let mut txn = db.begin();
    for i in 0..rows {
        let text = "text".repeat((i % 7) as usize);
        txn.insert(&table, &row_values(i, i * 7919 % 10, Some(&text), Some(i))).unwrap();
    }
    commit(txn);
    table
}

fn build(db: &Db, progress: &BuildProgress) -> Result<()> {
    db.store.add_indexes("t", &spec().indexes, progress)
}

/// Waits for a running compaction, then checks that no run file is left.
fn assert_no_runs(db: &Db) {
    let files = || db.store.rt.env.list("runs").unwrap();
    for _ in 0..200 {
        if files().is_empty() {
            return;
        }
        db.store.rt.delay(Duration::from_millis(10), Cause::Idle);
    }
    panic!("left behind: {:?}", files());
}

/// Runs `body` in a simulation.
pub(super) fn simulated(seed: u64, body: impl FnOnce(&SimEnv) + Send + 'static) {
    let sim = SimEnv::on(evenkeel_io::SimDisk::new(seed), SimOptions::new(seed));
    let inside = sim.clone();
    sim.run(vec![Box::new(move || body(&inside))]);
    sim.stop();
}

#[test]
fn any_number_of_threads_and_arenas_gives_the_same_index() {
    for (threads, arena) in [(1, 1 << 20), (2, 1 << 20), (4, 1 << 20), (1, 1), (3, 64 << 10)] {
        let sizes =
            Sizes { build_threads: threads, build_arena_bytes: arena, frames: 512, ..SMALL };
        let db = Db::create(Arc::new(MemEnv::new()), sizes);
        let table = filled(&db, 12_000);
        let mut txn = db.begin();
        for id in (0..12_000i64).step_by(5) {
            txn.delete(&table, &[id.into()]).unwrap();
        }
        txn.update(&table, &[3i64.into()], &[(1, 77i64.into())]).unwrap();
        commit(txn);
        let progress = BuildProgress::default();
        build(&db, &progress).unwrap();
        assert!((9_600..=12_000).contains(&progress.rows_done()), "{}", progress.rows_done());
        check_indexes(&mut db.begin(), &table);
        for index in &table.layout().indexes {
            db.store.runs.check(index.id).unwrap();
        }
    }
}

/// F4: each reading of the clock adds 2 ms here, so every one ends a slice. A small build does not
/// give way while its budget of 1.5 core-seconds lasts.
#[test]
fn a_build_gives_way_each_slice_once_its_budget_is_used_up() {
    let yields = |rows: u64| {
        let env = Arc::new(evenkeel_io::TickingEnv::new(Arc::new(MemEnv::new()), 2_000_000));
        let sizes = Sizes { build_threads: 1, frames: 8192, ..SMALL };
        let db = Db::create(env.clone(), sizes);
        filled(&db, rows as i64);
        let before = env.yields();
        build(&db, &BuildProgress::default()).unwrap();
        env.yields() - before
    };
    assert_eq!(yields(12_000), 0);
    // Far less than 1 ms each: 64 rows read; 1024 entries written. The ends of ranges and parts
    // lose few.
    let (rows, indexes) = (100_000, spec().indexes.len() as u64);
    let (found, wanted) = (yields(rows), rows / 64 + indexes * (rows / 1024) - 750);
    assert!(found >= wanted * 9 / 10, "{found} of {wanted}");
}

/// F4: the table is read once; an index is written once while it is below 8 arenas, otherwise once
/// more by one compaction.
#[test]
fn a_build_reads_the_table_once_and_writes_each_index_once_or_twice() {
    let rows = 12_000;
    for (arena, passes) in [(4 << 20, 1), (64 << 10, 2)] {
        let sizes = Sizes { build_arena_bytes: arena, frames: 1024, ..SMALL };
        let db = Db::create(Arc::new(MemEnv::new()), sizes);
        let table = filled(&db, rows);
        let (metrics, progress) = (db.store.rt.metrics.clone(), BuildProgress::default());
        build(&db, &progress).unwrap();
        assert_eq!(progress.rows_done(), rows as u64, "arena {arena}: rows read");
        let stats: Vec<_> =
            table.layout().indexes.iter().map(|i| db.store.runs.stats(i.id)).collect();
        let entries: u64 = stats.iter().map(|s| s.run_entries).sum();
        assert_eq!(entries, rows as u64 * stats.len() as u64);
        let bytes: u64 = stats.iter().map(|s| s.run_bytes).sum();
        let written = metrics.get(Metric::BuildWriteBytes);
        let read = metrics.get(Metric::BuildReadBytes);
        // Files have footers, filters and fences in addition to their blocks; many small runs have
        // more.
        assert!(written >= bytes * passes, "arena {arena}: {written} written for {bytes}");
        assert!(written < bytes * 3 * passes, "arena {arena}: {written} written for {bytes}");
        // Unique indexes are read once to be proved, and all are read once if they are compacted.
        let layout = table.layout();
        let unique = layout.indexes.iter().zip(&stats).filter(|(i, _)| i.unique);
        let proved: u64 = unique.map(|(_, stats)| stats.run_bytes).sum();
        assert!(read > proved / 2, "arena {arena}: {read} read of {proved}");
        assert_eq!(read > 2 * proved, passes == 2, "arena {arena}: {read} read of {proved}");
    }
}

/// A build borrows the memory for its entries, estimated from the first rows, and none if they are
/// few; it borrows more if later entries are longer. It writes each index once.
#[test]
fn a_build_borrows_the_memory_of_its_entries() {
    const MIB: u64 = 1 << 20;
    let long = "long".repeat(14);
    for (rows, short, asked) in [
        (0, 0, 0..=0),
        (500, 0, 0..=0),
        (30_000, 0, 4 * MIB..=7 * MIB),
        (30_000, 64, 16 * MIB..=16 * MIB),
    ] {
        let sizes = Sizes { build_arena_bytes: 16 << 20, frames: 2048, ..SMALL };
        let db = Db::create(Arc::new(MemEnv::new()), sizes);
        let table = filled(&db, 0);
        for first in (0..rows).step_by(1_000) {
            let mut txn = db.begin();
            for i in first..first + rows.min(1_000) {
                let text = if i < short { "" } else { &long };
                txn.insert(&table, &row_values(i, i % 10, Some(text), Some(i))).unwrap();
            }
            commit(txn);
        }
        let metrics = db.store.rt.metrics.clone();
        build(&db, &BuildProgress::default()).unwrap();
        let lent = metrics.get(Metric::BuildBorrowedBytes);
        assert!(asked.contains(&lent), "{rows} rows, {short} of them short: {lent}");
        let runs: u64 =
            table.layout().indexes.iter().map(|i| db.store.runs.stats(i.id).run_bytes).sum();
        let written = metrics.get(Metric::BuildWriteBytes);
        assert!(written <= runs * 3 / 2 + MIB, "{rows}, {short}: {written} written for {runs}");
        check_indexes(&mut db.begin(), &table);
    }
}

/// An arena that needs slightly more than its own memory grows to the estimate, and once full to
/// the largest size; its borrowed memory is returned with it.
#[test]
fn an_arena_slightly_over_its_own_memory_grows() {
    const MIB: usize = 1 << 20;
    let sizes = Sizes { build_arena_bytes: 16 << 20, frames: 2048, ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let lent = || db.store.runs.lent_to_builds() as usize;
    let mut arena = BuildArena::new(&db.store, &[]);
    assert!(!arena.begin(MIB, 0));
    assert_eq!((arena.bytes(), lent()), (MIB, 0));
    let wanted = MIB + MIB / 10;
    assert!(arena.begin(wanted, 0));
    assert_eq!((arena.bytes(), lent()), (wanted, wanted));
    assert!(arena.grow_full(0, 0.9));
    assert_eq!((arena.bytes(), lent()), (16 * MIB, 16 * MIB));
    assert!(!arena.grow_full(3, 0.9) && !arena.grow_to_most());
    drop(arena);
    assert_eq!(lent(), 0);
}

/// The rows sampled for the length of entries are built once, however long they are.
#[test]
fn sampled_rows_are_built_once() {
    const ROWS: i64 = 150;
    let sizes = Sizes { build_arena_bytes: 16 << 20, frames: 2048, ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("b", ColumnType::Bytes { max: 30_000 }))
        .primary_key(&["id"]);
    let table = db.store.create_table("t", &spec).unwrap();
    for id in 0..ROWS {
        let mut txn = db.begin();
        let long = vec![id as u8; 20_000];
        txn.insert(&table, &[id.into(), ValueRef::Bytes(&long)]).unwrap();
        commit(txn);
    }
    let index = [IndexSpec::new("by_b", &["b"])];
    db.store.add_indexes("t", &index, &BuildProgress::default()).unwrap();
    let id = table.layout().indexes[0].id;
    assert_eq!(db.store.runs.stats(id).run_entries, ROWS as u64);
    db.store.runs.check(id).unwrap();
}

#[test]
fn a_failed_write_in_any_thread_leaves_nothing() {
    let mut struck = 0;
    for seed in 0..24 {
        let hits = Arc::new(Mutex::new(0));
        let seen = hits.clone();
        simulated(seed, move |sim| {
            let sizes = Sizes { build_arena_bytes: 256 << 10, ..SMALL };
            let db = Db::create(sim.env(), sizes);
            let table = filled(&db, 4_000);
            let mut rng = Rng::new(seed);
            let kind = [FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace];
            let fault =
                Fault::on("runs/", kind[rng.below(3) as usize], When::Nth(1 + rng.below(8)));
            sim.disk().inject(fault);
            let built = build(&db, &BuildProgress::default());
            let struck = sim.disk().faults_struck() > 0;
            *seen.lock() = usize::from(struck);
            sim.disk().clear_faults();
            assert_eq!(built.is_err(), struck, "{built:?}");
            if let Err(error) = built {
                assert_ne!(error.code(), Code::BuildCancelled);
                assert_eq!(table.layout().indexes.len(), 0);
                assert_no_runs(&db);
                if !db.store.rt.health.is_failed() {
                    build(&db, &BuildProgress::default()).unwrap();
                }
            }
            check_indexes(&mut db.begin(), &table);
        });
        struck += *hits.lock();
    }
    assert!(struck >= 8, "{struck} of 24 builds failed");
}

/// Moments at which a build is cancelled, rows of its table and bytes of its arena: fewer where
/// every change waits for the test, with a run for each row so that reading restarts repeatedly;
/// all of them before a release.
fn cancellations() -> (u64, i64, usize) {
    match std::env::var("EVENKEEL_CANCELLATIONS").ok().and_then(|n| n.parse().ok()) {
        Some(points) => (points, 5_000, 64 << 10),
        None => (16, 600, 1),
    }
}

#[test]
fn cancelling_at_any_moment_leaves_nothing() {
    let (points, rows, arena) = cancellations();
    let mut phases = BTreeSet::new();
    for seed in 0..points {
        let at = Arc::new(Mutex::new(None));
        let seen = at.clone();
        simulated(seed, move |sim| {
            let sizes = Sizes { build_arena_bytes: arena, frames: 64, ..SMALL };
            let db = Db::create(sim.env(), sizes);
            let table = filled(&db, rows);
            let mut writer = db.begin();
            writer.update(&table, &[5i64.into()], &[(1, 6i64.into())]).unwrap();
            let progress = BuildProgress::default();
            let (other, rt) = (progress.clone(), db.store.rt.clone());
            let mut rng = Rng::new(seed);
            let target = [BuildPhase::Scanning, BuildPhase::Writing, BuildPhase::Checking];
            let target = target[seed as usize % 3] as u8;
            // On a small table a phase may be seen only once.
            let (commit_at, turns) = (rng.below(3_000), if seed < 6 { 0 } else { rng.below(4) });
            let canceller = db.store.rt.spawn("cancel", move || {
                rt.delay(Duration::from_micros(commit_at), Cause::Idle);
                commit(writer);
                let mut left = turns;
                while other.phase() != BuildPhase::Done {
                    (0..32).for_each(|_| rt.step());
                    if other.phase() as u8 == target {
                        if left == 0 {
                            break;
                        }
                        left -= 1;
                    }
                    rt.delay(Duration::from_micros(30), Cause::Idle);
                }
                *seen.lock() = Some(other.phase() as u8);
                other.cancel();
            });
            let built = build(&db, &progress);
            canceller.unwrap().join().unwrap();
            if let Err(error) = built {
                assert_eq!(error.code(), Code::BuildCancelled);
                assert_eq!(table.layout().indexes.len(), 0);
                assert_no_runs(&db);
                build(&db, &BuildProgress::default()).unwrap();
            }
            check_indexes(&mut db.begin(), &table);
        });
        println!("seed {seed}: cancelled in {:?}", *at.lock());
        phases.extend(*at.lock());
    }
    let scanning = BuildPhase::Scanning as u8..=BuildPhase::Checking as u8;
    assert!(scanning.clone().all(|p| phases.contains(&p)), "cancelled in {phases:?}");
}

#[test]
fn a_build_waits_for_old_writers_and_is_cancelled_while_it_waits() {
    simulated(7, |sim| {
        let sizes = Sizes { lock_wait: Duration::from_secs(2), ..SMALL };
        let db = Db::create(sim.env(), sizes);
        let table = filled(&db, 100);
        let rt = db.store.rt.clone();
        let mut writer = db.begin();
        writer.delete(&table, &[5i64.into()]).unwrap();
        let start = rt.env.now_ns();
        let error = build(&db, &BuildProgress::default()).unwrap_err();
        assert_eq!(error.code(), Code::TableBusy);
        assert!(rt.env.now_ns() - start >= 2_000_000_000);
        assert!(rt.stalls.get(Cause::Schema).us >= 1_900_000);
        // No longer than its caller allows.
        let (progress, start) = (BuildProgress::default(), rt.env.now_ns());
        progress.set_lock_wait(Duration::from_millis(300));
        assert_eq!(build(&db, &progress).unwrap_err().code(), Code::TableBusy);
        assert!((300_000_000..1_000_000_000).contains(&(rt.env.now_ns() - start)));
        let progress = BuildProgress::default();
        let (other, rt2) = (progress.clone(), rt.clone());
        let canceller = rt.spawn("cancel", move || {
            rt2.delay(Duration::from_millis(300), Cause::Idle);
            other.cancel();
        });
        let start = rt.env.now_ns();
        let error = build(&db, &progress).unwrap_err();
        assert_eq!(error.code(), Code::BuildCancelled);
        assert!(rt.env.now_ns() - start < 1_000_000_000, "a cancelled wait ends at once");
        canceller.unwrap().join().unwrap();
        assert_eq!(table.layout().indexes.len(), 0);
        commit(writer);
        build(&db, &BuildProgress::default()).unwrap();
        check_indexes(&mut db.begin(), &table);
    });
}

/// Indexes of an empty table make no file and no thread; a caller waits for one sync, of the
/// catalog's change, and for none if the index has a provisional name, as those that MariaDB
/// builds.
#[test]
fn a_build_on_an_empty_table_writes_one_log_record_and_starts_no_thread() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { build_threads: 4, ..SMALL });
    let table = filled(&db, 0);
    let metrics = db.store.rt.metrics.clone();
    // Syncs of the log: other threads write pages meanwhile, and sync those.
    let count = || [Metric::LogSyncs, Metric::BuildHelpers].map(|m| metrics.get(m));
    let mut before = count();
    for (provisional, syncs) in [(false, 1), (true, 0)] {
        let mut indexes = spec().indexes;
        if provisional {
            indexes.iter_mut().for_each(|i| i.name.insert(0, crate::PROVISIONAL));
        }
        db.store.add_indexes("t", &indexes, &BuildProgress::default()).unwrap();
        let now = count();
        assert_eq!(now, [before[0] + syncs, before[1]], "syncs and helpers");
        before = now;
        assert!(db.store.rt.env.list("runs").unwrap().is_empty());
    }
    let names = table.layout().def.indexes.iter().map(|i| i.name.clone()).collect();
    let change = TableChange { drop_indexes: names, ..TableChange::default() };
    db.store.alter_table("t", &change).unwrap();
    assert_eq!(count(), [before[0] + 1, before[1]], "one sync to drop them all");
    // With rows in the table helpers work.
    drop(db);
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { build_threads: 4, ..SMALL });
    filled(&db, 12_000);
    build(&db, &BuildProgress::default()).unwrap();
    assert!(db.store.rt.metrics.get(Metric::BuildHelpers) > 0);
}

/// A provisional index that a build has made valid is dropped while transactions use the table,
/// also a prepared one. A drop of an index with a name of its own, or of one before such an index,
/// waits for those transactions.
#[test]
fn a_provisional_index_is_dropped_while_transactions_use_its_table() {
    let sizes = Sizes { lock_wait: Duration::from_millis(30), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let table = filled(&db, 300);
    let drop_index = |name: &str| db.store.drop_index("t", name);
    let [by_a, by_b, mut by_c] = <[IndexSpec; 3]>::try_from(spec().indexes).unwrap();
    by_c.name.insert(0, crate::PROVISIONAL);
    let add = |index: &IndexSpec| {
        db.store.add_indexes("t", std::slice::from_ref(index), &BuildProgress::default()).unwrap();
    };
    add(&by_a);
    add(&by_c);
    let mut prepared = db.begin();
    prepared.insert(&table, &row_values(400, 1, None, Some(400))).unwrap();
    assert!(prepared.prepare(b"x").unwrap());
    drop(prepared);
    let mut txn = db.begin();
    txn.update(&table, &[3i64.into()], &[(1, 77i64.into()), (3, 500i64.into())]).unwrap();
    assert_eq!(drop_index("by_a").unwrap_err().code(), Code::TableBusy);
    drop_index(&by_c.name).unwrap();
    assert_eq!(table.layout().indexes.len(), 1);
    // Equal keys of the dropped unique index.
    txn.insert(&table, &row_values(401, 1, None, Some(400))).unwrap();
    txn.update(&table, &[3i64.into()], &[(1, 78i64.into())]).unwrap();
    txn.delete(&table, &[4i64.into()]).unwrap();
    commit(txn);
    db.store.rollback_prepared(b"x", Durability::Sync).unwrap();
    check_indexes(&mut db.begin(), &table);
    // The same with the current rows; then an index with another one behind it.
    add(&by_c);
    add(&by_b);
    check_indexes(&mut db.begin(), &table);
    let mut reader = db.begin();
    all_rows(&mut reader, &table, Direction::Forward);
    assert_eq!(drop_index(&by_c.name).unwrap_err().code(), Code::TableBusy);
    drop(reader);
    drop_index(&by_c.name).unwrap();
    check_indexes(&mut db.begin(), &table);
}

/// The phases of a build wake its waiters, also those of a build that never began.
#[test]
fn each_phase_of_a_build_wakes_its_waiters() {
    let db = Db::new();
    filled(&db, 3_000);
    let long = Duration::from_secs(100);
    for (name, ends_well) in [("t", true), ("none", false)] {
        let progress = BuildProgress::default();
        let (db, shown) = (&db, progress.clone());
        std::thread::scope(|scope| {
            let building =
                scope.spawn(move || db.store.add_indexes(name, &spec().indexes, &progress));
            let mut phase = BuildPhase::Idle;
            while phase != BuildPhase::Done {
                let next = db.store.wait_build(&shown, phase, long);
                assert_ne!(next, phase, "no time-out");
                phase = next;
            }
            assert_eq!(building.join().unwrap().is_ok(), ends_well);
        });
    }
    let idle = BuildProgress::default();
    let soon = Duration::from_millis(1);
    assert_eq!(db.store.wait_build(&idle, BuildPhase::Idle, soon), BuildPhase::Idle);
}

/// A change that was prepared during one build and is made after its end does not fail the next
/// build.
#[test]
fn a_duplicate_found_after_a_build_does_not_fail_the_next_one() {
    let db = Db::new();
    let table = filled(&db, 10);
    assert!(table.fail_build(), "no build decides against it");
    build(&db, &BuildProgress::default()).unwrap();
    check_indexes(&mut db.begin(), &table);
}

#[test]
fn a_build_of_no_indexes_finishes_at_once() {
    let db = Db::new();
    filled(&db, 10);
    let progress = BuildProgress::default();
    db.store.add_indexes("t", &[], &progress).unwrap();
    assert_eq!(progress.phase(), BuildPhase::Done);
}

/// P1, M7: building and dropping an index of an empty table visits the pages of the catalog and of
/// the table itself; dirty pages of other tables, however many, cost no visit.
#[test]
fn an_index_of_an_empty_table_visits_no_page_of_other_tables() {
    let sizes = Sizes { frames: 8192, log_bytes: 512 << 20, ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let mut empty = spec();
    empty.indexes.clear();
    db.store.create_table("empty", &empty).unwrap();
    let pair = || {
        let (visits, helpers) =
            (evenkeel_pages::visits(), db.store.rt.metrics.get(Metric::BuildHelpers));
        db.store.add_indexes("empty", &spec().indexes[..1], &BuildProgress::default()).unwrap();
        db.store.drop_index("empty", "by_a").unwrap();
        assert_eq!(
            db.store.rt.metrics.get(Metric::BuildHelpers),
            helpers,
            "all of it by this thread"
        );
        evenkeel_pages::visits() - visits
    };
    pair();
    let clean = (0..20).map(|_| pair()).max().unwrap();
    // The background would write pages meanwhile, on a busy machine nearly all of them.
    db.hold_cleaning();
    filled(&db, 60_000);
    let dirty = db.store.pages.dirty_pages();
    let loaded = (0..20).map(|_| pair()).max().unwrap();
    println!("pages visited by a pair: {clean}, beside {dirty} dirty pages {loaded}");
    assert!(dirty > 500, "{dirty}");
    // The catalog tree may have grown by a level.
    assert!(loaded <= clean + 8, "{loaded} pages, {clean} beside none; {dirty} are dirty");
}

/// A flag of the cell tells that a build may skip the row (RFC 27): the key had no row before. A
/// row that one transaction deletes and inserts again lacks the flag, because its rollback restores
/// a former row whose entries only the build writes.
#[test]
fn only_the_first_row_under_a_key_is_flagged_first() {
    use evenkeel_format::record::cell_flags::{DELETED, FIRST};
    let db = Db::new();
    let table = filled(&db, 3);
    let flags = || {
        let mut cursor = table.state().tree.cursor();
        cursor.seek(std::ops::Bound::Unbounded, Direction::Forward).unwrap();
        let mut flags = Vec::new();
        while let Some((_, cell)) = cursor.next().unwrap() {
            flags.push(cell.flags & (FIRST | DELETED));
        }
        flags
    };
    assert_eq!(flags(), [FIRST; 3]);
    let mut txn = db.begin();
    let key = |id: i64| [ValueRef::Int(id)];
    assert!(txn.delete(&table, &key(0)).unwrap());
    txn.insert(&table, &row_values(0, 1, None, Some(7))).unwrap();
    assert!(txn.delete(&table, &key(1)).unwrap());
    assert!(txn.update(&table, &key(2), &[(1, ValueRef::Int(5))]).unwrap());
    txn.insert(&table, &row_values(3, 1, None, Some(8))).unwrap();
    // Another primary key makes another row.
    assert!(txn.update(&table, &key(3), &[(0, ValueRef::Int(4))]).unwrap());
    assert_eq!(flags(), [0, DELETED, 0, DELETED, FIRST]);
    txn.rollback().unwrap();
    let undone = || flags() == [FIRST; 3];
    (0..200)
        .take_while(|_| !undone())
        .for_each(|_| db.store.rt.delay(Duration::from_millis(10), Cause::Idle));
    assert_eq!(flags(), [FIRST; 3], "as it was");
}
