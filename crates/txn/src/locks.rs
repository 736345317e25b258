//! Locks of rows, absent keys and ranges (protocols A7, D5), for users that hold transactions. The
//! X lock of a modified row is its stamp. The row is in the lock table only while a transaction
//! waits for it, or while its writer, which has waited, has not written yet. The lock of a unique
//! key is its undecided entry and is not here.
//!
//! A key is locked in a space: a tree or an index. Writers call `check_write` under the leaf latch,
//! after the write for ranges and before it for points. They wait after releasing the latch, in the
//! queue of the key, which they leave as its holder.

use crate::growing::NextRow;
use crate::inspect::LockInfo;
use crate::intervals::KeySpan;
use crate::lock_table::{Ask, Entered};
use crate::owner::{Prefix, WaitPlace};
use crate::row_queue::Keep;
use crate::txns::Txns;
use crate::{Deadline, TxnRef};
use evenkeel_base::{Code, Error, IndexId, Result, TreeId, TxnId};
use smallvec::SmallVec;
use std::ops::Bound;

pub use crate::owner::Mode;

/// The space to which keys belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockSpace {
    /// Clustered keys of a tree.
    Tree(TreeId),
    /// Column bytes of a secondary index.
    Index(IndexId),
    /// Clustered keys of a tree that rows of other tables refer to. A lock here keeps the key, not
    /// the other columns of its row.
    Keys(TreeId),
}

/// What to do about a lock that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Wait for it.
    Wait(Deadline),
    /// Fail with `LockNotAvailable`.
    NoWait,
    /// Return `Grant::Skipped`.
    Skip,
}

/// The result of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It is held now.
    Granted,
    /// `Policy::Skip` and another transaction holds it.
    Skipped,
}

/// Bounds of a range of keys in one space.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range lock of a scan, which grows with each further row that the scan locks (RFC 40).
#[derive(Clone, Copy, Debug)]
pub struct GrowingRange {
    space: Prefix,
    ticket: u64,
    mode: Mode,
}

/// Space prefix; keys of one space are contiguous and ordered.
fn prefix(space: LockSpace) -> Prefix {
    let (kind, id) = match space {
        LockSpace::Tree(id) => (1, id.0),
        LockSpace::Index(id) => (2, id.0),
        LockSpace::Keys(id) => (3, id.0),
    };
    let id = id.to_be_bytes();
    [kind, id[0], id[1], id[2], id[3]]
}

/// A key with the prefix of its space; short keys are not allocated.
type FullKey = SmallVec<[u8; 48]>;

fn full_key(space: LockSpace, key: &[u8]) -> FullKey {
    let mut full = FullKey::with_capacity(5 + key.len());
    full.extend_from_slice(&prefix(space));
    full.extend_from_slice(key);
    full
}

fn full_span(space: LockSpace, bounds: KeyBounds<'_>) -> KeySpan {
    let full = |key: &[u8], behind: bool| {
        let mut full = full_key(space, key).into_vec();
        if behind {
            // The next greater byte string.
            full.push(0);
        }
        full
    };
    let low = match bounds.0 {
        Bound::Unbounded => full(&[], false),
        Bound::Included(key) => full(key, false),
        Bound::Excluded(key) => full(key, true),
    };
    let high = match bounds.1 {
        Bound::Unbounded => {
            let [kind, rest @ ..] = prefix(space);
            match u32::from_be_bytes(rest).checked_add(1) {
                Some(next) => [&[kind][..], &next.to_be_bytes()].concat(),
                None => vec![kind + 1],
            }
        }
        Bound::Included(key) => full(key, true),
        Bound::Excluded(key) => full(key, false),
    };
    KeySpan { low, high }
}

/// `None` for a key without a known space, which does not occur.
fn info(full: &[u8], txn: TxnId, mode: Mode, granted: bool, range: bool) -> Option<LockInfo> {
    let (prefix, key) = full.split_at_checked(5)?;
    let id = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let space = match prefix[0] {
        1 => LockSpace::Tree(TreeId(id)),
        2 => LockSpace::Index(IndexId(id)),
        _ => LockSpace::Keys(TreeId(id)),
    };
    Some(LockInfo { txn, space, mode, granted, range, key: key.to_vec() })
}

fn refuse(policy: Policy, holder: TxnId) -> Result<Grant> {
    match policy {
        Policy::Skip => Ok(Grant::Skipped),
        _ => Err(Error::new(Code::LockNotAvailable).with("held_by", holder)),
    }
}

impl Txns {
    fn check_lock(&self, me: &TxnRef) -> Result<()> {
        me.check_open()?;
        self.ensure_id(me);
        match self.locks.make_room(me) {
            Ok(()) => Ok(()),
            Err((bytes, limit)) => {
                Err(Error::new(Code::LocksFull).with("bytes", bytes).with("limit", limit))
            }
        }
    }

    /// Locks a key. `absent`: the key had no row when it was read; after a wait the caller reads it
    /// again. May wait: the caller holds no latch.
    ///
    /// # Errors
    /// `DeadlockVictim`, `LockWaitTimeout`, `LockNotAvailable`, `StatementCancelled`, `LocksFull`,
    /// `TxnEnded`.
    pub fn lock_row(
        &self,
        me: &TxnRef,
        (space, key): (LockSpace, &[u8]),
        absent: bool,
        mode: Mode,
        policy: Policy,
    ) -> Result<Grant> {
        self.check_lock(me)?;
        let full = full_key(space, key);
        match policy {
            Policy::Wait(deadline) => {
                let ask = Ask { mode, keep: Keep::Asked, absent };
                self.queue_for(me, &full, ask, None, deadline)?;
                Ok(Grant::Granted)
            }
            _ => match self.locks.try_point(me, &full, mode, !absent) {
                Ok(()) => Ok(Grant::Granted),
                Err(holder) => refuse(policy, holder),
            },
        }
    }

    /// Locks a row on which the undecided stamp of `writer` was seen. The caller reads the row
    /// again when this returns, whether or not it then has the lock. `covered`: the caller holds a
    /// range lock that contains the row, and only waits for it. May wait: the caller holds no
    /// latch.
    ///
    /// # Errors
    /// As `lock_row`.
    pub fn lock_written_row(
        &self,
        me: &TxnRef,
        (space, key): (LockSpace, &[u8]),
        mode: Mode,
        covered: bool,
        writer: TxnId,
        deadline: Deadline,
    ) -> Result<()> {
        self.check_lock(me)?;
        let keep = if covered { Keep::Nothing } else { Keep::Asked };
        let ask = Ask { mode, keep, absent: false };
        self.queue_for(me, &full_key(space, key), ask, Some(writer), deadline).map(|_| ())
    }

    /// Waits in the queue of a key; true once the lock is granted. False if the stamp in the way is
    /// decided: read the row again.
    fn queue_for(
        &self,
        me: &TxnRef,
        full: &[u8],
        ask: Ask,
        writer: Option<TxnId>,
        deadline: Deadline,
    ) -> Result<bool> {
        debug_assert!(writer != Some(me.id()), "a transaction cannot wait for itself");
        me.check_cancel()?;
        let writer = match writer.map(|id| self.active(id)) {
            Some(None) => return Ok(false),
            Some(writer) => writer,
            None => None,
        };
        me.seat.begin();
        match self.locks.enter(me, full, ask, writer.as_ref()) {
            Entered::Granted => Ok(true),
            Entered::Ended => Ok(false),
            Entered::Queued(key, ticket, held) => {
                let withdraw = || {
                    // Granted while the wait was given up: release the new part of the lock again.
                    match self.locks.withdraw(&key, ticket) {
                        false if ask.keep == Keep::Writes => self.locks.unwritten(me, &key),
                        false if !held => self.locks.unlock(me, &key, ask.mode, false),
                        _ => {}
                    }
                };
                self.wait_at(me, deadline, WaitPlace::Row(key.clone(), ticket), withdraw)?;
                Ok(true)
            }
        }
    }

    /// Locks a key if no transaction is in the way; otherwise returns one that is. `row`: the key
    /// has a row. Never waits, so it may be called under a latch (A7: check of the stamp and
    /// insertion into the lock table happen under the leaf latch).
    ///
    /// # Errors
    /// `LocksFull`, `TxnEnded`.
    pub fn try_lock_row(
        &self,
        me: &TxnRef,
        (space, key): (LockSpace, &[u8]),
        row: bool,
        mode: Mode,
    ) -> Result<std::result::Result<(), TxnId>> {
        self.check_lock(me)?;
        if evenkeel_base::fault_injection::is(evenkeel_base::fault_injection::Fault::LockNotTaken) {
            return Ok(Ok(()));
        }
        Ok(self.locks.try_point(me, &full_key(space, key), mode, row))
    }

    /// Locks a range of keys against writers and conflicting locks. The caller scans *after* it is
    /// granted. May wait: the caller holds no latch.
    ///
    /// # Errors
    /// As `lock_row`.
    pub fn lock_range(
        &self,
        me: &TxnRef,
        space: LockSpace,
        bounds: KeyBounds<'_>,
        mode: Mode,
        policy: Policy,
    ) -> Result<Grant> {
        self.check_lock(me)?;
        me.check_cancel()?;
        let (prefix, span) = (prefix(space), full_span(space, bounds));
        me.seat.begin();
        let Some(ticket) = self.locks.add_range(me, prefix, span, mode) else {
            return Ok(Grant::Granted);
        };
        let place = WaitPlace::Range(prefix, ticket);
        if self.locks.look_again(&prefix, ticket).is_some() || me.seat.is_granted() {
            return Ok(Grant::Granted);
        }
        let withdraw = || self.locks.remove_range(me, &prefix, ticket);
        match policy {
            Policy::Wait(deadline) => {
                self.wait_at(me, deadline, place, withdraw)?;
                Ok(Grant::Granted)
            }
            _ => {
                let holder = self.locks.waits_for(me, &place).first().map(|t| t.id());
                withdraw();
                refuse(policy, holder.unwrap_or_default())
            }
        }
    }

    /// Makes a range of the locks that a scan has taken on `rows`, given in the order of the scan.
    /// None if other transactions hold or wait for anything between the last of them.
    pub fn range_of_rows(
        &self,
        me: &TxnRef,
        space: LockSpace,
        rows: &[Vec<u8>],
        mode: Mode,
    ) -> Option<GrowingRange> {
        let (first, last) = (rows.first()?, rows.last()?);
        let (low, high) = (first.min(last), first.max(last));
        let span = full_span(space, (Bound::Included(low), Bound::Included(high)));
        let (full, space) = (full_key(space, last), prefix(space));
        let ticket = self.locks.range_of_keys(me, &space, &span, (&full, mode), rows.len())?;
        Some(GrowingRange { space, ticket, mode })
    }

    /// Locks the next row of a scan by extending its range; false if another transaction is in the
    /// way. The caller holds the latch of the row's leaf. `crosses`: rows may have come between it
    /// and the row before it, since the leaf is another one or has changed.
    pub fn grow_range(&self, me: &TxnRef, range: GrowingRange, key: &[u8], crosses: bool) -> bool {
        let mut full = FullKey::from_slice(&range.space);
        full.extend_from_slice(key);
        let next = NextRow { full: &full, mode: range.mode, crosses };
        self.locks.grow(me, &range.space, range.ticket, next)
    }

    /// Releases the lock of the row to which a range has grown last. `written` as for `unlock_row`.
    pub fn shrink_range(&self, me: &TxnRef, range: GrowingRange, key: &[u8], written: bool) {
        let full = [&range.space, key].concat();
        self.locks.shrink(me, &range.space, range.ticket, &full, written);
    }

    /// The transactions that block `me` from writing this key (insert, update or delete): holders
    /// of a lock on it or on a range that contains it, or otherwise earlier ones that wait for it.
    /// Never waits: the caller holds the leaf latch; if the result is not empty it releases the
    /// latch, calls `wait_write`, and begins again.
    pub fn check_write(&self, me: &TxnRef, space: LockSpace, key: &[u8]) -> Vec<TxnId> {
        self.check(me, space, key, false)
    }

    /// As `check_write`, for a key that has no row: ranges that lock rows are not in the way.
    pub fn check_insert(&self, me: &TxnRef, space: LockSpace, key: &[u8]) -> Vec<TxnId> {
        self.check(me, space, key, true)
    }

    fn check(&self, me: &TxnRef, space: LockSpace, key: &[u8], absent: bool) -> Vec<TxnId> {
        match self.locks.may_be_against(&prefix(space), key) {
            true => self.locks.against_write(me, &full_key(space, key), absent),
            false => Vec::new(),
        }
    }

    /// False if no transaction holds or requests a lock in the space: then `check_write` returns
    /// none.
    pub fn has_locks(&self, space: LockSpace) -> bool {
        self.locks.may_have(&prefix(space))
    }

    /// Waits until `me` may write the key; `writer` has an undecided stamp on it, if given.
    /// `absent`: the key had no row when it was read. True: `me` holds the key as its writer until
    /// `row_written`, `row_unwritten` or its end. False: read the row again.
    ///
    /// # Errors
    /// `DeadlockVictim`, `LockWaitTimeout`, `StatementCancelled`.
    pub fn wait_write(
        &self,
        me: &TxnRef,
        (space, key): (LockSpace, &[u8]),
        absent: bool,
        writer: Option<TxnId>,
        deadline: Deadline,
    ) -> Result<bool> {
        self.ensure_id(me);
        let ask = Ask { mode: Mode::Exclusive, keep: Keep::Writes, absent };
        self.queue_for(me, &full_key(space, key), ask, writer, deadline)
    }

    /// Waits until no transaction blocks `me` from a key that it has already written, as an entry
    /// of an index.
    ///
    /// # Errors
    /// As `wait_write`.
    pub fn wait_written(
        &self,
        me: &TxnRef,
        space: LockSpace,
        key: &[u8],
        deadline: Deadline,
    ) -> Result<()> {
        self.ensure_id(me);
        let ask = Ask { mode: Mode::Exclusive, keep: Keep::Nothing, absent: false };
        self.queue_for(me, &full_key(space, key), ask, None, deadline).map(|_| ())
    }

    /// `me` has changed the row, and the operation can no longer be undone alone: a lock on the row
    /// that this statement requested is released, because the stamp replaces it. A lock of an
    /// earlier statement stays, since this statement may be undone.
    pub fn row_changed(&self, me: &TxnRef, space: LockSpace, key: &[u8]) {
        self.locks.changed(me, &full_key(space, key));
    }

    /// The row that `me` waited for is written: its stamp holds it.
    pub fn row_written(&self, me: &TxnRef, space: LockSpace, key: &[u8]) {
        self.locks.written(me, &full_key(space, key));
    }

    /// The stamp of `me` is not on the row and will not be: others may lock the row.
    pub fn row_unwritten(&self, me: &TxnRef, space: LockSpace, key: &[u8]) {
        self.locks.unwritten(me, &full_key(space, key));
    }

    /// Releases a row lock taken in this mode before the end of the transaction: READ COMMITTED
    /// does so for rows that did not match. A lock that was raised since stays, because the raised
    /// lock is wanted. `written`: `me` has changed the row since, so waiting transactions continue
    /// to wait.
    pub fn unlock_row(&self, me: &TxnRef, space: LockSpace, key: &[u8], mode: Mode, written: bool) {
        self.locks.unlock(me, &full_key(space, key), mode, written);
    }

    /// Memory of the lock table now.
    pub fn lock_bytes(&self) -> usize {
        self.locks.bytes()
    }

    /// Locks of the lock table, `limit` at most. A changed row is locked by its stamp and is listed
    /// only while a transaction waits for it.
    pub fn inspect_locks(&self, limit: usize) -> Vec<LockInfo> {
        let mut found = Vec::new();
        self.locks.each_point(&mut |full, point| {
            let held = point.holders.iter().map(|h| (&h.owner, h.mode(), true));
            let asked = point.queue.iter().map(|r| (&r.owner, r.mode, false));
            found.extend(
                held.chain(asked).filter_map(|(t, mode, is)| info(full, t.id(), mode, is, false)),
            );
            found.len() < limit
        });
        let room = limit.saturating_sub(found.len());
        self.locks.ranges().each(room, &mut |r| {
            found.extend(info(&r.span.low, r.owner.id(), r.mode, r.granted, true));
        });
        found.truncate(limit);
        found
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod locks_tests;
