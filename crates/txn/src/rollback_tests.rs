//! Statements and savepoints roll back eagerly, transactions in the background.

use crate::testing::*;
use crate::{Grant, LockSpace, Mode, Phase, Policy, RollbackRow, RolledBack, TxnOptions, TxnRef};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, CommitTable, Error, Result, Stamp, TxnState, UndoNo};
use evenkeel_format::undo::UndoRecord;
use evenkeel_log::{Log, Share};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_savepoint_rolls_back_later_changes() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"a", b"1");
    let outer = t.mark();
    rows.write(&t, b"a", b"2");
    let inner = t.mark();
    rows.write(&t, b"b", b"1");
    assert_eq!(w.txns.rollback_to(&t, inner, &rows).expect("reverts"), RolledBack::ToMark);
    rows.write(&t, b"c", b"1");
    let guard = w.txns.snapshot();
    let own = |key: &[u8]| rows.read(key, &guard.view(&t));
    assert_eq!((own(b"a"), own(b"b"), own(b"c")), (Some(b"2".to_vec()), None, Some(b"1".to_vec())));
    w.txns.rollback_to(&t, outer, &rows).expect("reverts");
    assert_eq!((own(b"a"), own(b"c")), (Some(b"1".to_vec()), None));
    let dead = |no| w.txns.is_dead(Stamp { txn: t.id(), undo_no: UndoNo(no) });
    assert_eq!([1, 2, 3, 4, 5].map(dead), [false, true, true, true, false]);
    assert_eq!(t.mark(), UndoNo(5), "numbers are never reused");
    w.txns.rollback_to(&t, t.mark(), &rows).expect("nothing to revert");
    w.txns.commit(&t).expect("commits");
    assert!(dead(3), "also after the commit");
    assert_eq!(rows.read(b"a", &w.txns.snapshot().committed()), Some(b"1".to_vec()));
}

#[test]
fn a_long_partial_rollback_of_everything_aborts() {
    let w = world(TxnOptions { eager_rollback_rows: 5, ..small() });
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    let mark = t.mark();
    for n in 0..6u8 {
        rows.write(&t, &[n], b"v");
    }
    assert_eq!(w.txns.rollback_to(&t, mark, &rows).expect("aborts"), RolledBack::Aborted);
    assert_eq!((t.phase(), w.txns.state(t.id())), (Phase::Aborted, TxnState::Aborted));
    // The owner continues with a new transaction: a handle of the old one cancels the new one.
    let next = t.successor();
    t.cancel();
    assert!(next.check_cancel().is_err());
    next.clear_cancel();
    rows.write(&next, &[3], b"w");
    rows.roll_back_all();
    w.txns.commit(&next).expect("commits");
    assert_eq!(rows.cells.lock().keys().collect::<Vec<_>>(), [&vec![3u8]]);
}

#[test]
fn changes_before_a_savepoint_survive_a_long_rollback() {
    let undo_bytes = 64 << 10;
    let w = world(TxnOptions { eager_rollback_rows: 5, undo_bytes, ..small() });
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"first", b"v");
    let mark = t.mark();
    for n in 0..5000u32 {
        rows.write(&t, &n.to_be_bytes(), b"v");
        while w.txns.spill_beat().expect("spills") == Beat::More {}
    }
    let used = w.txns.undo_bytes();
    assert!(used <= undo_bytes && w.rt.metrics.get(Metric::UndoSpilledBytes) > 0);
    assert_eq!(w.txns.rollback_to(&t, mark, &rows).expect("reverts"), RolledBack::ToMark);
    assert!(w.txns.undo_bytes() <= used, "saved undo is not taken back into memory");
    assert_eq!(w.txns.states.dead_ranges(t.id()), [(UndoNo(2), UndoNo(5002))]);
    w.txns.commit(&t).expect("commits");
    assert_eq!(rows.cells.lock().keys().collect::<Vec<_>>(), [b"first"]);
}

#[test]
fn a_lock_taken_before_a_savepoint_survives_its_rollback() {
    let w = world(TxnOptions { eager_rollback_rows: 5, ..small() });
    let rows = Rows::new(&w);
    let (t, other) = (w.txns.begin(), w.txns.begin());
    let lock = |t: &TxnRef, policy| {
        w.txns.lock_row(t, (LockSpace::Tree(TREE), &b"locked"[..]), false, Mode::Exclusive, policy)
    };
    lock(&t, Policy::NoWait).expect("nobody has it");
    let mark = t.mark();
    for n in 0..6u8 {
        rows.write(&t, &[n], b"v");
    }
    assert_eq!(w.txns.rollback_to(&t, mark, &rows).expect("reverts"), RolledBack::ToMark);
    assert!(rows.cells.lock().is_empty());
    assert_eq!(lock(&other, Policy::Skip).expect("answers"), Grant::Skipped);
}

/// Cancels the transaction when that many operations are left.
struct Cancelling<'a>(&'a Rows, TxnRef, UndoNo);

impl RollbackRow for Cancelling<'_> {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        if stamp.undo_no == self.2 {
            self.1.cancel();
        }
        self.0.revert(stamp, record)
    }
}

#[test]
fn a_kill_during_the_rollback_of_a_statement_aborts_the_transaction() {
    let w = world(TxnOptions { eager_rollback_rows: 5, ..small() });
    let rows = Rows::new(&w);
    let begin = || {
        let t = w.txns.begin();
        rows.write(&t, b"first", b"v");
        let mark = t.mark();
        for n in 0..2000u32 {
            rows.write(&t, &n.to_be_bytes(), b"v");
        }
        (t, mark)
    };
    // The KILL that ended the statement does not end its rollback.
    let (t, mark) = begin();
    t.cancel();
    assert_eq!(w.txns.rollback_to(&t, mark, &rows).expect("reverts"), RolledBack::ToMark);
    w.txns.abort(&t).expect("aborts");
    rows.roll_back_all();

    let (t, mark) = begin();
    let killer = Cancelling(&rows, t.clone(), UndoNo(1500));
    let error = w.txns.rollback_to(&t, mark, &killer).expect_err("killed");
    assert_eq!((error.code(), t.phase()), (Code::StatementCancelled, Phase::Aborted));
    let left = rows.cells.lock().len();
    assert!((1000..1500).contains(&left), "{left} rows left: it ended within a step");
    rows.roll_back_all();
    assert!(rows.cells.lock().is_empty());
}

#[test]
fn an_aborted_transaction_rolls_back_on_touch_and_in_the_background() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    for n in 0..1000u32 {
        rows.write(&t, &n.to_be_bytes(), b"v");
    }
    w.txns.abort(&t).expect("aborts");
    let next = w.txns.begin();
    rows.write(&next, &5u32.to_be_bytes(), b"w");
    w.txns.commit(&next).expect("commits");
    assert_eq!(w.txns.rolling_back_count(), 1);
    rows.roll_back_all();
    assert_eq!(w.txns.rolling_back_count(), 0);
    assert_eq!(rows.cells.lock().len(), 1);
    assert_eq!(w.txns.state(t.id()), TxnState::Aborted, "a memtable may hold its entries");
}

/// Fails while its flag is set.
struct Failing<'a>(&'a Rows, AtomicBool);

impl RollbackRow for Failing<'_> {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        match self.1.load(Ordering::Relaxed) && stamp.undo_no <= UndoNo(2) {
            true => Err(Error::new(Code::DiskFull)),
            false => self.0.revert(stamp, record),
        }
    }
}

#[test]
fn a_rollback_without_space_is_retried_later() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    for n in 0..4u8 {
        rows.write(&t, &[n], b"v");
    }
    let failing = Failing(&rows, AtomicBool::new(true));
    w.txns.abort(&t).expect("aborts");
    assert_eq!(w.txns.rollback_beat(&failing).expect_err("full").code(), Code::DiskFull);
    assert_eq!(rows.cells.lock().len(), 2);
    failing.1.store(false, Ordering::Relaxed);
    while w.txns.rollback_beat(&failing).expect("reverts") == Beat::More {}
    assert_eq!((rows.cells.lock().len(), w.txns.rolling_back_count()), (0, 0));

    let t = w.txns.begin();
    let mark = t.mark();
    rows.write(&t, b"k", b"v");
    failing.1.store(true, Ordering::Relaxed);
    assert!(w.txns.rollback_to(&t, mark, &failing).is_err());
    assert_eq!(t.phase(), Phase::Aborted, "a statement that cannot be reverted takes it along");
    rows.roll_back_all();
    assert!(rows.cells.lock().is_empty());
}

/// Makes room for each row, as if its leaf were full.
struct MakingRoom<'a>(&'a Rows, Arc<Log>);

impl RollbackRow for MakingRoom<'_> {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        drop(self.1.reserve(4 << 10, Share::Within)?);
        self.0.revert(stamp, record)
    }
}

/// On a full disk, when the ballast is used up: the thread of a statement, whose writes are
/// refused, rolls the statement back, and the transaction continues.
#[test]
fn a_statement_rolls_back_on_a_full_disk() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"a", b"v");
    let mark = t.mark();
    rows.write(&t, b"b", b"v");
    w.rt.health.refuse(Error::new(Code::DiskFull));
    assert_eq!(w.log.reserve(100, Share::Within).err().map(|e| e.code()), Some(Code::DiskFull));
    let revert = MakingRoom(&rows, w.log.clone());
    assert_eq!(w.txns.rollback_to(&t, mark, &revert).expect("reverts"), RolledBack::ToMark);
    assert_eq!((t.phase(), rows.cells.lock().len()), (Phase::Open, 1));
    assert!(!w.rt.is_freeing(), "other writes of the thread are refused");
    assert_eq!(w.log.reserve(100, Share::Within).err().map(|e| e.code()), Some(Code::DiskFull));
    w.txns.commit(&t).expect("commits");
}

/// Fails every rollback of one transaction: its pages are damaged.
struct Damaged<'a>(&'a Rows, evenkeel_base::TxnId);

impl RollbackRow for Damaged<'_> {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        match stamp.txn == self.1 {
            true => Err(Error::new(Code::PageChecksum)),
            false => self.0.revert(stamp, record),
        }
    }
}

#[test]
fn a_damaged_rollback_does_not_hold_up_the_others() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t: Vec<TxnRef> = (0..3u8)
        .map(|n| {
            let t = w.txns.begin();
            rows.write(&t, &[n], b"v");
            w.txns.abort(&t).expect("aborts");
            t
        })
        .collect();
    let damaged = Damaged(&rows, t[0].id());
    let error = loop {
        match w.txns.rollback_beat(&damaged) {
            Ok(beat) => assert_eq!(beat, Beat::More, "it is not forgotten"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.code(), w.txns.rolling_back_count()), (Code::PageChecksum, 1));
    assert_eq!(rows.cells.lock().keys().collect::<Vec<_>>(), [&vec![0u8]]);
    rows.roll_back_all();
    assert_eq!(w.txns.rolling_back_count(), 0);
}
