//! What all scripts share: the tables they work on, and time that passes.

use evenkeel_base::Cause;
use evenkeel_io::{Event, SimEnv};
use std::sync::Arc;
use std::time::Duration;

/// The table of the scripts.
pub const T: &str = "num0";
/// The one whose rows the engine numbers.
pub const NUMBERED: &str = "heap0";

/// Lets simulated time pass.
pub fn rest(sim: &SimEnv, ms: u64) {
    let never = Arc::new(Event::new());
    sim.env().wait(&never, never.now(), Some(Duration::from_millis(ms)), Cause::Idle);
}
