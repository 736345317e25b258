//! D6: a scan whose client stops in the middle keeps a snapshot and a key, and neither memtables
//! nor files; it continues with the rows of its snapshot whatever was flushed, compacted or dropped
//! meanwhile.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, Error, Geometry, IndexSpec,
    Isolation, Metric, Options, Range, Row, Scan, TableSpec, Txn,
};
use evenkeel_io::sim::{Fault, FaultKind, SimDisk, SimEnv, When};
use std::time::Duration;

const ROWS: i64 = 6_000;
/// Rows that a client takes before it stops.
const TAKEN: usize = 100;

fn begin(db: &Database) -> Txn {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins")
}

/// Runs `body` on a database with small memtables, in a simulated thread of its own.
fn with_database(pool_bytes: Option<u64>, body: fn(&Database, &SimDisk)) {
    let sim = SimEnv::new(3);
    let (env, disk) = (sim.env(), sim.disk().clone());
    let (done, over) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let generation_bytes = Some(64 << 10);
        let geometry = Geometry { generation_bytes, pool_bytes, ..Geometry::default() };
        let mut options = Options::new().env(env).geometry(geometry);
        options.lock_wait_timeout = Duration::ZERO;
        let db = Database::open_with("simulated", options).expect("opens");
        let spec = TableSpec::new()
            .column(ColumnSpec::new("id", ColumnType::Int64))
            .column(ColumnSpec::new("value", ColumnType::Int64))
            .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
            .primary_key(&["id"])
            .index(IndexSpec::new("by_value", &["value"]));
        db.create_table("t", &spec).expect("creates");
        change(&db, 0);
        body(&db, &disk);
        let _ = done.send(());
    })]);
    over.try_recv().expect("the body ran to its end");
}

/// Gives every row another value, in mixed order; every third row is deleted or inserted.
fn change(db: &Database, round: i64) {
    let value = |id: i64| (id * 7_919 + round * 31) % 100_003;
    for from in (0..ROWS).step_by(100) {
        let txn = begin(db);
        let t = txn.table("t").expect("table");
        for id in from..from + 100 {
            if round > 0 && id % 3 == 0 && round % 2 == 1 {
                assert!(t.delete(&[Int(id)]).expect("deletes"));
            } else if round == 0 || id % 3 == 0 {
                t.insert(&[Int(id), Int(value(id)), Bytes(&[round as u8; 60])]).expect("inserts");
            } else {
                let changes = [(1, Int(value(id))), (2, Bytes(&[round as u8; 60]))];
                assert!(t.update(&[Int(id)], &changes).expect("updates"));
            }
        }
        txn.commit().expect("commits");
    }
}

enum Stopped {
    Table(Scan),
    Index(Scan, bool),
}

impl Stopped {
    fn open(txn: &mut Txn, by_index: bool, keys_only: bool, direction: Direction) -> Stopped {
        let table = txn.table("t").expect("table");
        if !by_index {
            return Stopped::Table(table.scan(Range::ALL, direction).expect("scan"));
        }
        let index = table.index("by_value").expect("index");
        let index = if keys_only { index.keys_only() } else { index };
        Stopped::Index(index.scan(Range::ALL, direction).expect("scan"), keys_only)
    }

    /// (value, id, first byte of pad) of the next `rows` rows at most.
    fn take(&mut self, rows: usize) -> Result<Vec<(i64, i64, u8)>, Error> {
        let (mut row, mut taken) = (Row::new(), Vec::new());
        while taken.len() < rows {
            let (found, keys_only) = match self {
                Stopped::Table(scan) => (scan.next(&mut row)?, false),
                Stopped::Index(scan, keys_only) => (scan.next(&mut row)?, *keys_only),
            };
            if !found {
                break;
            }
            let (Int(id), Int(value)) = (row.value("id")?, row.value("value")?) else { panic!() };
            let pad = match keys_only {
                true => 0,
                false => match row.value("pad")? {
                    Bytes(pad) => pad[0],
                    other => panic!("{other:?}"),
                },
            };
            taken.push((value, id, pad));
        }
        Ok(taken)
    }
}

fn run_files(disk: &SimDisk) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.starts_with("runs/")).collect()
}

/// The ways to scan, and whether each returns rows in the order of the index.
fn all_ways(txn: &mut Txn) -> Vec<Stopped> {
    let mut ways = Vec::new();
    for direction in [Direction::Forward, Direction::Backward] {
        for (by_index, keys_only) in [(true, true), (true, false), (false, false)] {
            ways.push(Stopped::open(txn, by_index, keys_only, direction));
        }
    }
    ways
}

#[test]
fn a_scan_stopped_in_its_middle_keeps_no_memtable_and_no_file() {
    with_database(None, |db, disk| {
        let mut txn = begin(db);
        let whole: Vec<_> =
            all_ways(&mut txn).iter_mut().map(|way| way.take(usize::MAX).expect("reads")).collect();
        assert!(whole.iter().all(|rows| rows.len() == ROWS as usize));
        let mut stopped = all_ways(&mut txn);
        let first: Vec<_> = stopped.iter_mut().map(|way| way.take(TAKEN).expect("reads")).collect();
        let (files, before) = (run_files(disk), db.stats());
        assert!(!files.is_empty());
        let mut rounds = 0;
        while rounds < 3 || files.iter().any(|file| run_files(disk).contains(file)) {
            rounds += 1;
            assert!(rounds < 40, "files of before stay: {files:?} of {:?}", run_files(disk));
            change(db, rounds);
            db.checkpoint().expect("checkpoint");
        }
        let after = db.stats();
        let more = |metric| after.get(metric) - before.get(metric);
        println!("{rounds} rounds, {} views taken", more(Metric::IdleCursorViewsTaken));
        assert!(more(Metric::MemtableFlushes) > 5 && more(Metric::CompactionsFinished) > 1);
        assert!(more(Metric::Checkpoints) > 1);
        assert_eq!(more(Metric::IdleCursorViewsTaken), 4, "each index scan lost its view once");
        // Other threads wait for the log, for pages and for their own writes (this thread's
        // checkpoints), and never for a scan.
        let own = ["log_sync", "page_read", "device_slow"];
        let waited = |(cause, _): &&(&str, _)| !own.contains(cause);
        for (cause, figures) in after.stalls.iter().filter(waited) {
            // While two generations are flushed, operations are delayed a little (G1).
            let held_back = *cause == "memtable_full" && figures.max_us <= 1_000;
            assert!(figures.count == 0 || held_back, "{cause}: {figures:?}");
        }
        for ((way, whole), mut rows) in stopped.iter_mut().zip(&whole).zip(first) {
            rows.extend(way.take(usize::MAX).expect("reads"));
            assert!(rows == *whole, "other rows than those of the snapshot");
        }
        let check = db.check().expect("checks");
        assert_eq!(check.problems.len(), 0, "{:?}", check.problems);
    });
}

/// Reads fail sometimes: a scan that continues returns every row, in order, once.
#[test]
fn a_scan_resumed_after_a_failed_read_skips_no_row() {
    with_database(Some(64 * 4096), |db, disk| {
        change(db, 1);
        let mut txn = begin(db);
        let whole: Vec<_> =
            all_ways(&mut txn).iter_mut().map(|way| way.take(usize::MAX).expect("reads")).collect();
        for path in ["pages/", "runs/"] {
            disk.inject(Fault::on(path, FaultKind::ReadError, When::Chance(200_000)));
        }
        let struck = disk.faults_struck();
        for (mut way, whole) in all_ways(&mut txn).into_iter().zip(&whole) {
            let (mut rows, mut failed) = (Vec::new(), 0);
            while rows.len() < whole.len() {
                match way.take(1) {
                    Ok(row) => rows.push(*row.first().expect("there are more")),
                    Err(error) => {
                        assert_eq!(error.code(), Code::ReadFailed, "{error}");
                        failed += 1;
                    }
                }
            }
            assert!(rows == *whole, "after {failed} failed reads");
        }
        assert!(disk.faults_struck() > struck + 10, "{struck}");
        disk.clear_faults();
    });
}

/// Index and table are dropped when no transaction uses them any longer; scans that are still open
/// keep no part of them and return an error.
#[test]
fn a_stopped_scan_does_not_keep_dropped_tables() {
    with_database(None, |db, disk| {
        let mut txn = begin(db);
        let mut stopped = all_ways(&mut txn);
        stopped.iter_mut().for_each(|way| assert_eq!(way.take(10).expect("reads").len(), 10));
        assert!(!run_files(disk).is_empty());
        for dropped in [db.drop_index("t", "by_value"), db.drop_table("t")] {
            assert_eq!(dropped.expect_err("a transaction uses it").code(), Code::TableBusy);
        }
        txn.rollback().expect("ends");
        db.drop_index("t", "by_value").expect("nobody uses it");
        for _ in 0..200 {
            db.checkpoint().expect("checkpoint");
        }
        assert!(run_files(disk).is_empty(), "{:?}", run_files(disk));
        for way in &mut stopped {
            let ended = way.take(usize::MAX).expect_err("its transaction has ended");
            assert_eq!(ended.code(), Code::TransactionEnded);
        }
        db.drop_table("t").expect("nobody uses it");
        assert!(db.tables().is_empty());
    });
}
