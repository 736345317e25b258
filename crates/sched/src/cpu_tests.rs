//! Tests: which threads work, and which yield.
use super::{
    BUILD_BYTE_NS, BUILD_ENTRY_NS, PAUSE_NS_MAX, SHARED_NS, SHORT_ENTRY_BYTES, SLICE_NS,
    SMALL_BUILD_NS, pause_ns,
};
use crate::{BuildBudget, Scheduler};
use evenkeel_base::{Cause, metrics::Metric};
use evenkeel_io::{Event, MemEnv, Runtime, SimEnv, TickingEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_thread_yields_the_processor_once_a_slice() {
    let env = Arc::new(TickingEnv::new(Arc::new(MemEnv::new()), SLICE_NS / 10));
    let sched = Scheduler::new(Runtime::new(env.clone()));
    let rt = sched.runtime().clone();
    (0..10).for_each(|_| sched.give_way());
    assert_eq!(env.yields(), 0, "a slice has begun");
    (0..1000).for_each(|_| sched.give_way());
    // Ten looks at the clock to a slice.
    assert_eq!(env.yields(), 100);
    assert_eq!(rt.metrics.get(Metric::CpuYields), 100);
    // Steps are for the simulator only.
    rt.step();
    assert_eq!(env.yields(), 100);
}

#[test]
fn threads_of_a_build_have_a_fifth_of_the_cores_beside_others() {
    // Threads, cores, time of others, and the percentage of a fifth of the cores that the threads
    // then get.
    for (threads, cores, others_ns, share) in [
        (1, 1, SHARED_NS, 100),
        (3, 2, SHARED_NS, 100),
        (3, 2, 3_000_000, 100),
        (9, 8, SHARED_NS, 100),
        // They have no more than that anyway.
        (1, 8, SHARED_NS, 59),
        (3, 2, 19_000_000, 37),
    ] {
        let pause = pause_ns(SLICE_NS, others_ns, threads, cores);
        let cycle = SLICE_NS + others_ns + pause;
        let found = threads as u64 * SLICE_NS * 5 * 100 / (cycle * cores as u64);
        assert_eq!(found, share, "{threads} threads, {cores} cores, others {others_ns} ns");
    }
    assert_eq!(pause_ns(SLICE_NS, SHARED_NS - 1, 3, 2), 0, "nobody else wants the processor");
    assert_eq!(pause_ns(SLICE_NS, SHARED_NS, 64, 0), PAUSE_NS_MAX);
    // Threads that waited for storage did not compute for that long.
    assert_eq!(pause_ns(100 * SLICE_NS, SHARED_NS, 1, 2), 3 * SLICE_NS - SHARED_NS);
}

#[test]
fn a_build_pauses_only_where_users_are_at_work() {
    // A thread that yields the processor runs again a tick later.
    let paused = |tick_ns: u64, users_work: bool| {
        let env = Arc::new(TickingEnv::new(Arc::new(MemEnv::new()), tick_ns));
        let sched = Scheduler::new(Runtime::new(env.clone()));
        let rt = sched.runtime().clone();
        sched.set_cores(2);
        for _ in 0..1000 {
            if users_work {
                rt.metrics.add(Metric::Commits, 1);
            }
            sched.give_way_to_users(3, &BuildBudget::default());
        }
        assert!(rt.metrics.get(Metric::CpuYields) > 10);
        (rt.metrics.get(Metric::CpuBuildPauses), env.waits(Cause::Idle) - env.yields())
    };
    let (paused_often, waits) = paused(SHARED_NS, true);
    assert!(paused_often > 30 && waits == paused_often, "{paused_often}, {waits} waits");
    // The first time, the earlier work of the threads is unknown.
    assert!(paused(SHARED_NS, false).0 <= 1, "users rest");
    assert_eq!(paused(SHARED_NS / 2, true), (0, 0), "cores are free");
}

#[test]
fn a_small_build_runs_like_one_more_client() {
    // The build's threads work for two core-seconds beside busy users. Returns how long they worked
    // before the build first gave way.
    let gave_way = |entries: u64, bytes: u64| {
        let env = Arc::new(TickingEnv::new(Arc::new(MemEnv::new()), SLICE_NS));
        let sched = Scheduler::new(Runtime::new(env));
        let rt = sched.runtime().clone();
        sched.begin_build_work();
        let budget = BuildBudget::for_entries(entries, bytes);
        let mut first_ns = None;
        for worked in 0..2 * SMALL_BUILD_NS / SLICE_NS {
            rt.metrics.add(Metric::Commits, 1);
            sched.give_way_to_users(2, &budget);
            if rt.metrics.get(Metric::CpuYields) > 0 {
                first_ns = Some(worked * SLICE_NS);
                break;
            }
        }
        first_ns
    };
    let most = SMALL_BUILD_NS / BUILD_ENTRY_NS;
    let short = most * SHORT_ENTRY_BYTES;
    assert_eq!(gave_way(most + 1, short), Some(0), "a large one has no budget");
    // A build that was estimated as small, but is not, continues like a large one.
    let first_ns = gave_way(most, short).expect("the budget ends");
    assert!((SMALL_BUILD_NS..2 * SMALL_BUILD_NS).contains(&first_ns), "{first_ns}");
    // Entries of 3,000 bytes, the longest there are, take several times as long as short ones.
    assert_eq!(gave_way(most / 2, most / 2 * 3_000), Some(0), "few entries, and long ones");
    let each_ns = BUILD_ENTRY_NS + (3_000 - SHORT_ENTRY_BYTES) * BUILD_BYTE_NS;
    let few = SMALL_BUILD_NS / each_ns;
    assert!(few < most / 8, "{few} of {most}");
    assert_eq!(gave_way(few + 1, (few + 1) * 3_000), Some(0));
    assert!(gave_way(few, few * 3_000) > Some(0), "so few of them are a small build");
    // No overflow, and bytes alone count as work.
    assert_eq!(gave_way(u64::MAX, u64::MAX), Some(0));
    assert_eq!(gave_way(1, u64::MAX), Some(0));
}

#[test]
fn work_before_a_build_does_not_count_for_it() {
    let env = Arc::new(TickingEnv::new(Arc::new(MemEnv::new()), SHARED_NS));
    let sched = Scheduler::new(Runtime::new(env.clone()));
    let rt = sched.runtime().clone();
    for _ in 0..10 {
        sched.begin_build_work();
        sched.give_way_to_users(1, &BuildBudget::default());
        // A second of other work, and a commit.
        for _ in 0..1_000_000_000 / SHARED_NS {
            rt.env.now_ns();
        }
        rt.metrics.add(Metric::Commits, 1);
    }
    let given = [Metric::CpuYields, Metric::CpuBuildPauses].map(|m| rt.metrics.get(m));
    assert_eq!(given, [0, 0]);
}

/// Threads that work on seats: the largest number at a time, and their beats.
fn at_work(seed: u64, cores: usize) -> (usize, usize) {
    let sim = SimEnv::new(seed);
    let rt = sim.runtime();
    let sched = Scheduler::new(rt.clone());
    sched.set_cores(cores);
    let working = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let threads = (0..6).map(|_| {
        let (sched, working) = (sched.clone(), working.clone());
        let own = rt.clone();
        let body = move || {
            let mut left = 20;
            while left > 0 {
                let Some(_seat) = sched.seat_for(Duration::from_millis(1)) else { continue };
                let now = working[0].fetch_add(1, Ordering::SeqCst) + 1;
                working[1].fetch_max(now, Ordering::SeqCst);
                own.delay(Duration::from_micros(300), Cause::Idle);
                working[0].fetch_sub(1, Ordering::SeqCst);
                working[2].fetch_add(1, Ordering::SeqCst);
                left -= 1;
            }
        };
        rt.spawn("worker", body).expect("spawn")
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|t| t.join().expect("join"));
    (working[1].load(Ordering::SeqCst), working[2].load(Ordering::SeqCst))
}

#[test]
fn seats_for_background_work_are_a_quarter_of_the_cores() {
    for seed in 0..4 {
        for (cores, seats) in [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)] {
            assert_eq!(at_work(seed, cores), (seats, 120), "seed {seed}, {cores} cores");
        }
    }
}

#[test]
fn work_that_a_user_waits_for_needs_no_seat() {
    let sim = SimEnv::new(1);
    let rt = sim.runtime();
    let sched = Scheduler::new(rt.clone());
    let (waits, other) = (rt.clone(), sched.clone());
    let (first, second) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (taken, over) = (first.clone(), second.clone());
    let task = rt.spawn("worker", move || {
        let _seat = other.try_seat().expect("free");
        assert!(other.try_seat().is_none());
        taken.notify();
        let seen = over.now();
        if seen == 0 {
            waits.wait(&over, seen, None, Cause::Idle);
        }
    });
    let seen = 0;
    while first.now() == seen {
        rt.wait(&first, seen, None, Cause::Idle);
    }
    assert!(sched.try_seat().is_some() && sched.seat_for(Duration::ZERO).is_some());
    second.notify();
    task.expect("spawn").join().expect("join");
}

#[test]
fn waiting_for_a_seat_counts_as_a_governor_wait() {
    let env = Arc::new(TickingEnv::new(Arc::new(MemEnv::new()), 1000));
    let sched = Scheduler::new(Runtime::new(env.clone()));
    let rt = sched.runtime().clone();
    let other = sched.clone();
    let worker = rt.spawn("worker", move || {
        let _seat = other.try_seat().expect("free");
        assert!(other.seat_for(Duration::from_millis(1)).is_none());
    });
    worker.expect("spawn").join().expect("join");
    assert_eq!(rt.metrics.get(Metric::CpuSeatWaits), 1);
    assert!(env.waits(Cause::Governor) >= 1);
    assert_eq!(env.waits(Cause::Idle), 0);
}
