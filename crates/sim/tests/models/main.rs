//! Models of the engine's handshakes: the page latch and eviction, group commit, the hand-over of
//! generations, the barriers of an index build, views of idle cursors, range locks, the queue of a
//! row, the admission of writers, watched events. Each model runs a few threads through every
//! schedule with one preemption (two threads: with two; `EVENKEEL_PREEMPTIONS` adds more) and
//! through `EVENKEEL_SCHEDULES` (1,500) random schedules with up to four. The engine's own files
//! are compiled here with locks and atomics that are scheduling points; the models repeat the
//! engine's steps around them in short form. Each model has planted faults, which it must find.

mod sync {
    pub(crate) use super::event::Event;
    pub(crate) use super::parking::Parking;
    pub(crate) use evenkeel_sim::interleave::sync::*;
}

#[path = "../../../io/src/event.rs"]
#[allow(dead_code, unreachable_pub, reason = "the engine uses more of it")]
mod event;

#[path = "../../../io/src/parking.rs"]
mod parking;

#[path = "../../../pages/src/pool/latch.rs"]
#[allow(dead_code, reason = "as above")]
mod page_latch;

#[path = "../../../runs/src/read/idle_cursor_views.rs"]
mod idle_cursor_views;

#[path = "../../../runs/src/memtable/pins.rs"]
#[allow(dead_code, reason = "as above")]
mod pins;

#[path = "../../../txn/src/deadlock.rs"]
mod deadlock;

#[path = "../../../txn/src/escalation.rs"]
#[allow(dead_code, reason = "as above")]
mod escalation;

#[path = "../../../txn/src/growing.rs"]
#[allow(dead_code, reason = "as above")]
mod growing;

#[path = "../../../txn/src/intervals.rs"]
#[allow(dead_code, reason = "as above")]
mod intervals;

#[path = "../../../txn/src/lock_table.rs"]
#[allow(dead_code, reason = "as above")]
mod lock_table;

#[path = "../../../txn/src/owner.rs"]
#[allow(dead_code, unreachable_pub, reason = "as above")]
mod owner;

#[path = "../../../txn/src/range_locks.rs"]
#[allow(dead_code, reason = "as above")]
mod range_locks;

#[path = "../../../txn/src/row_queue.rs"]
#[allow(dead_code, reason = "as above")]
mod row_queue;

#[path = "../../../tables/src/gate.rs"]
mod gate;

#[path = "../../../sched/src/admission.rs"]
#[allow(dead_code, unreachable_pub, reason = "as above")]
mod admission;

/// The log's file, on top of the types of `shared` and `buffer` here.
#[path = "../../../log/src/commit.rs"]
#[allow(dead_code, reason = "as above")]
mod commit;

mod admissions;
mod barrier;
mod buffer;
mod eviction;
mod group_commit;
mod hand_over;
mod idle_cursors;
mod lock_queue;
mod parties;
mod phantoms;
mod shared;
mod watchers;

use evenkeel_sim::interleave::{Thread, explore, sample, spawn};
use event::Event;
use std::sync::Arc;

/// Waits as `Runtime::wait_until` does.
fn wait_until(event: &Event, mut condition: impl FnMut() -> bool) {
    loop {
        let seen = event.now();
        if condition() {
            return;
        }
        event.block(seen, None);
    }
}

/// Starts a thread with a handle of the shared state.
fn start<T: Send + Sync + 'static>(of: &Arc<T>, f: impl FnOnce(&T) + Send + 'static) -> Thread {
    let of = of.clone();
    spawn(move || f(&of))
}

/// Runs all schedules of this many threads with one preemption (two threads: with two), or with
/// more if the environment says so; then random schedules with up to four.
fn model(name: &str, threads: usize, body: impl Fn()) {
    let bound = if threads == 2 { 2 } else { 1 };
    let preemptions = bound + number("EVENKEEL_PREEMPTIONS", 0) as usize;
    let draws = number("EVENKEEL_SCHEDULES", 1_500);
    let schedules = explore(preemptions, &body);
    println!(
        "{name}: {threads} threads, {schedules} schedules with at most {preemptions} preemptions, \
         {draws} drawn with up to four"
    );
    sample(draws, 4, body);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Tests the explorer: an update that is not atomic is lost in some schedule.
#[test]
#[should_panic(expected = "one was lost")]
fn a_lost_update_is_found() {
    use crate::sync::atomic::{AtomicU64, Ordering};
    explore(1, || {
        let n = Arc::new(AtomicU64::new(0));
        let add = |n: &AtomicU64| n.store(n.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        let threads = [start(&n, add), start(&n, add)];
        threads.into_iter().for_each(Thread::join);
        assert_eq!(n.load(Ordering::SeqCst), 2, "one was lost");
    });
}

/// Tests the explorer: after a wake-up that comes before the wait, no thread can continue.
#[test]
#[should_panic(expected = "nobody can go on")]
fn a_lost_wake_up_is_found() {
    use crate::sync::atomic::{AtomicBool, Ordering};
    explore(2, || {
        let shared = Arc::new((AtomicBool::new(false), Event::new()));
        let waiter = start(&shared, |(done, event)| {
            if !done.load(Ordering::SeqCst) {
                event.block(event.now(), None);
            }
        });
        shared.0.store(true, Ordering::SeqCst);
        shared.1.notify();
        waiter.join();
    });
}
