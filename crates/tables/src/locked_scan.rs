//! Scans that lock: by clustered key or by an index, in both directions, one row per call.
//!
//! 1. At SERIALIZABLE the whole range is locked first; then rows of the table are only waited for,
//!    and rows found by an index are locked too. From REPEATABLE READ on a lookup of one unique key
//!    locks the key if there is no row. A scan that skips rows of other transactions (SKIP LOCKED)
//!    locks neither, only the rows that it returns.
//! 2. Keys come from a copied leaf or a batch of index entries; the row is read and locked under
//!    the leaf latch (A7). For an index the row's key is checked again afterwards: a row that has
//!    another key by now is unlocked and skipped. No latch is held between two calls. A copied leaf
//!    is used as long as the leaf is unchanged, which the holder of the latch sees; behind a
//!    change, and behind the last row, the scan seeks its last key in the present tree.
//! 3. Leaves noted as dead (E6) are skipped unread. The lock of a range that covers them was taken
//!    before. A writer that puts a row into such a leaf first removes the note, so it either comes
//!    before the scan or finds that lock.
//! 4. Many row locks of one scan become a lock of their range, so that memory does not grow with
//!    the rows.
//!
//! Rows that the transaction itself has inserted since the scan was opened are not returned (A6);
//! rows that it has changed are returned as they are now.
//!
//! A peek (semi-consistent read) returns the last committed version of a row that another
//! transaction holds, without a lock; the next call locks that row, unless `unlock` said that it is
//! not wanted.

use crate::locker::{Locker, Where, not_available};
use crate::range::{ByteRange, Range};
use crate::read::{LockWait, Locked, ReadView};
use crate::row::Row;
use crate::scan::{AHEAD_MAX, Locking, index_direction, is_past, key_range, row_has_key, seek};
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::transaction::{Isolation, TableTxn};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, IndexId, Lsn, Result, Snapshot, UndoNo};
use evenkeel_runs::Sees;
use evenkeel_tree::{Cursor, Direction};
use evenkeel_txn::{LockSpace, Mode, Policy};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Row locks of a scan that become one lock of their range.
const COALESCED_ROWS: usize = 1024;

/// The result of a step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// There are no more rows.
    End,
    /// A row, locked.
    Locked,
    /// The last committed version of a row that another transaction holds.
    Peeked,
}

/// An entry of an index that was read ahead: key, clustered key.
type Ahead = (Vec<u8>, Vec<u8>);

/// The source of keys.
enum Keys {
    /// One clustered key; `None` once it was read.
    One(Option<Vec<u8>>),
    /// The table's tree. `sought`: false until the first seek. `moves`: the leaf has changed while
    /// its rows were returned, as it does if each of them is changed.
    Tree { cursor: Box<Cursor>, sought: bool, moves: bool },
    /// The index at this position, and the keys to lock if there is no row.
    Index { at: usize, id: IndexId, ahead: VecDeque<Ahead>, unique: Option<ByteRange> },
}

/// A scan that locks the rows that it returns.
pub struct LockedScan {
    locker: Locker,
    state: Arc<TableState>,
    keys: Keys,
    /// The rest of the range.
    range: ByteRange,
    direction: Direction,
    locking: Locking,
    /// Key of the index entry of the last row; empty without an index.
    entry_key: Vec<u8>,
    /// Clustered key of the last row.
    here: Vec<u8>,
    /// Clustered key of the row before it in the tree, from which to search again.
    before: Vec<u8>,
    /// This scan took the lock of the last row.
    took: bool,
    /// The transaction's next operation when the last row was returned.
    given_at: UndoNo,
    /// The last row was returned as a peek.
    peeked: bool,
    /// Locks taken that may become one of a range.
    taken: Vec<Vec<u8>>,
}

impl LockedScan {
    /// The store it reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.locker.store
    }

    /// Locks and reads the next row; false at the end.
    ///
    /// # Errors
    /// `RowChanged`, lock errors (a deadlock has rolled the transaction back), of storage.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        Ok(self.step(row, false)? == Given::Locked)
    }

    /// As `next`, but returns a row that another transaction holds once, as it was committed last.
    /// Rows found by an index are not peeked at.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_or_peek(&mut self, row: &mut Row) -> Result<Given> {
        self.step(row, true)
    }

    /// Calls `f` with each remaining row, locked; `f` returns false to stop.
    ///
    /// # Errors
    /// As `next`, and what `f` returns.
    pub fn each(mut self, f: &mut dyn FnMut(&Row) -> Result<bool>) -> Result<()> {
        let mut row = Row::new();
        while self.next(&mut row)? {
            if !f(&row)? {
                break;
            }
        }
        Ok(())
    }

    /// Releases the lock of the last row, if this scan took it: the row is not wanted, or the
    /// transaction has changed it and holds it by the change as well.
    pub fn unlock(&mut self) {
        self.peeked = false;
        if std::mem::replace(&mut self.took, false) {
            let space = LockSpace::Tree(self.state.tree.id());
            let (mode, me) = (self.locking.mode, &self.locker.inner);
            let written = me.mark() > self.given_at;
            self.locker.store.txns.unlock_row(me, space, &self.here, mode, written);
            if self.taken.last() == Some(&self.here) {
                self.taken.pop();
            }
        }
    }

    /// Continues behind a row of the scan, given by its clustered key bytes and, for an index, the
    /// bytes of its entry (empty without an index).
    ///
    /// # Errors
    /// Of storage.
    pub fn resume_after(&mut self, entry_key: &[u8], key: &[u8]) -> Result<()> {
        (self.took, self.peeked) = (false, false);
        (self.entry_key, self.here) = (entry_key.to_vec(), key.to_vec());
        match &mut self.keys {
            Keys::One(left) => *left = None,
            Keys::Tree { cursor, sought, .. } => {
                if !*sought {
                    seek(cursor, &self.range, self.direction)?;
                    *sought = true;
                }
                cursor.resume_after(key)?;
            }
            Keys::Index { ahead, .. } => {
                ahead.clear();
                cut(&mut self.range, self.direction, entry_key, key);
            }
        }
        Ok(())
    }

    /// The entry's key bytes (empty without an index) and the clustered key bytes of the row given
    /// last, for `resume_after`.
    pub fn place(&self) -> (&[u8], &[u8]) {
        (&self.entry_key, &self.here)
    }

    fn step(&mut self, row: &mut Row, peek: bool) -> Result<Given> {
        let given = self.find(row, peek);
        self.locker.ends(given)
    }

    fn find(&mut self, row: &mut Row, peek: bool) -> Result<Given> {
        row.clear();
        self.took = false;
        // A row in a locked range is not locked itself, so no lock call reports an ended
        // transaction.
        self.locker.inner.check_open()?;
        loop {
            let again = std::mem::replace(&mut self.peeked, false);
            if !again && !self.next_key()? {
                return Ok(Given::End);
            }
            let peek = peek && !again && !matches!(self.keys, Keys::Index { .. });
            match self.lock_here(row, peek, again)? {
                Locked::Row => {}
                Locked::Moved => {
                    self.look_anew();
                    continue;
                }
                Locked::Skipped if peek && self.locking.wait != LockWait::Skip => {
                    if self.read_committed(row)? {
                        self.peeked = true;
                        return Ok(Given::Peeked);
                    }
                    continue;
                }
                _ => continue,
            }
            // A key may be made from values in overflow pages.
            self.store().load_references(&self.state, row, None)?;
            if let Keys::Index { at, .. } = self.keys
                && !row_has_key(&self.state, at, row, &self.entry_key)?
            {
                // The row does not belong to the scan (any more).
                self.unlock();
                continue;
            }
            self.store().rt.metrics.add(Metric::RowsRead, 1);
            return Ok(Given::Locked);
        }
    }

    /// Continues behind the row before the last one, in the present tree.
    fn look_anew(&mut self) {
        if let Keys::Tree { moves, .. } = &mut self.keys {
            *moves = true;
            self.here.clone_from(&self.before);
        }
    }

    /// Where to look for the row at `here`.
    fn place_of_key(&self, again: bool) -> Where<'_> {
        match &self.keys {
            // A peeked row may have been passed long ago.
            Keys::Tree { cursor, moves: false, .. } if !again => Where::Cursor(cursor),
            _ => Where::Tree,
        }
    }

    /// Locks the row at `here` and reads it.
    fn lock_here(&mut self, row: &mut Row, peek: bool, again: bool) -> Result<Locked> {
        let mut locking = self.locking;
        if peek {
            locking.wait = LockWait::Skip;
        }
        let one = matches!(self.keys, Keys::One(_));
        let absent = one && self.locker.locks_absent(locking.wait);
        let held = self.locker.inner.locked_rows();
        let place = (&self.here[..], self.place_of_key(again));
        let locked = self.locker.lock_row_at(&self.state, place, locking, absent, row)?;
        self.took = locked == Locked::Row && self.locker.inner.locked_rows() > held;
        self.given_at = self.locker.inner.mark();
        if self.took && matches!(self.keys, Keys::Tree { .. }) {
            self.taken.push(self.here.clone());
            if self.taken.len() > COALESCED_ROWS {
                self.coalesce()?;
            }
        }
        Ok(locked)
    }

    /// Replaces the locks of many rows, except the last, by one lock of their range, unless another
    /// transaction holds a lock in between.
    fn coalesce(&mut self) -> Result<()> {
        let last = self.taken.pop();
        let (txns, me) = (&self.locker.store.txns, &self.locker.inner);
        let space = LockSpace::Tree(self.state.tree.id());
        let (mut from, mut to) = (&self.taken[0], &self.taken[self.taken.len() - 1]);
        if self.direction == Direction::Backward {
            std::mem::swap(&mut from, &mut to);
        }
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        match txns.lock_range(me, space, bounds, self.locking.mode, Policy::NoWait) {
            // The newest first: it is at the end of the transaction's list.
            Ok(_) => self
                .taken
                .iter()
                .rev()
                .for_each(|key| txns.unlock_row(me, space, key, self.locking.mode, false)),
            Err(error) if error.code() == Code::LockNotAvailable => {}
            Err(error) => return Err(error),
        }
        self.taken.clear();
        self.taken.extend(last);
        Ok(())
    }

    /// The last committed version of the row at `here`.
    fn read_committed(&self, row: &mut Row) -> Result<bool> {
        let store = &self.locker.store;
        let guard = Arc::new(store.txns.snapshot());
        let view = ReadView {
            snapshot: guard.committed(),
            dirty: false,
            rechecks: false,
            entries: Sees::Snapshot,
            guard: Some(guard),
        };
        Ok(store.read(&self.state, &self.here, &view, row)?
            && store.load_in_view(&self.state, &view, row)?)
    }

    /// Puts the next key into `here` (and `entry_key`); false at the end.
    fn next_key(&mut self) -> Result<bool> {
        match &mut self.keys {
            Keys::One(left) => {
                let Some(key) = left.take() else { return Ok(false) };
                self.here = key;
                Ok(true)
            }
            Keys::Tree { cursor, sought, moves } => {
                let within = !cursor.is_between_leaves();
                match *sought {
                    false => {
                        seek(cursor, &self.range, self.direction)?;
                        // The scan should have continued behind a row, and could not.
                        if !self.here.is_empty() {
                            cursor.resume_after(&self.here)?;
                        }
                    }
                    // Within a leaf, locking the row shows whether the copy is old.
                    true if within && !*moves => {}
                    true if !self.here.is_empty() => cursor.resume_after(&self.here)?,
                    true if *moves => seek(cursor, &self.range, self.direction)?,
                    true => {}
                }
                (*sought, *moves) = (true, *moves && within);
                match cursor.next()? {
                    Some((key, _)) if !is_past(&self.range, self.direction, key) => {
                        std::mem::swap(&mut self.before, &mut self.here);
                        self.here.clear();
                        self.here.extend_from_slice(key);
                        Ok(true)
                    }
                    _ => Ok(false),
                }
            }
            Keys::Index { ahead, .. } => {
                if ahead.is_empty() {
                    self.read_ahead()?;
                }
                let Keys::Index { ahead, .. } = &mut self.keys else { return Ok(false) };
                let Some((key, pk)) = ahead.pop_front() else { return Ok(false) };
                cut(&mut self.range, self.direction, &key, &pk);
                (self.entry_key, self.here) = (key, pk);
                Ok(true)
            }
        }
    }

    /// Reads index entries ahead. If there is none under a unique key, locks the key.
    fn read_ahead(&mut self) -> Result<()> {
        let Keys::Index { id, unique, .. } = &mut self.keys else { return Ok(()) };
        if self.range.is_empty() {
            return Ok(());
        }
        let (id, absent) = (*id, unique.take());
        let mut batch = self.current_entries(id)?;
        if let (true, Some(absent)) = (batch.is_empty(), absent) {
            self.locker.lock_range(LockSpace::Index(id), &absent, self.locking)?;
            batch = self.current_entries(id)?;
        }
        if let Keys::Index { ahead, .. } = &mut self.keys {
            *ahead = batch;
        }
        Ok(())
    }

    /// Some entries from the beginning of the range, in their present state: committed and own
    /// ones. Another transaction's undecided entry is treated like a locked row (A7): entries
    /// before it come first.
    fn current_entries(&self, index: IndexId) -> Result<VecDeque<Ahead>> {
        let Locker { store, inner, .. } = &self.locker;
        let wait = self.locking.wait;
        loop {
            inner.check_cancel()?;
            let guard = store.txns.snapshot();
            let snapshot =
                Snapshot { at: Lsn::MAX, own: inner.id(), own_below: self.locker.own_below };
            let (range, direction) =
                (key_range(self.range.clone()), index_direction(self.direction));
            let mut cursor = store.runs.cursor(index, range, direction, snapshot)?;
            let mut batch = VecDeque::with_capacity(AHEAD_MAX);
            while batch.len() < AHEAD_MAX {
                let entry = store
                    .read_index(cursor.next())?
                    .map(|entry| (entry.key.to_vec(), entry.pk.to_vec()));
                let Some(entry) = entry else { break };
                if wait != LockWait::Skip && cursor.undecided().is_some() {
                    break;
                }
                batch.push_back(entry);
            }
            let undecided = cursor.undecided();
            drop((cursor, guard));
            match (undecided, wait) {
                (None, _) | (_, LockWait::Skip) => return Ok(batch),
                _ if !batch.is_empty() => return Ok(batch),
                (Some(other), LockWait::NoWait) => return Err(not_available(other)),
                (Some(other), LockWait::Wait) => self.locker.wait_txn(other)?,
            }
        }
    }
}

/// Removes from the range everything up to the entry (key, pk), in the direction of the scan.
fn cut(range: &mut ByteRange, direction: Direction, key: &[u8], pk: &[u8]) {
    let mut at = [key, pk].concat();
    match direction {
        Direction::Forward => {
            // The next greater byte string.
            at.push(0);
            range.lower = at;
        }
        Direction::Backward => range.upper = Some(at),
    }
}

/// The values, if the range is one prefix of a key.
fn prefix_len(range: &Range<'_>) -> Option<usize> {
    match (range.lower, range.upper) {
        (Bound::Included(a), Bound::Included(b)) if a == b && a.iter().all(|v| !v.is_null()) => {
            Some(a.len())
        }
        _ => None,
    }
}

impl TableTxn {
    /// A scan that locks the newest versions of the rows whose primary key lies in `range`.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn locked_scan(
        &mut self,
        table: &Arc<Table>,
        range: Range<'_>,
        direction: Direction,
        locking: Locking,
    ) -> Result<LockedScan> {
        self.enter(table, Use::Write)?;
        let state = table.state();
        let parts = state.layout.key.len();
        let one = prefix_len(&range).is_some_and(|len| len == parts && parts > 0);
        // For one key only the beginning of its range counts.
        let range = if one { Range { upper: Bound::Unbounded, ..range } } else { range };
        let mut range = state.layout.byte_range(&state.layout.key, range)?;
        let mut keys = Keys::One(None);
        if one {
            keys = Keys::One(Some(std::mem::take(&mut range.lower)));
        } else if !range.is_empty() {
            let mut cursor = state.tree.cursor();
            cursor.set_use_once(range.upper.is_none() && range.lower.is_empty());
            keys = Keys::Tree { cursor: Box::new(cursor), sought: false, moves: false };
        }
        let space = LockSpace::Tree(state.tree.id());
        self.locked_scan_of(state, keys, range, direction, locking, (space, None))
    }

    /// As `locked_scan`, for rows whose key of the index at position `index` lies in `range`.
    ///
    /// # Errors
    /// As `locked_scan`; `IndexMissing` while the index is being built.
    pub fn locked_index_scan(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        range: Range<'_>,
        direction: Direction,
        locking: Locking,
    ) -> Result<LockedScan> {
        self.enter(table, Use::Write)?;
        let state = table.state();
        let layout = state.layout.index_at(index)?;
        layout.check_readable(Lsn::MAX)?;
        let id = layout.id;
        let unique =
            prefix_len(&range).is_some_and(|len| layout.unique && len == layout.parts.len());
        let covering = state.layout.index_lock_range(layout, range)?;
        let range = state.layout.index_range(layout, range)?;
        let absent = unique && self.locker().locks_absent(locking.wait);
        let unique = absent.then(|| covering.clone());
        let keys = Keys::Index { at: index, id, ahead: VecDeque::new(), unique };
        self.locked_scan_of(
            state,
            keys,
            range,
            direction,
            locking,
            (LockSpace::Index(id), Some(covering)),
        )
    }

    /// Locks a range of keys of the index at position `index`, or of the primary key, exclusively,
    /// at every isolation level: no other transaction writes a row there until this one ends.
    ///
    /// # Errors
    /// As `locked_index_scan`.
    pub fn lock_range(
        &mut self,
        table: &Arc<Table>,
        index: Option<usize>,
        range: Range<'_>,
    ) -> Result<()> {
        self.enter(table, Use::Write)?;
        let state = table.state();
        let (space, range) = match index {
            Some(index) => {
                let layout = state.layout.index_at(index)?;
                (LockSpace::Index(layout.id), state.layout.index_lock_range(layout, range)?)
            }
            None => {
                let range = state.layout.byte_range(&state.layout.key, range)?;
                (LockSpace::Tree(state.tree.id()), range)
            }
        };
        let locker = self.locker();
        let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
        self.statement(|_| locker.lock_range(space, &range, locking))
    }

    fn locked_scan_of(
        &mut self,
        state: Arc<TableState>,
        mut keys: Keys,
        range: ByteRange,
        direction: Direction,
        locking: Locking,
        // If no range is to be locked, it is the range of the scan.
        (space, covering): (LockSpace, Option<ByteRange>),
    ) -> Result<LockedScan> {
        let mut locker = self.locker();
        if let Keys::Tree { cursor, .. } = &mut keys {
            // In a leaf noted as dead every row was deleted by a committed transaction, so there is
            // nothing to lock. But if a deletion is newer than the transaction's snapshot, the scan
            // has to meet it: a conflict.
            cursor.set_snapshot(Some(locker.snapshot.unwrap_or(Lsn::MAX)));
        }
        locker.own_below = self.inner.mark();
        // A range is one lock, so locks of other transactions inside it cannot be skipped.
        let whole = self.isolation == Isolation::Serializable && locking.wait != LockWait::Skip;
        if whole && !range.is_empty() && !matches!(keys, Keys::One(_)) {
            let covering = covering.as_ref().unwrap_or(&range);
            self.statement(|_| locker.lock_range(space, covering, locking))?;
            // The lock of an index range does not cover the rows.
            locker.covered = matches!(keys, Keys::Tree { .. });
        }
        Ok(LockedScan {
            locker,
            state,
            keys,
            range,
            direction,
            locking,
            entry_key: Vec::new(),
            here: Vec::new(),
            before: Vec::new(),
            took: false,
            given_at: UndoNo::ZERO,
            peeked: false,
            taken: Vec::new(),
        })
    }
}
