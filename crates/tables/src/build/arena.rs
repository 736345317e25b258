//! The memory in which an index build or a copy of a table collects the entries or rows that it
//! sorts: its size and its loans (F4). Each filling of the arena becomes a run.
//!
//! Few entries are collected in memory of the arena's own. For more, run blocks lend memory, and
//! get it from page frames if they have too little themselves (`Runs::lend`). Users who wait for
//! the device need those frames: pages have to be written before their frames are freed, and are
//! read again. So while users are active, an index may become up to [`RUNS_BESIDE_USERS`] runs if a
//! larger arena would evict frames in use.

use crate::store::Store;
use evenkeel_base::IndexId;
use evenkeel_runs::Lent;
use std::sync::Arc;

/// Memory of its own: builds of few rows take none from others.
const ARENA_OWN: usize = 1 << 20;
/// An index may become this many runs so that users keep their frames. If it needed more, or if
/// that many would be joined before they are installed, the build gets the memory that it wants.
const RUNS_BESIDE_USERS: usize = 6;

/// The memory of one build or copy.
pub(crate) struct BuildArena {
    store: Arc<Store>,
    /// The indexes that are built in it.
    indexes: Vec<IndexId>,
    /// Bytes that all entries take, as far as is known.
    wanted: usize,
    bytes: usize,
    /// Loans, given back with the arena.
    lent: Vec<Lent>,
}

impl BuildArena {
    /// An arena that has borrowed nothing yet.
    pub fn new(store: &Arc<Store>, indexes: &[IndexId]) -> BuildArena {
        let bytes = ARENA_OWN.min(store.build_arena_bytes());
        let indexes = indexes.to_vec();
        BuildArena { store: store.clone(), indexes, wanted: bytes, bytes, lent: Vec::new() }
    }

    /// Its present size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its size when it is written for the first time. If it was to hold all entries and they take
    /// more, it grows until then.
    pub fn round_bytes(&self) -> usize {
        match self.bytes < self.wanted.min(self.most()) {
            true => self.bytes,
            false => self.for_all(self.most(), 0).max(self.bytes),
        }
    }

    /// Sizes the arena for entries that take `wanted` bytes, estimated from the first ones, and at
    /// least for `least`. False if that is no more than its own memory.
    pub fn begin(&mut self, wanted: usize, least: usize) -> bool {
        self.wanted = wanted;
        if wanted <= ARENA_OWN {
            return false;
        }
        self.grow(self.for_all(wanted, 0).max(least).min(self.most()));
        true
    }

    /// The arena is full; `left` is the part of the table that is not read, and `runs` were written
    /// before. True if it is larger now; otherwise its content has to be written.
    pub fn grow_full(&mut self, runs: usize, left: f64) -> bool {
        let wanted = wanted_when_full(self.bytes, self.wanted, self.most(), runs, left);
        self.grow(self.for_all(wanted, runs))
    }

    /// Grows to the largest size of any arena; false if it has that size.
    pub fn grow_to_most(&mut self) -> bool {
        self.grow(self.most())
    }

    fn most(&self) -> usize {
        self.store.build_arena_bytes()
    }

    fn for_all(&self, wanted: usize, runs: usize) -> usize {
        let Store { sched, runs: lender, pages, .. } = &*self.store;
        // Frames that are free may be those that go: nothing says so once some have gone.
        let unused = if self.lent.is_empty() { pages.unused_bytes() } else { 0 };
        let at_hand = lender.lends_at_once() as usize + unused + self.lent_bytes();
        let may_be_many = || {
            let many = |id: &IndexId| lender.are_too_many(*id, RUNS_BESIDE_USERS);
            sched.users_wait() && !self.indexes.iter().any(many)
        };
        size(wanted, runs, at_hand, may_be_many).min(self.most())
    }

    /// Growing by a little is not worth it, unless that is all that is wanted.
    fn grow(&mut self, bytes: usize) -> bool {
        let is_worth_it =
            bytes >= self.wanted.min(self.most()) || bytes > self.bytes + self.bytes / 8;
        let grows = bytes > self.bytes && is_worth_it;
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

/// The size for `wanted` bytes in all, of which `runs` runs are written, if `at_hand` bytes are
/// available without evicting frames in use: all of it, or a part if the index may become a few
/// runs.
fn size(wanted: usize, runs: usize, at_hand: usize, may_be_many: impl Fn() -> bool) -> usize {
    if wanted <= at_hand.max(ARENA_OWN) || runs >= RUNS_BESIDE_USERS || !may_be_many() {
        return wanted;
    }
    (wanted / RUNS_BESIDE_USERS).max(at_hand).max(ARENA_OWN)
}

/// The size that a full arena of `bytes` should have, if `wanted` bytes were foreseen. An arena
/// that should have held everything gets the maximum, because entries are more or longer than
/// foreseen. An arena for a part of the entries wants no more than what is left, by the part of the
/// table that is not read.
fn wanted_when_full(bytes: usize, wanted: usize, most: usize, runs: usize, left: f64) -> usize {
    if bytes >= wanted.min(most) {
        return most;
    }
    let collected = (runs + 1) as f64 * bytes as f64;
    let comes = 1.25 * collected * left / (1.0 - left).max(0.001);
    let enough = bytes.saturating_add(comes as usize);
    enough.min(if runs < RUNS_BESIDE_USERS { wanted } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_takes_no_frames_from_waiting_users_to_save_a_few_runs() {
        const MIB: usize = 1 << 20;
        let waiting = |wanted: usize, runs, at_hand: usize| {
            size(wanted * MIB, runs, at_hand * MIB, || true) / MIB
        };
        assert_eq!(size(134 * MIB, 0, 37 * MIB, || false), 134 * MIB, "nobody waits");
        assert_eq!(waiting(134, 0, 37), 37, "what is at hand makes four runs");
        assert_eq!(waiting(134, 5, 37), 37);
        assert_eq!(waiting(134, 6, 37), 134, "with more it has what it wants");
        assert_eq!(waiting(1200, 0, 37), 200, "a sixth of it where that is more");
        assert_eq!([waiting(30, 0, 37), waiting(37, 0, 37)], [30, 37], "all of it is at hand");
        assert_eq!(waiting(4, 0, 0), 1, "never less than its own");
    }

    #[test]
    fn a_full_arena_requests_the_estimated_rest() {
        let full = |bytes, wanted, runs, left| wanted_when_full(bytes, wanted, 256, runs, left);
        assert_eq!([full(134, 134, 0, 0.1), full(256, 900, 0, 0.7)], [256, 256], "it held all");
        // A quarter of the foreseen bytes.
        assert_eq!(full(40, 134, 0, 0.7), 134, "116 come, and it holds 40");
        assert_eq!(full(40, 134, 2, 0.1), 40 + 16);
        assert_eq!([full(40, 134, 3, 0.0), full(40, 134, 0, 1.0)], [40, 134]);
        // More came than was foreseen.
        assert_eq!([full(40, 134, 6, 0.1), full(40, 134, 6, 0.5)], [40 + 38, 256]);
    }
}
