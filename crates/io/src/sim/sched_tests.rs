//! The scheduler: runs repeat, one thread runs at a time, time jumps, deadlocks are reported, and a
//! crash ends every thread.
use super::*;
use evenkeel_base::sync::Mutex;
use std::sync::atomic::AtomicU64;

fn sessions(n: usize, body: impl Fn(usize) + Clone + Send + 'static) -> Vec<Session> {
    let session = |id| {
        let body = body.clone();
        Box::new(move || body(id)) as Session
    };
    (0..n).map(session).collect()
}

/// Three sessions and a background thread that write, sync, step and wait.
fn play(seed: u64) -> (u64, u64, u64, Vec<usize>) {
    let sim = SimEnv::new(seed);
    let rt = sim.runtime();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (work, stop) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
    let (r, w, s, o) = (rt.clone(), work.clone(), stop.clone(), order.clone());
    let actor = rt.spawn("actor", move || {
        while !s.load(Ordering::SeqCst) {
            let seen = w.now();
            o.lock().push(9);
            r.wait(&w, seen, Some(Duration::from_millis(3)), Cause::Idle);
        }
    });
    let (r, w, o) = (rt.clone(), work.clone(), order.clone());
    sim.run(sessions(3, move |id| {
        let file = r.env.open(&format!("f{id}"), OpenMode::READ_WRITE).expect("open");
        for i in 0..15 {
            o.lock().push(id);
            r.step();
            file.write_at(&r.env.random().to_le_bytes(), i * 8).expect("write");
            w.notify();
            r.delay(Duration::from_micros(r.env.random() % 50 + 1), Cause::Governor);
            file.sync().expect("sync");
        }
    }));
    stop.store(true, Ordering::SeqCst);
    work.notify();
    actor.expect("spawn").join().expect("join");
    let order = order.lock().clone();
    (sim.trace_hash(), sim.switches(), sim.disk().hash(), order)
}

#[test]
fn equal_seeds_give_equal_runs_and_others_differ() {
    let mut traces = std::collections::BTreeSet::new();
    let mut disks = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let first = play(seed);
        assert_eq!(first, play(seed), "seed {seed}");
        traces.insert(first.0);
        disks.insert(first.2);
    }
    assert_eq!((traces.len(), disks.len()), (40, 40));
    assert!(!traces.contains(&SimEnv::new(0).trace_hash()), "what runs counts, not the seed alone");
}

#[test]
fn only_one_thread_runs_at_a_time() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        let rt = sim.runtime();
        let (inside, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let count = total.clone();
        sim.run(sessions(5, move |_| {
            for _ in 0..100 {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "seed {seed}");
                std::hint::black_box((0..50).sum::<u64>());
                inside.fetch_sub(1, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                rt.step();
            }
        }));
        assert_eq!(total.load(Ordering::SeqCst), 500);
    }
}

#[test]
fn the_clock_jumps_to_the_nearest_deadline() {
    let sim = SimEnv::new(4);
    let rt = sim.runtime();
    let woken = Arc::new(Mutex::new(Vec::new()));
    let (start, w) = (rt.env.now_ns(), woken.clone());
    let r = rt.clone();
    sim.run(sessions(3, move |id| {
        let hours = 3 - id as u64;
        r.delay(Duration::from_secs(hours * 3600), Cause::Idle);
        w.lock().push((hours, (r.env.now_ns() - start) / 3_600_000_000_000));
    }));
    assert_eq!(*woken.lock(), [(1, 1), (2, 2), (3, 3)]);
}

#[test]
fn a_wait_ends_by_its_event_or_by_its_deadline() {
    let sim = SimEnv::new(4);
    let rt = sim.runtime();
    let event = Arc::new(Event::new());
    let (r, e) = (rt.clone(), event.clone());
    let waker = rt.spawn("waker", move || {
        r.delay(Duration::from_millis(5), Cause::Idle);
        e.notify();
    });
    let seen = event.now();
    let timeout = |ms| Some(Duration::from_millis(ms));
    assert_eq!(rt.wait(&event, seen, timeout(1), Cause::RowLock), Woken::Timeout);
    assert_eq!(rt.wait(&event, seen, timeout(100), Cause::RowLock), Woken::Event);
    assert_eq!(rt.wait(&event, seen, None, Cause::RowLock), Woken::Event);
    waker.expect("spawn").join().expect("join");
}

#[test]
fn a_deadlock_report_lists_every_waiting_thread() {
    let sim = SimEnv::new(3);
    let rt = sim.runtime();
    let r = rt.clone();
    let actor = rt.spawn("flusher", move || {
        r.wait(&Arc::new(Event::new()), 0, None, Cause::Idle);
    });
    let r = rt.clone();
    let waiting = sessions(1, move |_| {
        r.wait(&Arc::new(Event::new()), 0, None, Cause::RowLock);
    });
    let report = sim.try_run(waiting).expect_err("nobody wakes it");
    for part in ["seed 3", "row_lock", "flusher", "idle", "the end of threads"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    actor.expect("spawn").join().expect("unwound, which is no panic");
}

#[test]
fn a_deadlock_of_the_test_itself_panics() {
    let sim = SimEnv::new(8);
    let rt = sim.runtime();
    let wait = || rt.wait(&Arc::new(Event::new()), 0, None, Cause::LogSync);
    let result = catch_unwind(AssertUnwindSafe(wait));
    let text = panic_text(&*result.expect_err("panics")).unwrap_or_default();
    assert!(text.contains("deadlock (seed 8)") && text.contains("log_sync"), "{text}");
    wait(); // Reported once; then the test may clean up.
}

#[test]
fn a_panic_of_a_session_ends_the_run_with_its_text() {
    let sim = SimEnv::new(6);
    let rt = sim.runtime();
    let report = sim.try_run(sessions(3, move |id| {
        rt.step();
        assert!(id != 1, "balance is wrong");
        rt.wait(&Arc::new(Event::new()), 0, None, Cause::RowLock);
    }));
    let report = report.expect_err("fails");
    assert!(report.contains("balance is wrong") && report.contains("seed 6"), "{report}");
}

#[test]
fn a_panic_of_a_background_thread_fails_its_join() {
    let sim = SimEnv::new(6);
    let task = sim.runtime().spawn("actor", || panic!("on purpose")).expect("spawn");
    assert_eq!(task.join().err().map(|e| e.code()), Some(Code::Internal));
}

/// A crash during work: writers get errors, waiters are unwound, destructors run, and no thread
/// remains.
#[test]
fn a_crash_ends_every_thread() {
    struct Ended(Arc<AtomicU64>, Arc<Runtime>);
    impl Drop for Ended {
        fn drop(&mut self) {
            // A wait in a destructor returns at once.
            self.1.delay(Duration::from_secs(1), Cause::Idle);
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for seed in 0..50 {
        let sim = SimEnv::new(seed);
        let rt = sim.runtime();
        let ended = Arc::new(AtomicU64::new(0));
        sim.disk().crash_at(10 + seed % 20);
        let guard = Ended(ended.clone(), rt.clone());
        let r = rt.clone();
        let idle = rt.spawn("idle", move || {
            let _guard = guard;
            r.wait_until(&Arc::new(Event::new()), Cause::Idle, || false);
        });
        let (r, e) = (rt.clone(), ended.clone());
        sim.run(sessions(4, move |id| {
            let _guard = Ended(e.clone(), r.clone());
            if id == 3 {
                r.wait_until(&Arc::new(Event::new()), Cause::RowLock, || false);
            }
            let Ok(file) = r.env.open(&format!("f{id}"), OpenMode::READ_WRITE) else { return };
            while file.write_at(b"x", 0).and_then(|()| file.sync()).is_ok() {}
            assert!(file.sync().is_err_and(|e| is_crash(&e)));
        }));
        assert!(sim.is_crashed(), "seed {seed}");
        let after = sim.crash(CrashPolicy::KeepAll, seed);
        idle.expect("spawn").join().expect("unwound");
        assert_eq!(ended.load(Ordering::SeqCst), 5, "seed {seed}");
        assert!(!after.is_crashed());
        after.runtime().delay(Duration::from_secs(1), Cause::Idle);
    }
}

#[test]
fn a_crash_under_the_tests_own_thread_can_be_caught() {
    let sim = SimEnv::new(2);
    let rt = sim.runtime();
    sim.disk().crash_now();
    let forever = catch_crash(|| rt.wait_until(&Arc::new(Event::new()), Cause::LogSync, || false));
    assert_eq!(forever, None);
    assert_eq!(catch_crash(|| 5), Some(5));
}

#[test]
fn stop_ends_threads_that_wait_forever() {
    let sim = SimEnv::new(2);
    let rt = sim.runtime();
    let r = rt.clone();
    let task = rt.spawn("actor", move || r.wait_until(&Arc::default(), Cause::Idle, || false));
    rt.delay(Duration::from_millis(1), Cause::Idle);
    sim.stop();
    task.expect("spawn").join().expect("unwound");
}

/// The rule that no thread holds a `Mutex` during a wait: a violation is reported after a while.
#[test]
fn a_mutex_held_over_a_wait_is_reported_as_a_hang() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions { step_switch: 1, ..SimOptions::new(1) });
    let (rt, mutex) = (sim.runtime(), Arc::new(Mutex::new(())));
    let run = sessions(2, move |_| {
        let _held = mutex.lock();
        rt.delay(Duration::from_millis(1), Cause::Governor);
    });
    let result = catch_unwind(AssertUnwindSafe(|| sim.run(run)));
    let text = panic_text(&*result.expect_err("panics")).unwrap_or_default();
    assert!(text.contains("hangs (seed 1)") && text.contains("session#2"), "{text}");
}

/// Seeds run threads unevenly in several ways; without switches at steps there are none of them.
#[test]
fn some_seeds_favour_threads() {
    let moods = |seed| Moods::new(&SimOptions::new(seed));
    let uneven: std::collections::BTreeSet<_> = (0..50).map(|s| moods(s).uneven).collect();
    let hold_up: std::collections::BTreeSet<_> = (0..50).map(|s| moods(s).hold_up).collect();
    assert_eq!((uneven.len(), hold_up.len()), (3, 3));
    let even = Moods::new(&SimOptions { step_switch: 0, ..SimOptions::new(1) });
    assert_eq!((even.uneven, even.hold_up), (0, 0));
}

/// Prints the price of a hand-over; asserts nothing about time.
#[test]
fn hand_overs_are_counted() {
    let moods = |seed| Moods::new(&SimOptions::new(seed));
    let even = |seed: &u64| moods(*seed).uneven == 0 && moods(*seed).hold_up == 0;
    let seed = (0..).find(even).expect("one in nine");
    let options = SimOptions { step_switch: 1, ..SimOptions::new(seed) };
    let sim = SimEnv::on(SimDisk::new(1), options);
    let rt = sim.runtime();
    let start = std::time::Instant::now();
    sim.run(sessions(4, move |_| (0..5000).for_each(|_| rt.step())));
    let (switches, ns) = (sim.switches(), start.elapsed().as_nanos() as u64);
    assert!(switches >= 20_000);
    eprintln!("{} ns per choice of four threads", ns / switches);
}
