//! Work of the engine's own threads: checkpoints, hot pages over a restart, the ballast, the
//! priority of compactions; and the supervisor that runs the threads.

pub(crate) mod ballast;
pub(crate) mod checkpoint;
pub(crate) mod compaction_priority;
pub(crate) mod decisions;
pub(crate) mod supervisor;
pub(crate) mod warm;
