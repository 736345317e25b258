//! Statements and savepoints revert eagerly, transactions in the background.

use crate::testing::*;
use crate::{Grant, LockSpace, Mode, Phase, Policy, RollbackRow, RolledBack, TxnOptions, TxnRef};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, CommitTable, Error, Result, Stamp, TxnState, UndoNo};
use evenkeel_format::undo::UndoRecord;
use evenkeel_log::{Log, Share};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_savepoint_takes_back_what_came_after_it() {
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
fn all_that_a_transaction_did_is_aborted_if_it_is_much() {
    let w = world(TxnOptions { eager_rollback_rows: 5, ..small() });
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    let mark = t.mark();
    for n in 0..6u8 {
        rows.write(&t, &[n], b"v");
    }
    assert_eq!(w.txns.rollback_to(&t, mark, &rows).expect("aborts"), RolledBack::Aborted);
    assert_eq!((t.phase(), w.txns.state(t.id())), (Phase::Aborted, TxnState::Aborted));
    // Its owner goes on: who has a hold of the old one cancels the new one.
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
fn what_came_before_a_mark_stays_however_much_is_behind_it() {
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
fn a_lock_from_before_a_mark_stays_too() {
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

/// Cancels the transaction when so many operations are left.
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
fn a_kill_that_comes_while_a_statement_is_reverted_aborts() {
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
    // The KILL that has ended the statement does not end its revert.
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
fn an_aborted_transaction_is_reverted_on_touch_and_behind() {
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

/// Fails while told to.
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
fn a_revert_without_space_is_put_off() {
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

/// Makes room for each row, as where its leaf has become full.
struct MakingRoom<'a>(&'a Rows, Arc<Log>);

impl RollbackRow for MakingRoom<'_> {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        drop(self.1.reserve(4 << 10, Share::Within)?);
        self.0.revert(stamp, record)
    }
}

/// On a full disk, when the ballast is given away: what a statement did is reverted by its own
/// thread, whose writes are refused, and the transaction goes on.
#[test]
fn users_who_are_refused_revert_what_they_did() {
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

/// Reverts no row of one transaction: its pages are damaged.
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
fn one_that_cannot_be_reverted_does_not_hold_up_the_others() {
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
