//! Work of the engine's own threads: checkpoints, hot pages over a restart, the ballast, the
//! priority of compactions; the supervisor that starts and stops the actors, and the threads that
//! they share.

pub(crate) mod actor;
pub(crate) mod ballast;
pub(crate) mod checkpoint;
pub(crate) mod compaction_priority;
pub(crate) mod decisions;
pub(crate) mod supervisor;
pub(crate) mod warm;
pub(crate) mod workers;
