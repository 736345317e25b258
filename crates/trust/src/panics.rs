//! Counts the panics of all threads of the process: a panic of a background thread does not fail a
//! test by itself.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Number of panics since the first call.
pub fn count() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, SeqCst);
            before(info);
        }));
    });
    COUNT.load(SeqCst)
}
