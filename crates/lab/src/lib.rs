//! The reported failures of page flushing, each reproduced at its reported size, next to the
//! engine's solution. `docs/lab.md` explains them.
//!
//! An experiment (`flush_scan`, `restart_flush`, `free_pages`, `dirty_count`, `fan_out`,
//! `scale::experiment`) compares policies, or sizes, in virtual time; its setup, which holds the
//! seed, determines everything. Its result is an [`Outcome`]: written as JSON, as a page by
//! [`report`], as pictures for the documents by [`report::svg`]. The engine's policies run the
//! engine's own code: its dirty buckets, its pacing law, its index build, its compaction picker,
//! credit and governor.

pub mod dirty_count;
pub mod fan_out;
pub mod flags;
pub mod flush_scan;
pub mod free_pages;
pub mod outcome;
pub mod report;
pub mod restart_flush;
pub mod scale;

pub use flags::{Experiment, LabError};
pub use outcome::Outcome;
