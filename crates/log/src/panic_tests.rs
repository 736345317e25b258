//! A thread that panics while it writes the log leaves no thread waiting: the others get an error.

use crate::log_tests::append;
use crate::{Log, LogOptions};
use evenkeel_base::{Cause, Code, Lsn, Result};
use evenkeel_io::{Env, Event, File, MemEnv, OpenMode, Runtime, Woken};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Threads that wait when the panic occurs: one with the leader, one for the lead, one behind that.
const OTHERS: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum At {
    Write,
    Sync,
}

/// Panics in one call, once the others wait.
struct Trap {
    at: At,
    armed: AtomicBool,
    /// The leader is in that call.
    caught: AtomicBool,
    waiting: AtomicUsize,
}

impl Trap {
    fn step(&self, at: At) {
        if self.at == at && self.armed.swap(false, SeqCst) {
            self.caught.store(true, SeqCst);
            until("all others wait", || self.waiting.load(SeqCst) == OTHERS);
            panic!("as planned");
        }
    }
}

struct Trapped<T: ?Sized>(Arc<T>, Arc<Trap>);

impl File for Trapped<dyn File> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.1.step(At::Write);
        self.0.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        self.1.step(At::Sync);
        self.0.sync()
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.0.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.0.punch(offset, len)
    }
}

impl Env for Trapped<dyn Env> {
    evenkeel_io::delegate_env! {
        0: list, remove, rename, create_dir, sync_dir, now_ns, random, spawn
    }
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Trapped(self.0.open(path, mode)?, self.1.clone())))
    }
    fn wait(&self, event: &Arc<Event>, seen: u64, time: Option<Duration>, cause: Cause) -> Woken {
        if cause == Cause::LogSync {
            self.1.waiting.fetch_add(1, SeqCst);
        }
        self.0.wait(event, seen, time, cause)
    }
}

/// Waits for other threads of this test, and fails if the condition never holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "it does not come that {what}");
        std::thread::yield_now();
    }
}

fn a_leader_panics(at: At) -> Result<()> {
    let trap = Arc::new(Trap {
        at,
        armed: AtomicBool::new(false),
        caught: AtomicBool::new(false),
        waiting: AtomicUsize::new(0),
    });
    let mem: Arc<dyn Env> = Arc::new(MemEnv::new());
    let rt = Runtime::new(Arc::new(Trapped(mem, trap.clone())) as Arc<dyn Env>);
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let (led, with_it) = (append(&log, b"a")?, append(&log, b"b")?);
    trap.armed.store(true, SeqCst);
    let (tell, told) = mpsc::channel();
    let wait = |lsn: Lsn| {
        let (log, tell) = (log.clone(), tell.clone());
        std::thread::spawn(move || {
            let _ = tell.send(log.wait_durable(lsn).err().map(|e| e.code()));
        })
    };
    let leader = wait(led);
    until("the leader is in the call", || trap.caught.load(SeqCst));
    let mut others = vec![wait(with_it)];
    for n in 2..=OTHERS {
        // In this order, as each thread waits for something else.
        until("the one before waits", || trap.waiting.load(SeqCst) == n - 1);
        others.push(wait(append(&log, b"c")?));
    }
    let panicked = leader.join().expect_err("it panics");
    assert_eq!(panicked.downcast_ref(), Some(&"as planned"));
    for _ in 0..OTHERS {
        let code = told.recv_timeout(Duration::from_secs(300)).expect("nobody waits for ever");
        assert_eq!(code, Some(Code::WritesStopped));
    }
    for other in others {
        other.join().expect("no panic");
    }
    assert!(rt.health.is_failed() && !log.is_durable(led));
    assert_eq!(append(&log, b"d").err().map(|e| e.code()), Some(Code::WritesStopped));
    Ok(())
}

#[test]
fn a_panicking_leader_leaves_no_thread_waiting() -> Result<()> {
    a_leader_panics(At::Write)?;
    a_leader_panics(At::Sync)
}
