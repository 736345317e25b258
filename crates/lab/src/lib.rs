//! The reported failures of page flushing, each reproduced at the size at which it was reported,
//! beside what replaces it. `docs/lab.md` explains them.
//!
//! An experiment (`flush_scan`, `restart_flush`, `free_pages`, `dirty_count`, `fan_out`,
//! `scale::experiment`) runs policies, or sizes, side by side in virtual time: everything follows
//! from its setup, which holds the seed. It yields an [`Outcome`]: JSON as it is, a page by
//! [`report`], pictures for the documents by [`report::svg`]. Where a policy is ours, the engine's
//! own code runs: its dirty buckets, its pacing law, its index build, its choice of compactions,
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
