//! The locks and atomics of `event`. The models of `crates/sim/tests/models` compile it against
//! their own, in which every operation is a scheduling point.

#[cfg(target_os = "linux")]
pub(crate) use crate::futex::Parking;
#[cfg(not(target_os = "linux"))]
pub(crate) use crate::parking::Parking;
#[cfg(not(target_os = "linux"))]
pub(crate) use evenkeel_base::sync::{Condvar, Mutex};
pub(crate) use std::sync::atomic;
