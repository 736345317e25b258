//! The one fallible I/O trait and what stands behind it: real files, a simulated disk, clock,
//! randomness, threads and waits. Everything above performs I/O, reads time, draws random numbers,
//! starts threads and waits only through [`Env`] (principle 5, protocol G5).

mod blocks;
pub mod buf;
mod cancellation;
mod cgroup;
mod counting;
mod delete_scheduler;
pub mod device_wait;
pub mod env;
pub mod errno;
pub mod event;
mod fork;
mod gate;
mod latch;
pub mod mem;
mod os;
pub mod overlay;
#[cfg(any(not(target_os = "linux"), miri))]
mod parking;
pub mod platform;
pub mod probe;
pub mod real;
pub mod rng;
pub mod runtime;
pub mod sim;
mod sub;
mod sync;
mod thread_waits;
pub mod ticking;
pub mod wait_attribution;
mod waiting;

pub use buf::AlignedBuf;
pub use cancellation::{Cancellation, Stop};
/// What `delegate_env` names.
#[doc(hidden)]
pub mod delegated {
    pub use evenkeel_base::{Cause, Result};
}

pub use delete_scheduler::RemovalHold;
pub use env::{ABOVE_ROOT, Env, File, OpenMode, Task, Woken};
pub use event::Event;
pub use latch::{EventGuard, EventLatch};
pub use mem::MemEnv;
pub use os::{
    give_back, large_pages, lower_priority, name_thread, processor_ns, request_large_pages,
    trim_heap,
};
pub use overlay::OverlayEnv;
pub use probe::{Probe, probe};
pub use real::RealEnv;
pub use rng::{Rng, SharedRng};
pub use runtime::Runtime;
pub use sim::{CrashPolicy, SimDisk, SimEnv};
pub use sub::SubEnv;
pub use thread_waits::ExcludedWaits;
pub use ticking::TickingEnv;
pub use wait_attribution::Operation;
pub use waiting::ThreadWatch;

/// Direct I/O needs offsets, lengths and buffers in multiples of this.
pub const IO_ALIGN: usize = 4096;

#[cfg(test)]
mod blocks_tests;
#[cfg(test)]
mod delete_scheduler_tests;
#[cfg(test)]
mod mem_tests;
#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod runtime_tests;
