//! Queues: inserts at one end and deletes at the other, read at the low end, have a flat cost.

use super::test_support::{Fixture, Random, spec};
use crate::{Direction, KeyRange};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{IndexId, Lsn, Snapshot};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};

impl Fixture {
    /// The first key in a direction at a snapshot, and the number of entries skipped for it.
    fn first(&self, direction: Direction, at: Lsn) -> (Option<u64>, u64) {
        let skipped = || self.rt.metrics.get(Metric::EntriesSkipped);
        let before = skipped();
        let snapshot = Snapshot::committed_at(at);
        let mut cursor =
            self.runs.cursor(IndexId(1), KeyRange::all(), direction, snapshot).expect("opens");
        let first = cursor.next().expect("reads");
        let first = first.map(|e| u64::from_be_bytes(e.key.try_into().expect("8 bytes")));
        drop(cursor);
        (first, skipped() - before)
    }

    fn queue_op(&self, op: u8, n: u64) {
        self.put(1, op, &n.to_be_bytes(), b"p");
    }
}

const LIVE: u64 = 100;

/// D4, in one generation: without flushes and compactions.
#[test]
fn a_queue_in_the_memtable_is_read_at_a_flat_cost() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let rig = Fixture::new(64 << 20);
        rig.runs.add_index(spec(1, false, false));
        // In reverse the other end is emptied.
        let place = |n: u64| if direction == Direction::Forward { n } else { u64::MAX - n };
        (0..LIVE).for_each(|n| rig.queue_op(INS | FRESH, place(n)));
        let mut most = 0;
        for n in 0..20_000 {
            rig.queue_op(INS | FRESH, place(n + LIVE));
            rig.queue_op(DEL, place(n));
            let (first, skipped) = rig.first(direction, Lsn::MAX);
            assert_eq!(first, Some(place(n + 1)));
            most = skipped.max(most);
        }
        assert!(most <= 40, "{most} entries skipped");
        let elided = rig.rt.metrics.get(Metric::EntriesElided);
        assert!((39_000..=40_000).contains(&elided), "{elided}");
        assert_eq!(rig.count(1), LIVE as usize);
        assert_eq!(rig.rt.metrics.get(Metric::MemtableFlushes), 0);
        rig.flush();
        assert!(rig.runs.stats(IndexId(1)).run_entries < LIVE + 40, "nor is it flushed");
    }
}

/// Entries that must stay: a row that a snapshot sees, a row that is not fresh, one with an
/// undecided delete, and one of an index that is being built or from before its VALID.
#[test]
fn tombstone_elision_keeps_entries_that_may_be_needed() {
    let fill = |rig: &Fixture, op: u8| (0..200).for_each(|n| rig.queue_op(op, n));
    let empty = |rig: &Fixture| (0..200).for_each(|n| rig.queue_op(DEL, n));
    let elided = |rig: &Fixture| rig.rt.metrics.get(Metric::EntriesElided);
    // A snapshot in between.
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    fill(&rig, INS | FRESH);
    let between = rig.commits.inner.lock().published;
    rig.commits.inner.lock().snapshots.push(between);
    empty(&rig);
    rig.queue_op(INS | FRESH, 1000);
    assert_eq!(rig.first(Direction::Forward, Lsn::MAX).0, Some(1000));
    assert_eq!(elided(&rig), 0);
    assert_eq!(rig.first(Direction::Forward, between), (Some(0), 1));
    rig.commits.inner.lock().snapshots.clear();
    assert_eq!(rig.first(Direction::Forward, Lsn::MAX).0, Some(1000));
    assert_eq!((elided(&rig), rig.first(Direction::Forward, Lsn::MAX).1), (400, 0));
    // Not fresh: an older entry may lie below.
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    fill(&rig, INS | FRESH);
    rig.flush();
    fill(&rig, INS);
    empty(&rig);
    assert_eq!(rig.first(Direction::Forward, Lsn::MAX).0, None);
    assert_eq!((elided(&rig), rig.count(1)), (0, 0));
    // Rolled back, or undecided.
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    fill(&rig, INS | FRESH);
    let last = rig.log.next();
    empty(&rig);
    {
        let mut inner = rig.commits.inner.lock();
        let deletes = inner.states.iter_mut().filter(|(txn, _)| txn.0 > last.0);
        deletes.for_each(|(_, state)| *state = evenkeel_base::TxnState::Active);
    }
    assert_eq!(rig.first(Direction::Forward, Lsn::MAX).0, Some(0));
    assert_eq!((elided(&rig), rig.count(1)), (0, 200));
    // Being built, or valid from a later timestamp on: the build's runs may hold the row.
    for building in [true, false] {
        let rig = Fixture::new(1 << 20);
        rig.runs.add_index(spec(1, false, true));
        fill(&rig, INS | FRESH);
        empty(&rig);
        if !building {
            rig.runs.set_valid(IndexId(1), rig.log.next());
        }
        assert_eq!(rig.first(Direction::Forward, Lsn::MAX).0, None);
        assert_eq!(elided(&rig), 0);
    }
}

/// Readers in both directions beside a thread that elides: a row is found whole or not at all.
#[test]
fn readers_see_no_deleted_row_during_tombstone_elision() {
    let rig = Fixture::new(64 << 20);
    rig.runs.add_index(spec(1, false, false));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let keeps = 500;
    (0..keeps).for_each(|n| rig.queue_op(INS | FRESH, n * 1000));
    std::thread::scope(|scope| {
        for direction in [Direction::Forward, Direction::Reverse] {
            let (rig, stop) = (&rig, &stop);
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    let at = {
                        let mut inner = rig.commits.inner.lock();
                        let at = inner.published;
                        inner.snapshots.push(at);
                        at
                    };
                    let all = Snapshot::committed_at(at);
                    let mut cursor = rig
                        .runs
                        .cursor(IndexId(1), KeyRange::all(), direction, all)
                        .expect("opens");
                    let (mut kept, mut others) = (0, 0);
                    while let Some(entry) = cursor.next().expect("reads") {
                        let key = u64::from_be_bytes(entry.key.try_into().expect("8 bytes"));
                        match key % 1000 {
                            0 => kept += 1,
                            _ => others += 1,
                        }
                    }
                    let mut inner = rig.commits.inner.lock();
                    let mine = inner.snapshots.iter().position(|s| *s == at).expect("its own");
                    inner.snapshots.swap_remove(mine);
                    // At most one of the other rows lives at a time.
                    assert!(kept == keeps && others <= 1, "{kept} and {others}");
                }
            });
        }
        let mut random = Random(2);
        let elided = || rig.rt.metrics.get(Metric::EntriesElided);
        // On a busy machine the readers, which elide, run late.
        for pair in 0..100_000 {
            if pair >= 15_000 {
                if elided() > 10_000 {
                    break;
                }
                std::thread::yield_now();
            }
            let n = random.below(keeps * 1000) | 1;
            rig.queue_op(INS | FRESH, n);
            rig.queue_op(DEL, n);
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    assert!(rig.rt.metrics.get(Metric::EntriesElided) > 10_000);
}
