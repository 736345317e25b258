//! Flushing: which pages are dirty and how old they are, the law of the rate at which they are
//! written, the threads that write them, and the doublewrite file.

pub(crate) mod cleaner;
pub mod dirty;
pub(crate) mod doublewrite;
pub mod idle_flush;
pub mod pacer;
pub mod pacing;
#[cfg(test)]
mod pacing_tests;
pub(crate) mod sync_turn;
