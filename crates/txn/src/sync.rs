//! The locks and atomics of the lock table. The models of `crates/sim/tests/models` compile it
//! against their own, in which every operation is a scheduling point.

pub(crate) use evenkeel_base::sync::Mutex;
pub(crate) use std::sync::atomic;
