//! Waits for other transactions, and deadlocks.
//!
//! A waiter registers with each transaction that blocks it, asks again whether it is still blocked,
//! enters its edges into the graph and waits for its own event. Entering and searching is one
//! section, so the wait that closes a cycle finds it. The victim is the transaction of the cycle
//! with the fewest operations; it is woken and leaves with an error.
//!
//! Nobody may wait here while holding a latch or a mutex.

use crate::txns::Txns;
use crate::{Txn, TxnRef};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, CommitTable, Error, Result, TxnId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The moment a lock wait gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// Waits as long as it takes.
    pub const NEVER: Deadline = Deadline(None);
}

/// Told of waits of transactions for others, by their tags (`Txn::set_tag`; 0 without), before they
/// begin. Called by the waiter, with no latch or mutex of the engine held.
pub trait WaitWatch: Send + Sync {
    /// `waiter` is about to wait for `others`.
    fn begins(&self, waiter: u64, others: &[u64]);
}

/// Lets other threads in between, in tests only: the races here are a few instructions wide.
#[inline(always)]
fn pause() {
    #[cfg(test)]
    std::thread::yield_now();
}

struct Node {
    txn: TxnRef,
    on: Vec<TxnId>,
}

/// Who waits for whom.
#[derive(Default)]
pub(crate) struct WaitGraph {
    nodes: Mutex<HashMap<TxnId, Node>>,
}

impl WaitGraph {
    /// Enters `me`'s edges; `None` if `me` is the victim of a deadlock that they close.
    fn enter<'g>(&'g self, me: &'g TxnRef, on: &[TxnId]) -> Option<Edges<'g>> {
        let mut nodes = self.nodes.lock();
        me.victim.store(false, Ordering::Relaxed);
        nodes.insert(me.id(), Node { txn: me.clone(), on: on.to_vec() });
        while let Some(cycle) = find_cycle(&nodes, me.id()) {
            // Fewest operations; among equals the youngest.
            let work = |id: &TxnId| (nodes[id].txn.undo_count(), u64::MAX - id.0);
            let victim = cycle.into_iter().min_by_key(work).unwrap_or(me.id());
            if victim == me.id() {
                nodes.remove(&victim);
                return None;
            }
            let txn = &nodes[&victim].txn;
            txn.victim.store(true, Ordering::Relaxed);
            txn.wake().notify();
        }
        Some(Edges { graph: self, me })
    }

    /// Removes `me`'s edges; false if it was chosen as a victim meanwhile.
    fn leave(&self, me: &Txn) -> bool {
        let mut nodes = self.nodes.lock();
        nodes.remove(&me.id());
        !me.victim.swap(false, Ordering::Relaxed)
    }

    /// Whom a transaction waits for.
    pub fn waits_of(&self, id: TxnId) -> Vec<TxnId> {
        self.nodes.lock().get(&id).map_or_else(Vec::new, |node| node.on.clone())
    }

    /// Transactions that wait now.
    pub fn waiting(&self) -> usize {
        self.nodes.lock().len()
    }
}

/// The edges of a transaction in the graph; they go with this, also where the wait unwinds.
struct Edges<'g> {
    graph: &'g WaitGraph,
    me: &'g Txn,
}

impl Edges<'_> {
    /// Removes them; false if the transaction was chosen as a victim meanwhile.
    fn leave(self) -> bool {
        let edges = std::mem::ManuallyDrop::new(self);
        edges.graph.leave(edges.me)
    }
}

impl Drop for Edges<'_> {
    fn drop(&mut self) {
        self.graph.leave(self.me);
    }
}

/// The transactions of a cycle through `start`; victims on their way out have no edges.
fn find_cycle(nodes: &HashMap<TxnId, Node>, start: TxnId) -> Option<Vec<TxnId>> {
    let edges = |id: TxnId| {
        nodes.get(&id).filter(|n| !n.txn.victim.load(Ordering::Relaxed)).map_or(&[][..], |n| &n.on)
    };
    let mut seen = HashSet::from([start]);
    let mut path = vec![(start, edges(start).iter())];
    while let Some((_, rest)) = path.last_mut() {
        match rest.next() {
            None => {
                path.pop();
            }
            Some(next) if *next == start => return Some(path.iter().map(|(id, _)| *id).collect()),
            Some(next) if seen.insert(*next) => path.push((*next, edges(*next).iter())),
            Some(_) => {}
        }
    }
    None
}

impl Txns {
    /// The moment `timeout` from now.
    pub fn deadline(&self, timeout: Duration) -> Deadline {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline(Some(self.rt.env.now_ns().saturating_add(ns)))
    }

    /// Waits until `other` is decided (its row lock is its stamp). Returns at once if it is.
    ///
    /// # Errors
    /// `DeadlockVictim`, `LockWaitTimeout`, `StatementCancelled`.
    pub fn wait_for(&self, me: &TxnRef, other: TxnId, deadline: Deadline) -> Result<()> {
        debug_assert!(me.id() != other, "a transaction cannot wait for itself");
        self.block_on(me, deadline, &mut || match self.state(other).is_undecided() {
            true => vec![other],
            false => Vec::new(),
        })
    }

    /// Waits until `blockers` gives none. It is asked again whenever one of them ends or lets a
    /// lock go; it must not wait.
    pub(crate) fn block_on(
        &self,
        me: &TxnRef,
        deadline: Deadline,
        blockers: &mut dyn FnMut() -> Vec<TxnId>,
    ) -> Result<()> {
        let mut waited = false;
        loop {
            // Before the look at the cancellation, or one between the two would be slept over.
            let seen = me.wake().now();
            pause();
            me.check_cancel()?;
            let on = blockers();
            if on.is_empty() {
                return Ok(());
            }
            self.ensure_id(me);
            let registered = on.iter().all(|id| self.active(*id).is_some_and(|t| t.add_waiter(me)));
            if !registered || blockers() != on {
                // One of them ended or let go just now.
                continue;
            }
            let left = match deadline.0 {
                None => None,
                Some(at) => match at.saturating_sub(self.rt.env.now_ns()) {
                    0 => return Err(self.timed_out(me, &on)),
                    ns => Some(Duration::from_nanos(ns)),
                },
            };
            let Some(edges) = self.graph.enter(me, &on) else {
                return Err(self.deadlock(me, &on));
            };
            if !waited {
                self.rt.metrics.add(Metric::LockWaits, 1);
                waited = true;
            }
            if let Some(watch) = self.watch.get() {
                let tag = |id: &TxnId| self.active(*id).map_or(0, |t| t.tag());
                watch.begins(me.tag(), &on.iter().map(tag).collect::<Vec<_>>());
            }
            self.rt.wait(me.wake(), seen, left, Cause::RowLock);
            if !edges.leave() {
                return Err(self.deadlock(me, &on));
            }
        }
    }

    fn deadlock(&self, me: &Txn, on: &[TxnId]) -> Error {
        self.rt.metrics.add(Metric::Deadlocks, 1);
        Error::new(Code::DeadlockVictim).with("txn", me.id()).with("waits_for", on[0])
    }

    fn timed_out(&self, me: &Txn, on: &[TxnId]) -> Error {
        self.rt.metrics.add(Metric::LockTimeouts, 1);
        Error::new(Code::LockWaitTimeout).with("txn", me.id()).with("waits_for", on[0])
    }

    /// Calls `watch` before every wait from now on; the first one given stays.
    pub fn watch_waits(&self, watch: Box<dyn WaitWatch>) {
        let _ = self.watch.set(watch);
    }

    /// Transactions that wait for another one now.
    pub fn waiting(&self) -> usize {
        self.graph.waiting()
    }
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod waits_tests;
