//! What memory and log space are shared by: great transactions and their rollback.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Metric, Options,
    TableSpec,
};
use std::time::Duration;

/// Runs `body` in a thread and gives up on it: what is tested here may wait without end.
fn within(time: Duration, body: impl FnOnce() + Send + 'static) {
    let (done, over) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match over.recv_timeout(time) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("still waiting after {time:?}"),
        _ => thread.join().expect("no panic"),
    }
}

fn table(db: &Database) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec).expect("creates");
}

fn load(db: &Database, rows: i64) {
    for from in (0..rows).step_by(1000) {
        let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let mut t = txn.table("t").expect("table");
        for id in from..(from + 1000).min(rows) {
            t.insert(&[Int(id), Int(id), Bytes(&[id as u8; 60])]).expect("inserts");
        }
        txn.commit().expect("commits");
    }
}

/// Reverting logs several times the log's size, and no index entry: the generation that was active
/// when it began must not hold the log.
#[test]
fn a_rollback_larger_than_the_log_ends_and_users_get_log_space_meanwhile() {
    within(Duration::from_secs(120), || {
        const ROWS: i64 = 8_000;
        let geometry = Geometry { log_bytes: Some(1 << 20), ..Geometry::default() };
        let options = Options { memory_size: 16 << 20, ..Options::in_memory() };
        let db = Database::open_with("dir", options.geometry(geometry)).expect("opens");
        table(&db);
        load(&db, ROWS);
        let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let mut t = txn.table("t").expect("table");
        for id in 0..ROWS {
            assert!(t.update(&[Int(id)], &[(1, Int(-id - 1))]).expect("updates"));
        }
        let before = db.stats();
        txn.rollback().expect("rolls back");
        // The client was released at once: this needs log space while rows are being reverted.
        for name in ["other", "another"] {
            let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
            db.create_table(name, &spec.primary_key(&["id"])).expect("creates");
        }
        while db.stats().get(Metric::RevertingTxns) > 0 {
            std::thread::yield_now();
        }
        let reverted = db.stats().get(Metric::RowsReverted) - before.get(Metric::RowsReverted);
        assert_eq!(reverted, ROWS as u64);
        let check = db.check().expect("checks");
        assert_eq!((check.rows, check.problems.len()), (ROWS as u64, 0), "{:?}", check.problems);
    });
}
