//! The atomics of `gate`. The models of `crates/sim/tests/models` compile it against their own
//! atomics, in which every operation is a scheduling point.

pub(crate) use std::sync::atomic;
