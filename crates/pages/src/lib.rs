//! The page space and its buffer pool: frames and latches, mini-transactions, the space map,
//! flushing with doublewrite, page redo.
//!
//! - [`Pages::read`] gives a page latched for reading; [`Pages::begin`] a mini-transaction
//!   ([`Mtr`]), the only way to change one.
//! - Foreground threads never write pages. Background threads drive [`Pages::clean_beat`] (writes
//!   dirty pages at the rate of `evenkeel_sched::laws::pacing`), [`Pages::free_frames_beat`] (keeps
//!   frames free) and [`Pages::reclaim_beat`] (gives the space of freed extents back).
//! - [`PageRedo`] replays the log onto pages at start.
//! - [`dirty`], [`quota`], [`pacer`], [`idle_flush`] and [`free_list`] stand alone, so that
//!   `evenkeel lab` can drive them at any size.
#![deny(unsafe_code)]

mod flush;
mod invariants;
mod mtr;
mod pages;
mod pool;
mod redo;
mod space;
mod sync;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod pages_tests;
#[cfg(test)]
mod test_support;

pub use flush::cleaner::CLEANERS;
pub use flush::{dirty, idle_flush, pacer, quota};
pub use mtr::Mtr;
pub use pages::{Access, PageRead, PageToken, Pages, PagesOptions};
pub use pool::visits::{Costs, costs, visits};
pub use pool::{free_list, hint};
pub use redo::touched::REDO_BLOCK_PAGES;
pub use redo::{Changes, PageLives, PageRedo, REDO_THREADS, RedoApply, RedoStats, each_page};
pub use space::SpaceStats;
pub use space::copy::segment_file;
pub use space::page_set::PageSet;

/// Bytes of log to reserve for each page that a mini-transaction allocates or frees, on top of the
/// caller's own ops.
pub const SPACE_LOG_BYTES: usize = 160;
