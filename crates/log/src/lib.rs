//! The write-ahead log: segments, blocks, reservation, group commit, replay (protocols B1-B4, G1,
//! G4). Layers above reserve space before their first latch, append without waiting, and hold
//! nothing while they wait for durability. Format: `evenkeel_format::wal`.
//!
//! ```text
//! checkpoint <= durable <= written <= end <= end + reserved <= prepared
//! ```
#![forbid(unsafe_code)]

mod admission;
mod ahead;
mod behind;
mod block_copy;
mod buffer;
mod commit;
pub mod log;
mod pin;
pub mod replay;
mod rest;
mod segments;
mod shared;
mod space;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod behind_tests;
#[cfg(test)]
mod commit_tests;
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

pub use crate::log::{Durability, Log, LogOptions, Reserved};
pub use behind::Behind;
pub use block_copy::{LostBlock, lost_blocks, put_blocks};
pub use evenkeel_format::wal::RECORD_BYTES_MAX;
pub use pin::LogPin;
pub use replay::{LogEnd, Replay, check_segments, replay, replay_to_end, sync_segments};
pub use space::{Limits, Share};
