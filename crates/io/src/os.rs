//! Clock, randomness, waits and threads of the operating system, shared by the environments that
//! run in real time.
#![allow(unsafe_code)]

use crate::platform;
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

/// Lowers the priority of this thread for good: raising it again needs a privilege. False if that
/// is refused.
pub fn lower_priority() -> bool {
    const MORE: i32 = 10;
    platform::lower_priority(MORE)
}

/// Names this thread in the system's lists, where that is possible; 15 bytes are shown.
pub fn name_thread(name: &str) {
    platform::name_thread(name);
}

/// Nanoseconds that this thread has had a processor, and that it has waited for one; none if the
/// system does not count them.
pub fn processor_ns() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    let (ran, waited) = (numbers.next()?, numbers.next()?);
    (ran > 0).then_some((ran, waited))
}

/// Returns the whole pages inside `bytes` to the system: they read as zeros (memory of the process)
/// from now on, and take no memory until they are written. A hint that may do nothing.
pub fn give_back(bytes: &mut [u8]) {
    let skip = bytes.as_ptr().align_offset(crate::IO_ALIGN).min(bytes.len());
    let inner = &mut bytes[skip..];
    let len = inner.len() / crate::IO_ALIGN * crate::IO_ALIGN;
    platform::give_back(&mut inner[..len]);
}

/// Returns free memory of the heap to the system, if its allocator does not do so by itself: glibc
/// keeps memory freed in one thread's arena from all others. Takes milliseconds with much memory,
/// so it is for rare events.
pub fn trim_heap() {
    platform::trim_heap();
}

/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;

/// Requests large pages inside `bytes`, whose addresses are translated faster. A hint.
pub fn large_pages(bytes: &mut [u8]) {
    let skip = bytes.as_ptr().align_offset(LARGE_PAGE).min(bytes.len());
    let inner = &mut bytes[skip..];
    let len = inner.len() / LARGE_PAGE * LARGE_PAGE;
    platform::request_large_pages(inner.as_mut_ptr(), len);
}

/// Requests large pages for memory that was just allocated and holds nothing yet. A hint, which
/// changes no byte.
pub fn request_large_pages(base: std::ptr::NonNull<u8>, len: usize) {
    platform::request_large_pages(base.as_ptr(), len);
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
