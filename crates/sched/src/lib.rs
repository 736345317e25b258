//! Laws of scheduling: how fast background I/O may go (the governor, G2), which background work
//! has a processor, and what a cache would gain from more memory. [`Scheduler`] applies them for
//! one database; whatever reads, writes or computes in the background asks it. Below it, `io`
//! knows files, clocks, threads and waits, but no kind of work.

mod cpu;
pub mod foreground_limit;
mod ghost_cache;
pub mod governor;
mod scheduler;

pub use cpu::{BuildBudget, SLICE_NS, Seat};
pub use ghost_cache::GhostCache;
pub use governor::{Class, Governor, PriorityGovernor, UNLIMITED};
pub use scheduler::{Building, Scheduler};

#[cfg(test)]
mod scheduler_tests;
