//! The memory in which an index build, or a copy of a table, collects what it sorts: how large it
//! is, and what is borrowed for it (F4). What it collects at a time becomes a run.
//!
//! Few entries are collected in memory of its own. For more, run blocks lend it, who have it from
//! page frames where they have not enough themselves (`Runs::lend`). Users who wait for the device
//! want those frames: pages have to be written before frames go, and are read again. So beside them
//! an index becomes up to [`RUNS_BESIDE_USERS`] runs, if without that frames in use had to go.

use crate::store::Store;
use evenkeel_runs::Lent;
use std::sync::Arc;

/// Memory without asking for it: few rows take none from others.
pub(crate) const ARENA_OWN: usize = 1 << 20;
/// So many runs an index may become so that users keep their frames: fewer than are merged before
/// they are installed. With more, it has what it wants.
const RUNS_BESIDE_USERS: usize = 6;

/// The memory of one build.
pub(crate) struct Arena {
    store: Arc<Store>,
    bytes: usize,
    /// Given back with it.
    lent: Vec<Lent>,
}

impl Arena {
    /// One that has borrowed nothing yet.
    pub fn new(store: &Arc<Store>) -> Arena {
        let bytes = ARENA_OWN.min(store.build_arena_bytes());
        Arena { store: store.clone(), bytes, lent: Vec::new() }
    }

    /// Its size now.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its size for what takes `wanted` bytes in all, of which so many runs are written.
    pub fn for_all(&self, wanted: usize, runs: usize) -> usize {
        let Store { rt, runs: lender, pages, .. } = &*self.store;
        let unused = lender.lends_at_once() as usize + pages.unused_bytes();
        let at_hand = unused + self.lent_bytes();
        size(wanted, runs, at_hand, || rt.users_wait()).min(self.store.build_arena_bytes())
    }

    /// Makes it so large; false if it is.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let grows = bytes > self.bytes;
        if grows {
            let more = bytes - self.lent_bytes();
            self.lent.push(self.store.runs.lend(more as u64));
            self.bytes = bytes;
        }
        grows
    }

    fn lent_bytes(&self) -> usize {
        if self.lent.is_empty() { 0 } else { self.bytes }
    }
}

/// For what takes `wanted` bytes in all, of which so many runs are written, where `at_hand` is lent
/// at nobody's cost.
fn size(wanted: usize, runs: usize, at_hand: usize, users_wait: impl Fn() -> bool) -> usize {
    if wanted <= at_hand.max(ARENA_OWN) || runs >= RUNS_BESIDE_USERS || !users_wait() {
        return wanted;
    }
    (wanted / RUNS_BESIDE_USERS).max(at_hand).max(ARENA_OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_who_wait_keep_their_frames_for_a_few_runs_more() {
        const MIB: usize = 1 << 20;
        let waiting = |wanted: usize, runs, at_hand: usize| {
            size(wanted * MIB, runs, at_hand * MIB, || true) / MIB
        };
        assert_eq!(size(134 * MIB, 0, 37 * MIB, || false), 134 * MIB, "nobody waits");
        assert_eq!(waiting(134, 0, 37), 37, "what is at hand makes four runs");
        assert_eq!(waiting(134, 5, 37), 37);
        assert_eq!(waiting(134, 6, 37), 134, "with more they would have to be merged");
        assert_eq!(waiting(1200, 0, 37), 200, "a sixth of it where that is more");
        assert_eq!([waiting(30, 0, 37), waiting(37, 0, 37)], [30, 37], "all of it is at hand");
        assert_eq!(waiting(4, 0, 0), 1, "never less than its own");
    }
}
