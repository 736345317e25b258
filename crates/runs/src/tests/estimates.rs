//! Accuracy of estimates: for even and uneven keys, one run or many and memtables, and with
//! replaced entries, whether or not an old snapshot needs those.

use super::test_support::{Commits, Fixture, Random, spec, stamp};
use crate::{KeyRange, Runs, entry_bytes};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{CommitTable, IndexId, Lsn, Snapshot, Stamp, TxnId, TxnState};
use evenkeel_format::record::Entry;
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use evenkeel_sched::Scheduler;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

const ROWS: u64 = 48_000;
/// Ranges hold at least this part of all rows, and so a block of each run.
const LEAST_PART: u64 = 4;
/// Up to this number rows are counted exactly.
const COUNTED_MAX: u64 = 128;

/// An index, and the keys it holds.
struct Bed {
    rig: Fixture,
    keys: BTreeSet<u64>,
}

/// Bytes that do not compress, so that a block has few of them.
fn pk(key: u64) -> [u8; 16] {
    let mut random = Random(key);
    (u128::from(random.next()) << 64 | u128::from(random.next())).to_be_bytes()
}

impl Bed {
    fn new() -> Bed {
        let rig = Fixture::new(16 << 20);
        rig.runs.add_index(spec(1, false, false));
        Bed { rig, keys: BTreeSet::new() }
    }

    fn insert(&mut self, key: u64) {
        if self.keys.insert(key) {
            self.rig.put(1, INS | FRESH, &key.to_be_bytes(), &pk(key));
        }
    }

    fn delete(&mut self, key: u64) {
        if self.keys.remove(&key) {
            self.rig.put(1, DEL, &key.to_be_bytes(), &pk(key));
        }
    }

    /// Moves each key by `step`.
    fn move_on(&mut self, keys: Vec<u64>, step: u64) {
        for key in keys {
            self.delete(key);
            self.insert(key + step);
        }
    }

    fn said(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.to_be_bytes().to_vec(), to.to_be_bytes().to_vec());
        let range = KeyRange { lower: Bound::Included(from), upper: Bound::Excluded(to) };
        let newest = Snapshot::committed_at(Lsn::MAX);
        self.rig.runs.estimate(IndexId(1), &range, newest, COUNTED_MAX).expect("estimates")
    }

    /// From now on no entry is dropped that is needed at this moment.
    fn keep_snapshot(&self) {
        let mut commits = self.rig.commits.inner.lock();
        let now = commits.published;
        commits.snapshots.push(now);
    }

    /// Entries of rows that another transaction inserts and rolls back.
    fn insert_and_abort(&mut self, keys: impl Iterator<Item = u64>) {
        let txn = TxnId(u64::from(u32::MAX));
        self.rig.commits.set(txn, TxnState::Active);
        for (nth, key) in (1..).zip(keys) {
            let (key, pk) = (key.to_be_bytes(), pk(key));
            let bytes = entry_bytes(key.len(), pk.len(), 0);
            let mut reserved = self.rig.runs.reserve(bytes).expect("space");
            let pin = self.rig.runs.pin();
            let entry = Entry { index: IndexId(1), op: INS | FRESH, key: &key, value: b"" };
            let (stamp, lsn) = (stamp(txn.0, nth), self.rig.log.next());
            self.rig.runs.insert(&pin, &mut reserved, &entry, &pk, stamp, lsn);
        }
        self.rig.commits.set(txn, TxnState::Aborted);
    }

    /// Compares ranges from one key to another: the estimate is off by a factor of `times` at most.
    fn compare(&self, what: &str, times: u64) {
        let least = self.keys.len() as u64 / LEAST_PART;
        let keys: Vec<u64> = self.keys.iter().copied().collect();
        let mut random = Random(7);
        for round in 0..40 {
            let wide = least + random.below(keys.len() as u64 - least);
            let from = random.below(keys.len() as u64 - wide);
            let (from, to) = match round {
                0 => (0, u64::MAX),
                _ => (keys[from as usize], keys[(from + wide) as usize]),
            };
            let (rows, said) = (self.keys.range(from..to).count() as u64, self.said(from, to));
            assert!(rows <= times * said, "{what}: {said} of {rows} rows");
            assert!(said <= times.max(2) * rows, "{what}: {said} of {rows} rows");
        }
    }

    fn compaction(&mut self) {
        self.rig.runs.compact_to_rest().expect("merges");
        assert_eq!(self.rig.runs.stats(IndexId(1)).runs, 1);
    }
}

/// The key of the nth row.
type Maker = fn(u64, &mut Random) -> u64;

/// In the memtable alone, then in one run.
#[test]
fn estimates_are_near_for_even_and_uneven_keys() {
    let mut random = Random(3);
    let makers: [(&str, Maker); 3] = [
        ("in order", |n, _| n),
        ("even", |_, random| random.next() >> 1),
        // Most keys share much with others; a few are anywhere.
        ("uneven", |n, random| match n % 10 {
            0 => random.next() >> 1,
            digit => digit << 40 | random.below(1 << (4 * digit)),
        }),
    ];
    for (what, make) in makers {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(make(n, &mut random)));
        bed.compare(&format!("{what}, in memory"), 2);
        bed.rig.flush();
        bed.compare(&format!("{what}, in a run"), 2);
    }
}

/// Some rows in each of many runs, some in memory. A run has few blocks, and only whole ones count.
#[test]
fn estimates_add_up_over_many_runs() {
    let (mut random, mut bed) = (Random(4), Bed::new());
    for _ in 0..5 {
        (0..ROWS / 10).for_each(|_| bed.insert(random.below(1 << 40)));
        bed.rig.flush();
        bed.compare(&format!("{} runs", bed.rig.runs.stats(IndexId(1)).runs), 3);
    }
    (0..ROWS / 16).for_each(|_| bed.insert(random.below(1 << 30)));
    bed.compare("and in memory", 3);
    assert!(bed.rig.runs.stats(IndexId(1)).runs >= 4);
}

/// The rows that changed last are behind all others, like those of a column of times: the runs that
/// hold them delete as many rows elsewhere.
#[test]
fn estimates_are_near_for_rows_that_moved() {
    for flushes in [1, 4] {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(n));
        bed.rig.flush();
        let keys: Vec<u64> = (0..ROWS).collect();
        for some in keys.chunks(ROWS as usize / flushes) {
            bed.move_on(some.to_vec(), 1 << 40);
            bed.rig.flush();
        }
        // The place of a run's deletes is unknown: the estimate assumes that they are everywhere.
        bed.compare(&format!("moved in {flushes} runs"), if flushes == 1 { 2 } else { 3 });
        bed.compaction();
        bed.compare("moved and merged", 2);
    }
}

/// Every second row is deleted; or all except the last quarter.
#[test]
fn estimates_do_not_count_deleted_entries() {
    for (what, is_dead) in
        [("every second", (|n| n % 2 == 1) as fn(u64) -> bool), ("most", |n| n < ROWS / 4 * 3)]
    {
        for keeps in [false, true] {
            let what = format!("{what} deleted, a snapshot: {keeps}");
            let mut bed = Bed::new();
            (0..ROWS).for_each(|n| bed.insert(n));
            bed.rig.flush();
            if keeps {
                bed.keep_snapshot();
            }
            (0..ROWS).filter(|n| is_dead(*n)).for_each(|n| bed.delete(n));
            bed.compare(&format!("{what}, in memory"), 2);
            bed.rig.flush();
            bed.compare(&what, 2);
            bed.compaction();
            bed.compare(&format!("{what}, merged"), 2);
        }
    }
}

/// No row is left: the estimate is low in memory, in runs, and with deleted rows that a snapshot
/// needs.
#[test]
fn estimates_of_an_empty_index() {
    for keeps in [false, true] {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(n));
        if keeps {
            bed.keep_snapshot();
        }
        (0..ROWS / 2).for_each(|n| bed.delete(n));
        bed.rig.flush();
        (ROWS / 2..ROWS).for_each(|n| bed.delete(n));
        for what in ["in memory", "in runs"] {
            for (from, to) in [(0, u64::MAX), (0, ROWS / 3), (ROWS / 3, ROWS)] {
                let said = bed.said(from, to);
                assert!(said <= 1, "{what}: {said} of no rows, a snapshot: {keeps}");
            }
            bed.rig.flush();
        }
    }
}

/// Rows whose key changes again and again leave a pair of entries each time.
#[test]
fn estimates_are_near_for_rows_changed_many_times() {
    for keeps in [false, true] {
        let mut bed = Bed::new();
        (0..ROWS / 8).for_each(|n| bed.insert(n << 8));
        if keeps {
            bed.keep_snapshot();
        }
        for round in 0..16 {
            let keys = bed.keys.iter().copied().collect();
            bed.move_on(keys, 1 + round);
            if round % 4 == 3 {
                bed.compare(&format!("{round} in memory, a snapshot: {keeps}"), 2);
                bed.rig.flush();
                bed.compare(&format!("{round} in runs, a snapshot: {keeps}"), 2);
            }
        }
    }
}

/// Rolled-back entries count neither in memory nor in a run, if they were flushed while the
/// transaction was open.
#[test]
fn estimates_do_not_count_entries_rolled_back() {
    let mut bed = Bed::new();
    (0..ROWS / 4).for_each(|n| bed.insert(n << 8));
    bed.rig.flush();
    bed.insert_and_abort((0..ROWS).map(|n| n << 6 | 1));
    bed.compare("rolled back", 2);
    let txn = TxnId(u64::from(u32::MAX));
    bed.rig.commits.set(txn, TxnState::Active);
    bed.rig.flush();
    bed.rig.commits.set(txn, TxnState::Aborted);
    bed.compare("flushed and rolled back", 2);
}

/// Rows end where rolled-back entries begin, and both lie in many runs of a few blocks each: an
/// estimate of a range with few rows at its beginning examines more entries where they end.
#[test]
fn estimates_are_near_where_rows_end() {
    let txn = TxnId(u64::from(u32::MAX));
    for runs in [1, 3, 7, 20, 45] {
        let mut bed = Bed::new();
        for piece in 0..runs {
            (piece * 6000 / runs..(piece + 1) * 6000 / runs).for_each(|n| bed.insert(n));
            bed.rig.flush();
        }
        for piece in 0..runs {
            let some = piece * 18_000 / runs..(piece + 1) * 18_000 / runs;
            bed.insert_and_abort(some.map(|n| 6000 + n));
            bed.rig.commits.set(txn, TxnState::Active);
            bed.rig.flush();
        }
        bed.rig.commits.set(txn, TxnState::Aborted);
        for rows in [750, 1100, 1500, 2200, 3000, 6000] {
            let said = bed.said(6000 - rows, u64::MAX);
            let near = rows * 2 / 3..=rows * 3 / 2;
            assert!(near.contains(&said), "{runs} runs: {said} of {rows} rows");
        }
    }
}

/// A commit table that compacts the runs of an index at its first lookup.
struct Merging {
    commits: Arc<Commits>,
    runs: OnceLock<Weak<Runs>>,
    armed: AtomicBool,
}

impl CommitTable for Merging {
    fn state(&self, txn: TxnId) -> TxnState {
        if self.armed.swap(false, Ordering::SeqCst) {
            let runs = self.runs.get().and_then(Weak::upgrade).expect("open");
            runs.compact_to_rest().expect("merges");
        }
        self.commits.state(txn)
    }
    fn is_dead(&self, stamp: Stamp) -> bool {
        self.commits.is_dead(stamp)
    }
    fn horizon(&self) -> Lsn {
        self.commits.horizon()
    }
    fn snapshot_between(&self, low: Lsn, high: Lsn) -> bool {
        self.commits.snapshot_between(low, high)
    }
}

/// Entries are counted in runs before a compaction removes most of them, and sampled after it: the
/// share of rows among the remaining entries says nothing about the earlier ones.
#[test]
fn estimates_are_near_while_their_runs_are_compacted() {
    let mut bed = Bed::new();
    let (runs, armed) = (OnceLock::new(), AtomicBool::new(false));
    let commits = Arc::new(Merging { commits: bed.rig.commits.clone(), runs, armed });
    let rig = &mut bed.rig;
    rig.runs = Runs::create(Scheduler::new(rig.rt.clone()), rig.options, commits.clone())
        .expect("creates");
    rig.runs.attach_log(rig.log.clone());
    rig.runs.finish_restore().expect("starts");
    let _ = commits.runs.set(Arc::downgrade(&rig.runs));
    rig.runs.add_index(spec(1, false, false));
    (0..ROWS / 8).for_each(|n| bed.insert(n << 8));
    for round in 0..8 {
        let keys = bed.keys.iter().copied().collect();
        bed.move_on(keys, 1 + round);
        bed.rig.flush();
    }
    // In memory, so that transactions are looked up.
    let keys = bed.keys.iter().copied().collect();
    bed.move_on(keys, 9);
    let runs = |bed: &Bed| bed.rig.runs.stats(IndexId(1)).runs;
    assert!(runs(&bed) > 1);
    commits.armed.store(true, Ordering::SeqCst);
    let said = bed.said(0, u64::MAX);
    assert_eq!((runs(&bed), commits.armed.load(Ordering::SeqCst)), (1, false), "merged meanwhile");
    assert!((ROWS / 16..=ROWS / 4).contains(&said), "{said} of {} rows", ROWS / 8);
}

/// However many entries lie between, the estimate examines few.
#[test]
fn an_estimate_examines_few_entries() {
    let mut bed = Bed::new();
    (0..ROWS).for_each(|n| bed.insert(n));
    bed.rig.flush();
    bed.keep_snapshot();
    (0..ROWS).for_each(|n| bed.delete(n));
    let before = bed.rig.rt.metrics.get(Metric::EntriesSkipped);
    for (from, to) in [(0, u64::MAX), (ROWS / 3, ROWS)] {
        assert!(bed.said(from, to) <= 1);
    }
    let skipped = bed.rig.rt.metrics.get(Metric::EntriesSkipped) - before;
    assert!(skipped <= 2 * 2 * 1024, "{skipped} entries");
}

/// One row in five has another key since, as behind an ingest that deletes what is old: the first
/// estimate examines entries, and estimates of ranges within examine none for a moment.
#[test]
fn estimates_of_ranges_within_examine_no_entry() {
    let mut bed = Bed::new();
    (0..ROWS).for_each(|n| bed.insert(n << 8));
    bed.rig.flush();
    let moved = bed.keys.iter().copied().step_by(5).collect();
    bed.move_on(moved, 1);
    for what in ["in memory", "in runs"] {
        let mut examined = Vec::new();
        for from in [ROWS * 128, ROWS * 160, ROWS * 168] {
            let before = bed.rig.rt.metrics.get(Metric::EstimateEntries);
            let (said, rows) = (bed.said(from, u64::MAX), bed.keys.range(from..).count() as u64);
            examined.push(bed.rig.rt.metrics.get(Metric::EstimateEntries) - before);
            assert!((rows * 3 / 4..=rows * 4 / 3).contains(&said), "{what}: {said} of {rows} rows");
        }
        assert!((1..=2 * 1024).contains(&examined[0]), "{what}: {examined:?} entries");
        assert_eq!(examined[1..], [0, 0], "{what}");
        bed.compare(what, 2);
        bed.rig.flush();
    }
}

/// Short ranges in one run, in several and in memory are known exactly, without a cursor: of each
/// run two blocks are read at most.
#[test]
fn short_ranges_are_known_by_the_positions_of_their_ends() {
    let mut bed = Bed::new();
    (0..ROWS).filter(|n| n % 3 > 0).for_each(|n| bed.insert(n << 8));
    bed.rig.flush();
    for n in (0..ROWS).filter(|n| n % 30 == 0) {
        bed.insert(n << 8);
    }
    for what in ["a run and memory", "two runs"] {
        let mut random = Random(8);
        for _ in 0..300 {
            let (from, wide) = (random.below(ROWS), random.below(200));
            let (from, to) = ((from << 8) + random.below(3), (from + wide) << 8);
            let of = |metric| bed.rig.rt.metrics.get(metric);
            let (examined, read) = (of(Metric::EstimateEntries), of(Metric::RunBlockReads));
            let rows = bed.keys.range(from..to.max(from)).count() as u64;
            assert_eq!(bed.said(from, to), rows, "{what}: from {from} below {to}");
            let examined = of(Metric::EstimateEntries) - examined;
            assert!(examined <= wide / 30 + 1, "{what}: {examined} entries of {rows}");
            assert!(of(Metric::RunBlockReads) - read <= 4, "{what}");
        }
        bed.rig.flush();
        assert_eq!(bed.rig.runs.stats(IndexId(1)).runs, 2);
    }
}

/// Whatever has changed, an estimate of a short range is near, and 0 only if there is no row.
#[test]
fn short_ranges_are_near_after_changes() {
    type Change = fn(&mut Bed);
    let changes: [(&str, Change); 5] = [
        ("some deleted", |bed| (0..ROWS).step_by(40).for_each(|n| bed.delete(n << 8))),
        ("stretches deleted", |bed| {
            (0..ROWS).filter(|n| n / 50 % 3 == 0).for_each(|n| bed.delete(n << 8));
        }),
        ("some moved", |bed| {
            let some = bed.keys.iter().copied().step_by(7).collect();
            bed.move_on(some, 1);
        }),
        ("all moved", |bed| {
            let all = bed.keys.iter().copied().collect();
            bed.move_on(all, 300);
        }),
        ("rolled back", |bed| bed.insert_and_abort((0..ROWS / 2).map(|n| (n << 9) + 1))),
    ];
    for (what, change) in changes {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(n << 8));
        bed.rig.flush();
        change(&mut bed);
        for where_it_is in ["in memory", "in runs"] {
            let mut random = Random(9);
            for _ in 0..200 {
                let (from, wide) = (random.below(ROWS), 1 + random.below(120));
                let (from, to) = (from << 8, (from + wide) << 8);
                let (rows, said) = (bed.keys.range(from..to).count() as u64, bed.said(from, to));
                let near = rows * 2 / 3..=rows * 3 / 2 + 1;
                assert!(near.contains(&said), "{what}, {where_it_is}: {said} of {rows} rows");
            }
            bed.rig.flush();
        }
    }
}
