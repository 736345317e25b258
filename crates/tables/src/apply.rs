//! The last step of a row operation: the change is applied under the leaf latch and its entries go
//! to the memtable. Uniqueness is checked before. When an obstacle (another transaction's stamp, a
//! lock, a schema change) stops the step, the operation waits for it without latches or
//! reservations and tries again. Called by `write` only.

use crate::buffers::Buffers;
use crate::row_op::{Expect, RowOp, Services, WriteStop, record_bytes};
use crate::table::{Table, TableState};
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use crate::write_parts::{Applied, row_flags};
use evenkeel_base::{Code, Error, IndexId, Lsn, Result, Stamp, TxnId};
use evenkeel_format::catalog::IndexState;
use evenkeel_format::overflow::OVERFLOW_REF_BYTES;
use evenkeel_format::record::{RowKind, entry_op};
use evenkeel_format::undo::UndoRecord;
use evenkeel_log::{RECORD_BYTES_MAX, Reserved, Share};
use evenkeel_runs::{MemReserved, UniqueGuard};
use std::sync::Arc;

/// Space reserved for a row operation; released before the operation waits for another transaction.
pub(crate) struct ReservedSpace {
    log: Reserved,
    memory: MemReserved,
}

/// The result of looking up the unique keys of a prepared row.
enum Unique {
    /// Nothing; their slots are latched.
    Free(Vec<UniqueGuard>),
    /// A live row has the key of the index at this position.
    Taken(usize, Vec<u8>),
    /// The build of an index failed: the change has to be prepared without the index.
    Gone,
    /// An undecided transaction has an entry of this key.
    Undecided(TxnId),
    /// Another transaction has locked the key at this position of the list.
    Locked(usize),
}

/// The outcome of a row operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The row is written.
    Written,
    /// Another row has the key.
    Found,
    /// Nothing was written, or the operation failed.
    Nothing,
}

impl Outcome {
    /// The outcome of a change that returns whether a row existed.
    pub fn of(done: &Result<bool>) -> Outcome {
        if matches!(done, Ok(true)) { Outcome::Written } else { Outcome::Nothing }
    }
}

impl TableTxn {
    /// Applies the change in the buffers. `expect` is the version from which it was made (stamp and
    /// flags; its row is in `old_row`); none for an insert.
    pub(crate) fn apply(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        kind: RowKind,
        expect: Option<(Stamp, u8)>,
        b: &mut Buffers,
    ) -> Result<Applied> {
        let applied = self.apply_once(table, state, kind, expect, b);
        // The row has adopted these chains, so clearing the list does not free them.
        b.chains.clear();
        applied
    }

    fn apply_once(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        kind: RowKind,
        expect: Option<(Stamp, u8)>,
        b: &mut Buffers,
    ) -> Result<Applied> {
        let mut space = self.reserve(expect.is_some(), b)?;
        let (stop, lsn) = match self.check_unique(table, state, b)? {
            Unique::Free(guards) => {
                let done = self.write_op(table, state, kind, expect, b, &mut space)?;
                drop(guards);
                done
            }
            Unique::Taken(at, pk) => return Ok(Applied::Duplicate(Some(at), pk)),
            Unique::Gone => return Ok(Applied::Again),
            Unique::Undecided(other) => {
                drop(space);
                self.wait_txn(other)?;
                return Ok(Applied::Again);
            }
            Unique::Locked(at) => {
                drop(space);
                let index = state.layout.indexes[b.unique[at].0].id;
                self.wait_for_key(&state.layout, index, &b.unique[at].1)?;
                return Ok(Applied::Again);
            }
        };
        // The transaction in the way may need this space to end.
        drop(space);
        match stop {
            WriteStop::No => {
                debug_assert!(lsn > Lsn::ZERO);
                if self.inner.locked_rows() > 0 {
                    let space = state.lock_space();
                    self.changed.push((space, b.key.clone()));
                }
                // Range locks on indexes: the writer inserts first and checks for locks afterwards
                // (A7).
                let layout = &state.layout;
                b.entries.iter().try_for_each(|e| self.wait_for_key(layout, e.index, e.key))?;
                Ok(Applied::Done)
            }
            WriteStop::Duplicate => Ok(Applied::Duplicate(None, b.key.clone())),
            stop => {
                self.give_way(state, &b.key, stop)?;
                Ok(Applied::Again)
            }
        }
    }

    fn write_op(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        kind: RowKind,
        expect: Option<(Stamp, u8)>,
        b: &mut Buffers,
        space: &mut ReservedSpace,
    ) -> Result<(WriteStop, Lsn)> {
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
            space: state.lock_space(),
            epoch: state.layout.epoch,
            txn: &self.inner,
            snapshot: self.snapshot_at(),
            kind,
            expect,
            key: &b.key,
            row: &b.row,
            row_flags: row_flags(&b.row),
            entries: &b.entries,
            edits: &b.edits,
            memory: &mut space.memory,
            logical: &mut b.logical,
            stop: WriteStop::No,
            epoch_pin: None,
            gen_pin: None,
            stamp: Stamp::default(),
            lsn: Lsn::ZERO,
        };
        state.tree.write_near(b.leaf.take(), &b.key, &mut space.log, &mut op)?;
        Ok((std::mem::take(&mut op.stop), op.lsn))
    }

    /// Reserves log, memtable and undo space for the prepared change (B2). May wait; no latch is
    /// held.
    fn reserve(&mut self, update: bool, b: &Buffers) -> Result<ReservedSpace> {
        let before = if update { b.old_row.len() } else { 0 };
        let edits = b.edits.len() * (OVERFLOW_REF_BYTES + 1) + 4;
        let log = record_bytes(b.key.len(), b.row.len(), before, b.entries.log_bytes() + edits);
        // Row and chains are bounded, but the entries of many indexes may be long.
        if log > RECORD_BYTES_MAX {
            return Err(Error::new(Code::EntryTooLong)
                .with("what", "the entries of all indexes together")
                .with("bytes", log)
                .with("limit", RECORD_BYTES_MAX));
        }
        // Reserve undo first. A thread that makes room for undo may roll rows back, and then queues
        // for log space itself. So a holder of log space never waits for undo.
        let undo = UndoRecord::encoded_len_max(b.key.len(), before);
        self.store.txns.reserve_undo(&self.inner, undo)?;
        let cancellation = self.inner.cancellation();
        let log = self.store.log.reserve_cancellable(log, Share::User, cancellation)?;
        let memory = b.entries.memory_bytes();
        let memory = self.store.runs.reserve_cancellable(memory, cancellation)?;
        Ok(ReservedSpace { log, memory })
    }

    /// Checks unique keys (D5): their slots stay latched until the row is written. Never waits,
    /// because the caller holds reserved space.
    fn check_unique(
        &mut self,
        table: &Table,
        state: &Arc<TableState>,
        b: &Buffers,
    ) -> Result<Unique> {
        let Buffers { unique, key: row_key, .. } = b;
        if unique.is_empty() {
            return Ok(Unique::Free(Vec::new()));
        }
        let store = self.store.clone();
        let keys: Vec<_> =
            unique.iter().map(|(at, key)| (state.layout.indexes[*at].id, &key[..])).collect();
        let guards = store.runs.unique_slots(&keys);
        for (n, (at, key)) in unique.iter().enumerate() {
            let index = &state.layout.indexes[*at];
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
                Err(error) if error.code() == Code::IndexGone && table.has_moved_on(state) => {
                    return Ok(Unique::Gone);
                }
                looked => store.read_index(looked)?,
            }
            if let Some(other) = undecided {
                return Ok(Unique::Undecided(other));
            }
            let planted = evenkeel_base::fault_injection::is(
                evenkeel_base::fault_injection::Fault::UniqueNotChecked,
            );
            if let Some(pk) = live.filter(|_| !planted) {
                // The build has ended by now; its failure may concern another transaction.
                if index.state == IndexState::Checking && table.has_moved_on(state) {
                    return Ok(Unique::Gone);
                }
                // During a build the build fails and the statement continues (F3).
                if index.state != IndexState::Checking || !table.fail_build() {
                    return Ok(Unique::Taken(*at, pk));
                }
            }
            let space = evenkeel_txn::LockSpace::Index(state.layout.locks_of(index.id));
            if !store.txns.check_write(&self.inner, space, key).is_empty() {
                return Ok(Unique::Locked(n));
            }
        }
        Ok(Unique::Free(guards))
    }

    /// Waits for other transactions' locks on a key of an index, or on a range that contains it.
    pub(crate) fn wait_for_key(
        &mut self,
        layout: &Layout,
        index: IndexId,
        key: &[u8],
    ) -> Result<()> {
        let space = evenkeel_txn::LockSpace::Index(layout.locks_of(index));
        if self.store.txns.check_write(&self.inner, space, key).is_empty() {
            return Ok(());
        }
        self.store.txns.wait_written(&self.inner, space, key, self.deadline())
    }

    /// Waits for, or rolls back, whatever stopped a row operation, without any latch. A transaction
    /// that has waited for the row locks it until the operation has ended (`settle`), so that later
    /// ones queue behind it.
    pub(crate) fn give_way(
        &mut self,
        state: &TableState,
        key: &[u8],
        stop: WriteStop,
    ) -> Result<()> {
        let absent = stop == WriteStop::LockedAbsent;
        let writer = match stop {
            WriteStop::Undecided(writer) => Some(writer),
            WriteStop::Locked | WriteStop::LockedAbsent => None,
            stop => return self.locker().give_way(state, key, stop),
        };
        let (space, deadline) = (state.lock_space(), self.deadline());
        if self.store.txns.wait_write(&self.inner, (space, key), absent, writer, deadline)? {
            self.waited.push((space, key.to_vec()));
        }
        Ok(())
    }

    /// A row operation has ended. The rows for which it waited are now held by their stamps, or
    /// released, or (`OnDuplicate`: the row found there) locked until the transaction ends. Locks
    /// of this statement on rows that it has changed are replaced by the stamps of those rows.
    pub(crate) fn settle(&mut self, outcome: Outcome) {
        let (txns, me) = (&self.store.txns, &self.inner);
        for (space, key) in self.changed.drain(..) {
            if outcome == Outcome::Written {
                txns.row_changed(me, space, &key);
            }
        }
        for (space, key) in self.waited.drain(..) {
            match outcome {
                Outcome::Written => txns.row_written(me, space, &key),
                Outcome::Found => {}
                Outcome::Nothing => txns.row_unwritten(me, space, &key),
            }
        }
    }
}
