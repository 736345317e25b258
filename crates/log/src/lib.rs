//! The write-ahead log: segments, blocks, reservation, group commit, replay.
#![forbid(unsafe_code)]

pub mod log;
pub mod replay;

pub use crate::log::{Durability, Log, LogOptions, Reserved, Share};
pub use replay::{LogEnd, Replay, replay};

/// Longest body of one record.
pub const RECORD_BYTES_MAX: usize = 2 << 20;
