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
        if timeout == Some(Duration::ZERO) || event.now() != seen {
            return Woken::Event;
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

/// Binds this thread to one of the CPUs it may use, the `choice`-th. The threads of a simulation
/// run one at a time: on one CPU a hand-over costs a third of what it costs between two. Where it
/// is refused nothing changes.
pub(crate) fn bind_to_cpu(choice: u64) {
    const SIZE: usize = size_of::<libc::cpu_set_t>();
    // SAFETY: `cpu_set_t` is plain data, for which zeros are a valid value.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and of the size given.
    if unsafe { libc::sched_getaffinity(0, SIZE, &mut allowed) } != 0 {
        return;
    }
    // SAFETY: `cpu` is below the number of bits of the set.
    let cpus = (0..SIZE * 8).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) });
    let count = cpus.clone().count() as u64;
    let Some(cpu) = cpus.clone().nth(choice.checked_rem(count).unwrap_or(0) as usize) else {
        return;
    };
    // SAFETY: as above.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        libc::sched_setaffinity(0, SIZE, &one);
    }
}
