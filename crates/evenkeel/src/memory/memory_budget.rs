//! The one place that divides `memory_size` (protocol G3); `docs/guide/operations.md` shows the
//! table. Everything that grows with data or load has a share here; the sum is `memory_size`.
//!
//! This is the division at rest: frames, run blocks and memtables lend each other unused memory
//! (`memory_law`). Two borrowers use memory of run blocks: the third memtable generation, which
//! exists only while two are being written, and the arena of an index build, which exists as long
//! as the statement. Both at once exceed the sum by at most 1/16.

use crate::api::options::Geometry;
use crate::memory::memory_law::{Division, Lendable};

/// Mebibyte.
const MIB: u64 = 1 << 20;
/// Bytes of a frame beside its page: latch and state, its entry in the page table, list links.
const FRAME_BYTES: u64 = 64 + 8 + 4 + 4;
/// The smallest page size: the overhead of frames is computed for it.
const PAGE_BYTES_MIN: u64 = 4096;

/// The parts of `memory_size`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget {
    /// Page images in frames.
    pub pool_bytes: u64,
    /// State of frames and the page table.
    pub page_table_bytes: u64,
    /// Two generations of the memtable.
    pub memtable_bytes: u64,
    /// One generation.
    pub generation_bytes: u64,
    /// Blocks of runs.
    pub cache_bytes: u64,
    /// Fences and filters of runs.
    pub resident_bytes: u64,
    /// The buffer of the log. It keeps its size while open.
    pub log_buffer_bytes: u64,
    /// Undo in memory; beyond it undo goes to files.
    pub undo_bytes: u64,
    /// The lock table; beyond it locks are refused.
    pub lock_bytes: u64,
    /// The arena of an index build, borrowed.
    pub build_bytes: u64,
    /// Frames, run blocks and memtables lend each other memory; off where a test fixes the size of
    /// one of them.
    pub lends: bool,
}

/// Bytes of pages that fit frames of this many bytes.
pub(crate) fn pool_bytes(frames_bytes: u64) -> u64 {
    let whole = PAGE_BYTES_MIN + FRAME_BYTES;
    frames_bytes / whole * PAGE_BYTES_MIN + frames_bytes % whole
}

/// Bytes of the frames that hold this many bytes of pages.
pub(crate) fn frames_bytes(pool_bytes: u64) -> u64 {
    let whole = PAGE_BYTES_MIN + FRAME_BYTES;
    pool_bytes / PAGE_BYTES_MIN * whole + pool_bytes % PAGE_BYTES_MIN
}

impl MemoryBudget {
    /// Divides `memory` bytes: memtables 1/4, run blocks 5/16, fences and filters 1/16, undo 1/16,
    /// locks 1/32, the log buffer 1/32, frames with the page table the rest (at least 7/32).
    pub(crate) fn of(memory: u64) -> MemoryBudget {
        let generation_bytes = (memory / 8).clamp(2 * MIB, 256 * MIB);
        let memtable_bytes = 2 * generation_bytes;
        let cache_bytes = memory / 16 * 5;
        let resident_bytes = memory / 16;
        let log_buffer_bytes = (memory / 32).clamp(MIB, 8 * MIB);
        let undo_bytes = memory / 16;
        let lock_bytes = memory / 32;
        let fixed = memtable_bytes
            + cache_bytes
            + resident_bytes
            + log_buffer_bytes
            + undo_bytes
            + lock_bytes;
        let frames = memory.saturating_sub(fixed);
        let page_table_bytes = frames / (PAGE_BYTES_MIN + FRAME_BYTES) * FRAME_BYTES;
        let shares = MemoryBudget {
            pool_bytes: frames - page_table_bytes,
            page_table_bytes,
            memtable_bytes,
            generation_bytes,
            cache_bytes,
            resident_bytes,
            log_buffer_bytes,
            undo_bytes,
            lock_bytes,
            build_bytes: (memory / 4).min(256 * MIB),
            lends: true,
        };
        assert_eq!(shares.sum(), memory, "shares of {memory} bytes");
        shares
    }

    /// Bytes of the ballast (G4), on disk: a generation in a run file and the undo of open
    /// transactions, or 12 MiB.
    pub(crate) fn ballast_bytes(&self) -> u64 {
        (self.generation_bytes + self.undo_bytes).clamp(MIB / 4, 12 * MIB)
    }

    /// Replaces the sizes that tests make small.
    pub(crate) fn with(self, geometry: &Geometry) -> MemoryBudget {
        MemoryBudget {
            pool_bytes: geometry.pool_bytes.unwrap_or(self.pool_bytes),
            generation_bytes: geometry.generation_bytes.unwrap_or(self.generation_bytes),
            undo_bytes: geometry.undo_bytes.unwrap_or(self.undo_bytes),
            resident_bytes: geometry.resident_bytes.unwrap_or(self.resident_bytes),
            cache_bytes: geometry.cache_bytes.unwrap_or(self.cache_bytes),
            build_bytes: geometry.build_bytes.unwrap_or(self.build_bytes),
            lends: geometry.pool_bytes.is_some() == geometry.cache_bytes.is_some(),
            ..self
        }
    }

    /// The part that may be lent; frames keep at least `pool_bytes_min` bytes of pages.
    pub(crate) fn lendable(&self, pool_bytes_min: u64) -> Lendable {
        let base = Division {
            frames: frames_bytes(self.pool_bytes),
            blocks: self.cache_bytes,
            generation: self.generation_bytes,
            on_call: 0,
        };
        Lendable::new(base, frames_bytes(pool_bytes_min))
    }

    /// How memory is divided at open; `redoes`: the open has log to redo.
    pub(crate) fn first_division(&self, redoes: bool) -> Division {
        let lendable = self.lendable(0);
        if redoes && self.lends { lendable.at_recovery() } else { lendable.base }
    }

    fn sum(&self) -> u64 {
        self.pool_bytes
            + self.page_table_bytes
            + self.memtable_bytes
            + self.cache_bytes
            + self.resident_bytes
            + self.log_buffer_bytes
            + self.undo_bytes
            + self.lock_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::options::SETTINGS;

    #[test]
    fn shares_add_up_to_memory_size_and_keep_their_limits() {
        let setting = SETTINGS.iter().find(|s| s.name == "memory_size").expect("a setting");
        let mut memory = setting.min;
        while memory <= setting.max {
            for bytes in [memory, memory + 1, memory + 4097, memory / 3 * 4] {
                let s = MemoryBudget::of(bytes);
                assert_eq!(s.sum(), bytes);
                assert!(s.memtable_bytes <= bytes / 4 && s.resident_bytes <= bytes / 8);
                assert!(s.undo_bytes <= bytes / 8 && s.page_table_bytes <= bytes / 10);
                assert!(s.pool_bytes + s.page_table_bytes >= bytes / 32 * 7, "{s:?}");
                let borrowed = s.generation_bytes + s.build_bytes;
                assert!(borrowed <= s.cache_bytes + bytes / 16 + 16, "{s:?}");
            }
            memory *= 2;
        }
    }

    #[test]
    fn more_memory_makes_no_share_smaller() {
        let mut before = MemoryBudget::of(16 * MIB);
        for mib in 17..2000 {
            let now = MemoryBudget::of(mib * MIB);
            assert!(now.generation_bytes >= before.generation_bytes);
            assert!(now.cache_bytes >= before.cache_bytes && now.undo_bytes >= before.undo_bytes);
            before = now;
        }
    }
}
