//! The model of `docs/scale.md`: the cost of a row, the number of runs of an index, the time of a
//! restart. Formulas over sizes; tests compare them with the engine at small sizes.

pub mod experiment;
pub mod paper;
mod sim;

/// Bytes of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowBytes {
    /// Bytes of its cell in a leaf.
    pub row: f64,
    /// Bytes of its record in the log.
    pub log: f64,
    /// Bytes of an index entry in the memtable.
    pub entry_memory: f64,
    /// Bytes of an index entry in a run.
    pub entry_disk: f64,
    /// Number of indexes.
    pub indexes: f64,
}

impl RowBytes {
    /// Rows of about 100 bytes with three indexes of a number each, as measured by a test.
    pub const TYPICAL: RowBytes =
        RowBytes { row: 100.0, log: 168.0, entry_memory: 79.0, entry_disk: 13.5, indexes: 3.0 };

    /// Bytes of a row and its entries on disk.
    pub fn stored(&self) -> f64 {
        self.row + self.indexes * self.entry_disk
    }

    /// Bytes that a generation of the memtable adds to an index.
    pub fn run(&self, generation: f64) -> f64 {
        generation / (self.indexes * self.entry_memory) * self.entry_disk
    }
}

/// How often flushes and compactions write a byte of an index, where `ratio` = index / run of a
/// generation: by the flush, by the tiers, and by the share of the bottom run. From a ratio of
/// about 70 on, the limit of six tiers makes compactions smaller than fan-in 4: four times the size
/// cost 2.3 passes, not 0.7. The numbers are fitted to the results of the picker with compactions
/// that take no time.
pub fn passes(ratio: f64) -> f64 {
    1.0 + evenkeel_sched::laws::compaction::passes(ratio)
}

/// Tiers above the bottom run: each tier holds runs four times the size of those of the tier
/// before.
pub fn tiers(ratio: f64) -> f64 {
    (ratio / 2.0).max(1.0).ln() / 4f64.ln()
}

/// The greatest number of runs of an index while compactions keep up: three of each tier, one being
/// written, and the bottom run; never more than 9. (If they do not keep up, credit enforces the
/// limit of 12.)
pub fn runs(ratio: f64) -> f64 {
    (3.0 * tiers(ratio) + 2.0).min(9.0)
}

/// Bytes written to the disk for a row that is inserted in key order.
pub fn written_per_row(row: &RowBytes, ratio: f64) -> f64 {
    row.log + row.row + row.indexes * row.entry_disk * passes(ratio)
}

/// Bytes that compactions read for such a row.
pub fn read_per_row(row: &RowBytes, ratio: f64) -> f64 {
    row.indexes * row.entry_disk * (passes(ratio) - 1.0)
}

/// Rows per second that a disk of this many bytes per second sustains.
pub fn rows_per_sec(row: &RowBytes, ratio: f64, bytes_per_sec: f64) -> f64 {
    bytes_per_sec / (written_per_row(row, ratio) + read_per_row(row, ratio))
}

/// The greatest number of bytes that running compactions still have to read and write: one
/// compaction into the bottom run of each index has nearly all of it.
pub fn debt(index_bytes: f64) -> f64 {
    2.0 * index_bytes
}

/// Bytes of memory that hold everything needed of a database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Fences: the first keys of the blocks of runs.
    pub fences: f64,
    /// The filter of a unique index.
    pub filter: f64,
    /// The positions of pages in the pool, also of pages that are not in it.
    pub page_table: f64,
    /// The memory of unused indexes.
    pub catalog: f64,
}

/// Bytes of memory per entry of a run: its part of a block's fence, and its bits in a filter.
pub const FENCE_BYTES: f64 = 0.07;
/// See above.
pub const FILTER_BYTES: f64 = 1.25;

/// The memory for `rows`; their tables have this many unused indexes.
pub fn memory(row: &RowBytes, rows: f64, unused_indexes: f64) -> Memory {
    Memory {
        fences: rows * row.indexes * FENCE_BYTES,
        filter: rows * FILTER_BYTES,
        // Four bytes for each 64 pages of 4 KiB.
        page_table: rows * row.row / 4096.0 / 64.0 * 4.0,
        catalog: unused_indexes * 64.0,
    }
}

/// The work of a restart, and the speed of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart {
    /// Bytes of log from the checkpoint on.
    pub log: f64,
    /// Bytes of log segments behind the end of the log. All of them are read during the second
    /// pass: a hole in the log that is taken for its end would lose the records behind it.
    pub behind: f64,
    /// Pages that the log changes. The formula assumes that they fit into the pool: otherwise some
    /// are written and read again.
    pub pages: f64,
    /// Bytes of log that the processors replay in a second.
    pub replayed_per_sec: f64,
    /// Bytes that the disk reads in a second.
    pub disk_bytes_per_sec: f64,
    /// Single pages that the disk reads in a second, at random.
    pub disk_ios_per_sec: f64,
}

/// Size of the doublewrite file, which is read first.
const DOUBLEWRITE: f64 = (3u64 << 20) as f64;
/// Bytes that the first pass has read ahead when it finds the end.
const READ_AHEAD: f64 = (2u64 << 20) as f64;

/// The longest time to open after a crash, in seconds. Adjacent pages are read together, and the
/// log is read while pages are. The first pass waits for the disk, the second for the disk or the
/// processors. Neither the size of the database nor that of a transaction matters.
pub fn restart_sec(of: &Restart) -> f64 {
    let first = (of.log + READ_AHEAD + DOUBLEWRITE) / of.disk_bytes_per_sec;
    let second = ((of.log + of.behind) / of.disk_bytes_per_sec).max(of.log / of.replayed_per_sec);
    first + second + of.pages / of.disk_ios_per_sec
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod scale_tests;
