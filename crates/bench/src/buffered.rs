//! The operating system's files through its page cache alone: `--direct-io false`.

use evenkeel_base::{Cause, Result};
use evenkeel_io::{Env, Event, File, OpenMode, RealEnv, Task, Woken};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The real environment, but for that it never asks for direct I/O.
pub struct Buffered(RealEnv);

impl Buffered {
    /// Files below `root`.
    pub fn new(root: &Path) -> Buffered {
        Buffered(RealEnv::new(root))
    }
}

impl Env for Buffered {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.0.open(path, OpenMode { direct: false, ..mode })
    }
    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.0.list(dir)
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.0.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.0.create_dir(dir)
    }
    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.0.sync_dir(dir)
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
    fn wait(&self, on: &Arc<Event>, seen: u64, time: Option<Duration>, cause: Cause) -> Woken {
        self.0.wait(on, seen, time, cause)
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        self.0.spawn(name, body)
    }
}
