//! Blocks of newly written runs that readers find in memory.

use super::test_support::{Fixture, Random, spec};
use crate::{Direction, KeyRange, RunsOptions};
use evenkeel_base::{IndexId, Lsn, Snapshot, metrics::Metric};
use evenkeel_format::record::entry_op;

const ENTRIES: u32 = 60_000;
/// The part of the keys that is read often.
const OFTEN: u32 = ENTRIES / 20;

/// A rig whose index has two runs of interleaved keys that do not compress.
fn rig(cache_bytes: u64) -> Fixture {
    let rig = Fixture::new(32 << 20);
    rig.runs.set_memory(RunsOptions { cache_bytes, ..rig.options });
    rig.runs.add_index(spec(1, false, false));
    let mut random = Random(7);
    for part in 0..2 {
        for n in (part..ENTRIES).step_by(2) {
            let noise = [random.next(), random.next(), random.next()].map(u64::to_le_bytes);
            let key = [&n.to_be_bytes(), noise.as_flattened()].concat();
            rig.put(1, entry_op::INS | entry_op::FRESH, &key, b"p");
        }
        rig.flush();
    }
    rig
}

impl Fixture {
    /// Reads the often-read keys; returns the blocks read from storage.
    fn read_often(&self) -> u64 {
        let reads = || self.rt.metrics.get(Metric::RunBlockReads);
        let (before, all) = (reads(), Snapshot::committed_at(Lsn::MAX));
        let cursor = self.runs.cursor(IndexId(1), KeyRange::all(), Direction::Forward, all);
        let mut cursor = cursor.expect("opens");
        for _ in 0..OFTEN {
            assert!(cursor.next().expect("reads").is_some());
        }
        reads() - before
    }
}

#[test]
fn written_blocks_stay_in_memory_where_there_is_room() {
    let rig = rig(64 << 20);
    assert_eq!(rig.read_often(), 0, "of flushes");
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(rig.runs.stats(IndexId(1)).runs, 1);
    assert_eq!(rig.count(1), ENTRIES as usize);
    assert_eq!(rig.rt.metrics.get(Metric::RunBlockReads), 0, "of a merge");
    // And no more: the blocks of the compacted runs are dropped.
    let (raw, cached) = (u64::from(ENTRIES) * 32, rig.runs.memory().1);
    assert!(cached > raw && cached < 2 * raw, "{cached} bytes of {raw}");
}

#[test]
fn often_read_blocks_stay_in_memory_through_a_compaction() {
    let rig = rig(1 << 20);
    rig.runs.drop_cache();
    let cold = rig.read_often();
    assert!(cold > 10, "{cold} blocks");
    // Other blocks arrive and use up the room.
    assert_eq!(rig.count(1), ENTRIES as usize);
    (0..9).for_each(|_| {
        rig.read_often();
    });
    assert_eq!(rig.read_often(), 0);
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(rig.runs.stats(IndexId(1)).runs, 1);
    let again = rig.read_often();
    assert!(again <= cold / 4, "{again} of {cold} blocks were read again");
    assert!(rig.runs.memory().1 <= 1 << 20);
}
