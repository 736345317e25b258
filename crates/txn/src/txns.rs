//! `Txns`: the transactions of one database. Begin, snapshot, the first write, undo, commit,
//! prepare, abort. Everything that others read without owning the transaction is in the parts: the
//! commit table, the registry of snapshots, the undo directory, the lock table.
//!
//! Order at the end of a transaction: its log record and state (and `published`) are set in the
//! log's ordered section; then its locks are released and granted to the next requests; then it
//! leaves the active transactions; then the waiters for its end are woken. None of this waits for
//! the log to be durable.

use crate::commit_table::{CommitStates, SEGMENT_IDS};
use crate::deadlock::Deadlocks;
use crate::lock_table::LockTable;
use crate::packed_undo::PackedUndo;
use crate::rollback::RollingBack;
use crate::snapshots::{SnapshotPlace, Snapshots};
use crate::undo::TxnUndo;
use crate::undo_files::UndoFiles;
use crate::versions::SkipPointers;
use crate::waits::WaitWatch;
use crate::{Phase, TxnCore, TxnRef};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{Cause, Code, CommitTable, Error, Lsn, Result, Snapshot, Stamp};
use evenkeel_base::{TreeId, TxnId, TxnState};
use evenkeel_format::limits::{OPERATIONS_MAX, XID_BYTES_MAX};
use evenkeel_format::record::{Before, RecordKind, RowKind, encode_prepare, encode_txn};
use evenkeel_format::undo::UndoRecord;
use evenkeel_io::{Event, Runtime};
use evenkeel_log::{Durability, Log, Reserved, Share};
use evenkeel_sched::{Admission, Tried};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const SHARDS: usize = 64;
/// Upper bound of the body of COMMIT, ABORT and END.
pub(crate) const OUTCOME_BYTES: usize = 16;
/// Ended transactions whose undo waits to be freed before the purge is woken.
const HISTORY_WAKE: usize = 256;

/// Shares and limits.
#[derive(Clone, Copy, Debug)]
pub struct TxnOptions {
    /// Memory for undo; beyond it undo goes to files.
    pub undo_bytes: usize,
    /// Memory for the lock table; beyond it locks are refused.
    pub lock_bytes: usize,
    /// If the rollback of all operations of a transaction would undo more rows than this, the
    /// transaction is aborted, which takes no time, instead of being undone eagerly.
    pub eager_rollback_rows: u32,
    /// Transactions whose states leave memory together; a power of two.
    pub segment_ids: u64,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions {
            undo_bytes: 32 << 20,
            lock_bytes: 32 << 20,
            eager_rollback_rows: 100_000,
            segment_ids: SEGMENT_IDS,
        }
    }
}

type Shards<T> = [T; SHARDS];

/// The transactions of one database.
pub struct Txns {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) eager_rollback_rows: u32,
    undo_bytes_max: AtomicUsize,
    log: OnceLock<Arc<Log>>,
    pub(crate) states: CommitStates,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) deadlocks: Deadlocks,
    /// The number of transactions that wait for others.
    pub(crate) waiting: AtomicUsize,
    pub(crate) watch: OnceLock<Box<dyn WaitWatch>>,
    pub(crate) locks: LockTable<TxnCore>,
    active: Shards<Mutex<FxHashMap<TxnId, TxnRef>>>,
    undos: Shards<RwLock<FxHashMap<TxnId, Arc<TxnUndo>>>>,
    pub(crate) undo_used: AtomicUsize,
    pub(crate) files: UndoFiles,
    /// The queue for undo memory.
    pub(crate) undo_room: Arc<Admission>,
    /// The error of the last spill, and whether it found nothing to spill.
    pub(crate) spill_error: Mutex<Option<Error>>,
    pub(crate) spill_stuck: AtomicBool,
    /// Notified when `spill_beat`, `rollback_beat` or `purge_beat` has work.
    work: Arc<Event>,
    /// Ended transactions, by the LSN of their COMMIT or END, whose undo is not freed yet.
    pub(crate) history: Mutex<VecDeque<(Lsn, TxnId)>>,
    /// Ended transactions that are not packed.
    pub(crate) kept: Mutex<VecDeque<(Lsn, TxnId)>>,
    pub(crate) packs: PackedUndo,
    pub(crate) reverting: Mutex<BTreeMap<TxnId, RollingBack>>,
    /// Operations of aborted transactions, all together.
    pub(crate) aborted_rows: AtomicU64,
    pub(crate) prepared: Mutex<BTreeMap<Vec<u8>, TxnRef>>,
    pub(crate) recovering: Mutex<BTreeMap<TxnId, crate::recovery::Recovering>>,
    pub(crate) committed: Mutex<crate::recovery::CommittedIds>,
    pub(crate) skips: SkipPointers,
}

/// A registered snapshot; dropping it lets the horizon pass.
pub struct SnapshotGuard {
    snapshots: Arc<Snapshots>,
    place: SnapshotPlace,
    at: Lsn,
}

impl SnapshotGuard {
    /// The snapshot's position: it sees transactions with cts at or below this.
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// The view of committed data only.
    pub fn committed(&self) -> Snapshot {
        Snapshot::committed_at(self.at)
    }

    /// The view of a transaction: also its own operations until now (A6).
    pub fn view(&self, own: &TxnCore) -> Snapshot {
        Snapshot { at: self.at, own: own.id(), own_below: own.mark() }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        self.snapshots.release(self.place);
    }
}

/// Ends a transaction that has not ended. A prepared one has no owner: of several threads that come
/// with its id at the same time one decides.
fn decide<R>(t: &TxnCore, end: impl FnOnce() -> Result<R>) -> Result<R> {
    match t.phase() {
        Phase::Open => return end(),
        Phase::Prepared => {}
        Phase::Committed | Phase::Aborted => t.check_open()?,
    }
    if t.decided.swap(true, Ordering::AcqRel) {
        let xid = t.xid.get().map(|xid| xid.escape_ascii().to_string());
        return Err(Error::new(Code::XidUnknown).with("xid", xid.unwrap_or_default()));
    }
    let ended = end();
    if ended.is_err() {
        t.decided.store(false, Ordering::Release);
    }
    ended
}

fn shard<T>(shards: &Shards<T>, id: TxnId) -> &T {
    &shards[id.0 as usize % SHARDS]
}

impl Txns {
    /// An empty table. For an existing database `restore`, `replay_record`, `attach_log` and
    /// `finish_recovery` follow, in this order; for a new one `attach_log`.
    pub fn create(rt: Arc<Runtime>, options: TxnOptions) -> Arc<Txns> {
        let undo_room = Arc::<Admission>::default();
        let waiters = undo_room.clone();
        rt.health.on_failure(move || waiters.wake_first());
        Arc::new(Txns {
            files: UndoFiles::new(rt.clone()),
            rt,
            eager_rollback_rows: options.eager_rollback_rows,
            undo_bytes_max: AtomicUsize::new(options.undo_bytes),
            log: OnceLock::new(),
            states: CommitStates::new(options.segment_ids),
            snapshots: Arc::new(Snapshots::new()),
            deadlocks: Deadlocks::default(),
            waiting: AtomicUsize::new(0),
            watch: OnceLock::new(),
            locks: LockTable::new(options.lock_bytes, SHARDS),
            active: std::array::from_fn(|_| Mutex::default()),
            undos: std::array::from_fn(|_| RwLock::default()),
            undo_used: AtomicUsize::new(0),
            undo_room,
            spill_error: Mutex::default(),
            spill_stuck: AtomicBool::new(false),
            work: Arc::default(),
            history: Mutex::default(),
            kept: Mutex::default(),
            packs: PackedUndo::default(),
            reverting: Mutex::default(),
            aborted_rows: AtomicU64::new(0),
            prepared: Mutex::default(),
            recovering: Mutex::default(),
            committed: Mutex::default(),
            skips: SkipPointers::default(),
        })
    }

    /// The present limit of memory for undo.
    pub(crate) fn undo_bytes_max(&self) -> usize {
        self.undo_bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the shares of memory while open. Undo beyond a smaller share is spilled; held locks
    /// stay.
    pub fn set_memory(&self, undo_bytes: usize, lock_bytes: usize) {
        self.undo_bytes_max.store(undo_bytes, Ordering::Relaxed);
        self.locks.set_bytes_max(lock_bytes);
        self.undo_room.wake_first();
        self.wake_background();
    }

    /// Sets the log to write to. Snapshots from now on see everything committed before.
    pub fn attach_log(&self, log: Arc<Log>) {
        self.snapshots.publish(Lsn(log.end().0.saturating_sub(1)));
        let _ = self.log.set(log);
    }

    pub(crate) fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or_else(|| Error::internal("transactions have no log yet"))
    }

    /// Notified when `spill_beat`, `rollback_beat` or `purge_beat` has work.
    pub fn event(&self) -> Arc<Event> {
        self.work.clone()
    }

    pub(crate) fn wake_background(&self) {
        self.work.notify();
    }

    /// Begins a transaction. It costs nothing until its first write or lock.
    pub fn begin(&self) -> TxnRef {
        Arc::new(TxnCore::default())
    }

    /// Registers a snapshot of the presently committed state (A2).
    pub fn snapshot(&self) -> SnapshotGuard {
        let (place, at) = self.snapshots.register();
        SnapshotGuard { snapshots: self.snapshots.clone(), place, at }
    }

    /// The snapshot of the oldest one that is held, or of the present if none is held: consistent,
    /// but too old. Only for the planted fault `ReadTooOld`, which uses it as the present: nothing
    /// keeps that position between the look and the registration.
    pub fn oldest_snapshot(&self) -> SnapshotGuard {
        let at = self.snapshots.horizon();
        SnapshotGuard {
            snapshots: self.snapshots.clone(),
            place: self.snapshots.register_at(at),
            at,
        }
    }

    /// The largest commit timestamp in effect.
    pub fn published(&self) -> Lsn {
        self.snapshots.published()
    }

    /// The number of registered snapshots.
    pub fn snapshot_count(&self) -> usize {
        self.snapshots.count()
    }

    /// The next id to be assigned.
    pub fn next_id(&self) -> TxnId {
        self.states.next_id()
    }

    /// The undecided transaction with this id.
    pub fn active(&self, id: TxnId) -> Option<TxnRef> {
        shard(&self.active, id).lock().get(&id).cloned()
    }

    /// All undecided transactions that have an id.
    pub fn all_active(&self) -> Vec<TxnRef> {
        self.active.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn add_active(&self, t: &TxnRef) {
        shard(&self.active, t.id()).lock().insert(t.id(), t.clone());
    }

    /// Gives `t` an id if it has none.
    pub(crate) fn ensure_id(&self, t: &TxnRef) {
        if t.id() == TxnId::ZERO {
            t.set_id(self.states.assign());
            self.add_active(t);
        }
    }

    pub(crate) fn undo_of_txn(&self, id: TxnId) -> Option<Arc<TxnUndo>> {
        shard(&self.undos, id).read().get(&id).cloned()
    }

    pub(crate) fn add_undo(&self, id: TxnId) -> Arc<TxnUndo> {
        let undo = Arc::new(TxnUndo::new(id, &self.undo_used));
        shard(&self.undos, id).write().insert(id, undo.clone());
        undo
    }

    pub(crate) fn free_undo(&self, id: TxnId) {
        let removed = shard(&self.undos, id).write().remove(&id);
        if let Some(undo) = removed {
            undo.free(&self.undo_used);
            self.undo_room.wake_first();
        }
    }

    pub(crate) fn all_undos(&self) -> Vec<Arc<TxnUndo>> {
        self.undos.iter().flat_map(|s| s.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Prepares one operation whose undo record takes at most `bytes`
    /// (`UndoRecord::encoded_len_max`). With the first one the transaction gets its id and reserves
    /// the log space of its outcome record. May wait for room: the caller holds no latch (B2).
    ///
    /// # Errors
    /// `TxnEnded`, `TxnTooLong`, `WritesStopped`, `DiskFull`, `StatementCancelled`.
    pub fn reserve_undo(&self, t: &TxnRef, bytes: usize) -> Result<()> {
        self.reserve_undo_rows(t, bytes, 1)
    }

    /// As `reserve_undo`, for several operations of `bytes` together.
    ///
    /// # Errors
    /// As `reserve_undo`.
    pub fn reserve_undo_rows(&self, t: &TxnRef, bytes: usize, rows: usize) -> Result<()> {
        t.check_open()?;
        if t.undo_count().saturating_add(rows as u32) > OPERATIONS_MAX {
            return Err(Error::new(Code::TxnTooLong)
                .with("operations", t.undo_count())
                .with("limit", OPERATIONS_MAX));
        }
        let undo = match t.undo.get() {
            Some(undo) => undo,
            None => self.start_write(t)?,
        };
        let used = self.undo_used.load(Ordering::Relaxed);
        if used + bytes > self.spill_trigger() || !self.undo_room.is_empty() {
            self.wake_background();
            self.wait_for_room(t, bytes)?;
        }
        undo.reserve(bytes, rows, &self.undo_used);
        Ok(())
    }

    fn start_write<'a>(&self, t: &'a TxnRef) -> Result<&'a Arc<TxnUndo>> {
        self.rt.check_write()?;
        let log = self.log()?;
        let space = log.reserve(OUTCOME_BYTES, Share::System)?;
        *t.outcome_space.lock() = Some(space);
        self.ensure_id(t);
        t.set_first_lsn(log.end());
        Ok(t.undo.get_or_init(|| self.add_undo(t.id())))
    }

    /// Waits until the background has made room, first come, first served; or goes on without if
    /// it cannot make any.
    fn wait_for_room(&self, t: &TxnCore, bytes: usize) -> Result<()> {
        let attempt = |is_first: bool| {
            let used = self.undo_used.load(Ordering::SeqCst);
            let stuck = self.spill_stuck.load(Ordering::SeqCst);
            if is_first && (used + bytes <= self.undo_bytes_max() || stuck) {
                return Ok(Tried::Admitted);
            }
            self.rt.check_wait()?;
            if let Some(error) = self.spill_error.lock().clone() {
                return Err(error);
            }
            self.wake_background();
            Ok(Tried::Wait)
        };
        let cancellation = Some(t.cancellation());
        self.undo_room.admit(bytes as u64, attempt, |event, seen| {
            self.rt.wait_cancellable(event, seen, Cause::DeviceSlow, cancellation)
        })
    }

    /// Appends the undo record of an operation and returns its stamp, the one that `next_stamp`
    /// returned. Called under the leaf latch, after `reserve_undo`; never waits, never fails.
    pub fn push_undo(
        &self,
        t: &TxnRef,
        kind: RowKind,
        tree: TreeId,
        key: &[u8],
        before: Option<Before<'_>>,
    ) -> Stamp {
        let stamp = t.next_stamp();
        let record = UndoRecord { undo_no: stamp.undo_no, kind, tree, key, before };
        // Missing only if `reserve_undo` was not called: then nothing was reserved either.
        let undo = t.undo.get_or_init(|| self.add_undo(stamp.txn));
        undo.push(&record, &self.undo_used);
        t.set_undo_count(stamp.undo_no.0);
        stamp
    }

    /// Appends the undo records of inserts at keys without a cell, and returns the stamp of the
    /// first; the others have the following numbers. As `push_undo`.
    pub fn push_undo_inserts(
        &self,
        t: &TxnRef,
        tree: TreeId,
        keys: &mut dyn Iterator<Item = &[u8]>,
    ) -> Stamp {
        let first = t.next_stamp();
        let undo = t.undo.get_or_init(|| self.add_undo(first.txn));
        let last = undo.push_inserts(first.undo_no, tree, keys, &self.undo_used);
        t.set_undo_count(last.0);
        first
    }

    /// Commits. `None`: it changed nothing and wrote no record; otherwise the caller waits with
    /// `Log::wait_commit` for the returned position. Never waits.
    ///
    /// # Errors
    /// `TxnEnded`; without a log `Internal`. For a prepared one `XidUnknown` while another thread
    /// decides it.
    pub fn commit(&self, t: &TxnRef) -> Result<Option<Lsn>> {
        decide(t, || self.commit_now(t))
    }

    fn commit_now(&self, t: &TxnRef) -> Result<Option<Lsn>> {
        let id = t.id();
        if t.undo_count() == 0 {
            self.end_without_changes(t, Phase::Committed);
            return Ok(None);
        }
        let log = self.log()?;
        let mut body = Vec::with_capacity(OUTCOME_BYTES);
        encode_txn(&mut body, id);
        let mut space = self.outcome_space(t, log)?;
        let (lsn, ()) = log.append_with(&mut space, RecordKind::Commit, &[&body], |lsn| {
            self.states.set(id, TxnState::Committed(lsn));
            self.snapshots.publish(lsn);
        });
        self.rt.metrics.add(Metric::Commits, 1);
        self.ended(t, Phase::Committed);
        self.remember(lsn, id);
        Ok(Some(lsn))
    }

    /// Puts an ended transaction where the purge finds it.
    pub(crate) fn remember(&self, lsn: Lsn, id: TxnId) {
        let mut history = self.history.lock();
        history.push_back((lsn, id));
        let len = history.len();
        drop(history);
        if len.is_multiple_of(HISTORY_WAKE) {
            self.wake_background();
        }
    }

    fn outcome_space(&self, t: &TxnCore, log: &Log) -> Result<Reserved> {
        let space = t.outcome_space.lock().take();
        match space {
            Some(space) => Ok(space),
            None => log.reserve(OUTCOME_BYTES, Share::System),
        }
    }

    fn end_without_changes(&self, t: &TxnRef, phase: Phase) {
        let id = t.id();
        if id == TxnId::ZERO {
            t.set_phase(phase);
            return;
        }
        self.states.set(id, TxnState::Committed(Lsn::ZERO));
        t.outcome_space.lock().take();
        self.ended(t, phase);
        self.free_undo(id);
    }

    /// Releases the locks of an ended transaction and wakes its waiters.
    fn ended(&self, t: &TxnRef, phase: Phase) {
        t.set_phase(phase);
        self.locks.release_all(t);
        shard(&self.active, t.id()).lock().remove(&t.id());
        if let Some(xid) = t.xid.get() {
            self.prepared.lock().remove(xid);
        }
        t.wake_waiters();
    }

    /// Aborts: logs ABORT, sets the state, releases locks and waiters. Rows are rolled back by
    /// writers that touch them and by `rollback_beat`. Never waits.
    ///
    /// # Errors
    /// As `commit`.
    pub fn abort(&self, t: &TxnRef) -> Result<()> {
        decide(t, || self.abort_now(t)).map(|_| ())
    }

    /// As `abort`, for a prepared transaction. The caller waits for the returned position (`None`
    /// if nothing was changed): before it is durable, a crash brings the transaction back.
    ///
    /// # Errors
    /// As `commit`.
    pub fn abort_prepared(&self, t: &TxnRef) -> Result<Option<Lsn>> {
        decide(t, || self.abort_now(t))
    }

    fn abort_now(&self, t: &TxnRef) -> Result<Option<Lsn>> {
        if t.undo_count() == 0 {
            self.end_without_changes(t, Phase::Aborted);
            return Ok(None);
        }
        let log = self.log()?;
        let space = self.outcome_space(t, log)?;
        let undo = t.undo.get().cloned();
        let lsn = self.log_abort(t.id(), undo, t.first_lsn().unwrap_or_default(), space)?;
        self.ended(t, Phase::Aborted);
        self.wake_background();
        Ok(Some(lsn))
    }

    /// Logs ABORT and passes the rows to the background; returns the position of the record.
    pub(crate) fn log_abort(
        &self,
        id: TxnId,
        undo: Option<Arc<TxnUndo>>,
        first_lsn: Lsn,
        mut space: Reserved,
    ) -> Result<Lsn> {
        let mut body = Vec::with_capacity(OUTCOME_BYTES);
        encode_txn(&mut body, id);
        let undo = undo.ok_or_else(|| Error::internal("aborted without undo"))?;
        // It is listed as rolling back before it is aborted, so a checkpoint finds it in one of the
        // two lists.
        let (log, rows) = (self.log()?, u64::from(undo.last().0));
        self.reverting.lock().insert(id, RollingBack::new(undo, first_lsn, true));
        let (lsn, ()) = log.append_with(&mut space, RecordKind::Abort, &[&body], |_| {
            self.states.set(id, TxnState::Aborted);
        });
        // After the state, so that a thread that counts rows between the two counts again.
        self.aborted_rows.fetch_add(rows, Ordering::AcqRel);
        if let Some(reverting) = self.reverting.lock().get_mut(&id) {
            reverting.busy = false;
        }
        self.note_rolling_back();
        self.rt.metrics.add(Metric::Rollbacks, 1);
        Ok(lsn)
    }

    /// Prepares under this XID and waits until that is durable. The transaction keeps its locks
    /// until it is decided (RFC 15): its inserts stay invisible until then. Locks are not durable:
    /// a transaction found at recovery holds only the rows and unique keys that it has changed.
    /// `false`: it changed nothing and has ended.
    ///
    /// # Errors
    /// `TxnEnded`, `XidInUse`, `XidTooLong`, `WritesStopped`. After an error it is still open,
    /// unless writes have stopped.
    pub fn prepare(&self, t: &TxnRef, xid: &[u8]) -> Result<bool> {
        self.prepare_with(t, xid, Durability::Sync)
    }

    /// As `prepare`, as durable as `durability` says: for a server whose users want less than B5.
    ///
    /// # Errors
    /// As `prepare`.
    pub fn prepare_with(&self, t: &TxnRef, xid: &[u8], durability: Durability) -> Result<bool> {
        t.check_open()?;
        if xid.len() > XID_BYTES_MAX {
            let error = Error::new(Code::XidTooLong).with("bytes", xid.len());
            return Err(error.with("limit", XID_BYTES_MAX));
        }
        if t.undo_count() == 0 {
            self.end_without_changes(t, Phase::Committed);
            return Ok(false);
        }
        let log = self.log()?;
        let mut body = Vec::new();
        encode_prepare(&mut body, t.id(), xid);
        let mut space = log.reserve(body.len(), Share::System)?;
        {
            let mut prepared = self.prepared.lock();
            if prepared.contains_key(xid) {
                return Err(Error::new(Code::XidInUse).with("xid", xid.escape_ascii()));
            }
            prepared.insert(xid.to_vec(), t.clone());
        }
        let _ = t.xid.set(xid.to_vec());
        let (lsn, ()) = log.append_with(&mut space, RecordKind::Prepare, &[&body], |_| {
            self.states.set(t.id(), TxnState::Prepared);
        });
        t.set_phase(Phase::Prepared);
        log.wait_commit(lsn, durability)?;
        Ok(true)
    }

    /// XIDs of the prepared transactions, also those found at recovery.
    pub fn prepared_xids(&self) -> Vec<Vec<u8>> {
        let prepared = self.prepared.lock();
        prepared.iter().filter(|(_, t)| t.phase() == Phase::Prepared).map(|p| p.0.clone()).collect()
    }

    /// The prepared transaction of an XID; one that is about to be prepared does not count.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn prepared(&self, xid: &[u8]) -> Result<TxnRef> {
        let found = self.prepared.lock().get(xid).cloned();
        let found = found.filter(|t| t.phase() == Phase::Prepared);
        found.ok_or_else(|| Error::new(Code::XidUnknown).with("xid", xid.escape_ascii()))
    }

    /// Commits a prepared transaction. The caller waits for the returned position.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<Option<Lsn>> {
        self.commit(&self.prepared(xid)?)
    }

    /// Rolls a prepared transaction back.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.abort(&self.prepared(xid)?)
    }
}

impl CommitTable for Txns {
    fn state(&self, txn: TxnId) -> TxnState {
        self.states.state(txn)
    }

    fn is_dead(&self, stamp: Stamp) -> bool {
        self.states.is_dead(stamp.txn, stamp.undo_no)
    }

    fn has_dead(&self, txn: TxnId) -> bool {
        self.states.has_dead(txn)
    }

    fn is_reverting(&self) -> bool {
        self.rolling_back_count() > 0
    }

    fn leaves_row(&self, tree: TreeId, key: &[u8], stamp: Stamp) -> Result<bool> {
        self.is_row_before(tree, key, stamp)
    }

    fn horizon(&self) -> Lsn {
        self.snapshots.horizon()
    }

    fn snapshot_between(&self, low: Lsn, high: Lsn) -> bool {
        self.snapshots.any_between(low, high)
    }
}

#[cfg(test)]
#[path = "txns_tests.rs"]
mod txns_tests;
