//! How threads sleep until a counter advances, on Linux: one system call wakes all, and they need
//! not take a mutex one after the other as with a condition variable (after a group commit that was
//! a chain of as many switches as waiters). Only `event` calls it.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// The system compares the low 32 bits. A thread would miss a wake-up only if exactly 2^32
/// notifications came between its look at the counter and its sleep.
#[derive(Default)]
pub(crate) struct Parking;

/// The word of `count` that changes with each notification.
fn word(count: &AtomicU64) -> *const u32 {
    let low = usize::from(cfg!(target_endian = "big"));
    count.as_ptr().cast::<u32>().cast_const().wrapping_add(low)
}

impl Parking {
    /// Sleeps until `wake_all`, unless `count` is no longer `seen`, and at most until the deadline.
    /// May return spuriously.
    pub(crate) fn sleep(&self, count: &AtomicU64, seen: u64, deadline: Option<Instant>) {
        let left = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            libc::timespec {
                // 64 bits on every target of this crate.
                tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word lies inside an atomic that is borrowed for the call, the time is ours;
        // the system only reads both.
        unsafe { libc::syscall(libc::SYS_futex, word(count), operation, seen as u32, timeout) };
    }

    /// Wakes the threads that sleep for `count`, which has advanced.
    pub(crate) fn wake_all(&self, count: &AtomicU64) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the system takes the address as a name only.
        unsafe { libc::syscall(libc::SYS_futex, word(count), operation, i32::MAX) };
    }
}

#[cfg(test)]
mod tests {
    use crate::Event;
    use std::sync::Arc;
    use std::time::Duration;

    /// Many sleepers; each notification wakes all that saw the count before it: none is forgotten.
    #[test]
    fn every_sleeper_is_woken_each_time() {
        let event = Arc::new(Event::new());
        let done = Arc::new(Event::new());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (event, done) = (event.clone(), done.clone());
                std::thread::spawn(move || {
                    for round in 0..2000 {
                        assert!(event.block(round, Some(Duration::from_secs(60))), "forgotten");
                        done.notify();
                    }
                })
            })
            .collect();
        for round in 0..2000 {
            event.notify();
            let mut seen = done.now();
            while seen < (round + 1) * 8 {
                assert!(done.block(seen, Some(Duration::from_secs(60))), "{seen} of {round}");
                seen = done.now();
            }
        }
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
    }

    #[test]
    fn a_sleep_ends_at_its_deadline() {
        let event = Event::new();
        assert!(!event.block(0, Some(Duration::from_millis(5))));
        assert!(!event.block(0, Some(Duration::ZERO)));
        event.notify();
        assert!(event.block(0, None), "it has moved on before");
        assert!(!event.block(1, Some(Duration::from_millis(1))));
    }
}
