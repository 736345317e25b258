//! The model of `docs/scale.md`: what a row costs, how many runs an index has, a restart takes.
//! Formulas over sizes; tests compare them with the engine at small ones.

pub mod experiment;
pub mod paper;
mod sim;

/// What a row weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowBytes {
    /// Its cell in a leaf.
    pub row: f64,
    /// Its record in the log.
    pub log: f64,
    /// An index entry in the memtable.
    pub entry_memory: f64,
    /// An index entry in a run.
    pub entry_disk: f64,
    /// Indexes.
    pub indexes: f64,
}

impl RowBytes {
    /// Rows of about 100 bytes with three indexes of a number each, as a test measures them.
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

/// How often a byte of an index is written by flushes and compactions while `ratio` = index / run
/// of a generation: by the flush, by tiers, and with its part of the bottom. From about 70 on the
/// limit of six tiers makes compactions smaller than fan-in 4: four times the size cost 2.3 passes,
/// not 0.7. The numbers are fitted to what the policy does with compactions that take no time.
pub fn passes(ratio: f64) -> f64 {
    1.0 + evenkeel_runs::passes(ratio)
}

/// Tiers above the bottom run: each holds runs four times the size of those of the one before.
pub fn tiers(ratio: f64) -> f64 {
    (ratio / 2.0).max(1.0).ln() / 4f64.ln()
}

/// Runs that an index has at most while compactions keep up: three of each tier, one being made,
/// the bottom; never more than 9. (Credit holds the limit of 12 where they do not.)
pub fn runs(ratio: f64) -> f64 {
    (3.0 * tiers(ratio) + 2.0).min(9.0)
}

/// Bytes written to the disk for a row that is inserted in key order.
pub fn written_per_row(row: &RowBytes, ratio: f64) -> f64 {
    row.log + row.row + row.indexes * row.entry_disk * passes(ratio)
}

/// Bytes read for it, by compactions alone.
pub fn read_per_row(row: &RowBytes, ratio: f64) -> f64 {
    row.indexes * row.entry_disk * (passes(ratio) - 1.0)
}

/// Rows per second that a disk of so many bytes per second takes for ever.
pub fn rows_per_sec(row: &RowBytes, ratio: f64, bytes_per_sec: f64) -> f64 {
    bytes_per_sec / (written_per_row(row, ratio) + read_per_row(row, ratio))
}

/// Bytes that compactions begun have left to read and write at most: one into the bottom of each
/// index takes nearly all of it.
pub fn debt(index_bytes: f64) -> f64 {
    2.0 * index_bytes
}

/// Bytes of memory that hold all of what is wanted of a database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Fences: where the blocks of runs begin.
    pub fences: f64,
    /// The filter of a unique index.
    pub filter: f64,
    /// Where the pages of the pool are: what is there for pages that are not in it.
    pub translation: f64,
    /// What indexes take that nobody uses.
    pub catalog: f64,
}

/// Bytes of memory per entry of a run: its part of a block's fence, and its bits in a filter.
pub const FENCE_BYTES: f64 = 0.07;
/// See above.
pub const FILTER_BYTES: f64 = 1.25;

/// What `rows` want of memory; their tables have so many indexes that nobody uses.
pub fn memory(row: &RowBytes, rows: f64, unused_indexes: f64) -> Memory {
    Memory {
        fences: rows * row.indexes * FENCE_BYTES,
        filter: rows * FILTER_BYTES,
        // A number of four bytes for 64 pages of 4 KiB.
        translation: rows * row.row / 4096.0 / 64.0 * 4.0,
        catalog: unused_indexes * 64.0,
    }
}

/// What a restart has to do, and with what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart {
    /// Bytes of log from the checkpoint on.
    pub log: f64,
    /// Bytes of its segments behind its end: all are looked at beside the second pass, for a hole
    /// in the log that is taken for its end would lose what follows.
    pub behind: f64,
    /// Pages that it changes. More than the pool holds are not in the formula: of those some are
    /// written, and read again.
    pub pages: f64,
    /// Bytes of log that processors replay in a second.
    pub replayed_per_sec: f64,
    /// Bytes that the disk reads in a second.
    pub disk_bytes_per_sec: f64,
    /// And single pages, at random.
    pub disk_ios_per_sec: f64,
}

/// The file of copies, which is read before.
const DOUBLEWRITE: f64 = (3u64 << 20) as f64;
/// What the first pass has read ahead when it finds the end.
const READ_AHEAD: f64 = (2u64 << 20) as f64;

/// Seconds to open after a crash, at most: neighbouring pages are read together, and while pages
/// are read the log is. The first pass waits for the disk, the second for it or for processors.
/// Neither the size of the database nor that of a transaction is in it.
pub fn restart_sec(of: &Restart) -> f64 {
    let first = (of.log + READ_AHEAD + DOUBLEWRITE) / of.disk_bytes_per_sec;
    let second = ((of.log + of.behind) / of.disk_bytes_per_sec).max(of.log / of.replayed_per_sec);
    first + second + of.pages / of.disk_ios_per_sec
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod scale_tests;
