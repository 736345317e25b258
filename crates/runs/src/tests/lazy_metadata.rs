//! D2: an unused index of one run stays in its file, and can be used like any other.

use super::test_support::{Fixture, spec};
use crate::{Direction, KeyRange};
use evenkeel_base::{Beat, Code, Error, IndexId, Kind, Lsn, Snapshot};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use evenkeel_format::run::Trailer;
use evenkeel_io::sim::{Fault, FaultKind, SimDisk, SimEnv, SimOptions, When};
use std::sync::atomic::Ordering;

const INDEXES: u32 = 40;

/// A run of each index, five rows each.
fn filled() -> Fixture {
    filled_on(Fixture::new(4 << 20))
}

fn filled_on(rig: Fixture) -> Fixture {
    (1..=INDEXES).for_each(|index| rig.runs.add_index(spec(index, index == 2, false)));
    (1..=INDEXES).for_each(|index| rig.rows(index, 0));
    rig.flush();
    rig
}

impl Fixture {
    fn rows(&self, index: u32, from: u64) {
        (from..from + 5).for_each(|n| self.put(index, INS | FRESH, &n.to_be_bytes(), b"p"));
    }

    /// Whether the metadata of one of its runs is only in the file, and the number of its other
    /// runs.
    fn shape(&self, index: u32) -> (bool, usize) {
        let state = self.runs.state.read();
        state.check();
        let known = &state.indexes[&IndexId(index)];
        (known.cold.is_some(), known.runs.len())
    }

    fn cold(&self) -> u32 {
        (1..=INDEXES).filter(|index| self.shape(*index) == (true, 0)).count() as u32
    }

    /// The error that a reader of the index gets.
    fn refusal(&self, index: u32) -> Error {
        let all = Snapshot::committed_at(Lsn::MAX);
        let cursor = self.runs.cursor(IndexId(index), KeyRange::all(), Direction::Forward, all);
        cursor.and_then(|mut cursor| cursor.next().map(|_| ())).expect_err("it cannot be read")
    }

    /// The error names the file and the index.
    fn names(&self, error: &Error, index: u32) {
        assert_eq!(error.context("file"), Some(&crate::run::file::path(1)[..]), "{error}");
        assert_eq!(error.context("index"), Some(&index.to_string()[..]), "{error}");
        assert_eq!(error.to_string().matches("index=").count(), 1, "{error}");
    }

    /// Leaves no room for unused metadata.
    fn cool_down(&self) {
        self.runs.set_resident_bytes(0);
        self.runs.set_resident_bytes(u64::MAX);
    }
}

#[test]
fn reading_an_unopened_index_opens_its_footer() {
    let (rig, all) = (filled(), Snapshot::committed_at(Lsn::MAX));
    assert_eq!(rig.cold(), INDEXES);
    let mut found = 0;
    let current = rig.runs.current(IndexId(2), &3u64.to_be_bytes(), &mut |_, op, _, _| {
        found += u32::from(op & INS != 0);
        true
    });
    current.expect("reads");
    assert_eq!((found, rig.count(1)), (1, 5));
    assert!(rig.runs.estimate(IndexId(3), &KeyRange::all(), all, 0).expect("estimates") > 0);
    assert_eq!(rig.runs.check(IndexId(4)).expect("is sound").entries, 5);
    assert_eq!(rig.runs.stats(IndexId(5)).run_entries, 5);
    assert_eq!((rig.shape(1), rig.cold()), ((false, 1), INDEXES - 5));
    // An index that is read meanwhile stays.
    let cursor = rig.runs.cursor(IndexId(1), KeyRange::all(), Direction::Forward, all);
    let mut cursor = cursor.expect("opens");
    assert!(cursor.next().expect("reads").is_some());
    rig.cool_down();
    assert_eq!((rig.shape(1), rig.cold()), ((false, 1), INDEXES - 1));
    drop(cursor);
    rig.cool_down();
    assert_eq!(rig.cold(), INDEXES);
    assert_eq!(rig.runs.resident_bytes(), 0, "the footer has left memory too");
    assert_eq!(rig.count(1), 5);
    // Without room, each used index takes the place of others.
    rig.runs.set_resident_bytes(0);
    (1..=INDEXES).for_each(|index| assert_eq!(rig.count(index), 5));
    assert!(rig.cold() >= INDEXES - 4, "{} of {INDEXES} are cold", rig.cold());
}

/// Fences borrow from run blocks; a build is lent the memory that they give back.
#[test]
fn fences_return_borrowed_memory_to_a_build() {
    let rig = filled();
    let all: u64 = {
        (1..=INDEXES).for_each(|index| assert_eq!(rig.count(index), 5));
        rig.runs.resident_bytes()
    };
    rig.runs.set_resident_bytes(all / 3);
    for _ in 0..2 {
        (1..=INDEXES).for_each(|index| assert_eq!(rig.count(index), 5));
    }
    let borrowed = rig.runs.filter_cache.beyond();
    assert!(borrowed > 0, "of {all}");
    let lent = rig.runs.lend(rig.options.cache_bytes);
    assert_eq!(rig.runs.filter_cache.beyond(), 0, "of {borrowed}");
    drop(lent);
    (1..=INDEXES).for_each(|index| assert_eq!(rig.count(index), 5));
    assert!(rig.runs.filter_cache.beyond() > 0, "and borrow again");
}

#[test]
fn an_unopened_index_is_written_and_compacted() {
    let rig = filled();
    (1..=INDEXES / 2).for_each(|index| rig.rows(index, 5));
    rig.put(1, DEL, &0u64.to_be_bytes(), b"p");
    let read = |rig: &Fixture| rig.runs.resident_bytes();
    rig.flush();
    assert_eq!((rig.shape(1), rig.shape(INDEXES)), ((true, 1), (true, 0)));
    assert_eq!(read(&rig), 0, "a flush reads no footer");
    assert_eq!((rig.count(1), rig.count(2), rig.runs.runs_max()), (9, 10, 2));
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(rig.runs.runs_max(), 1);
    rig.cool_down();
    assert_eq!(rig.cold(), INDEXES, "what was merged is left in its file too");
    let rows = |index| if index == 1 { 9 } else { 5 + 5 * usize::from(index <= INDEXES / 2) };
    (1..=INDEXES).for_each(|index| assert_eq!(rig.count(index), rows(index), "index {index}"));
}

#[test]
fn an_unopened_index_is_dropped_without_reading_it() {
    let rig = filled();
    (2..=INDEXES).for_each(|index| {
        rig.runs.drop_index(IndexId(index)).expect("drops");
        rig.runs.state.read().check();
    });
    rig.runs.remove_doomed();
    assert_eq!((rig.shape(1), rig.count(1)), ((true, 0), 5));
    rig.runs.drop_index(IndexId(1)).expect("drops");
    rig.runs.remove_doomed();
    assert!(rig.rt.env.list("runs").expect("lists").is_empty(), "the file goes with the last");
}

#[test]
fn unopened_indexes_are_restored_at_open() {
    for from_checkpoint in [false, true] {
        let mut rig = filled();
        (1..=10).for_each(|index| rig.rows(index, 5));
        rig.flush();
        rig.runs.compact_to_rest().expect("merges");
        rig.runs.drop_index(IndexId(1)).expect("drops");
        rig.runs.drop_index(IndexId(INDEXES)).expect("drops");
        let (blob, log) = (rig.runs.snapshot_blob(), rig.log.records.lock().clone());
        rig.reopen();
        match from_checkpoint {
            true => rig.runs.restore(&blob).expect("restores"),
            false => log.iter().for_each(|(_, b)| rig.runs.apply_manifest(b).expect("applies")),
        }
        rig.runs.finish_restore().expect("opens");
        (2..INDEXES).for_each(|index| rig.runs.add_index(spec(index, index == 2, false)));
        rig.runs.drop_unknown().expect("drops");
        let rows = |index| if index <= 10 { 10 } else { 5 };
        for index in 2..INDEXES {
            assert_eq!((rig.shape(index), rig.count(index)), ((true, 0), rows(index)), "{index}");
        }
    }
}

/// A footer was damaged meanwhile: readers get its file and index in the error, and a drop succeeds
/// without it.
#[test]
fn a_damaged_footer_of_an_unopened_index_is_reported() {
    type Spoil = fn(&mut Vec<u8>, usize);
    let spoils: [(&str, Spoil); 3] = [
        ("footer", |bytes, footer| bytes[footer + 40] ^= 1),
        ("trailer", |bytes, _| *bytes.last_mut().expect("some") ^= 1),
        ("cut", |bytes, footer| bytes.truncate(footer - 1)),
    ];
    for (what, spoil) in spoils {
        let rig = filled();
        (3..=10).for_each(|index| rig.rows(index, 5));
        rig.flush();
        let path = rig.dir.path().join(crate::run::file::path(1));
        let mut bytes = std::fs::read(&path).expect("reads");
        let at = bytes.len() - Trailer::LEN + 16 + 8;
        let footer = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight")) as usize;
        spoil(&mut bytes, footer);
        std::fs::write(&path, bytes).expect("writes");
        let error = rig.runs.check(IndexId(1)).expect_err("its footer cannot be read");
        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error}");
        rig.names(&error, 1);
        rig.runs.compact_to_rest().expect("leaves what is damaged alone");
        let damaged = |index| rig.runs.state.read().indexes[&IndexId(index)].is_damaged();
        assert!((3..=10).all(damaged) && !damaged(11), "{what}: those that were to be merged");
        (3..=10).for_each(|index| rig.names(&rig.refusal(index), index));
        for index in [1, 2, 3, 11] {
            rig.runs.drop_index(IndexId(index)).expect("drops");
            rig.runs.state.read().check();
        }
    }
}

/// The device fails to read the footer: a reader of its indexes gets an error and may retry;
/// indexes whose compaction needs it are damaged, the others are compacted, and no writer waits.
#[test]
fn an_unreadable_footer_damages_only_indexes_in_compaction() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let (env, disk) = (sim.env(), sim.disk().clone());
    let (done, over) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let rig = filled_on(Fixture::simulated(env, 4 << 20));
        let other = INDEXES + 1;
        rig.runs.add_index(spec(other, false, false));
        (3..=10).chain([other]).for_each(|index| rig.rows(index, 5));
        rig.flush();
        rig.rows(other, 10);
        rig.flush();
        disk.inject(Fault::on(&crate::run::file::path(1), FaultKind::ReadError, When::From(1)));
        let error = rig.refusal(1);
        assert_eq!(error.code(), Code::ReadFailed, "{error}");
        rig.names(&error, 1);
        let mut beats = 0;
        while rig.runs.compaction_beat().expect("the thread of merges goes on") == Beat::More {
            beats += 1;
            assert!(beats < 1_000, "it comes to an end");
        }
        rig.runs.compact_to_rest().expect("the others are merged");
        assert_eq!((rig.runs.stats(IndexId(other)).runs, rig.count(other)), (1, 10));
        rig.runs.drop_index(IndexId(12)).expect("drops, reading nothing");
        // No thread waits for their compactions, however many generations arrive.
        for round in 2..16 {
            (3..=10).chain([other]).for_each(|index| rig.rows(index, 5 * round));
            rig.flush();
            while rig.runs.compaction_beat().expect("merges") == Beat::More {}
        }
        assert!(!rig.runs.in_debt.load(Ordering::SeqCst));
        disk.clear_faults();
        assert_eq!((rig.count(1), rig.count(11)), (5, 5), "nothing is wrong with these");
        for index in 3..=10 {
            let error = rig.refusal(index);
            assert_eq!(error.code(), Code::ReadFailed, "{error}");
            rig.names(&error, index);
            rig.runs.drop_index(IndexId(index)).expect("drops");
        }
        rig.runs.state.read().check();
        done.send(()).expect("heard");
    })]);
    over.try_recv().expect("the body ran to its end");
}

/// A read that fails once damages no index.
#[test]
fn a_footer_read_that_fails_once_is_retried() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let (env, disk) = (sim.env(), sim.disk().clone());
    let (done, over) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let rig = filled_on(Fixture::simulated(env, 4 << 20));
        (3..=10).for_each(|index| rig.rows(index, 5));
        rig.flush();
        disk.inject(Fault::on(&crate::run::file::path(1), FaultKind::ReadError, When::Nth(1)));
        rig.runs.compact_to_rest().expect("merges");
        assert_eq!(disk.faults_struck(), 1);
        (3..=10).for_each(|index| assert_eq!(rig.count(index), 10));
        done.send(()).expect("heard");
    })]);
    over.try_recv().expect("the body ran to its end");
}

/// On a full disk runs with some garbage are compacted alone, even without memory for their
/// metadata.
#[test]
fn unopened_runs_are_compacted_on_a_full_disk_without_memory() {
    let rig = Fixture::new(4 << 20);
    (1..=INDEXES).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    let keys =
        |index, op, to: u64| (0..to).for_each(|n| rig.put(index, op, &n.to_be_bytes(), b"p"));
    (1..=INDEXES).for_each(|index| keys(index, INS | FRESH, 20));
    rig.flush();
    let published = rig.commits.inner.lock().published;
    rig.commits.inner.lock().snapshots.push(published);
    (1..=INDEXES).for_each(|index| keys(index, DEL, 5));
    rig.flush();
    rig.runs.compact_to_rest().expect("merges");
    rig.cool_down();
    assert_eq!(rig.cold(), INDEXES);
    rig.commits.inner.lock().snapshots.clear();
    rig.runs.set_resident_bytes(0);
    rig.runs.set_short(true);
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!((rig.count(1), rig.count(INDEXES)), (15, 15));
    rig.runs.set_short(false);
    rig.runs.set_resident_bytes(u64::MAX);
    let entries = |index| rig.runs.stats(IndexId(index)).run_entries;
    assert!((1..=INDEXES).all(|index| entries(index) == 15), "garbage has gone");
}
