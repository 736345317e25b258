//! Parts: builds, duplicates, unique slots, garbage, damage, a full disk.

use super::test_support::{Commits, Fixture, Random, spec, stamp};
use crate::{BuiltPart, Direction, IndexCursor, KeyRange, Runs, Sorted, Unsorted, entry_bytes};
use evenkeel_base::{
    Beat, Cause, Code, CommitTable, Error, Generation, IndexId, Kind, Lsn, Snapshot, Stamp,
};
use evenkeel_base::{TxnId, TxnState, metrics::Metric};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::Event;
use evenkeel_sched::Scheduler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

#[test]
fn fresh_rows_and_their_deletes_leave_nothing() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    for n in 0..2000u32 {
        rig.put(1, entry_op::INS | entry_op::FRESH, &n.to_be_bytes(), b"p");
    }
    rig.flush();
    for n in 0..2000u32 {
        rig.put(1, entry_op::DEL, &n.to_be_bytes(), b"p");
    }
    rig.flush();
    assert_eq!((rig.count(1), rig.runs.stats(IndexId(1)).run_entries), (0, 4000));
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(rig.runs.stats(IndexId(1)).run_entries, 0);
    assert_eq!(rig.runs.state.read().files.len(), 0);
}

/// Protocol A3: an INS without a timestamp (its transaction has left the commit table) is younger
/// than the DEL before it that still has one.
#[test]
fn the_age_of_entries_decides_before_their_timestamps() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    rig.put(1, entry_op::INS, b"k1", b"p");
    rig.flush();
    rig.put(1, entry_op::DEL, b"k1", b"p");
    rig.flush();
    rig.put(1, entry_op::INS, b"k1", b"p");
    let youngest = rig.commits.inner.lock().states.keys().copied().max().expect("a transaction");
    rig.commits.inner.lock().states.remove(&youngest);
    assert_eq!(rig.count(1), 1, "in the memtable");
    rig.flush();
    assert_eq!((rig.count(1), rig.runs.stats(IndexId(1)).runs), (1, 3), "in a run of its own");
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!((rig.count(1), rig.runs.stats(IndexId(1)).runs), (1, 1), "merged with the DEL");
    // And inside one generation.
    rig.put(1, entry_op::DEL, b"k2", b"p");
    rig.put(1, entry_op::INS, b"k2", b"p");
    let youngest = rig.commits.inner.lock().states.keys().copied().max().expect("a transaction");
    rig.commits.inner.lock().states.remove(&youngest);
    assert_eq!(rig.count(1), 2);
    rig.flush();
    assert_eq!(rig.count(1), 2);
}

#[test]
fn a_build_is_the_oldest_and_keeps_deletes_until_valid() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, true));
    // A row that the scan has seen is inserted and deleted while the index is being built.
    rig.put(1, entry_op::INS | entry_op::FRESH, b"k5", b"p");
    rig.put(1, entry_op::DEL, b"k5", b"p");
    rig.flush();
    rig.put(1, entry_op::INS | entry_op::FRESH, b"k9", b"p");
    rig.flush();
    rig.runs.compact_to_rest().expect("merges");
    let mut pieces = Vec::new();
    let mut piece = Unsorted::new(IndexId(1));
    for n in 0..20_000u32 {
        let key = [b"m", &n.wrapping_mul(2654435761).to_be_bytes()[..]].concat();
        piece.push(&key, &n.to_be_bytes(), b"v").expect("short");
        if n == 7 {
            piece.push(b"k5", b"p", b"").expect("short");
        }
        if piece.bytes() > 1 << 14 {
            pieces.push(piece.sort().expect("sorts"));
        }
    }
    pieces.push(piece.sort().expect("sorts"));
    let mut runs = Vec::new();
    // Eleven runs, in one to three parts: more than a build leaves.
    while !pieces.is_empty() {
        let rest = pieces.split_off(pieces.len().min(4));
        runs.push(built(&rig, std::mem::replace(&mut pieces, rest), 1 + runs.len() % 3));
    }
    assert!(runs.len() > 8, "{} runs", runs.len());
    rig.runs.install(IndexId(1), runs, &|_| Ok(())).expect("installs");
    assert_eq!(rig.count(1), 20_001);
    rig.runs.set_valid(IndexId(1), rig.log.next());
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(rig.count(1), 20_001);
    assert!(rig.runs.stats(IndexId(1)).runs <= 3);
    rig.runs.check(IndexId(1)).expect("sound");
}

/// D3, G1: a build does not put all ingest into debt when its runs join runs that were flushed
/// meanwhile.
#[test]
fn an_installed_build_leaves_ingest_its_room() {
    // Flushed runs, sealed generations, runs of the build; runs after it.
    for (flushed, sealed, built_runs, runs) in [(4, 0, 8, 5), (1, 0, 8, 9), (1, 2, 7, 2)] {
        let rig = Fixture::new(1 << 20);
        rig.runs.add_index(spec(1, false, true));
        let mut n = 0u32;
        let mut put = |count: u32| {
            for _ in 0..count {
                n += 1;
                rig.put(1, entry_op::INS | entry_op::FRESH, &n.to_be_bytes(), b"p");
            }
        };
        // Their sizes differ: they stay apart.
        for i in (0..flushed).rev() {
            put(200 * 4u32.pow(i));
            rig.flush();
        }
        while rig.runs.compaction_beat().expect("merges") == Beat::More {}
        assert_eq!(rig.runs.stats(IndexId(1)).runs, u64::from(flushed));
        for _ in 0..sealed {
            put(1);
            rig.runs.seal_active();
        }
        let parts = (0..built_runs).map(|i: u32| {
            let mut piece = Unsorted::new(IndexId(1));
            for key in 0..2000u32 {
                piece.push(&(key << 8 | i).to_be_bytes(), b"built", b"").expect("short");
            }
            built(&rig, vec![piece.sort().expect("sorts")], 1)
        });
        let parts = parts.collect();
        rig.runs.install(IndexId(1), parts, &|_| Ok(())).expect("installs");
        assert!(!rig.runs.in_debt.load(Ordering::SeqCst), "{flushed} runs and {built_runs}");
        assert_eq!(rig.runs.runs_max(), runs);
        rig.runs.set_valid(IndexId(1), rig.log.next());
        put(10);
        rig.flush();
        assert!(!rig.runs.in_debt.load(Ordering::SeqCst) || runs == 9);
        assert_eq!(rig.rt.stalls.get(Cause::CompactionDebt).count, 0);
        assert_eq!(rig.count(1), (n + built_runs * 2000) as usize);
        rig.runs.compact_to_rest().expect("merges");
        assert_eq!(rig.count(1), (n + built_runs * 2000) as usize);
        rig.runs.check(IndexId(1)).expect("sound");
        let files = rig.rt.env.list("runs").expect("lists");
        let live = rig.runs.state.read().files.len();
        assert_eq!(files.iter().filter(|name| name.ends_with(".run")).count(), live);
    }
}

/// Protocol D4: the scan of a build takes everything committed up to VALID, with VALID's own
/// timestamp. A FRESH INS of just that timestamp is in the build's run, so its DEL must stay.
#[test]
fn an_insert_with_the_timestamp_of_valid_is_not_fresh() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, true));
    rig.put(1, entry_op::INS | entry_op::FRESH, b"k5", b"p");
    let valid = rig.commits.inner.lock().published;
    let mut piece = Unsorted::new(IndexId(1));
    piece.push(b"k5", b"p", b"").expect("short");
    let run = built(&rig, vec![piece.sort().expect("sorts")], 1);
    rig.runs.install(IndexId(1), vec![run], &|_| Ok(())).expect("installs");
    rig.runs.set_valid(IndexId(1), valid);
    rig.put(1, entry_op::DEL, b"k5", b"p");
    rig.put(1, entry_op::INS | entry_op::FRESH, b"k6", b"p");
    rig.put(1, entry_op::DEL, b"k6", b"p");
    assert_eq!(rig.count(1), 0);
    rig.flush();
    assert_eq!(rig.count(1), 0, "the entry of the build came alive");
    let entries = rig.runs.stats(IndexId(1)).run_entries;
    assert_eq!(entries, 2, "the younger pair has left nothing");
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!((rig.count(1), rig.runs.stats(IndexId(1)).run_entries), (0, 0));
}

/// A commit table whose first lookup is the moment when a flush drops the entries of an aborted
/// transaction, and its id leaves (A5).
struct Leaving {
    commits: Arc<Commits>,
    aborted: TxnId,
    runs: OnceLock<Weak<Runs>>,
    armed: AtomicBool,
}

impl CommitTable for Leaving {
    fn state(&self, txn: TxnId) -> TxnState {
        if self.armed.swap(false, Ordering::SeqCst) {
            let runs = self.runs.get().and_then(Weak::upgrade).expect("open");
            runs.seal_active();
            while runs.flush_beat().expect("flushes") == Beat::More {}
            self.commits.inner.lock().states.remove(&self.aborted);
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

/// Protocol A5, D5: while a unique key is looked up, a flush drops the DEL of an aborted
/// transaction and its id leaves the commit table. The live row is found nevertheless.
#[test]
fn a_unique_check_survives_a_flush_during_its_lookup() {
    let mut rig = Fixture::new(1 << 20);
    let aborted = TxnId(7);
    let (runs, armed) = (OnceLock::new(), AtomicBool::new(false));
    let commits = Arc::new(Leaving { commits: rig.commits.clone(), aborted, runs, armed });
    rig.runs = Runs::create(Scheduler::new(rig.rt.clone()), rig.options, commits.clone())
        .expect("creates");
    rig.runs.attach_log(rig.log.clone());
    rig.runs.finish_restore().expect("starts");
    let _ = commits.runs.set(Arc::downgrade(&rig.runs));
    rig.runs.add_index(spec(1, true, false));
    rig.put(1, entry_op::INS, b"k", b"p");
    let mut reserved = rig.runs.reserve(entry_bytes(1, 1, 0)).expect("space");
    let pin = rig.runs.pin();
    let entry = Entry { index: IndexId(1), op: entry_op::DEL, key: b"k", value: b"" };
    rig.runs.insert(&pin, &mut reserved, &entry, b"p", stamp(aborted.0, 1), rig.log.next());
    drop((pin, reserved));
    rig.commits.set(aborted, TxnState::Aborted);
    commits.armed.store(true, Ordering::SeqCst);
    let mut found = Vec::new();
    let mut note = |pk: &[u8], op: u8, _: Stamp, _: TxnState| {
        found.push((pk.to_vec(), op));
        true
    };
    rig.runs.current(IndexId(1), b"k", &mut note).expect("reads");
    assert_eq!(found, [(b"p".to_vec(), entry_op::INS)]);
}

/// A run of index 1.
fn built(rig: &Fixture, pieces: Vec<Sorted>, parts: usize) -> BuiltPart {
    let plan = rig.runs.plan_run(IndexId(1), pieces, parts).expect("plans");
    (0..plan.parts()).for_each(|part| plan.write(part, &|| Ok(())).expect("writes"));
    plan.finish()
}

#[test]
fn a_build_not_installed_leaves_no_file() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, true));
    let mut piece = Unsorted::new(IndexId(1));
    for n in 0..20_000u32 {
        piece.push(&n.to_be_bytes(), b"p", b"").expect("short");
    }
    let plan = rig.runs.plan_run(IndexId(1), vec![piece.sort().expect("sorts")], 3);
    let plan = plan.expect("plans");
    assert_eq!(plan.parts(), 3);
    plan.write(0, &|| Ok(())).expect("writes");
    let stopped = plan.write(1, &|| Err(Error::new(Code::BuildCancelled))).unwrap_err();
    assert_eq!(stopped.code(), Code::BuildCancelled);
    assert_eq!(rig.rt.env.list("runs").expect("lists").len(), 1);
    drop(plan);
    assert!(rig.rt.env.list("runs").expect("lists").is_empty());
}

/// The record that installs a build may be durable although its sync failed: the files it names
/// must still be there at the next open.
#[test]
fn a_build_whose_record_may_be_durable_keeps_its_files() {
    let mut rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, true));
    let mut piece = Unsorted::new(IndexId(1));
    (0..1000u32).for_each(|n| piece.push(&n.to_be_bytes(), b"p", b"").expect("short"));
    let part = built(&rig, vec![piece.sort().expect("sorts")], 1);
    rig.log.sync_fails.store(true, Ordering::SeqCst);
    let _ = rig.rt.health.fail(Error::new(Code::WriteFailed));
    rig.runs.install(IndexId(1), vec![part], &|_| Ok(())).expect_err("the sync failed");
    rig.reopen();
    let records = rig.log.records.lock().clone();
    records.iter().for_each(|(_, body)| rig.runs.apply_manifest(body).expect("applies"));
    rig.runs.add_index(spec(1, false, false));
    rig.runs.finish_restore().expect("its files are there");
    assert_eq!(rig.count(1), 1000);
}

#[test]
fn duplicates_are_found_across_runs() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, true, false));
    for n in 0..500u32 {
        rig.put(1, entry_op::INS | entry_op::FRESH, &n.to_be_bytes(), b"p");
    }
    rig.flush();
    let find = || {
        let all = Snapshot::committed_at(Lsn::MAX);
        rig.runs.find_duplicate(IndexId(1), all, &|_| false, &|_| Ok(())).expect("reads")
    };
    assert_eq!(find(), None);
    rig.put(1, entry_op::INS | entry_op::FRESH, &77u32.to_be_bytes(), b"q");
    let found = find().expect("a duplicate");
    assert_eq!((&found.key[..], &found.first_pk[..]), (&77u32.to_be_bytes()[..], &b"p"[..]));
}

#[test]
fn filters_spare_reads_of_absent_keys() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, true, false));
    for n in 0..3000u32 {
        rig.put(1, entry_op::INS | entry_op::FRESH, &(2 * n).to_be_bytes(), b"p");
    }
    rig.flush();
    rig.runs.drop_cache();
    let reads = || rig.rt.metrics.get(evenkeel_base::metrics::Metric::RunBlockReads);
    let before = reads();
    for n in 0..1000u32 {
        let key = (2 * n + 1).to_be_bytes();
        rig.runs.current(IndexId(1), &key, &mut |_, _, _, _| panic!("absent")).expect("reads");
    }
    assert!(reads() - before <= 5, "{} blocks read", reads() - before);
}

#[test]
fn an_index_that_was_dropped_is_gone_also_under_a_cursor() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    for n in 0..2000u32 {
        rig.put(1, entry_op::INS | entry_op::FRESH, &n.to_be_bytes(), b"p");
    }
    rig.flush();
    let (range, all) = (KeyRange::all(), Snapshot::committed_at(Lsn::MAX));
    let mut cursor = rig.runs.cursor(IndexId(1), range, Direction::Forward, all).expect("opens");
    assert!(cursor.next().expect("reads").is_some());
    rig.runs.drop_index(IndexId(1)).expect("drops");
    assert_eq!(cursor.next().err().map(|e| e.kind()), Some(Kind::NotFound));
    drop(cursor);
    assert_eq!(rig.runs.compaction_beat().expect("idle"), Beat::Idle);
    assert!(rig.rt.env.list("runs").expect("lists").is_empty());
}

#[test]
fn damage_is_an_error_and_stops_only_its_index() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    rig.runs.add_index(spec(2, false, false));
    for round in 0..2 {
        for n in 0..3000u32 {
            rig.put(1 + round, entry_op::INS | entry_op::FRESH, &n.to_be_bytes(), b"p");
        }
        rig.flush();
    }
    let name = rig.rt.env.list("runs").expect("lists")[0].clone();
    let path = rig.dir.path().join("runs").join(name);
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes[200] ^= 1;
    std::fs::write(&path, bytes).expect("writes");
    let error = rig.runs.check(IndexId(1)).expect_err("damaged");
    assert_eq!(error.code(), Code::RunDamaged);
    rig.runs.check(IndexId(2)).expect("sound");
    assert_eq!(rig.count(2), 3000);
}

/// A failed cursor keeps its position: once the file can be read again it continues.
#[test]
fn a_cursor_goes_on_after_a_failed_read() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    for round in 0..2u8 {
        for n in 0..20_000u32 {
            let op = if round == 0 { entry_op::INS | entry_op::FRESH } else { entry_op::INS };
            rig.put(1, op, &(n * 7).to_be_bytes(), &[b'p', n as u8 % 3]);
        }
        rig.flush();
    }
    let paths: Vec<_> = {
        let names = rig.rt.env.list("runs").expect("lists");
        names.iter().map(|name| rig.dir.path().join("runs").join(name)).collect()
    };
    let sound: Vec<_> = paths.iter().map(|path| std::fs::read(path).expect("reads")).collect();
    let write = |damage: u8| {
        rig.runs.drop_cache();
        for (path, bytes) in paths.iter().zip(&sound) {
            let blocks = bytes.len() - 4096;
            let mut bytes = bytes.clone();
            bytes[..blocks].iter_mut().for_each(|b| *b ^= damage);
            std::fs::write(path, bytes).expect("writes");
        }
    };
    for direction in [Direction::Forward, Direction::Reverse] {
        let all = Snapshot::committed_at(Lsn::MAX);
        let mut cursor =
            rig.runs.cursor(IndexId(1), KeyRange::all(), direction, all).expect("opens");
        let (mut found, mut errors, mut damage_at) = (Vec::new(), 0, 0);
        loop {
            if found.len() == damage_at {
                write(0x55);
            }
            match cursor.next() {
                Ok(None) => break,
                Ok(Some(entry)) => found.push(entry.key_and_pk.to_vec()),
                Err(_) => {
                    write(0);
                    errors += 1;
                    damage_at = found.len() + 100;
                }
            }
        }
        write(0);
        assert!(errors > 5, "{errors} errors, {direction:?}");
        assert_eq!(found.len(), 20_000, "{direction:?}");
        assert!(found.is_sorted_by(|a, b| match direction {
            Direction::Forward => a < b,
            Direction::Reverse => a > b,
        }));
    }
}

/// G2: a compaction that no thread waits for waits for a seat; a required one continues.
#[test]
fn optional_compactions_need_a_seat_and_required_ones_do_not() {
    let rig = Fixture::new(1 << 20);
    let fill = |index: u32, runs: u32| {
        rig.runs.add_index(spec(index, false, false));
        for run in 0..runs {
            for n in 0..100u32 {
                rig.put(index, entry_op::INS, &(n * runs + run).to_be_bytes(), b"p");
            }
            rig.flush();
        }
    };
    fill(1, 2);
    let (rt, over) = (rig.rt.clone(), Arc::new(Event::new()));
    let sched = rig.runs.sched.clone();
    let (taken, end) = (Arc::new(Event::new()), over.clone());
    let told = taken.clone();
    let other = rig.rt.spawn("other", move || {
        let _seat = sched.try_seat().expect("free");
        told.notify();
        while end.now() == 0 {
            rt.wait(&end, 0, None, Cause::Idle);
        }
    });
    while taken.now() == 0 {
        rig.rt.wait(&taken, 0, None, Cause::Idle);
    }
    let runs = rig.runs.clone();
    let merging = rig.rt.spawn("merge", move || runs.compact_to_rest().expect("merges"));
    let until = |what: &str, done: &dyn Fn() -> bool| {
        for _ in 0..10_000 {
            if done() {
                return;
            }
            rig.rt.delay(Duration::from_millis(1), Cause::Idle);
        }
        panic!("never: {what}");
    };
    let metric = |metric| rig.rt.metrics.get(metric);
    until("it waits", &|| metric(Metric::CpuSeatWaits) > 3);
    fill(2, 4);
    until("what ingest needs", &|| rig.runs.stats(IndexId(2)).runs == 1);
    assert_eq!((rig.runs.stats(IndexId(1)).runs, metric(Metric::CompactionsFinished)), (2, 1));
    over.notify();
    merging.expect("spawn").join().expect("join");
    other.expect("spawn").join().expect("join");
    assert_eq!((rig.runs.stats(IndexId(1)).runs, metric(Metric::CompactionsFinished)), (1, 2));
}

/// B6: replayed entries take less memory than the original generation, read the same, and are
/// flushed if they exceed its size.
#[test]
fn recovery_packs_what_it_replays() {
    for (generation_bytes, flushed) in [(8 << 20, false), (64 << 10, true)] {
        let mut rig = Fixture::new(8 << 20);
        rig.options.generation_bytes = generation_bytes;
        (1..=2).for_each(|index| rig.runs.add_index(spec(index, false, false)));
        let mut random = Random(7);
        let mut records = Vec::new();
        for _ in 0..20_000u32 {
            let (index, key) = (1 + random.below(2) as u32, random.next().to_be_bytes());
            rig.put(index, entry_op::INS, &key, b"p");
            records.push((Lsn(rig.log.end.load(Ordering::SeqCst) - 20), index, key));
        }
        let (before, counts) = (rig.runs.memory().0, [1, 2].map(|index| rig.count(index)));
        rig.reopen();
        for (lsn, index, key) in records {
            let entry = Entry { index: IndexId(index), op: entry_op::INS, key: &key, value: b"" };
            let stamp = stamp(lsn.0, 1);
            rig.runs.replay_row(lsn, Generation(1), stamp, b"p", &[entry]).expect("replays");
        }
        rig.runs.finish_restore().expect("starts");
        (1..=2).for_each(|index| rig.runs.add_index(spec(index, false, false)));
        assert_eq!([1, 2].map(|index| rig.count(index)), counts);
        let after = rig.runs.memory().0;
        // 20 bytes of a slot in leaves that are 70 % full, or in full leaves.
        assert!(after + 20_000 * 5 < before, "{after} of {before}");
        while rig.runs.flush_beat().expect("flushes") == Beat::More {}
        let runs = [1, 2].map(|index| rig.runs.stats(IndexId(index)).runs);
        assert_eq!((runs, [1, 2].map(|index| rig.count(index))), ([u64::from(flushed); 2], counts));
    }
}

/// D6: memory for a cursor whose client is idle is freed once anything changes, and for one in use
/// at its next call.
#[test]
fn a_cursor_pins_nothing_while_its_client_is_idle() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    let fill = |from: u32| {
        (from..from + 500).for_each(|n| rig.put(1, entry_op::INS, &n.to_be_bytes(), b"p"));
    };
    let files = || rig.rt.env.list("runs").expect("lists").len();
    let all = Snapshot::committed_at(Lsn::MAX);
    for (direction, parks) in [
        (Direction::Forward, true),
        (Direction::Reverse, true),
        (Direction::Forward, false),
        (Direction::Reverse, false),
    ] {
        let before = rig.count(1);
        fill(before as u32);
        rig.flush();
        fill(before as u32 + 500);
        let entries = rig.count(1);
        assert_eq!(entries, before + 1000);
        let generation = Arc::downgrade(&rig.runs.state.read().memtables[0]);
        let range = KeyRange::all();
        let mut cursor = rig.runs.cursor(IndexId(1), range, direction, all).expect("opens");
        (0..10).for_each(|_| assert!(cursor.next().expect("reads").is_some()));
        if parks {
            cursor.park();
        }
        let taken = rig.rt.metrics.get(Metric::IdleCursorViewsTaken);
        rig.flush();
        let taken = rig.rt.metrics.get(Metric::IdleCursorViewsTaken) - taken;
        assert_eq!(taken, u64::from(parks));
        rig.runs.compact_to_rest().expect("merges");
        assert_eq!(rig.runs.stats(IndexId(1)).runs, 1);
        assert_eq!((files() == 1, generation.upgrade().is_none()), (parks, parks));
        let mut rest = usize::from(cursor.next().expect("reads").is_some());
        rig.runs.compact_to_rest().expect("removes files");
        assert_eq!((files(), generation.upgrade().is_none()), (1, true));
        while cursor.next().expect("reads").is_some() {
            rest += 1;
        }
        assert_eq!(rest, entries - 10);
    }
}

/// If nothing changed, a cursor continues with its view from any position; a cursor that was
/// dropped, or whose slot others needed, leaves no view there.
#[test]
fn an_idle_cursor_continues_with_its_view() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    for n in 0..300u32 {
        rig.put(1, entry_op::INS, &n.to_be_bytes(), b"p");
        if n == 150 {
            rig.flush();
        }
    }
    let all = Snapshot::committed_at(Lsn::MAX);
    let open =
        |direction| rig.runs.cursor(IndexId(1), KeyRange::all(), direction, all).expect("opens");
    let run = rig.runs.state.read().indexes[&IndexId(1)].runs[0].clone();
    let views = || Arc::strong_count(&run) - 2;
    let key = |cursor: &mut IndexCursor| {
        cursor.next().expect("reads").map(|e| u32::from_be_bytes(e.key.try_into().expect("4")))
    };
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = open(direction);
        for n in 0..300 {
            let expected = if direction == Direction::Forward { n } else { 299 - n };
            assert_eq!(key(&mut cursor), Some(expected));
            assert_eq!(views(), 1, "one view, taken once");
            cursor.park();
            cursor.park();
            assert_eq!(views(), 1, "it stays while nothing changes");
        }
        assert_eq!((key(&mut cursor), views()), (None, 0));
        let mut left = open(direction);
        assert!(key(&mut left).is_some());
        left.park();
        drop(left);
        assert_eq!(views(), 0, "a cursor that is dropped leaves nothing");
    }
    let mut cursors: Vec<IndexCursor> = (0..200).map(|_| open(Direction::Forward)).collect();
    for (n, cursor) in cursors.iter_mut().enumerate() {
        assert_eq!(key(cursor), Some(0));
        cursor.park();
        assert_eq!(views(), (n + 1).min(128), "no more than there are slots");
    }
    for n in 1..300 {
        for cursor in &mut cursors {
            assert_eq!(key(cursor), Some(n));
            cursor.park();
        }
    }
    assert_eq!(rig.rt.metrics.get(Metric::IdleCursorViewsTaken), 0, "nothing changed");
    drop(cursors);
    assert_eq!(views(), 0);
}
