//! The insert benchmark: its client, its figures, its report. `docs/benchmark.md` describes it.
//!
//! `flags` (the command line) -> `options` (checked values) -> `run` (all steps on one engine).
//! `run` uses `step` (threads and seconds of one step), `worker` (one thread's loop), `rows` and
//! `pattern` (the rows that are written) and `engine` (the stores under test: `null`, `embedded`,
//! servers in `sql`). It returns `result` (the JSON), which `report` draws and `diff` compares.
//! Wall time comes from `Instant`: this is a client, not the engine.

pub mod bound;
pub mod buffered;
pub mod diff;
pub mod embedded;
pub mod engine;
pub mod error;
pub mod figures;
pub mod flags;
pub mod live;
pub mod machine;
pub mod null;
pub mod options;
pub mod pattern;
pub mod report;
pub mod response;
pub mod result;
pub mod rows;
pub mod run;
pub mod sql;
pub mod state;
pub mod step;
pub mod thinning;
pub mod worker;

pub use engine::{Bytes, Counters, Engine, Failure, Session};
pub use error::BenchError;
pub use flags::Flags;
pub use options::Options;
pub use result::RunResult;
pub use run::{main_with, open_engine, run};
