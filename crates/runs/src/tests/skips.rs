//! D4: runs whose reads skip most are compacted first. Counts of entries that readers pass over, by
//! run.

use super::test_support::{Fixture, spec};
use crate::state::Edit;
use crate::{Direction, KeyRange};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{IndexId, Lsn, Snapshot};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use evenkeel_sched::laws::compaction::Spare;
use std::sync::Arc;

const ROWS: u64 = 10_000;

/// Indexes 1 and 2 with the same entries, half of them deleted, in two runs each.
fn two_equal_indexes() -> Fixture {
    let rig = Fixture::new(8 << 20);
    // Small indexes are compacted together, even if most of them skip no entry.
    rig.set_segment_bytes(64 << 10);
    (1..=2).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    for (op, step) in [(INS | FRESH, 1), (DEL, 2)] {
        for n in (0..ROWS).step_by(step) {
            (1..=2).for_each(|index| rig.put(index, op, &n.to_be_bytes(), b"p"));
        }
        rig.flush();
    }
    rig
}

impl Fixture {
    fn scan(&self, index: u32, direction: Direction) -> u64 {
        let all = Snapshot::committed_at(Lsn::MAX);
        let mut cursor =
            self.runs.cursor(IndexId(index), KeyRange::all(), direction, all).expect("opens");
        let mut rows = 0;
        while cursor.next().expect("reads").is_some() {
            rows += 1;
        }
        rows
    }

    /// Skipped entries of each run, newest first.
    fn skipped(&self, index: u32) -> Vec<u64> {
        self.runs.warm(IndexId(index)).expect("reads");
        self.runs.state.read().indexes[&IndexId(index)].runs.iter().map(|r| r.skipped()).collect()
    }

    fn compact_one(&self) {
        let compactions = || self.rt.metrics.get(Metric::CompactionsFinished);
        let before = compactions();
        while compactions() == before {
            self.runs.compaction_step(Spare::All).expect("merges");
        }
    }
}

#[test]
fn of_equal_indexes_the_one_with_skipping_reads_is_compacted_first() {
    for read in [1, 2] {
        let (rig, other) = (two_equal_indexes(), 3 - read);
        let runs = |index| rig.runs.stats(IndexId(index)).runs;
        assert_eq!(rig.scan(read, Direction::Forward), ROWS / 2);
        // The other index is read as often, without skipping.
        let range = KeyRange::prefix(&1u64.to_be_bytes());
        let all = Snapshot::committed_at(Lsn::MAX);
        let mut cursor =
            rig.runs.cursor(IndexId(other), range, Direction::Forward, all).expect("opens");
        assert!(cursor.next().expect("reads").is_some());
        drop(cursor);
        rig.compact_one();
        assert_eq!((runs(read), runs(other)), (1, 2));
        assert_eq!(rig.skipped(read), [0], "what is merged counts anew");
        rig.compact_one();
        assert_eq!((runs(read), runs(other)), (1, 1));
    }
}

#[test]
fn skipped_entries_are_counted_for_their_run() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let rig = two_equal_indexes();
        assert_eq!(rig.skipped(2), [0, 0]);
        for scans in 1..=3 {
            rig.scan(2, direction);
            // Each DEL, and the INS that it hides.
            assert_eq!(rig.skipped(2), [scans * ROWS / 2, scans * ROWS / 2]);
        }
        assert_eq!(rig.skipped(1), [0, 0]);
        assert_eq!(rig.rt.metrics.get(Metric::RunEntriesSkipped), 3 * ROWS);
        assert_eq!(rig.rt.metrics.get(Metric::EntriesSkipped), 3 * ROWS);
        // An INS beneath a DEL in a memtable: memtables do not count skips.
        rig.put(2, DEL, &1u64.to_be_bytes(), b"p");
        rig.scan(2, direction);
        assert_eq!(rig.skipped(2), [4 * ROWS / 2, 4 * ROWS / 2 + 1]);
        assert_eq!(rig.rt.metrics.get(Metric::EntriesSkipped), 4 * ROWS + 2);
    }
}

/// Runs that a compaction has replaced are no longer counted.
#[test]
fn a_run_that_lost_its_low_end_keeps_its_part() {
    let rig = two_equal_indexes();
    rig.scan(1, Direction::Forward);
    let run = rig.runs.state.read().indexes[&IndexId(1)].runs[1].clone();
    assert_eq!(run.skipped(), ROWS / 2);
    let half = run.above(&(ROWS / 2).to_be_bytes()).expect("half of it");
    assert!(half.bytes < run.bytes * 3 / 4);
    assert_eq!(half.skipped(), ROWS / 2 * half.bytes / run.bytes);
}

/// Fences give the bytes that a piece of a compaction has taken. If they have left memory they are
/// read, but not while the state is locked: all writers would wait for that.
#[test]
fn installing_a_piece_reads_no_file() {
    let rig = two_equal_indexes();
    // The list of runs of an unused index need not be in memory.
    rig.scan(1, Direction::Forward);
    let run = rig.runs.state.read().indexes[&IndexId(1)].runs[1].clone();
    let left = run.above(&(ROWS / 2).to_be_bytes()).map(Arc::new);
    let edit = Edit::new(IndexId(1), vec![(run, left)], None, Vec::new());
    rig.runs.set_resident_bytes(0);
    let before = rig.rt.metrics.get(Metric::FileReads);
    let mut state = rig.runs.state.write();
    state.apply(&edit);
    assert_eq!(rig.rt.metrics.get(Metric::FileReads), before);
    assert_eq!(state.doomed_bytes.len(), 1, "and told");
}
