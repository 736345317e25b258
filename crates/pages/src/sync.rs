//! Where `latch` takes its atomics from: the models of `crates/sim/tests/models` compile it against
//! others, whose every operation is a scheduling point.

pub(crate) use std::sync::atomic;
