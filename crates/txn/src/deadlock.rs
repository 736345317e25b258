//! Deadlocks. Whoever begins a wait is in its queue, and has said where, before it looks whom it
//! waits for; so the wait that closes a circle finds it. Edges are not kept: they are read from the
//! queues, so a hand-over makes none and one who leaves gives his on.
//!
//! The victim is the transaction of the circle with the fewest operations, of those the one with
//! the fewest locks, of those the youngest.

use crate::lock_table::LockTable;
use crate::owner::Owner;
use crate::sync::Mutex;
use evenkeel_base::TxnId;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

/// A transaction of a circle, and which of its waits it is in.
type Member<T> = (Arc<T>, u64);

/// Searches one after the other: of two who close a circle together one breaks it.
#[derive(Default)]
pub(crate) struct Deadlocks {
    search: Mutex<()>,
}

impl Deadlocks {
    /// Looks for circles through `me`, which waits from now on, and has a victim of each give up;
    /// true if that is `me`.
    pub fn search<T: Owner>(&self, table: &LockTable<T>, me: &Arc<T>) -> bool {
        // Most of those who are waited for wait for nobody. One who begins to will look himself.
        let waits = |(_, place)| table.waits_for(me, &place).iter().any(|t| t.seat().waits());
        if !me.seat().place().is_some_and(waits) {
            return false;
        }
        let _search = self.search.lock();
        while let Some(circle) = find(table, me) {
            let work = |(t, _): &Member<T>| (t.operations(), table.locks_of(t), Reverse(t.id()));
            let Some((victim, wait)) = circle.into_iter().min_by_key(work) else { return false };
            victim.seat().make_victim(wait);
            if victim.id() == me.id() {
                return true;
            }
            victim.notify();
        }
        false
    }
}

/// The transactions of a circle through `start`.
fn find<T: Owner>(table: &LockTable<T>, start: &Arc<T>) -> Option<Vec<Member<T>>> {
    let step = |t: Arc<T>| {
        let (wait, place) = t.seat().place()?;
        let next = table.waits_for(&t, &place).into_iter();
        Some(((t, wait), next))
    };
    let mut seen: HashSet<TxnId> = HashSet::from([start.id()]);
    let mut path: Vec<_> = step(start.clone()).into_iter().collect();
    while let Some((_, rest)) = path.last_mut() {
        match rest.next() {
            None => {
                path.pop();
            }
            Some(next) if next.id() == start.id() => {
                return Some(path.into_iter().map(|(member, _)| member).collect());
            }
            Some(next) if seen.insert(next.id()) => path.extend(step(next)),
            Some(_) => {}
        }
    }
    None
}
