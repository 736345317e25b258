//! The memory in which an index build, or a copy of a table, collects what it sorts: how large it
//! is, and what is borrowed for it (F4). What it collects at a time becomes a run.
//!
//! Few entries are collected in memory of its own. For more, run blocks lend it, who have it from
//! page frames where they have not enough themselves (`Runs::lend`). Users who wait for the device
//! want those frames: pages have to be written before frames go, and are read again. So beside them
//! an index becomes up to [`RUNS_BESIDE_USERS`] runs, if without that frames in use had to go.

use crate::store::Store;
use evenkeel_base::IndexId;
use evenkeel_runs::Lent;
use std::sync::Arc;

/// Memory without asking for it: few rows take none from others.
const ARENA_OWN: usize = 1 << 20;
/// So many runs an index may become so that users keep their frames. With more, a build has what it
/// wants, and where that many would be merged before they are installed.
const RUNS_BESIDE_USERS: usize = 6;

/// The memory of one build or copy.
pub(crate) struct BuildArena {
    store: Arc<Store>,
    /// That are built in it.
    indexes: Vec<IndexId>,
    /// What all entries take, as far as is known.
    wanted: usize,
    bytes: usize,
    /// Given back with it.
    lent: Vec<Lent>,
}

impl BuildArena {
    /// One that has borrowed nothing yet.
    pub fn new(store: &Arc<Store>, indexes: &[IndexId]) -> BuildArena {
        let bytes = ARENA_OWN.min(store.build_arena_bytes());
        let indexes = indexes.to_vec();
        BuildArena { store: store.clone(), indexes, wanted: bytes, bytes, lent: Vec::new() }
    }

    /// Its size now.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its size before it is written for the first time: where it has what all entries should take
    /// and they take more, it becomes larger.
    pub fn round_bytes(&self) -> usize {
        match self.bytes < self.wanted.min(self.most()) {
            true => self.bytes,
            false => self.for_all(self.most(), 0).max(self.bytes),
        }
    }

    /// For entries that take `wanted` bytes, as the first of them have it; it has `least` in any
    /// case. False if that is no more than its own.
    pub fn begin(&mut self, wanted: usize, least: usize) -> bool {
        self.wanted = wanted;
        if wanted <= ARENA_OWN {
            return false;
        }
        self.grow(self.for_all(wanted, 0).max(least).min(self.most()));
        true
    }

    /// It is full, and `left` is the part of the table that is not read; so many runs are written
    /// of what was collected before. True if it is larger now, else what it holds is to be written.
    pub fn grow_full(&mut self, runs: usize, left: f64) -> bool {
        let wanted = wanted_when_full(self.bytes, self.wanted, self.most(), runs, left);
        self.grow(self.for_all(wanted, runs))
    }

    /// Makes it as large as any may be; false if it is.
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

    /// A little more is not worth it, but where that is all that is wanted.
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

/// For what takes `wanted` bytes in all, of which so many runs are written, where `at_hand` takes
/// no frame in use: all of it, or a part where it may become a few runs.
fn size(wanted: usize, runs: usize, at_hand: usize, may_be_many: impl Fn() -> bool) -> usize {
    if wanted <= at_hand.max(ARENA_OWN) || runs >= RUNS_BESIDE_USERS || !may_be_many() {
        return wanted;
    }
    (wanted / RUNS_BESIDE_USERS).max(at_hand).max(ARENA_OWN)
}

/// What an arena of so many bytes should be that is full, where `wanted` was foreseen for all. One
/// that should have held all has what there is: entries are more, or longer, than was foreseen. One
/// that was to hold a part of them wants no more than what is left, by the part of the table that
/// is not read.
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
    fn users_who_wait_keep_their_frames_for_a_few_runs_more() {
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
    fn a_full_arena_wants_what_is_left() {
        let full = |bytes, wanted, runs, left| wanted_when_full(bytes, wanted, 256, runs, left);
        assert_eq!([full(134, 134, 0, 0.1), full(256, 900, 0, 0.7)], [256, 256], "it held all");
        // A quarter of what was foreseen.
        assert_eq!(full(40, 134, 0, 0.7), 134, "116 come, and it holds 40");
        assert_eq!(full(40, 134, 2, 0.1), 40 + 16);
        assert_eq!([full(40, 134, 3, 0.0), full(40, 134, 0, 1.0)], [40, 134]);
        // More came than was foreseen.
        assert_eq!([full(40, 134, 6, 0.1), full(40, 134, 6, 0.5)], [40 + 38, 256]);
    }
}
