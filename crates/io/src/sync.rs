//! The locks and atomics of `event`. The models of `crates/sim/tests/models` compile it against
//! their own, in which every operation is a scheduling point.

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) use crate::parking::Parking;
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use crate::platform::futex::Parking;
#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) use evenkeel_base::sync::{Condvar, Mutex};
pub(crate) use std::sync::atomic;
