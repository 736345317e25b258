//! The table against a model, recycling of segments under readers.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[test]
fn an_id_goes_through_its_states() {
    let table = CommitStates::new();
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
    let table = CommitStates::new();
    let ids: Vec<TxnId> = (0..2 * SEGMENT_IDS).map(|_| table.assign()).collect();
    for (i, id) in ids.iter().enumerate() {
        table.set(*id, TxnState::Committed(Lsn(100 + i as u64)));
    }
    let (active, aborted, pinned) = (TxnId(10), TxnId(11), TxnId(12));
    table.set(active, TxnState::Active);
    table.set(aborted, TxnState::Aborted);
    // Runs have pending entries of it.
    let keep = |id| id == pinned;
    table.add_dead(pinned, UndoNo(3), UndoNo(5));
    assert!(table.trim_but(Lsn(1 << 40), &keep));
    assert!(table.floor.load(Ordering::Relaxed) >= SEGMENT_IDS);
    assert_eq!(table.state(TxnId(9)), TxnState::Committed(Lsn::ZERO));
    assert_eq!(table.state(active), TxnState::Active);
    assert_eq!(table.state(aborted), TxnState::Aborted);
    assert_eq!(table.state(pinned), TxnState::Committed(Lsn(111)));
    assert!(table.is_dead(pinned, UndoNo(4)) && !table.is_dead(pinned, UndoNo(5)));
    assert!(table.is_dead(aborted, UndoNo(1)) && !table.is_dead(active, UndoNo(1)));

    table.set(active, TxnState::Committed(Lsn(1 << 41)));
    table.set_ended(aborted, Lsn(1 << 41));
    table.trim(Lsn(1 << 41));
    assert_eq!(table.state(pinned), TxnState::Committed(Lsn::ZERO));
    assert_eq!(table.state(active), TxnState::Committed(Lsn(1 << 41)), "a snapshot may need it");
    assert_eq!(table.state(aborted), TxnState::Aborted);
    table.trim(Lsn((1 << 41) + 1));
    assert_eq!(table.state(active), TxnState::Committed(Lsn::ZERO));
    assert_eq!(table.state(aborted), TxnState::Committed(Lsn::ZERO));
    assert!(table.facts.read().exceptions.is_empty() && table.dead.read().is_empty());
}

#[test]
fn ids_above_the_log_after_a_restart() {
    let table = CommitStates::new();
    table.saw_id(TxnId(70_000));
    table.restore(TxnId(69_000), Exception { state: TxnState::Prepared, ended: None });
    table.finish_ids();
    assert!(table.assign() > TxnId(70_000));
    assert_eq!(table.state(TxnId(69_000)), TxnState::Prepared);
    assert_eq!(table.state(TxnId(70_000)), TxnState::Committed(Lsn::ZERO));
}

#[test]
fn readers_never_see_a_recycled_slot() {
    // The state of id n is Committed(n + 1) or absent, never another's.
    let table = Arc::new(CommitStates::new());
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
                        state => assert_eq!(state, TxnState::Committed(Lsn(id.0 + 1))),
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
            table.trim(Lsn(id.0));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let absent: u64 = readers.into_iter().map(|r| r.join().expect("reader")).sum();
    assert!(absent > 0);
    assert!(table.free.lock().used <= 4, "segments are recycled");
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
    /// Whatever was done, an id reads as it was set, unless trimming was allowed to drop it.
    #[test]
    fn like_a_map(script in prop::collection::vec(step(), 1..80)) {
        let table = CommitStates::new();
        // Near the end of a segment, so that segments retire.
        for _ in 1..SEGMENT_IDS - 8 {
            let id = table.assign();
            table.set(id, TxnState::Committed(Lsn::ZERO));
        }
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
                    table.trim_but(Lsn(gone), &kept);
                }
                _ => {}
            }
            for (id, state, dead, pins) in &model {
                let read = table.state(*id);
                let may_be_gone = (*pins == 0 || dead.is_empty())
                    && matches!(state, TxnState::Committed(cts) if cts.0 < gone);
                if read != *state {
                    prop_assert!(may_be_gone, "{id} reads {read:?}, was {state:?}");
                    prop_assert_eq!(read, TxnState::Committed(Lsn::ZERO));
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
