//! Crashes of a random history over the simulated disk: redo recovers the rows, then losers are
//! rolled back with undo from segments (C2) and from the log. The model is the list of commits.

use super::*;
use crate::TxnRef;
use crate::testing::*;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, UndoNo};
use evenkeel_format::record::cell_flags;
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, catch_crash, is_crash};
use evenkeel_log::{Log, LogEnd, Replay, replay};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

type Key = Vec<u8>;
type WriteSet = BTreeMap<Key, Option<Vec<u8>>>;

/// The content of the superblock and the pages of the last checkpoint.
#[derive(Clone, Default)]
struct Checkpoint {
    lsn: Lsn,
    blob: Vec<u8>,
    cells: BTreeMap<Key, Cell>,
}

/// The client's knowledge: it survives the crash.
#[derive(Default)]
struct Model {
    checkpoint: Mutex<Checkpoint>,
    commits: Mutex<Vec<(Lsn, WriteSet)>>,
    /// Acknowledged up to this LSN.
    durable: Mutex<Lsn>,
    prepared: Mutex<BTreeMap<Vec<u8>, WriteSet>>,
    met: Met,
}

/// Counts of the cases under test.
#[derive(Default)]
struct Met {
    commits: AtomicU64,
    losers: AtomicU64,
    prepared: AtomicU64,
    from_segments: AtomicU64,
}

struct Running {
    t: TxnRef,
    writes: Vec<(UndoNo, Key, Option<Vec<u8>>)>,
}

impl Running {
    fn write_set(&self) -> WriteSet {
        self.writes.iter().map(|(_, k, v)| (k.clone(), v.clone())).collect()
    }
}

fn play(w: &World, rows: &Rows, model: &Model, random: &mut Random, steps: u64) -> Result<()> {
    let mut running: Vec<Running> = Vec::new();
    let mut next_xid = model.prepared.lock().len() as u64 + random.below(1 << 40) * 100;
    let mut pending: Option<Checkpoint> = None;
    for _ in 0..steps {
        if running.len() < 3 {
            running.push(Running { t: w.txns.begin(), writes: Vec::new() });
        }
        let i = random.below(running.len() as u64) as usize;
        match random.below(20) {
            0..10 => write_one(rows, &mut running[i], random)?,
            10 => {
                let upper = u64::from(running[i].t.mark().0);
                let mark = UndoNo(1 + random.below(upper) as u32);
                w.txns.rollback_to(&running[i].t, mark, rows)?;
                running[i].writes.retain(|(no, ..)| *no < mark);
            }
            11..14 => {
                let r = running.swap_remove(i);
                // Recorded before it happens: after a crash the log decides whether it did.
                let at = w.log.end();
                model.commits.lock().push((at, r.write_set()));
                let lsn = w.txns.commit(&r.t)?;
                model.commits.lock().last_mut().expect("just pushed").0 = lsn.unwrap_or(at);
                if let Some(lsn) = lsn.filter(|_| random.below(2) == 0) {
                    w.log.wait_durable(lsn)?;
                    *model.durable.lock() = lsn;
                }
            }
            14 => w.txns.abort(&running.swap_remove(i).t)?,
            15 => {
                let r = running.swap_remove(i);
                next_xid += 1;
                let xid = next_xid.to_be_bytes().to_vec();
                if w.txns.prepare(&r.t, &xid)? {
                    model.prepared.lock().insert(xid, r.write_set());
                }
            }
            16 => drop(w.txns.rollback_beat(rows)?),
            17 => drop(w.txns.purge_beat(None)?),
            18 if pending.is_none() => {
                let cells = rows.cells.lock().clone();
                pending = Some(Checkpoint { lsn: w.log.end(), blob: Vec::new(), cells });
            }
            _ => {
                let Some(mut checkpoint) = pending.take() else { continue };
                w.txns.checkpoint_undo(checkpoint.lsn)?;
                checkpoint.blob = w.txns.checkpoint_blob();
                let end = Lsn(w.log.end().0 - 1);
                w.log.wait_durable(end)?;
                *model.checkpoint.lock() = checkpoint;
            }
        }
    }
    Ok(())
}

fn write_one(rows: &Rows, r: &mut Running, random: &mut Random) -> Result<()> {
    let key = vec![b'k', random.below(12) as u8];
    let value = (random.below(4) > 0).then(|| random.next().to_be_bytes().repeat(3));
    if let Ok(stamp) = rows.try_write(&r.t, &key, value.as_deref())? {
        r.writes.push((stamp.undo_no, key, value));
    }
    Ok(())
}

/// Redo of the rows, and the transaction manager's part of replay.
struct Redo<'a> {
    txns: &'a Txns,
    cells: BTreeMap<Key, Cell>,
}

impl Replay for Redo<'_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        if matches!(kind, RecordKind::Row | RecordKind::Revert) {
            let c = LeafChange::decode(body)?;
            let (flags, stamp, row) = (c.flags, c.stamp, c.row.to_vec());
            match flags & cell_flags::REMOVE {
                0 => self.cells.insert(c.key.to_vec(), Cell { flags, stamp, row }),
                _ => self.cells.remove(c.key),
            };
        }
        self.txns.replay_record(lsn, kind, body)
    }
}

/// A first pass.
#[derive(Default)]
struct Commits(CommittedIds);

impl Replay for Commits {
    fn record(&mut self, _: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.0.scan(kind, body)
    }
}

/// Every second time the commits are known before the replay, as in a real open.
fn recover(rt: Arc<evenkeel_io::Runtime>, from: &Checkpoint, epoch: u32) -> (World, Rows, LogEnd) {
    let txns = Txns::create(rt.clone(), small());
    txns.restore(&from.blob).expect("restores");
    if epoch.is_multiple_of(2) {
        let mut commits = Commits::default();
        replay(&rt, from.lsn, None, &mut commits).expect("scans");
        txns.expect_committed(commits.0);
    }
    let mut redo = Redo { txns: &txns, cells: from.cells.clone() };
    let end = replay(&rt, from.lsn, None, &mut redo).expect("replays");
    let cells = redo.cells;
    let log = Log::create(rt.clone(), log_options(epoch), end.end).expect("a log");
    txns.attach_log(log.clone());
    txns.finish_recovery().expect("finishes");
    let rows = Rows::over(txns.clone(), log.clone(), cells);
    (World::of(rt, log, txns), rows, end)
}

fn state_of(w: &World, rows: &Rows) -> BTreeMap<Key, Vec<u8>> {
    let snapshot = w.txns.snapshot().committed();
    let keys: Vec<Key> = rows.cells.lock().keys().cloned().collect();
    keys.into_iter().filter_map(|k| Some((k.clone(), rows.read(&k, &snapshot)?))).collect()
}

/// Checks the recovered state; changes that the crash cut off leave the model.
fn check(w: &World, rows: &Rows, end: LogEnd, model: &Model, seed: u64) {
    let count = |met: &AtomicU64, n: usize| met.fetch_add(n as u64, Ordering::Relaxed);
    count(&model.met.losers, w.txns.rolling_back_count());
    count(&model.met.prepared, w.txns.prepared_xids().len());
    let from_segments = w.txns.all_undos().iter().filter(|u| !u.synced().is_empty()).count();
    count(&model.met.from_segments, from_segments);
    count(&model.met.commits, model.commits.lock().len());
    let durable = *model.durable.lock();
    assert!(end.end > durable, "seed {seed}: an acknowledged commit is lost");
    model.commits.lock().retain(|(lsn, _)| *lsn < end.end);
    let mut expected: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for (key, value) in model.commits.lock().iter().flat_map(|(_, writes)| writes) {
        match value {
            Some(value) => expected.insert(key.clone(), value.clone()),
            None => expected.remove(key),
        };
    }
    assert_eq!(state_of(w, rows), expected, "seed {seed}: while losers are reverted");
    rows.roll_back_all();
    assert_eq!(state_of(w, rows), expected, "seed {seed}: after the losers are gone");
    for xid in model.prepared.lock().keys() {
        assert!(w.txns.prepared(xid).is_ok(), "seed {seed}: a prepared transaction is lost");
    }
    for cell in rows.cells.lock().values() {
        assert_ne!(w.txns.state(cell.stamp.txn), TxnState::Aborted, "seed {seed}");
    }
    assert!(w.txns.all_active().iter().all(|t| t.phase() == Phase::Prepared));
}

/// Decides the prepared transactions after the crash.
fn decide(w: &World, rows: &Rows, model: &Model, random: &mut Random) {
    let known = std::mem::take(&mut *model.prepared.lock());
    for xid in w.txns.prepared_xids() {
        match known.get(&xid).filter(|_| random.below(2) == 0) {
            Some(writes) => {
                let lsn = w.txns.commit_prepared(&xid).expect("commits").expect("changed");
                model.commits.lock().push((lsn, writes.clone()));
            }
            None => w.txns.rollback_prepared(&xid).expect("rolls back"),
        }
    }
    rows.roll_back_all();
    w.log.wait_durable(Lsn(w.log.end().0 - 1)).expect("durable");
}

/// Runs until the crash, which is an error or an unwind.
fn live(seed: u64, f: impl FnOnce() -> Result<()>) {
    if let Some(Err(error)) = catch_crash(f) {
        let by_crash = is_crash(&error) || error.code() == Code::WritesStopped;
        assert!(by_crash, "seed {seed}: {error}");
    }
}

fn crash_and_recover(seed: u64, model: &Model) {
    let mut random = Random(seed);

    let policies = CrashPolicy::ALL;
    let mut sim = SimEnv::on(SimDisk::new(seed), quiet(seed));
    for life in 1..=4 {
        let rt = sim.runtime();
        if life == 1 {
            // The first life starts with a complete log: tests of the log cover its creation.
            let w = world_on(rt, small());
            let rows = Rows::new(&w);
            model.checkpoint.lock().lsn = w.log.end();
            sim.disk().crash_at_change(sim.disk().changes() + 1 + random.below(60));
            live(seed, || play(&w, &rows, model, &mut random, 150));
        } else {
            let from = model.checkpoint.lock().clone();
            let (w, rows, end) = recover(rt, &from, life);
            check(&w, &rows, end, model, seed);
            decide(&w, &rows, model, &mut random);
            sim.disk().crash_at_change(sim.disk().changes() + 1 + random.below(60));
            live(seed, || play(&w, &rows, model, &mut random, 150));
        }
        let policy = policies[random.below(policies.len() as u64) as usize];
        let after = sim.crash(policy, random.next());
        sim = SimEnv::on(after.disk().clone(), quiet(seed + u64::from(life)));
    }
}

#[test]
fn committed_rows_and_nothing_else_after_each_crash() {
    let mut met = [0; 4];
    for seed in 0..1000 {
        let model = Model::default();
        crash_and_recover(seed, &model);
        let m = &model.met;
        for (sum, one) in met.iter_mut().zip([&m.commits, &m.losers, &m.prepared, &m.from_segments])
        {
            *sum += one.load(Ordering::Relaxed);
        }
    }
    assert!(met.iter().all(|n| *n > 100), "{met:?}");
}

/// A transaction that is far older than the checkpoint is rolled back with undo from segments
/// alone.
#[test]
fn a_loser_older_than_the_checkpoint_rolls_back_from_segments() {
    let sim = SimEnv::on(SimDisk::new(1), quiet(1));
    let w = world_on(sim.runtime(), small());
    let rows = Rows::new(&w);
    let setup = w.txns.begin();
    for n in 0..5000u32 {
        rows.write(&setup, &n.to_be_bytes(), b"old");
    }
    w.txns.commit(&setup).expect("commits");
    let t = w.txns.begin();
    for n in 0..5000u32 {
        rows.write(&t, &n.to_be_bytes(), b"new, and a bit longer than before");
    }
    let lsn = w.log.end();
    let cells = rows.cells.lock().clone();
    w.txns.checkpoint_undo(lsn).expect("saves");
    let spilled = |w: &World| w.rt.metrics.get(evenkeel_base::metrics::Metric::UndoSpilledBytes);
    let written = spilled(&w);
    w.txns.checkpoint_undo(w.log.end()).expect("nothing new");
    assert_eq!(spilled(&w), written, "each record is saved once");
    rows.write(&t, b"more", b"young");
    let blob = w.txns.checkpoint_blob();
    w.log.wait_durable(Lsn(w.log.end().0 - 1)).expect("durable");
    assert!(blob.len() < 2000, "O(transactions): {} bytes", blob.len());

    let after = sim.crash(CrashPolicy::LoseAll, 1);
    let sim = SimEnv::on(after.disk().clone(), quiet(2));
    let from = Checkpoint { lsn, blob, cells };
    let (w, rows, _) = recover(sim.runtime(), &from, 2);
    assert_eq!(w.txns.rolling_back_count(), 1);
    let some = state_of(&w, &rows);
    assert!(some.len() == 5000 && some.values().all(|v| v == b"old"));
    rows.roll_back_all();
    assert!(rows.cells.lock().values().all(|c| c.row == b"old"));
    assert_eq!(rows.cells.lock().len(), 5000);
    let lsn = Lsn(w.log.end().0 - 1);
    w.log.wait_durable(lsn).expect("durable");
    let next = w.txns.begin();
    rows.write(&next, b"x", b"y");
    let lsn = w.txns.commit(&next).expect("commits").expect("changed");
    w.log.wait_durable(lsn).expect("durable");
    while w.txns.purge_beat(None).expect("purges") == Beat::More {}
    let undo = sim.disk().paths().into_iter().filter(|p| p.starts_with("undo/")).count();
    assert_eq!(undo, 0, "segments are removed");
}

#[test]
fn a_full_disk_does_not_stop_writes() {
    use evenkeel_io::sim::{Fault, FaultKind, When};
    let sim = SimEnv::on(SimDisk::new(1), quiet(1));
    let w = world_on(sim.runtime(), small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"k", b"v");
    sim.disk().inject(Fault::on("undo/", FaultKind::NoSpace, When::From(1)));
    let error = w.txns.checkpoint_undo(w.log.end()).expect_err("full");
    assert_eq!(error.code(), Code::DiskFull);
    assert!(!w.rt.health.is_failed());
    sim.disk().clear_faults();
    w.txns.checkpoint_undo(w.log.end()).expect("room again");
    sim.disk().inject(Fault::on("undo/", FaultKind::SyncError, When::From(1)));
    rows.write(&t, b"k", b"w");
    assert!(w.txns.checkpoint_undo(w.log.end()).is_err());
    assert!(w.rt.health.is_failed());
}

#[test]
fn dead_ranges_survive_a_crash() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"a", b"1");
    let mark = t.mark();
    rows.write(&t, b"b", b"1");
    w.txns.rollback_to(&t, mark, &rows).expect("reverts");
    let blob = w.txns.checkpoint_blob();
    let other = Txns::create(w.rt.clone(), small());
    other.restore(&blob).expect("restores");
    assert!(other.is_dead(Stamp { txn: t.id(), undo_no: UndoNo(2) }));
    assert!(!other.is_dead(Stamp { txn: t.id(), undo_no: UndoNo(1) }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2 / 5))]
    #[test]
    fn a_mutated_blob_never_panics(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let sim = SimEnv::on(SimDisk::new(1), quiet(1));
        let w = world_on(sim.runtime(), small());
        let rows = Rows::new(&w);
        let t = w.txns.begin();
        rows.write(&t, b"a", b"1");
        w.txns.checkpoint_undo(w.log.end()).expect("saves");
        let u = w.txns.begin();
        rows.write(&u, b"b", b"1");
        w.txns.prepare(&u, b"xid").expect("prepares");
        let mut blob = w.txns.checkpoint_blob();
        let at = at.index(blob.len());
        blob[at] = byte;
        let _ = Txns::create(w.rt.clone(), small()).restore(&blob);
        let whole = w.txns.checkpoint_blob();
        let cut = cut.index(whole.len() - 1) + 1;
        prop_assert!(Txns::create(w.rt.clone(), small()).restore(&whole[..cut]).is_err()
            || cut == whole.len());
    }
}

#[test]
fn an_undo_extent_at_an_impossible_place_is_refused() {
    let decoded = |offset: u64, len: u32| {
        let listed = Listed {
            id: TxnId(7),
            state: TxnState::Active,
            ended: None,
            first_lsn: Lsn(1),
            roll_back_below: UndoNo::ZERO,
            operations: 1,
            xid: Vec::new(),
            dead: Vec::new(),
            trees: vec![TreeId(3)],
            extents: vec![(UndoNo(1), UndoNo(1), 1, offset, len)],
        };
        let mut bytes = Vec::new();
        encode_listed(&mut bytes, &listed);
        decode_listed(&mut Reader::new(&bytes, "transaction")).map(|t| t.extents.len())
    };
    assert_eq!(decoded(32, 24).expect("a header at least"), 1);
    let refused = |offset, len| decoded(offset, len).expect_err("refused").code();
    // The place is too small for a frame, or its end is beyond the largest file.
    assert_eq!(refused(32, 0), Code::BadEncoding);
    assert_eq!(refused(32, 23), Code::BadEncoding);
    assert_eq!(refused(u64::MAX - 10, 24), Code::BadEncoding);
}
