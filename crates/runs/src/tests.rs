//! Tests of the whole component: a history model, and a small commit table and log to stand in for
//! `txn` and `log`.

mod builds;
mod cold;
mod crash;
mod damaged;
mod estimates;
mod giving_back;
mod keeping_up;
mod line;
mod model;
mod parts;
mod pieces;
mod queues;
mod resting;
mod rig;
mod skips;
mod space;
mod together;
mod warmth;

pub(crate) use rig::Random;
