//! A bounded step of background work (at most 1 MiB of I/O or 1 ms of CPU), driven by a thread or
//! by the simulator.

/// What one beat of background work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Nothing to do: wait for the actor's event.
    Idle,
    /// Did some work; more is ready at once.
    More,
}
