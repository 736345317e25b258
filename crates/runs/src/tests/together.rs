//! D2: small indexes are compacted together, whatever happens to one of them.

use super::test_support::{Fixture, spec};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, IndexId};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use evenkeel_io::OpenMode;
use evenkeel_sched::laws::compaction::Spare;
use std::sync::atomic::Ordering;

const INDEXES: u32 = 200;

/// Four runs of each index, five rows in each run, four of the last run deleted again.
fn filled() -> Fixture {
    let rig = Fixture::new(4 << 20);
    (1..=INDEXES).for_each(|index| rig.runs.add_index(spec(index, index % 2 == 0, false)));
    for flush in 0..4u64 {
        for index in 1..=INDEXES {
            (0..5).for_each(|n| rig.put(index, INS | FRESH, &(n * 4 + flush).to_be_bytes(), b"p"));
            if flush == 3 {
                (0..4u64).for_each(|n| rig.put(index, DEL, &(n * 4).to_be_bytes(), b"p"));
            }
        }
        rig.flush();
    }
    rig
}

impl Fixture {
    fn runs_of(&self, index: u32) -> u64 {
        self.runs.stats(IndexId(index)).runs
    }

    fn files(&self) -> usize {
        self.rt.env.list("runs").expect("lists").len()
    }

    fn compactions(&self) -> u64 {
        self.rt.metrics.get(Metric::CompactionsFinished)
    }

    /// Restarts over the same directory, with all records of the log.
    fn again(&mut self) {
        self.reopen();
        let records = self.log.records.lock().clone();
        records.iter().for_each(|(_, body)| self.runs.apply_manifest(body).expect("applies"));
        self.runs.finish_restore().expect("opens");
        (1..=INDEXES).for_each(|index| self.runs.add_index(spec(index, index % 2 == 0, false)));
    }
}

#[test]
fn many_indexes_become_one_file_by_one_record() {
    let mut rig = filled();
    assert_eq!((rig.files(), rig.runs_of(1)), (4, 4));
    let records = rig.log.records.lock().len();
    let syncs = rig.rt.metrics.get(Metric::FileSyncs);
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(rig.compactions(), u64::from(INDEXES));
    assert_eq!(rig.rt.metrics.get(Metric::CompactionsStarted), rig.compactions());
    assert_eq!((rig.files(), rig.log.records.lock().len() - records), (1, 1));
    assert!(rig.rt.metrics.get(Metric::FileSyncs) - syncs <= 2);
    for again in [false, true] {
        if again {
            rig.again();
        }
        rig.runs.state.read().check();
        for index in 1..=INDEXES {
            assert_eq!((rig.runs_of(index), rig.count(index)), (1, 16), "index {index}");
            rig.runs.check(IndexId(index)).expect("sound");
        }
    }
}

/// Indexes that are dropped while their compaction waits or is in the open file, and a large one.
#[test]
fn a_shared_compaction_leaves_out_dropped_and_large_indexes() {
    let mut rig = filled();
    rig.set_segment_bytes(16 << 10);
    (0..2000u64).for_each(|n| rig.put(7, INS | FRESH, &(1000 + n).to_be_bytes(), b"p"));
    rig.flush();
    assert_eq!(rig.runs.compaction_step(Spare::All).expect("merges"), Beat::More);
    assert_eq!((rig.compactions(), rig.files()), (0, 6), "the file is open");
    for gone in [3, 150] {
        rig.runs.drop_index(IndexId(gone)).expect("drops");
    }
    rig.runs.compact_to_rest().expect("merges");
    for again in [false, true] {
        if again {
            rig.again();
        }
        rig.runs.state.read().check();
        assert_eq!((rig.runs_of(7), rig.count(7)), (1, 2016));
        assert_eq!((rig.runs_of(4), rig.count(4)), (1, 16));
        assert_eq!((rig.runs_of(151), rig.count(151)), (1, 16));
        assert_eq!((rig.runs_of(3), rig.runs_of(150)), (0, 0));
    }
}

/// A damaged run stays as it is and holds up no other index.
#[test]
fn a_shared_compaction_leaves_a_damaged_run_alone() {
    let rig = filled();
    let (path, position) = {
        let state = rig.runs.state.read();
        let segment = state.indexes[&IndexId(77)].runs[1].segments[0].clone();
        (crate::run::file::path(segment.file.number), segment.info.position)
    };
    let mode = OpenMode { write: true, ..OpenMode::READ };
    let file = rig.rt.env.open(&path, mode).expect("opens");
    file.write_at(&[0xee; 30], position + 4).expect("writes");
    rig.runs.compact_to_rest().expect("the others are merged");
    let begun = || rig.rt.metrics.get(Metric::CompactionsStarted);
    let tried = begun();
    rig.runs.compact_to_rest().expect("nothing is left to do");
    assert_eq!(begun(), tried, "it is found once, and not tried again");
    let error = rig.runs.check(IndexId(77)).expect_err("a part of an index is no index");
    assert_eq!(error.code(), Code::RunDamaged, "{error}");
    assert_eq!(rig.runs_of(77), 4);
    for index in (1..=INDEXES).filter(|index| *index != 77) {
        assert_eq!((rig.runs_of(index), rig.count(index)), (1, 16), "index {index}");
    }
}

/// The picker is asked about changed indexes, not about all indexes at each beat.
#[test]
fn ten_thousand_unchanged_indexes_cost_no_picker_calls() {
    const INDEXES: u32 = 10_000;
    let rig = Fixture::new(64 << 20);
    (1..=INDEXES).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    let fill = |indexes: std::ops::RangeInclusive<u32>, n: u64| {
        indexes.for_each(|index| rig.put(index, INS | FRESH, &n.to_be_bytes(), b"p"));
        rig.flush();
    };
    (0..2).for_each(|n| fill(1..=INDEXES, n));
    let asked = |spare: Spare| {
        let before = rig.runs.asked.load(Ordering::Relaxed);
        rig.runs.compaction_step(spare).expect("merges");
        rig.runs.asked.load(Ordering::Relaxed) - before
    };
    assert_eq!(asked(Spare::None), u64::from(INDEXES));
    assert_eq!((0..100).map(|_| asked(Spare::None)).sum::<u64>(), 0);
    fill(5..=5, 2);
    assert!((1..=2).contains(&asked(Spare::None)), "before and after a run of it is read");
    assert_eq!(asked(Spare::None), 0);
    // Indexes that are read, while ingest is slow.
    assert_eq!(asked(Spare::Read), u64::from(INDEXES));
    assert_eq!(rig.count(7), 2);
    assert_eq!(asked(Spare::Read), 1);
    assert_eq!(rig.runs.stats(IndexId(7)).runs, 1);
    // Optional compactions: each index is asked about a few times, whatever the number of beats.
    let before = rig.runs.asked.load(Ordering::Relaxed);
    rig.runs.compact_to_rest().expect("merges");
    let rest = rig.runs.asked.load(Ordering::Relaxed) - before;
    assert_eq!(rig.runs.runs_max(), 1);
    assert!(rest <= 8 * u64::from(INDEXES), "asked {rest} times");
    assert_eq!(asked(Spare::All), 0);
}
