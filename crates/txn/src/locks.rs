//! Locks of rows, absent keys and ranges (protocols A7, D5), for those who hold transactions. The X
//! lock of a modified row is its stamp; it is in the lock table only while somebody waits for it,
//! or while its writer, who has waited, has not written yet. The lock of a unique key is its
//! undecided entry: not here.
//!
//! A key is locked in a space: a tree or an index. Writers call `check_write` under the leaf latch,
//! after they have written (ranges) or before (points), and wait after letting the latch go: in the
//! queue of the key, from where they come out as its holder.

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

/// What keys belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockSpace {
    /// Clustered keys of a tree.
    Tree(TreeId),
    /// Column bytes of a secondary index.
    Index(IndexId),
}

/// What to do about a lock that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Wait for it.
    Wait(Deadline),
    /// Fail with `LockNotAvailable`.
    NoWait,
    /// Give `Grant::Skipped`.
    Skip,
}

/// Outcome of asking for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It is held now.
    Granted,
    /// `Policy::Skip` and another transaction holds it.
    Skipped,
}

/// Bounds of a range of keys in one space.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Space prefix; keys of one space are contiguous and ordered.
fn prefix(space: LockSpace) -> Prefix {
    let (kind, id) = match space {
        LockSpace::Tree(id) => (1, id.0),
        LockSpace::Index(id) => (2, id.0),
    };
    let id = id.to_be_bytes();
    [kind, id[0], id[1], id[2], id[3]]
}

/// A key behind the prefix of its space; short ones ask for no memory.
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
            // The next byte string above.
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

/// `None` for a key without a space, which there is not.
fn info(full: &[u8], txn: TxnId, mode: Mode, granted: bool, range: bool) -> Option<LockInfo> {
    let (prefix, key) = full.split_at_checked(5)?;
    let id = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let space =
        if prefix[0] == 1 { LockSpace::Tree(TreeId(id)) } else { LockSpace::Index(IndexId(id)) };
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

    /// Locks a key. `absent`: it has no row, as was seen before; whoever waits looks again. May
    /// wait: the caller holds no latch.
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

    /// Locks a row on which the stamp of `writer` was seen, which is undecided. Who calls this
    /// looks again when it returns, whether or not it has the lock by then. `covered`: it holds a
    /// lock of a range with the row, and only waits for it. May wait: the caller holds no latch.
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

    /// Waits in the queue of a key; true once it is granted. False if the stamp that was in the way
    /// is decided: look again.
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
                    // Granted while it gave up: what is new of it goes again.
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

    /// Locks a key if nobody is in the way; else gives who is. `row`: it has one. Never waits: may
    /// be called under a latch (A7: stamp check and lock-table insert happen under the leaf latch).
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

    /// Who keeps `me` from writing this key (insert, update or delete): holders of a lock on it or
    /// on a range around it, else who came before and waits for it. Never waits: call it under the
    /// leaf latch; if it is not empty, let the latch go, `wait_write`, and begin again.
    pub fn check_write(&self, me: &TxnRef, space: LockSpace, key: &[u8]) -> Vec<TxnId> {
        self.check(me, space, key, false)
    }

    /// The same of a key that has no row: ranges that lock rows are not in the way.
    pub fn check_insert(&self, me: &TxnRef, space: LockSpace, key: &[u8]) -> Vec<TxnId> {
        self.check(me, space, key, true)
    }

    fn check(&self, me: &TxnRef, space: LockSpace, key: &[u8], absent: bool) -> Vec<TxnId> {
        match self.locks.may_be_against(&prefix(space), key) {
            true => self.locks.against_write(me, &full_key(space, key), absent),
            false => Vec::new(),
        }
    }

    /// True if somebody may hold or ask for a lock in the space: else `check_write` gives nobody.
    pub fn has_locks(&self, space: LockSpace) -> bool {
        self.locks.may_have(&prefix(space))
    }

    /// Waits until `me` may write the key, on which `writer` has an undecided stamp if it is given.
    /// `absent`: it has no row, as was seen before. True: it holds the key as who writes it, until
    /// `row_written`, `row_unwritten` or its end. False: look again.
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

    /// Waits until nobody keeps `me` from a key that it has written already, as an entry of an
    /// index.
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

    /// `me` has changed the row, and the operation is not undone alone any more: a lock of it that
    /// it has asked for in this statement goes, for the stamp says as much. One of an earlier
    /// statement stays, since this one may be undone.
    pub fn row_changed(&self, me: &TxnRef, space: LockSpace, key: &[u8]) {
        self.locks.changed(me, &full_key(space, key));
    }

    /// The row that `me` waited for is written: its stamp holds it.
    pub fn row_written(&self, me: &TxnRef, space: LockSpace, key: &[u8]) {
        self.locks.written(me, &full_key(space, key));
    }

    /// The stamp of `me` is not on the row, and it does not come: others may have it.
    pub fn row_unwritten(&self, me: &TxnRef, space: LockSpace, key: &[u8]) {
        self.locks.unwritten(me, &full_key(space, key));
    }

    /// Lets a row lock taken in this mode go before the end: READ COMMITTED does so for rows that
    /// did not match. One that was raised since stays: whoever raised it wants it. `written`: `me`
    /// has changed the row since, so who waits for it waits on.
    pub fn unlock_row(&self, me: &TxnRef, space: LockSpace, key: &[u8], mode: Mode, written: bool) {
        self.locks.unlock(me, &full_key(space, key), mode, written);
    }

    /// Memory of the lock table now.
    pub fn lock_bytes(&self) -> usize {
        self.locks.bytes()
    }

    /// Locks of the lock table, `limit` at most. A changed row is locked by its stamp and is among
    /// them only while somebody waits for it.
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
