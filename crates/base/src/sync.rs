//! Locks without poisoning. Rule for all holders: a `Mutex` or `RwLock` guards a short section of
//! memory work; never wait on an event and never do I/O that can wait while holding one (the
//! simulator passes one baton between threads and only waits hand it on).

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
