//! The locks and atomics of `pins` and `idle_cursor_views`. The models of `crates/sim/tests/models`
//! compile them against their own, in which every operation is a scheduling point.

pub(crate) use evenkeel_base::sync::Mutex;
pub(crate) use std::sync::atomic;
