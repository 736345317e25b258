//! The simulator's environment: a simulated disk, a virtual clock, seeded randomness and a seeded
//! scheduler, all from one `u64` (principle 5, protocol G5). Equal seeds give equal runs.
//!
//! ```
//! use evenkeel_io::{OpenMode, Runtime, sim::{CrashPolicy, SimEnv}};
//! let sim = SimEnv::new(7);
//! let rt = Runtime::new(sim.env());
//! let file = rt.env.open("a", OpenMode::READ_WRITE)?;
//! sim.run(vec![Box::new(move || { let _ = file.write_at(b"x", 0); })]); // threads take turns
//! let after = sim.crash(CrashPolicy::LoseAll, 1);                       // ends them
//! assert!(after.disk().paths().is_empty());                             // nothing was synced
//! # Ok::<(), evenkeel_base::Error>(())
//! ```
//!
//! Rules: threads are started only by `Env::spawn` or [`SimEnv::run`]; no `Mutex` is held over a
//! wait, a step or I/O; no other clock, randomness or randomly seeded hash order may influence the
//! run.

mod crash;
mod disk;
mod explore;
mod fault;
mod inode;
mod names;
mod sched;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod explore_tests;
#[cfg(test)]
mod sched_tests;

pub use crash::CrashPolicy;
pub use disk::{SimDisk, is_crash};
pub use explore::{Explore, Explored, Survivor};
pub use fault::{Fault, FaultKind, Noted, When};
pub use inode::SECTOR;
pub use sched::Unwound;

use crate::rng::{Rng, SharedRng};
use crate::{ABOVE_ROOT, Env, Event, File, OpenMode, Runtime, Task, Woken};
use evenkeel_base::{Cause, Code, Error, Result};
use sched::{Role, Scheduler};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The scheduling of a simulation. `new` draws everything from the seed, so that many seeds try
/// many kinds of machine.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// Determines everything.
    pub seed: u64,
    /// `Runtime::step` lets another thread run one time in this many (0: never, and threads are
    /// neither slow nor delayed, which the seed otherwise decides).
    pub step_switch: u64,
    /// A wait whose event has advanced lets another thread run one time in this many.
    pub wait_switch: u64,
    /// Others run during a read or write one time in this many, and during every sync.
    pub io_switch: u64,
    /// I/O takes virtual time: a read 50-150 us, a write 10-60 us, a sync 100-2,000 us.
    pub latency: bool,
}

impl SimOptions {
    /// Drawn from the seed.
    pub fn new(seed: u64) -> SimOptions {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let mut draw = |from: &[u64]| from[rng.below(from.len() as u64) as usize];
        SimOptions {
            seed,
            step_switch: draw(&[2, 4, 8, 16, 64]),
            wait_switch: draw(&[2, 4, 16]),
            io_switch: draw(&[2, 4, 16]),
            latency: true,
        }
    }

    /// For tests of files alone: only the waiting thread is chosen without need, and I/O takes no
    /// time.
    pub fn quiet(seed: u64) -> SimOptions {
        SimOptions { seed, step_switch: 0, wait_switch: 0, io_switch: 0, latency: false }
    }
}

/// The unevenness of the threads of a simulation.
#[derive(Clone, Copy, Debug)]
struct Moods {
    /// One switch in this many changes a thread's share of the turns (0: all are equal).
    uneven: u64,
    /// One switching step in this many delays its thread for up to 1 ms (0: never).
    hold_up: u64,
}

impl Moods {
    fn new(options: &SimOptions) -> Moods {
        let mut rng = Rng::new(options.seed ^ 0x300d);
        let mut draw = |from: [u64; 3]| from[rng.below(3) as usize];
        let moods = Moods { uneven: draw([0, 16, 256]), hold_up: draw([0, 256, 4096]) };
        if options.step_switch == 0 { Moods { uneven: 0, hold_up: 0 } } else { moods }
    }
}

/// A closure that `run` runs as a thread.
pub type Session = Box<dyn FnOnce() + Send>;

/// The simulated environment. Clones share it.
#[derive(Clone)]
pub struct SimEnv {
    scheduler: Arc<Scheduler>,
    random: Arc<SharedRng>,
    never: Arc<Event>,
    device: Arc<Device>,
}

/// A device with one queue: each read and write waits for those before it.
#[derive(Default)]
struct Device {
    /// 0: I/O takes no time of the device.
    bytes_per_sec: AtomicU64,
    /// The same for bytes that the file system frees.
    freed_bytes_per_sec: AtomicU64,
    free_at_ns: AtomicU64,
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

fn in_catch() -> bool {
    CATCHING.get()
}

/// Runs `f`; `None` if a crash or the end of the simulation unwound it. For code that drives an
/// engine from the test's own thread.
pub fn catch_crash<R>(f: impl FnOnce() -> R) -> Option<R> {
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.set(before);
    match result {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Unwound>() => None,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Binds the `n`-th of several threads, each of which drives its own simulations, to a CPU:
/// hand-overs then stay on that CPU, and no two threads share one while another is idle. Results
/// are the same without this.
pub fn drive_beside_others(n: usize) {
    // Counted first, because afterwards only one is visible.
    crate::platform::bound_heaps(crate::real::cores());
    crate::platform::stay_on_nth(n);
}

impl SimEnv {
    /// An environment on an empty disk.
    pub fn new(seed: u64) -> SimEnv {
        SimEnv::on(SimDisk::new(seed), SimOptions::new(seed))
    }

    /// An environment on a disk, such as one that survived a crash.
    pub fn on(disk: SimDisk, options: SimOptions) -> SimEnv {
        SimEnv {
            scheduler: Scheduler::new(options, disk),
            random: Arc::new(SharedRng::new(!options.seed)),
            never: Arc::new(Event::new()),
            device: Arc::default(),
        }
    }

    /// From now on reads and writes go through one device that moves this many bytes per second of
    /// virtual time; 0: no device.
    pub fn set_device(&self, bytes_per_sec: u64) {
        self.device.bytes_per_sec.store(bytes_per_sec, Ordering::SeqCst);
    }

    /// From now on the device hears of bytes that the file system frees, and takes this long for
    /// them; 0: it does not.
    pub fn set_device_frees(&self, bytes_per_sec: u64) {
        self.device.freed_bytes_per_sec.store(bytes_per_sec, Ordering::SeqCst);
    }

    /// As an environment for a `Runtime`.
    pub fn env(&self) -> Arc<dyn Env> {
        Arc::new(self.clone())
    }

    /// A runtime over it.
    pub fn runtime(&self) -> Arc<Runtime> {
        Runtime::new(self.env())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.scheduler.options.seed
    }

    /// The disk: faults, crash points, contents.
    pub fn disk(&self) -> &SimDisk {
        &self.scheduler.disk
    }

    /// True after the crash.
    pub fn is_crashed(&self) -> bool {
        self.disk().is_crashed()
    }

    /// Hand-overs of the baton so far.
    pub fn switches(&self) -> u64 {
        self.scheduler.trace().0
    }

    /// A hash of the schedule: equal runs have equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.scheduler.trace().1
    }

    /// Runs the sessions as threads and returns when all have ended (a crash ends them, too).
    ///
    /// # Panics
    /// If a session panicked, or on a deadlock: with the seed and the list of waiting threads.
    pub fn run(&self, sessions: Vec<Session>) {
        if let Err(why) = self.try_run(sessions) {
            panic!("{why}");
        }
    }

    /// As `run`.
    ///
    /// # Errors
    /// The text with which `run` panics.
    pub fn try_run(&self, sessions: Vec<Session>) -> std::result::Result<(), String> {
        let mut slots = Vec::new();
        for body in sessions {
            match self.start("session", Role::Session, body) {
                Ok(started) => slots.push(started.slot),
                Err(error) => return Err(error.to_string()),
            }
        }
        self.scheduler.join(|| self.scheduler.all_ended(&slots));
        self.scheduler.failure().map_or(Ok(()), Err)
    }

    /// The messages of background threads that panicked; a panic ends only its own thread.
    pub fn panics(&self) -> Vec<String> {
        self.scheduler.panics()
    }

    /// Ends the simulation: every thread unwinds at its next wait; returns when all have ended. The
    /// disk stays unchanged.
    pub fn stop(&self) {
        self.scheduler.stop();
    }

    /// Crashes now, if that has not happened yet, ends all threads, and returns a new environment
    /// on the surviving disk.
    pub fn crash(&self, policy: CrashPolicy, seed: u64) -> SimEnv {
        self.disk().crash_now();
        self.stop();
        SimEnv::on(self.disk().crash(policy, seed), SimOptions::new(seed))
    }

    fn start(&self, name: &str, role: Role, body: Session) -> Result<SimTask> {
        let slot = self.scheduler.add(name, role);
        let panicked = Arc::new(AtomicBool::new(false));
        let task = SimTask { scheduler: self.scheduler.clone(), slot, panicked: panicked.clone() };
        let scheduler = self.scheduler.clone();
        let thread = move || {
            let result = catch_unwind(AssertUnwindSafe(|| {
                scheduler.begin(slot);
                body();
            }));
            let panic = result.err().and_then(|payload| panic_text(&*payload));
            panicked.store(panic.is_some(), Ordering::SeqCst);
            scheduler.end(slot, panic);
        };
        let cpu = *self.scheduler.cpu.get_or_init(crate::platform::current_cpu);
        let builder = std::thread::Builder::new().name(name.to_string());
        match crate::platform::spawn_on(cpu, || builder.spawn(thread)) {
            Ok(_) => Ok(task),
            Err(e) => {
                self.scheduler.end(slot, None);
                Err(Error::new(Code::ThreadSpawn).with("thread", name).caused_by(e))
            }
        }
    }

    /// Makes the device move this many bytes, after its earlier work.
    fn through_device(&self, bytes: usize) {
        self.take_device(bytes as u64, self.device.bytes_per_sec.load(Ordering::SeqCst));
    }

    /// Runs work that may free bytes of the disk, and makes the device free them.
    fn freeing<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = self.disk().used_bytes();
        let done = work();
        let freed = before.saturating_sub(self.disk().used_bytes());
        self.take_device(freed, self.device.freed_bytes_per_sec.load(Ordering::SeqCst));
        done
    }

    fn take_device(&self, bytes: u64, rate: u64) {
        if rate == 0 || bytes == 0 {
            return;
        }
        let now = self.now_ns();
        let ns = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
        let end = self.device.free_at_ns.load(Ordering::SeqCst).max(now) + ns;
        // Only the holder of the baton runs.
        self.device.free_at_ns.store(end, Ordering::SeqCst);
        let time = Some(Duration::from_nanos(end - now));
        self.scheduler.wait(&self.never, self.never.now(), time, Cause::DeviceSlow);
    }

    /// Spends the time of an I/O call, about `least..most` nanoseconds.
    fn take_time(&self, least: u64, most: u64, one_in: u64) {
        let scheduler = &self.scheduler;
        if !scheduler.options.latency {
            return;
        }
        let ns = least + scheduler.rng.below(most - least);
        if scheduler.rng.one_in(one_in) {
            let time = Some(Duration::from_nanos(ns));
            scheduler.wait(&self.never, self.never.now(), time, Cause::DeviceSlow);
        } else {
            scheduler.pass(ns);
        }
    }
}

/// The message of a panic; `None` for the unwinding of a simulation's end.
fn panic_text(payload: &(dyn Any + Send)) -> Option<String> {
    if payload.is::<Unwound>() {
        return None;
    }
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    Some(text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default())
}

struct SimTask {
    scheduler: Arc<Scheduler>,
    slot: usize,
    panicked: Arc<AtomicBool>,
}

impl Task for SimTask {
    fn join(self: Box<Self>) -> Result<()> {
        self.scheduler.join(|| self.scheduler.all_ended(&[self.slot]));
        if self.panicked.load(Ordering::SeqCst) {
            return Err(Error::internal("a background thread panicked"));
        }
        Ok(())
    }
}

struct SimFile {
    handle: disk::Handle,
    env: SimEnv,
}

impl SimFile {
    fn io_switch(&self) -> u64 {
        self.env.scheduler.options.io_switch
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.handle.read(buf, offset)?;
        self.env.through_device(buf.len());
        self.env.take_time(50_000, 150_000, self.io_switch());
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.handle.write(buf, offset)?;
        self.env.through_device(buf.len());
        self.env.take_time(10_000, 60_000, self.io_switch());
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        // Made durable at the beginning: writes during the sync are not promised.
        self.handle.sync()?;
        self.env.take_time(100_000, 2_000_000, 1);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        self.handle.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.env.freeing(|| self.handle.set_len(len))
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.handle.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.env.freeing(|| self.handle.punch(offset, len))
    }
}

impl Env for SimEnv {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let handle = self.disk().open(path, mode)?;
        Ok(Arc::new(SimFile { handle, env: self.clone() }))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.disk().list(dir)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.freeing(|| self.disk().remove(path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk().rename(from, to)
    }

    fn create_dir(&self, dir: &str) -> Result<()> {
        self.disk().create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        // The root is the disk, which no crash takes away (`SubEnv` has a root with a name).
        if dir == ABOVE_ROOT {
            return Ok(());
        }
        self.disk().sync_dir(dir)?;
        self.take_time(100_000, 2_000_000, 1);
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.scheduler.now_ns()
    }

    fn random(&self) -> u64 {
        self.random.next_u64()
    }

    fn wait(
        &self,
        event: &Arc<Event>,
        seen: u64,
        timeout: Option<Duration>,
        cause: Cause,
    ) -> Woken {
        if timeout == Some(Duration::ZERO) {
            self.scheduler.step(self.scheduler.options.step_switch, &self.never);
            return Woken::Event;
        }
        if event.now() != seen {
            self.scheduler.step(self.scheduler.options.wait_switch, &self.never);
            return Woken::Event;
        }
        self.scheduler.wait(event, seen, timeout, cause)
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        self.disk().thread_fault(name)?;
        Ok(Box::new(self.start(name, Role::Background, body)?))
    }
}
