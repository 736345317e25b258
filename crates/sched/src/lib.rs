//! Overload control: how long writers wait, and how much of the device and the processors
//! background work takes beside them.
//!
//! - [`laws`]: the laws as pure functions, with one table of depths.
//! - [`Admission`] and [`RateLimiter`]: how a writer waits, for a resource in its turn, or for a
//!   computed time.
//! - [`governor`], [`foreground_limit`], `cpu`: the laws of background I/O and of processors for
//!   background work. [`Scheduler`] applies them for one database; whatever reads, writes or
//!   computes in the background asks it.
//! - [`GhostCache`]: what a cache would gain from more memory.
//!
//! Below it, `io` knows files, clocks, threads and waits, but no kind of work.

mod admission;
mod cpu;
pub mod foreground_limit;
mod ghost_cache;
pub mod governor;
pub mod laws;
mod rate_limiter;
mod scheduler;
mod sync;

pub use admission::{Admission, Tried};
pub use cpu::{BuildBudget, SLICE_NS, Seat};
pub use ghost_cache::GhostCache;
pub use governor::{Class, Governor, PriorityGovernor, UNLIMITED};
pub use rate_limiter::RateLimiter;
pub use scheduler::{Building, Scheduler};

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod scheduler_tests;
