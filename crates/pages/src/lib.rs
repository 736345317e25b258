//! The page space and its buffer pool: frames and latches, mini-transactions, the space map,
//! flushing with doublewrite, page redo.
//!
//! - [`Pages::read`] gives a page latched for reading; [`Pages::begin`] a mini-transaction
//!   ([`Mtr`]), the only way to change one.
//! - Foreground threads never write pages. Background threads drive [`Pages::clean_beat`] (writes
//!   dirty pages at the pace of [`pacing`]), [`Pages::free_frames_beat`] (keeps frames free) and
//!   [`Pages::reclaim_beat`] (gives the space of freed extents back).
//! - [`PageRedo`] replays the log onto pages at start.
//! - [`dirty`], [`pacing`], [`pacer`], [`idle_flush`] and [`free_list`] stand alone, so that
//!   `evenkeel lab` can drive them at any size.
#![deny(unsafe_code)]

mod backing;
mod cleaner;
pub mod dirty;
mod doublewrite;
mod extents;
mod files;
mod frames;
pub mod free_list;
pub mod hint;
pub mod idle_flush;
mod latch;
mod mtr;
pub mod pacer;
pub mod pacing;
mod page_set;
mod page_table;
mod pages;
mod pool;
mod redo;
mod resize;
mod scratch;
mod segmented_vec;
mod space;
mod sync;
mod sync_turn;
mod touched;
mod visits;
mod warm;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod pacing_tests;
#[cfg(test)]
mod pages_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod test_support;

pub use cleaner::CLEANERS;
pub use mtr::Mtr;
pub use page_set::PageSet;
pub use pages::{Access, PageRead, PageToken, Pages, PagesOptions};
pub use redo::{Changes, PageLives, PageRedo, REDO_THREADS, RedoApply, RedoStats, each_page};
pub use space::SpaceStats;
pub use touched::REDO_BLOCK_PAGES;
pub use visits::{Costs, costs, visits};

/// Bytes of log to reserve for each page that a mini-transaction allocates or frees, on top of the
/// caller's own ops.
pub const SPACE_LOG_BYTES: usize = 160;
