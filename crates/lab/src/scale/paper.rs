//! The tables of `docs/scale.md` that formulas compute, for sizes that cannot be tested directly.
//! `tests/docs.rs` writes them into the document, and checks them.

use super::experiment::{FAST, SLOW};
use super::{Restart, RowBytes, debt, memory, passes, restart_sec, rows_per_sec, written_per_row};
use crate::outcome::Unit;

/// Bytes of rows and entries.
const SIZES: [(&str, f64); 3] = [("150 GB", 150e9), ("1 TB", 1e12), ("10 TB", 10e12)];
/// A generation of the memtable at its largest.
const GENERATION: f64 = (256u64 << 20) as f64;
/// Bytes of log that two processors replay in a second, as measured (the document names the
/// machine).
const REPLAYED_PER_SEC: f64 = 350e6;
/// Segments behind the log's end: the rest of one, and two prepared ones.
const SEGMENTS_BEHIND: f64 = 3.0;
const SEGMENT: f64 = (64u64 << 20) as f64;
/// Number of unused indexes.
const UNUSED: f64 = 1e6;
/// Sizes of the log, and numbers of pages that it changes.
const LOGS: [(u64, f64); 3] = [(256 << 20, 10_000.0), (1 << 30, 50_000.0), (2 << 30, 100_000.0)];

fn rows(size: f64) -> f64 {
    size / RowBytes::TYPICAL.stored()
}

fn index(size: f64) -> f64 {
    rows(size) * RowBytes::TYPICAL.entry_disk
}

fn ratio(size: f64) -> f64 {
    index(size) / RowBytes::TYPICAL.run(GENERATION)
}

fn head(name: &str) -> String {
    let sizes = SIZES.map(|(size, _)| size).join(" | ");
    format!("| {name} | {sizes} |\n|---|---|---|---|")
}

fn line(name: &str, unit: Unit, of: impl Fn(f64) -> f64) -> String {
    let values = SIZES.map(|(_, size)| unit.show(of(size))).join(" | ");
    format!("\n| {name} | {values} |")
}

/// The cost of a row in indexes of each size.
pub fn costs() -> String {
    let row = RowBytes::TYPICAL;
    head("")
        + &line("rows", Unit::Count, rows)
        + &line("r, each index", Unit::Count, ratio)
        + &line("passes (fitted up to r = 4,096)", Unit::Count, |size| passes(ratio(size)))
        + &line("written per row", Unit::Bytes, |size| written_per_row(&row, ratio(size)))
        + &line("rows per second that 100 MB/s sustain", Unit::PerSecond, |size| {
            rows_per_sec(&row, ratio(size), SLOW.0 as f64)
        })
}

/// The greatest debt of compactions.
pub fn debts() -> String {
    let all = |size: f64| debt(index(size)) * RowBytes::TYPICAL.indexes;
    head("")
        + &line("debt at most", Unit::Bytes, all)
        + &line("hours at 100 MB/s, with nothing else", Unit::Count, |size| {
            all(size) / SLOW.0 as f64 / 3600.0
        })
}

/// The memory that would hold everything that may be held.
pub fn memories() -> String {
    let of = |size: f64| memory(&RowBytes::TYPICAL, rows(size), UNUSED);
    head("what it would take to hold all of it")
        + &line("fences of three indexes", Unit::Bytes, |size| of(size).fences)
        + &line("filter, if one of them is unique", Unit::Bytes, |size| of(size).filter)
        + &line("page table", Unit::Bytes, |size| of(size).page_table)
        + &line("a million indexes that nobody uses", Unit::Bytes, |size| of(size).catalog)
}

/// The longest time of a restart, whatever the size of the database.
pub fn restarts() -> String {
    let mut out =
        String::from("| log | changed pages | slow disk | fast disk |\n|---|---|---|---|");
    for (log, pages) in LOGS {
        let times = [SLOW, FAST].map(|(bytes_per_sec, ios_per_sec)| {
            let (log, replayed_per_sec) = (log as f64, REPLAYED_PER_SEC);
            restart_sec(&Restart {
                log,
                behind: SEGMENTS_BEHIND * SEGMENT,
                pages,
                replayed_per_sec,
                disk_bytes_per_sec: bytes_per_sec as f64,
                disk_ios_per_sec: ios_per_sec as f64,
            })
        });
        let [slow, fast] = times.map(|seconds| Unit::Seconds.show(seconds));
        let (mib, pages) = (log >> 20, Unit::Count.show(pages));
        out += &format!("\n| {mib} MiB | {pages} | {slow} | {fast} |");
    }
    out
}
