//! The write-ahead log: segments, blocks, reservation, group commit, replay (protocols B1-B4, G1,
//! G4). Layers above reserve space before their first latch, append without waiting, and wait for
//! durability holding nothing. Format: `evenkeel_format::wal`.
//!
//! ```text
//! checkpoint <= durable <= written <= end <= end + reserved <= prepared
//! ```
#![forbid(unsafe_code)]

mod admission;
mod ahead;
mod buffer;
mod commit;
pub mod log;
pub mod replay;
mod segments;
mod shared;
mod space;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod segments_tests;
#[cfg(test)]
mod within_tests;

pub use crate::log::{BUFFER_BYTES_MAX, Durability, Log, LogOptions, Reserved, Share};
pub use evenkeel_format::wal::RECORD_BYTES_MAX;
pub use replay::{LogEnd, Replay, check_segments, replay, sync_segments};
pub use space::{Limits, decide as decide_space};
