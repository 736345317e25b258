//! Simulator of the whole engine: seeded workloads, crashes, a model, planted faults.
//!
//! A seed determines everything: the machine (`io::sim`), what the sessions do, which faults are
//! injected, when the machine crashes and what survives. Equal seeds give equal runs. The answers
//! of the engine are compared with a model (`model`) during the run; after each crash and at the
//! end the whole database is compared (`verify`). `run` executes a seed; `events` counts the states
//! that were reached.
#![forbid(unsafe_code)]

pub mod actor;
mod change;
mod copy;
pub mod events;
pub mod expected;
pub mod interleave;
pub mod kind;
mod look;
mod memory;
pub mod model;
pub mod read;
pub mod rot;
pub mod run;
pub mod schema;
pub mod scripts;
pub mod seeds;
pub mod session;
pub mod values;
pub mod verify;
pub mod world;

pub use events::Events;
pub use run::{Outcome, run_seed};
