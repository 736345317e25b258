//! The order of registration, the horizon, the race between them.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[test]
fn the_horizon_is_the_oldest_snapshot() {
    let s = Snapshots::new();
    s.publish(Lsn(10));
    assert_eq!(s.horizon(), Lsn(10));
    let (old, at) = s.register();
    assert_eq!(at, Lsn(10));
    s.publish(Lsn(20));
    let (young, at) = s.register();
    assert_eq!(at, Lsn(20));
    s.publish(Lsn(30));
    assert_eq!(s.horizon(), Lsn(10));
    s.release(old);
    assert_eq!(s.horizon(), Lsn(20));
    s.release(young);
    assert_eq!(s.horizon(), Lsn(30));
    assert_eq!(s.count(), 0);
}

#[test]
fn between_includes_its_lower_end_and_excludes_its_upper() {
    let s = Snapshots::new();
    s.publish(Lsn(10));
    let (place, _) = s.register();
    assert!(s.any_between(Lsn(5), Lsn(20)), "not published yet: a new snapshot may lie there");
    s.publish(Lsn(40));
    assert!(s.any_between(Lsn(10), Lsn(11)));
    assert!(!s.any_between(Lsn(5), Lsn(10)));
    assert!(!s.any_between(Lsn(11), Lsn(40)));
    s.release(place);
    assert!(!s.any_between(Lsn(5), Lsn(40)));
}

#[test]
fn a_rising_snapshot_may_end_anywhere_above() {
    let s = Snapshots::new();
    s.publish(Lsn(10));
    s.horizon();
    let place = s.claim(10 | RISING);
    s.publish(Lsn(40));
    assert_eq!(s.horizon(), Lsn(10));
    assert!(s.any_between(Lsn(20), Lsn(30)));
    s.slot(place).store(20, Ordering::SeqCst);
    assert!(!s.any_between(Lsn(30), Lsn(40)));
}

#[test]
fn snapshots_continue_in_further_blocks() {
    let s = Snapshots::new();
    s.publish(Lsn(1));
    let places: Vec<_> = (0..1000).map(|_| s.register().0).collect();
    assert_eq!(s.count(), 1000);
    s.publish(Lsn(9));
    assert_eq!(s.horizon(), Lsn(1));
    places.into_iter().for_each(|p| s.release(p));
    assert_eq!((s.count(), s.horizon()), (0, Lsn(9)));
}

/// Readers register while a purger computes horizons and "frees" everything below: no reader may
/// hold a snapshot below the freed point.
#[test]
fn no_snapshot_is_below_a_horizon() {
    let s = Arc::new(Snapshots::new());
    let freed = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    {
        let (s, stop) = (s.clone(), stop.clone());
        threads.push(std::thread::spawn(move || {
            let mut cts = 0;
            while !stop.load(Ordering::Relaxed) {
                cts += 1;
                s.publish(Lsn(cts));
                // Yields like the others (`pause`), which would otherwise run once in a time slice
                // on one processor.
                std::thread::yield_now();
            }
        }));
    }
    {
        let (s, stop, freed) = (s.clone(), stop.clone(), freed.clone());
        threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                freed.fetch_max(s.horizon().0, Ordering::SeqCst);
            }
        }));
    }
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (s, freed) = (s.clone(), freed.clone());
            std::thread::spawn(move || {
                for _ in 0..10_000 {
                    let (place, at) = s.register();
                    for _ in 0..3 {
                        let freed = freed.load(Ordering::SeqCst);
                        assert!(freed <= at.0, "freed below {freed}, snapshot at {at}");
                    }
                    s.release(place);
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|r| r.join().expect("reader"));
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("thread"));
}

/// Separators that were collected for many questions answer each one like the slots.
#[test]
fn collected_separators_answer_like_the_slots() {
    let mut random = crate::testing::Random(9);
    for _ in 0..200 {
        let s = Snapshots::new();
        s.publish(Lsn(20 + random.below(20)));
        for _ in 0..random.below(4) {
            let rising = if random.below(4) == 0 { RISING } else { 0 };
            s.claim(random.below(40) | rising);
        }
        let separators = s.separators();
        for low in 0..45 {
            for high in low..45 {
                let (low, high) = (Lsn(low), Lsn(high));
                let alike = s.any_between(low, high) == separators.any_between(low, high);
                assert!(alike, "{low} {high} {separators:?}");
            }
        }
    }
}
