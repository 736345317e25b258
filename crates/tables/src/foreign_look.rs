//! Current reads of foreign keys: whether a parent row with the values of a key exists now, and
//! whether a row of the child refers to them now. The transaction's snapshot has no part in them.
//!
//! Several rows may have the values, as entries of an index or as rows under one beginning of
//! clustered keys, and are looked at one after the other. Meanwhile another transaction may move
//! one of them to a key that was passed already, and commit. So a look takes a snapshot first. If
//! it finds no row and has met a row that left later than the snapshot, it looks again. The
//! snapshot also keeps that trace of the row until the look has ended.
//!
//! One row is enough. A look for a parent passes undecided rows, and waits for one only if there is
//! no row that is decided; a look for a child ends at the first one.

use crate::foreign::{KeyOf, Link};
use crate::foreign_rows::in_order;
use crate::table::TableState;
use crate::transaction::TableTxn;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{CommitTable, Error, Lsn, Result, Snapshot, Stamp, TxnId, TxnState, UndoNo};
use evenkeel_format::record::{cell_flags, entry_op};
use evenkeel_format::{Value, ValueRef};
use evenkeel_tree::Direction;
use std::ops::Bound;

/// The present state of a key.
pub(crate) enum Presence {
    There,
    Missing,
    /// This transaction decides.
    Undecided(TxnId),
    /// A change that was undone is in the way.
    Undone(Vec<u8>, Stamp),
    /// A row has left later than the look began.
    Left,
}

/// What a look has found until now.
struct Found {
    seen: Presence,
    /// An undecided row does not end the look.
    passes_undecided: bool,
}

impl Found {
    /// Takes the state of one more row; true if the look goes on.
    fn take(&mut self, seen: Presence) -> bool {
        let goes_on = match (&seen, &self.seen) {
            (Presence::There, _) => false,
            (Presence::Undecided(_) | Presence::Undone(..), Presence::Missing | Presence::Left) => {
                self.passes_undecided
            }
            (Presence::Left, Presence::Missing) => true,
            _ => return true,
        };
        self.seen = seen;
        goes_on
    }
}

/// A table's key, and the bytes that rows have there.
type KeyBytes<'k> = (KeyOf, &'k [u8]);

impl TableTxn {
    /// Whether a parent row with these bytes of a key is there.
    pub(crate) fn parent_now(
        &self,
        link: &Link,
        state: &TableState,
        (of, key): KeyBytes<'_>,
    ) -> Result<Presence> {
        let is_whole = link.key.columns.len() == state.layout.key_parts(of).len();
        if (of, is_whole) != (KeyOf::Clustered, true) {
            return self.look(state, (of, key), is_whole, true);
        }
        let mut seen = self.row_now(state, key, false)?;
        if let Presence::Undecided(_) = seen {
            // Its undo stays as long as there is a snapshot from before it is read.
            let _guard = self.store.txns.snapshot();
            seen = self.row_now(state, key, true)?;
        }
        Ok(seen)
    }

    /// Whether a row of the child refers to these values.
    pub(crate) fn child_now(
        &self,
        link: &Link,
        state: &TableState,
        values: &[Value],
    ) -> Result<Presence> {
        let layout = &state.layout;
        let of = link.key.child_key(&layout.def);
        let of = of.ok_or_else(|| Error::internal("the child of a foreign key has no index"))?;
        let parts = layout.key_parts(of);
        let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let values = in_order(link, parts, state, |pair| pair.0, &values)?;
        let Some(key) = layout.encode_whole(parts, &values)? else { return Ok(Presence::Missing) };
        self.look(state, (of, &key), values.len() == parts.len(), false)
    }

    /// Looks for a row under a beginning of keys; `is_whole`: it has all parts.
    fn look(
        &self,
        state: &TableState,
        (of, key): KeyBytes<'_>,
        is_whole: bool,
        is_parent: bool,
    ) -> Result<Presence> {
        loop {
            let guard = self.store.txns.snapshot();
            let mut found = Found { seen: Presence::Missing, passes_undecided: is_parent };
            match of {
                KeyOf::Index(at) => {
                    self.look_at_entries(state, at, (key, is_whole), guard.at(), &mut found)?;
                }
                KeyOf::Clustered => self.look_at_rows(state, key, guard.at(), &mut found)?,
            }
            match found.seen {
                Presence::Left if fault_injection::is(Fault::LookedOnce) => {
                    return Ok(Presence::Missing);
                }
                Presence::Left => self.inner.check_cancel()?,
                seen => return Ok(seen),
            }
        }
    }

    fn look_at_entries(
        &self,
        state: &TableState,
        at: usize,
        (key, is_whole): (&[u8], bool),
        since: Lsn,
        found: &mut Found,
    ) -> Result<()> {
        let (index, me) = (state.layout.index_at(at)?.id, self.inner.id());
        let takes_deleted = found.passes_undecided && fault_injection::is(Fault::ParentWasThere);
        let mut see = |_: &[u8], op: u8, stamp: Stamp, state: TxnState| {
            let is_other = stamp.txn.0 != 0 && stamp.txn != me;
            let seen = match state {
                state if is_other && state.is_undecided() => Presence::Undecided(stamp.txn),
                _ if op & entry_op::INS != 0 || takes_deleted => Presence::There,
                TxnState::Committed(left) if left > since => Presence::Left,
                _ => Presence::Missing,
            };
            let goes_on = found.take(seen);
            // Simulations switch threads between two rows.
            self.store.rt.step();
            goes_on
        };
        let read = match is_whole {
            true => self.store.runs.current(index, key, &mut see),
            false => self.store.runs.current_under(index, key, &mut see),
        };
        self.store.read_index(read)
    }

    fn look_at_rows(
        &self,
        state: &TableState,
        prefix: &[u8],
        since: Lsn,
        found: &mut Found,
    ) -> Result<()> {
        let mut cursor = state.tree.cursor();
        cursor.seek(Bound::Included(prefix), Direction::Forward)?;
        while let Some((key, cell)) = cursor.next()? {
            let mut seen = match key.starts_with(prefix) {
                true => self.judge(key, (cell.flags, cell.stamp), since),
                false => break,
            };
            if found.passes_undecided
                && let Presence::Undecided(_) = seen
                && self.was_there(state, key, (cell.flags, cell.stamp))?
            {
                seen = Presence::There;
            }
            if !found.take(seen) {
                break;
            }
        }
        Ok(())
    }

    /// Whether a row is there. If `older`, an undecided change of a row that was there before
    /// leaves its key as it is.
    fn row_now(&self, state: &TableState, key: &[u8], older: bool) -> Result<Presence> {
        let mut cell = None;
        state.tree.get(key, &mut |found| cell = found.map(|c| (c.flags, c.stamp)))?;
        let Some(cell) = cell else { return Ok(Presence::Missing) };
        match self.judge(key, cell, Lsn::MAX) {
            Presence::Undecided(_) if older && self.was_there(state, key, cell)? => {
                Ok(Presence::There)
            }
            seen => Ok(seen),
        }
    }

    /// True if an undecided change updates a row that was there before: it is there in any case.
    fn was_there(&self, state: &TableState, key: &[u8], cell: (u8, Stamp)) -> Result<bool> {
        let (flags, stamp) = cell;
        if flags & cell_flags::DELETED != 0 {
            return Ok(false);
        }
        let all = Snapshot { at: Lsn::MAX, own: TxnId(0), own_below: UndoNo::ZERO };
        let before = self.store.txns.visible_before(state.tree.id(), key, stamp, &all)?;
        Ok(before.row.is_some())
    }

    /// What the newest version of a row says of its clustered key.
    fn judge(&self, key: &[u8], (flags, stamp): (u8, Stamp), since: Lsn) -> Presence {
        let is_there = flags & cell_flags::DELETED == 0;
        let decided = |left: bool| match (is_there, left) {
            (true, _) => Presence::There,
            (false, true) => Presence::Left,
            (false, false) => Presence::Missing,
        };
        if flags & cell_flags::STAMPED == 0 || stamp.txn == self.inner.id() {
            return decided(false);
        }
        match self.store.txns.state(stamp.txn) {
            TxnState::Active | TxnState::Prepared => Presence::Undecided(stamp.txn),
            TxnState::Aborted => Presence::Undone(key.to_vec(), stamp),
            TxnState::Committed(_) if self.store.txns.is_dead(stamp) => {
                Presence::Undone(key.to_vec(), stamp)
            }
            TxnState::Committed(at) => decided(at > since),
        }
    }
}
