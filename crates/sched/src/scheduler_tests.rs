//! Background work waits as long as the governor says.
use crate::{Class, Scheduler};
use evenkeel_base::Cause;
use evenkeel_io::sim::Session;
use evenkeel_io::{MemEnv, Runtime, SimEnv, Stop};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// While users wait for a device of 10 MB/s, the governor makes the threads of an index build
/// pause. Once the build is asked to stop, none of them pauses any longer.
#[test]
fn a_build_asked_to_stop_ends_its_pauses() {
    const MIB: u64 = 1 << 20;
    let sim = SimEnv::new(1);
    let (rt, stop) = (sim.runtime(), Arc::<Stop>::default());
    let sched = Scheduler::new(rt.clone());
    for _ in 0..4 {
        sched.governor.report(Class::Ddl, 1, MIB, 100_000_000);
    }
    rt.stalls.record(Cause::LogSync, 1_000_000_000);
    rt.delay(Duration::from_millis(200), Cause::Idle);
    let begun = rt.env.now_ns();
    let build = || -> Session {
        let (sched, stop) = (sched.clone(), stop.clone());
        Box::new(move || {
            let _building = sched.building(stop.clone());
            // Each pauses for half a second.
            while !stop.is_asked() {
                sched.ask(Class::Ddl, MIB, false);
                sched.runtime().step();
            }
            (0..10).for_each(|_| sched.ask(Class::Ddl, MIB, false));
        })
    };
    let (waits, cancelled) = (rt.clone(), stop.clone());
    let user: Session = Box::new(move || {
        for _ in 0..12 {
            waits.delay(Duration::from_millis(50), Cause::LogSync);
        }
        cancelled.ask();
    });
    sim.run(vec![build(), build(), user]);
    let took = (rt.env.now_ns() - begun) / 1_000_000;
    assert!((600..650).contains(&took), "{took} ms");
    assert!(rt.stalls.get(Cause::Governor).us > 500_000, "it was held back before");
}

/// A thread that keeps a database in a thread local and ends. (A panic there ends the process.)
#[test]
fn a_thread_may_wait_in_its_destructors() {
    struct Last(Arc<Scheduler>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.runtime().delay(Duration::from_millis(1), Cause::LogSync);
            self.0.ask(Class::Ddl, 1, false);
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let ends = Scheduler::new(rt.clone());
    let thread = std::thread::spawn(move || {
        LAST.set(Some(Last(ends.clone())));
        // The first thread local is destroyed last.
        drop(ends.building(Arc::default()));
    });
    thread.join().expect("it ends");
    assert_eq!(rt.stalls.get(Cause::LogSync).count, 1);
}
