//! Clock, randomness, waits and threads of the operating system, shared by the environments that
//! run in real time.
#![allow(unsafe_code)]

use crate::rng::SharedRng;
use crate::{Event, Task, Woken};
use evenkeel_base::{Code, Error, Result};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Real time and real threads.
pub(crate) struct Os {
    start: Instant,
    random: SharedRng,
}

impl Os {
    pub fn new() -> Os {
        // The standard library keys its hash maps from the system's entropy: a seed without a
        // dependency, different in each process.
        Os { start: Instant::now(), random: SharedRng::new(RandomState::new().hash_one(0)) }
    }

    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    pub fn random(&self) -> u64 {
        self.random.next_u64()
    }

    pub fn wait(&self, event: &Arc<Event>, seen: u64, timeout: Option<Duration>) -> Woken {
        if event.now() != seen {
            return Woken::Event;
        }
        if timeout == Some(Duration::ZERO) {
            std::thread::yield_now();
            return Woken::Timeout;
        }
        if event.block(seen, timeout) { Woken::Event } else { Woken::Timeout }
    }

    pub fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        std::thread::Builder::new()
            .name(name.to_string())
            .spawn(body)
            .map(|handle| Box::new(Thread(handle)) as Box<dyn Task>)
            .map_err(|e| Error::new(Code::ThreadSpawn).with("thread", name).caused_by(e))
    }
}

struct Thread(std::thread::JoinHandle<()>);

impl Task for Thread {
    fn join(self: Box<Self>) -> Result<()> {
        self.0.join().map_err(|_| Error::internal("a background thread panicked"))
    }
}

/// The CPU that this thread runs on now.
pub(crate) fn current_cpu() -> usize {
    if cfg!(miri) {
        return 0; // Miri does not know the call.
    }
    // SAFETY: plain system call without arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The CPUs that this thread may run on; none if the system does not tell.
fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: `cpu_set_t` is plain data, for which zeros are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and of the size given.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } == 0;
    known.then_some(set)
}

fn allow(set: &libc::cpu_set_t) {
    // SAFETY: reads a set of the size given.
    unsafe { libc::sched_setaffinity(0, size_of_val(set), set) };
}

/// Restricts this thread to one CPU of those that it may run on.
fn allow_one(cpu: usize) {
    // SAFETY: `cpu_set_t` is plain data, for which zeros are a valid value.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu < size_of_val(&one) * 8 {
        // SAFETY: `cpu` is below the number of bits of the set, which is ours.
        unsafe { libc::CPU_SET(cpu, &mut one) };
        allow(&one);
    }
}

/// Runs `spawn` with this thread bound to one CPU: threads that it starts stay bound to it. The
/// threads of a simulation run one at a time, and on one CPU a hand-over costs a third of the time
/// between two CPUs. If binding is refused, `spawn` runs all the same.
pub(crate) fn spawn_on<R>(cpu: usize, spawn: impl FnOnce() -> R) -> R {
    let before = allowed();
    // SAFETY: reads a set of known size, which is ours.
    let rest = before.filter(|set| unsafe { libc::CPU_COUNT(set) } > 1);
    if rest.is_some() {
        allow_one(cpu);
    }
    let result = spawn();
    if let Some(rest) = rest {
        allow(&rest);
    }
    result
}

/// Binds this thread, and the threads that it starts from now on, to the `n`-th (modulo their
/// number) of the CPUs that it may run on. If that is refused nothing changes.
pub(crate) fn stay_on_nth(n: usize) {
    let Some(set) = allowed() else { return };
    // SAFETY: the CPUs asked for are below the number of bits of the set, which is ours.
    let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    let cpus: Vec<usize> = (0..size_of_val(&set) * 8).filter(is_in).collect();
    if !cpus.is_empty() {
        allow_one(cpus[n % cpus.len()]);
    }
}

/// Lowers the priority of this thread for good: raising it again needs a privilege. False if that
/// is refused.
pub fn lower_priority() -> bool {
    const MORE: libc::c_int = 10;
    // SAFETY: plain system calls. On Linux a priority is that of one thread.
    unsafe {
        let thread = libc::gettid() as libc::id_t;
        let own = libc::getpriority(libc::PRIO_PROCESS, thread);
        libc::setpriority(libc::PRIO_PROCESS, thread, own + MORE) == 0
    }
}

/// Nanoseconds that this thread has had a processor, and that it has waited for one; none if the
/// system does not count them.
pub fn processor_ns() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    let (ran, waited) = (numbers.next()?, numbers.next()?);
    (ran > 0).then_some((ran, waited))
}

/// Limits the heap to this many arenas: with one for every few short-lived threads, most of its
/// memory would be new to the process, page for page. A hint.
pub(crate) fn bound_heaps(most: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: changes no allocation; the allocator takes its own locks.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, most as libc::c_int)
    };
}

/// Returns the whole pages inside `bytes` to the system: they read as zeros (memory of the process)
/// from now on, and take no memory until they are written. A hint that may do nothing.
pub fn give_back(bytes: &mut [u8]) {
    let skip = bytes.as_ptr().align_offset(crate::IO_ALIGN).min(bytes.len());
    let inner = &mut bytes[skip..];
    let len = inner.len() / crate::IO_ALIGN * crate::IO_ALIGN;
    if cfg!(miri) {
        inner[..len].fill(0); // Miri does not know the call.
    } else if len > 0 {
        // SAFETY: the range is whole pages inside a slice that we borrow exclusively; whatever they
        // read as afterwards is a valid value of `u8`.
        unsafe { libc::madvise(inner.as_mut_ptr().cast(), len, libc::MADV_DONTNEED) };
    }
}

/// Returns free memory of the heap to the system, if its allocator does not do so by itself: glibc
/// keeps memory freed in one thread's arena from all others. Takes milliseconds with much memory,
/// so it is for rare events.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: changes no allocation; the allocator takes its own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;

/// Requests large pages inside `bytes`, whose addresses are translated faster. A hint.
pub fn large_pages(bytes: &mut [u8]) {
    let skip = bytes.as_ptr().align_offset(LARGE_PAGE).min(bytes.len());
    let inner = &mut bytes[skip..];
    let len = inner.len() / LARGE_PAGE * LARGE_PAGE;
    // Miri does not know the call.
    if len > 0 && !cfg!(miri) {
        // SAFETY: the range lies inside a slice that we borrow; advice changes no byte of it.
        unsafe { libc::madvise(inner.as_mut_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    }
}

/// The processor's tick counter, or the nearest equivalent; never zero.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 processor has the counter.
        unsafe { core::arch::x86_64::_rdtsc() | 1 }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64 | 1
    }
}

/// Processor time of this thread, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    if done != 0 {
        return 0;
    }
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
