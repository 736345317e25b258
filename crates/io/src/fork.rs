//! Notices that the process was forked. A child has none of the threads of its parent's databases
//! and shares their files: it must neither use nor close them. `Runtime` alone calls this.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between the first call in some ancestor and this process.
pub(crate) fn generation() -> u32 {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| crate::platform::watch_forks(in_child));
    FORKS.load(Ordering::Relaxed)
}

/// The same, once `generation` was called.
pub(crate) fn present() -> u32 {
    FORKS.load(Ordering::Relaxed)
}
