//! The checkpoint's list of transactions, and recovery: `restore` takes the list, `replay_record`
//! the log behind it, `finish_recovery` aborts the losers (C2, B6).
//!
//! ```text
//! blob:  version u8 = 3, next id varint, next segment varint, count varint, transactions
//! txn:   id varint, state u8 (0 active, 1 prepared, 2 committed, 3 aborted), cts or END lsn
//!        varint, first lsn varint, revert below varint, operations varint, xid bytes,
//!        ranges varint, (from varint, below varint)..., trees varint, tree varint...,
//!        extents varint, (first varint, last varint, segment varint, offset varint, len varint)...
//! ```

use crate::commit_table::{DeadRange, Exception};
use crate::rollback::RollingBack;
use crate::txns::{OUTCOME_BYTES, Txns};
use crate::undo::TxnUndo;
use crate::undo_files::{SavedAt, UndoSegment};
use crate::{Phase, TxnCore};
use evenkeel_base::{Beat, CommitTable, Error, Lsn, Result, Stamp};
use evenkeel_base::{TreeId, TxnId, TxnState, UndoNo};
use evenkeel_format::record::{LeafChange, RecordKind, RowLogical, decode_revert, decode_txn};
use evenkeel_format::rows::each_row;
use evenkeel_format::undo::{FRAME_HEADER_LEN, UndoRecord};
use evenkeel_format::{Reader, put_bytes, put_varint};
use evenkeel_log::Share;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOB_VERSION: u8 = 3;

/// A transaction met at recovery that has not ended as far as is known.
pub(crate) struct Recovering {
    undo: Arc<TxnUndo>,
    first_lsn: Lsn,
    state: TxnState,
    xid: Vec<u8>,
    operations: u32,
    /// Aborted: operations from here on are undone already.
    roll_back_below: Option<UndoNo>,
}

/// Ids of the transactions whose COMMIT record the first pass over the log has met: a bit per id.
#[derive(Default)]
pub struct CommittedIds {
    words: FxHashMap<u64, u64>,
}

impl CommittedIds {
    /// Processes a log record of any kind.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn scan(&mut self, kind: RecordKind, body: &[u8]) -> Result<()> {
        if kind == RecordKind::Commit {
            let (id, _) = decode_txn(body)?;
            *self.words.entry(id.0 / 64).or_default() |= 1 << (id.0 % 64);
        }
        Ok(())
    }

    fn contains(&self, id: TxnId) -> bool {
        self.words.get(&(id.0 / 64)).is_some_and(|word| word >> (id.0 % 64) & 1 == 1)
    }
}

/// One transaction of the blob.
struct Listed {
    id: TxnId,
    state: TxnState,
    ended: Option<Lsn>,
    first_lsn: Lsn,
    roll_back_below: UndoNo,
    operations: u32,
    xid: Vec<u8>,
    dead: Vec<DeadRange>,
    /// Trees that its undo names.
    trees: Vec<TreeId>,
    /// Saved undo: first and last record, segment, offset, length.
    extents: Vec<(UndoNo, UndoNo, u64, u64, u32)>,
}

fn encode_listed(out: &mut Vec<u8>, t: &Listed) {
    let (state, lsn) = match t.state {
        TxnState::Active => (0, Lsn::ZERO),
        TxnState::Prepared => (1, Lsn::ZERO),
        TxnState::Committed(cts) => (2, cts),
        TxnState::Aborted => (3, t.ended.unwrap_or_default()),
    };
    put_varint(out, t.id.0);
    out.push(state);
    put_varint(out, lsn.0);
    put_varint(out, t.first_lsn.0);
    put_varint(out, u64::from(t.roll_back_below.0));
    put_varint(out, u64::from(t.operations));
    put_bytes(out, &t.xid);
    put_varint(out, t.dead.len() as u64);
    for (from, below) in &t.dead {
        put_varint(out, u64::from(from.0));
        put_varint(out, u64::from(below.0));
    }
    put_varint(out, t.trees.len() as u64);
    t.trees.iter().for_each(|tree| put_varint(out, u64::from(tree.0)));
    put_varint(out, t.extents.len() as u64);
    for (first, last, segment, offset, len) in &t.extents {
        put_varint(out, u64::from(first.0));
        put_varint(out, u64::from(last.0));
        put_varint(out, *segment);
        put_varint(out, *offset);
        put_varint(out, u64::from(*len));
    }
}

fn decode_listed(r: &mut Reader<'_>) -> Result<Listed> {
    let id = TxnId(r.varint()?);
    let state = r.u8()?;
    let lsn = Lsn(r.varint()?);
    let state = match state {
        0 => TxnState::Active,
        1 => TxnState::Prepared,
        2 => TxnState::Committed(lsn),
        3 => TxnState::Aborted,
        _ => return Err(r.newer("state", state)),
    };
    let ended = (state == TxnState::Aborted && lsn != Lsn::ZERO).then_some(lsn);
    let first_lsn = Lsn(r.varint()?);
    let roll_back_below = UndoNo(r.varint32()?);
    let operations = r.varint32()?;
    let xid = r.bytes()?.to_vec();
    let mut dead = Vec::new();
    for _ in 0..r.varint()? {
        dead.push((UndoNo(r.varint32()?), UndoNo(r.varint32()?)));
    }
    let mut trees = Vec::new();
    for _ in 0..r.varint()? {
        trees.push(TreeId(r.varint32()?));
    }
    let mut extents = Vec::new();
    let mut last_before = UndoNo::ZERO;
    for _ in 0..r.varint()? {
        let (first, last) = (UndoNo(r.varint32()?), UndoNo(r.varint32()?));
        let (segment, offset, len) = (r.varint()?, r.varint()?, r.varint32()?);
        if first <= last_before || last < first {
            return Err(r.bad("undo extents out of order"));
        }
        if (len as usize) < FRAME_HEADER_LEN || offset.checked_add(u64::from(len)).is_none() {
            return Err(r.bad("an undo extent of no place"));
        }
        last_before = last;
        extents.push((first, last, segment, offset, len));
    }
    Ok(Listed {
        id,
        state,
        ended,
        first_lsn,
        roll_back_below,
        operations,
        xid,
        dead,
        trees,
        extents,
    })
}

impl Txns {
    /// The checkpoint's list of transactions: each undecided, aborted or pinned one, and the place
    /// of its saved undo. Make it after `checkpoint_undo`, and read the log's end after it.
    pub fn checkpoint_blob(&self) -> Vec<u8> {
        let undecided: Vec<TxnId> = self.all_active().iter().map(|t| t.id()).collect();
        let named = self.states.for_checkpoint(&undecided);
        let mut out = vec![BLOB_VERSION];
        put_varint(&mut out, self.states.next_id().0);
        put_varint(&mut out, self.files.next_number());
        put_varint(&mut out, named.len() as u64);
        for (id, exception, dead) in named {
            encode_listed(&mut out, &self.listed(id, &exception, dead));
        }
        out
    }

    fn listed(&self, id: TxnId, exception: &Exception, dead: Vec<DeadRange>) -> Listed {
        let txn = self.active(id);
        let (mut first_lsn, roll_back_below) = match self.reverting.lock().get(&id) {
            Some(r) => (r.first_lsn, r.below),
            None => (Lsn::ZERO, UndoNo::ZERO),
        };
        let mut operations = 0;
        let mut xid = Vec::new();
        if let Some(txn) = &txn {
            first_lsn = txn.first_lsn().unwrap_or_default();
            operations = txn.undo_count();
            xid = txn.xid.get().cloned().unwrap_or_default();
        }
        let needed = exception.state.is_undecided() || exception.state == TxnState::Aborted;
        let undo = self.undo_of_txn(id).filter(|_| needed && exception.ended.is_none());
        let trees = undo.as_ref().map(|undo| undo.trees()).unwrap_or_default();
        let saved = undo.map(|undo| undo.synced()).unwrap_or_default();
        let place = |at: &SavedAt| (at.segment.number, at.offset, at.len);
        let extents = saved.iter().map(|(first, last, at)| {
            let (segment, offset, len) = place(at);
            (*first, *last, segment, offset, len)
        });
        Listed {
            id,
            state: exception.state,
            ended: exception.ended,
            first_lsn,
            roll_back_below,
            operations,
            xid,
            dead,
            trees,
            extents: extents.collect(),
        }
    }

    /// Restores a checkpoint's list (empty: there is none). Undo files that are not named by then
    /// are removed once the database is open.
    ///
    /// # Errors
    /// `BadEncoding`, those of the environment.
    pub fn restore(&self, blob: &[u8]) -> Result<()> {
        let mut listed = Vec::new();
        if !blob.is_empty() {
            let mut r = Reader::new(blob, "transactions of the checkpoint");
            let version = r.u8()?;
            if version != BLOB_VERSION {
                return Err(r.newer("version", version));
            }
            self.states.start_ids_at(TxnId(r.varint()?));
            self.files.start_numbers_at(r.varint()?);
            for _ in 0..r.varint()? {
                listed.push(decode_listed(&mut r)?);
            }
            r.finish()?;
        }
        let mut segments: BTreeMap<u64, Arc<UndoSegment>> = BTreeMap::new();
        for (_, _, number, ..) in listed.iter().flat_map(|t| &t.extents) {
            if !segments.contains_key(number) {
                segments.insert(*number, self.files.open(*number)?);
            }
        }
        self.files.give_up_others()?;
        for t in listed {
            self.restore_one(t, &segments);
        }
        Ok(())
    }

    fn restore_one(&self, t: Listed, segments: &BTreeMap<u64, Arc<UndoSegment>>) {
        self.states.restore(t.id, Exception { state: t.state, ended: t.ended });
        for (from, below) in &t.dead {
            self.states.add_dead(t.id, *from, *below);
        }
        let settled = matches!(t.state, TxnState::Committed(_)) || t.ended.is_some();
        if settled {
            return;
        }
        let undo = self.add_undo(t.id);
        let extents = t.extents.into_iter().filter_map(|(first, last, number, offset, len)| {
            let segment = segments.get(&number)?.clone();
            Some((first, last, SavedAt { segment, offset, len }))
        });
        undo.restore(extents.collect(), t.trees, &self.undo_used);
        let roll_back_below = (t.roll_back_below != UndoNo::ZERO).then_some(t.roll_back_below);
        let recovering = Recovering {
            undo,
            first_lsn: t.first_lsn,
            state: t.state,
            xid: t.xid,
            operations: t.operations,
            roll_back_below,
        };
        self.recovering.lock().insert(t.id, recovering);
    }

    /// Sets the transactions that are committed by the log, before the first `replay_record`: their
    /// undo is not kept. Without this call it is kept until their commit is met.
    pub fn expect_committed(&self, ids: CommittedIds) {
        *self.committed.lock() = ids;
    }

    /// Processes one record of the log behind the checkpoint, in log order; kinds that do not
    /// concern transactions are ignored.
    ///
    /// # Errors
    /// `BadEncoding`; those of spilling undo.
    pub fn replay_record(&self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        match kind {
            RecordKind::Row | RecordKind::Rows => {
                each_row(kind, body, &mut |change, logical| self.replay_row(lsn, change, logical))
            }
            RecordKind::Revert => {
                let reverted = decode_revert(LeafChange::decode(body)?.logical)?;
                self.replay_rollback(reverted);
                Ok(())
            }
            RecordKind::Commit => {
                self.replay_commit(lsn, decode_txn(body)?.0);
                Ok(())
            }
            RecordKind::Abort => {
                let (id, _) = decode_txn(body)?;
                if let Some(t) = self.recovering.lock().get_mut(&id) {
                    t.state = TxnState::Aborted;
                    self.states.set(id, TxnState::Aborted);
                }
                Ok(())
            }
            RecordKind::End => {
                let (id, _) = decode_txn(body)?;
                if self.recovering.lock().remove(&id).is_some() {
                    self.states.set_ended(id, lsn);
                    self.free_undo(id);
                }
                Ok(())
            }
            RecordKind::Prepare => {
                let (id, xid) = decode_txn(body)?;
                if let Some(t) = self.recovering.lock().get_mut(&id) {
                    t.state = TxnState::Prepared;
                    t.xid = xid.to_vec();
                    self.states.set(id, TxnState::Prepared);
                }
                Ok(())
            }
            RecordKind::Page | RecordKind::Manifest | RecordKind::Checkpoint => Ok(()),
        }
    }

    /// True if this transaction's operations need no work: it is known to have committed, or there
    /// is none. Marks its id as seen.
    pub fn is_settled(&self, id: TxnId) -> bool {
        if id == TxnId::ZERO {
            return true;
        }
        self.states.saw_id(id);
        self.committed.lock().contains(id)
    }

    /// An operation of a ROW or ROWS record: as `replay_record`, for a decoded one.
    ///
    /// # Errors
    /// Those of spilling undo.
    pub fn replay_row(
        &self,
        lsn: Lsn,
        change: &LeafChange<'_>,
        logical: &RowLogical<'_>,
    ) -> Result<()> {
        let Stamp { txn: id, undo_no } = change.stamp;
        // A committed transaction needs neither undo nor a state.
        if self.is_settled(id) {
            return Ok(());
        }
        let undo = {
            let mut recovering = self.recovering.lock();
            let t = recovering.entry(id).or_insert_with(|| {
                self.states.restore(id, Exception { state: TxnState::Active, ended: None });
                Recovering {
                    undo: self.add_undo(id),
                    first_lsn: lsn,
                    state: TxnState::Active,
                    xid: Vec::new(),
                    operations: 0,
                    roll_back_below: None,
                }
            });
            t.operations = t.operations.max(undo_no.0);
            t.undo.clone()
        };
        // The checkpoint's segments have these records already.
        if undo_no > undo.last() {
            let (kind, tree) = (logical.kind, change.tree);
            let before = logical.before.clone();
            let record = UndoRecord { undo_no, kind, tree, key: change.key, before };
            undo.push(&record, &self.undo_used);
        }
        while self.undo_bytes() > self.undo_bytes_max() && self.spill_beat()? == Beat::More {}
        Ok(())
    }

    fn replay_rollback(&self, reverted: Stamp) {
        let Stamp { txn: id, undo_no } = reverted;
        let dead = || self.states.add_dead(id, undo_no, UndoNo(undo_no.0 + 1));
        if self.committed.lock().contains(id) {
            return dead();
        }
        let mut recovering = self.recovering.lock();
        let Some(t) = recovering.get_mut(&id) else { return };
        if t.state == TxnState::Aborted {
            // Newest first, so progress is the lowest number without a gap above it.
            let below = t.roll_back_below.unwrap_or(UndoNo(t.operations + 1));
            if undo_no.0 + 1 == below.0 {
                t.roll_back_below = Some(undo_no);
            }
        } else {
            dead();
        }
    }

    /// After a restart there are no older snapshots, so a committed id without dead ranges may be
    /// absent.
    fn replay_commit(&self, lsn: Lsn, id: TxnId) {
        let known = self.recovering.lock().remove(&id).is_some();
        if known {
            self.free_undo(id);
        }
        if self.states.has_dead(id) {
            let state = TxnState::Committed(lsn);
            self.states.restore(id, Exception { state, ended: None });
        } else if known {
            self.states.forget(id);
        }
    }

    /// After `replay` and `attach_log`: aborts undecided transactions, keeps prepared ones, and
    /// passes operations that are not undone to `rollback_beat`. The database is open for work
    /// before these are done.
    ///
    /// # Errors
    /// Those of the log.
    pub fn finish_recovery(&self) -> Result<()> {
        self.states.finish_ids();
        *self.committed.lock() = CommittedIds::default();
        let recovering = std::mem::take(&mut *self.recovering.lock());
        for (id, t) in recovering {
            match t.state {
                TxnState::Active if t.undo.last() == UndoNo::ZERO => {
                    self.states.forget(id);
                    self.free_undo(id);
                }
                TxnState::Active => {
                    let space = self.log()?.reserve(OUTCOME_BYTES, Share::System)?;
                    self.log_abort(id, Some(t.undo), t.first_lsn, space)?;
                }
                TxnState::Prepared => self.adopt_prepared(id, t),
                TxnState::Aborted => {
                    let mut reverting = RollingBack::new(t.undo, t.first_lsn, false);
                    if let Some(below) = t.roll_back_below {
                        reverting.below = reverting.below.min(below);
                    }
                    self.reverting.lock().insert(id, reverting);
                    self.note_rolling_back();
                }
                TxnState::Committed(_) => {
                    return Err(Error::internal("a committed transaction was recovered"));
                }
            }
        }
        self.wake_background();
        Ok(())
    }

    fn adopt_prepared(&self, id: TxnId, t: Recovering) {
        let txn = Arc::new(TxnCore::default());
        txn.set_id(id);
        txn.set_phase(Phase::Prepared);
        txn.set_first_lsn(t.first_lsn);
        txn.set_undo_count(t.operations.max(t.undo.last().0));
        let _ = txn.undo.set(t.undo);
        let _ = txn.xid.set(t.xid.clone());
        self.add_active(&txn);
        self.prepared.lock().insert(t.xid, txn);
    }

    /// Trees that the operations of an undecided transaction have changed, undone ones included,
    /// sorted. They are kept with its undo and in checkpoints, so no record is read for this.
    pub fn changed_trees(&self, t: &TxnCore) -> Vec<TreeId> {
        t.undo.get().map(|undo| undo.trees()).unwrap_or_default()
    }

    /// True if the id is undecided; for checks.
    pub fn is_undecided(&self, id: TxnId) -> bool {
        self.state(id).is_undecided()
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod recovery_tests;
