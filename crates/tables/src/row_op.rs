//! The last step of a row operation under the leaf latch (`tree::LeafOp`): it reads the present
//! cell and stops with a reason if there is an obstacle. Otherwise it pushes undo, pins the
//! memtable generation, logs the change, and inserts the index entries.
//!
//! Invariants: `decide` changes nothing; the schema epoch is pinned from the decision to the last
//! index entry (F1); all space was reserved before (B2).

use crate::chains::Chains;
use crate::table::{EpochPin, Table};
use evenkeel_base::{CommitTable, TreeId};
use evenkeel_base::{Generation, IndexId, Lsn, Result, Stamp, TxnId, TxnState};
use evenkeel_format::overflow::ChainEdit;
use evenkeel_format::record::{
    Before, Entry, EntryList, RecordKind, RowKind, RowLogical, cell_flags, encode_revert,
};
use evenkeel_runs::{GenPin, MemReserved, Runs, entry_bytes};
use evenkeel_tree::{LeafDecision, LeafOp, LeafRow};
use evenkeel_txn::{LockSpace, TxnRef, Txns};

/// Why a row operation stopped under the latch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriteStop {
    /// It did not stop.
    #[default]
    No,
    /// Another transaction changed the row and is undecided: wait for it.
    Undecided(TxnId),
    /// Other transactions hold locks on the key or on a range that contains it: wait for them.
    Locked,
    /// As `Locked`, for a key that has no row.
    LockedAbsent,
    /// An aborted transaction's change is in the way: roll it back.
    Aborted(Stamp),
    /// The row has changed since the operation was prepared: start again.
    Changed,
    /// The schema changed: start again with the new one.
    Schema,
    /// A live row has this key.
    Duplicate,
    /// The version is newer than the transaction's snapshot.
    Conflict(TxnId),
}

/// Index entries of one row operation, encoded once in the form of the record.
#[derive(Default)]
pub(crate) struct Entries {
    list: EntryList,
    memory: usize,
}

impl Entries {
    pub fn clear(&mut self) {
        self.list.clear();
        self.memory = 0;
    }

    /// Adds an entry; `value` is stored beside its key.
    pub fn push(&mut self, index: IndexId, op: u8, key: &[u8], value: &[u8], pk_len: usize) {
        self.list.push(Entry { index, op, key, value });
        self.memory += entry_bytes(key.len(), pk_len, value.len());
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.list.iter()
    }

    /// Memory that the list holds.
    pub fn capacity_bytes(&self) -> usize {
        self.list.capacity_bytes()
    }

    /// Bytes they take in the record.
    pub fn log_bytes(&self) -> usize {
        self.list.encoded_len() + EntryList::COUNT_BYTES_MAX
    }

    /// Bytes they take in the memtable.
    pub fn memory_bytes(&self) -> usize {
        self.memory
    }
}

/// What the operation expects to find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect<'a> {
    /// No live row (INSERT).
    Nothing,
    /// Exactly this live version (UPDATE, DELETE).
    Version {
        /// Its stamp as found.
        stamp: Stamp,
        /// Its row bytes as found.
        row: &'a [u8],
    },
}

/// The services a row operation calls.
pub(crate) struct Services<'a> {
    pub runs: &'a Runs,
    pub txns: &'a Txns,
    pub chains: &'a Chains,
}

/// One row operation.
pub(crate) struct RowOp<'a> {
    pub services: Services<'a>,
    pub table: &'a Table,
    pub tree: TreeId,
    /// Where its rows are locked.
    pub space: LockSpace,
    pub epoch: u64,
    pub txn: &'a TxnRef,
    /// The transaction's snapshot, if it holds one (A6).
    pub snapshot: Option<Lsn>,
    pub kind: RowKind,
    pub expect: Expect<'a>,
    pub key: &'a [u8],
    pub row: &'a [u8],
    /// `cell_flags::OVERFLOW` or 0.
    pub row_flags: u8,
    pub entries: &'a Entries,
    /// Chains that the row adopts or supersedes.
    pub edits: &'a [ChainEdit],
    pub memory: &'a mut MemReserved,
    /// Scratch for the logical part of the record.
    pub logical: &'a mut Vec<u8>,
    pub stop: WriteStop,
    pub epoch_pin: Option<EpochPin<'a>>,
    pub gen_pin: Option<GenPin>,
    pub stamp: Stamp,
    pub lsn: Lsn,
}

impl RowOp<'_> {
    /// The obstacle, if there is one.
    fn look(&self, current: Option<LeafRow<'_>>) -> WriteStop {
        if let Some(cell) = &current
            && let Some(stop) = self.look_at_stamp(cell)
        {
            return stop;
        }
        // A transaction that has a lock with its stamp in it reads the row after that, and waits.
        let own =
            |c: &LeafRow<'_>| c.flags & cell_flags::STAMPED != 0 && c.stamp.txn == self.txn.id();
        let is_own = current.as_ref().is_some_and(own);
        let live = current.filter(|c| c.flags & cell_flags::DELETED == 0);
        let (txns, space) = (self.services.txns, self.space);
        match live {
            _ if is_own => {}
            Some(_) if txns.check_write(self.txn, space, self.key).is_empty() => {}
            None if txns.check_insert(self.txn, space, self.key).is_empty() => {}
            Some(_) => return WriteStop::Locked,
            None => return WriteStop::LockedAbsent,
        }
        match (self.expect, live) {
            (Expect::Nothing, None) => WriteStop::No,
            (Expect::Nothing, Some(_)) => WriteStop::Duplicate,
            (Expect::Version { stamp, row }, Some(cell)) if same(cell.stamp, stamp, self) => {
                if cell.row == row { WriteStop::No } else { WriteStop::Changed }
            }
            (Expect::Version { .. }, _) => WriteStop::Changed,
        }
    }

    fn look_at_stamp(&self, cell: &LeafRow<'_>) -> Option<WriteStop> {
        let stamp = cell.stamp;
        if cell.flags & cell_flags::STAMPED == 0 || stamp.txn == self.txn.id() {
            return None;
        }
        match self.services.txns.state(stamp.txn) {
            TxnState::Active | TxnState::Prepared => Some(WriteStop::Undecided(stamp.txn)),
            TxnState::Aborted => Some(WriteStop::Aborted(stamp)),
            TxnState::Committed(_) if self.services.txns.is_dead(stamp) => {
                Some(WriteStop::Aborted(stamp))
            }
            TxnState::Committed(cts) => {
                let live = cell.flags & cell_flags::DELETED == 0;
                let duplicate = live && matches!(self.expect, Expect::Nothing);
                let younger = self.snapshot.is_some_and(|at| cts > at);
                (younger && !duplicate).then_some(WriteStop::Conflict(stamp.txn))
            }
        }
    }
}

/// True for the same version: a reorganization may have dropped the stamp of a committed one
/// meanwhile.
fn same(now: Stamp, before: Stamp, op: &RowOp<'_>) -> bool {
    now == before || (now == Stamp::default() && before.txn != op.txn.id())
}

impl LeafOp for RowOp<'_> {
    fn decide<'a>(&'a mut self, current: Option<LeafRow<'_>>) -> Result<LeafDecision<'a>> {
        self.epoch_pin = None;
        self.stop = self.look(current);
        if self.stop == WriteStop::No {
            self.epoch_pin = self.table.pin(self.epoch);
            if self.epoch_pin.is_none() {
                self.stop = WriteStop::Schema;
            }
        }
        if self.stop != WriteStop::No {
            return Ok(LeafDecision::Stop);
        }
        let of_kind = match self.kind {
            RowKind::Delete => cell_flags::DELETED,
            RowKind::Insert if current.is_none() => cell_flags::FIRST,
            RowKind::Insert | RowKind::Update => 0,
        };
        Ok(LeafDecision::Put {
            kind: RecordKind::Row,
            flags: cell_flags::STAMPED | self.row_flags | of_kind,
            stamp: self.txn.next_stamp(),
            row: self.row,
        })
    }

    fn prepare(&mut self, current: Option<LeafRow<'_>>) -> &[u8] {
        let before = current.map(|c| Before { flags: c.flags, stamp: c.stamp, row: c.row });
        let txns = self.services.txns;
        self.stamp = txns.push_undo(self.txn, self.kind, self.tree, self.key, before.clone());
        let pin = self.services.runs.pin();
        let generation: Generation = pin.generation();
        self.gen_pin = Some(pin);
        self.logical.clear();
        let (table, kind) = (self.table.id(), self.kind);
        let mut edits = Vec::new();
        self.edits.iter().for_each(|edit| edit.encode(&mut edits));
        RowLogical { table, generation, kind, before, chains: &edits, entries: Vec::new() }
            .encode_with(&self.entries.list, self.row, self.logical);
        self.logical
    }

    fn logged(&mut self, lsn: Lsn) {
        self.lsn = lsn;
        let services = &self.services;
        if !self.edits.is_empty() && services.chains.logged(self.stamp, self.tree, self.edits) {
            services.txns.event().notify();
        }
        if let Some(pin) = self.gen_pin.take() {
            for entry in self.entries.iter() {
                if !evenkeel_base::fault_injection::is(
                    evenkeel_base::fault_injection::Fault::EntryNotWritten,
                ) {
                    self.services.runs.insert(&pin, self.memory, &entry, self.key, self.stamp, lsn);
                }
            }
        }
        self.epoch_pin = None;
    }
}

/// Undoes one operation: a compensation record that names it (A1, B6).
pub(crate) struct RevertOp<'a> {
    /// The operation to undo.
    pub stamp: Stamp,
    /// The version before it: flags, stamp, row.
    pub before: Option<(u8, Stamp, &'a [u8])>,
    /// Scratch for the logical half.
    pub logical: Vec<u8>,
    /// The chains that the operation superseded belong to the row again.
    pub chains: &'a Chains,
    pub txns: &'a Txns,
}

impl LeafOp for RevertOp<'_> {
    fn decide<'a>(&'a mut self, current: Option<LeafRow<'_>>) -> Result<LeafDecision<'a>> {
        let here =
            current.is_some_and(|c| c.flags & cell_flags::STAMPED != 0 && c.stamp == self.stamp);
        if !here {
            // Undone before: undoing is idempotent.
            return Ok(LeafDecision::Stop);
        }
        let kind = RecordKind::Revert;
        Ok(match self.before {
            Some((flags, stamp, row)) => LeafDecision::Put { kind, flags, stamp, row },
            None => LeafDecision::Remove { kind },
        })
    }

    fn prepare(&mut self, _current: Option<LeafRow<'_>>) -> &[u8] {
        self.logical.clear();
        encode_revert(&mut self.logical, self.stamp);
        &self.logical
    }

    /// Mark the operation dead while the page is still latched: a checkpoint behind the record, and
    /// so behind the page's write, then has the dead range.
    fn logged(&mut self, _lsn: Lsn) {
        self.txns.note_rolled_back(self.stamp);
        self.chains.reverted(self.stamp);
    }
}

/// Bytes of log that a row record may take.
pub(crate) fn record_bytes(key: usize, row: usize, before: usize, entries: usize) -> usize {
    key + row + before + entries + 128
}
