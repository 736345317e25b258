//! The component: indexes, generations, views. Locking: `state` guards short memory work only;
//! nothing waits, reads or writes under it.

use crate::memtable::{GenPin, MemIter, Memtable};
use crate::skiplist::{NewEntry, node_bytes_max};
use crate::source::{Direction, Merger, Source};
use crate::unique::{UniqueGuard, UniqueSlots};
use crate::{BuiltPart, CheckReport, DuplicateKey, RunBuilder};
use crate::{IndexCursor, IndexSpec, IndexStats, KeyRange, ManifestLog, RunsOptions};
use evenkeel_base::sync::RwLock;
use evenkeel_base::{
    Beat, CommitTable, Generation, IndexId, Lsn, Result, Snapshot, Stamp, TxnId, TxnState,
    metrics::{Metric, Metrics},
};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::{Event, Runtime};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Memtable bytes an entry needs at most: what to [`Runs::reserve`] for it.
pub const fn entry_bytes(key: usize, pk: usize, value: usize) -> usize {
    node_bytes_max(key, pk, value)
}

/// Reserved memtable bytes; what is left returns when dropped.
pub struct MemReserved {
    pub(crate) runs: Arc<Runs>,
    pub(crate) bytes: u64,
}

impl MemReserved {
    /// Bytes still reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemReserved {
    fn drop(&mut self) {
        self.runs.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

pub(crate) struct Index {
    pub unique_key: bool,
    pub building: bool,
    pub valid_from: Lsn,
}

pub(crate) struct State {
    /// Newest first; [0] is active.
    pub memtables: Arc<Vec<Arc<Memtable>>>,
    pub indexes: HashMap<IndexId, Index>,
}

/// What a reader of one index reads.
pub(crate) struct View {
    pub memtables: Arc<Vec<Arc<Memtable>>>,
    pub version: u64,
}

/// All secondary indexes of one database.
pub struct Runs {
    rt: Arc<Runtime>,
    options: RunsOptions,
    commits: Arc<dyn CommitTable>,
    log: OnceLock<Arc<dyn ManifestLog>>,
    pub(crate) state: RwLock<State>,
    version: AtomicU64,
    pub(crate) reserved: AtomicU64,
    flush_event: Arc<Event>,
    merge_event: Arc<Event>,
    unique: Arc<UniqueSlots>,
}

impl Runs {
    /// A component without indexes or runs; `attach_log`, then `restore`.
    ///
    /// # Errors
    /// Of making the directory.
    pub fn create(
        rt: Arc<Runtime>,
        options: RunsOptions,
        commits: Arc<dyn CommitTable>,
    ) -> Result<Arc<Runs>> {
        rt.env.create_dir("runs")?;
        let flush_event = Arc::new(Event::new());
        let active = Arc::new(Memtable::new(Generation(1), flush_event.clone()));
        let state = State { memtables: Arc::new(vec![active]), indexes: HashMap::new() };
        Ok(Arc::new(Runs {
            rt,
            options,
            commits,
            log: OnceLock::new(),
            state: RwLock::new(state),
            version: AtomicU64::new(1),
            reserved: AtomicU64::new(0),
            flush_event,
            merge_event: Arc::new(Event::new()),
            unique: UniqueSlots::new(),
        }))
    }

    /// Gives it the log, once: manifest records go there.
    pub fn attach_log(&self, log: Arc<dyn ManifestLog>) {
        let _ = self.log.set(log);
    }

    /// Makes an index known (at open and at CREATE INDEX).
    pub fn add_index(&self, spec: IndexSpec) {
        let index = Index {
            unique_key: spec.unique_key,
            building: spec.building,
            valid_from: spec.valid_from,
        };
        self.state.write().indexes.insert(spec.id, index);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Forgets an index and its runs: O(files).
    ///
    /// # Errors
    /// Of writing the manifest record.
    pub fn drop_index(&self, index: IndexId) -> Result<()> {
        self.state.write().indexes.remove(&index);
        self.version.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Reserves memtable bytes (sum of [`entry_bytes`]); may delay or wait (G1), so hold no latch.
    ///
    /// # Errors
    /// `ReadOnly` after a failed write.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<MemReserved> {
        self.rt.health.check_writable()?;
        self.reserved.fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(MemReserved { runs: self.clone(), bytes: bytes as u64 })
    }

    /// Pins the active generation: in an operation's last step, before it reserves its LSN (B3).
    pub fn pin(&self) -> GenPin {
        let end = self.log.get().map_or(Lsn::ZERO, |log| log.end());
        self.state.read().memtables[0].pin(end)
    }

    /// Inserts an entry of a row operation. Never waits, never fails.
    pub fn insert(
        &self,
        pin: &GenPin,
        reserved: &mut MemReserved,
        entry: &Entry<'_>,
        pk: &[u8],
        stamp: Stamp,
        lsn: Lsn,
    ) {
        let entry = NewEntry {
            index: entry.index,
            op: entry.op,
            stamp,
            lsn,
            key: entry.key,
            pk,
            value: entry.value,
        };
        let bytes = pin.memtable().insert(&entry) as u64;
        let paid = bytes.min(reserved.bytes);
        reserved.bytes -= paid;
        self.reserved.fetch_sub(paid, Ordering::SeqCst);
        self.rt.metrics.add(Metric::MemtableEntries, 1);
    }

    /// A cursor over a range of an index.
    ///
    /// # Errors
    /// `NotFound` if there is no such index.
    pub fn cursor(
        self: &Arc<Self>,
        index: IndexId,
        range: &KeyRange,
        direction: Direction,
        snapshot: Snapshot,
    ) -> Result<IndexCursor> {
        Ok(IndexCursor::new(self.clone(), index, range, direction, snapshot))
    }

    /// A current read of a unique key (D5): for every pk under the column bytes `key`, the newest
    /// entry that is not reverted, as (pk, op, stamp, state). `f` returns false to stop.
    ///
    /// # Errors
    /// Of reading and decoding storage.
    pub fn current(
        &self,
        index: IndexId,
        key: &[u8],
        f: &mut dyn FnMut(&[u8], u8, Stamp, TxnState) -> bool,
    ) -> Result<()> {
        let view = self.view(index)?;
        let mut bound = index.0.to_be_bytes().to_vec();
        bound.extend_from_slice(key);
        let mut merger = Merger::new(self.sources(&view, index, key, None), Direction::Forward);
        merger.seek(index, Some(&bound))?;
        let mut decided: Option<Vec<u8>> = None;
        while let Some(item) = merger.top() {
            if !item.key.starts_with(key) {
                break;
            }
            let pk = &item.key[item.key.len() - item.pk_len..];
            let (stamp, state) = item.version.state(&*self.commits);
            let dead = state == TxnState::Aborted || self.commits.is_dead(stamp);
            if !dead && decided.as_deref() != Some(pk) {
                decided = Some(pk.to_vec());
                if !f(pk, item.op, stamp, state) {
                    break;
                }
            }
            merger.advance()?;
        }
        Ok(())
    }

    /// Latches the hash slot of a unique key (D5).
    pub fn unique_slot(&self, index: IndexId, key: &[u8]) -> UniqueGuard {
        self.unique.lock(&self.rt, index, key)
    }

    /// Latches the slots of all unique keys of a row, without deadlock (D5).
    pub fn unique_slots(&self, keys: &[(IndexId, &[u8])]) -> Vec<UniqueGuard> {
        self.unique.lock_all(&self.rt, keys)
    }

    /// One step of flushing generations.
    ///
    /// # Errors
    /// Of writing; a failed write of engine state also latches `health`.
    pub fn flush_beat(&self) -> Result<Beat> {
        Ok(Beat::Idle)
    }

    /// One step of merging runs.
    ///
    /// # Errors
    /// Of reading and writing.
    pub fn merge_beat(&self) -> Result<Beat> {
        Ok(Beat::Idle)
    }

    /// Notified when there may be something to flush.
    pub fn flush_event(&self) -> Arc<Event> {
        self.flush_event.clone()
    }

    /// Notified when there may be something to merge.
    pub fn merge_event(&self) -> Arc<Event> {
        self.merge_event.clone()
    }

    /// The lowest LSN an unflushed entry may have. Read the log end first, then this (B3); `None`:
    /// nothing below that log end is unflushed.
    pub fn low_lsn(&self) -> Option<Lsn> {
        self.state.read().memtables.iter().filter_map(|m| m.low_lsn()).min()
    }

    /// Recovery: inserts the entries of a row record unless their generation was flushed. Apply all
    /// manifest records of the log first.
    ///
    /// # Errors
    /// `BadEncoding` for entries beyond the limits.
    pub fn replay_row(
        &self,
        lsn: Lsn,
        _generation: Generation,
        stamp: Stamp,
        pk: &[u8],
        entries: &[Entry<'_>],
    ) -> Result<()> {
        let memtable = self.state.read().memtables[0].clone();
        memtable.lower(lsn);
        for e in entries {
            let (index, op, key, value) = (e.index, e.op, e.key, e.value);
            memtable.insert(&NewEntry { index, op, stamp, lsn, key, pk, value });
        }
        Ok(())
    }

    /// Ends recovery: nothing is replayed or restored after it. Files of no run are removed.
    ///
    /// # Errors
    /// Of reading run files.
    pub fn finish_restore(&self) -> Result<()> {
        Ok(())
    }

    /// True while an aborted transaction, whose ABORT record is at `end`, may have entries in an
    /// unflushed generation or a run: its id must stay in the commit table (A5).
    pub fn needs(&self, _txn: TxnId, end: Lsn) -> bool {
        self.low_lsn().is_some_and(|low| low <= end)
    }

    /// A builder of an index that is BUILDING; `arena_bytes` is the memory it sorts in.
    pub fn build(self: &Arc<Self>, index: IndexId, arena_bytes: usize) -> RunBuilder {
        RunBuilder::new(self.clone(), index, arena_bytes)
    }

    /// Makes built runs the oldest of their index, at once and durably; the index stays BUILDING
    /// until [`Runs::set_valid`]. Returns the LSN of the manifest record.
    ///
    /// # Errors
    /// Of writing.
    pub fn install(&self, index: IndexId, parts: Vec<BuiltPart>) -> Result<Lsn> {
        let memtable = self.state.read().memtables[0].clone();
        let (op, stamp, lsn) = (entry_op::INS, Stamp::default(), Lsn::ZERO);
        for (key, pk, value) in parts.iter().flat_map(|part| &part.entries) {
            memtable.insert(&NewEntry { index, op, stamp, lsn, key, pk, value });
        }
        Ok(self.log.get().map_or(Lsn::ZERO, |log| log.end()))
    }

    /// The index is VALID from this timestamp on: DEL entries may go, FRESH ones younger than it
    /// annihilate (D4, F2).
    pub fn set_valid(&self, index: IndexId, from: Lsn) {
        if let Some(index) = self.state.write().indexes.get_mut(&index) {
            index.building = false;
            index.valid_from = from;
        }
    }

    /// One merge pass over everything: the first two live rows with equal column bytes (F3).
    /// `skip` says which column bytes may repeat (NULL in them).
    ///
    /// # Errors
    /// Of reading storage.
    pub fn find_duplicate(
        self: &Arc<Self>,
        index: IndexId,
        snapshot: Snapshot,
        skip: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<DuplicateKey>> {
        let mut cursor = self.cursor(index, &KeyRange::all(), Direction::Forward, snapshot)?;
        let (mut key, mut first_pk) = (None::<Vec<u8>>, Vec::new());
        while let Some(entry) = cursor.next()? {
            if key.as_deref() == Some(entry.key) && !skip(entry.key) {
                let (key, second_pk) = (entry.key.to_vec(), entry.pk.to_vec());
                return Ok(Some(DuplicateKey { key, first_pk, second_pk }));
            }
            key = Some(entry.key.to_vec());
            first_pk = entry.pk.to_vec();
        }
        Ok(None)
    }

    /// Rows in a range, estimated from fences; never 0 unless certain.
    pub fn estimate(&self, _index: IndexId, _range: &KeyRange) -> u64 {
        let memtables = self.state.read().memtables.clone();
        memtables.iter().map(|m| m.entries()).sum::<u64>()
    }

    /// Reads every block of an index: checksums, order, counts.
    ///
    /// # Errors
    /// `Corrupt` naming the first damage.
    pub fn check(&self, _index: IndexId) -> Result<CheckReport> {
        Ok(CheckReport::default())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.rt.health.check_writable()
    }

    /// The list of runs, for a checkpoint.
    pub fn snapshot_blob(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores the list of runs from a checkpoint.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn restore(&self, _blob: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Applies a manifest record found in the log.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn apply_manifest(&self, _body: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Figures of an index.
    pub fn stats(&self, _index: IndexId) -> IndexStats {
        let memtables = self.state.read().memtables.clone();
        IndexStats {
            memtable_entries: memtables.iter().map(|m| m.entries()).sum(),
            ..IndexStats::default()
        }
    }

    pub(crate) fn view(&self, _index: IndexId) -> Result<View> {
        let state = self.state.read();
        let version = self.version.load(Ordering::SeqCst);
        Ok(View { memtables: state.memtables.clone(), version })
    }

    pub(crate) fn sources(
        &self,
        view: &View,
        index: IndexId,
        _low: &[u8],
        _high: Option<&[u8]>,
    ) -> Vec<Source> {
        let memory = |m: &Arc<Memtable>| Source::Memory(MemIter::of_index(m.clone(), index));
        view.memtables.iter().map(memory).collect()
    }

    pub(crate) fn view_version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.rt.env.now_ns()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.rt.metrics
    }

    pub(crate) fn commits(&self) -> &dyn CommitTable {
        &*self.commits
    }
}
