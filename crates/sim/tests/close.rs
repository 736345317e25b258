//! The duration of a close, in virtual time. If the device is too slow to write all dirty pages in
//! time, the close leaves the rest to the next open.

use evenkeel::{Access, Isolation, Metric, ValueRef};
use evenkeel_io::sim::SimOptions;
use evenkeel_io::{Env, SimDisk, SimEnv};

mod filled;
use filled::{ROWS, filled, opened};

/// Closes a database. Returns the seconds that the close took, and whether the next open finds the
/// database clean.
fn closed(seed: u64, bytes_per_sec: Option<u64>) -> (f64, bool) {
    let sim = SimEnv::on(SimDisk::new(seed), SimOptions::quiet(seed));
    let db = filled(&sim);
    let written = db.stats().get(Metric::FlushDone);
    assert!(written < 4000, "{written} pages are not dirty any more");
    if let Some(bytes_per_sec) = bytes_per_sec {
        sim.set_device(bytes_per_sec);
    }
    let start = sim.now_ns();
    db.close().expect("closes");
    let seconds = (sim.now_ns() - start) as f64 / 1e9;
    sim.set_device(0);
    let db = opened(&sim);
    let report = db.check().expect("checks");
    assert!(report.problems.is_empty() && report.rows == ROWS as u64, "{:?}", report.problems);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let last = txn.table("t").expect("is there").last().expect("reads").expect("rows are there");
    assert_eq!(last.value("id").expect("column"), ValueRef::Int(ROWS - 1));
    let clean = db.recovery().clean;
    drop(txn);
    db.close().expect("closes");
    sim.stop();
    (seconds, clean)
}

#[test]
fn a_close_does_not_wait_for_a_slow_device() {
    let (seconds, clean) = closed(1, None);
    assert!(seconds < 3.0 && clean, "{seconds} s, {clean}");
    let (seconds, clean) = closed(2, Some(8 << 20));
    assert!((3.0..5.0).contains(&seconds) && !clean, "{seconds} s, {clean}");
}
