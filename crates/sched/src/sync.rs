//! The locks, atomics and events of `admission`. The models of `crates/sim/tests/models` compile it
//! against their own, in which every operation is a scheduling point.

pub(crate) use evenkeel_base::sync::Mutex;
pub(crate) use evenkeel_io::Event;
pub(crate) use std::sync::atomic;
