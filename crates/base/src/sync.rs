//! Locks without poisoning. A `Mutex` or `RwLock` guards a short section of memory work: a holder
//! never waits on an event and never does I/O that can wait. (The simulator runs one thread at a
//! time and switches threads only at waits.)

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
