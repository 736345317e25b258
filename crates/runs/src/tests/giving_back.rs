//! G1: credit and time reserved for bytes that are not written are returned.

use super::test_support::{Fixture, spec, stamp};
use evenkeel_base::{Beat, IndexId};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_sched::laws::depths::RUNS_TRIGGER;
use evenkeel_sched::laws::ingest::room_bytes;
use std::sync::atomic::Ordering::SeqCst;

const GENERATION: u64 = 4 << 20;

/// A fixture in debt, with this much credit.
pub(super) fn in_debt(credit: u64) -> Fixture {
    let rig = Fixture::new(GENERATION);
    rig.runs.add_index(spec(1, false, false));
    for n in 0..RUNS_TRIGGER as u64 {
        rig.put(1, entry_op::INS, &n.to_be_bytes(), b"p");
        rig.flush();
    }
    assert!(rig.runs.in_debt.load(SeqCst));
    rig.runs.credit.store(credit, SeqCst);
    rig
}

#[test]
fn unused_credit_is_returned() {
    let rig = in_debt(5_000);
    let credit = || rig.runs.credit.load(SeqCst);
    let reserved = rig.runs.reserve(1_000).expect("credit");
    assert_eq!(credit(), 4_000);
    drop(reserved);
    assert_eq!(credit(), 5_000);
    // For a partly written reservation, the rest.
    let mut reserved = rig.runs.reserve(1_000).expect("credit");
    let (pin, lsn) = (rig.runs.pin(), rig.log.next());
    let entry = Entry { index: IndexId(1), op: entry_op::INS, key: b"key", value: &[] };
    rig.runs.insert(&pin, &mut reserved, &entry, b"p", stamp(lsn.0, 1), lsn);
    let left = reserved.bytes();
    assert!((1..1_000).contains(&left));
    drop((pin, reserved));
    assert_eq!(credit(), 4_000 + left);
}

#[test]
fn returned_credit_stays_within_the_room() {
    let rig = in_debt(5_000);
    let room = room_bytes(RUNS_TRIGGER, 0, 0, GENERATION);
    let reserved = rig.runs.reserve(1_000).expect("credit");
    rig.runs.credit.store(room - 10, SeqCst);
    drop(reserved);
    assert_eq!(rig.runs.credit.load(SeqCst), room);
    // A compaction that cannot continue has made the credit unlimited.
    let reserved = rig.runs.reserve(1_000).expect("credit");
    rig.runs.forgive_debt();
    let forgiven = rig.runs.credit.load(SeqCst);
    drop(reserved);
    assert_eq!(rig.runs.credit.load(SeqCst), forgiven);
}

#[test]
fn unused_time_of_the_pace_is_returned() {
    let rig = in_debt(5_000);
    let pace = &rig.runs.pace.line;
    pace.set(1_000);
    let line = || pace.until_ns.load(SeqCst);
    // So far in the future that it is still ahead when the reservation reads the clock.
    let far = rig.runs.now_ns() + 190_000_000;
    pace.until_ns.store(far, SeqCst);
    let reserved = rig.runs.reserve(2_048).expect("credit");
    assert_eq!(line(), far + 2_000);
    drop(reserved);
    assert_eq!(line(), far);
}

/// The queue of flushes too, in which a writer waits when the most generations are sealed.
#[test]
fn unused_time_of_the_flush_pace_is_returned() {
    let rig = Fixture::new(GENERATION);
    let runs = &rig.runs;
    runs.add_index(spec(1, false, false));
    for n in 0..2 {
        rig.put(1, entry_op::INS, &[n], b"p");
        runs.seal_active();
    }
    let line = || runs.flush_line.until_ns.load(SeqCst);
    runs.flush_line.set(1_000);
    let far = runs.now_ns() + 190_000_000;
    runs.flush_line.until_ns.store(far, SeqCst);
    let reserved = runs.reserve(2_048).expect("room");
    assert_eq!(line(), far + 2_000);
    drop(reserved);
    assert_eq!(line(), far);
}

/// B3: an operation that has a generation pinned may still write to it.
#[test]
fn a_generation_is_flushed_only_when_it_is_unpinned() {
    let rig = Fixture::new(GENERATION);
    rig.runs.add_index(spec(1, false, false));
    rig.put(1, entry_op::INS, b"first", b"p");
    let (mut reserved, pin) = (rig.runs.reserve(1_000).expect("credit"), rig.runs.pin());
    rig.runs.seal_active();
    for _ in 0..3 {
        assert_eq!(rig.runs.flush_beat().expect("a beat"), Beat::Idle, "it is pinned");
    }
    let entry = Entry { index: IndexId(1), op: entry_op::INS, key: b"late", value: &[] };
    let lsn = rig.log.next();
    rig.runs.insert(&pin, &mut reserved, &entry, b"p", stamp(lsn.0, 1), lsn);
    drop((pin, reserved));
    while rig.runs.flush_beat().expect("a beat") == Beat::More {}
    assert_eq!(rig.runs.stats(IndexId(1)).run_entries, 2, "the late one too");
}
