//! Invariants of transactions, locks and undo, for debug builds. They hold whenever no thread is
//! inside a call: at every point where the simulator switches threads, and when a database has no
//! users. The simulator and the close of a database check them.
#![cfg(debug_assertions)]

use crate::lock_table::{LockTable, bounds};
use crate::owner::{Mode, Owner};
use crate::range_locks::Covers;
use crate::row_queue::{Holder, Point, Request};
use crate::txns::Txns;
use crate::{Phase, TxnCore};
use evenkeel_base::TxnId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The locks of one owner, as the table has them.
struct InTable<T> {
    owner: Arc<T>,
    points: usize,
    asked: usize,
}

impl<T: Owner> LockTable<T> {
    /// Panics if two transactions hold a key in modes that conflict, if a granted range conflicts
    /// with another range or with a holder of a key in it, or if counts differ from what they
    /// count.
    pub(crate) fn check_invariants(&self) {
        let mut owners: BTreeMap<TxnId, InTable<T>> = BTreeMap::new();
        for shard in self.shards() {
            let points = shard.points.lock();
            assert_eq!(shard.count.load(Ordering::SeqCst), points.len() as u64, "keys of a shard");
            for (key, point) in points.iter() {
                check_point(key, point);
                for holder in &point.holders {
                    let new = || InTable { owner: holder.owner.clone(), points: 0, asked: 0 };
                    let of = owners.entry(holder.owner.id()).or_insert_with(new);
                    of.points += 1;
                    of.asked += usize::from(holder.asked.is_some());
                }
            }
        }
        let mut granted = Vec::new();
        self.ranges().check_invariants(&mut |range| {
            let new = || InTable { owner: range.owner.clone(), points: 0, asked: 0 };
            owners.entry(range.owner.id()).or_insert_with(new);
            if range.granted && !range.span.is_empty() {
                granted.push((range.owner.id(), range.mode, range.covers, range.span.clone()));
            }
        });
        for (owner, mode, covers, span) in &granted {
            for shard in self.shards() {
                for (key, point) in shard.points.lock().range::<[u8], _>(bounds(span)) {
                    // A row that was written before counts for the owner of the range when it gets
                    // there, and the writer is a holder then.
                    let against = |h: &&Holder<T>| {
                        let is_covered = h.row || *covers == Covers::All;
                        let conflicts = h.asked.is_some_and(|asked| mode.conflicts(asked));
                        h.owner.id() != *owner && is_covered && conflicts
                    };
                    let other = point.holders.iter().find(against).map(|h| h.owner.id());
                    assert!(other.is_none(), "{other:?} holds {key:?} in a range of {owner}");
                }
            }
        }
        let mut bytes = 0;
        for (id, InTable { owner, points, asked }) in owners {
            let held = owner.held().lock();
            assert!(!held.closed, "{id} has ended and holds locks");
            assert_eq!((held.points(), held.asked), (points, asked), "keys that {id} holds");
            bytes += held.bytes;
        }
        assert_eq!(self.bytes(), bytes, "memory of all locks");
    }

    /// Panics if a lock, a request or its memory is left.
    pub(crate) fn check_unused(&self) {
        self.each_point(&mut |key, point| {
            let owners: Vec<_> = point.holders.iter().map(|h| h.owner.id()).collect();
            panic!("{key:?} is held by {owners:?}, {} requests wait", point.queue.len())
        });
        self.ranges().each(1, &mut |range| panic!("{} has a range", range.owner.id()));
        assert_eq!(self.bytes(), 0, "memory of locks");
    }
}

fn check_point<T: Owner>(key: &[u8], point: &Point<T>) {
    assert!(!point.is_empty(), "{key:?}: nobody holds or wants it");
    let exclusive = point.holders.iter().any(|holder| holder.mode() == Mode::Exclusive);
    let holders = || point.holders.iter().map(|h| (h.owner.id(), h.mode())).collect::<Vec<_>>();
    assert!(!exclusive || point.holders.len() == 1, "{key:?}: holders {:?}", holders());
    let empty = point.holders.iter().find(|h| h.asked.is_none() && !h.writes);
    assert!(empty.is_none(), "{key:?}: a hold of nothing");
    // Those that hold the key already stand in front, in the order in which they came.
    let place = |request: &Request<T>| (!request.in_front, request.ticket);
    assert!(point.queue.iter().is_sorted_by_key(place), "{key:?}: the order of its queue");
}

impl Txns {
    /// Panics if locks, undecided transactions or undo contradict each other.
    pub fn check_invariants(&self) {
        self.locks.check_invariants();
        let undos = self.all_undos();
        let memory: usize = undos.iter().map(|undo| undo.memory()).sum();
        assert_eq!(self.undo_bytes(), memory, "memory of undo");
        for t in self.all_active() {
            assert!(t.id() != TxnId::ZERO && t.id() < self.next_id(), "{} is active", t.id());
        }
        for (xid, t) in &*self.prepared.lock() {
            let found = self.active(t.id());
            let is_there = found.is_some_and(|found| Arc::ptr_eq(&found, t));
            let is_decided = matches!(t.phase(), Phase::Committed | Phase::Aborted);
            assert!(is_there || is_decided, "{}: not active", xid.escape_ascii());
        }
    }

    /// The number of prepared transactions.
    pub fn prepared_count(&self) -> usize {
        self.prepared.lock().len()
    }

    /// Panics if something of a transaction is left that is not prepared. For a database that has
    /// no users any more.
    pub fn check_unused(&self) {
        self.check_invariants();
        let is_prepared = |t: &TxnCore| t.phase() == Phase::Prepared;
        let active = self.all_active();
        let left: Vec<_> = active.iter().filter(|t| !is_prepared(t)).map(|t| t.id()).collect();
        assert!(left.is_empty(), "transactions {left:?} have no end");
        if active.is_empty() {
            self.locks.check_unused();
        }
        assert_eq!(self.waiting.load(Ordering::SeqCst), 0, "transactions wait");
    }
}
