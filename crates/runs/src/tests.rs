//! Tests of the whole component: a history model, and a small commit table and log in place of
//! `txn` and `log`.

mod builds;
mod crash;
mod damaged;
mod estimates;
mod giving_back;
mod keeping_up;
mod lazy_metadata;
mod model;
mod parts;
mod pieces;
mod queues;
mod resting;
mod skips;
mod space;
mod test_support;
mod together;
mod wait_queue;
mod warmth;

pub(crate) use test_support::Random;
