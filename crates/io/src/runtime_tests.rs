//! I/O and waits are counted.
use crate::sim::{Fault, FaultKind, When};
use crate::{File, MemEnv, OpenMode, Runtime, SimEnv};
use evenkeel_base::{Cause, metrics::Metric};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn calls_and_bytes_of_io_are_counted() {
    let sim = SimEnv::new(1);
    let rt = sim.runtime();
    let file = rt.env.open("a", OpenMode::READ_WRITE).expect("open");
    file.write_at(&[1; 1000], 0).expect("write");
    file.sync().expect("sync");
    rt.env.sync_dir("").expect("sync");
    file.read_at(&mut [0; 300], 0).expect("read");
    sim.disk().inject(Fault::new(FaultKind::WriteError, When::Nth(1)));
    assert!(file.write_at(&[1; 1000], 0).is_err());
    let figures = [
        (Metric::FileReads, 1),
        (Metric::FileReadBytes, 300),
        (Metric::FileWrites, 1),
        (Metric::FileWriteBytes, 1000),
        (Metric::FileSyncs, 2),
    ];
    for (metric, wanted) in figures {
        assert_eq!(rt.metrics.get(metric), wanted, "{}", metric.name());
    }
}

#[test]
fn waits_of_foreground_threads_are_recorded_by_cause() {
    let sim = SimEnv::new(1);
    let rt = sim.runtime();
    rt.delay(Duration::from_millis(2), Cause::CompactionDebt);
    let other = rt.clone();
    let task = rt.spawn("actor", move || other.delay(Duration::from_secs(1), Cause::Governor));
    task.expect("spawn").join().expect("join");
    let figures = rt.stalls.get(Cause::CompactionDebt);
    assert_eq!((figures.count, figures.over_1ms), (1, 1));
    assert!((2000..2100).contains(&figures.us), "{}", figures.us);
    assert_eq!(rt.stalls.get(Cause::Governor).count, 0);
}

/// The time of each kind of I/O by a foreground thread is recorded: of index blocks and undo as of
/// pages. Waits of the log are counted for the thread that waits.
#[test]
fn io_of_foreground_threads_is_recorded_by_cause() {
    let sim = SimEnv::new(1);
    let rt = sim.runtime();
    for dir in ["runs", "undo", "wal"] {
        rt.env.create_dir(dir).expect("made");
    }
    let open = |path| rt.env.open(path, OpenMode::READ_WRITE).expect("open");
    let (run, undo, log) = (open("runs/1.run"), open("undo/1.undo"), open("wal/1.wal"));
    for file in [&run, &undo, &log] {
        file.write_at(&[1; 8000], 0).expect("write");
    }
    let before = rt.stalls.get(Cause::DeviceSlow).us;
    sim.set_device(1_000_000);
    let spent = |cause: Cause| rt.stalls.get(cause).us / 1000;
    let read = |file: &Arc<dyn File>| file.read_at(&mut [0; 5000], 0).expect("read");
    read(&log);
    log.write_at(&[1; 7000], 0).expect("write");
    assert_eq!((spent(Cause::PageRead), rt.stalls.get(Cause::DeviceSlow).us), (0, before));
    read(&run);
    assert_eq!(spent(Cause::PageRead), 5);
    read(&undo);
    assert_eq!(spent(Cause::PageRead), 10);
    run.write_at(&[1; 7000], 0).expect("write");
    assert_eq!((rt.stalls.get(Cause::DeviceSlow).us - before) / 1000, 7);
    let task = rt.spawn("actor", move || run.read_at(&mut [0; 5000], 0).expect("read"));
    task.expect("spawn").join().expect("join");
    assert_eq!(spent(Cause::PageRead), 10, "nobody waits for what the background does");
}

/// Records its calls, and itself waits during one of them.
struct Noted {
    rt: std::sync::Weak<Runtime>,
    told: Arc<std::sync::Mutex<Vec<Option<Cause>>>>,
}

impl crate::ThreadWatch for Noted {
    fn begins(&self, cause: Cause) {
        self.told.lock().expect("unharmed").push(Some(cause));
        self.rt.upgrade().expect("is there").delay(Duration::from_millis(1), Cause::FreeFrame);
        assert!(cause != Cause::Governor, "unwinds");
    }
    fn ends(&self) {
        self.told.lock().expect("unharmed").push(None);
    }
}

/// The embedding program is told when each wait of a foreground thread begins and ends, also if it
/// unwinds; it is not told of nested waits, of latches, or of waits of engine threads.
#[test]
fn waits_of_foreground_threads_are_reported_to_the_embedder() {
    let rt = SimEnv::new(1).runtime();
    rt.env.create_dir("runs").expect("made");
    let file = rt.env.open("runs/1.run", OpenMode::READ_WRITE).expect("open");
    file.write_at(&[1; 8000], 0).expect("write");
    let told = Arc::<std::sync::Mutex<Vec<_>>>::default();
    rt.watch_threads(Box::new(Noted { rt: Arc::downgrade(&rt), told: told.clone() }));
    let all = || std::mem::take(&mut *told.lock().expect("unharmed"));
    file.read_at(&mut [0; 5000], 0).expect("read");
    assert_eq!(all(), [Some(Cause::PageRead), None]);
    file.sync().expect("sync");
    assert_eq!(all(), [Some(Cause::DeviceSlow), None]);
    let millisecond = Duration::from_millis(1);
    rt.delay(millisecond, Cause::RowLock);
    assert_eq!(all(), [Some(Cause::RowLock), None]);
    assert_eq!(rt.waiting(Cause::LogSync, all), [Some(Cause::LogSync)]);
    assert_eq!(all(), [None]);
    rt.delay(millisecond, Cause::Idle);
    rt.delay(millisecond, Cause::PageLatch);
    rt.step();
    let other = rt.clone();
    let task = rt.spawn("actor", move || {
        other.delay(Duration::from_secs(1), Cause::Governor);
        file.read_at(&mut [0; 5000], 0).expect("read");
    });
    task.expect("spawn").join().expect("join");
    assert_eq!(all(), []);
    let unwinds = || rt.delay(millisecond, Cause::Governor);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(unwinds)).expect_err("unwinds");
    assert_eq!(all(), [Some(Cause::Governor), None]);
    rt.delay(millisecond, Cause::Schema);
    assert_eq!(all(), [Some(Cause::Schema), None]);
}

#[test]
fn threads_in_real_time_wake_each_other() {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let event = Arc::new(crate::Event::new());
    let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (e, f) = (event.clone(), flag.clone());
    let task = rt.spawn("waker", move || {
        f.store(true, std::sync::atomic::Ordering::SeqCst);
        e.notify();
    });
    rt.wait_until(&event, Cause::Idle, || flag.load(std::sync::atomic::Ordering::SeqCst));
    task.expect("spawn").join().expect("join");
}
