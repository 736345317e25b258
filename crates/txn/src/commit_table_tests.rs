//! The table against a model, recycling of segments under readers.

use super::*;
use crate::snapshots::Snapshots;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Trims without snapshots: all segments below `gone` may be dropped.
fn trim(table: &CommitStates, gone: Lsn, keep: &dyn Fn(TxnId) -> bool) -> bool {
    let separators = &Separators { published: Lsn::MAX, ..Separators::default() };
    table.trim(&Trim { gone, flushed: gone, separators, keep })
}

/// Trims like the purge while there are snapshots.
fn purge(table: &CommitStates, snapshots: &Snapshots, flushed: Lsn) -> bool {
    let gone = Lsn(snapshots.horizon().0 + 1).min(flushed);
    let separators = &snapshots.separators();
    table.trim(&Trim { gone, flushed, separators, keep: &|_| false })
}

#[test]
fn an_id_goes_through_its_states() {
    let table = CommitStates::new(SEGMENT_IDS);
    let id = table.assign();
    assert_eq!(table.state(id), TxnState::Active);
    table.set(id, TxnState::Prepared);
    assert_eq!(table.state(id), TxnState::Prepared);
    table.set(id, TxnState::Committed(Lsn(77)));
    assert_eq!(table.state(id), TxnState::Committed(Lsn(77)));
    assert_eq!(table.state(TxnId::ZERO), TxnState::Committed(Lsn::ZERO));
}

#[test]
fn trimming_keeps_what_is_still_needed() {
    let table = CommitStates::new(SEGMENT_IDS);
    let ids: Vec<TxnId> = (0..2 * SEGMENT_IDS).map(|_| table.assign()).collect();
    for (i, id) in ids.iter().enumerate() {
        table.set(*id, TxnState::Committed(Lsn(100 + i as u64)));
    }
    let (active, aborted, pinned) = (TxnId(10), TxnId(11), TxnId(12));
    table.set(active, TxnState::Active);
    table.set(aborted, TxnState::Aborted);
    // Runs have pending entries of this transaction.
    let keep = |id| id == pinned;
    table.add_dead(pinned, UndoNo(3), UndoNo(5));
    assert!(trim(&table, Lsn(1 << 40), &keep));
    assert!(table.floor.load(Ordering::Relaxed) >= SEGMENT_IDS);
    assert_eq!(table.state(TxnId(9)), TxnState::Committed(Lsn::ZERO));
    assert_eq!(table.state(active), TxnState::Active);
    assert_eq!(table.state(aborted), TxnState::Aborted);
    assert_eq!(table.state(pinned), TxnState::Committed(Lsn(111)));
    assert!(table.is_dead(pinned, UndoNo(4)) && !table.is_dead(pinned, UndoNo(5)));
    assert!(table.is_dead(aborted, UndoNo(1)) && !table.is_dead(active, UndoNo(1)));

    table.set(active, TxnState::Committed(Lsn(1 << 41)));
    table.set_ended(aborted, Lsn(1 << 41));
    trim(&table, Lsn(1 << 41), &|_| false);
    assert_eq!(table.state(pinned), TxnState::Committed(Lsn::ZERO));
    assert_eq!(table.state(active), TxnState::Committed(Lsn(1 << 41)), "a snapshot may need it");
    assert_eq!(table.state(aborted), TxnState::Aborted);
    trim(&table, Lsn((1 << 41) + 1), &|_| false);
    assert_eq!(table.state(active), TxnState::Committed(Lsn::ZERO));
    assert_eq!(table.state(aborted), TxnState::Committed(Lsn::ZERO));
    assert!(table.facts.read().exceptions.is_empty() && table.dead.read().is_empty());
}

#[test]
fn ids_above_the_log_after_a_restart() {
    let table = CommitStates::new(SEGMENT_IDS);
    table.saw_id(TxnId(70_000));
    table.restore(TxnId(69_000), Exception { state: TxnState::Prepared, ended: None });
    table.finish_ids();
    assert!(table.assign() > TxnId(70_000));
    assert_eq!(table.state(TxnId(69_000)), TxnState::Prepared);
    assert_eq!(table.state(TxnId(70_000)), TxnState::Committed(Lsn::ZERO));
}

#[test]
fn readers_never_see_a_recycled_slot() {
    // The state of id n is Committed(n + 1) or absent, never that of another id; while its segment
    // retires it may be the segment's lowest timestamp.
    let table = Arc::new(CommitStates::new(SEGMENT_IDS));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|r| {
            let (table, stop) = (table.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut random = crate::testing::Random(r);
                let mut absent = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let next = table.next_id().0;
                    let back = random.below(3 * SEGMENT_IDS);
                    let id = TxnId(next.saturating_sub(back).max(1));
                    match table.state(id) {
                        TxnState::Active => {}
                        TxnState::Committed(Lsn::ZERO) => absent += 1,
                        state => {
                            let least = (id.0 - id.0 % SEGMENT_IDS).max(1) + 1;
                            let may = [least, id.0 + 1].map(|cts| TxnState::Committed(Lsn(cts)));
                            assert!(may.contains(&state), "{id:?}: {state:?}");
                        }
                    }
                }
                absent
            })
        })
        .collect();
    for _ in 0..60 * SEGMENT_IDS {
        let id = table.assign();
        table.set(id, TxnState::Committed(Lsn(id.0 + 1)));
        if id.0.is_multiple_of(1000) {
            trim(&table, Lsn(id.0), &|_| false);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let absent: u64 = readers.into_iter().map(|r| r.join().expect("reader")).sum();
    assert!(absent > 0);
    assert!(table.free.lock().used <= 4, "segments are recycled");
}

/// Commits a new transaction; its timestamp is ten times its id.
fn commit(table: &CommitStates, snapshots: &Snapshots) -> TxnId {
    let id = table.assign();
    table.set(id, TxnState::Committed(Lsn(10 * id.0)));
    snapshots.publish(Lsn(10 * id.0));
    id
}

fn sees(table: &CommitStates, at: Lsn, id: TxnId) -> bool {
    matches!(table.state(id), TxnState::Committed(cts) if cts <= at)
}

#[test]
fn a_long_snapshot_keeps_few_slots() {
    let (table, snapshots) = (CommitStates::new(64), Snapshots::new());
    let mut held = Vec::new();
    for n in 1..=64_000u64 {
        let id = commit(&table, &snapshots);
        if n.is_multiple_of(32_000) || n == 100 {
            held.push((snapshots.register().0, id));
        }
        if n.is_multiple_of(256) {
            purge(&table, &snapshots, Lsn(10 * n - 500));
        }
    }
    // A segment for each snapshot that lies within its commits, and the newest one.
    assert!(table.free.lock().used <= 3 + 256 / 64 + 2, "{}", table.free.lock().used);
    let facts = table.facts.read();
    assert!(facts.spans.len() <= 4 && facts.exceptions.is_empty(), "{:?}", facts.spans);
    drop(facts);
    for (_, newest) in &held {
        for id in (1..=64_000).map(TxnId) {
            assert_eq!(sees(&table, Lsn(10 * newest.0), id), id <= *newest, "{id} at {newest}");
        }
    }
    // Snapshots are released from the middle outwards: segments that no snapshot separates are
    // joined.
    snapshots.release(held[1].0);
    while purge(&table, &snapshots, Lsn::MAX) {}
    assert!(table.facts.read().spans.len() <= 2);
    snapshots.release(held[0].0);
    snapshots.release(held[2].0);
    while purge(&table, &snapshots, Lsn::MAX) {}
    let facts = table.facts.read();
    assert!(facts.spans.len() == 0 && facts.exceptions.is_empty(), "{:?}", facts.spans);
    assert_eq!(table.floor.load(Ordering::Relaxed), 64_000, "all that are assigned in full");
}

/// A transaction that was undecided while its segment retired, also one that commits during that.
#[test]
fn a_transaction_that_outlives_its_segment_keeps_its_own_timestamp() {
    let (table, snapshots) = (CommitStates::new(8), Snapshots::new());
    let ids: Vec<TxnId> = (0..40).map(|_| table.assign()).collect();
    let (early, late) = (ids[9], ids[10]);
    for id in ids.iter().filter(|id| **id != early && **id != late) {
        table.set(*id, TxnState::Committed(Lsn(10 * id.0)));
    }
    snapshots.publish(Lsn(500));
    let old = snapshots.register().1;
    let may_leave = |_, _, _| false;
    let mut free = table.free.lock();
    let number = early.0 >> 3;
    let seen = table.commits_of(&mut free, number, Lsn::MAX).expect("all are flushed");
    table.set(early, TxnState::Committed(Lsn(600)));
    table.retire(&mut free, number, Some(seen), &may_leave);
    drop(free);
    table.set(late, TxnState::Committed(Lsn(700)));
    for (id, cts) in [(early, 600), (late, 700)] {
        assert_eq!(table.state(id), TxnState::Committed(Lsn(cts)));
        assert!(!sees(&table, old, id));
    }
    assert!(sees(&table, old, ids[8]) && table.assign().0 == 41);
}

#[test]
fn a_late_commit_joins_its_retired_segment() {
    let (table, snapshots) = (CommitStates::new(8), Snapshots::new());
    snapshots.publish(Lsn(5));
    let (_, old) = snapshots.register();
    let ids: Vec<TxnId> = (0..16).map(|_| table.assign()).collect();
    let long = ids[8];
    for id in ids.iter().filter(|id| **id != long) {
        table.set(*id, TxnState::Committed(Lsn(10 * id.0)));
    }
    snapshots.publish(Lsn(200));
    purge(&table, &snapshots, Lsn(1000));
    assert!(table.facts.read().spans.of(long.0 >> 3).is_some());
    let is_alone = || table.facts.read().exceptions.contains_key(&long);
    assert!(is_alone() && table.state(long) == TxnState::Active);

    let (between, _) = snapshots.register();
    table.set(long, TxnState::Committed(Lsn(300)));
    snapshots.publish(Lsn(300));
    purge(&table, &snapshots, Lsn(1000));
    assert!(is_alone() && table.state(long) == TxnState::Committed(Lsn(300)), "told apart");
    snapshots.release(between);
    purge(&table, &snapshots, Lsn(300));
    assert!(is_alone(), "a memtable has it");
    purge(&table, &snapshots, Lsn(301));
    assert!(!is_alone());
    assert!(!sees(&table, old, long) && sees(&table, Lsn(300), long));
    // The others remain distinct from everything older than them.
    assert!(ids.iter().all(|id| !sees(&table, old, *id)));
}

/// The directory is full of segments that snapshots separate.
#[test]
fn a_full_directory_drops_its_oldest_segment() {
    let (table, snapshots) = (CommitStates::with_segments(8, 16), Snapshots::new());
    let mut held = Vec::new();
    for n in 1..=2_000u64 {
        let id = commit(&table, &snapshots);
        if n % 8 == 4 {
            held.push(snapshots.register());
            purge(&table, &snapshots, Lsn(10 * n));
        }
        // All snapshots are newer than the ids before the first.
        let oldest = TxnId(id.0.saturating_sub(300).max(5));
        assert!(n < 5 || table.state(oldest) == TxnState::Committed(Lsn(10 * oldest.0)));
    }
    for (_, at) in &held {
        for id in (1..=2_000).map(TxnId) {
            assert_eq!(sees(&table, *at, id), 10 * id.0 <= at.0);
        }
    }
}

#[test]
fn snapshots_see_the_same_commits_while_spans_form() {
    let table = Arc::new(CommitStates::new(16));
    let snapshots = Arc::new(Snapshots::new());
    let stop = Arc::new(AtomicBool::new(false));
    // With this snapshot all later commits are needed.
    let (_, first) = snapshots.register();
    let spanned = Arc::new(AtomicU64::new(0));
    let purger = {
        let (table, snapshots, stop) = (table.clone(), snapshots.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                purge(&table, &snapshots, Lsn::MAX);
            }
        })
    };
    let readers: Vec<_> = (0..2)
        .map(|r| {
            let (table, snapshots, stop) = (table.clone(), snapshots.clone(), stop.clone());
            let spanned = spanned.clone();
            std::thread::spawn(move || {
                let mut random = crate::testing::Random(r);
                while !stop.load(Ordering::Relaxed) {
                    let (place, at) = snapshots.register();
                    for _ in 0..50 {
                        let next = table.next_id().0;
                        let id = TxnId(next.saturating_sub(random.below(400)).max(1));
                        assert_eq!(sees(&table, at, id), 10 * id.0 <= at.0, "{id} at {at}");
                        if table.facts.read().spans.of(id.0 >> 4).is_some() {
                            spanned.fetch_add(1, Ordering::Relaxed);
                        }
                        std::thread::yield_now();
                    }
                    snapshots.release(place);
                }
            })
        })
        .collect();
    let mut committed = 0;
    while committed < 40_000 || spanned.load(Ordering::Relaxed) == 0 {
        commit(&table, &snapshots);
        committed += 1;
        if committed % 16 == 0 {
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|r| r.join().expect("reader"));
    purger.join().expect("purger");
    assert!((1..=committed).all(|id| !sees(&table, first, TxnId(id))));
}

#[derive(Clone, Debug)]
enum Step {
    Assign,
    Set(usize, u8),
    Dead(usize, u32, u32),
    Pin(usize),
    Unpin(usize),
    Trim(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Assign),
        (any::<usize>(), 0u8..4).prop_map(|(i, s)| Step::Set(i, s)),
        (any::<usize>(), 1u32..20, 1u32..20).prop_map(|(i, a, b)| Step::Dead(i, a, b)),
        any::<usize>().prop_map(Step::Pin),
        any::<usize>().prop_map(Step::Unpin),
        (0u64..200).prop_map(Step::Trim),
    ]
}

proptest! {
    /// After any steps an id reads as it was set, unless trimming was allowed to drop it.
    #[test]
    fn a_state_reads_as_it_was_set_unless_trimmed(script in prop::collection::vec(step(), 1..80)) {
        let table = CommitStates::new(8);
        let mut model: Vec<(TxnId, TxnState, Vec<u32>, u32)> = Vec::new();
        let mut gone = 0;
        for (now, step) in script.into_iter().enumerate() {
            let n = model.len().max(1);
            match step {
                Step::Assign => model.push((table.assign(), TxnState::Active, Vec::new(), 0)),
                Step::Set(i, s) if !model.is_empty() => {
                    let (id, state, ..) = &mut model[i % n];
                    if state.is_undecided() {
                        *state = match s {
                            0 => TxnState::Active,
                            1 => TxnState::Prepared,
                            2 => TxnState::Committed(Lsn(now as u64 + 1)),
                            _ => TxnState::Aborted,
                        };
                        table.set(*id, *state);
                    }
                }
                Step::Dead(i, a, b) if !model.is_empty() => {
                    let (id, state, dead, _) = &mut model[i % n];
                    if state.is_undecided() {
                        dead.extend(a..b);
                        table.add_dead(*id, UndoNo(a), UndoNo(b));
                    }
                }
                Step::Pin(i) if !model.is_empty() => {
                    let (_, state, _, pins) = &mut model[i % n];
                    if state.is_undecided() {
                        *pins += 1;
                    }
                }
                Step::Unpin(i) if !model.is_empty() => {
                    let (.., pins) = &mut model[i % n];
                    *pins = pins.saturating_sub(1);
                }
                Step::Trim(below) => {
                    gone = gone.max(below.min(now as u64));
                    let kept = |id| model.iter().any(|m| m.0 == id && m.3 > 0);
                    trim(&table, Lsn(gone), &kept);
                }
                _ => {}
            }
            for (id, state, dead, pins) in &model {
                let read = table.state(*id);
                let may_be_gone = (*pins == 0 || dead.is_empty())
                    && matches!(state, TxnState::Committed(cts) if cts.0 < gone);
                if read != *state {
                    prop_assert!(may_be_gone, "{id} reads {read:?}, was {state:?}");
                    // A segment behind a kept one is known as a whole.
                    let older = matches!((read, *state),
                        (TxnState::Committed(a), TxnState::Committed(b)) if a < b);
                    prop_assert!(older, "{id} reads {read:?}, was {state:?}");
                    continue;
                }
                for no in 1..20 {
                    let expected = *state == TxnState::Aborted || dead.contains(&no);
                    prop_assert!(table.is_dead(*id, UndoNo(no)) == expected || may_be_gone);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Use {
    Assign,
    Decide(usize, bool),
    Snapshot,
    Release(usize),
    Flush,
    Purge,
}

fn usage() -> impl Strategy<Value = Use> {
    prop_oneof![
        4 => Just(Use::Assign),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(i, abort)| Use::Decide(i, abort)),
        1 => Just(Use::Snapshot),
        1 => any::<usize>().prop_map(Use::Release),
        1 => Just(Use::Flush),
        2 => Just(Use::Purge),
    ]
}

proptest! {
    /// The table answers like the timestamp of a commit would: for each existing snapshot, for the
    /// horizon, and on whether a snapshot lies between two commits.
    #[test]
    fn spans_answer_like_timestamps(script in prop::collection::vec(usage(), 1..250)) {
        let (table, snapshots) = (CommitStates::new(4), Snapshots::new());
        let mut open: Vec<TxnId> = Vec::new();
        let mut decided: Vec<(TxnId, TxnState)> = Vec::new();
        let (mut held, mut now, mut flushed) = (Vec::new(), 1, Lsn::ZERO);
        for step in script {
            match step {
                Use::Assign => open.push(table.assign()),
                Use::Decide(i, abort) if !open.is_empty() => {
                    let id = open.swap_remove(i % open.len());
                    now += 1;
                    let state = match abort && i % 4 == 0 {
                        true => TxnState::Aborted,
                        false => TxnState::Committed(Lsn(now)),
                    };
                    table.set(id, state);
                    snapshots.publish(Lsn(now));
                    decided.push((id, state));
                }
                Use::Snapshot => held.push(snapshots.register()),
                Use::Release(i) if !held.is_empty() => {
                    snapshots.release(held.swap_remove(i % held.len()).0);
                }
                Use::Flush => flushed = Lsn(now + 1),
                Use::Purge => {
                    purge(&table, &snapshots, flushed);
                }
                _ => {}
            }
            for id in &open {
                prop_assert_eq!(table.state(*id), TxnState::Active);
            }
            let mut commits: Vec<(Lsn, Lsn)> = Vec::new();
            for (id, state) in &decided {
                match (table.state(*id), *state) {
                    (TxnState::Committed(said), TxnState::Committed(cts)) => {
                        let exact = said == cts;
                        prop_assert!(exact || said < cts && cts < flushed, "{id}: {said} of {cts}");
                        commits.push((said, cts));
                    }
                    (said, state) => prop_assert_eq!(said, state),
                }
            }
            let horizon = snapshots.horizon();
            for (said, cts) in &commits {
                prop_assert_eq!(*said <= horizon, *cts <= horizon);
                for (_, at) in &held {
                    prop_assert_eq!(said <= at, cts <= at);
                }
            }
            let between = |low: Lsn, high: Lsn| low < high && snapshots.any_between(low, high);
            for (a, b) in commits.iter().zip(commits.iter().skip(1)) {
                prop_assert_eq!(between(a.0, b.0), between(a.1, b.1), "{:?} {:?}", a, b);
                prop_assert_eq!(between(b.0, a.0), between(b.1, a.1), "{:?} {:?}", b, a);
            }
        }
    }
}
