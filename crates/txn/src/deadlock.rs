//! Deadlocks. A waiting transaction first enters its queue and records its place, and then looks
//! for the transactions that it waits for. So the wait that closes a cycle finds it. Edges are not
//! stored but read from the queues, so a hand-over of a lock needs no update of edges.
//!
//! The victim is the transaction of the cycle with the fewest operations; among those, with the
//! fewest locks; among those, the newest.

use crate::lock_table::LockTable;
use crate::owner::Owner;
use crate::sync::Mutex;
use evenkeel_base::TxnId;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

/// A transaction of a cycle, and the number of its wait.
type Member<T> = (Arc<T>, u64);

/// Searches run one after the other, so of two that close a cycle together one breaks it.
#[derive(Default)]
pub(crate) struct Deadlocks {
    search: Mutex<()>,
}

impl Deadlocks {
    /// Looks for cycles through `me`, which waits from now on, and makes a victim of each give up;
    /// true if that is `me`.
    pub fn search<T: Owner>(&self, table: &LockTable<T>, me: &Arc<T>) -> bool {
        // Most lock holders do not wait. A holder that begins to wait searches itself.
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

/// The transactions of a cycle through `start`.
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
