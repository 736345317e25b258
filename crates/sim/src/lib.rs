//! Whole-engine simulator: seeded workloads, crashes, model, planted faults.
//!
//! A seed decides everything: the machine (`io::sim`), what the sessions do, which faults strike,
//! when the machine crashes and what survives. Equal seeds give equal runs. What a run is told by
//! the engine is compared with a model (`model`), after each crash and at the end everything is
//! (`verify`). `run` ties it together; `events` counts what was reached.
#![forbid(unsafe_code)]

pub mod actor;
mod change;
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
