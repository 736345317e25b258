//! Where the lock table takes its locks and atomics from: the models of `crates/sim/tests/models`
//! compile it against others, whose every operation is a scheduling point.

pub(crate) use evenkeel_base::sync::Mutex;
pub(crate) use std::sync::atomic;
