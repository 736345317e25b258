//! Chunked tables: routes, order, pruning, drops and what holds them up, locks of rows that have no
//! chunk yet, and restarts.

use super::*;
use crate::{Chunking, ChunksDropped, TimeUnit};
use ValueRef::{Int, Null, Text};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error};
use std::sync::atomic::AtomicI64;

const WIDTH: u64 = 100;

pub fn column(name: &str, ty: ColumnType) -> ColumnSpec {
    ColumnSpec::new(name, ty)
}

pub fn by_time() -> Chunking {
    Chunking::by("ts", Duration::from_secs(WIDTH)).unit(TimeUnit::Seconds).between(0, 100_000)
}

/// (dev int, ts int, v int, note text null); by_ts, by_v, unique (v, ts), with slots (v, ts, dev).
pub fn readings(chunking: Chunking, primary: &[&str]) -> TableSpec {
    let mut unique = vec!["v", "ts"];
    unique.extend(chunking.space.is_some().then_some("dev"));
    TableSpec::new()
        .column(column("dev", ColumnType::Int32))
        .column(column("ts", ColumnType::Int64))
        .column(column("v", ColumnType::Int32))
        .column(column("note", ColumnType::Text { max: 60_000 }).nullable())
        .primary_key(primary)
        .index(IndexSpec::new("by_ts", &["ts desc"]))
        .index(IndexSpec::new("by_v", &["v", "ts"]))
        .index(IndexSpec::new("one_v", &unique).unique())
        .chunked(chunking)
}

pub fn table(db: &Db) -> Arc<Table> {
    let spec = readings(by_time().space("dev", 2), &["dev", "ts"]);
    db.store.create_table("r", &spec).unwrap()
}

fn put(txn: &mut TableTxn, table: &Arc<Table>, dev: i64, ts: i64, v: i64) -> Result<Option<u64>> {
    txn.insert(table, &[Int(dev), Int(ts), Int(v), Null])
}

/// (dev, ts, v) of all rows in the order of the primary key, or of an index.
pub fn rows_by(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    index: Option<(usize, bool)>,
    range: Range<'_>,
    direction: Direction,
) -> Vec<(i64, i64, i64)> {
    let mut scan = txn.chunk_scan(table, index, range, direction).unwrap();
    let (mut row, mut rows) = (Row::new(), Vec::new());
    let known = |row: &Row, at: usize| row.get::<i64>(at).unwrap_or(i64::MIN);
    while scan.next(&mut row).unwrap() {
        rows.push((known(&row, 0), known(&row, 1), known(&row, 2)));
    }
    rows
}

pub fn rows(txn: &mut TableTxn, table: &Arc<Table>) -> Vec<(i64, i64, i64)> {
    rows_by(txn, table, None, Range::ALL, Direction::Forward)
}

pub fn refused<T: std::fmt::Debug>(done: Result<T>, code: Code, names: &[&str]) -> Error {
    let error = done.expect_err("is refused");
    assert_eq!(error.code(), code, "{error}");
    let text = error.to_string();
    names.iter().for_each(|name| assert!(text.contains(name), "{name}: {text}"));
    error
}

pub fn drop_before(db: &Db, before: i64) -> ChunksDropped {
    db.store.drop_chunks("r", before, &SchemaWait::default()).unwrap()
}

/// Waits until dropped chunks have given back their space.
fn wait_for_space(db: &Db) {
    while db.store.chunks_waiting() > 0 {
        db.store.txns.event().notify();
        std::thread::yield_now();
    }
}

/// Rows of three devices at 0, 50, 100, .. below 1,000, committed.
fn filled(db: &Db) -> (Arc<Table>, Vec<(i64, i64, i64)>) {
    let table = table(db);
    let mut all = Vec::new();
    let mut txn = db.begin();
    for dev in 0..3 {
        for ts in (0..1000).step_by(50) {
            put(&mut txn, &table, dev, ts, 1000 * dev + ts).unwrap();
            all.push((dev, ts, 1000 * dev + ts));
        }
    }
    commit(txn);
    (table, all)
}

#[test]
fn rows_are_found_by_keys_and_in_every_order() {
    let db = Db::new();
    let (table, all) = filled(&db);
    // 10 spans; the devices hash to one slot or to two.
    let chunks = db.store.chunks("r").unwrap();
    assert!([10, 20].contains(&chunks.len()), "{}", chunks.len());
    assert!(chunks.iter().all(|c| c.to.unwrap() - c.from.unwrap() == WIDTH as i64));
    assert_eq!(chunks.iter().map(|c| c.rows).sum::<u64>(), 60);
    let mut txn = db.begin();
    assert_eq!(rows(&mut txn, &table), all);
    assert_eq!(txn.count(&table).unwrap(), 60);
    let mut back = rows_by(&mut txn, &table, None, Range::ALL, Direction::Backward);
    back.reverse();
    assert_eq!(back, all);
    for (index, key) in
        [(0, (|r| (-r.1, r.0)) as fn(&(i64, i64, i64)) -> (i64, i64)), (1, |r| (r.2, r.1))]
    {
        let mut expected = all.clone();
        expected.sort_by_key(key);
        for keys_only in [false, true] {
            let by = Some((index, keys_only));
            let mut found = rows_by(&mut txn, &table, by, Range::ALL, Direction::Forward);
            let keys = |rows: &[(i64, i64, i64)]| rows.iter().map(|r| r.1).collect::<Vec<_>>();
            assert_eq!(keys(&found), keys(&expected), "index {index}");
            if !keys_only {
                assert_eq!(found, expected);
            }
            found.reverse();
            let back = rows_by(&mut txn, &table, by, Range::ALL, Direction::Backward);
            assert_eq!(back, found);
        }
    }
    let mut row = Row::new();
    assert!(txn.get(&table, &[Int(1), Int(450)], &mut row).unwrap());
    let key = row.key().to_vec();
    assert!(txn.get_by_key(&table, &key, &mut row).unwrap());
    assert!(!txn.get(&table, &[Int(1), Int(451)], &mut row).unwrap());
    assert!(!txn.get(&table, &[Int(1), Int(99_000)], &mut row).unwrap(), "no chunk");
    let keys: [&[ValueRef<'_>]; 3] = [&[Int(2), Int(950)], &[Int(7), Int(0)], &[Int(0), Int(0)]];
    let mut found = Vec::new();
    let mut give = |at: usize, row: &Row| {
        found.push((at, row.get::<i64>("v")?));
        Ok(())
    };
    txn.get_many(&table, &keys, &mut give).unwrap();
    assert_eq!(found, [(2, 0), (0, 2950)], "in the order of the keys");
}

#[test]
fn ranges_open_only_the_chunks_that_they_need() {
    let db = Db::new();
    let (table, _) = filled(&db);
    let mut txn = db.begin();
    let mut opened = |index, range: Range<'_>, direction, limit: usize| {
        let metrics = &db.store.rt.metrics;
        let before = metrics.get(Metric::ChunksOpened);
        let mut scan = txn.chunk_scan(&table, index, range, direction).unwrap();
        let (mut row, mut found) = (Row::new(), Vec::new());
        while found.len() < limit && scan.next(&mut row).unwrap() {
            found.push(row.get::<i64>("ts").unwrap());
        }
        (metrics.get(Metric::ChunksOpened) - before, found)
    };
    let (from, to) = ([Int(1), Int(230)], [Int(1), Int(420)]);
    let between =
        Range { lower: std::ops::Bound::Included(&from), upper: std::ops::Bound::Excluded(&to) };
    let (count, found) = opened(None, between, Direction::Forward, 99);
    assert_eq!((count, found), (3, vec![250, 300, 350, 400]));
    // The newest row of a device: one chunk.
    let device = [Int(1)];
    let (count, found) = opened(None, Range::prefix(&device), Direction::Backward, 1);
    assert_eq!((count, found), (1, vec![950]));
    // A descending index begins with the last span, which has a chunk or two.
    let (count, found) = opened(Some((0, false)), Range::ALL, Direction::Forward, 1);
    assert!((1..=2).contains(&count) && found == [950], "{count} {found:?}");
    // Of a value the time is not known, and of all slots each chunk may have it.
    let value = [Int(1450)];
    let (count, found) = opened(Some((1, false)), Range::prefix(&value), Direction::Forward, 9);
    assert_eq!(found, [450]);
    assert_eq!(count, db.store.chunks("r").unwrap().len() as u64);
    let (count, found) = opened(None, Range::prefix(&[Int(1), Int(450)]), Direction::Forward, 9);
    assert_eq!((count, found), (1, vec![450]));
    assert!(db.store.rt.metrics.get(Metric::ChunksPrunedTime) > 0);
}

#[test]
fn a_scan_continues_behind_a_key() {
    let db = Db::new();
    let (table, all) = filled(&db);
    let mut txn = db.begin();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut expected = all.clone();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut scan = txn.chunk_scan(&table, None, Range::ALL, direction).unwrap();
        let (mut row, mut keys) = (Row::new(), Vec::new());
        while scan.next(&mut row).unwrap() {
            keys.push(row.key().to_vec());
        }
        for at in [0, 17, 40, 59] {
            scan.resume_after(&keys[at]).unwrap();
            let mut rest = Vec::new();
            while scan.next(&mut row).unwrap() {
                rest.push(row.key().to_vec());
            }
            assert_eq!(rest, keys[at + 1..], "{direction:?} {at}");
        }
    }
}

#[test]
fn updates_move_rows_between_chunks() {
    let db = Db::new();
    let table = table(&db);
    let long = "long ".repeat(9_000);
    let mut txn = db.begin();
    txn.insert(&table, &[Int(1), Int(10), Int(5), Text(&long)]).unwrap();
    put(&mut txn, &table, 1, 20, 6).unwrap();
    commit(txn);
    let mut old = db.begin();
    assert_eq!(rows(&mut old, &table).len(), 2);
    let mut txn = db.begin();
    txn.savepoint("s").unwrap();
    assert!(txn.update(&table, &[Int(1), Int(10)], &[(1, Int(5010))]).unwrap());
    txn.rollback_to("s").unwrap();
    assert_eq!(rows(&mut txn, &table), [(1, 10, 5), (1, 20, 6)]);
    assert!(txn.update(&table, &[Int(1), Int(10)], &[(1, Int(5010))]).unwrap());
    // Its key is taken in the other chunk: nothing is changed.
    let taken = txn.update(&table, &[Int(1), Int(20)], &[(1, Int(5010))]);
    refused(taken, Code::DuplicateKey, &["r"]);
    assert!(!txn.upsert(&table, &[Int(1), Int(20), Int(6), Null], &[(1, Int(77_000))]).unwrap());
    assert!(!txn.update(&table, &[Int(1), Int(20)], &[(2, Int(0))]).unwrap());
    commit(txn);
    let mut txn = db.begin();
    assert_eq!(rows(&mut txn, &table), [(1, 5010, 5), (1, 77_000, 6)]);
    assert_eq!(rows(&mut old, &table), [(1, 10, 5), (1, 20, 6)], "as of the snapshot");
    let mut row = Row::new();
    for (txn, ts) in [(&mut txn, 5010), (&mut old, 10)] {
        assert!(txn.get(&table, &[Int(1), Int(ts)], &mut row).unwrap());
        assert_eq!(row.get::<&str>("note").unwrap(), long);
    }
    drop((txn, old));
    assert_eq!(db.store.check_table("r").unwrap().problems, Vec::<String>::new());
}

#[test]
fn wild_times_share_two_chunks_and_a_statement_makes_few() {
    let db = Db::new();
    let table = table(&db);
    let mut txn = db.begin();
    for ts in [i64::MIN, -7, -1, 0, 99_999, 100_000, 5_000_000_000, i64::MAX] {
        put(&mut txn, &table, 1, ts, 0).unwrap();
    }
    let bounds: Vec<_> =
        db.store.chunks("r").unwrap().iter().map(|c| (c.from, c.to, c.rows)).collect();
    assert_eq!(
        bounds,
        [
            (None, Some(0), 3),
            (Some(0), Some(100), 1),
            (Some(99_900), Some(100_000), 1),
            (Some(100_000), None, 3),
        ]
    );
    assert_eq!(rows(&mut txn, &table).len(), 8);
    refused(txn.insert(&table, &[Int(1), Null, Int(1), Null]), Code::NullNotAllowed, &["ts"]);
    let wide = Int(1 << 40);
    refused(txn.insert(&table, &[wide, Int(5), Int(1), Null]), Code::ValueRange, &["dev"]);
    let spread = |count: i64| -> Vec<[ValueRef<'static>; 4]> {
        (0..count).map(|n| [Int(0), Int(100 * (n % 900) + 100), Int(n), Null]).collect()
    };
    drop(txn);
    db.store.truncate_table("r").unwrap();
    // 900 spans of one slot, and 101 of the other one.
    let (one, two) = devices_of_two_slots(&db, &table);
    let of = |dev: i64, count| spread(count).into_iter().map(move |r| [Int(dev), r[1], r[2], r[3]]);
    let rows = |more| of(one, 900).chain(of(two, more)).collect::<Vec<_>>();
    let mut txn = db.begin();
    let beyond = rows(101);
    let made = db.store.chunks("r").unwrap().len();
    let done = txn.insert_many(&table, beyond.iter().map(|row| &row[..]));
    refused(done, Code::TooManyChunks, &["count=1001", "limit=1000", "r"]);
    assert_eq!(db.store.chunks("r").unwrap().len(), made, "it fails first");
    txn.insert_many(&table, rows(100).iter().map(|row| &row[..])).unwrap();
    assert_eq!(db.store.chunks("r").unwrap().len(), made + 1000);
    // Not rolled back: the cleaner of these tests may end before the rollback, which needs it.
    commit(txn);
}

/// Two devices whose rows lie in different slots; their chunks are dropped again.
fn devices_of_two_slots(db: &Db, table: &Arc<Table>) -> (i64, i64) {
    let mut txn = db.begin();
    let two = (1..).find(|dev| {
        put(&mut txn, table, 0, 10 * dev, 0).unwrap();
        put(&mut txn, table, *dev, 10 * dev, 0).unwrap();
        db.store.chunks("r").unwrap().iter().any(|chunk| chunk.slot != 0)
            && db.store.chunks("r").unwrap().iter().any(|chunk| chunk.slot == 0)
    });
    drop(txn);
    drop_before(db, 100_000);
    (0, two.unwrap())
}

#[test]
fn a_drop_keeps_old_snapshots_and_names_who_is_in_the_way() {
    let db = Db::new();
    let (table, all) = filled(&db);
    let first: Vec<u64> = db.store.chunks("r").unwrap().iter().map(|c| c.number).collect();
    let mut old = db.begin();
    assert_eq!(rows(&mut old, &table), all);
    let mut writer = db.begin();
    writer.update(&table, &[Int(1), Int(150)], &[(2, Int(-1))]).unwrap();
    let mut locker = db.begin();
    let mut row = Row::new();
    let (mode, wait) = (Mode::Shared, LockWait::Wait);
    assert!(locker.get_locked(&table, &[Int(1), Int(250)], mode, wait, &mut row).unwrap());
    let done = drop_before(&db, 399);
    let mut kept: Vec<u64> = done.kept.iter().map(|kept| kept.txn).collect();
    kept.sort();
    assert_eq!(kept, [writer.id().0, locker.id().0]);
    let left = |rows: &[(i64, i64, i64)], gone: &[i64]| -> Vec<_> {
        rows.iter().copied().filter(|r| !gone.contains(&(r.1 / 100))).collect()
    };
    let slots = first.len() / 10;
    assert_eq!(done.dropped.len() + 2, 3 * slots, "of three spans two chunks are kept");
    let mut now = db.begin();
    let seen = rows(&mut now, &table);
    assert!(left(&seen, &[1, 2]) == left(&all, &[0, 1, 2]) && seen.len() < all.len());
    assert_eq!(rows(&mut old, &table), all, "the old snapshot sees them");
    assert!(old.get(&table, &[Int(1), Int(0)], &mut row).unwrap());
    let by_v = rows_by(&mut old, &table, Some((1, false)), Range::ALL, Direction::Forward);
    assert_eq!(by_v.len(), 60);
    // It may not write where rows have gone with their chunk.
    refused(old.delete(&table, &[Int(1), Int(0)]), Code::RowChanged, &["r"]);
    refused(put(&mut old, &table, 1, 1, 1).map(|_| ()), Code::RowChanged, &["r"]);
    let scan = old.chunk_locked_scan(&table, None, Range::ALL, Direction::Forward, Locking::SHARED);
    refused(scan.map(|_| ()), Code::RowChanged, &["r"]);
    // Numbers are not used again.
    put(&mut now, &table, 1, 1, 1).unwrap();
    let numbers: Vec<u64> = db.store.chunks("r").unwrap().iter().map(|c| c.number).collect();
    let new: Vec<_> = numbers.iter().filter(|n| !first.contains(n)).collect();
    assert!(new.len() == 1 && *new[0] > *first.iter().max().unwrap());
    assert!(!now.update(&table, &[Int(1), Int(50)], &[(2, Int(0))]).unwrap(), "gone");
    commit(now);
    commit(writer);
    drop(locker);
    assert_eq!(rows(&mut old, &table), all, "and still");
    let done = drop_before(&db, 300);
    assert!(done.kept.is_empty() && done.dropped.len() == 3, "{done:?}");
    assert!(db.store.chunks_waiting() > 0);
    drop(old);
    wait_for_space(&db);
    let mut now = db.begin();
    assert_eq!(rows(&mut now, &table), left(&all, &[0, 1, 2]));
    drop(now);
    assert_eq!(db.store.check_table("r").unwrap().problems, Vec::<String>::new());
}

#[test]
fn retention_drops_what_is_too_old() {
    let db = Db::new();
    let spec = readings(by_time().retain(Duration::from_secs(300)), &["dev", "ts"]);
    let table = db.store.create_table("r", &spec).unwrap();
    let mut txn = db.begin();
    (0..10).for_each(|n| assert!(put(&mut txn, &table, 0, 100 * n, n).is_ok()));
    commit(txn);
    let wait = SchemaWait::default();
    let times =
        || -> Vec<i64> { db.store.chunks("r").unwrap().iter().map(|c| c.from.unwrap()).collect() };
    assert_eq!(db.store.expire_chunks("r", 899, &wait).unwrap().dropped.len(), 5);
    assert_eq!(times(), [500, 600, 700, 800, 900]);
    assert_eq!(db.store.expire_chunks("r", 900, &wait).unwrap().dropped.len(), 1);
    assert_eq!(db.store.expire_chunks("r", i64::MIN, &wait).unwrap(), ChunksDropped::default());
    assert_eq!(times(), [600, 700, 800, 900]);
}

#[test]
fn absent_keys_and_ranges_are_locked_before_their_chunk_exists() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: Duration::ZERO, ..SMALL });
    let table = table(&db);
    let mut row = Row::new();
    let (mode, wait) = (Mode::Exclusive, LockWait::Wait);
    let mut one = db.begin();
    assert!(!one.get_locked(&table, &[Int(1), Int(10)], mode, wait, &mut row).unwrap());
    let mut two = db.begin();
    refused(put(&mut two, &table, 1, 10, 1), Code::LockWaitTimeout, &[]);
    put(&mut two, &table, 1, 11, 1).unwrap();
    commit(two);
    commit(one);
    // A range at SERIALIZABLE covers chunks that come later, whoever makes them.
    let mut one = db.begin_at(Isolation::Serializable);
    let (from, to) = ([Int(5)], [Int(6)]);
    let range = Range {
        lower: std::ops::Bound::Included(&from[..]),
        upper: std::ops::Bound::Included(&to[..]),
    };
    let mut scan =
        one.chunk_locked_scan(&table, None, range, Direction::Forward, Locking::SHARED).unwrap();
    assert!(!scan.next(&mut row).unwrap());
    put(&mut one, &table, 5, 40_000, 1).unwrap();
    let mut two = db.begin();
    refused(put(&mut two, &table, 6, 40_001, 2), Code::LockWaitTimeout, &[]);
    refused(put(&mut two, &table, 6, 50_001, 2), Code::LockWaitTimeout, &[]);
    put(&mut two, &table, 7, 40_001, 2).unwrap();
    commit(two);
    commit(one);
    // So does one of an index.
    let mut one = db.begin_at(Isolation::Serializable);
    let value = [Int(70)];
    let locked = one.chunk_locked_scan(
        &table,
        Some(1),
        Range::prefix(&value),
        Direction::Forward,
        Locking::EXCLUSIVE,
    );
    assert!(!locked.unwrap().next(&mut row).unwrap());
    let mut two = db.begin();
    refused(put(&mut two, &table, 9, 60_000, 70), Code::LockWaitTimeout, &[]);
    put(&mut two, &table, 9, 60_000, 71).unwrap();
}

/// Changes, locks or looks for the row (1, ts, ts) by a current read; true if it is there.
type CurrentRead = fn(&mut TableTxn, &Arc<Table>, i64) -> bool;

fn lock_by_scan(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    index: Option<usize>,
    key: &[ValueRef<'_>],
) -> bool {
    let (range, direction, mut row) = (Range::prefix(key), Direction::Forward, Row::new());
    let locking = Locking::EXCLUSIVE;
    if table.is_chunked() {
        let mut scan = txn.chunk_locked_scan(table, index, range, direction, locking).unwrap();
        return scan.next(&mut row).unwrap();
    }
    let scan = match index {
        None => txn.locked_scan(table, range, direction, locking),
        Some(index) => txn.locked_index_scan(table, index, range, direction, locking),
    };
    scan.unwrap().next(&mut row).unwrap()
}

const CURRENT_READS: [CurrentRead; 6] = [
    |txn, table, ts| txn.update(table, &[Int(1), Int(ts)], &[(3, Text("seen"))]).unwrap(),
    |txn, table, ts| txn.delete(table, &[Int(1), Int(ts)]).unwrap(),
    |txn, table, ts| {
        let (mode, wait) = (Mode::Shared, LockWait::Wait);
        txn.get_locked(table, &[Int(1), Int(ts)], mode, wait, &mut Row::new()).unwrap()
    },
    |txn, table, ts| {
        let key = table.layout().encode_whole(&table.layout().key, &[Int(1), Int(ts)]);
        txn.delete_by_key(table, &key.unwrap().unwrap()).unwrap()
    },
    |txn, table, ts| lock_by_scan(txn, table, None, &[Int(1), Int(ts)]),
    |txn, table, ts| lock_by_scan(txn, table, Some(2), &[Int(ts), Int(ts), Int(1)]),
];

/// An operation that waits for a lock where no chunk is meets the row that is there afterwards, as
/// in a table without chunks. A change that finds no row does not wait.
#[test]
fn a_row_made_during_the_wait_for_its_key_is_found() {
    let db = Db::new();
    let spec = readings(by_time().space("dev", 2), &["dev", "ts"]);
    let plain = TableSpec { chunking: None, ..spec.clone() };
    let tables = [("twin", plain), ("r", spec)];
    let tables = tables.map(|(name, spec)| db.store.create_table(name, &spec).unwrap());
    let mut met = 0;
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        for (n, read) in CURRENT_READS.iter().enumerate() {
            let ts = 1_000 * (n as i64 + 1 + 10 * i64::from(isolation == Isolation::Serializable));
            let found = tables.each_ref().map(|table| {
                let (mut one, mut two) = (db.begin(), db.begin_at(isolation));
                // The key of the row, and that of the unique index.
                let unique = [Int(ts), Int(ts), Int(1)];
                assert!(!lock_by_scan(&mut one, table, None, &[Int(1), Int(ts)]));
                assert!(!lock_by_scan(&mut one, table, Some(2), &unique));
                std::thread::scope(|scope| {
                    let waiter = scope.spawn(|| read(&mut two, table, ts));
                    while db.store.txns.waiting() == 0 && !waiter.is_finished() {
                        std::thread::yield_now();
                    }
                    put(&mut one, table, 1, ts, ts).unwrap();
                    commit(one);
                    waiter.join().unwrap()
                })
            });
            assert_eq!(found[0], found[1], "{isolation:?}, operation {n}");
            met += u32::from(found[0]);
        }
    }
    assert!(met >= 6, "{met}: the locking reads wait at both levels");
}

#[test]
fn locking_scans_lock_rows_of_all_chunks() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: Duration::ZERO, ..SMALL });
    let (table, all) = filled(&db);
    for index in [None, Some(1)] {
        let mut one = db.begin_at(Isolation::ReadCommitted);
        let mut scan = one
            .chunk_locked_scan(&table, index, Range::ALL, Direction::Forward, Locking::EXCLUSIVE)
            .unwrap();
        let (mut row, mut count) = (Row::new(), 0);
        while scan.next(&mut row).unwrap() {
            let at = (row.get("dev").unwrap(), row.get("ts").unwrap(), row.get("v").unwrap());
            match row.get::<i64>("ts").unwrap() {
                450 => assert!(one.update_read(&table, &row, &[(3, Text("seen"))]).unwrap()),
                950 => scan.unlock(),
                _ => {}
            }
            assert!(all.contains(&at));
            count += 1;
        }
        assert_eq!(count, 60);
        drop(scan);
        let mut two = db.begin_at(Isolation::ReadCommitted);
        let wait = two.update(&table, &[Int(1), Int(100)], &[(2, Int(7))]);
        refused(wait, Code::LockWaitTimeout, &[]);
        assert!(two.update(&table, &[Int(1), Int(950)], &[(2, Int(7))]).unwrap(), "unlocked");
        two.rollback().unwrap();
        commit(one);
    }
}

#[test]
fn auto_increment_numbers_are_those_of_the_table() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(column("id", ColumnType::UInt64).auto_increment())
        .column(column("at", ColumnType::DateTime))
        .primary_key(&["id", "at"])
        .chunked(Chunking::by("at", Duration::from_secs(3600)));
    let table = db.store.create_table("events", &spec).unwrap();
    let hour = 3_600_000_000;
    let mut txn = db.begin();
    let start = 1_700_000_000_000_000;
    let rows: Vec<[ValueRef<'_>; 2]> =
        (0..20).map(|n| [Null, ValueRef::DateTime(start + (n % 5) * hour)]).collect();
    assert_eq!(txn.insert_many(&table, rows.iter().map(|r| &r[..])).unwrap(), Some(1));
    let number = txn.insert(&table, &[Null, ValueRef::DateTime(start + 77 * hour)]).unwrap();
    assert_eq!(number, Some(21));
    assert_eq!(db.store.chunks("events").unwrap().len(), 6);
    let mut scan = txn.chunk_scan(&table, None, Range::ALL, Direction::Forward).unwrap();
    let (mut row, mut ids) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        ids.push(row.get::<u64>("id").unwrap());
    }
    assert_eq!(ids, (1..=21).collect::<Vec<u64>>());
}

#[test]
fn tables_are_renamed_emptied_and_dropped_with_their_chunks() {
    let db = Db::new();
    let (table, all) = filled(&db);
    db.store.rename_table("r", "s").unwrap();
    let mut txn = db.begin();
    assert_eq!(rows(&mut txn, &table), all);
    refused(put(&mut txn, &table, 1, 150, 1), Code::DuplicateKey, &["s"]);
    drop(txn);
    let used = db.store.pages.trees().len();
    assert!(used >= 12, "{used}");
    db.store.truncate_table("s").unwrap();
    assert_eq!(db.store.chunks("s").unwrap(), []);
    assert_eq!(db.store.pages.trees().len(), 2, "the catalog and the table's own");
    let mut txn = db.begin();
    assert_eq!(rows(&mut txn, &table), []);
    put(&mut txn, &table, 1, 150, 1).unwrap();
    commit(txn);
    db.store.drop_table("s").unwrap();
    assert_eq!(db.store.pages.trees().len(), 1);
    let (table, all) = filled(&db);
    let mut txn = db.begin();
    assert_eq!(rows(&mut txn, &table), all);
    drop(txn);
    // Dropped chunks that wait for a snapshot go with their table, once.
    let keeps = db.store.txns.snapshot();
    assert!(drop_before(&db, 500).dropped.len() >= 5 && db.store.chunks_waiting() >= 5);
    db.store.drop_table("r").unwrap();
    assert_eq!((db.store.pages.trees().len(), db.store.chunks_waiting()), (1, 0));
    drop(keeps);
    let (table, all) = filled(&db);
    assert_eq!(rows(&mut db.begin(), &table), all);
    assert_eq!(db.store.check_table("r").unwrap().problems, Vec::<String>::new());
}

#[test]
fn chunks_are_there_after_a_crash() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let (table, all) = filled(&db);
    let old = drop_before(&db, 100).dropped.len();
    wait_for_space(&db);
    let mut snapshot = db.begin();
    assert_eq!(rows(&mut snapshot, &table).len(), 54);
    // The trees of these wait for the snapshot, which does not survive.
    let gone = drop_before(&db, 200).dropped.len();
    assert!(old >= 1 && gone >= 1);
    let mut prepared = db.begin();
    put(&mut prepared, &table, 8, 350, 8).unwrap();
    assert!(prepared.prepare(b"x").unwrap());
    let mut open = db.begin();
    put(&mut open, &table, 9, 70_000, 1).unwrap();
    let before: Vec<u64> = db.store.chunks("r").unwrap().iter().map(|c| c.number).collect();
    db.store.log.wait_durable(Lsn(db.store.log.end().0 - 1)).unwrap();
    std::mem::forget((prepared, open, snapshot));
    drop(db);

    let db = Db::open(env, SMALL, root);
    let table = db.store.table("r").unwrap();
    let now: Vec<u64> = db.store.chunks("r").unwrap().iter().map(|c| c.number).collect();
    assert_eq!(now, before, "also the one of the open transaction");
    assert_eq!(db.store.remove_orphans().unwrap(), gone);
    let mut txn = db.begin();
    let left: Vec<_> = all.iter().copied().filter(|r| r.1 >= 200).collect();
    assert_eq!(rows(&mut txn, &table), left);
    drop(txn);
    // What a prepared transaction has written stands for its locks.
    let done = drop_before(&db, 400);
    assert!(done.kept.len() == 1 && done.kept[0].txn != 0, "{done:?}");
    assert_eq!(db.store.prepared_tables(b"x").unwrap(), ["r"]);
    db.store.commit_prepared(b"x", Durability::Sync).unwrap();
    assert!(rows(&mut db.begin(), &table).contains(&(8, 350, 8)));
    assert_eq!(drop_before(&db, 400).dropped.len(), 1);
    assert_eq!(db.store.check_table("r").unwrap().problems, Vec::<String>::new());
}

/// Sets its flag when its thread ends, also by a panic: threads that wait for each other's work
/// would otherwise wait for a thread that is gone, and the test would not end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn rows_committed_behind_a_drop_are_there() {
    let db = Db::new();
    let table = table(&db);
    let (devices, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    let written = Mutex::new(Vec::new());
    let mut last = Lsn::ZERO;
    let mut drops = 0;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _ended = Ends(&stop);
                while !stop.load(Ordering::SeqCst) {
                    let dev = devices.fetch_add(1, Ordering::SeqCst);
                    let mut txn = db.begin_at(Isolation::ReadCommitted);
                    put(&mut txn, &table, dev, dev % 100, dev).unwrap();
                    let at = txn.commit(Durability::Lazy).unwrap();
                    written.lock().push((dev, at));
                    std::thread::yield_now();
                }
            });
        }
        let _ended = Ends(&stop);
        while drops < 2000 && !stop.load(Ordering::SeqCst) {
            let done = drop_before(&db, 100);
            drops += done.dropped.len();
            last = last.max(done.at);
        }
    });
    let mut txn = db.begin();
    let mut row = Row::new();
    for (dev, at) in written.lock().iter() {
        let there = txn.get(&table, &[Int(*dev), Int(*dev % 100)], &mut row).unwrap();
        // Both slots are dropped in one commit if both have a chunk; each has one that is older.
        assert!(there || *at <= last, "row {dev}, committed at {at} behind the drop at {last}");
    }
    drop(txn);
    assert_eq!(db.store.check_table("r").unwrap().problems, Vec::<String>::new());
}

#[test]
fn threads_that_need_one_chunk_make_one() {
    let db = Db::new();
    let table = table(&db);
    for round in 0..30 {
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, table, start) = (&db, &table, &start);
                scope.spawn(move || {
                    let mut txn = db.begin_at(Isolation::ReadCommitted);
                    start.wait();
                    put(&mut txn, table, 1, 100 * round + thread, thread).unwrap();
                    txn.commit(Durability::Lazy).unwrap();
                });
            }
        });
        let chunks = db.store.chunks("r").unwrap();
        assert_eq!(chunks.len() as i64, round + 1, "one for each round");
        assert_eq!(rows(&mut db.begin(), &table).len() as i64, 4 * (round + 1));
    }
}
