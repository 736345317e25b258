//! Registered snapshots (protocol A2).
//!
//! A snapshot first registers, with the present horizon and a mark, then reads `published`, and
//! then raises its slot to that. A thread that computes a minimum reads `published` before the
//! slots. So either it sees the slot, or the snapshot reads a `published` at least as large as the
//! thread's. The horizon only grows: a computed value holds for every later snapshot.

use crate::commit_ts_ranges::Separators;
use evenkeel_base::Lsn;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const FREE: u64 = u64::MAX;
/// The slot's value is a lower bound: its snapshot may get any value from it on.
const RISING: u64 = 1 << 63;
/// Slots of the first block; each block is twice as large as the one before.
const FIRST_BLOCK: usize = 64;
const BLOCKS: usize = 20;

#[repr(align(64))]
struct Slot(AtomicU64);

pub(crate) struct Snapshots {
    published: AtomicU64,
    horizon: AtomicU64,
    blocks: [OnceLock<Box<[Slot]>>; BLOCKS],
    blocks_used: AtomicUsize,
}

thread_local! {
    static HINT: Cell<(usize, usize)> = const { Cell::new((usize::MAX, 0)) };
}
static NEXT_HINT: AtomicUsize = AtomicUsize::new(0);

/// Lets other threads run, in tests only: the races here are a few instructions wide.
#[inline(always)]
fn pause() {
    #[cfg(test)]
    std::thread::yield_now();
}

/// The place of a registered snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotPlace {
    block: usize,
    slot: usize,
}

impl Snapshots {
    pub fn new() -> Snapshots {
        let snapshots = Snapshots {
            published: AtomicU64::new(0),
            horizon: AtomicU64::new(0),
            blocks: [const { OnceLock::new() }; BLOCKS],
            blocks_used: AtomicUsize::new(1),
        };
        snapshots.block(0);
        snapshots
    }

    fn block(&self, block: usize) -> &[Slot] {
        self.blocks[block]
            .get_or_init(|| (0..FIRST_BLOCK << block).map(|_| Slot(AtomicU64::new(FREE))).collect())
    }

    pub fn published(&self) -> Lsn {
        Lsn(self.published.load(Ordering::SeqCst))
    }

    /// Advances `published`; only inside the log's ordered section and at restore.
    pub fn publish(&self, cts: Lsn) {
        self.published.fetch_max(cts.0, Ordering::SeqCst);
    }

    /// Registers a snapshot of the present.
    pub fn register(&self) -> (SnapshotPlace, Lsn) {
        let low = self.horizon.load(Ordering::SeqCst) | RISING;
        let place = self.claim(low);
        pause();
        let at = self.published.load(Ordering::SeqCst);
        pause();
        self.slot(place).store(at, Ordering::SeqCst);
        (place, Lsn(at))
    }

    pub fn release(&self, place: SnapshotPlace) {
        self.slot(place).store(FREE, Ordering::SeqCst);
    }

    /// Registers at a place that another registered snapshot covers; the caller keeps that one
    /// registered meanwhile.
    pub fn register_at(&self, at: Lsn) -> SnapshotPlace {
        self.claim(at.0)
    }

    fn slot(&self, place: SnapshotPlace) -> &AtomicU64 {
        &self.block(place.block)[place.slot].0
    }

    fn claim(&self, value: u64) -> SnapshotPlace {
        pause();
        let (mut block, mut slot) = HINT.get();
        if block == usize::MAX {
            (block, slot) = (0, NEXT_HINT.fetch_add(1, Ordering::Relaxed) % FIRST_BLOCK);
        }
        let place = SnapshotPlace { block, slot };
        if self.try_claim(place, value) {
            HINT.set((block, slot));
            return place;
        }
        for block in 0..BLOCKS {
            self.blocks_used.fetch_max(block + 1, Ordering::SeqCst);
            for slot in 0..self.block(block).len() {
                let place = SnapshotPlace { block, slot };
                if self.try_claim(place, value) {
                    HINT.set((block, slot));
                    return place;
                }
            }
        }
        unreachable!("more than 64 million snapshots at once")
    }

    fn try_claim(&self, place: SnapshotPlace, value: u64) -> bool {
        if place.block >= self.blocks_used.load(Ordering::SeqCst) {
            return false;
        }
        let slot = self.slot(place);
        slot.load(Ordering::Relaxed) == FREE
            && slot.compare_exchange(FREE, value, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        let used = self.blocks_used.load(Ordering::SeqCst);
        (0..used)
            .flat_map(|b| self.block(b).iter())
            .map(|slot| slot.0.load(Ordering::SeqCst))
            .filter(|v| *v != FREE)
    }

    /// Every commit timestamp at or below this is visible to all present and future snapshots.
    pub fn horizon(&self) -> Lsn {
        let published = self.published.load(Ordering::SeqCst);
        pause();
        let low = self.values().map(|v| v & !RISING).fold(published, u64::min);
        Lsn(self.horizon.fetch_max(low, Ordering::SeqCst).max(low))
    }

    /// True if a registered or future snapshot `s` may have `low <= s < high`.
    pub fn any_between(&self, low: Lsn, high: Lsn) -> bool {
        let published = self.published.load(Ordering::SeqCst);
        if published < high.0 {
            return true;
        }
        self.values().any(|v| {
            let at = v & !RISING;
            at < high.0 && (v & RISING != 0 || at >= low.0)
        })
    }

    /// The data that `any_between` reads, for many questions.
    pub fn separators(&self) -> Separators {
        let published = self.published();
        pause();
        let mut found = Separators { published, ..Separators::default() };
        for value in self.values() {
            let at = Lsn(value & !RISING);
            match value & RISING {
                0 => found.at.push(at),
                _ => found.rising = Some(found.rising.map_or(at, |low| low.min(at))),
            }
        }
        found.at.sort_unstable();
        found
    }

    /// The number of registered snapshots.
    pub fn count(&self) -> usize {
        self.values().count()
    }
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod snapshots_tests;
