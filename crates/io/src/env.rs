//! `Env` and `File`: all contact with the outside world; fallible, with at most ten methods each.
//! Paths are relative to the database directory, with `/` between parts; the environment owns the
//! root.

use crate::Event;
use evenkeel_base::{Cause, Result};
use std::{sync::Arc, time::Duration};

/// As a directory of [`Env::sync_dir`]: the one in which the root lies.
pub const ABOVE_ROOT: &str = "..";

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Create it if it does not exist.
    pub create: bool,
    /// Fail if it exists (with `create`).
    pub exclusive: bool,
    /// Open for writing.
    pub write: bool,
    /// Bypass the page cache where the file system allows it: offsets, lengths and buffers must be
    /// multiples of `IO_ALIGN` (use `AlignedBuf`).
    pub direct: bool,
    /// Hold a lock on it while open: alone to write (one process owns a directory), beside others
    /// that read (the simulator: alone).
    pub lock: bool,
}

impl OpenMode {
    /// Read an existing file.
    pub const READ: OpenMode =
        OpenMode { create: false, exclusive: false, write: false, direct: false, lock: false };
    /// Read and write, created if missing.
    pub const READ_WRITE: OpenMode =
        OpenMode { create: true, exclusive: false, write: true, direct: false, lock: false };
    /// As `READ_WRITE`, with direct I/O.
    #[must_use]
    pub const fn direct(mut self) -> OpenMode {
        self.direct = true;
        self
    }
}

/// An open file. Positions are bytes.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`. # Errors: `ReadShort` when the file ends before, `ReadFailed`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `buf` at `offset`. Durable only after `sync`.
    /// # Errors: `DiskFull`, `WriteFailed`.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Makes completed writes (and the length) durable. Never retried by callers after an error.
    fn sync(&self) -> Result<()>;
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// True if the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) to `len`.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves blocks for the range, extending the file if needed, so that later writes into it
    /// cannot fail for space. # Errors: `DiskFull`.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    /// Frees the blocks of the range; it reads as zeros afterwards.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The event was notified.
    Event,
    /// The time has passed.
    Timeout,
}

/// A running thread.
pub trait Task: Send {
    /// Waits for its end. # Errors: `Internal` if it panicked.
    fn join(self: Box<Self>) -> Result<()>;
}

/// The outside world. Ten methods.
pub trait Env: Send + Sync + 'static {
    /// Opens a file. # Errors: `FileMissing`, `NoPermission`, `DirectoryBusy` (`lock`: another
    /// holds it), `DiskFull`, `FileOpen`.
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Names (not paths) of the entries of a directory, sorted; empty if it does not exist.
    fn list(&self, dir: &str) -> Result<Vec<String>>;
    /// Removes a file; Ok if it does not exist.
    fn remove(&self, path: &str) -> Result<()>;
    /// Renames a file, replacing the target atomically.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Makes a directory and its parents ("" is the root itself); Ok if it exists.
    fn create_dir(&self, dir: &str) -> Result<()>;
    /// Makes creations, removals and renames in a directory durable. [`ABOVE_ROOT`] makes the name
    /// of the root itself durable, and those of the directories above it that may be new.
    fn sync_dir(&self, dir: &str) -> Result<()>;
    /// Monotonic clock, nanoseconds from an arbitrary start.
    fn now_ns(&self) -> u64;
    /// A random number.
    fn random(&self) -> u64;
    /// Waits until `event` has advanced from `seen` or the time has passed. The caller holds no
    /// `Mutex`. With a time of zero it yields the processor. Under simulation also a point where
    /// another thread may run, even if `event` has advanced.
    fn wait(&self, event: &Arc<Event>, seen: u64, timeout: Option<Duration>, cause: Cause)
    -> Woken;
    /// Starts a thread. # Errors: `ThreadSpawn`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>>;
}

/// Methods of [`Env`](crate::Env) that an environment delegates to another one:
/// `delegate_env!(inner: list, now_ns, random)` within its `impl Env`, where `inner` is the field.
#[macro_export]
macro_rules! delegate_env {
    ($to:tt: $($method:ident),+) => { $($crate::delegate_env!(@ $to $method);)+ };
    (@ $to:tt open) => {
        fn open(
            &self,
            path: &str,
            mode: $crate::OpenMode,
        ) -> $crate::delegated::Result<std::sync::Arc<dyn $crate::File>> {
            self.$to.open(path, mode)
        }
    };
    (@ $to:tt list) => {
        fn list(&self, dir: &str) -> $crate::delegated::Result<Vec<String>> {
            self.$to.list(dir)
        }
    };
    (@ $to:tt remove) => {
        fn remove(&self, path: &str) -> $crate::delegated::Result<()> {
            self.$to.remove(path)
        }
    };
    (@ $to:tt rename) => {
        fn rename(&self, from: &str, to: &str) -> $crate::delegated::Result<()> {
            self.$to.rename(from, to)
        }
    };
    (@ $to:tt create_dir) => {
        fn create_dir(&self, dir: &str) -> $crate::delegated::Result<()> {
            self.$to.create_dir(dir)
        }
    };
    (@ $to:tt sync_dir) => {
        fn sync_dir(&self, dir: &str) -> $crate::delegated::Result<()> {
            self.$to.sync_dir(dir)
        }
    };
    (@ $to:tt now_ns) => {
        fn now_ns(&self) -> u64 {
            self.$to.now_ns()
        }
    };
    (@ $to:tt random) => {
        fn random(&self) -> u64 {
            self.$to.random()
        }
    };
    (@ $to:tt wait) => {
        fn wait(
            &self,
            event: &std::sync::Arc<$crate::Event>,
            seen: u64,
            timeout: Option<std::time::Duration>,
            cause: $crate::delegated::Cause,
        ) -> $crate::Woken {
            self.$to.wait(event, seen, timeout, cause)
        }
    };
    (@ $to:tt spawn) => {
        fn spawn(
            &self,
            name: &str,
            body: Box<dyn FnOnce() + Send>,
        ) -> $crate::delegated::Result<Box<dyn $crate::Task>> {
            self.$to.spawn(name, body)
        }
    };
}
