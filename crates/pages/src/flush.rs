//! Flushing: which pages are dirty and how old they are, the quota of pages to
//! write, the threads that write them, and the doublewrite file.

pub(crate) mod cleaner;
pub mod dirty;
pub(crate) mod doublewrite;
pub mod idle_flush;
pub mod pacer;
pub mod quota;
#[cfg(test)]
mod quota_tests;
pub(crate) mod sync_turn;
