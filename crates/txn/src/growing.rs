//! Growing ranges (RFC 40): a scan that has locked many rows makes a range of these locks, and then
//! moves the end of this range to each further row that it locks. The range locks rows and no keys
//! between them, and no key behind the last row that the scan has returned.
//!
//! A range grows only over a stretch in which no other transaction holds or waits for anything. The
//! caller holds the latch of the leaf of the new row. If the row before it is in the same leaf, and
//! the leaf is as the scan has found it, then there is no other row in between, and the mutex of
//! one key is enough. Otherwise the range `crosses` to another leaf: rows may have come between the
//! two, so the mutexes of all shards are held and all keys of the stretch are examined, as in an
//! escalation. A request that arrives later finds the range: it reads the ranges under the mutex of
//! its key, or was counted before.

use crate::intervals::{KeySpan, behind};
use crate::lock_table::{After, LockTable, Points, bounds};
use crate::owner::{Mode, Owner, Prefix};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A row that a scan locks.
#[derive(Clone, Copy)]
pub(crate) struct NextRow<'a> {
    pub full: &'a [u8],
    pub mode: Mode,
    /// Rows may have come between it and the row before it.
    pub crosses: bool,
}

impl<T: Owner> LockTable<T> {
    /// Makes a range of the keys in `span` that `owner` has lately locked in the mode of `last`,
    /// `count` at most. Returns its ticket if it has `last` at one of its ends.
    pub fn range_of_keys(
        &self,
        owner: &Arc<T>,
        space: &Prefix,
        span: &KeySpan,
        (last, mode): (&[u8], Mode),
        count: usize,
    ) -> Option<u64> {
        // Some entries of the list are of keys that it no longer holds.
        let recent = 2 * count;
        let is_in = |key: &&Arc<[u8]>| span.low[..] <= key[..] && key[..] < span.high[..];
        let mut keys: Vec<_> = {
            let held = owner.held().lock();
            held.keys().iter().rev().take(recent).filter(is_in).cloned().collect()
        };
        keys.sort_unstable();
        keys.dedup();
        let made = self.escalate_space(owner, &keys, Some(mode));
        drop(keys);
        owner.held().lock().tidy_last(recent);
        let ends_there = |ticket: &u64| {
            let span = self.ranges().span(space, *ticket);
            span.is_some_and(|span| span.low == last || span.high == behind(last))
        };
        made.into_iter().find(ends_there)
    }

    /// Extends a range of `owner` to the next row; false if another transaction is in the way.
    pub fn grow(&self, owner: &Arc<T>, space: &Prefix, ticket: u64, next: NextRow<'_>) -> bool {
        let grown = match next.crosses {
            true => self.grow_across(owner, space, ticket, next),
            false => {
                let points = self.shards()[self.number_of(next.full)].points.lock();
                let is_free = points.get(next.full).is_none_or(|p| p.is_held_alone(owner));
                is_free
                    .then(|| self.ranges().grow(owner, (space, ticket), next.mode, next.full))
                    .flatten()
            }
        };
        match grown {
            Some(0) => true,
            Some(bytes) => {
                let mut held = owner.held().lock();
                held.bytes = held.bytes.saturating_add_signed(bytes);
                match bytes > 0 {
                    true => self.bytes.fetch_add(bytes.unsigned_abs(), Relaxed),
                    false => self.bytes.fetch_sub(bytes.unsigned_abs(), Relaxed),
                };
                true
            }
            None => false,
        }
    }

    fn grow_across(
        &self,
        owner: &Arc<T>,
        space: &Prefix,
        ticket: u64,
        next: NextRow<'_>,
    ) -> Option<isize> {
        let stretch = self.ranges().span(space, ticket)?.up_to(next.full);
        let shards: Vec<_> = self.shards().iter().map(|shard| shard.points.lock()).collect();
        let is_free = |points: &Points<T>| {
            let mut there = points.range::<[u8], _>(bounds(&stretch));
            there.all(|(_, point)| point.is_held_alone(owner))
        };
        if !stretch.is_empty() && !shards.iter().all(|points| is_free(points)) {
            return None;
        }
        self.ranges().grow(owner, (space, ticket), next.mode, next.full)
    }

    /// Takes the row to which a range of `owner` has grown last out of it again. `written`: the
    /// stamp of `owner` is on the row, so waiting transactions still wait for it.
    pub fn shrink(&self, owner: &Arc<T>, space: &Prefix, ticket: u64, full: &[u8], written: bool) {
        let mut after = After::default();
        let freed = {
            let mut points = self.shards()[self.number_of(full)].points.lock();
            let key = points.get_key_value(full).map(|(key, _)| key.clone());
            if let (true, Some(key)) = (written, key)
                && let Some(point) = points.get_mut(full).filter(|point| point.is_awaited())
            {
                self.hold_written(&key, point, owner, &mut after);
            }
            self.ranges().shrink(space, ticket, full)
        };
        if let Some(freed) = freed {
            {
                let mut held = owner.held().lock();
                held.bytes = held.bytes.saturating_sub(freed.bytes);
            }
            self.bytes.fetch_sub(freed.bytes, Relaxed);
            self.look_at_freed(space, &freed.keys, &freed.ranges, &mut after);
        }
        self.finish(after);
    }
}
