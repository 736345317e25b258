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
//! 4. Many row locks of one scan of the tree become a lock of their range, which then grows with
//!    each row (RFC 40). It ends where another transaction holds or waits for anything, and at a
//!    row that is not locked or is locked otherwise.
//!
//! Rows that the transaction itself has inserted since the scan was opened are not returned (A6);
//! rows that it has changed are returned as they are now.
//!
//! A peek (semi-consistent read) returns the last committed version of a row that another
//! transaction holds, without a lock; the next call locks that row, unless `unlock` said that it is
//! not wanted.

use crate::ahead::EntriesAhead;
use crate::locker::{Locker, Where, not_available};
use crate::range::{ByteRange, KeySet};
use crate::read::{LockWait, Locked, ReadView};
use crate::row::Row;
use crate::scan::{AHEAD_MAX, Locking, index_direction, is_past, key_range, row_has_key, seek};
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::transaction::{Isolation, TableTxn};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{IndexId, Lsn, Result, Snapshot, UndoNo};
use evenkeel_runs::Sees;
use evenkeel_tree::{Cursor, Direction};
use evenkeel_txn::{LockSpace, Mode};
use std::ops::Bound;
use std::sync::Arc;

/// Row locks of a scan that become one lock of their range.
const RANGE_ROWS: usize = 256;

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

/// The source of keys.
enum Keys {
    /// One clustered key; `None` once it was read.
    One(Option<Vec<u8>>),
    /// The table's tree. `sought`: false until the first seek. `moves`: the leaf has changed while
    /// its rows were returned, as it does if each of them is changed.
    Tree { cursor: Box<Cursor>, sought: bool, moves: bool },
    /// The index at this position, and the keys to lock if there is no row.
    Index { at: usize, id: IndexId, ahead: Box<Ahead>, unique: Option<ByteRange> },
}

/// Entries of an index that were read ahead; those from `next` on were not returned.
#[derive(Default)]
struct Ahead {
    entries: EntriesAhead,
    next: usize,
}

impl Ahead {
    fn clear(&mut self) {
        self.entries.clear();
        self.next = 0;
    }

    fn is_used_up(&self) -> bool {
        self.next == self.entries.len()
    }
}

/// A scan that locks the rows that it returns.
pub struct LockedScan {
    locker: Locker,
    state: Arc<TableState>,
    keys: Keys,
    /// The range; by an index, the rest of it when entries were read ahead.
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

    /// True if it goes in the order of an index.
    pub fn is_by_index(&self) -> bool {
        matches!(self.keys, Keys::Index { .. })
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
            let space = self.state.lock_space();
            let (mode, me) = (self.locking.mode, &self.locker.inner);
            let written = me.mark() > self.given_at;
            let growing = &self.locker.growing;
            if let (Some(range), true) = (growing.range.get(), growing.has_last()) {
                growing.range.set(None);
                self.locker.store.txns.shrink_range(me, range, &self.here, written);
                return;
            }
            self.locker.store.txns.unlock_row(me, space, &self.here, mode, written);
            // A range does not lock rows between that are not wanted.
            match written {
                true if self.taken.last() == Some(&self.here) => drop(self.taken.pop()),
                true => {}
                false => self.taken.clear(),
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
        if key != self.here {
            // No range locks the rows between.
            self.locker.growing.range.set(None);
            self.taken.clear();
        }
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
            // Reading ahead begins behind the row.
            Keys::Index { ahead, .. } => ahead.clear(),
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
        self.given_at = self.locker.inner.mark();
        let grown = self.locker.growing.has_last();
        self.took = locked == Locked::Row && (grown || self.locker.inner.locked_rows() > held);
        if self.took && !grown && matches!(self.keys, Keys::Tree { .. }) {
            self.taken.push(self.here.clone());
            if self.taken.len() >= RANGE_ROWS {
                self.make_range();
            }
        }
        Ok(locked)
    }

    /// Makes a range of the locks of many rows, if no other transaction holds or waits for anything
    /// in between.
    fn make_range(&mut self) {
        let (txns, me) = (&self.locker.store.txns, &self.locker.inner);
        let space = self.state.lock_space();
        let range = txns.range_of_rows(me, space, &self.taken, self.locking.mode);
        self.taken.clear();
        let growing = &self.locker.growing;
        growing.locked.set(range.is_some());
        growing.crosses.set(false);
        growing.range.set(range);
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
                if !within || !*sought || *moves {
                    self.locker.growing.crosses.set(true);
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
                if ahead.is_used_up() {
                    self.read_ahead()?;
                }
                let Keys::Index { ahead, .. } = &mut self.keys else { return Ok(false) };
                if ahead.is_used_up() {
                    return Ok(false);
                }
                let entry = ahead.entries.get(ahead.next);
                self.entry_key.clear();
                self.entry_key.extend_from_slice(entry.key);
                self.here.clear();
                self.here.extend_from_slice(entry.pk);
                ahead.next += 1;
                Ok(true)
            }
        }
    }

    /// Reads index entries ahead, behind the last row. If there is none under a unique key, locks
    /// the key.
    fn read_ahead(&mut self) -> Result<()> {
        let Keys::Index { id, ahead, unique, .. } = &mut self.keys else { return Ok(()) };
        // A range that is empty has no row.
        if !self.here.is_empty() {
            cut(&mut self.range, self.direction, &self.entry_key, &self.here);
        }
        let (id, unique, mut ahead) = (*id, unique.take(), std::mem::take(ahead));
        let read = self.read_entries(id, unique, &mut ahead);
        if let Keys::Index { ahead: kept, .. } = &mut self.keys {
            *kept = ahead;
        }
        read
    }

    fn read_entries(
        &self,
        id: IndexId,
        absent: Option<ByteRange>,
        ahead: &mut Ahead,
    ) -> Result<()> {
        ahead.clear();
        if self.range.is_empty() {
            return Ok(());
        }
        self.current_entries(id, &mut ahead.entries)?;
        if let (0, Some(absent)) = (ahead.entries.len(), absent) {
            let space = LockSpace::Index(self.state.layout.locks_of(id));
            self.locker.lock_range(space, &absent, self.locking)?;
            self.current_entries(id, &mut ahead.entries)?;
        }
        Ok(())
    }

    /// Some entries from the beginning of the range, in their present state: committed and own
    /// ones. Another transaction's undecided entry is treated like a locked row (A7): entries
    /// before it come first.
    fn current_entries(&self, index: IndexId, entries: &mut EntriesAhead) -> Result<()> {
        let Locker { store, inner, .. } = &self.locker;
        let wait = self.locking.wait;
        loop {
            inner.check_cancel()?;
            entries.clear();
            let guard = store.txns.snapshot();
            let snapshot =
                Snapshot { at: Lsn::MAX, own: inner.id(), own_below: self.locker.own_below };
            let (range, direction) =
                (key_range(self.range.clone()), index_direction(self.direction));
            let mut cursor = store.runs.cursor(index, range, direction, snapshot)?;
            while entries.len() < AHEAD_MAX {
                let Some(entry) = store.read_index(cursor.next())? else { break };
                entries.push(&entry);
                if wait != LockWait::Skip && cursor.undecided().is_some() {
                    // The entry may lie behind the undecided one.
                    entries.pop();
                    break;
                }
            }
            let undecided = cursor.undecided();
            drop((cursor, guard));
            match (undecided, wait) {
                (None, _) | (_, LockWait::Skip) => return Ok(()),
                _ if entries.len() > 0 => return Ok(()),
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

/// The number of values, if the keys are those that begin with certain values.
fn prefix_len(keys: KeySet<'_>) -> Option<usize> {
    let KeySet::In(range) = keys else { return None };
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
    pub fn locked_scan<'k>(
        &mut self,
        table: &Arc<Table>,
        keys: impl Into<KeySet<'k>>,
        direction: Direction,
        locking: Locking,
    ) -> Result<LockedScan> {
        let keys = keys.into();
        self.enter(table, Use::Write)?;
        let state = table.state();
        let (keys, range) = match state.point(keys)? {
            // Its range is not used.
            Some(key) => (Keys::One(Some(key)), ByteRange::default()),
            None => {
                let range = state.layout.byte_range(&state.layout.key, keys)?;
                if range.is_empty() {
                    (Keys::One(None), range)
                } else {
                    let mut cursor = state.tree.cursor();
                    cursor.set_use_once(range.upper.is_none() && range.lower.is_empty());
                    let cursor = Box::new(cursor);
                    (Keys::Tree { cursor, sought: false, moves: false }, range)
                }
            }
        };
        let space = state.lock_space();
        self.locked_scan_of(state, keys, range, direction, locking, (space, None))
    }

    /// As `locked_scan`, for rows whose key of the index at position `index` lies in `range`.
    ///
    /// # Errors
    /// As `locked_scan`; `IndexMissing` while the index is being built.
    pub fn locked_index_scan<'k>(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        keys: impl Into<KeySet<'k>>,
        direction: Direction,
        locking: Locking,
    ) -> Result<LockedScan> {
        let keys = keys.into();
        self.enter(table, Use::Write)?;
        let state = table.state();
        let layout = state.layout.index_at(index)?;
        layout.check_readable(Lsn::MAX)?;
        let id = layout.id;
        let unique = prefix_len(keys).is_some_and(|len| layout.unique && len == layout.parts.len());
        let covering = state.layout.index_lock_range(layout, keys)?;
        let range = state.layout.index_range(layout, keys)?;
        let absent = unique && self.locker().locks_absent(locking.wait);
        let unique = absent.then(|| covering.clone());
        let keys = Keys::Index { at: index, id, ahead: Box::default(), unique };
        let space = LockSpace::Index(state.layout.locks_of(id));
        self.locked_scan_of(state, keys, range, direction, locking, (space, Some(covering)))
    }

    /// Locks a range of keys of the index at position `index`, or of the primary key, exclusively,
    /// at every isolation level: no other transaction writes a row there until this one ends.
    ///
    /// # Errors
    /// As `locked_index_scan`.
    pub fn lock_range<'k>(
        &mut self,
        table: &Arc<Table>,
        index: Option<usize>,
        keys: impl Into<KeySet<'k>>,
    ) -> Result<()> {
        let keys = keys.into();
        if let Some(chunked) = table.chunked() {
            return self.lock_range_chunked(table, chunked, index, keys);
        }
        self.enter(table, Use::Write)?;
        let state = table.state();
        let (space, range) = match index {
            Some(index) => {
                let layout = state.layout.index_at(index)?;
                let space = LockSpace::Index(state.layout.locks_of(layout.id));
                (space, state.layout.index_lock_range(layout, keys)?)
            }
            None => {
                let range = state.layout.byte_range(&state.layout.key, keys)?;
                (state.lock_space(), range)
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
