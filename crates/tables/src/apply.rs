//! The last step of a row operation: it is applied under the leaf latch and its entries go to the
//! memtable; uniqueness is checked before, and a stop (another transaction's stamp, a lock, a
//! schema
//! change) is waited for with nothing held, then it is tried again. Called by `write` only.

use crate::op::{Expect, RowOp, Services, Stop, record_bytes};
use crate::table::{Table, TableState};
use crate::transaction::Transaction;
use crate::write::{Applied, Buffers, Space, row_flags};
use evenkeel_base::{Code, Error, IndexId, Lsn, Result, Stamp};
use evenkeel_format::catalog::IndexState;
use evenkeel_format::overflow::OVERFLOW_REF_BYTES;
use evenkeel_format::record::{RowKind, entry_op};
use evenkeel_format::undo::UndoRecord;
use evenkeel_log::Share;
use evenkeel_runs::UniqueGuard;
use std::sync::Arc;

impl Transaction {
    /// Applies the change that the buffers hold. `expect` is the version it was made from (stamp
    /// and flags; its row is in `old_row`); none for an insert.
    pub(crate) fn apply(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        kind: RowKind,
        expect: Option<(Stamp, u8)>,
        b: &mut Buffers,
    ) -> Result<Applied> {
        let applied = self.apply_once(table, state, kind, expect, b);
        // Those that the row has adopted are not given up by that.
        b.chains.clear();
        applied
    }

    pub(crate) fn apply_once(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        kind: RowKind,
        expect: Option<(Stamp, u8)>,
        b: &mut Buffers,
    ) -> Result<Applied> {
        self.reserve(expect.is_some(), b)?;
        let guards = match self.check_unique(table, state, b)? {
            Ok(guards) => guards,
            Err(applied) => return Ok(applied),
        };
        let (stop, lsn) = self.write_op(table, state, kind, expect, b)?;
        drop(guards);
        match stop {
            Stop::No => {
                debug_assert!(lsn > Lsn::ZERO);
                self.after_write(b)?;
                Ok(Applied::Done)
            }
            Stop::Duplicate => Ok(Applied::Duplicate(None, b.key.clone())),
            stop => {
                if matches!(stop, Stop::Undecided(_) | Stop::Locked) {
                    // Whoever is in the way may need that space to end.
                    b.space = Space::default();
                }
                self.give_way(state, &b.key, stop)?;
                Ok(Applied::Again)
            }
        }
    }

    pub(crate) fn write_op(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        kind: RowKind,
        expect: Option<(Stamp, u8)>,
        b: &mut Buffers,
    ) -> Result<(Stop, Lsn)> {
        let (Some((log, _)), Some(memory)) = (&mut b.space.log, &mut b.space.memory) else {
            return Err(Error::internal("a row operation without reserved space"));
        };
        let expect = match expect {
            None => Expect::Nothing,
            Some((stamp, _)) => Expect::Version { stamp, row: &b.old_row },
        };
        let mut op = RowOp {
            services: Services {
                runs: &self.store.runs,
                txns: &self.store.txns,
                chains: &self.store.chains,
            },
            table,
            tree: state.tree.id(),
            epoch: state.shape.epoch,
            txn: &self.inner,
            snapshot: self.snapshot_at(),
            kind,
            expect,
            key: &b.key,
            row: &b.row,
            row_flags: row_flags(&b.row),
            entries: &b.entries,
            edits: &b.edits,
            memory,
            logical: &mut b.logical,
            stop: Stop::No,
            epoch_pin: None,
            gen_pin: None,
            stamp: Stamp::default(),
            lsn: Lsn::ZERO,
        };
        state.tree.write(&b.key, log, &mut op)?;
        Ok((std::mem::take(&mut op.stop), op.lsn))
    }

    /// Reserves log, memtable and undo space for the prepared change, and in one go for as many
    /// more of the statement (B2). May wait; no latch is held.
    pub(crate) fn reserve(&mut self, update: bool, b: &mut Buffers) -> Result<()> {
        let before = if update { b.old_row.len() } else { 0 };
        let edits = b.edits.len() * (OVERFLOW_REF_BYTES + 1) + 4;
        let log = record_bytes(b.key.len(), b.row.len(), before, b.entries.log_bytes() + edits);
        let memory = b.entries.memory_bytes();
        let rows = b.rows_left.clamp(1, 256);
        let left = b.space.log.as_ref().map_or(0, |(_, left)| *left);
        if left < log {
            b.space.log = None;
            let bytes = (log * rows).min(self.store.log.batch_bytes()).max(log);
            b.space.log = Some((self.store.log.reserve(bytes, Share::User)?, bytes));
        }
        if let Some((_, left)) = &mut b.space.log {
            *left -= log;
        }
        if b.space.memory.as_ref().is_none_or(|m| (m.bytes() as usize) < memory) {
            b.space.memory = None;
            b.space.memory = Some(self.store.runs.reserve(memory * rows)?);
        }
        let undo = UndoRecord::encoded_len_max(b.key.len(), before);
        self.store.txns.reserve_undo(&self.inner, undo)
    }

    /// Checks unique keys (D5): their slots stay latched until the row is written. Who has to wait
    /// for another transaction returns the reserved space first, which that one may need to end.
    pub(crate) fn check_unique(
        &mut self,
        table: &Table,
        state: &Arc<TableState>,
        b: &mut Buffers,
    ) -> Result<std::result::Result<Vec<UniqueGuard>, Applied>> {
        let Buffers { unique, key: row_key, space: reserved, .. } = b;
        if unique.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let store = self.store.clone();
        let keys: Vec<_> =
            unique.iter().map(|(at, key)| (state.shape.indexes[*at].id, &key[..])).collect();
        let guards = store.runs.unique_slots(&keys);
        for (at, key) in unique.iter() {
            let index = &state.shape.indexes[*at];
            let me = self.inner.id();
            let (mut live, mut undecided) = (None, None);
            let looked = store.runs.current(index.id, key, &mut |pk, op, stamp, state| {
                if stamp.txn != me && stamp.txn.0 != 0 && state.is_undecided() {
                    undecided = Some(stamp.txn);
                    return false;
                }
                if op & entry_op::INS != 0 && pk != &row_key[..] {
                    live = Some(pk.to_vec());
                }
                true
            });
            match looked {
                // Its build was given up meanwhile: make the change ready without it.
                Err(error) if error.code() == Code::IndexGone && table.has_moved_on(state) => {
                    return Ok(Err(Applied::Again));
                }
                looked => looked?,
            }
            if let Some(other) = undecided {
                drop(guards);
                *reserved = Space::default();
                self.wait_txn(other)?;
                return Ok(Err(Applied::Again));
            }
            let planted = evenkeel_base::plant::is(evenkeel_base::plant::Fault::UniqueNotChecked);
            if let Some(pk) = live.filter(|_| !planted) {
                // In a build: the build fails, the statement goes on (F3).
                if index.state != IndexState::Checking || !table.fail_build() {
                    return Ok(Err(Applied::Duplicate(Some(*at), pk)));
                }
            }
            let space = evenkeel_txn::Space::Index(index.id);
            if !store.txns.check_write(&self.inner, space, key).is_empty() {
                drop(guards);
                *reserved = Space::default();
                store.txns.wait_write(&self.inner, space, key, self.deadline())?;
                return Ok(Err(Applied::Again));
            }
        }
        Ok(Ok(guards))
    }

    /// Range locks on indexes: the writer has inserted, now it checks (A7).
    pub(crate) fn after_write(&mut self, b: &mut Buffers) -> Result<()> {
        let Buffers { entries, space: reserved, .. } = b;
        for entry in entries.iter() {
            let space = evenkeel_txn::Space::Index(entry.index);
            if !self.store.txns.check_write(&self.inner, space, entry.key).is_empty() {
                let deadline = self.deadline();
                *reserved = Space::default();
                self.store.txns.wait_write(&self.inner, space, entry.key, deadline)?;
            }
        }
        Ok(())
    }

    pub(crate) fn check_range_locks(&mut self, index: IndexId, key: &[u8]) -> Result<()> {
        let space = evenkeel_txn::Space::Index(index);
        if self.store.txns.check_write(&self.inner, space, key).is_empty() {
            return Ok(());
        }
        self.store.txns.wait_write(&self.inner, space, key, self.deadline())
    }

    /// Removes what is in the way of a row operation, with no latch held.
    pub(crate) fn give_way(&mut self, state: &TableState, key: &[u8], stop: Stop) -> Result<()> {
        self.locker().give_way(state, key, stop)
    }
}
